#!/usr/bin/env bash
# The whole pipeline on a CPU, in minutes: demo data, SFT of a tiny model, RL with SLCA-GRPO, before and after.
#
#   bash run_scripts/run_cpu_demo.sh
#   SEED=2 ADV_ESTIMATOR=grpo bash run_scripts/run_cpu_demo.sh
#
# Everything that a real run goes through is real: rows in Toucan's layout, data_prep, verl's SFT trainer, verl's
# PPO trainer with Ray, FSDP2 and TransferQueue, tool calls in the rollouts. Only the model is tiny, and a
# deterministic responder and judge stand in for the two LLMs.
set -euo pipefail
cd "$(dirname "$0")/.."
source run_scripts/setup_env.sh
setup_env cpu

SEED=${SEED:-1}
ADV_ESTIMATOR=${ADV_ESTIMATOR:-slca}
SFT_STEPS=${SFT_STEPS:-500}
RL_STEPS=${RL_STEPS:-30}
OUTPUT=${OUTPUT:-outputs/cpu_demo/${ADV_ESTIMATOR}_seed$SEED}

export VERL_PLATFORM=cpu
export TOKENIZERS_PARALLELISM=false
export PYTHONWARNINGS=ignore
export VERL_LOGGING_LEVEL=${VERL_LOGGING_LEVEL:-ERROR}
export VERL_FILE_LOGGER_PATH=$OUTPUT/rl/metrics.jsonl

DATA=$OUTPUT/data
SFT=$OUTPUT/sft
RL=$OUTPUT/rl
mkdir -p "$DATA" "$RL"

echo "== 1/4 demo data"
# Fold 1 of the questions is for RL and evaluation, fold 2 for SFT, whose demonstrations are imperfect on purpose.
KINDS=single=0.7,parallel=0.15,serial=0.15
python -m data_prep.demo_world --output "$DATA/tasks.parquet" --conversations 900 --seed "$SEED" --fold 1/2 \
    --kinds "$KINDS"
python -m data_prep.demo_world --output "$DATA/demonstrations.parquet" --conversations 12000 --seed "$SEED" --fold 2/2 \
    --kinds "$KINDS" --imperfect 0.5
python -m data_prep.build --input "$DATA/tasks.parquet" --output "$DATA" --splits eval=100,rl=rest --overwrite
python -m data_prep.build --input "$DATA/demonstrations.parquet" --output "$DATA/sft" --splits sft=rest --overwrite
python -m data_prep.demo_model --sft "$DATA/sft/sft.parquet" --output "$OUTPUT/model" --seed "$SEED"

echo "== 2/4 supervised fine-tuning, $SFT_STEPS steps"
torchrun --standalone --nnodes=1 --nproc_per_node=1 -m verl.trainer.sft_trainer \
    --config-path=pkg://recipe_slca.config --config-name=sft_cpu \
    data.train_files="$DATA/sft/sft.parquet" \
    data.train_batch_size=16 \
    data.micro_batch_size_per_gpu=16 \
    data.max_length=512 \
    model.path="$OUTPUT/model" \
    optim.lr=3e-3 \
    optim.lr_scheduler_type=cosine \
    optim.lr_warmup_steps=20 \
    trainer.seed="$SEED" \
    trainer.total_epochs=1000 \
    trainer.total_training_steps="$SFT_STEPS" \
    trainer.save_freq="$SFT_STEPS" \
    trainer.default_local_dir="$SFT" \
    trainer.resume_mode=disable \
    'trainer.logger=[console]' >"$OUTPUT/sft.log" 2>&1 || { tail -n 40 "$OUTPUT/sft.log"; exit 1; }

echo "== 3/4 reinforcement learning with $ADV_ESTIMATOR, $RL_STEPS steps"
python -m verl.trainer.main_ppo --config-path=pkg://recipe_slca.config --config-name=slca_cpu \
    algorithm.adv_estimator="$ADV_ESTIMATOR" \
    algorithm.slca.tool_weight=0.7 \
    algorithm.slca.summary_weight=0.3 \
    data.train_files="$DATA/rl.parquet" \
    data.val_files="$DATA/eval.parquet" \
    data.train_batch_size=12 \
    data.max_prompt_length=256 \
    data.max_response_length=256 \
    data.seed="$SEED" \
    actor_rollout_ref.model.path="$SFT/global_step_$SFT_STEPS/huggingface" \
    actor_rollout_ref.actor.optim.lr=4e-4 \
    actor_rollout_ref.actor.optim.lr_warmup_steps=4 \
    actor_rollout_ref.actor.ppo_mini_batch_size=12 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=48 \
    actor_rollout_ref.actor.use_kl_loss=false \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.seed="$SEED" \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=48 \
    actor_rollout_ref.rollout.val_kwargs.do_sample=true \
    actor_rollout_ref.rollout.val_kwargs.temperature=1.0 \
    actor_rollout_ref.rollout.val_kwargs.n=3 \
    trainer.total_epochs=1000 \
    trainer.total_training_steps="$RL_STEPS" \
    trainer.test_freq="$RL_STEPS" \
    trainer.save_freq="$RL_STEPS" \
    trainer.val_before_train=true \
    trainer.default_local_dir="$RL" \
    trainer.resume_mode=disable \
    'trainer.logger=[console,file]' \
    "$@" >"$OUTPUT/rl.log" 2>&1 || { tail -n 40 "$OUTPUT/rl.log"; exit 1; }

echo "== 4/4 before and after"
python -m recipe_slca.evaluation.before_after "$RL/metrics.jsonl"
echo "look at the rollouts: python -m recipe_slca.report trajectories $RL --output $OUTPUT/rollouts.html"
