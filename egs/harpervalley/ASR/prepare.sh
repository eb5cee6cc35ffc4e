#!/usr/bin/env bash
# HarperValleyBank: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=harpervalley
title="harpervalley: simulated bank calls, openly licensed"
speed_parts=train
sampling_rate=8000
vocab_size=500
normalizer=english
# the recipe's own variables
recipe_options="corpus_dir max_lost"
corpus_dir=download/harpervalley
max_lost=0.05

source ../../../local/prepare_recipe.sh

download() {
  if [ "$corpus_dir" = download/harpervalley ] && [ ! -d "$corpus_dir" ]; then
    clone_corpus https://github.com/cricketclub/gridspace-stanford-harper-valley "$corpus_dir" \
      "HarperValleyBank (CC BY 4.0)"
  fi
  need_dir corpus_dir HarperValleyBank
}

manifests() {
  python "$root/local/prepare_harpervalley.py" --corpus-dir "$corpus_dir" --max-lost "$max_lost"
}

prepare_main "$@"
