#!/usr/bin/env bash
# HKUST Mandarin telephone speech: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=hkust
title="HKUST: Mandarin telephone speech (LDC2005S15, LDC2005T32)"
parts="train valid dev"
speed_parts=train
sampling_rate=8000
unit=char
normalizer=hkust
# the recipe's own variables
recipe_options="corpus_dir transcript_dir num_valid_calls max_lost"
corpus_dir=download/hkust  # holds LDC2005S15, and LDC2005T32 unless --transcript-dir names it
transcript_dir=
num_valid_calls=20  # of the training set: checkpoints are not chosen by dev, which is the test set
max_lost=0.05

source ../../../local/prepare_recipe.sh

download() { need_dir corpus_dir "LDC2005S15 and LDC2005T32"; }

manifests() {
  python "$root/local/prepare_hkust.py" --corpus-dir "$corpus_dir" \
    ${transcript_dir:+--transcript-dir "$transcript_dir"} \
    --num-valid-calls "$num_valid_calls" --max-lost "$max_lost"
}

prepare_main "$@"
