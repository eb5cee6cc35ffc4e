"""``icefall-ctx score``: error rates of any transcripts against any reference."""

from __future__ import annotations

import json
import logging
from typing import Any, Dict, List, Optional, Sequence, Tuple

import click

from icefall_ctx.cli.shared_options import normalizer_option, seed_option, unit_option
from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.formats.lines import codec_of
from icefall_ctx.score.conversation import paired_bootstrap
from icefall_ctx.score.cpwer import score_cpwer
from icefall_ctx.score.export import export
from icefall_ctx.score.glm import read_glm
from icefall_ctx.score.loading import FORMATS, Matched, Transcripts, add_details, load, match
from icefall_ctx.score.network import parse_network
from icefall_ctx.score.nist import subsets
from icefall_ctx.score.report import (
    Report,
    Rules,
    counts_line,
    counts_to_dict,
    difference_text,
    evaluate,
    glm_rules,
    normalizer_rules,
    retokenize,
)
from icefall_ctx.score.sclite import LEVENSHTEIN, align_any, align_networks
from icefall_ctx.score.sclite import align as sclite_align
from icefall_ctx.score.wer import GROUPINGS, Aligner, align, total


def _groupings(context, parameter, value: str) -> Tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in value.split(",") if kind.strip())
    for kind in kinds:
        if kind not in GROUPINGS:
            raise click.BadParameter(f"'{kind}' is none of {', '.join(GROUPINGS)}")
    return kinds


@click.command()
@click.argument("ref", type=click.Path())
@click.argument("hyp", type=click.Path(), required=False)
@click.option("--ref-format", type=click.Choice(FORMATS), help="Default: by suffix and content.")
@click.option("--hyp-format", type=click.Choice(FORMATS), help="Default: by suffix and content.")
@click.option("--encoding", default="utf-8", show_default=True, help="Of both files.")
@click.option("--glm", type=click.Path(), help="NIST mapping file, applied as csrfilt does.")
@normalizer_option
@unit_option
@click.option(
    "--alignment",
    type=click.Choice(["auto", "levenshtein", "sclite", "both"]),
    default="auto",
    show_default=True,
    help="sclite: NIST's weights (substitution 4, insertion and deletion 3), without case; "
    "auto: sclite for references in NIST's formats, levenshtein for others.",
)
@click.option(
    "--per",
    default="speaker,side,turn",
    show_default=True,
    callback=_groupings,
    help=f"Groups to report, out of {','.join(GROUPINGS)}.",
)
@click.option(
    "--bootstrap",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Resamples of conversations for the 95 % interval; 0: none.",
)
@seed_option("Of the resampling.")
@click.option("--compare", type=click.Path(), help="A second system: difference and p-value.")
@click.option("--supervisions", type=click.Path(), help="Lhotse manifest: conversation, speaker.")
@click.option("--cpwer", is_flag=True, help="Also cpWER: speakers matched for the fewest errors.")
@click.option("--export-dir", type=click.Path(), help="Write TRN, and with times STM and CTM.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--strict", is_flag=True, help="Stop at the first line that cannot be used.")
def score(ref: str, hyp: Optional[str], **options: Any) -> None:
    """Error rates of HYP against REF.

    Each is an STM, CTM, TRN, Kaldi text, Lhotse manifest (supervisions or cuts) or recogs file; one
    recogs file alone holds both.  CTM and STM hypotheses are matched by time and need a reference
    with times.  Problems go to standard error, with file and line.
    """
    log = ProblemLog(strict=options["strict"])
    codec_of(options["encoding"], "--encoding")
    if options["ref_format"] == "ctm" and not hyp:
        raise InputError(f"{ref}: holds no hypotheses; name a second file with them")
    reference, hypothesis = _load_both(ref, hyp, log, options)
    matched = _matched(reference, hypothesis, log, options)
    notation = _is_notation(reference, hypothesis, options)
    rules = _rules(hypothesis, notation, log, options)
    lines = subsets(matched.segments, reference.titles) if reference.format == "stm" else {}
    reports = [
        evaluate(
            matched.utterances,
            unit=options["unit"],
            rules=rules,
            notation=notation,
            by=options["per"],
            bootstrap=options["bootstrap"],
            seed=options["seed"],
            aligner=_aligner(name, notation),
            alignment=name,
            subsets=lines,
        )
        for name in _alignments(options["alignment"], reference)
    ]
    extra = _extras(reference, hypothesis, matched, rules, notation, log, options)
    _print(reports, extra, log, options["as_json"])


def _load_both(
    ref: str, hyp: Optional[str], log: ProblemLog, options: Dict[str, Any]
) -> Tuple[Transcripts, Optional[Transcripts]]:
    encoding = options["encoding"]
    reference = load(ref, log, format=options["ref_format"] or "", encoding=encoding)
    if not hyp:
        return reference, None
    return reference, load(hyp, log, format=options["hyp_format"] or "", encoding=encoding)


def _matched(
    reference: Transcripts,
    hypothesis: Optional[Transcripts],
    log: ProblemLog,
    options: Dict[str, Any],
) -> Matched:
    matched = match(reference, hypothesis, log)
    if options["supervisions"]:
        manifest = load(options["supervisions"], log, format="lhotse")
        matched.utterances = add_details(matched.utterances, manifest)
    if _is_notation(reference, hypothesis, options):
        matched = _readable(matched, str(reference.path), log)
    return matched


def _is_notation(
    reference: Transcripts, hypothesis: Optional[Transcripts], options: Dict[str, Any]
) -> bool:
    """Whether texts are in NIST's notation: by format, or since a mapping file makes them so."""
    alternatives = hypothesis is not None and any(word.alternation for word in hypothesis.words)
    return reference.notation or alternatives or bool(options["glm"])


def _readable(matched: Matched, path: str, log: ProblemLog) -> Matched:
    """Without utterances whose alternations do not parse."""
    keep: List[int] = []
    for index, utterance in enumerate(matched.utterances):
        try:
            parse_network(" ".join(utterance.ref))
            parse_network(" ".join(utterance.hyp or []))
            keep.append(index)
        except InputError as error:
            log.add("alternation not readable", path, f"{utterance.utt_id}: {error}")
    segments = [matched.segments[i] for i in keep] if matched.segments else []
    return Matched([matched.utterances[i] for i in keep], segments)


def _rules(
    hypothesis: Optional[Transcripts], notation: bool, log: ProblemLog, options: Dict[str, Any]
) -> Rules:
    rules = Rules()
    if options["glm"]:
        word_by_word = hypothesis is not None and bool(hypothesis.words)
        rules = glm_rules(read_glm(options["glm"], log), word_by_word=word_by_word)
    return rules.then(normalizer_rules(options["normalizer"], notation=notation))


def _alignments(choice: str, reference: Transcripts) -> Sequence[str]:
    if choice == "auto":
        return ["sclite" if reference.notation else "levenshtein"]
    return ["levenshtein", "sclite"] if choice == "both" else [choice]


def _aligner(name: str, notation: bool) -> Aligner:
    if not notation:
        return align if name == "levenshtein" else sclite_align

    def align_notation(ref: Sequence[str], hyp: Sequence[str]):
        networks = parse_network(" ".join(ref)), parse_network(" ".join(hyp))
        if name == "sclite":
            return align_any(*networks)
        return align_networks(*networks, costs=LEVENSHTEIN)

    return align_notation


def _extras(
    reference: Transcripts,
    hypothesis: Optional[Transcripts],
    matched: Matched,
    rules: Rules,
    notation: bool,
    log: ProblemLog,
    options: Dict[str, Any],
) -> Dict[str, Any]:
    extra: Dict[str, Any] = {}
    if options["compare"]:
        other = load(options["compare"], log, encoding=options["encoding"])
        second = _matched(reference, other, log, options).utterances
        changed = (
            retokenize(side, unit=options["unit"], rules=rules, notation=notation)
            for side in (matched.utterances, second)
        )
        name = _alignments(options["alignment"], reference)[0]
        extra["difference"] = paired_bootstrap(
            *changed, seed=options["seed"], aligner=_aligner(name, notation)
        )
    if options["cpwer"]:
        if hypothesis is None or not (reference.segments and hypothesis.segments):
            raise InputError("--cpwer needs speakers and times on both sides: STM or Lhotse files")
        extra["cpwer"] = score_cpwer(reference.segments, hypothesis.segments)
    if options["export_dir"]:
        words = hypothesis.words if hypothesis is not None else ()
        for path in export(options["export_dir"], matched, words, notation=notation):
            logging.info("wrote %s", path)
    return extra


def _print(
    reports: Sequence[Report], extra: Dict[str, Any], log: ProblemLog, as_json: bool
) -> None:
    cpwer = extra.get("cpwer")
    if as_json:
        result: Dict[str, Any] = {"reports": [report.to_dict() for report in reports]}
        if "difference" in extra:
            result["difference"] = extra["difference"]._asdict()
        if cpwer is not None:
            result["cpwer"] = {
                name: {**counts_to_dict(counts), "speakers": pairs}
                for name, (counts, pairs) in cpwer.items()
            }
        result["problems"] = dict(log.counts())
        click.echo(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        click.echo("\n".join(report.text() for report in reports), nl=False)
        if "difference" in extra:
            click.echo(f"second system against the first: {difference_text(extra['difference'])}")
        if cpwer is not None:
            click.echo(f"cpWER: {counts_line(total(counts for counts, _ in cpwer.values()))}")
    if log.summary():
        click.echo(log.summary(), err=True)
