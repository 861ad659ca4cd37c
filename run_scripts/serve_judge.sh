#!/usr/bin/env bash
# The frozen LLM that grades replies: vLLM's own server, with the paper's model on 2 GPUs of 80 GB.
#
#     bash run_scripts/serve_judge.sh                                                      # then, in the launchers:
#     JUDGE_URLS='["http://HOST:8002/v1"]' bash run_scripts/run_qwen2.5_7b_slca.sh
#
# Smaller: MODEL=openai/gpt-oss-20b TENSOR_PARALLEL=1 on one GPU of 24 GB; set JUDGE_MODEL to the same name.
# Start it on several machines and give all URLs to spread the load. Arguments go to `vllm serve`.
set -euo pipefail

MODEL=${MODEL:-openai/gpt-oss-120b}
PORT=${PORT:-8002}
TENSOR_PARALLEL=${TENSOR_PARALLEL:-2}

# shellcheck source=run_scripts/serve_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/serve_common.sh"
serve "$@"
