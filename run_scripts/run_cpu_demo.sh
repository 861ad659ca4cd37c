#!/usr/bin/env bash
# The whole pipeline on a CPU, in minutes: demo data, SFT of a tiny model, RL with SLCA-GRPO, before and after.
#
#   bash run_scripts/run_cpu_demo.sh
#   SEED=2 ADV_ESTIMATOR=grpo bash run_scripts/run_cpu_demo.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source run_scripts/setup_env.sh
source run_scripts/cpu_common.sh
setup_env cpu

SEED=${SEED:-1}
ADV_ESTIMATOR=${ADV_ESTIMATOR:-slca}
SFT_STEPS=${SFT_STEPS:-500}
RL_STEPS=${RL_STEPS:-30}
OUTPUT=${OUTPUT:-outputs/cpu_demo/${ADV_ESTIMATOR}_seed$SEED}

echo "== 1/4 demo data"
prepare_demo "$OUTPUT" "$SEED"

echo "== 2/4 supervised fine-tuning, $SFT_STEPS steps"
train_sft "$OUTPUT" "$SEED" "$SFT_STEPS"

echo "== 3/4 reinforcement learning with $ADV_ESTIMATOR, $RL_STEPS steps"
train_rl "$OUTPUT/rl" "$OUTPUT/sft/global_step_$SFT_STEPS/huggingface" "$OUTPUT/data" "$SEED" \
    algorithm.adv_estimator="$ADV_ESTIMATOR" \
    trainer.total_training_steps="$RL_STEPS" \
    trainer.test_freq="$RL_STEPS" \
    trainer.save_freq="$RL_STEPS" \
    trainer.val_before_train=true \
    "$@"

echo "== 4/4 before and after"
python -m recipe_slca.evaluation.before_after "$OUTPUT/rl/metrics.jsonl"
echo "look at the rollouts: python -m recipe_slca.report trajectories $OUTPUT/rl --output $OUTPUT/rollouts.html"
