#!/usr/bin/env bash
# TED-LIUM release 2: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=tedlium2
title="tedlium2: TED-LIUM release 2, lectures"
speed_parts=train
vocab_size=1996
normalizer=lower
# the recipe's own variables
recipe_options="corpus_dir max_lost"
corpus_dir=download/tedlium2/TEDLIUM_release2
max_lost=0.05

source ../../../local/prepare_recipe.sh

download() {
  if [ "$corpus_dir" = download/tedlium2/TEDLIUM_release2 ] && [ ! -d download/tedlium2 ]; then
    fetch_archive https://www.openslr.org/resources/19/TEDLIUM_release2.tar.gz download/tedlium2
  fi
  need_dir corpus_dir "TEDLIUM_release2"
}

manifests() {
  python "$root/local/prepare_tedlium2.py" --corpus-dir "$corpus_dir" --max-lost "$max_lost"
}

prepare_main "$@"
