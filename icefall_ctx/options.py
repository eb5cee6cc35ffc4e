"""Every option of an experiment: its default, its help text, the values it may have.

:mod:`icefall_ctx.config` makes presets, command-line flags and ``config.yaml`` of them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Sequence

from icefall_ctx.errors import InputError

INF = float("inf")


def option(
    default: Any,
    help: str,
    choices: Optional[Sequence[str]] = None,
    low: float = -INF,
    high: float = INF,
) -> Any:
    """A dataclass field that is also a command-line flag.

    Args:
      low, high: the numbers allowed, both ends included.
    """
    return field(
        default=default, metadata={"help": help, "choices": choices, "low": low, "high": high}
    )


def check_ranges(config: Any) -> None:
    """Refuse numbers outside of what their options allow; NaN is outside of everything.

    Raises:
      InputError: naming option, value and range.
    """
    for f in dataclasses.fields(config):
        value, low, high = getattr(config, f.name), f.metadata["low"], f.metadata["high"]
        if isinstance(value, (int, float)) and not low <= value <= high:
            allowed = f"at least {low:g}" if high == INF else f"between {low:g} and {high:g}"
            raise InputError(f"--{f.name.replace('_', '-')} {value} must be {allowed}")


@dataclass(frozen=True)
class ModelConfig:
    """What is built.  The defaults are the ``paper`` preset (12/6 layers, d 256, ff 2048, H 4)."""

    feature_dim: int = option(83, "features a frame, without speaker features", low=7)
    vocab_size: int = option(0, "tokens; set from the tokenizer", low=0)
    vocab_fingerprint: str = option("", "the tokenizer's fingerprint; set from the tokenizer")

    encoder: str = option("transformer", "encoder type", ("transformer", "conformer", "lstm"))
    encoder_layers: int = option(12, "encoder layers", low=1)
    decoder: str = option("transformer", "decoder type", ("transformer", "lstm"))
    decoder_layers: int = option(6, "decoder layers", low=1)
    dim: int = option(256, "model dimension d", low=1)
    ff_dim: int = option(2048, "feed-forward dimension", low=1)
    heads: int = option(4, "attention heads H", low=1)
    dropout: float = option(0.1, "dropout probability", low=0, high=0.99)
    norm_first: bool = option(False, "Transformer: layer norm before each block, not after it")
    conv_kernel: int = option(15, "Conformer: kernel of the depthwise convolution (odd)", low=1)
    subsampling_channels: int = option(0, "channels of the two convolutions; 0 means d", low=0)
    subsampling_reduction: str = option(
        "x4", "frame rate after the convolutions", ("x4",)
    )

    attention: str = option(
        "plain",
        "encoder attention: plain, residual (ResMHA, A1) or context (CtxResMHA, A2)",
        ("plain", "residual", "context"),
    )
    ctx_alpha: float = option(
        0.1, "weight of the previous utterance's scores (A2)", low=0, high=1
    )
    ctx_depth: int = option(
        2, "previous utterances run through the encoder in training (A2)", low=1
    )
    ctx_align: str = option(
        "crop", "fit the previous scores by cropping or resizing", ("crop", "interp")
    )
    ctx_mix: str = option("add", "R + alpha C, or (1 - alpha) R + alpha C", ("add", "lerp"))

    text_context: str = option(
        "none",
        "what the decoder reads of earlier turns: conditional (A3) or history attention (A3b)",
        ("none", "conditional", "attention"),
    )
    history_sentences: int = option(2, "earlier turns given to the decoder, n", low=1, high=64)
    history_tokens: int = option(100, "and at most so many tokens of them, newest kept", low=1)
    history_pe: bool = option(False, "conditional: add positions to the history's embeddings")
    history_layers: int = option(1, "history attention: layers of the history encoder", low=1)

    speaker_features: str = option("none", "concatenated to every frame", ("none", "ivector"))
    speaker_dim: int = option(100, "dimension of the speaker features", low=1)
    ivector_dropout: float = option(
        0.0, "probability of a zero i-vector in training", low=0, high=1
    )

    memory: str = option("none", "word memory: mem or 2mem (paper B)", ("none", "mem", "2mem"))
    memory_encoder_layers: int = option(8, "layers of the memory encoder (B1)", low=1)
    memory_decoder_layers: int = option(4, "memory decoder blocks M (B2)", low=1)
    memory_values: str = option(
        "embedded",
        "2MEM: values are the entry's embeddings or its encoding",
        ("embedded", "encoded"),
    )
    memory_score_residual: bool = option(False, "average a block's scores with the block before")

    def __post_init__(self) -> None:
        check_ranges(self)
        self._check_context()
        if self.dim % self.heads:
            raise InputError(f"--dim {self.dim} is not a multiple of --heads {self.heads}")
        if self.conv_kernel % 2 == 0:
            raise InputError(f"--conv-kernel {self.conv_kernel} is even; choose an odd kernel")

    def _check_context(self) -> None:
        """Refuse context options that the chosen encoder or decoder would not use."""
        if self.encoder == "lstm" and self.attention != "plain":
            raise InputError(
                f"--attention {self.attention}: an LSTM encoder has no attention scores; "
                "choose --encoder transformer or conformer"
            )
        if self.encoder == "lstm" and self.dim % 2:
            raise InputError(f"--dim {self.dim} is odd; both LSTM directions share it")
        if self.decoder == "lstm" and self.text_context != "none":
            raise InputError(
                f"--text-context {self.text_context} needs --decoder transformer"
            )

    @property
    def input_dim(self) -> int:
        """Features a frame as the encoder sees them: 83, or 183 with i-vectors."""
        return self.feature_dim + (self.speaker_dim if self.speaker_features != "none" else 0)


@dataclass(frozen=True)
class DataConfig:
    """Where the data is and how batches are made."""

    manifest_dir: Path = option(Path("data/fbank"), "folder of the cuts")
    lang_dir: Path = option(Path("data/lang_bpe_500"), "folder of the tokenizer")
    train_cuts: str = option(
        "", "file names of the training cuts in --manifest-dir, with commas between"
    )
    valid_cuts: str = option("", "file name of the validation cuts in --manifest-dir")
    index: str = option("", "full linked manifest for the history; default: train and valid cuts")
    normalizer: str = option("none", "rules applied to transcripts before they are tokens")
    max_duration: float = option(200.0, "seconds of audio a batch", low=0.1)
    num_buckets: int = option(20, "buckets of similar duration", low=1)
    num_workers: int = option(0, "processes that load data", low=0)
    min_duration: float = option(
        0.1, "seconds; shorter utterances are left out and counted", low=0
    )
    drop_duration: float = option(30.0, "seconds; longer training utterances are left out", low=0)
    spec_augment: bool = option(True, "mask time and frequency in training (SpecAugment)")
    time_mask_frames: int = option(40, "SpecAugment: frames of the longest time mask", low=0)
    freq_mask_bins: int = option(27, "SpecAugment: bins of the widest frequency mask", low=0)
    history_speakers: str = option(
        "all", "earlier turns used as history: all, same or other speaker", ("all", "same", "other")
    )
    first_text: str = option(
        "empty", "history of a first turn: empty, or the turn itself (paper)", ("empty", "repeat")
    )
    history_noise: float = option(
        0.0, "probability that a history sentence is corrupted in training", low=0, high=1
    )
    history_drop: float = option(
        0.0, "probability that an utterance has no history in training", low=0, high=1
    )
    history_hyps: bool = option(
        False, "corrupted history comes from decoded hypotheses in the manifest where it has them"
    )

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class TrainConfig:
    """How the model is trained."""

    exp_dir: Path = option(Path("exp"), "folder of checkpoints, logs, config.yaml and tokenizer")
    num_epochs: int = option(30, "train until the end of this epoch", low=0)
    start_epoch: int = option(
        1, "continue after epoch-(N-1).pt; 1 continues an interrupted run", low=1
    )
    seed: int = option(42, "seed of everything random", low=0)
    world_size: int = option(1, "processes on this machine (torchrun sets it otherwise)", low=1)
    num_threads: int = option(0, "CPU threads; 0 leaves the choice to torch", low=0)
    ctc_weight: float = option(0.3, "w in w * CTC + (1 - w) * CE", low=0, high=1)
    label_smoothing: float = option(0.1, "label smoothing of the CE loss", low=0, high=1)
    lr_factor: float = option(
        1.0, "Noam: peak rate is factor * (d * warmup) ** -0.5", low=0, high=1000
    )
    warmup: int = option(25000, "Noam: updates until the peak rate", low=1)
    weight_decay: float = option(0.0, "decoupled weight decay (AdamW)", low=0, high=1)
    grad_clip: float = option(5.0, "clip the gradient's norm; inf: do not", low=1e-6)
    accum_grad: int = option(1, "batches an update", low=1)
    use_amp: bool = option(False, "mixed precision on CUDA")
    save_every_n: int = option(
        2000, "updates between checkpoints inside an epoch; 0: none", low=0
    )
    keep_last_k: int = option(2, "checkpoints kept inside an epoch", low=0)
    log_interval: int = option(50, "updates between two log lines", low=1)
    tensorboard: bool = option(True, "write TensorBoard events")
    init_from: Optional[Path] = option(
        None, "start from this checkpoint, or from the best of this folder; new modules are named"
    )
    freeze: str = option("", "comma-separated prefixes of parameters that stay as they are")
    lambda_memory: float = option(1.0, "weight of the memory loss (B4)", low=0)
    permute: float = option(0.5, "probability p of the permutation trick (B4)", low=0, high=1)
    memory_size: int = option(200, "entries sampled a batch (B5)", low=1)
    memory_max_words: int = option(3, "words of the longest entry sampled (B5)", low=1, high=3)
    memory_span_rate: float = option(
        0.15, "probability that an entry of the memory begins at a word", low=0, high=1
    )
    memory_rare_rate: float = option(
        0.15, "the same for a rare word of the training text", low=0, high=1
    )
    memory_rare_count: int = option(2, "a word that the text has at most so often is rare", low=0)
    memory_rare_distractors: float = option(
        0.0, "share of the entries that nobody says that begin at a rare word", low=0, high=1
    )
    memory_empty: float = option(
        0.1, "share of batches without a relevant entry (B5)", low=0, high=1
    )
    memory_teacher_forcing: int = option(
        0, "updates in which 2MEM is given the right entry instead of its own choice", low=0
    )

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class DecodeConfig:
    """How the trained model is used."""

    exp_dir: Path = option(Path("exp"), "folder of the trained model")
    epoch: int = option(
        0, "average the checkpoints that end here; 0: the best by validation loss", low=0
    )
    avg: int = option(5, "checkpoints averaged", low=1)
    manifest_dir: Optional[Path] = option(None, "folder of the cuts; default: as trained")
    test_cuts: str = option("", "comma-separated file names of the test cuts in --manifest-dir")
    index: str = option("", "full linked manifest of the test set; default: the test cuts")
    method: str = option("beam", "see --help of decode.py", None)
    beam_size: int = option(5, "hypotheses an utterance", low=1)
    ctc_decode_weight: float = option(
        0.3, "weight of the CTC prefix scores in beam search", low=0, high=1
    )
    length_bonus: float = option(0.0, "added for every token", low=-100, high=100)
    max_len_ratio: float = option(1.0, "tokens an encoder frame at the most", low=0.01)
    lm_exp_dir: Optional[Path] = option(None, "folder of a trained LSTM language model")
    lm_scale: float = option(0.0, "weight of the language model in beam search", low=0)
    carry_lm_state: bool = option(False, "the language model reads the conversation so far")
    batch_size: int = option(16, "conversations decoded in step", low=1)
    history: str = option(
        "hyp", "text given as history: own hypotheses, references, none, or shuffled hypotheses",
        ("hyp", "ref", "none", "shuffled"),
    )
    history_min_confidence: float = option(
        0.0, "a hypothesis below this is not used as history", low=0, high=1
    )
    normalizer: str = option("none", "rules for the normalised error rate")
    unit: str = option(
        "word", "unit of the error rate; mixed: Han characters and whole other words",
        ("word", "char", "mixed"),
    )
    num_threads: int = option(0, "CPU threads; 0 leaves the choice to torch", low=0)
    seed: int = option(42, "seed of the shuffled history and of the bootstrap", low=0)
    max_duration: float = option(
        200.0, "seconds of audio a batch in methods without history", low=0.1
    )
    suffix: str = option("", "appended to the names of the result files")
    output_dir: Optional[Path] = option(
        None, "folder of the result files; default: a folder named by the method in --exp-dir"
    )
    graph: str = option(
        "HLG", "lattice methods: HLG (words and n-gram of the lang folder) or ctc (tokens, no LM)",
        ("HLG", "ctc"),
    )
    lang_dir: Optional[Path] = option(
        None, "lattice methods: folder with HLG.pt, lexicon and G; default: as trained"
    )
    rescoring_g: Optional[Path] = option(
        None, "lattice methods: n-gram of the second pass, default: the largest G_N_gram.pt of "
        "--lang-dir, or G_N_gram.fst.txt where a method cannot do without"
    )
    scales: str = option(
        "", "lattice methods: hlg=1.0,lm=0.5,attention=1.0,lstm=0.3 (those that the method has), "
        "or a scales-*.json; default: 1, and 0.5 for lstm"
    )
    tune_cuts: str = option("", "lattice methods: dev cuts on which the scales are tuned first")
    save_lattices: bool = option(False, "lattice methods: write the lattice of every utterance")
    search_beam: float = option(15.0, "lattice methods: beam of the first pass", low=0)
    output_beam: float = option(5.0, "lattice methods: beam of the lattice", low=0)
    lattice_depth: int = option(30, "lattice methods: arcs a frame that are kept", low=1)
    num_paths: int = option(100, "lattice methods: paths drawn for an n-best list", low=1)
    nbest_scale: float = option(
        0.0, "lattice methods: scores are multiplied by it to draw paths, less is more varied; "
        "0: 0.5, and 1 for --graph ctc, of whose many paths few are good", low=0,
    )
    memory: Optional[Path] = option(None, "word list for the memory, one entry a line, or .jsonl")
    words: str = option("", "entries for the memory, separated by commas")
    memory_lists: Optional[Path] = option(
        None, "a word list for each utterance, in the biasing format of LibriSpeech"
    )
    memory_trace: bool = option(False, "write which entry fired for each word, and its weight")
    memory_preselect: int = option(
        0, "entries kept after the first block of the memory decoder; 0: all", low=0
    )
    memory_half: bool = option(False, "hold the encoded memory in float16")
    memory_ctc_weight: float = option(
        0.0, "weight of the CTC prefix scores for tokens read out of the memory; at most "
        "--ctc-decode-weight counts", low=0, high=1
    )
    memory_from_history: bool = option(
        False, "words of earlier turns that the training text hardly has enter the memory"
    )
    memory_history_count: int = option(
        2, "of them those that the training text has at most so often", low=0
    )
    memory_history_confidence: float = option(
        0.5, "from turns of at least this confidence", low=0, high=1
    )
    memory_history_cap: int = option(100, "words a conversation holds, oldest out", low=1)
    score_words: Optional[Path] = option(
        None, "word list whose recognition is scored; default: that of --memory"
    )
    baseline_exp_dir: Optional[Path] = option(None, "swap the baseline under the memory")

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def rules(self) -> str:
        """``normalizer`` as :mod:`icefall_ctx.score.report` takes it: empty where there is none."""
        return "" if self.normalizer == "none" else self.normalizer
