#!/usr/bin/env bash
# Two-party dialogues rendered with espeak-ng: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=mini_dialog
title="mini_dialog: two-party dialogues rendered with espeak-ng"
parts="train dev test newwords newwords_dev"
vocab_size=200
# the recipe's own variables
recipe_options="train_hours test_hours reply_snr name_share name_sentences seed"
train_hours=1.0
test_hours=0.15
reply_snr=-2,8
name_share=0.5
name_sentences=0 # in a part of their own, names; see README.md
seed=0

source ../../../local/prepare_recipe.sh

manifests() {
  python "$root/local/prepare_mini_dialog.py" --seed "$seed" --jobs "$num_jobs" \
    --train-hours "$train_hours" --test-hours "$test_hours" --reply-snr="$reply_snr" \
    --name-share "$name_share" --name-sentences "$name_sentences"
}

configure() {
  if [ "$name_sentences" != 0 ]; then parts+=" names"; fi
}

prepare_main "$@"
