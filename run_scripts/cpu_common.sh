# shellcheck shell=bash
# The stages of a training on a CPU, for run_cpu_demo.sh and study_slca_vs_grpo.sh. Sourced, not run.
#
# Everything that a real run goes through is real: rows in Toucan's layout, data_prep, verl's SFT trainer, verl's
# PPO trainer with Ray, FSDP2 and TransferQueue, tool calls in the rollouts. Only the model is tiny, and a
# deterministic responder and judge stand in for the two LLMs.

export VERL_PLATFORM=cpu
export TOKENIZERS_PARALLELISM=false
export PYTHONWARNINGS=ignore
export VERL_LOGGING_LEVEL=${VERL_LOGGING_LEVEL:-ERROR}

# run_logged LOG COMMAND...: the command with its output in LOG, whose end is shown when the command fails.
run_logged() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -n 40 "$log" >&2; return 1; }
}

# prepare_demo FOLDER SEED: FOLDER/data with sft, RL and evaluation tasks, and FOLDER/model, not yet trained.
# Fold 1 of the questions is for RL and evaluation, fold 2 for SFT, whose demonstrations are imperfect on purpose.
prepare_demo() {
    local data=$1/data seed=$2 kinds=single=0.7,parallel=0.15,serial=0.15
    mkdir -p "$data"
    python -m data_prep.demo_world --output "$data/tasks.parquet" --conversations 900 --seed "$seed" --fold 1/2 \
        --kinds "$kinds"
    python -m data_prep.demo_world --output "$data/demonstrations.parquet" --conversations 12000 --seed "$seed" \
        --fold 2/2 --kinds "$kinds" --imperfect 0.5
    python -m data_prep.build --input "$data/tasks.parquet" --output "$data" --splits eval=100,rl=rest --overwrite
    python -m data_prep.build --input "$data/demonstrations.parquet" --output "$data/sft" --splits sft=rest --overwrite
    python -m data_prep.demo_model --sft "$data/sft/sft.parquet" --output "$1/model" --seed "$seed"
}

# train_sft FOLDER SEED STEPS: the model of prepare_demo, fine-tuned, in FOLDER/sft/global_step_STEPS/huggingface.
train_sft() {
    local folder=$1 seed=$2 steps=$3
    run_logged "$folder/sft.log" torchrun --standalone --nnodes=1 --nproc_per_node=1 -m verl.trainer.sft_trainer \
        --config-path=pkg://recipe_slca.config --config-name=sft_cpu \
        data.train_files="$folder/data/sft/sft.parquet" \
        data.train_batch_size=16 \
        data.micro_batch_size_per_gpu=16 \
        data.max_length=512 \
        model.path="$folder/model" \
        optim.lr=3e-3 \
        optim.lr_scheduler_type=cosine \
        optim.lr_warmup_steps=20 \
        trainer.seed="$seed" \
        trainer.total_epochs=1000 \
        trainer.total_training_steps="$steps" \
        trainer.save_freq="$steps" \
        trainer.default_local_dir="$folder/sft" \
        trainer.resume_mode=disable \
        'trainer.logger=[console]' \
        hydra.run.dir="$folder/sft/hydra"
}

# train_rl FOLDER MODEL DATA SEED [hydra arguments]: metrics.jsonl, rollout dumps and checkpoints in FOLDER, the
# output in FOLDER.log. Validates by sampling, because greedy decoding takes the mode already.
train_rl() {
    local folder=$1 model=$2 data=$3 seed=$4
    shift 4
    mkdir -p "$folder"
    # shellcheck disable=SC2016 # hydra puts the batch size in
    VERL_FILE_LOGGER_PATH=$folder/metrics.jsonl run_logged "$folder.log" \
        python -m verl.trainer.main_ppo --config-path=pkg://recipe_slca.config --config-name=slca_cpu \
        algorithm.slca.tool_weight=0.7 \
        algorithm.slca.summary_weight=0.3 \
        data.train_files="$data/rl.parquet" \
        data.val_files="$data/eval.parquet" \
        data.train_batch_size=12 \
        data.max_prompt_length=256 \
        data.max_response_length=256 \
        data.seed="$seed" \
        actor_rollout_ref.model.path="$model" \
        actor_rollout_ref.actor.optim.lr=4e-4 \
        actor_rollout_ref.actor.optim.lr_warmup_steps=4 \
        actor_rollout_ref.actor.ppo_mini_batch_size='${data.train_batch_size}' \
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=48 \
        actor_rollout_ref.actor.use_kl_loss=false \
        actor_rollout_ref.rollout.n=8 \
        actor_rollout_ref.rollout.seed="$seed" \
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=48 \
        actor_rollout_ref.rollout.val_kwargs.do_sample=true \
        actor_rollout_ref.rollout.val_kwargs.temperature=1.0 \
        actor_rollout_ref.rollout.val_kwargs.n=3 \
        trainer.total_epochs=1000 \
        trainer.default_local_dir="$folder" \
        trainer.resume_mode=disable \
        'trainer.logger=[console,file]' \
        hydra.run.dir="$folder/hydra" \
        "$@"
}
