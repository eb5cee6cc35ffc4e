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
  if [ -d "$corpus_dir" ]; then return 0; fi
  log "getting HarperValleyBank (CC BY 4.0) into $corpus_dir"
  git clone --quiet --depth 1 https://github.com/cricketclub/gridspace-stanford-harper-valley \
    "$corpus_dir" || die "no network? get HarperValleyBank by hand and name it with --corpus-dir"
}

manifests() {
  python "$root/local/prepare_harpervalley.py" --corpus-dir "$corpus_dir" --max-lost "$max_lost"
}

prepare_main "$@"
