"""Result files under icefall's names and in icefall's formats.

``recogs-<set>-<suffix>.txt`` holds two lines an utterance::

    utt-1:	ref=['HELLO', 'WORLD']
    utt-1:	hyp=['HELLO']

An utterance that the system gave no output for has the line ``utt-1:	hyp=None``.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from icefall_ctx.errors import Pathlike, ProblemLog, where
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import read_lines
from icefall_ctx.score.wer import EPS, Aligner, Pair, Scores, Utterance, align, score_utterances


class ResultPaths(NamedTuple):
    recogs: Path
    errs: Path
    summary: Path


def result_paths(folder: Pathlike, test_set: str, suffix: str) -> ResultPaths:
    """``recogs-``, ``errs-`` and ``wer-summary-<set>-<suffix>.txt`` in ``folder``."""
    names = (f"{kind}-{test_set}-{suffix}.txt" for kind in ("recogs", "errs", "wer-summary"))
    return ResultPaths(*(Path(folder) / name for name in names))


def store_transcripts(path: Pathlike, results: Iterable[Utterance]) -> None:
    """Write a ``recogs`` file, sorted by utterance id."""
    lines = []
    for utterance in sorted(results, key=lambda u: u.utt_id):
        hyp = None if utterance.hyp is None else list(utterance.hyp)
        lines.append(f"{utterance.utt_id}:\tref={list(utterance.ref)}\n")
        lines.append(f"{utterance.utt_id}:\thyp={hyp}\n")
    write_text(path, "".join(lines))


def read_transcripts(path: Pathlike, log: Optional[ProblemLog] = None) -> List[Utterance]:
    """Read a ``recogs`` file; an utterance with only one of its two lines is a problem.

    Without a ``hyp`` line the utterance is kept as missing output; without ``ref`` it is skipped.
    """
    log = ProblemLog() if log is None else log
    sides: Dict[str, Dict[str, Optional[List[str]]]] = defaultdict(dict)
    places: Dict[str, str] = {}
    for number, line in read_lines(path, log):
        head, tab, tail = line.partition(":\t")
        side, equals, value = tail.partition("=")
        words = _word_list(value) if equals and side in ("ref", "hyp") else "unreadable"
        if words == "unreadable" or (words is None and side == "ref"):
            log.add("not a recogs line", where(path, number), line[:80])
            continue
        if side in sides[head]:
            log.add("repeated utterance", where(path, number), head)
            continue
        sides[head][side] = words
        places.setdefault(head, where(path, number))
    return list(_paired(sides, places, log))


def _paired(
    sides: Mapping[str, Dict[str, Optional[List[str]]]], places: Mapping[str, str], log: ProblemLog
) -> Iterable[Utterance]:
    for utt_id, found in sides.items():
        if "ref" not in found:
            log.add("utterance without a ref line", places[utt_id], utt_id)
            continue
        if "hyp" not in found:
            log.add("utterance without a hyp line", places[utt_id], utt_id)
        yield Utterance(utt_id, found["ref"], found.get("hyp"))


def _word_list(value: str):
    """The list of words, ``None``, or the string ``"unreadable"``."""
    try:
        words = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return "unreadable"
    if words is None:
        return None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return [word for word in words if word]
    return words.split() if isinstance(words, str) else "unreadable"


def write_error_stats(
    path: Pathlike,
    results: Sequence[Utterance],
    *,
    scores: Optional[Scores] = None,
    aligner: Aligner = align,
) -> Scores:
    """Write an ``errs`` file: totals, every alignment, and the counts of each error and word."""
    if scores is None:
        scores = score_utterances(results, aligner=aligner, bootstrap=0)
    write_text(path, "\n".join(_error_lines(results, scores)) + "\n")
    return scores


def _error_lines(results: Sequence[Utterance], scores: Scores) -> Iterable[str]:
    counts = scores.total
    yield f"%WER = {100 * counts.rate:.2f}"
    yield (
        f"Errors: {counts.ins} insertions, {counts.dels} deletions, {counts.subs} substitutions, "
        f"over {counts.ref_words} reference words ({counts.correct} correct)"
    )
    yield "Search below for sections starting with PER-UTT DETAILS:, SUBSTITUTIONS:, "
    yield "DELETIONS:, INSERTIONS:, PER-WORD STATS:"
    yield "\nPER-UTT DETAILS: corr or (ref->hyp)  "
    for utterance in sorted(results, key=lambda u: u.utt_id):
        missing = " [no output]" if utterance.hyp is None else ""
        yield f"{utterance.utt_id}:\t{_aligned_text(scores.alignments[utterance.utt_id])}{missing}"
    yield from _error_tables([pair for pairs in scores.alignments.values() for pair in pairs])


def _aligned_text(pairs: Sequence[Pair]) -> str:
    return " ".join(
        ref if ref == hyp else f"({ref or '*'}->{hyp or '*'})" for ref, hyp in pairs
    )


def _error_tables(pairs: Sequence[Pair]) -> Iterable[str]:
    counts = Counter(pairs)
    wrong = Counter({pair: n for pair, n in counts.items() if pair[0] != pair[1]})
    yield "\nSUBSTITUTIONS: count ref -> hyp"
    for (ref, hyp), n in wrong.most_common():
        if ref != EPS and hyp != EPS:
            yield f"{n}   {ref} -> {hyp}"
    yield "\nDELETIONS: count ref"
    yield from (f"{n}   {ref}" for (ref, hyp), n in wrong.most_common() if hyp == EPS)
    yield "\nINSERTIONS: count hyp"
    yield from (f"{n}   {hyp}" for (ref, hyp), n in wrong.most_common() if ref == EPS)
    yield "\nPER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp"
    yield from _word_table(counts)


def _word_table(counts: Mapping[Pair, int]) -> Iterable[str]:
    rows: Dict[str, List[int]] = defaultdict(lambda: [0, 0, 0, 0])  # corr, errors, in ref, in hyp
    for (ref, hyp), n in counts.items():
        for word, column in ((ref, 2), (hyp, 3)):
            if word != EPS:
                rows[word][column] += n
        if ref == hyp:
            rows[ref][0] += n
        else:
            for word in {ref, hyp} - {EPS}:
                rows[word][1] += n
    for word, row in sorted(rows.items(), key=lambda item: (-item[1][1], item[0])):
        yield f"{word}   " + " ".join(map(str, row))


def write_summary(path: Pathlike, rates: Mapping[str, float], name: str = "WER") -> None:
    """Write a ``wer-summary`` file: one line a setting, best first; rates are in percent."""
    lines = [f"settings\t{name}"]
    lines += [f"{key}\t{rate:.2f}" for key, rate in sorted(rates.items(), key=lambda kv: kv[1])]
    write_text(path, "\n".join(lines) + "\n")
