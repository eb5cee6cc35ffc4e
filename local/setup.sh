#!/usr/bin/env bash
# Creates .venv with the reference environment. Idempotent: a second run installs nothing.
#
#   local/setup.sh            what the recipes need
#   local/setup.sh --tests    and what the tests need
#
# VENV=DIR puts the environment elsewhere; PYTHON=FILE names the Python 3.10 to use.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

with_tests=false
for arg in "$@"; do
  case "$arg" in
    --tests) with_tests=true ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup.sh: unknown option '$arg'; options: --tests, --help" >&2; exit 2 ;;
  esac
done

venv=${VENV:-.venv}

is_python310() {  # a pyenv shim is on PATH even where it fails, so it is run, not only found
  [ "$("$1" -c 'import sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = 3.10 ]
}

find_python310() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.10 python3 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10*/bin/python3.10; do
    if is_python310 "$candidate"; then echo "$candidate"; return 0; fi
  done
  if command -v uv >/dev/null; then
    uv python find 3.10 2>/dev/null || { uv python install -q 3.10 >&2 && uv python find 3.10; }
    return
  fi
  return 1
}

digest() { cat "$@" | sha256sum | cut -c1-16; }

# Runs "pip install" once for each content of its requirement files.
install_once() {  # install_once NAME FILE... -- PIP_ARGUMENT...
  local name=$1 files=(); shift
  while [ "$1" != -- ]; do files+=("$1"); shift; done; shift
  local mark="$venv/.installed-$name" want
  want=$(digest "${files[@]}")
  if [ "$(cat "$mark" 2>/dev/null)" = "$want" ]; then return 0; fi
  echo "setup.sh: installing $name ..."
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
  echo "$want" >"$mark"
}

mkdir -p "$venv"
exec 9>"$venv/.lock"
flock 9  # two at once: the second waits and finds everything done

if ! is_python310 "$venv/bin/python"; then
  python=$(find_python310) || {
    echo "setup.sh: Python 3.10 was not found on PATH, in pyenv or through uv;" \
      "install it (for example 'pyenv install 3.10' or 'uv python install 3.10') or set PYTHON=FILE" >&2
    exit 1
  }
  "$python" -m venv "$venv"
fi

requirements=local/requirements
install_once reference "$requirements/reference.txt" -- -r "$requirements/reference.txt"
install_once k2 "$requirements/k2.txt" -- --no-deps --require-hashes -r "$requirements/k2.txt"
if $with_tests; then
  install_once tests "$requirements/tests.txt" -- -r "$requirements/tests.txt"
fi
install_once icefall_ctx pyproject.toml -- --no-deps --no-build-isolation -e .
echo "setup.sh: ready in $venv; 'source $venv/bin/activate' gives icefall-ctx, train.py and decode.py their Python"
