#!/usr/bin/env bash
# BFCL (the Berkeley Function Calling Leaderboard) on a trained model, with the official bfcl-eval package.
#
#     vllm serve outputs/my-export --served-model-name slca --port 8000        # any OpenAI-compatible server
#     MODEL=slca BASE_URL=http://127.0.0.1:8000/v1 bash run_scripts/eval_bfcl.sh
#     MODEL=slca LIMIT=20 CATEGORIES=simple_python,multi_turn_base bash run_scripts/eval_bfcl.sh --temperature 0.6
#
# The server only has to write text: our proxy shows the tools in the training format and reads the calls, so
# neither its chat template nor its tool parser matters. Arguments go to recipe_slca.evaluation.bfcl. A rerun
# with the same OUTPUT continues; OUTPUT/results.json is the report, answers and scores lie beside it.
# The benchmark gets an environment of its own (VENV), since its pins clash with those of training.
set -euo pipefail

MODEL=${MODEL:?name of the model at its server, as in its --served-model-name}
BASE_URL=${BASE_URL:-http://127.0.0.1:8000/v1}
API_KEY_ENV=${API_KEY_ENV:-}           # name of the variable that holds the server's key, if it asks for one
CATEGORIES=${CATEGORIES:-single_turn,multi_turn} # the agentic ones need a search key or further packages
LIMIT=${LIMIT:-0}                      # only the first cases of each category; 0: all, as the leaderboard counts
THREADS=${THREADS:-16}
MAX_TOKENS=${MAX_TOKENS:-4096}         # bound of one turn
TIMEOUT_S=${TIMEOUT_S:-600}
STOP_FLAG=${STOP_FLAG:---stop-at-tool-call} # --no-stop-at-tool-call for a model trained with stop_at_tool_call=false
PROXY_PORT=${PROXY_PORT:-0}            # 0: any free one
PYTHON=${PYTHON:-python3}              # of the training environment, Python 3.10 to 3.12

# shellcheck source=run_scripts/eval_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/eval_common.sh"
VENV=${VENV:-$REPO/.venv-bfcl}
OUTPUT=${OUTPUT:-$REPO/outputs/bfcl/${MODEL//\//_}}

start_proxy "$OUTPUT"
install_benchmark "$VENV" bfcl_eval 2026.3.23 "$REPO/run_scripts/requirements_bfcl.txt"

status=0
OPENAI_BASE_URL=$PROXY_URL OPENAI_API_KEY=none "$VENV/bin/python" -m recipe_slca.evaluation.bfcl \
    --model "$MODEL" --output "$OUTPUT" --categories "$CATEGORIES" --limit "$LIMIT" --threads "$THREADS" "$@" || status=$?
proxy_counts "$OUTPUT"
exit "$status"
