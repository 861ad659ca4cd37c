#!/usr/bin/env bash
# The matched study behind STUDY.md: does one shared advantage let a noisy judge of the reply spoil tool calling,
# and do segment advantages prevent it? One SFT start; every estimator on the same tasks, rewards, seeds and
# budget; the standard deviation of the judge's noise is the variable.
#
#   bash run_scripts/study_slca_vs_grpo.sh           # hours on two cores; a second call goes on where it stopped
#   SEEDS=1 NOISES=1 ESTIMATORS="grpo slca" SFT_STEPS=60 RL_STEPS=2 bash run_scripts/study_slca_vs_grpo.sh
#
# Hydra arguments of the script go to every run.
# A finished run is never done again; one that was stopped starts anew. JOBS trainings run at once, with a thread each.
set -euo pipefail
cd "$(dirname "$0")/.."
source run_scripts/setup_env.sh
source run_scripts/cpu_common.sh
setup_env cpu

SEEDS=${SEEDS:-1 2 3 4 5}
NOISES=${NOISES:-0 0.5 1}
ESTIMATORS=${ESTIMATORS:-grpo slca slca_turn toolpo rltr} # the first is what the others are compared with
SFT_STEPS=${SFT_STEPS:-500}
RL_STEPS=${RL_STEPS:-25}
START_SEED=${START_SEED:-3} # of the demo data and of SFT
JOBS=${JOBS:-2}
STUDY=${STUDY:-outputs/study}

model=$STUDY/start/sft/global_step_$SFT_STEPS/huggingface
export OMP_NUM_THREADS=1

# one_run ESTIMATOR NOISE SEED [hydra arguments]
one_run() {
    local folder=$STUDY/runs/$1-noise$2-seed$3
    [[ -e $folder/finished ]] && return
    rm -rf "$folder"
    echo "$(date +%H:%M) $folder"
    train_rl "$folder" "$model" "$STUDY/start/data" "$3" \
        algorithm.adv_estimator="$1" \
        +slca.judge.noise_std="$2" \
        +slca.judge.noise_seed="$3" \
        +slca.dump.every="$RL_STEPS" \
        trainer.total_training_steps="$RL_STEPS" \
        data.train_batch_size=8 \
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32 \
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 \
        actor_rollout_ref.rollout.val_kwargs.n=2 \
        trainer.test_freq="$RL_STEPS" \
        trainer.save_freq=-1 \
        trainer.val_before_train=false \
        "${@:4}"
    touch "$folder/finished"
}

mkdir -p "$STUDY/start" "$STUDY/runs"
echo "== 1/3 one start for all: data and SFT, $SFT_STEPS steps"
if [[ ! -e $STUDY/start/finished ]]; then
    prepare_demo "$STUDY/start" "$START_SEED"
    train_sft "$STUDY/start" "$START_SEED" "$SFT_STEPS"
    touch "$STUDY/start/finished"
fi

if [[ ! -e $STUDY/validation/finished ]]; then
    train_rl "$STUDY/validation" "$model" "$STUDY/start/data" "$START_SEED" trainer.val_only=true \
        actor_rollout_ref.rollout.val_kwargs.n=2 "$@"
    touch "$STUDY/validation/finished"
fi

echo "== 2/3 runs of $RL_STEPS steps, $JOBS at once"
export STUDY RL_STEPS model
export -f run_logged train_rl one_run
for seed in $SEEDS; do
    for noise in $NOISES; do
        for estimator in $ESTIMATORS; do
            echo "$estimator $noise $seed" "${@@Q}"
        done
    done
done | xargs --max-procs="$JOBS" --max-lines=1 bash -euo pipefail -c 'one_run "$@"' one_run

echo "== 3/3 gradients of the two segments, tables and curves"
for folder in "$STUDY"/runs/slca-noise*; do
    if [[ -e $folder/finished && ! -e $folder/gradients.json ]]; then
        python -m recipe_slca.evaluation.gradients --model "$model" --rollouts "$folder/slca_rollouts/1.jsonl" \
            --batch-size 24 --out "$folder/gradients.json" >/dev/null
    fi
done
python -m recipe_slca.evaluation.study "$STUDY"
