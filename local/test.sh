#!/usr/bin/env bash
# Installs what is missing, then runs the test suite on two processes.
#
#   local/test.sh                      everything
#   local/test.sh tests/decode -k beam any arguments of pytest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

local/setup.sh --tests
export OMP_NUM_THREADS=1  # one test process a core; torch's own threads would only fight
exec "${VENV:-.venv}/bin/python" -m pytest -n "${TEST_JOBS:-2}" --dist worksteal -q --durations=15 "$@"
