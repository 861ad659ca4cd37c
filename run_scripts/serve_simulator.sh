#!/usr/bin/env bash
# The frozen LLM that stands in for the tools (SGLS): vLLM's own server, with the paper's model on 8 GPUs of 80 GB.
#
#     bash run_scripts/serve_simulator.sh                                                  # then, in the launchers:
#     SIMULATOR_URLS='["http://HOST:8001/v1"]' bash run_scripts/run_qwen2.5_7b_slca.sh
#
# Smaller: MODEL=Qwen/Qwen3-30B-A3B-Instruct-2507 TENSOR_PARALLEL=1 on one GPU of 80 GB,
# MODEL=Qwen/Qwen3-4B-Instruct-2507 TENSOR_PARALLEL=1 on one of 24 GB; set SIMULATOR_MODEL to the same name.
# Start it on several machines and give all URLs to spread the load. Arguments go to `vllm serve`.
set -euo pipefail

MODEL=${MODEL:-Qwen/Qwen3-235B-A22B-Instruct-2507}
PORT=${PORT:-8001}

# shellcheck source=run_scripts/serve_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/serve_common.sh"
serve "$@"
