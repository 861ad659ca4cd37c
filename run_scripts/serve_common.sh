# shellcheck shell=bash
# What serve_simulator.sh and serve_judge.sh share. Sourced, not run.

HOST=${HOST:-0.0.0.0}
TENSOR_PARALLEL=${TENSOR_PARALLEL:-8}
MAX_MODEL_LEN=${MAX_MODEL_LEN:-32768}
GPU_MEMORY=${GPU_MEMORY:-0.9}
VLLM=${VLLM:-vllm}
PYTHON=${PYTHON:-python3}
DRY_RUN=${DRY_RUN:-0} # 1: print the command and stop

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# serve [VLLM_ARGUMENT...]: vLLM's own OpenAI-compatible server for MODEL on PORT, in the foreground.
serve() {
    local command=("$VLLM" serve "$MODEL" --host "$HOST" --port "$PORT" --tensor-parallel-size "$TENSOR_PARALLEL"
        --max-model-len "$MAX_MODEL_LEN" --gpu-memory-utilization "$GPU_MEMORY" "$@")
    if [[ $DRY_RUN == 1 ]]; then
        printf '%q ' "${command[@]}"
        echo
        return
    fi
    command -v "$VLLM" >/dev/null || fail "$VLLM is not installed: pip install 'recipe-slca[vllm]', or set VLLM to the command"
    if [[ $MODEL == /* || $MODEL == .* ]] && [[ ! -f $MODEL/config.json ]]; then
        fail "there is no model at $MODEL (no config.json): set MODEL to a Hugging Face folder or a hub name"
    fi
    "$PYTHON" -c 'import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2])))' "$HOST" "$PORT" 2>/dev/null ||
        fail "port $PORT of $HOST is in use or not allowed: set PORT to a free one, and the URL of the launchers with it"
    exec "${command[@]}"
}
