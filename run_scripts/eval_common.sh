# shellcheck shell=bash
# What the two benchmark scripts share: an environment for the benchmark, and our proxy in front of the model.
# Sourced by eval_bfcl.sh and eval_tau2.sh, not run.

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH}

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# install_benchmark VENV PACKAGE VERSION REQUIREMENTS_FILE: once; a venv that has the version is left alone.
install_benchmark() {
    local venv=$1 package=$2 version=$3 requirements=$4
    local installed="import importlib.metadata as m, sys; sys.exit(m.version('$package') != '$version')"
    if "$venv/bin/python" -c "$installed" 2>/dev/null; then
        return
    fi
    echo "installing $package $version into $venv"
    # Its distribution comes last and marks the venv complete.
    if ! {
        "$PYTHON" -m venv "$venv" &&
            "$venv/bin/python" -m pip install --quiet --no-deps --requirement "$requirements" &&
            "$venv/bin/python" -m pip install --quiet --no-deps "$package==$version"
    }; then
        fail "$package could not be installed into $venv; the reason stands above, and the same command tries again"
    fi
}

stop_proxy() {
    if [[ -n ${PROXY_PID:-} ]]; then
        kill "$PROXY_PID" 2>/dev/null || true
        wait "$PROXY_PID" 2>/dev/null || true
    fi
}

# start_proxy FOLDER: sets PROXY_URL; what the proxy says goes to FOLDER/proxy.log.
start_proxy() {
    local url_file=$1/proxy.url log=$1/proxy.log
    "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' ||
        fail "$PYTHON is not Python 3.10 to 3.12; set PYTHON to the one of the training environment"
    mkdir -p "$1" || fail "set OUTPUT to a folder that can be written to"
    rm -f "$url_file"
    "$PYTHON" -m recipe_slca.evaluation.chat_proxy \
        --base-url "$BASE_URL" --model "$MODEL" --api-key-env "$API_KEY_ENV" \
        --max-tokens "$MAX_TOKENS" --timeout-s "$TIMEOUT_S" "$STOP_FLAG" \
        --port "$PROXY_PORT" --url-file "$url_file" >"$log" 2>&1 &
    PROXY_PID=$!
    trap stop_proxy EXIT
    trap 'exit 130' INT TERM
    until [[ -f $url_file ]]; do
        kill -0 "$PROXY_PID" 2>/dev/null || fail "the proxy did not start: $(tail -n 1 "$log")"
        sleep 0.2
    done
    PROXY_URL=$(<"$url_file")
    rm -f "$url_file"
}

# proxy_counts FOLDER: what became of this run's requests; a line beside the results, and on the terminal.
proxy_counts() {
    local counts
    kill -0 "$PROXY_PID" 2>/dev/null || fail "the proxy ended during the run: $(tail -n 1 "$1/proxy.log")"
    counts=$("$PYTHON" -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' \
        "${PROXY_URL%/v1}/counts")
    echo "$counts" >>"$1/proxy_counts.jsonl"
    echo "requests through the proxy: $counts"
}
