"""Lattice methods of ``decode.py``: graphs and scales from options, tuning on dev, CTM, summary.

Everything of :mod:`icefall_ctx.lattice` is imported where it is used: the other methods work
without k2.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from lhotse.cut import Cut

from icefall_ctx.config import DataConfig, DecodeConfig
from icefall_ctx.data.history import link_of
from icefall_ctx.decode.lattice_search import LatticeSearch
from icefall_ctx.decode.methods import LATTICE_METHODS
from icefall_ctx.errors import InputError
from icefall_ctx.formats.ctm import write_ctm
from icefall_ctx.score.report import normalizer_rules
from icefall_ctx.score.units import UNITS
from icefall_ctx.score.wer import Utterance
from icefall_ctx.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from icefall_ctx.lattice.scales import ScaleSearch

DEFAULT_SCALES = {"hlg": 1.0, "lm": 1.0, "attention": 1.0, "lstm": 0.5}
# method -> the scales that rank its hypotheses; "hlg", of G in HLG, is there for all
SCALES: Dict[str, Tuple[str, ...]] = {
    "1best": ("hlg",),
    "nbest": ("hlg",),
    "nbest-oracle": ("hlg",),
    "nbest-rescoring": ("lm",),
    "whole-lattice-rescoring": ("lm",),
    "attention-decoder": ("lm", "attention"),
    "lstm-lm": ("lm", "attention", "lstm"),
}
NEEDS_G = ("nbest-rescoring", "whole-lattice-rescoring")
OPTIONS = (
    "graph", "lang_dir", "rescoring_g", "scales", "tune_cuts", "save_lattices", "search_beam",
    "output_beam", "lattice_depth", "num_paths", "nbest_scale",
)  # fmt: skip


def check_options(config: DecodeConfig) -> None:
    """Refuse options that nothing would use, and lattice methods without k2.

    Raises:
      InputError: one line that says what to leave out or how to get k2.
    """
    if config.method not in LATTICE_METHODS:
        defaults = {f.name: f.default for f in dataclasses.fields(config)}
        for name in OPTIONS:
            if getattr(config, name) != defaults[name]:
                raise InputError(
                    f"--{name.replace('_', '-')} is of lattice methods; leave it out, or take a "
                    f"--method of {', '.join(LATTICE_METHODS)}"
                )
        return
    from icefall_ctx.lattice.k2_import import require_k2

    require_k2()
    if config.graph == "ctc" and (config.method in NEEDS_G or config.rescoring_g is not None):
        raise InputError(f"--method {config.method} --graph ctc: tokens have no n-gram; use HLG")
    if config.tune_cuts and config.scales:
        raise InputError("--tune-cuts finds the scales; leave out --scales")
    if config.tune_cuts and config.tune_cuts in config.test_cuts.split(","):
        raise InputError(f"--tune-cuts {config.tune_cuts} is a test set; tune on dev cuts")
    if config.tune_cuts and not tuned_names(config.method, config.graph):
        raise InputError(
            f"--method {config.method} --graph ctc has one score only; leave out --tune-cuts"
        )


def tuned_names(method: str, graph: str) -> Tuple[str, ...]:
    """The scales that dev can decide; none for a method that is not over lattices."""
    return tuple(n for n in SCALES.get(method, ()) if _has_meaning(n, graph))


def _known(config: DecodeConfig) -> List[str]:
    names = dict.fromkeys(("hlg", *SCALES[config.method]))
    return [n for n in names if _has_meaning(n, config.graph)]


def _has_meaning(scale: str, graph: str) -> bool:
    """Tokens alone have no n-gram."""
    return graph == "HLG" or scale not in ("hlg", "lm")


# ---------------------------------------------------------------------------- opening


def open_search(
    config: DecodeConfig, data: DataConfig, tokenizer: Tokenizer, decoder: Any, lm: Any
) -> Optional[LatticeSearch]:
    """The search of a lattice method; None for the others.

    Args:
      decoder: the attention decoder of the model.
      lm: the LSTM language model of ``--lm-exp-dir``, or None.

    Raises:
      InputError: a graph that is missing or of another vocabulary, or scales that are none.
    """
    if config.method not in LATTICE_METHODS:
        return None
    from icefall_ctx.lattice.decode import LatticeDecoder, LatticeOptions
    from icefall_ctx.lattice.intersect import Beams

    lang_dir = Path(data.lang_dir if config.lang_dir is None else config.lang_dir)
    beams = Beams(config.search_beam, config.output_beam)
    nbest_scale = config.nbest_scale or (1.0 if config.graph == "ctc" else 0.5)
    options = LatticeOptions(
        beams, config.num_paths, nbest_scale, depth=config.lattice_depth
    )
    graph, lexicon = _graph(config, lang_dir, tokenizer)
    g = None if lexicon is None else _rescoring_g(config, lang_dir, lexicon)
    lattices = LatticeDecoder(
        graph, tokenizer, lexicon, g=g, decoder=decoder, lm=lm, options=options
    )
    scales, source = _scales(config)
    return LatticeSearch(lattices, config.method, scales, source)


def _graph(config: DecodeConfig, lang_dir: Path, tokenizer: Tokenizer) -> Tuple[Any, Any]:
    """The decoding graph and its lexicon; no lexicon for tokens alone."""
    from icefall_ctx.lattice.fsa_files import load_fsa
    from icefall_ctx.lattice.graphs import token_graph
    from icefall_ctx.lattice.lexicon import load_lexicon

    if config.graph == "ctc":
        fingerprint = tokenizer.fingerprint
        return token_graph(tokenizer.vocab_size, fingerprint=fingerprint), None
    for name in ("HLG.pt", "lexicon.txt"):
        if not (lang_dir / name).is_file():
            raise InputError(
                f"{lang_dir / name}: no such file; run ./prepare.sh --stage 5 --stop-stage 6 in "
                "the recipe's folder, or decode with --graph ctc"
            )
    return load_fsa(lang_dir / "HLG.pt"), load_lexicon(lang_dir, tokenizer)


def find_g(config: DecodeConfig, lang_dir: Path) -> Optional[Path]:
    """``--rescoring-g``, else the G of the highest order that was compiled for rescoring, else,
    where the method cannot do without, the one of the highest order.

    Raises:
      InputError: the method needs a G and there is none.
    """
    if config.rescoring_g is not None or config.method not in SCALES:
        return config.rescoring_g
    if "lm" not in SCALES[config.method]:
        return None
    patterns = ("G_*_gram.pt", "G_*_gram.fst.txt") if config.method in NEEDS_G else ("G_*_gram.pt",)
    for pattern in patterns:
        found = sorted(lang_dir.glob(pattern), key=_order)
        if found:
            return found[-1]
    if config.method in NEEDS_G:
        raise InputError(
            f"{lang_dir}: no G_N_gram.pt; run ./prepare.sh --stage 5 --stop-stage 6 in the "
            "recipe's folder, or name one with --rescoring-g"
        )
    return None


def _order(path: Path) -> int:
    return int((re.findall(r"\d+", path.name) or ["0"])[0])


def _rescoring_g(config: DecodeConfig, lang_dir: Path, lexicon: Any) -> Any:
    from icefall_ctx.lattice.compile import load_g
    from icefall_ctx.lattice.graphs import rescoring_g

    path = find_g(config, lang_dir)
    if path is None:
        return None
    logging.info("second pass with %s", path)
    g = load_g(path, lexicon)
    return g if path.suffix == ".pt" else rescoring_g(g, lexicon)


# ---------------------------------------------------------------------------- scales


def _scales(config: DecodeConfig) -> Tuple[Dict[str, float], str]:
    known = _known(config)
    scales = {name: DEFAULT_SCALES[name] for name in known}
    if not config.scales:
        return scales, "defaults"
    given, source = _read_scales(config)
    for name in given:
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise InputError(
                f"--scales: --method {config.method} --graph {config.graph} has no '{name}'; "
                f"it has {allowed}"
            )
    return {**scales, **given}, source


def _read_scales(config: DecodeConfig) -> Tuple[Dict[str, float], str]:
    if config.scales.endswith(".json"):
        from icefall_ctx.lattice.scales import load_scales

        scales = load_scales(config.scales, config.test_cuts)
        scales.pop("acoustic", None)  # always 1
        return scales, config.scales
    scales = {}
    for part in config.scales.split(","):
        name, equals, value = part.partition("=")
        try:
            scales[name.strip()] = float(value)
        except ValueError:
            raise InputError(
                f"--scales: '{part}' is not NAME=NUMBER, lm=0.5 for example, nor a .json file"
            ) from None
    return scales, "given"


def scales_text(scales: Mapping[str, float]) -> str:
    return ",".join(f"{name}={value:g}" for name, value in scales.items())


def tune(search: LatticeSearch, config: DecodeConfig, dev: Sequence[Utterance]) -> ScaleSearch:
    """Scales with the fewest errors over the n-best lists that decoding dev has left, in the unit
    and under the rules that the error rate is reported in.

    Args:
      search: after decoding with ``keep_nbest``.
      dev: with references.
    """
    from icefall_ctx.lattice.decode import word_errors
    from icefall_ctx.lattice.scales import DEFAULT_GRID, tune_scales

    names = tuned_names(config.method, config.graph)
    split, rules = UNITS[config.unit], normalizer_rules(config.rules)
    nbests, errors = [], []
    for utterance in dev:
        if utterance.utt_id in search.found:
            reference = " ".join(split(rules.ref(" ".join(utterance.ref))))
            nbest = search.found[utterance.utt_id].hypotheses
            texts = (" ".join(split(rules.hyp(search.decoder.text(h)))) for h in nbest)
            nbests.append(nbest)
            errors.append([word_errors(reference, text) for text in texts])
    # in the first pass the n-gram score is that of HLG
    found = tune_scales(nbests, errors, {_score_of(name): DEFAULT_GRID for name in names})
    return found._replace(scales={name: found.scales[_score_of(name)] for name in names})


def _score_of(scale: str) -> str:
    return "lm" if scale == "hlg" else scale


def use_tuned(search: LatticeSearch, found: ScaleSearch, path: Path, dev_set: str) -> None:
    """Rank by the scales found, and write them."""
    from icefall_ctx.lattice.scales import save_scales

    search.use({**search.scales, **found.scales}, f"tuned on {dev_set}")
    save_scales(path, found, dev_set)
    logging.info(
        "scales tuned on %s: %s, %d errors in its n-best lists; written to %s",
        dev_set, scales_text(search.scales), found.errors, path,
    )  # fmt: skip


# ---------------------------------------------------------------------------- results


def suffix_parts(config: DecodeConfig) -> List[str]:
    """What names the result files beside the method."""
    parts = [config.graph]
    if config.tune_cuts:
        parts.append("tuned")
    elif config.scales.endswith(".json"):
        parts.append(Path(config.scales).stem)
    elif config.scales:
        parts.append(config.scales.replace("=", "").replace(",", "-").replace(" ", ""))
    return parts


def details(search: LatticeSearch, config: DecodeConfig) -> Dict[str, Any]:
    """For the report: graph, scales and where they come from, who fell back."""
    fallbacks: Dict[str, List[str]] = defaultdict(list)
    for utt_id, result in search.found.items():
        if result.fallback:
            fallbacks[result.fallback].append(utt_id)
    return {
        "graph": config.graph,
        "scales": search.scales,
        "scales_from": search.source,
        "fallbacks": dict(fallbacks),
    }


def details_text(values: Mapping[str, Any]) -> str:
    """Two lines for the summary."""
    fallbacks = values["fallbacks"]
    named = "; ".join(f"{len(ids)} {kind} ({_some(ids)})" for kind, ids in fallbacks.items())
    scales = scales_text(values["scales"]) or "none"
    return (
        f"graph {values['graph']}, scales {scales} ({values['scales_from']})\n"
        f"lattice fallbacks: {named or 'none'}\n"
    )


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def write_word_times(search: LatticeSearch, cuts: Sequence[Cut], path: Path) -> None:
    """CTM on the clocks of the recordings.  Sides A and B name channels as NIST's files do."""
    from icefall_ctx.lattice.words import ctm_words

    words = []
    for cut in cuts:
        result = search.found.get(link_of(cut, "utt_id"))
        if result is not None:
            sup = cut.supervisions[0]
            side = (sup.custom or {}).get("side")
            channel = sup.channel[0] if isinstance(sup.channel, list) else sup.channel
            channel = side if side in ("A", "B") else str(channel)
            words += ctm_words(result.words, sup.recording_id, channel, cut.start + sup.start)
    write_ctm(path, words)
