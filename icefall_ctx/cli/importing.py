"""``icefall-ctx import``: one's own calls -> linked, validated manifests and a recipe folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import click

from icefall_ctx.cli.shared_options import seed_option

FORMATS = ("auto", "kaldi", "stm", "rttm-ctm", "textgrid", "json", "calls")
DEFAULT_PARTS = "train:0.8,dev:0.1,test:0.1"


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Name of the corpus: small letters, digits and _.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="kaldi: a data directory. stm: STM files. rttm-ctm: RTTM for turns, CTM for words. "
    "textgrid: a tier a speaker. json: segments of a call, one audio file a side or a call. "
    "calls: audio files with a transcript of the same name beside each: .stm, .TextGrid, .json, or "
    ".txt with lines '12.3 14.5 A: what was said' (seconds; A and B are the channels).",
)
@click.option(
    "--audio",
    type=click.Path(path_type=Path),
    help="Folder of the audio files; theirs are the names in the transcripts.  "
    "[default: the folder of SOURCE]",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="The recipe folder to make or fill.  [default: egs/NAME/ASR]",
)
@click.option(
    "--parts",
    default=None,
    help=f"Parts and their shares of speech; whole conversations.  [default: {DEFAULT_PARTS}, or "
    "test:1 for fewer than three conversations]",
)
@seed_option("Seed of the random parts.")
@click.option(
    "--conversation",
    default="auto",
    show_default=True,
    metavar="RULE",
    help="What makes turns one conversation, as in icefall-ctx link.",
)
@click.option("--language", help="Written into every turn, such as English.")
@click.option(
    "--speakers",
    type=click.Choice(["corpus", "call"]),
    help="Whether a speaker label names one person in the whole corpus or in its call only.  "
    "[default: corpus for kaldi and stm, else call]",
)
@click.option("--encoding", default="utf-8", show_default=True, help="Of the transcripts.")
@click.option("--run-commands", is_flag=True, help="Run the commands in a Kaldi wav.scp.")
@click.option("--strict", is_flag=True, help="Stop at the first problem.")
@click.option(
    "--max-skipped",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="Share of turns that may be skipped before the exit status is 1.",
)
@click.option("--no-recipe", is_flag=True, help="Only the manifests.")
def import_(source: Path, name: str, output: Optional[Path], **options: Any) -> None:
    """Make manifests and a recipe out of your own calls in SOURCE.

    Writes OUTPUT/data/manifests (recordings and turns) and OUTPUT/data/linked (turns with links
    to those before them), in parts that cut no conversation, and the files of a recipe.
    """
    from icefall_ctx.errors import InputError, ProblemLog
    from icefall_ctx.formats.lines import codec_of

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise InputError(f"name {name!r}: write it in small letters, digits and _")
    codec_of(options["encoding"], "--encoding")
    output = output or Path("egs") / name / "ASR"
    problems = ProblemLog(strict=options["strict"])
    manifests, met = _read(source, options, problems)
    kept = len(manifests["supervisions"])
    parts = _link_and_split(manifests, options, problems)
    _write(parts, name, output)
    if not options["no_recipe"]:
        _write_recipe(output, name, parts, options["conversation"])
    _report(parts, output, problems)
    share = 1 - kept / max(met, 1)
    if share > options["max_skipped"]:
        click.echo(f"{met - kept} of {met} turns were skipped ({share:.1%})", err=True)
        sys.exit(1)


def _read(source: Path, options: Dict[str, Any], problems: Any) -> tuple:
    from icefall_ctx.corpora.importing import read_calls

    speakers = options["speakers"]
    return read_calls(
        source,
        options["format_"],
        audio_dir=options["audio"],
        language=options["language"],
        shared_speakers=None if speakers is None else speakers == "corpus",
        run_commands=options["run_commands"],
        encoding=options["encoding"],
        problems=problems,
    )


def _link_and_split(manifests: Any, options: Dict[str, Any], problems: Any) -> Dict[str, Any]:
    """Part -> recordings, and turns with and without links."""
    from icefall_ctx.data.linking import link_conversations
    from icefall_ctx.data.sanitize import separate_speakers
    from icefall_ctx.data.split import distribute, parse_parts, recordings_of, split_conversations

    turns = separate_speakers(manifests["supervisions"], problems)
    linked = list(link_conversations(turns, conversation=options["conversation"]))
    _validate(linked, manifests["recordings"])
    conversations = len({turn.custom["conv_id"] for turn in linked})
    default = DEFAULT_PARTS if conversations >= 3 else "test:1"
    shares = parse_parts(options["parts"] or default)
    part_of = split_conversations(linked, shares, seed=options["seed"])
    linked_parts = distribute(linked, part_of, list(shares))
    recordings = recordings_of(manifests["recordings"], linked_parts)
    plain = {turn.id: turn for turn in turns}
    return {
        part: {
            "recordings": recordings[part],
            "linked": members,
            "supervisions": [plain[turn.id] for turn in members],
        }
        for part, members in linked_parts.items()
    }


def _validate(linked: List[Any], recordings: Any) -> None:
    from icefall_ctx.data.validation import validate_links
    from icefall_ctx.errors import InputError

    findings = validate_links(linked, recordings=recordings)
    if findings:
        raise InputError("the manifests are not sound: " + "; ".join(findings.lines()))


def _write(parts: Dict[str, Any], name: str, output: Path) -> None:
    from icefall_ctx.data.manifests import write_manifest

    for part, members in parts.items():
        for folder, kind, key in (
            ("manifests", "recordings", "recordings"),
            ("manifests", "supervisions", "supervisions"),
            ("linked", "supervisions", "linked"),
        ):
            path = output / "data" / folder / f"{name}_{kind}_{part}.jsonl.gz"
            write_manifest(members[key], path)


def _write_recipe(output: Path, name: str, parts: Dict[str, Any], conversation: str) -> None:
    from icefall_ctx.corpora.recipe_folder import recipe_values, write_recipe_folder

    values = recipe_values(name, output, parts, conversation)
    for path in write_recipe_folder(output, values):
        click.echo(f"wrote {path}")


def _report(parts: Dict[str, Any], output: Path, problems: Any) -> None:
    from icefall_ctx.corpora.manifests import describe

    click.echo(describe(parts))
    click.echo(f"manifests in {output / 'data'}")
    if not {"train", "dev"} <= set(parts):
        click.echo(
            f"parts {', '.join(parts)}: for decoding with a trained model; to train one, import "
            f"three calls or more, or name the parts, as in --parts {DEFAULT_PARTS}",
            err=True,
        )
    if problems:
        click.echo(problems.summary(), err=True)
