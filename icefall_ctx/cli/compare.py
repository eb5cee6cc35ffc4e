"""``icefall-ctx compare``: systems of several seeds against a baseline, from result files."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

import click

from icefall_ctx.cli.shared_options import normalizer_option, seed_option, unit_option
from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.score.compare import Run, System, comparison_text
from icefall_ctx.score.compare import compare as compare_systems
from icefall_ctx.score.grouping import KINDS, SnrBins, group, of_side
from icefall_ctx.score.loading import Transcripts, add_details, load
from icefall_ctx.score.report import normalizer_rules, retokenize
from icefall_ctx.score.results import read_transcripts

_SPEC = re.compile(r"(?:(?P<label>[^=/]+)=)?(?P<places>.*?)(?:@(?P<suffix>[^/@,]+))?")
_SEED = re.compile(r"[-_.]?s(eed)?[-_]?\d+$")  # at the end of a folder's name


class Spec(NamedTuple):
    """``[LABEL=]PLACE[,PLACE...][@SUFFIX]``."""

    label: str
    places: List[str]  # experiment folders or recogs files, one a seed
    suffix: str


class SpecType(click.ParamType):
    name = "[LABEL=]FOLDER[,FOLDER...][@SUFFIX]"

    def convert(self, value, param, ctx) -> Spec:
        if isinstance(value, Spec):
            return value
        label, places, suffix = _SPEC.fullmatch(value).group("label", "places", "suffix")
        names = [name.strip() for name in places.split(",") if name.strip()]
        if not names:
            self.fail(f"'{value}' names no folder", param, ctx)
        for number, name in enumerate(names):
            if name in names[:number]:
                self.fail(f"'{name}' is named twice; each seed counts once", param, ctx)
        return Spec(label or self._label(names[0], suffix or ""), names, suffix or "")

    @staticmethod
    def _label(place: str, suffix: str) -> str:
        """The folder's name without its seed, and the suffix where one is given."""
        name = Path(place).name
        return f"{_SEED.sub('', name) or name} {suffix}".strip()


def _bins(context, parameter, value: Optional[str]) -> Optional[SnrBins]:
    if value is None:
        return None
    try:
        edges = tuple(float(edge) for edge in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"'{value}' is not numbers of dB between commas") from error
    return SnrBins(edges)


@click.command()
@click.option("--baseline", type=SpecType(), required=True, help="What systems are compared to.")
@click.option(
    "--system", "systems", type=SpecType(), required=True, multiple=True,
    help="A system; once for each.  Folders are experiments that differ only in their seed.",
)
@click.option(
    "--cuts", type=click.Path(dir_okay=False), required=True,
    help="Lhotse manifest of the test set (cuts or supervisions): conversation, side, SNR.",
)
@click.option("--test-set", default="test", show_default=True, help="As in the names of files.")
@click.option(
    "--suffix", default="beam5", show_default=True,
    help="Of the result files, recogs-<test set>-<suffix>.txt, where no @SUFFIX says otherwise.",
)
@click.option(
    "--by", type=click.Choice(KINDS), default="side", show_default=True,
    help="A column for each side, speaker, position in the conversation, or bin of --bins.",
)
@click.option(
    "--bins", callback=_bins, metavar="DB,DB,...",
    help="Edges of the bins for --by snr, such as -10,-8,-6,-4,-2.",
)
@click.option("--side", help="Only utterances of this side.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path),
    help="With --by snr: write the curves, error rate over SNR (.png, .pdf, .svg).",
)
@normalizer_option
@unit_option
@click.option(
    "--bootstrap", type=click.IntRange(min=100), default=10000, show_default=True,
    help="Resamples of conversations for 95 % intervals and p-values.",
)
@seed_option("Of the resampling.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of Markdown.")
def compare(
    baseline: Spec,
    systems: Tuple[Spec, ...],
    cuts: str,
    test_set: str,
    suffix: str,
    by: str,
    bins: Optional[SnrBins],
    side: Optional[str],
    plot: Optional[Path],
    normalizer: str,
    unit: str,
    bootstrap: int,
    seed: int,
    as_json: bool,
) -> None:
    """Compare systems with a baseline over several seeds, without decoding again.

    Reads the recogs files that decode.py or `icefall-ctx audit` wrote, directly in each
    experiment FOLDER or one folder below; a recogs file may stand in place of a folder.  Rates
    are means over seeds.  Differences are paired, with intervals over conversations, which are
    drawn together for both systems and all seeds.

    \b
    icefall-ctx compare --baseline baseline=exp/base_s1,exp/base_s2 \\
        --system history=exp/hist_s1,exp/hist_s2@beam5-history-hyp \\
        --cuts data/fbank/digits_dialog_cuts_test.jsonl.gz
    """
    if (plot or bins) and by != "snr":
        raise InputError("--bins and --plot are of --by snr; add it, or leave them out")
    manifest, rules = load(cuts, ProblemLog(), format="lhotse"), normalizer_rules(normalizer)

    def open_system(spec: Spec) -> System:
        files = [find_results(place, test_set, spec.suffix or suffix) for place in spec.places]
        runs = [_read(path, manifest, side) for path in files]
        return System(
            spec.label,
            [Run(r.source, retokenize(r.utterances, unit=unit, rules=rules)) for r in runs],
        )

    opened = [open_system(spec) for spec in (baseline, *systems)]
    groups = group(opened[0].runs[0].utterances, by, bins)
    result = compare_systems(
        opened, groups, name=test_set, unit=unit, resamples=bootstrap, seed=seed
    )
    if plot is not None:
        from icefall_ctx.score.compare_picture import plot_curve

        plot_curve(result, bins.centres, plot)
        logging.info("wrote %s", plot)
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=2))
    else:
        click.echo(comparison_text(result), nl=False)


def find_results(place: str, test_set: str, suffix: str) -> Path:
    """The recogs file ``place``, or the one of the experiment ``place``.

    Raises:
      InputError: there is none, or more than one.
    """
    folder, name = Path(place), f"recogs-{test_set}-{suffix}.txt"
    if folder.is_file():
        return folder
    if not folder.is_dir():
        raise InputError(f"{place}: no such folder of an experiment")
    found = [path for path in [folder / name, *sorted(folder.glob(f"*/{name}"))] if path.is_file()]
    if not found:
        pattern = f"recogs-{test_set}-*.txt"
        paths = [*folder.glob(pattern), *folder.glob(f"*/{pattern}")]
        others = sorted({path.stem.partition(f"-{test_set}-")[2] for path in paths})
        there = f"there are @{', @'.join(others)}" if others else f"no {pattern} at all; decode it"
        raise InputError(f"{place}: no {name} in it or one folder below; {there}")
    if len(found) > 1:
        places = ", ".join(str(path.parent) for path in found)
        raise InputError(f"{place}: {name} is in {places}; name the folder that is meant")
    return found[0]


def _read(path: Path, manifest: Transcripts, side: Optional[str]) -> Run:
    """Raises:
    InputError: nothing in the file, or an utterance that the manifest lacks.
    """
    log = ProblemLog(strict=True)
    utterances = read_transcripts(path, log)
    if not utterances:
        raise InputError(f"{path}: no utterance in it")
    for utterance in utterances:
        if utterance.utt_id not in manifest.details:
            raise InputError(
                f"{path}: {utterance.utt_id} is not in {manifest.path}; "
                "give the manifest of this test set with --cuts"
            )
    utterances = add_details(utterances, manifest)
    return Run(str(path), of_side(utterances, side) if side else utterances)
