# shellcheck shell=bash
# Sourced by the scripts that set themselves up: `setup_env EXTRAS` makes the package importable.
#
# Uses the active virtual environment, else .venv in the checkout, which it makes when it is missing. Installs
# once for each set of extras and version of setup.py. torch comes first and by its exact version, so that no
# other package draws in another build; constraints.txt holds the versions that were tested, without which pip
# can search for hours for a set that fits; TORCH_INDEX_URL may name an index of CPU builds, which are smaller.

setup_env() {
    local extras=$1 python marker
    if [[ -z ${VIRTUAL_ENV:-} ]]; then
        if [[ ! -e .venv/bin/activate ]]; then
            python=$(find_python)
            echo "making .venv with $python"
            "$python" -m venv .venv
        fi
        # shellcheck disable=SC1091
        source .venv/bin/activate
    fi
    marker=$VIRTUAL_ENV/.recipe_slca-$extras-$(sha256sum setup.py | cut -c1-12)-$(pwd | sha256sum | cut -c1-12)
    if [[ ! -e $marker ]]; then
        echo "installing recipe_slca[$extras] into $VIRTUAL_ENV"
        python -m pip install --quiet ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch==2.13.0
        python -m pip install --quiet --constraint run_scripts/constraints.txt --editable ".[$extras]"
        touch "$marker"
    fi
}

find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.10 python3; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "needs Python 3.10, 3.11 or 3.12 (verl 0.9.1), and found none of them" >&2
    return 1
}
