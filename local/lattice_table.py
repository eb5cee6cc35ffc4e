#!/usr/bin/env python3
"""Error rate, speed and memory of every decoding method on one test set, as a Markdown table.

Run it in the folder of a recipe, after prepare.sh (stages 5 and 6 make the graphs):

    python ../../../local/lattice_table.py exp/small exp/small_context --lm-exp-dir exp/lm

Each row is a process of its own, so that its peak memory is its own (tuning included).  Scales,
and the weight of the language model in beam search, are chosen on the dev cuts.  Rows that are
done are not done again while options, models and graphs are the same: a table goes on.  Options
after ``--`` go to every decode.py:

    python ../../../local/lattice_table.py exp/small -- --avg 3 --num-threads 1
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from icefall_ctx.command_line import OneLineParser
from icefall_ctx.config import DataConfig, ModelConfig, load_config
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.decode.lattice_run import NEEDS_G, scales_text, tuned_names
from icefall_ctx.decode.methods import CTC_METHODS, LATTICE_METHODS, METHODS, uses_decoder
from icefall_ctx.decode.run import test_set_name
from icefall_ctx.errors import InputError
from icefall_ctx.files import write_text

HEADER = ("model", "method", "graph and LM", "history", "WER %", "95 % interval", "RTF",
          "peak MB", "scales (tuned on dev)", "fell back")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One decoding.

    Attributes:
      graph: of a lattice method, ``HLG`` or ``ctc``; else empty.
      history: ``hyp`` or ``none``; empty where the model reads none.
      lstm: empty, or how an LSTM LM is used: ``LSTM`` or ``carried``, with its state carried.
    """

    method: str
    graph: str = ""
    history: str = ""
    lstm: str = ""

    @property
    def name(self) -> str:
        return "_".join(filter(None, (self.method, self.graph, self.history, self.lstm)))

    @property
    def models(self) -> str:
        """The graph and the language models, as the table says it."""
        graph = {"": "", "ctc": "tokens", "HLG": "HLG"}[self.graph]
        lstm = {"": "", "LSTM": "LSTM LM", "carried": "LSTM LM carried"}[self.lstm]
        return " + ".join(filter(None, (graph, lstm))) or "none"

    def flags(self, lm_exp_dir: Optional[Path]) -> List[str]:
        flags = ["--method", self.method]
        flags += ["--graph", self.graph] if self.graph else []
        flags += ["--history", self.history] if self.history else []
        flags += ["--lm-exp-dir", str(lm_exp_dir)] if self.lstm else []
        return flags + (["--carry-lm-state", "yes"] if self.lstm == "carried" else [])


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("exp_dirs", nargs="+", type=Path, metavar="EXP_DIR",
                        help="trained models, for example one without and one with context")
    parser.add_argument("--decode", default="./decode.py", help="the recipe's script")
    parser.add_argument("--test-cuts", help="default: *_cuts_test.jsonl.gz of the model's corpus")
    parser.add_argument("--dev-cuts", help="default: the validation cuts of training")
    parser.add_argument("--lm-exp-dir", type=Path, metavar="DIR", help="LSTM LM; without: no rows")
    parser.add_argument("--lm-scales", default="0.1,0.2,0.4",
                        help="weights of the LSTM LM in beam search to try on dev")
    parser.add_argument("--methods", default="", help="only these, separated by commas")
    parser.add_argument("--output-dir", type=Path, default=Path("exp/lattice_table"))
    given = sys.argv[1:] if argv is None else list(argv)
    cut = given.index("--") if "--" in given else len(given)
    args = parser.parse_args(given[:cut])
    args.options = given[cut + 1 :]
    for method in filter(None, args.methods.split(",")):
        if method not in METHODS:
            raise InputError(f"--methods: {method} is none of {', '.join(METHODS)}")
    return args


def rows(reads_history: bool, has_lm: bool, only: Sequence[str] = ()) -> Iterator[Row]:
    """Every method with and without graph, language model and history, where it has them."""
    for method in (*CTC_METHODS, "beam", *LATTICE_METHODS):
        if only and method not in only:
            continue
        graphs = ("",) if method not in LATTICE_METHODS else ("ctc", "HLG")
        histories = ("none", "hyp") if reads_history and uses_decoder(method) else ("",)
        lms = {"lstm-lm": ("LSTM", "carried"), "beam": ("", "LSTM", "carried")}.get(method, ("",))
        for graph in graphs:
            if graph == "ctc" and method in NEEDS_G:
                continue
            for history in histories:
                yield from (Row(method, graph, history, lm) for lm in lms if has_lm or not lm)


class Table:
    """Decodes the rows of one model.

    Args:
      exp_dir: the model.
      test_cuts, dev_cuts: file names, as ``--test-cuts`` takes them.
    """

    def __init__(self, args: argparse.Namespace, exp_dir: Path) -> None:
        self.args, self.exp_dir = args, exp_dir
        data = load_config(exp_dir / "config.yaml", DataConfig)
        self.model = load_config(exp_dir / "config.yaml", ModelConfig)
        self.lang_dir = data.lang_dir
        self.dev_cuts = args.dev_cuts or data.valid_cuts
        self.test_cuts = args.test_cuts or self.dev_cuts.replace("_cuts_dev", "_cuts_test")
        if self.test_cuts == self.dev_cuts:
            raise InputError(f"{self.dev_cuts} is what scales are tuned on; name --test-cuts")

    @property
    def reads_history(self) -> bool:
        return self.model.text_context != "none" or self.model.attention == "context"

    def decode(self, row: Row, flags: Sequence[str], cuts: str, name: str) -> Dict[str, Any]:
        """The report of one decoding, of an earlier run where there is one."""
        folder = self.args.output_dir / self.exp_dir.name / name
        command = [sys.executable, self.args.decode, "--exp-dir", str(self.exp_dir)]
        command += ["--output-dir", str(folder), "--test-cuts", cuts]
        command += [*row.flags(self.args.lm_exp_dir), *flags, *self.args.options]
        mark, made_of = folder / "made-of.txt", self._made_of(command)
        if not mark.is_file() or mark.read_text(encoding="utf-8") != made_of:
            logging.info("%s", " ".join(command[1:]))
            shutil.rmtree(folder, ignore_errors=True)
            done = subprocess.run(command, stdout=subprocess.DEVNULL)
            if done.returncode:
                raise InputError(f"{' '.join(command[1:])} ended with status {done.returncode}")
            write_text(mark, made_of)
        [path] = folder.glob(f"report-{test_set_name(cuts)}-*.json")
        return json.loads(path.read_text(encoding="utf-8"))

    def _made_of(self, command: Sequence[str]) -> str:
        """Changes with the options and with every model and graph a decoding may read."""
        folders = filter(None, (self.exp_dir, self.args.lm_exp_dir, self.lang_dir))
        models = sorted(path for folder in folders for path in Path(folder).glob("*.pt"))
        states = (f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in models)
        return "\n".join([" ".join(command), *states]) + "\n"

    def row(self, row: Row) -> Tuple[str, ...]:
        """The cells of one row, tuned on dev."""
        flags: List[str] = []
        scales = ""
        if row.method == "beam" and row.lstm:
            weight = self._lm_scale(row)
            flags, scales = ["--lm-scale", weight], f"lstm={weight}"
        elif tuned_names(row.method, row.graph):
            flags = ["--tune-cuts", self.dev_cuts]
        report = self.decode(row, flags, self.test_cuts, row.name)
        return cells(self.exp_dir.name, row, report, scales)

    def _lm_scale(self, row: Row) -> str:
        """The weight of the LSTM LM in beam search with the lowest error rate on dev."""
        rates = {}
        for weight in self.args.lm_scales.split(","):
            name = f"{row.name}_dev_{weight}"
            report = self.decode(row, ["--lm-scale", weight], self.dev_cuts, name)
            rates[weight] = main_scores(report)["total"]["rate"]
        return min(rates, key=rates.__getitem__)


def main_scores(report: Dict[str, Any]) -> Dict[str, Any]:
    """Those under the recipe's rules, where it has any."""
    return report.get("normalized", report["raw"])


def cells(model: str, row: Row, report: Dict[str, Any], scales: str = "") -> Tuple[str, ...]:
    scores = main_scores(report)
    bounds = scores.get("interval", {}).get("bounds", [])
    low_high = ", ".join("n/a" if b is None else f"{100 * b:.1f}" for b in bounds)
    fallbacks = report.get("fallbacks", {})
    return (
        model,
        row.method,
        row.models,
        row.history or "-",
        f"{100 * scores['total']['rate']:.2f}",
        f"[{low_high}]",
        f"{report['real_time_factor']:.3f}",
        f"{report['peak_memory_mb']:.0f}",
        scales or scales_text(report.get("scales", {})) or "-",
        ", ".join(f"{len(ids)} {kind}" for kind, ids in fallbacks.items()) or "-",
    )


def markdown(table: Sequence[Sequence[str]]) -> str:
    lines = [HEADER, ["---"] * len(HEADER), *table]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    found = []
    for exp_dir in args.exp_dirs:
        table = Table(args, exp_dir)
        only = [name for name in args.methods.split(",") if name]
        for row in rows(table.reads_history, args.lm_exp_dir is not None, only):
            found.append(table.row(row))
    print(markdown(found))


if __name__ == "__main__":
    run_stage(main)
