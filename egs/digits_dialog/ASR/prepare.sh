#!/usr/bin/env bash
# Read-back calls composed of real digits: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=digits_dialog
title="digits_dialog: two-party read-back calls out of real digits (FSDD)"
sampling_rate=8000
vocab_size=54  # pieces up to whole digits
# recipe's own variables
recipe_options="fsdd_dir test_speakers train_hours test_hours readback_snr seed"
fsdd_dir=download/fsdd
test_speakers=
train_hours=2.5
test_hours=0.4
readback_snr=-10,-2
seed=0

source ../../../local/prepare_recipe.sh

download() {
  if [ "$fsdd_dir" = download/fsdd ] && [ ! -d "$fsdd_dir" ]; then
    clone_corpus https://github.com/Jakobovski/free-spoken-digit-dataset "$fsdd_dir" \
      "the Free Spoken Digit Dataset (CC BY-SA 4.0)"
  fi
  need_dir fsdd_dir "the Free Spoken Digit Dataset"
}

configure() {
  if [ -n "$test_speakers" ] && [[ " $parts " != *" test_unseen "* ]]; then parts+=" test_unseen"; fi
}

manifests() {
  python "$root/local/prepare_digits_dialog.py" --fsdd-dir "$fsdd_dir" --seed "$seed" \
    --train-hours "$train_hours" --test-hours "$test_hours" --test-speakers "$test_speakers" \
    --readback-snr="$readback_snr" --jobs "$num_jobs"
}

prepare_main "$@"
