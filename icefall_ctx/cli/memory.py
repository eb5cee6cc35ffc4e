"""``icefall-ctx memory``: check a word list against a model, make lists for scoring."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from icefall_ctx.cli.shared_options import seed_option
from icefall_ctx.errors import InputError

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group()
def memory() -> None:
    """Word lists for models with a word memory."""


@memory.command(context_settings={"show_default": True})
@click.argument("words", type=_FILE)
@click.option("--exp-dir", type=_FOLDER, help="Trained model: its tokens, its text rules.")
@click.option("--lang-dir", type=_FOLDER, help="Tokenizer alone, instead of --exp-dir.")
@click.option("--max-lines", type=click.IntRange(min=0), help="Show so many entries; default all.")
def check(
    words: Path, exp_dir: Optional[Path], lang_dir: Optional[Path], max_lines: Optional[int]
) -> None:
    """Say what becomes of every entry of the file WORDS.

    One line an entry: where it stands, how the model spells it, its tokens, and whether it
    cannot be used, is there twice, or begins another one.  Ends with status 2 if no entry can
    be used.
    """
    from icefall_ctx.text.words import read_words, report_lines

    list_ = _loader(exp_dir, lang_dir).load(read_words(words))
    for line in report_lines(list_, max_lines):
        click.echo(line)
    if not list_.weights:
        raise InputError(f"{words}: no entry can be used by this model")


def _loader(exp_dir: Optional[Path], lang_dir: Optional[Path]):
    from icefall_ctx.config import DataConfig, load_config
    from icefall_ctx.text.normalize import get_normalizer
    from icefall_ctx.text.tokenizer import Tokenizer
    from icefall_ctx.text.words import WordLoader

    if (exp_dir is None) == (lang_dir is None):
        raise InputError("name one of --exp-dir and --lang-dir")
    if lang_dir is not None:
        return WordLoader(Tokenizer.load(lang_dir))
    data = load_config(exp_dir / "config.yaml", DataConfig)
    return WordLoader(Tokenizer.load(exp_dir / "lang"), get_normalizer(data.normalizer))


@memory.command(context_settings={"show_default": True})
@click.argument("supervisions", type=_FILE)
@click.argument("output", type=_FILE)
@click.option("--train", "train_path", type=_FILE, required=True,
              help="Supervisions or cuts of the training text, which tells what is rare.")
@click.option("--num-common", type=click.IntRange(min=0), default=5000,
              help="Words of the training text that are not rare, most frequent first.")
@click.option("--num-distractors", type=click.IntRange(min=0), default=100,
              help="Rare words in every list that its utterance does not hold.")
@click.option("--normalizer", default="none", help="Rules applied to all texts first.")
@seed_option("Of the distractors.")
def lists(
    supervisions: Path,
    output: Path,
    train_path: Path,
    num_common: int,
    num_distractors: int,
    normalizer: str,
    seed: int,
) -> None:
    """Make biasing lists for the utterances of SUPERVISIONS and write them to OUTPUT.

    The format is the one common for LibriSpeech: id, reference, its rare words, the list.  Rare
    are the words of the training text and of the references but the most common.  For
    decode.py --memory-lists.
    """
    from icefall_ctx.score.words import make_biasing_lists, rare_words, write_biasing_lists

    train, refs = _texts(train_path, normalizer), _texts(supervisions, normalizer)
    common = set(train_words(train.values())) - set(rare_words(train.values(), num_common))
    known = {word for text in [*train.values(), *refs.values()] for word in text.split()}
    entries = make_biasing_lists(refs, known - common, num_distractors, seed=seed)
    write_biasing_lists(output, entries)
    with_rare = sum(bool(entry.rare) for entry in entries)
    click.echo(f"{len(entries)} lists in {output}; {with_rare} utterances hold a rare word")


def train_words(texts):
    """Every word of ``texts``, in order."""
    return (word for text in texts for word in text.split())


def _texts(path: Path, normalizer: str):
    """Utterance id -> text; of cuts, those of their supervisions."""
    from icefall_ctx.data.manifests import read_some
    from icefall_ctx.text.normalize import get_normalizer

    normalize = get_normalizer(normalizer)
    found = {}
    for item in read_some(path):
        for sup in getattr(item, "supervisions", [item]):
            utt_id = (sup.custom or {}).get("utt_id", sup.id)
            found[utt_id] = normalize(sup.text or "")
    return found
