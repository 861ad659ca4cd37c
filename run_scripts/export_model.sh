#!/usr/bin/env bash
# A training checkpoint as a Hugging Face folder that transformers and vLLM load.
#
#     bash run_scripts/export_model.sh outputs/my-run/checkpoints exports/my-model
#     bash run_scripts/export_model.sh outputs/my-run/checkpoints/global_step_200 exports/step-200 \
#         --results outputs/bfcl/slca/results.json
#
# The first argument is a global_step_N folder of the RL or the SFT trainer, or the folder that holds these
# (then the newest one). Weights are joined on the CPU and need memory for the model in bfloat16 about twice.
# The model card takes data, settings, commit and results from the run's folder, and from --results files.
# Further arguments: python -m recipe_slca.evaluation.export --help
set -euo pipefail

PYTHON=${PYTHON:-python3}

if (($# < 2)); then
    echo "usage: $(basename "$0") CHECKPOINT_DIR OUTPUT_DIR [further arguments of recipe_slca.evaluation.export]" >&2
    exit 2
fi
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH}
# The merger works on the CPU; hidden devices keep it from claiming one that a run is using.
export CUDA_VISIBLE_DEVICES=
exec "$PYTHON" -m recipe_slca.evaluation.export "$@"
