#!/usr/bin/env bash
# SLCA-GRPO on Qwen2.5-0.5B-Instruct with LoRA, to try it on one GPU of 24 GB or more.
#
#     bash run_scripts/run_qwen2.5_0.5b_1gpu.sh
#     RESPONDERS=[replay,synthetic] JUDGE_KIND=rule bash run_scripts/run_qwen2.5_0.5b_1gpu.sh  # without any server
#     LORA_RANK=0 LEARNING_RATE=1e-6 bash run_scripts/run_qwen2.5_0.5b_1gpu.sh                 # all weights
#
# Simulator and judge can be any OpenAI-compatible servers: SIMULATOR_URLS, SIMULATOR_MODEL, JUDGE_URLS, JUDGE_MODEL.
# An SFT stage (run_qwen2.5_0.5b_sft.sh) helps a lot; without one, training starts from the instruct model.
# Sizes are smaller than the paper's: this is for trying, not for comparing with it.
set -xeuo pipefail

NAME=qwen2.5-0.5b
N_GPUS=${N_GPUS:-1}
BATCH=${BATCH:-16}
ROLLOUTS=${ROLLOUTS:-8}
MINI_BATCH=${MINI_BATCH:-8}
PROMPT_TOKENS=${PROMPT_TOKENS:-6144}
RESPONSE_TOKENS=${RESPONSE_TOKENS:-2048}
GPU_MEMORY=${GPU_MEMORY:-0.4} # the policy and its optimizer live on the same GPU
LORA_RANK=${LORA_RANK:-32}
LEARNING_RATE=${LEARNING_RATE:-2e-5} # an adapter learns with about ten times the rate of all weights, or more

# shellcheck source=run_scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-0.5B-Instruct}
RUN_DIR=${RUN_DIR:-$OUTPUTS/$NAME-$ADV_ESTIMATOR${ABLATION:+-$ABLATION}-seed$SEED}
# The GPU holds 3 worker processes in Ray's books, and verl's 8 storage units would ask for a CPU each.
train transfer_queue.backend.SimpleStorage.num_data_storage_units=1 actor_rollout_ref.rollout.agent.num_workers=2 \
    reward.num_workers=2 "$@"
