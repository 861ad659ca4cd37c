#!/usr/bin/env bash
# SLCA-GRPO on Qwen2.5-3B-Instruct after its SFT stage: one node of 8 GPUs with 80 GB, or 4 with N_GPUS=4.
# Baselines, ablations, seeds and several nodes: as in the header of run_qwen2.5_7b_slca.sh.
set -xeuo pipefail

NAME=qwen2.5-3b

# shellcheck source=run_scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
MODEL_PATH=${MODEL_PATH:-$(sft_checkpoint "$OUTPUTS/$NAME-sft")}
RUN_DIR=${RUN_DIR:-$OUTPUTS/$NAME-$ADV_ESTIMATOR${ABLATION:+-$ABLATION}-seed$SEED}
train "$@"
