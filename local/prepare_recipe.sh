# The stages of every recipe.  A recipe's prepare.sh sets variables, defines the function
# `manifests` (and `download`, where there is something to get), sources this file and calls
# `prepare_main "$@"`.
#
# Variables of a recipe, with their defaults:
corpus=${corpus:?prepare.sh must set corpus}
title=${title:-$corpus}
parts=${parts:-"train dev test"}      # parts that get features
speed_parts=${speed_parts:-}          # of them, those with copies at speed 0.9 and 1.1
sampling_rate=${sampling_rate:-16000}
conversation=${conversation:-auto}    # see icefall-ctx link --help
link_options=${link_options:-}
num_mel_bins=${num_mel_bins:-80}
pitch=${pitch:-true}
unit=${unit:-bpe}                     # bpe or char
vocab_size=${vocab_size:-500}         # pieces, with the three special ones
normalizer=${normalizer:-none}
lm_parts=${lm_parts:-train}           # transcripts that the n-gram sees
lm_text=${lm_text:-}                  # more text for it, one sentence a line
ivector_options=${ivector_options:-}  # of stage 7, see icefall-ctx ivector train --help
ngram_order=${ngram_order:-3}         # of the n-gram inside HLG
rescoring_order=${rescoring_order:-4} # of the one that rescores lattices
num_jobs=${num_jobs:-2}

set -euo pipefail
recipe_dir=$(pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$(cd "$root" && cd "${VENV:-.venv}" 2>/dev/null && pwd) || venv=
if [ -x "$venv/bin/python" ]; then PATH="$venv/bin:$PATH"; fi
export PYTHONUNBUFFERED=1
# kaldi's and numpy's own threads would fight with --num-jobs processes
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

log() { echo "$(date '+%Y-%m-%d %H:%M:%S') prepare.sh: $*"; }
die() { echo "prepare.sh: $*" >&2; exit 2; }

lang_dir() { if [ "$unit" = char ]; then echo data/lang_char; else echo "data/lang_bpe_$vocab_size"; fi; }
supervisions() { echo "data/manifests/${corpus}_supervisions_$1.jsonl.gz"; }
recordings() { echo "data/manifests/${corpus}_recordings_$1.jsonl.gz"; }
linked() { echo "data/linked/${corpus}_supervisions_$1.jsonl.gz"; }
cuts() { echo "data/fbank/${corpus}_cuts_$1.jsonl.gz"; }

usage() {
  cat <<USAGE
Usage: ./prepare.sh [--stage N] [--stop-stage N] [--VARIABLE VALUE ...]

Prepares $title.  Finished stages are marked in data/.done and skipped when the
script runs again with the same variables; --stage N runs N and the rest anew.
Stage 7 takes hours on a large corpus and runs only when asked for (--stage 7).

  0  download the corpus, where that is possible
  1  manifests of recordings and supervisions      data/manifests
  2  link every turn to its conversation, check    data/linked
  3  features: $num_mel_bins log-mel$([ "$pitch" = false ] || echo ", 3 pitch")                 data/fbank
  4  tokenizer                                     $(lang_dir)
  5  text of the language models                   data/lm
  6  lexicon, n-gram, L, G and HLG (BPE)           $(lang_dir)
  7  i-vectors                                     data/ivector

Variables:
USAGE
  for name in $options; do printf '  --%-20s %s\n' "${name//_/-}" "${!name:-(empty)}"; done
}

parse_options() {
  options="parts speed_parts sampling_rate unit vocab_size normalizer ngram_order num_jobs ivector_options ${recipe_options:-}"
  stage=0 stop_stage="" forced=false
  while [ $# -gt 0 ]; do
    if [[ "$1" == --*=* ]]; then set -- "${1%%=*}" "${1#*=}" "${@:2}"; fi
    local name=${1#--}; name=${name//-/_}
    case "$1" in
      -h | --help) usage; exit 0 ;;
      --stage | --stop-stage)
        [[ "${2:-}" =~ ^-?[0-9]+$ ]] || die "$1 wants a number, got '${2:-}'"
        printf -v "$name" %s "$2"; [ "$1" = --stage ] && forced=true; shift 2 ;;
      --*)
        [[ " $options " == *" $name "* ]] || die "unknown option '$1' (--help lists the options)"
        [ $# -ge 2 ] || die "$1 wants a value"
        printf -v "$name" %s "$2"; shift 2 ;;
      *) die "unexpected argument '$1' (--help lists the options)" ;;
    esac
  done
  : "${stop_stage:=$((stage > 6 ? stage : 6))}"
  check_options
}

check_options() {
  local name
  for name in stage stop_stage; do
    [[ "${!name}" =~ ^[0-7]$ ]] || die "--${name//_/-} ${!name} is no stage; there are 0 to 7"
  done
  [ "$stage" -le "$stop_stage" ] || die "--stage $stage comes after --stop-stage $stop_stage: nothing to do"
  [[ "$unit" =~ ^(bpe|char)$ ]] || die "--unit '$unit' is neither bpe nor char"
  for name in sampling_rate ngram_order num_jobs $([ "$unit" = char ] || echo vocab_size); do
    [[ "${!name}" =~ ^[1-9][0-9]*$ ]] || die "--${name//_/-} '${!name}' is not a whole number above zero"
  done
  [ -n "${parts// }" ] || die "--parts is empty; name the parts that get features"
}

# run_stage N TITLE FUNCTION: once for each setting of the variables.  A stage that runs again
# takes the marks of the later ones away, since they built on what it replaces.
run_stage() {
  local number=$1 title=$2 mark="data/.done/$1" settings="" name old
  if [ "$number" -lt "$stage" ] || [ "$number" -gt "$stop_stage" ]; then return 0; fi
  for name in $options; do
    case "$name" in
      num_jobs | ivector_options) ;;  # no reason to do stages 0 to 6 again
      *) settings+="$name=${!name:-} " ;;
    esac
  done
  if [ "$forced" = false ] && [ "$(cat "$mark" 2>/dev/null)" = "$settings" ]; then
    log "stage $number: $title: done before"
    return 0
  fi
  log "stage $number: $title"
  mkdir -p data/.done
  for old in data/.done/*; do
    if [ -e "$old" ] && [ "${old##*/}" -ge "$number" ]; then rm "$old"; fi
  done
  "$3"
  echo "$settings" >"$mark"
}

configure() { :; }  # a recipe's chance to derive variables from its options
download() { log "nothing to download"; }

# need_dir VARIABLE WHAT: one line where a corpus that has to be got by hand is not there.
need_dir() {
  [ -d "${!1}" ] || die "no folder '${!1}'; --${1//_/-} names the folder of $2 (README.md: how to get it)"
}

# fetch_archive URL FOLDER: download and unpack, going on where it stopped before.
fetch_archive() {
  local file="download/${1##*/}"
  mkdir -p download
  if [ ! -f "$file" ]; then
    log "getting $1"
    curl --fail --location --continue-at - --output "$file.part" "$1" \
      || die "could not get $1; run again to go on, or get it by hand (README.md)"
    mv "$file.part" "$file"
  fi
  log "unpacking $file into $2"
  rm -rf "$2.part"
  mkdir -p "$2.part"
  tar -xzf "$file" -C "$2.part"
  mv "$2.part" "$2"
}

# clone_corpus URL FOLDER WHAT: a public repository; whole or not at all.
clone_corpus() {
  log "getting $3 into $2"
  rm -rf "$2.part"
  git clone --quiet --depth 1 "$1" "$2.part" || die "could not get $3; get it by hand (README.md)"
  mv "$2.part" "$2"
}

link_parts() {
  local part
  for part in $parts; do
    icefall-ctx link --conversation "$conversation" $link_options \
      --recordings "$(recordings "$part")" "$(supervisions "$part")" "$(linked "$part")"
  done
}

compute_features() {
  local part speed
  for part in $parts; do
    speed=
    if [[ " $speed_parts " == *" $part "* ]]; then speed=--perturb-speed; fi
    python "$root/local/compute_features.py" --recordings "$(recordings "$part")" \
      --supervisions "$(linked "$part")" --output "$(cuts "$part")" \
      --sampling-rate "$sampling_rate" --num-mel-bins "$num_mel_bins" --pitch "$pitch" \
      --normalizer "$normalizer" --num-jobs "$num_jobs" $speed
  done
}

train_tokenizer() {
  python "$root/local/train_tokenizer.py" --type "$unit" --vocab-size "$vocab_size" \
    --normalizer "$normalizer" --output "$(lang_dir)" $(for p in $lm_parts; do linked "$p"; done)
}

# Training text, and a development text to choose LSTM models by.  Sentences of parts that are not
# trained on are counted in it: a language model must not have seen them.
prepare_lm_text() {
  local held_out=() part
  for part in $parts; do
    if [[ " $lm_parts " != *" $part "* ]]; then held_out+=("$(linked "$part")"); fi
  done
  python "$root/local/prepare_lm_text.py" $(for p in $lm_parts; do linked "$p"; done) $lm_text \
    --normalizer "$normalizer" --output data/lm/train.txt --test ${held_out[@]+"${held_out[@]}"}
  if [ ${#held_out[@]} -gt 0 ]; then
    python "$root/local/prepare_lm_text.py" "${held_out[0]}" \
      --normalizer "$normalizer" --output data/lm/dev.txt
  fi
}

compile_graphs() {
  if [ "$unit" = char ]; then log "characters have no lexicon: no HLG"; return 0; fi
  local dir order
  dir=$(lang_dir)
  python "$root/local/prepare_lexicon.py" data/lm/train.txt --lang-dir "$dir"
  for order in "$ngram_order" "$rescoring_order"; do
    python "$root/local/train_ngram.py" data/lm/train.txt --lang-dir "$dir" \
      --order "$order" --output "data/lm/G_${order}_gram.arpa"
  done
  python "$root/local/compile_hlg.py" --lang-dir "$dir" \
    --arpa "data/lm/G_${ngram_order}_gram.arpa" \
    --rescoring-arpa "data/lm/G_${rescoring_order}_gram.arpa"
}

# The extractor learns from the first part; --config conf/*-ivector.yaml reads data/ivector.
extract_ivectors() {
  local part extractor=data/ivector/extractor.pt
  icefall-ctx ivector train "$(cuts "${parts%% *}")" "$extractor" \
    --num-mel-bins "$num_mel_bins" --num-jobs "$num_jobs" $ivector_options
  for part in $parts; do
    icefall-ctx ivector extract "$(cuts "$part")" "$extractor" \
      "data/ivector/${corpus}_cuts_$part.jsonl.gz" --num-jobs "$num_jobs"
  done
}

prepare_main() {
  parse_options "$@"
  configure
  command -v icefall-ctx >/dev/null || die "icefall-ctx is not installed; run $root/local/setup.sh"
  mkdir -p data
  exec 8>data/.lock
  flock -n 8 || die "another prepare.sh is running in $recipe_dir"
  run_stage 0 "download" download
  run_stage 1 "manifests" manifests
  run_stage 2 "conversation links" link_parts
  run_stage 3 "features" compute_features
  run_stage 4 "tokenizer" train_tokenizer
  run_stage 5 "language model text" prepare_lm_text
  run_stage 6 "lexicon and graphs" compile_graphs
  run_stage 7 "i-vectors" extract_ivectors
  log "done; see data/"
}
