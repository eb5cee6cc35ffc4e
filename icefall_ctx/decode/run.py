"""From a trained model and test cuts to result files: what ``decode.py`` of a recipe calls."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Tuple

import torch
from lhotse.cut import Cut
from tqdm import tqdm

from icefall_ctx.command_line import one_line_errors
from icefall_ctx.config import DataConfig, DecodeConfig, ModelConfig, load_config, parse_configs
from icefall_ctx.data.batch import Batch
from icefall_ctx.data.conversation import ConversationIndex
from icefall_ctx.data.datamodule import AsrDataModule
from icefall_ctx.decode import lattice_run
from icefall_ctx.decode.beam import BeamOptions
from icefall_ctx.decode.history_source import HistorySource
from icefall_ctx.decode.methods import LATTICE_METHODS, METHODS, uses_lm
from icefall_ctx.decode.output import Decoded, add_missing, collect, write_results
from icefall_ctx.decode.recogniser import Recogniser, RecogniserOptions
from icefall_ctx.decode.session import ConversationSession
from icefall_ctx.decode.word_options import Words, open_words, write_words
from icefall_ctx.errors import InputError
from icefall_ctx.files import check_output
from icefall_ctx.models.asr import AsrModel, with_baseline
from icefall_ctx.text.normalize import get_normalizer
from icefall_ctx.text.tokenizer import Tokenizer
from icefall_ctx.train.checkpoint import load_model


def decode_cuts(
    recogniser: Recogniser,
    batches: Iterable[Optional[Batch]],
    endings: Iterable[Sequence[str]],
    tokenizer: Tokenizer,
    source: HistorySource,
    min_confidence: float = 0.0,
    device: torch.device = torch.device("cpu"),
) -> Decoded:
    """Decode turn-synchronous batches; a session lives as long as its conversation.

    Args:
      batches: None where no utterance of a batch can be used.
      endings: the conversations that end with each batch, whose memory can be let go; also where
        their last utterance was left out of it.
    """
    decoded = Decoded()
    sessions: Dict[str, ConversationSession] = {}
    start = time.perf_counter()
    for batch, ended in zip(batches, endings):
        if batch is not None:
            for conv_id in batch.conv_ids:
                sessions.setdefault(conv_id, ConversationSession(conv_id, min_confidence))
            rows = [sessions[conv_id] for conv_id in batch.conv_ids]
            batch = batch.to(device)
            source.replace_scores(rows)
            results = recogniser.recognise(batch, rows, source.histories(batch, rows))
            collect(decoded, batch, results, tokenizer)
        for conv_id in ended:
            sessions.pop(conv_id, None)
    decoded.seconds = time.perf_counter() - start
    return decoded


def recogniser_options(config: DecodeConfig, data: DataConfig) -> RecogniserOptions:
    beam = BeamOptions(
        beam=config.beam_size,
        ctc_weight=config.ctc_decode_weight,
        lm_scale=config.lm_scale,
        length_bonus=config.length_bonus,
        max_len_ratio=config.max_len_ratio,
        memory_ctc_weight=config.memory_ctc_weight,
    )
    # without history there is none for a first turn either
    first_text = "empty" if config.history == "none" else data.first_text
    return RecogniserOptions(config.method, beam, data.history_speakers, first_text)


def check_method(config: DecodeConfig) -> None:
    """Before anything is loaded: a method that is none, that lacks k2, or that would ignore an
    option."""
    if config.method not in METHODS:
        raise InputError(f"--method {config.method} is none of {', '.join(METHODS)}")
    lattice_run.check_options(config)


def load_lm(config: DecodeConfig, tokenizer: Tokenizer) -> Any:
    """The language model of ``--lm-exp-dir``, refused if its vocabulary is another one, or if
    nothing would use it."""
    if config.lm_exp_dir is None:
        if config.lm_scale > 0 or config.carry_lm_state:
            raise InputError("--lm-scale and --carry-lm-state need --lm-exp-dir")
        if config.method == "lstm-lm":
            raise InputError("--method lstm-lm needs --lm-exp-dir; local/train_lm.py trains one")
        return None
    if not uses_lm(config.method):
        raise InputError(
            f"--method {config.method} uses no LSTM language model; leave out --lm-exp-dir"
        )
    if config.method == "lstm-lm" and config.lm_scale > 0:
        raise InputError("--lm-scale is of beam search; use --scales lstm=NUMBER or --tune-cuts")
    if config.method == "beam" and config.lm_scale == 0:
        raise InputError("--lm-exp-dir: the weight --lm-scale is 0; set it, 0.3 for example")
    from icefall_ctx.models.lm import load_lm as read

    return read(Path(config.lm_exp_dir) / "best.pt", tokenizer.fingerprint).eval()


def check_history(config: DecodeConfig, recogniser: Recogniser) -> str:
    """The history that is given to the model; refuses a choice that would change nothing."""
    if recogniser.reads_text:
        return config.history
    hears = recogniser.model.config.attention == "context"
    if config.history == "ref" or (config.history == "shuffled" and not hears):
        raise InputError(
            f"--history {config.history}: this model and --method {config.method} read no text "
            "of earlier turns; leave the option out"
        )
    if config.history_min_confidence > 0 and not config.carry_lm_state:
        raise InputError("--history-min-confidence: nothing here reads hypotheses of earlier turns")
    return config.history if hears else "none"


def result_suffix(config: DecodeConfig, history: str, memory: str = "") -> str:
    parts = [config.method if config.method != "beam" else f"beam{config.beam_size}"]
    if config.method in LATTICE_METHODS:
        parts += lattice_run.suffix_parts(config)
    if history != "none":
        parts.append(f"history-{history}")
    if config.lm_exp_dir is not None:
        parts += [f"lm{config.lm_scale:g}"] if config.method == "beam" else []
        parts += ["carried"] if config.carry_lm_state else []
    if memory:
        parts.append(memory)
    return "-".join(parts + ([config.suffix] if config.suffix else []))


def open_model(config: DecodeConfig) -> Tuple[AsrModel, Tokenizer, ModelConfig]:
    """The model of ``--exp-dir``, with the baseline of ``--baseline-exp-dir`` where it is given;
    the settings are those of the baseline then."""
    model, tokenizer, model_config = load_model(config.exp_dir, config.epoch, config.avg)
    if config.baseline_exp_dir is None:
        return model, tokenizer, model_config
    baseline, _, baseline_config = load_model(config.baseline_exp_dir, 0, config.avg)
    return with_baseline(model, baseline), tokenizer, baseline_config


@dataclass
class Experiment:
    """A trained model with all that decoding needs, as one set of options opens it.

    Attributes:
      data: settings it was trained with; ``--manifest-dir`` replaced where it was given.
      module: loads cuts and features for it.
      normalize: the rules that its transcripts went through.
      words: the word lists of the run.
    """

    config: DecodeConfig
    recogniser: Recogniser
    tokenizer: Tokenizer
    data: DataConfig
    module: AsrDataModule
    normalize: Any
    device: torch.device
    words: Words = field(default_factory=Words)

    @classmethod
    def open(cls, config: DecodeConfig) -> "Experiment":
        check_method(config)
        if config.num_threads:
            torch.set_num_threads(config.num_threads)
        model, tokenizer, model_config = open_model(config)
        data = load_config(Path(config.exp_dir) / "config.yaml", DataConfig)
        if config.manifest_dir is not None:
            data = replace(data, manifest_dir=config.manifest_dir)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        lm = load_lm(config, tokenizer)
        module = AsrDataModule(data, model_config, tokenizer, config.seed)
        normalize = get_normalizer(data.normalizer)
        options = recogniser_options(config, data)
        words = open_words(config, model.to(device), tokenizer, normalize, module)
        lm = lm.to(device) if lm is not None else None
        lattice = lattice_run.open_search(config, data, tokenizer, model.decoder, lm)
        recogniser = Recogniser(model, options, lm, config.carry_lm_state, words.memory, lattice)
        return cls(config, recogniser, tokenizer, data, module, normalize, device, words)

    def decode(
        self, cuts: Sequence[Cut], history: str, progress: Callable[[Any], Any] = iter
    ) -> Decoded:
        """Decode linked cuts of whole conversations, missing output counted.

        Args:
          history: what :func:`check_history` allows.
          progress: wraps the batches, as tqdm does.
        """
        index = _index(self.config, cuts) if history == "ref" else None
        source = HistorySource(
            history, self.recogniser, index, self.tokenizer, self.normalize, self.config.seed
        )
        loader = self.module.test_dataloader(cuts, self.config.batch_size)
        decoded = decode_cuts(
            self.recogniser,
            progress(loader),
            loader.sampler.endings(),
            self.tokenizer,
            source,
            self.config.history_min_confidence,
            self.device,
        )
        add_missing(decoded, cuts, self.normalize)
        return decoded


def progress_bar(name: str) -> Callable[[Any], Any]:
    return lambda batches: tqdm(batches, desc=name, disable=not sys.stderr.isatty())


def run(config: DecodeConfig) -> Dict[str, float]:
    """Decode every test set, after tuning the scales of a lattice method where that is asked for.

    Returns:
      the error rate of each test set.
    """
    names = [name for name in config.test_cuts.split(",") if name]
    if not names:
        raise InputError("no test set; name cuts with --test-cuts")
    if "/" in config.suffix:
        raise InputError(f"--suffix {config.suffix}: is a part of file names; leave out the /")
    experiment = Experiment.open(config)
    history = check_history(config, experiment.recogniser)
    if config.index and history != "ref":
        raise InputError(f"--index {config.index}: only --history ref reads it; leave it out")
    suffix = result_suffix(config, history, experiment.words.name)
    folder = Path(config.exp_dir) / config.method
    folder = folder if config.output_dir is None else Path(config.output_dir)
    check_output(folder / f"errs-{suffix}.txt")
    if config.tune_cuts:
        tune(experiment, history, folder / f"scales-{suffix}.json")
    return {name: decode_test_set(experiment, name, history, folder, suffix) for name in names}


def tune(experiment: Experiment, history: str, path: Path) -> None:
    """Decode ``--tune-cuts`` and let its references, never those of a test set, choose scales."""
    config, search = experiment.config, experiment.recogniser.lattice
    dev_set = test_set_name(config.tune_cuts)
    cuts = experiment.module.read_cuts(config.tune_cuts)
    search.start(keep_nbest=True)
    decoded = experiment.decode(cuts, history, progress_bar(dev_set))
    found = lattice_run.tune(search, config, decoded.utterances)
    lattice_run.use_tuned(search, found, path, dev_set)
    if experiment.words.memory is not None:
        experiment.words.memory.traces = {}  # those of the test set are wanted


def decode_test_set(
    experiment: Experiment, name: str, history: str, folder: Path, suffix: str
) -> float:
    """Decode one test set and write its files; returns its error rate."""
    config, search = experiment.config, experiment.recogniser.lattice
    test_set = test_set_name(name)
    stem = f"{test_set}-{suffix}"
    cuts = experiment.module.read_cuts(name)
    if search is not None:
        search.start(folder / f"lattices-{stem}" if config.save_lattices else None)
    decoded = experiment.decode(cuts, history, progress_bar(test_set))
    lattices = None
    if search is not None:
        lattice_run.write_word_times(search, cuts, folder / f"{stem}.ctm")
        lattices = lattice_run.details(search, config)
    rate = write_results(decoded, folder, test_set, suffix, config, lattices)
    write_words(decoded.utterances, experiment.words, folder, test_set, suffix)
    return rate


def test_set_name(file_name: str) -> str:
    """``test`` of ``digits_dialog_cuts_test.jsonl.gz``."""
    return Path(file_name).name.split(".")[0].split("_cuts_")[-1]


def _index(config: DecodeConfig, cuts: Sequence[Cut]) -> ConversationIndex:
    if config.index:
        return ConversationIndex.from_manifests([config.index])
    return ConversationIndex.from_supervisions(cuts)


def main(
    defaults: Optional[Dict[str, Dict[str, Any]]] = None, argv: Optional[Sequence[str]] = None
) -> None:
    """The command line of a recipe's ``decode.py``; ends with status 2 and one line for what a
    user can put right."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    description = f"Decode test sets with a trained model.  Methods: {', '.join(METHODS)}."
    with one_line_errors(Path(sys.argv[0]).name):
        arguments = None if argv is None else list(argv)
        (config,) = parse_configs((DecodeConfig,), arguments, description, defaults)
        run(config)
