#!/usr/bin/env bash
# SLCA-GRPO on Qwen3-8B-Base after its SFT stage: one node of 8 GPUs with 80 GB.
# Baselines, ablations, seeds and several nodes: as in the header of run_qwen2.5_7b_slca.sh.
set -xeuo pipefail

NAME=qwen3-8b
SEQUENCE_PARALLEL=${SEQUENCE_PARALLEL:-2} # 32k tokens and their logits are too much for one GPU beside 8B weights

# shellcheck source=run_scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
MODEL_PATH=${MODEL_PATH:-$(sft_checkpoint "$OUTPUTS/$NAME-sft")}
RUN_DIR=${RUN_DIR:-$OUTPUTS/$NAME-$ADV_ESTIMATOR${ABLATION:+-$ABLATION}-seed$SEED}
train "$@"
