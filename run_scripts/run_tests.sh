#!/usr/bin/env bash
# Runs all tests, the end-to-end ones included; sets up its environment on the first call.
#
#   bash run_scripts/run_tests.sh                 # everything
#   bash run_scripts/run_tests.sh tests/sgls -x   # pytest arguments
set -euo pipefail
cd "$(dirname "$0")/.."
source run_scripts/setup_env.sh
setup_env cpu,test

ruff check .
ruff format --check .
python -m pytest "$@"
