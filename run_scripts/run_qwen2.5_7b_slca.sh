#!/usr/bin/env bash
# SLCA-GRPO on Qwen2.5-7B-Instruct after its SFT stage, with the paper's settings: one node of 8 GPUs with 80 GB.
#
#     bash run_scripts/serve_simulator.sh           # on machines of their own; both stay up for all runs
#     bash run_scripts/serve_judge.sh
#     bash run_scripts/run_qwen2.5_7b_sft.sh        # once
#     SIMULATOR_URLS='["http://10.0.0.5:8001/v1"]' JUDGE_URLS='["http://10.0.0.6:8002/v1"]' \
#         bash run_scripts/run_qwen2.5_7b_slca.sh
#     DRY_RUN=1 bash run_scripts/run_qwen2.5_7b_slca.sh                        # the resolved config
#     bash run_scripts/run_qwen2.5_7b_slca.sh trainer.total_training_steps=50  # any setting of verl or ours
#
# Values: common.sh. A run is checked first (python -m recipe_slca.doctor) and waits for both servers; started
# again, it goes on from its last checkpoint. Its folder holds checkpoints, config, log.jsonl and rollouts.
#
# The fair comparison: the same SFT model, rewards, simulator and budget; only the estimator differs.
#
#     for SEED in 1 2 3; do
#         for ADV_ESTIMATOR in slca grpo; do
#             SEED=$SEED ADV_ESTIMATOR=$ADV_ESTIMATOR bash run_scripts/run_qwen2.5_7b_slca.sh
#         done
#     done
#     python -m recipe_slca.report curves outputs/qwen2.5-7b-{slca,grpo}-seed{1,2,3} --output outputs/curves
#
# Other baselines: ADV_ESTIMATOR=slca_turn|toolpo|rltr. Ablations: ABLATION=wo_sgls|wo_hierr|wo_parallel.
#
# Several nodes: model, data and RUN_DIR on a disk that all see. Before `ray start`, set on every node what its
# processes inherit: the variables that hold keys, and one RAY_AUTH_TOKEN for all where Ray's token check is on.
#
#     ray start --head --port=6379                             # on the first
#     ray start --address=HEAD:6379                            # on each other one
#     RAY_ADDRESS=HEAD:6379 NNODES=4 bash run_scripts/run_qwen2.5_7b_slca.sh   # on the first
#     NNODES=4 ray job submit --address=http://HEAD:8265 -- bash "$PWD"/run_scripts/run_qwen2.5_7b_slca.sh  # or this
set -xeuo pipefail

NAME=qwen2.5-7b
SEQUENCE_PARALLEL=${SEQUENCE_PARALLEL:-2} # 32k tokens and their logits are too much for one GPU beside 7B weights

# shellcheck source=run_scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
MODEL_PATH=${MODEL_PATH:-$(sft_checkpoint "$OUTPUTS/$NAME-sft")}
RUN_DIR=${RUN_DIR:-$OUTPUTS/$NAME-$ADV_ESTIMATOR${ABLATION:+-$ABLATION}-seed$SEED}
train "$@"
