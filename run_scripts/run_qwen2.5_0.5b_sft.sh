#!/usr/bin/env bash
# The SFT stage of Qwen2.5-0.5B-Instruct: verl's own SFT trainer on our SFT parquet, with the paper's settings.
# One GPU of 24 GB or more.
#
#     bash run_scripts/run_qwen2.5_0.5b_sft.sh
#
# Values: train_sft in common.sh. RUN_DIR/global_step_N/huggingface is what the RL stage starts from.
set -xeuo pipefail

NAME=qwen2.5-0.5b
N_GPUS=${N_GPUS:-1}
SFT_TOKENS=${SFT_TOKENS:-8192}
SFT_BATCH=${SFT_BATCH:-32}

# shellcheck source=run_scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-0.5B-Instruct}
RUN_DIR=${RUN_DIR:-$OUTPUTS/$NAME-sft}
train_sft "$@"
