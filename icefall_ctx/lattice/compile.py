"""Compiling a folder of graphs: words + ARPA files in, L, G and HLG out, checked."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Optional, Tuple

from icefall_ctx.errors import InputError, Pathlike
from icefall_ctx.files import write_text
from icefall_ctx.lattice.check import self_check
from icefall_ctx.lattice.fsa_files import load_fsa, read_openfst, save_fsa
from icefall_ctx.lattice.graphs import (
    check_word_labels,
    compile_hlg,
    lexicon_fst,
    rescoring_g,
)
from icefall_ctx.lattice.k2_import import k2
from icefall_ctx.lattice.lexicon import BACKOFF, Lexicon
from icefall_ctx.text.ngram import check_words, read_arpa


def compile_g(arpa: Pathlike, lexicon: Lexicon, lang_dir: Pathlike, output: Pathlike) -> None:
    """ARPA -> G as OpenFst text with the ids of ``words.txt``, by kaldilm.

    The ARPA file is read and checked here first: kaldilm ends the whole process over a bad line
    and drops n-grams of unknown words silently.  Zero weights, which OpenFst leaves out, are
    written, so that a missing one means a damaged file.
    """
    model = read_arpa(arpa)
    check_words(model, arpa, lexicon.words)
    try:
        kaldilm = importlib.import_module("kaldilm")
    except ImportError as error:
        raise InputError("G needs kaldilm: pip install 'icefall_ctx[lm]'") from error
    text = kaldilm.arpa2fst(
        str(arpa),
        disambig_symbol=BACKOFF,
        read_symbol_table=str(Path(lang_dir) / "words.txt"),
        max_arpa_warnings=0,
    )
    lines = [line.split() for line in text.splitlines() if line.strip()]
    full = [fields + ["0"] if len(fields) in (1, 4) else fields for fields in lines]
    write_text(output, "".join(" ".join(fields) + "\n" for fields in full))


def compile_graphs(
    lang_dir: Pathlike,
    lexicon: Lexicon,
    arpa: Pathlike,
    rescoring_arpa: Optional[Pathlike] = None,
    topology: str = "auto",
) -> None:
    """Write ``L.pt``, ``L_disambig.pt``, ``G_N_gram.fst.txt``, ``HLG.pt`` and ``G_N_gram.pt``.

    Args:
      arpa: the n-gram model inside HLG, usually 3-gram.
      rescoring_arpa: the larger one for rescoring, usually 4-gram.
    """
    lang_dir = Path(lang_dir)
    save_fsa(lang_dir / "L.pt", lexicon_fst(lexicon, disambiguate=False))
    save_fsa(lang_dir / "L_disambig.pt", lexicon_fst(lexicon, disambiguate=True))
    hlg = compile_hlg(lexicon, _g(arpa, lexicon, lang_dir)[0], topology)
    self_check(hlg, lexicon)
    save_fsa(lang_dir / "HLG.pt", hlg)
    if rescoring_arpa is not None:
        g, order = _g(rescoring_arpa, lexicon, lang_dir)
        save_fsa(lang_dir / f"G_{order}_gram.pt", rescoring_g(g, lexicon))


def _g(arpa: Pathlike, lexicon: Lexicon, lang_dir: Path) -> Tuple[k2.Fsa, int]:
    order = read_arpa(arpa).order
    output = lang_dir / f"G_{order}_gram.fst.txt"
    compile_g(arpa, lexicon, lang_dir, output)
    return load_g(output, lexicon), order


def load_g(path: Pathlike, lexicon: Lexicon) -> k2.Fsa:
    """G out of OpenFst text, or out of a ``.pt`` file; one of another word list is refused."""
    if Path(path).suffix == ".pt":
        g = load_fsa(path)
    else:
        g = read_openfst(path)
        g.word_fingerprint = lexicon.word_fingerprint
    check_word_labels(g, lexicon)
    return g
