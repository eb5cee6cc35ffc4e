#!/usr/bin/env bash
# The new-words mix: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=newwords
title="newwords: six English corpora, and a test set of words that none of them trains"
parts="train dev test new_words"
num_mel_bins=40
pitch=false
vocab_size=4000
normalizer=english
# the recipe's own variables: the folder of each source; those left empty are left out
sources="librispeech commonvoice mustc europarl_st how2 tedlium3"
recipe_options="$sources num_words max_lost"
librispeech=download/LibriSpeech
commonvoice=download/cv-corpus-6.1-2020-12-11
mustc=download/MUSTC_v2.0
europarl_st=download/europarl-st
how2=download/how2
tedlium3=download/TEDLIUM_release-3
num_words=239
max_lost=0.05

source ../../../local/prepare_recipe.sh

configure() {  # the general test set is that of TED-LIUM 3
  if [ -z "$tedlium3" ]; then parts=${parts/ test / }; fi
}

download() {
  local name
  for name in $sources; do [ -z "${!name}" ] || need_dir "$name" "$name, or leaves it out if empty"; done
}

manifests() {
  local name folders=()
  for name in $sources; do
    if [ -n "${!name}" ]; then folders+=("--${name//_/-}" "${!name}"); fi
  done
  python "$root/local/prepare_newwords.py" ${folders[@]+"${folders[@]}"} \
    --num-words "$num_words" --max-lost "$max_lost"
}

prepare_main "$@"
