"""The word memory of a decoding run as its options describe it, and what the words did."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence

from icefall_ctx.config import DecodeConfig
from icefall_ctx.data.datamodule import AsrDataModule
from icefall_ctx.decode.methods import uses_decoder
from icefall_ctx.decode.session_words import HistoryWords, word_counts
from icefall_ctx.decode.word_memory import WordMemory
from icefall_ctx.errors import InputError
from icefall_ctx.files import write_text
from icefall_ctx.models.asr import AsrModel
from icefall_ctx.models.memory_bank import EntryList, MemoryBank
from icefall_ctx.score.wer import Utterance
from icefall_ctx.score.words import (
    BiasingEntry,
    biased_scores,
    new_word_accuracy,
    read_biasing_lists,
)
from icefall_ctx.text.tokenizer import Tokenizer
from icefall_ctx.text.words import WordEntry, WordList, WordLoader, read_words, show


@dataclass
class Words:
    """Attributes:
    memory: for the recogniser; None for a model without a word memory.
    displays: recognised text -> what the output shows.
    scored: words whose recognition is scored, as the model spells them.
    lists: utterance id -> its own list, of ``--memory-lists``.
    name: of the memory, for the names of result files; empty where there is none.
    """

    memory: Optional[WordMemory] = None
    displays: Dict[str, str] = field(default_factory=dict)
    scored: List[str] = field(default_factory=list)
    lists: Dict[str, BiasingEntry] = field(default_factory=dict)
    name: str = ""


def check_options(config: DecodeConfig, model: AsrModel) -> None:
    """Refuse word options that nothing would use.

    Raises:
      InputError: naming the option.
    """
    lists = config.memory is not None or bool(config.words) or config.memory_lists is not None
    wanted = lists or config.memory_from_history
    named = (
        "--memory, --words, --memory-lists and --memory-from-history" if wanted else "--memory-*"
    )
    extras = (
        config.memory_trace
        or config.memory_preselect
        or config.memory_half
        or config.memory_ctc_weight
    )
    if (wanted or extras) and not model.has_memory:
        raise InputError(
            f"{config.exp_dir}: this model has no word memory, so {named} would do nothing; "
            "train one with --memory 2mem"
        )
    if (wanted or extras) and not uses_decoder(config.method):
        raise InputError(f"--method {config.method} reads no word memory; use --method beam")
    if extras and not wanted:
        raise InputError(
            "--memory-trace, --memory-preselect, --memory-half and --memory-ctc-weight need "
            "--memory"
        )
    if config.memory_lists is not None and (config.memory is not None or config.words):
        raise InputError("--memory-lists gives each utterance its own list; leave out --memory")


def open_words(
    config: DecodeConfig,
    model: AsrModel,
    tokenizer: Tokenizer,
    normalize: Callable[[str], str],
    module: AsrDataModule,
) -> Words:
    """Read the lists of a run.

    Raises:
      InputError: see :func:`check_options`; or a list of which nothing can be used.
    """
    check_options(config, model)
    loader = WordLoader(tokenizer, normalize)
    shared = shared_list(config, loader)
    words = Words(displays=shared.displays, scored=shared.texts)
    if config.score_words is not None:
        scored = loader.load(read_words(config.score_words))
        words.scored = [s.text for s in scored.spellings if s.text]
    if config.memory_lists is not None:
        words.lists = read_biasing_lists(config.memory_lists)
        if not words.lists:
            raise InputError(f"{config.memory_lists}: holds no list")
    if model.has_memory and uses_decoder(config.method):
        words.memory = WordMemory(
            MemoryBank(model.decoder, config.memory_half, config.memory_preselect),
            entry_list(shared),
            by_utterance(words.lists, loader) if words.lists else None,
            history_words(config, loader, module) if config.memory_from_history else None,
            tokenizer,
            config.memory_trace,
        )
    words.name = _name(config, shared)
    return words


def shared_list(config: DecodeConfig, loader: WordLoader) -> WordList:
    """The entries of ``--memory`` and ``--words``."""
    entries: List[WordEntry] = []
    sources = []
    if config.memory is not None:
        entries += read_words(config.memory)
        sources.append(str(config.memory))
    if config.words:
        texts = (text.strip() for text in config.words.split(","))
        entries += [WordEntry(text, place="--words") for text in texts if text]
        sources.append("--words")
    if not sources:
        return WordList()
    words = loader.load_usable(entries, " and ".join(sources))
    for spelling in words.spellings:
        if spelling.problem:
            entry = spelling.entry
            logging.warning("%s: '%s' is left out: %s", entry.place, entry.text, spelling.problem)
    logging.info("word memory: %s", words.summary())
    return words


def entry_list(words: WordList) -> EntryList:
    entries = EntryList()
    for ids, weight in words.weights.items():
        entries.add(ids, weight)
    return entries


def by_utterance(
    lists: Mapping[str, BiasingEntry], loader: WordLoader
) -> Dict[str, EntryList]:
    """The memory list of every utterance; an empty one where nothing of it can be used."""
    known: Dict[str, Optional[Sequence[int]]] = {}

    def ids_of(word: str) -> Optional[Sequence[int]]:
        if word not in known:
            known[word] = next(iter(loader.load([WordEntry(word)]).weights), None)
        return known[word]

    found = {
        utt_id: EntryList(ids for ids in map(ids_of, entry.words) if ids is not None)
        for utt_id, entry in lists.items()
    }
    if not any(map(len, found.values())):
        raise InputError("--memory-lists: no word of any list can be used by this model")
    left_out = sum(ids is None for ids in known.values())
    if left_out:
        logging.warning("--memory-lists: %d words cannot be spelled by the model", left_out)
    return found


def history_words(
    config: DecodeConfig, loader: WordLoader, module: AsrDataModule
) -> HistoryWords:
    """The rule of ``--memory-from-history``, with the counts of the training text."""
    try:
        cuts = module.all_train_cuts
    except InputError as error:
        raise InputError(f"--memory-from-history counts the training text: {error}") from None
    counts = word_counts(loader.normalize(cut.supervisions[0].text or "") for cut in cuts)
    return HistoryWords(
        loader,
        counts,
        config.memory_history_count,
        config.memory_history_confidence,
        config.memory_history_cap,
    )


def _name(config: DecodeConfig, shared: WordList) -> str:
    parts = [f"memory{len(shared.weights)}"] if shared.weights else []
    parts += ["memory-lists"] if config.memory_lists is not None else []
    parts += ["memory-history"] if config.memory_from_history else []
    parts += [f"preselect{config.memory_preselect}"] if config.memory_preselect else []
    parts += ["half"] if config.memory_half else []
    parts += [f"ctc{config.memory_ctc_weight:g}"] if config.memory_ctc_weight else []
    if config.baseline_exp_dir is not None:
        parts.append(f"baseline-{Path(config.baseline_exp_dir).name}")
    return "-".join(parts)


# ---------------------------------------------------------------------------- results


def word_report(utterances: Sequence[Utterance], words: Words) -> Dict[str, Any]:
    """Accuracy of the scored words, B-WER, U-WER and false triggers; empty without such words."""
    if not words.scored and not words.lists:
        return {}
    lists: Dict[str, Collection[str]] = {u.utt_id: words.scored for u in utterances}
    if words.lists:
        lists = {utt_id: entry.rare for utt_id, entry in words.lists.items()}
    phrases = words.scored or sorted({word for rare in lists.values() for word in rare})
    targets = lists if words.lists else None
    accuracy = new_word_accuracy(utterances, phrases, targets)
    rates = biased_scores(utterances, lists)
    return {
        "entries": len(phrases),
        "accuracy": accuracy.accuracy if accuracy.total else None,
        "found": accuracy.found,
        "spoken": accuracy.total,
        "biased_wer": _rate(rates.biased),
        "unbiased_wer": _rate(rates.unbiased),
        "false_triggers": rates.false_triggers,
        "false_triggers_per_1000_words": _finite(rates.false_triggers_per_1000_words),
        "per_entry": {name: counts for name, counts in accuracy.per_phrase.items() if any(counts)},
    }


def _rate(counts: Any) -> Optional[float]:
    return counts.rate if counts.ref_words else None


def _finite(value: float) -> Optional[float]:
    return value if value == value else None


def write_words(
    utterances: Sequence[Utterance], words: Words, folder: Path, test_set: str, suffix: str
) -> None:
    """``words-*.json``, ``memory-trace-*.jsonl`` and ``text-*.txt`` (with display forms), each
    where there is something to say; prints the rates."""
    report = word_report(utterances, words)
    if report:
        write_text(folder / f"words-{test_set}-{suffix}.json", json.dumps(report, indent=2) + "\n")
        print(_report_line(report))
    if words.memory is not None and words.memory.trace:
        traces = words.memory.traces
        lines = [json.dumps({"utt_id": u, "words": traces[u]}, ensure_ascii=False) for u in traces]
        path = folder / f"memory-trace-{test_set}-{suffix}.jsonl"
        write_text(path, "".join(f"{line}\n" for line in lines))
        words.memory.traces = {}
    if words.displays:
        shown = (f"{u.utt_id} {' '.join(show(u.hyp or [], words.displays))}\n" for u in utterances)
        write_text(folder / f"text-{test_set}-{suffix}.txt", "".join(shown))


def _report_line(report: Mapping[str, Any]) -> str:
    def percent(name: str) -> str:
        return "n/a" if report[name] is None else f"{100 * report[name]:.1f} %"

    per_1000 = report["false_triggers_per_1000_words"]
    return (
        f"new words: {report['found']} of {report['spoken']} found ({percent('accuracy')}); "
        f"B-WER {percent('biased_wer')}, U-WER {percent('unbiased_wer')}; "
        f"{report['false_triggers']} false triggers"
        + ("" if per_1000 is None else f" ({per_1000:.1f} per 1,000 words)")
    )
