#!/usr/bin/env bash
# The SFT stage of Qwen2.5-3B-Instruct: verl's own SFT trainer on our SFT parquet, with the paper's settings.
# One node of 8 GPUs with 80 GB; NNODES, NODE_RANK and MASTER_ADDR for more.
#
#     bash run_scripts/run_qwen2.5_3b_sft.sh
#
# Values: train_sft in common.sh. RUN_DIR/global_step_N/huggingface is what the RL stage starts from.
set -xeuo pipefail

NAME=qwen2.5-3b

# shellcheck source=run_scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-3B-Instruct}
RUN_DIR=${RUN_DIR:-$OUTPUTS/$NAME-sft}
train_sft "$@"
