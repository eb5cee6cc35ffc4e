#!/usr/bin/env bash
# Switchboard and eval2000: see README.md.
cd "$(dirname "${BASH_SOURCE[0]}")"

corpus=swbd
title="swbd: Switchboard-1 (LDC97S62), tested on eval2000 (LDC2002S09, LDC2002T43)"
parts="train dev eval2000"
speed_parts=train
sampling_rate=8000
vocab_size=1996
normalizer=lower
# the recipe's own variables
recipe_options="corpus_dir transcript_dir eval_dir eval_transcript_dir fisher_dirs num_dev_calls max_lost"
corpus_dir=download/LDC97S62
transcript_dir=       # swb_ms98_transcriptions, where it is not below corpus_dir
eval_dir=download/LDC2002S09
eval_transcript_dir=  # LDC2002T43, where it is not below eval_dir
fisher_dirs=          # LDC2004T19 and LDC2005T19, text for the language models, if you have it
num_dev_calls=40
max_lost=0.05

source ../../../local/prepare_recipe.sh

configure() { if [ -n "$fisher_dirs" ]; then lm_text=data/lm/fisher.txt; fi; }

download() {
  need_dir corpus_dir "LDC97S62"
  need_dir eval_dir "LDC2002S09"
}

manifests() {
  python "$root/local/prepare_swbd.py" --corpus-dir "$corpus_dir" \
    ${transcript_dir:+--transcript-dir "$transcript_dir"} \
    --num-dev-calls "$num_dev_calls" --max-lost "$max_lost"
  python "$root/local/prepare_eval2000.py" --corpus-dir "$eval_dir" \
    ${eval_transcript_dir:+--transcript-dir "$eval_transcript_dir"} --max-lost "$max_lost"
  if [ -n "$fisher_dirs" ]; then
    python "$root/local/prepare_fisher_text.py" $fisher_dirs --output "$lm_text"
  fi
}

prepare_main "$@"
