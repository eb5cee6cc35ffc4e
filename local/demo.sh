#!/usr/bin/env bash
# From a fresh clone to error rates: installs into .venv, then renders, trains and decodes
# mini_dialog.  Minutes on two cores; run again, it continues where it stopped.
#
#   local/demo.sh            baseline and, on top of it, a model that reads earlier turns
#   local/demo.sh --clean    the same from scratch
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in
  "") ;;
  --clean) rm -rf egs/mini_dialog/ASR/data egs/mini_dialog/ASR/exp/demo* ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "demo.sh: unknown option '$1'; options: --clean, --help" >&2; exit 2 ;;
esac

local/setup.sh
venv=$(cd "${VENV:-.venv}" && pwd)
PATH="$venv/bin:$PATH"
cd egs/mini_dialog/ASR
mkdir -p exp
timings=exp/demo-times.tsv
: >"$timings"

step() { # step TITLE COMMAND...: runs it and notes how long it took
  local title=$1 begin=$SECONDS; shift
  echo "=== $title"
  "$@"
  printf '%s\t%d\n' "$title" $((SECONDS - begin)) >>"$timings"
}

step "render, link, features, tokens" ./prepare.sh --train-hours 4 --stop-stage 4
step "train the baseline" ./train.py --config conf/demo.yaml --exp-dir exp/demo
step "decode with the baseline" ./decode.py --exp-dir exp/demo --avg 2
step "train the context model" ./train.py --config conf/demo_context.yaml \
  --init-from exp/demo --exp-dir exp/demo_context
step "decode with the context model" ./decode.py --exp-dir exp/demo_context --avg 2
step "and without its history" ./decode.py --exp-dir exp/demo_context --avg 2 --history none \
  --output-dir exp/demo_context/no_history
python ../../../local/demo_summary.py baseline=exp/demo/beam \
  "context model"=exp/demo_context/beam "the same, no history"=exp/demo_context/no_history \
  --times "$timings" --linked data/linked/mini_dialog_supervisions_test.jsonl.gz \
  --curves exp/demo/curves.png exp/demo_context/curves.png
