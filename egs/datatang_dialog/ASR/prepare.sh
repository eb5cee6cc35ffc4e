#!/usr/bin/env bash
# Datatang Mandarin dialogues: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=datatang_dialog
title="datatang_dialog: Mandarin dialogues sold by Datatang"
speed_parts=train
unit=char
normalizer=mandarin-cer
# the recipe's own variables
recipe_options="corpus_dir max_lost"
corpus_dir=download/datatang
max_lost=0.05

source ../../../local/prepare_recipe.sh

download() { need_dir corpus_dir "the delivery"; }

manifests() {
  python "$root/local/prepare_datatang_dialog.py" --corpus-dir "$corpus_dir" --max-lost "$max_lost"
}

prepare_main "$@"
