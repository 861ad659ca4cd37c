#!/usr/bin/env bash
# In-domain evaluation: the trainer itself, with val_only, on the evaluation file.
#
#     MODEL_PATH=outputs/qwen2.5-7b-sft/global_step_200/huggingface bash run_scripts/eval_toucan.sh
#     CHECKPOINT=outputs/qwen2.5-7b-slca-seed1/global_step_100 MODEL_PATH=... bash run_scripts/eval_toucan.sh
#     python -m recipe_slca.evaluation.compare outputs/eval-A outputs/eval-B
#
# MODEL_PATH is a Hugging Face folder. CHECKPOINT is a checkpoint of the RL trainer, which is loaded over it:
# give the MODEL_PATH that its training began with. RUN_DIR/results.json holds Name F1, ArgMatch, Process,
# Success@0.9, tool turns, calls and redundant calls by kind of task, with bootstrap intervals over tasks; it is
# only written when every row of EVAL_FILE was measured. Simulator and judge: as in training.
set -xeuo pipefail

SAMPLES=${SAMPLES:-1} # rollouts of each task
TEMPERATURE=${TEMPERATURE:-0}
CHECKPOINT=${CHECKPOINT:-}
# The trainer also opens training data, which it does not use here: the evaluation file, in small batches.
BATCH=${BATCH:-8}
MINI_BATCH=${MINI_BATCH:-8}

# shellcheck source=run_scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
MODEL_PATH=${MODEL_PATH:?a Hugging Face folder, or a hub name}
TRAIN_FILE=$EVAL_FILE
RUN_DIR=${RUN_DIR:-$OUTPUTS/eval-$(basename "$(dirname "${CHECKPOINT:-$MODEL_PATH}")")}
EVAL_ARGS=(
    trainer.val_only=True trainer.val_before_train=True
    # Not the newest of RUN_DIR: what is measured is what was asked for.
    trainer.resume_mode=disable
    # A row that is left out would flatter the result, and one that is too long shows as missing.
    data.filter_overlong_prompts=False
    data.train_max_samples="$BATCH"
    # No reference model is needed.
    actor_rollout_ref.actor.use_kl_loss=False
    actor_rollout_ref.rollout.val_kwargs.n="$SAMPLES"
    actor_rollout_ref.rollout.val_kwargs.temperature="$TEMPERATURE"
    actor_rollout_ref.rollout.val_kwargs.do_sample="$([[ $TEMPERATURE == 0 ]] && echo False || echo True)"
    ++slca.dump.max_rollouts=1000000000
)
if [[ -n $CHECKPOINT ]]; then
    EVAL_ARGS+=(trainer.resume_mode=resume_path trainer.resume_from_path="$CHECKPOINT")
fi

train "${EVAL_ARGS[@]}" "$@"
"$PYTHON" -m recipe_slca.evaluation.results "$RUN_DIR" --tasks "$EVAL_FILE" --samples "$SAMPLES"
