"""``icefall-ctx link|validate|describe|split``: conversation links of Lhotse manifests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

import click

from icefall_ctx.cli.shared_options import seed_option

_MANIFEST = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("supervisions", type=_MANIFEST)
@click.argument("output", type=_MANIFEST)
@click.option(
    "--conversation",
    default="auto",
    show_default=True,
    metavar="RULE",
    help="What makes turns one conversation: auto (custom field conv_id where set, else the "
    "recording id), recording, field:NAME (an attribute or a custom field), pattern:REGEX "
    "(first group, searched in the recording id) or id-pattern:REGEX (in the supervision id).",
)
@click.option(
    "--max-gap",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Silence, over all channels, after which a new conversation starts.  [default: never]",
)
@click.option(
    "--num-prev",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="How many preceding turns to store with each turn.",
)
@click.option("--relink", is_flag=True, help="Replace the links that the manifest already has.")
@click.option(
    "--recordings",
    type=_MANIFEST,
    help="Recordings: validate the result against them at once, as icefall-ctx validate does.",
)
def link(
    supervisions: Path,
    output: Path,
    conversation: str,
    max_gap: Optional[float],
    num_prev: int,
    relink: bool,
    recordings: Optional[Path],
) -> None:
    """Link every turn of SUPERVISIONS to those before it and write OUTPUT.

    Both are .jsonl or .jsonl.gz.  Turns are ordered by start time over all channels.  Link the
    full manifest: before filtering, splitting, making cuts and speed perturbation.
    """
    from icefall_ctx.data.conversation import link_conversations
    from icefall_ctx.data.manifests import (
        check_manifest_path,
        iter_items,
        not_empty,
        open_manifest,
        read_manifest,
        write_manifest,
    )
    from icefall_ctx.data.validation import validate_links

    check_manifest_path(output)
    linked = link_conversations(
        iter_items(open_manifest(supervisions, "supervisions"), supervisions),
        conversation=conversation,
        max_gap=max_gap,
        num_prev=num_prev,
        relink=relink,
        in_place=True,  # nobody else holds what was just read
    )
    write_manifest(_progress(not_empty(linked, supervisions), "writing"), output)
    conversations = len({turn.custom["conv_id"] for turn in linked})
    click.echo(f"{output}: {len(linked)} turns in {conversations} conversations")
    if recordings:
        findings = validate_links(linked, recordings=read_manifest(recordings, "recordings"))
        _report(output, len(linked), findings)


@click.command()
@click.argument("manifest", type=_MANIFEST)
@click.option(
    "--recordings",
    type=_MANIFEST,
    help="Recordings, to check the times and channels of supervisions against.",
)
@click.option(
    "--index",
    type=_MANIFEST,
    help="The full linked manifest, where MANIFEST was filtered: neighbours are looked up there.",
)
def validate(manifest: Path, recordings: Optional[Path], index: Optional[Path]) -> None:
    """Check the links, times and speakers of MANIFEST (supervisions or cuts).

    Prints each kind of problem with its count and first places.  Exit status 1 if there is any.
    """
    from icefall_ctx.data.manifests import iter_items, not_empty, open_manifest, read_manifest
    from icefall_ctx.data.validation import validate_links

    items = list(iter_items(open_manifest(manifest, "supervisions", "cuts"), manifest))
    not_empty(items, manifest)
    findings = validate_links(
        items,
        recordings=recordings and read_manifest(recordings, "recordings"),
        index=index and read_manifest(index, "supervisions", "cuts"),
    )
    _report(manifest, len(items), findings)


def _report(manifest: Path, num_items: int, findings: Any) -> None:
    """Print what was found; exit status 1 if anything was."""
    if not findings:
        click.echo(f"{manifest}: {num_items} items, no problems")
        return
    click.echo(f"{manifest}: {len(findings)} problems")
    for line in findings.lines():
        click.echo(line)
    sys.exit(1)


@click.command()
@click.argument("manifest", type=_MANIFEST)
def describe(manifest: Path) -> None:
    """Conversations, turns, speakers and pauses of MANIFEST (supervisions or cuts) in figures."""
    from icefall_ctx.data.description import describe_links
    from icefall_ctx.data.manifests import iter_items, open_manifest

    opened = open_manifest(manifest, "supervisions", "cuts")
    for name, value in describe_links(iter_items(opened, manifest)):
        click.echo(f"{name:<24}{value}")


@click.command()
@click.argument("supervisions", type=_MANIFEST)
@click.argument("output_dir", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--parts",
    required=True,
    metavar="PARTS",
    help="Names and shares of speech, such as train:0.8,dev:0.1,test:0.1, or the number of "
    "equal parts.",
)
@click.option("--recordings", type=_MANIFEST, help="Recordings to split in the same way.")
@click.option("--cuts", type=_MANIFEST, help="Cuts to split in the same way.")
@seed_option("Seed of the random choice.")
@click.option(
    "--disjoint-speakers",
    is_flag=True,
    help="Keep all conversations that share a speaker in one part.",
)
def split(
    supervisions: Path,
    output_dir: Path,
    parts: str,
    recordings: Optional[Path],
    cuts: Optional[Path],
    seed: int,
    disjoint_speakers: bool,
) -> None:
    """Split linked SUPERVISIONS at random into OUTPUT_DIR without cutting a conversation.

    Writes NAME_PART.jsonl.gz for each manifest NAME.jsonl.gz and part; an "_all" at the end of
    NAME is left out.
    """
    from icefall_ctx.data.manifests import read_manifest, read_some
    from icefall_ctx.data.split import (
        distribute,
        parse_parts,
        recordings_of,
        split_conversations,
    )

    shares = parse_parts(parts)
    turns = read_some(supervisions, "supervisions")
    part_of = split_conversations(
        turns, shares, seed=seed, disjoint_speakers=disjoint_speakers
    )
    split_turns = distribute(turns, part_of, list(shares))
    outputs = {supervisions: split_turns}
    if recordings:
        outputs[recordings] = recordings_of(read_manifest(recordings, "recordings"), split_turns)
    if cuts:
        outputs[cuts] = distribute(read_manifest(cuts, "cuts"), part_of, list(shares))
    _write_parts(outputs, output_dir)
    for part, members in split_turns.items():
        click.echo(_summary(part, members))


def _write_parts(outputs: Dict[Path, Dict[str, List[Any]]], folder: Path) -> None:
    from icefall_ctx.data.manifests import write_manifest
    from icefall_ctx.errors import InputError

    names = [_stem(path) for path in outputs]
    if len(set(names)) < len(names):
        raise InputError(f"manifests of one name, {names[0]}, would overwrite each other")
    for name, parts in zip(names, outputs.values()):
        for part, items in parts.items():
            write_manifest(_progress(items, f"{name}_{part}"), folder / f"{name}_{part}.jsonl.gz")


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix("_all")


def _summary(part: str, turns: List[Any]) -> str:
    conversations = len({turn.custom["conv_id"] for turn in turns})
    speakers = len({turn.speaker for turn in turns} - {None})
    hours = sum(turn.duration for turn in turns) / 3600
    return (
        f"{part}: {conversations} conversations, {len(turns)} turns, "
        f"{speakers} speakers, {hours:.2f} h"
    )


def _progress(items: Iterable[Any], title: str) -> Iterable[Any]:
    from tqdm import tqdm

    return tqdm(items, desc=title, disable=None)  # no bar where stderr is no terminal
