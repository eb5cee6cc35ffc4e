#!/usr/bin/env bash
# MagicData-RAMC: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=magicdata_ramc
title="magicdata_ramc: Mandarin dialogues, openly downloadable"
speed_parts=train
unit=char
normalizer=mandarin-cer
# the recipe's own variables
recipe_options="corpus_dir max_lost"
corpus_dir=download/MagicData-RAMC
max_lost=0.05

source ../../../local/prepare_recipe.sh

download() {
  if [ "$corpus_dir" = download/MagicData-RAMC ] && [ ! -d "$corpus_dir" ]; then
    fetch_archive https://www.openslr.org/resources/123/MagicData-RAMC.tar.gz "$corpus_dir"
  fi
  need_dir corpus_dir "DataPartition and MDT2021S003"
}

manifests() {
  python "$root/local/prepare_magicdata_ramc.py" --corpus-dir "$corpus_dir" --max-lost "$max_lost"
}

prepare_main "$@"
