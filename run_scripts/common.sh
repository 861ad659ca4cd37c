# shellcheck shell=bash
# What the launchers share: the paper's settings, and the checks before a run.
# Sourced by run_*.sh and eval_toucan.sh, not run. Every value here can be set in the environment, and every
# verl setting as a hydra argument of the script, which comes last and wins.

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH}
PYTHON=${PYTHON:-python3}
OUTPUTS=${OUTPUTS:-$REPO/outputs}

# shellcheck source=run_scripts/run_to_end.sh
source "$REPO/run_scripts/run_to_end.sh"

fail() {
    { set +x; } 2>/dev/null
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# ---------------------------------------------------------------------------------------------------------
# The run
ADV_ESTIMATOR=${ADV_ESTIMATOR:-slca} # slca | slca_turn | grpo | toolpo | rltr
ABLATION=${ABLATION:-}               # wo_sgls | wo_hierr | wo_parallel
SEED=${SEED:-1}
DRY_RUN=${DRY_RUN:-0}       # 1: print the resolved config and stop
DOCTOR=${DOCTOR:-1}         # 0: skip the checks before the run
SERVICE_WAIT_S=${SERVICE_WAIT_S:-1800} # how long the simulator and the judge may take to come up

# Data, made by `python -m data_prep.build`
DATA_DIR=${DATA_DIR:-$REPO/data/toucan}
TRAIN_FILE=${TRAIN_FILE:-$DATA_DIR/rl.parquet}
EVAL_FILE=${EVAL_FILE:-$DATA_DIR/eval.parquet}
SFT_FILE=${SFT_FILE:-$DATA_DIR/sft.parquet}

# Machines
CONFIG_NAME=${CONFIG_NAME:-slca_trainer}
N_GPUS=${N_GPUS:-8} # in each node
NNODES=${NNODES:-1}
ROLLOUT=${ROLLOUT:-vllm}
TENSOR_PARALLEL=${TENSOR_PARALLEL:-1}     # GPUs of one rollout server
SEQUENCE_PARALLEL=${SEQUENCE_PARALLEL:-1} # GPUs that share one sequence in training
GPU_MEMORY=${GPU_MEMORY:-0.6}             # share of a GPU that a rollout server may take
OFFLOAD=${OFFLOAD:-False}                 # True: parameters and optimizer wait in host memory during rollouts

# The frozen models: serve_simulator.sh and serve_judge.sh. Several URLs: ["http://a:8000/v1","http://b:8000/v1"]
RESPONDERS=${RESPONDERS:-[replay,llm]} # [replay,synthetic] needs no simulator server
SIMULATOR_URLS=${SIMULATOR_URLS:-[\"http://127.0.0.1:8001/v1\"]}
SIMULATOR_MODEL=${SIMULATOR_MODEL:-Qwen/Qwen3-235B-A22B-Instruct-2507}
SIMULATOR_KEY_ENV=${SIMULATOR_KEY_ENV:-} # name of the variable that holds the key, if the server asks for one
JUDGE_KIND=${JUDGE_KIND:-llm}            # rule needs no judge server
JUDGE_URLS=${JUDGE_URLS:-[\"http://127.0.0.1:8002/v1\"]}
JUDGE_MODEL=${JUDGE_MODEL:-openai/gpt-oss-120b}
JUDGE_KEY_ENV=${JUDGE_KEY_ENV:-}

# The paper's training setting
LEARNING_RATE=${LEARNING_RATE:-1e-6}
KL_COEF=${KL_COEF:-0.001}
ENTROPY_COEF=${ENTROPY_COEF:-0}
CLIP_RATIO=${CLIP_RATIO:-0.2}
BATCH=${BATCH:-128}         # prompts a step
ROLLOUTS=${ROLLOUTS:-16}    # of each prompt
MINI_BATCH=${MINI_BATCH:-32}
PROMPT_TOKENS=${PROMPT_TOKENS:-24576}
RESPONSE_TOKENS=${RESPONSE_TOKENS:-8192}
ASSISTANT_TURNS=${ASSISTANT_TURNS:-10}
USER_TURNS=${USER_TURNS:-6}
CALLS_PER_TURN=${CALLS_PER_TURN:-20}
# The paper cuts a tool response to 2,048 characters; here it is cut by tokens, of which about four characters make one.
OBSERVATION_TOKENS=${OBSERVATION_TOKENS:-512}
EPOCHS=${EPOCHS:-1}
# The paper weighs both segments alike; these are what its release recommends for training.
TOOL_WEIGHT=${TOOL_WEIGHT:-0.7}
SUMMARY_WEIGHT=${SUMMARY_WEIGHT:-0.3}

LORA_RANK=${LORA_RANK:-0} # 0: all weights are trained
LORA_ALPHA=${LORA_ALPHA:-32}
SAVE_FREQ=${SAVE_FREQ:-20} # steps
TEST_FREQ=${TEST_FREQ:-20}
KEEP_CHECKPOINTS=${KEEP_CHECKPOINTS:-2} # with 1, verl deletes the older before the newer is whole
LOGGER=${LOGGER:-[console,file]}

# ---------------------------------------------------------------------------------------------------------

# ablation_arguments: what ABLATION changes, as hydra arguments in ABLATION_ARGS.
ablation_arguments() {
    case $ABLATION in
        "") ABLATION_ARGS=() ;;
        # The simulator sees no schema and validates nothing.
        wo_sgls) ABLATION_ARGS=(++slca.simulator.schema_guided=false) ;;
        # The process reward is 0: the summary reward alone is left.
        wo_hierr) ABLATION_ARGS=("++slca.process.weights={format:0,name:0,key:0,value:0,parallel:0}") ;;
        # The weight of the parallel term goes to the others.
        wo_parallel)
            ABLATION_ARGS=("++slca.process.weights={format:0.15,name:0.30,key:0.25,value:0.30,parallel:0}")
            ;;
        *) fail "ABLATION=$ABLATION is not known; it is wo_sgls, wo_hierr, wo_parallel or empty" ;;
    esac
}

# sft_checkpoint FOLDER: the newest Hugging Face folder that an SFT run left there.
sft_checkpoint() {
    local newest=$1/latest_checkpointed_iteration.txt
    if [[ -f $newest ]]; then
        echo "$1/global_step_$(<"$newest")/huggingface"
    else
        echo "$1" # the checks before the run name it
    fi
}

# rl_arguments: the hydra arguments of verl's RL trainer, in RL_ARGS.
rl_arguments() {
    local sequence=$((PROMPT_TOKENS + RESPONSE_TOKENS))
    # The longest sequence must fit into one micro-batch of the GPUs that share it.
    local tokens_per_gpu=$(((sequence + SEQUENCE_PARALLEL - 1) / SEQUENCE_PARALLEL))
    ablation_arguments
    RL_ARGS=(
        --config-path=pkg://recipe_slca.config --config-name="$CONFIG_NAME"
        hydra.run.dir="$RUN_DIR"

        algorithm.adv_estimator="$ADV_ESTIMATOR"
        algorithm.slca.tool_weight="$TOOL_WEIGHT"
        algorithm.slca.summary_weight="$SUMMARY_WEIGHT"
        # A KL term in the reward would stand on tokens of ungraded segments, and grade them with 0.
        algorithm.use_kl_in_reward=False

        data.train_files="$TRAIN_FILE"
        data.val_files="$EVAL_FILE"
        data.train_batch_size="$BATCH"
        data.max_prompt_length="$PROMPT_TOKENS"
        data.max_response_length="$RESPONSE_TOKENS"
        # Longer prompts are left out when the data is loaded; verl prints how many are left.
        data.filter_overlong_prompts=True
        data.seed="$SEED"

        actor_rollout_ref.model.path="$MODEL_PATH"
        actor_rollout_ref.model.lora_rank="$LORA_RANK"
        actor_rollout_ref.model.lora_alpha="$LORA_ALPHA"
        # Without these two, one sequence of 32k tokens does not fit beside the optimizer.
        actor_rollout_ref.model.enable_gradient_checkpointing=True
        actor_rollout_ref.model.use_remove_padding=True

        actor_rollout_ref.actor.strategy=fsdp2
        actor_rollout_ref.actor.optim.lr="$LEARNING_RATE"
        actor_rollout_ref.actor.use_kl_loss=True
        actor_rollout_ref.actor.kl_loss_coef="$KL_COEF"
        actor_rollout_ref.actor.kl_loss_type=low_var_kl
        actor_rollout_ref.actor.entropy_coeff="$ENTROPY_COEF"
        actor_rollout_ref.actor.clip_ratio="$CLIP_RATIO"
        actor_rollout_ref.actor.clip_ratio_low="$CLIP_RATIO"
        actor_rollout_ref.actor.clip_ratio_high="$CLIP_RATIO"
        actor_rollout_ref.actor.loss_agg_mode=token-mean
        actor_rollout_ref.actor.ppo_mini_batch_size="$MINI_BATCH"
        # Rollouts differ in length by a factor of ten and more: micro-batches by tokens, not by rows.
        actor_rollout_ref.actor.use_dynamic_bsz=True
        actor_rollout_ref.actor.ppo_max_token_len_per_gpu="$tokens_per_gpu"
        actor_rollout_ref.actor.ulysses_sequence_parallel_size="$SEQUENCE_PARALLEL"
        # Logits over 150k words in full would be the largest tensor of the run.
        actor_rollout_ref.actor.entropy_from_logits_with_chunking=True
        actor_rollout_ref.ref.entropy_from_logits_with_chunking=True
        actor_rollout_ref.actor.fsdp_config.param_offload="$OFFLOAD"
        actor_rollout_ref.actor.fsdp_config.optimizer_offload="$OFFLOAD"
        actor_rollout_ref.actor.data_loader_seed="$SEED"

        actor_rollout_ref.rollout.name="$ROLLOUT"
        actor_rollout_ref.rollout.n="$ROLLOUTS"
        actor_rollout_ref.rollout.seed="$SEED"
        actor_rollout_ref.rollout.tensor_model_parallel_size="$TENSOR_PARALLEL"
        actor_rollout_ref.rollout.gpu_memory_utilization="$GPU_MEMORY"
        actor_rollout_ref.rollout.multi_turn.max_assistant_turns="$ASSISTANT_TURNS"
        actor_rollout_ref.rollout.multi_turn.max_user_turns="$USER_TURNS"

        # So that the policy cannot write its own observations.
        ++slca.stop_at_tool_call=true
        ++slca.limits.max_calls_per_turn="$CALLS_PER_TURN"
        ++slca.limits.max_observation_tokens="$OBSERVATION_TOKENS"
        ++slca.simulator.responders="$RESPONDERS"
        ++slca.simulator.endpoint.base_urls="$SIMULATOR_URLS"
        ++slca.simulator.endpoint.model="$SIMULATOR_MODEL"
        ++slca.simulator.endpoint.api_key_env="$SIMULATOR_KEY_ENV"
        ++slca.judge.kind="$JUDGE_KIND"
        ++slca.judge.endpoint.base_urls="$JUDGE_URLS"
        ++slca.judge.endpoint.model="$JUDGE_MODEL"
        ++slca.judge.endpoint.api_key_env="$JUDGE_KEY_ENV"

        trainer.project_name=slca
        trainer.experiment_name="$(basename "$RUN_DIR")"
        trainer.default_local_dir="$RUN_DIR"
        trainer.logger="$LOGGER"
        trainer.n_gpus_per_node="$N_GPUS"
        trainer.nnodes="$NNODES"
        trainer.total_epochs="$EPOCHS"
        trainer.save_freq="$SAVE_FREQ"
        trainer.test_freq="$TEST_FREQ"
        trainer.max_actor_ckpt_to_keep="$KEEP_CHECKPOINTS"
        # Goes with the job, since a cluster that was up before has an environment of its own.
        +ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH="$RUN_DIR/log.jsonl"
    )
    if ((LORA_RANK > 0)); then
        # Only the adapter is sent to the rollout server, so that one must load the base weights itself.
        RL_ARGS+=(actor_rollout_ref.rollout.load_format=safetensors)
    fi
    RL_ARGS+=("${ABLATION_ARGS[@]}")
}

# train [HYDRA_ARGUMENT...]: run the RL trainer in RUN_DIR. Started again, it goes on from the last checkpoint.
train() {
    rl_arguments
    if [[ $DRY_RUN == 1 ]]; then
        exec "$PYTHON" -m verl.trainer.main_ppo "${RL_ARGS[@]}" "$@" --cfg job --resolve
    fi
    put_in_order || exit 1
    if [[ $DOCTOR == 1 ]]; then
        "$PYTHON" -m recipe_slca.doctor --wait "$SERVICE_WAIT_S" "${RL_ARGS[@]}" "$@" ||
            fail "the run was not started; what to do stands above (DOCTOR=0 starts it all the same)"
    fi
    record_commit
    run_to_end "$PYTHON" -m verl.trainer.main_ppo "${RL_ARGS[@]}" "$@"
}

# train_sft [HYDRA_ARGUMENT...]: run verl's SFT trainer in RUN_DIR.
train_sft() {
    SFT_EPOCHS=${SFT_EPOCHS:-2}
    SFT_LEARNING_RATE=${SFT_LEARNING_RATE:-5e-6}
    SFT_WARMUP=${SFT_WARMUP:-0.1}
    SFT_TOKENS=${SFT_TOKENS:-16384}
    SFT_BATCH=${SFT_BATCH:-64} # dialogues a step; the paper does not say
    SFT_ARGS=(
        hydra.run.dir="$RUN_DIR"
        data.train_files="$SFT_FILE"
        data.train_batch_size="$SFT_BATCH"
        data.max_length="$SFT_TOKENS"
        data.truncation=right
        # Micro-batches by tokens; the longest dialogue must fit into one.
        data.use_dynamic_bsz=True
        data.max_token_len_per_gpu="$SFT_TOKENS"
        # verl's own dataset renders each message alone, in other tokens than a rollout of the same dialogue has.
        data.custom_cls.path=pkg://recipe_slca.verl_plugin.sft_dataset
        data.custom_cls.name=SlcaSftDataset
        model.path="$MODEL_PATH"
        model.enable_gradient_checkpointing=True
        model.use_remove_padding=True
        model.lora_rank="${SFT_LORA_RANK:-0}"
        engine.strategy=fsdp2
        optim.lr="$SFT_LEARNING_RATE"
        optim.lr_scheduler_type=cosine
        optim.lr_warmup_steps_ratio="$SFT_WARMUP"
        # hf_model is what the RL stage starts from.
        "checkpoint.save_contents=[model,optimizer,extra,hf_model]"
        trainer.project_name=slca
        trainer.experiment_name="$(basename "$RUN_DIR")"
        trainer.default_local_dir="$RUN_DIR"
        trainer.logger="$LOGGER"
        trainer.seed="$SEED"
        trainer.n_gpus_per_node="$N_GPUS"
        trainer.nnodes="$NNODES"
        trainer.total_epochs="$SFT_EPOCHS"
        trainer.save_freq="${SFT_SAVE_FREQ:-after_each_epoch}"
        trainer.max_ckpt_to_keep="$KEEP_CHECKPOINTS"
    )
    if [[ $DRY_RUN == 1 ]]; then
        exec "$PYTHON" -m verl.trainer.sft_trainer "${SFT_ARGS[@]}" "$@" --cfg job --resolve
    fi
    [[ -f $SFT_FILE ]] || fail "there is no SFT data at $SFT_FILE: make it with \`python -m data_prep.build\`, or set SFT_FILE"
    check_model_folder
    put_in_order || exit 1
    record_commit
    local rendezvous=(--standalone)
    if ((NNODES > 1)); then
        # Run the script on every node, with NODE_RANK=0, 1, ... and the address of node 0.
        rendezvous=(--node_rank="${NODE_RANK:?number of this node, from 0}" --master_addr="${MASTER_ADDR:?address of node 0}"
            --master_port="${MASTER_PORT:-29500}")
    fi
    export VERL_FILE_LOGGER_PATH=$RUN_DIR/log.jsonl
    run_to_end "$PYTHON" -m torch.distributed.run "${rendezvous[@]}" --nnodes="$NNODES" --nproc_per_node="$N_GPUS" \
        -m verl.trainer.sft_trainer "${SFT_ARGS[@]}" "$@"
}

# check_model_folder: a path that looks local must hold a model; a name such as Qwen/Qwen2.5-7B-Instruct is left to
# transformers.
check_model_folder() {
    if [[ $MODEL_PATH == /* || $MODEL_PATH == .* ]] && [[ ! -f $MODEL_PATH/config.json ]]; then
        fail "there is no model at $MODEL_PATH (no config.json): set MODEL_PATH to a Hugging Face folder or a hub name"
    fi
}

# record_commit: what the code was, for the model card.
record_commit() {
    mkdir -p "$RUN_DIR" || fail "the run folder $RUN_DIR cannot be made: set RUN_DIR to a folder that can be written to"
    git -C "$REPO" describe --always --dirty --abbrev=40 >"$RUN_DIR/commit.txt" 2>/dev/null || rm -f "$RUN_DIR/commit.txt"
}
