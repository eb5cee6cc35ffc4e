#!/usr/bin/env bash
# Acted dialogue of a computer game from its Debian package: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=fotaq
title="fotaq: the dialogue of Flight of the Amazon Queen"
parts="train dev test"
speed_parts=train
sampling_rate=8000
normalizer=english
vocab_size=200
# the recipe's own variables
recipe_options="package seed"
package=
seed=0

source ../../../local/prepare_recipe.sh

manifests() {
  python "$root/local/prepare_fotaq.py" --seed "$seed" --jobs "$num_jobs" \
    ${package:+--package "$package"}
}

prepare_main "$@"
