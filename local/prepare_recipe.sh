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
validate_options=${validate_options:-}
unit=${unit:-bpe}                     # bpe or char
vocab_size=${vocab_size:-500}         # pieces, with the three special ones
normalizer=${normalizer:-none}
lm_parts=${lm_parts:-train}           # transcripts that the n-gram sees
lm_text=${lm_text:-}                  # more text for it, one sentence a line
ngram_order=${ngram_order:-3}
num_jobs=${num_jobs:-2}

set -euo pipefail
recipe_dir=$(pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -x "$root/.venv/bin/python" ]; then PATH="$root/.venv/bin:$PATH"; fi
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

  0  download the corpus, where that is possible
  1  manifests of recordings and supervisions      data/manifests
  2  link every turn to its conversation, check    data/linked
  3  features: 80 log-mel, 3 pitch                 data/fbank
  4  tokenizer                                     $(lang_dir)
  5  text and n-gram of the language model         data/lm
  6  lexicon, L, G and HLG                         $(lang_dir)

Variables:
USAGE
  for name in $options; do printf '  --%-20s %s\n' "${name//_/-}" "${!name:-(empty)}"; done
}

parse_options() {
  options="parts speed_parts sampling_rate unit vocab_size normalizer ngram_order num_jobs ${recipe_options:-}"
  stage=0 stop_stage=99 forced=false
  while [ $# -gt 0 ]; do
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
}

# run_stage N TITLE FUNCTION: once for each setting of the variables.  A stage that runs again
# takes the marks of the later ones away, since they built on what it replaces.
run_stage() {
  local number=$1 title=$2 mark="data/.done/$1" settings="" name old
  if [ "$number" -lt "$stage" ] || [ "$number" -gt "$stop_stage" ]; then return 0; fi
  for name in $options; do [ "$name" = num_jobs ] || settings+="$name=${!name:-} "; done
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

link_parts() {
  local part
  for part in $parts; do
    icefall-ctx link --conversation "$conversation" $link_options \
      "$(supervisions "$part")" "$(linked "$part")"
    icefall-ctx validate --recordings "$(recordings "$part")" $validate_options "$(linked "$part")"
  done
}

compute_features() {
  local part speed
  for part in $parts; do
    speed=
    if [[ " $speed_parts " == *" $part "* ]]; then speed=--perturb-speed; fi
    python "$root/local/compute_features.py" --recordings "$(recordings "$part")" \
      --supervisions "$(linked "$part")" --output "$(cuts "$part")" \
      --sampling-rate "$sampling_rate" --normalizer "$normalizer" --num-jobs "$num_jobs" $speed
  done
}

train_tokenizer() {
  python "$root/local/train_tokenizer.py" --type "$unit" --vocab-size "$vocab_size" \
    --normalizer "$normalizer" --output "$(lang_dir)" $(for p in $lm_parts; do linked "$p"; done)
}

prepare_main() {
  parse_options "$@"
  configure
  mkdir -p data
  exec 8>data/.lock
  flock -n 8 || die "another prepare.sh is running in $recipe_dir"
  run_stage 0 "download" download
  run_stage 1 "manifests" manifests
  run_stage 2 "conversation links" link_parts
  run_stage 3 "features" compute_features
  run_stage 4 "tokenizer" train_tokenizer
  log "done; see data/"
}
