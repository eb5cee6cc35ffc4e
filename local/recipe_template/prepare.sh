#!/usr/bin/env bash
# @CORPUS@, imported with icefall-ctx import: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=@CORPUS@
parts="@PARTS@"
speed_parts="@SPEED_PARTS@"
lm_parts="@TRAIN_PARTS@"
sampling_rate=@SAMPLING_RATE@
conversation='@CONVERSATION@'
unit=@UNIT@
vocab_size=@VOCAB_SIZE@

source "@ROOT@/local/prepare_recipe.sh"

manifests() {
  local part
  for part in $parts; do
    [ -f "$(supervisions "$part")" ] || die "no $(supervisions "$part"): run icefall-ctx import again"
  done
}

prepare_main "$@"
