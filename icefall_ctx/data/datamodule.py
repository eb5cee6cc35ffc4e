"""The one AsrDataModule: manifests and tokenizer in, data loaders out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence

from lhotse.cut import Cut
from torch.utils.data import DataLoader, Sampler

from icefall_ctx.config import DataConfig, ModelConfig
from icefall_ctx.data.conversation import ConversationIndex, augmentation_suffix
from icefall_ctx.data.corruption import Corruptor
from icefall_ctx.data.dataset import ConversationDataset
from icefall_ctx.data.history import HistoryOptions, HistoryReader, link_of
from icefall_ctx.data.manifests import read_manifest
from icefall_ctx.data.sampler import TrainingSampler, TurnSynchronousSampler
from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.text.normalize import get_normalizer
from icefall_ctx.text.tokenizer import Tokenizer

LONG_FACTOR = 10  # an utterance this many times longer than those of training is warned of


def history_options(model: ModelConfig, data: DataConfig, training: bool) -> HistoryOptions:
    """The history that ``model`` can use; noise and drop in training only."""
    return HistoryOptions(
        sentences=model.history_sentences if model.text_context != "none" else 0,
        max_tokens=model.history_tokens,
        audio_depth=model.ctx_depth if model.attention == "context" else 0,
        speakers=data.history_speakers,
        first_text=data.first_text,
        noise=data.history_noise if training and model.text_context != "none" else 0.0,
        drop=data.history_drop if training else 0.0,
    )


def hypotheses_of(cuts: Iterable[Cut]) -> Dict[str, str]:
    """Decoded text by utt_id, where ``supervision.custom["hyp"]`` holds one."""
    return {
        link_of(cut, "utt_id"): cut.supervisions[0].custom["hyp"]
        for cut in cuts
        if "hyp" in cut.supervisions[0].custom and not augmentation_suffix(cut.supervisions[0])
    }


@dataclass
class AsrDataModule:
    """Data loaders of one experiment.

    ``data`` has icefall's options (``--manifest-dir``, ``--max-duration``, ``--num-buckets``,
    ``--num-workers``, ...).  Manifests are read when they are first needed.

    Args:
      model: tells which history the model can use, and the feature dimension.
      seed: of the training order and of what is random in histories.
    """

    data: DataConfig
    model: ModelConfig
    tokenizer: Tokenizer
    seed: int = 42

    @classmethod
    def from_config(cls, data: DataConfig, model: ModelConfig, seed: int = 42) -> "AsrDataModule":
        """With the tokenizer of ``data.lang_dir``."""
        return cls(data, model, Tokenizer.load(data.lang_dir), seed)

    def read_cuts(self, name: str) -> List[Cut]:
        """The cuts of ``--manifest-dir/name``."""
        if not name:
            raise InputError("no cuts named; set --train-cuts and --valid-cuts")
        cuts = list(read_manifest(Path(self.data.manifest_dir) / name, "cuts"))
        if not cuts:
            raise InputError(f"{Path(self.data.manifest_dir) / name}: holds no cuts")
        return cuts

    @cached_property
    def all_train_cuts(self) -> List[Cut]:
        """Of all the files named, in their order."""
        names = [name for name in self.data.train_cuts.split(",") if name] or [""]
        return [cut for name in names for cut in self.read_cuts(name)]

    @cached_property
    def all_valid_cuts(self) -> List[Cut]:
        return self.read_cuts(self.data.valid_cuts)

    @cached_property
    def train_cuts(self) -> List[Cut]:
        """What is trained on; see :meth:`usable`."""
        return self.usable(self.all_train_cuts, self.data.drop_duration, "training")

    @cached_property
    def valid_cuts(self) -> List[Cut]:
        return self.usable(self.all_valid_cuts, float("inf"), "validation")

    @cached_property
    def index(self) -> ConversationIndex:
        """Every turn that can be history: of ``--index``, else of the train and valid cuts."""
        if self.data.index:
            return ConversationIndex.from_manifests(self._index_path())
        return ConversationIndex.from_supervisions(self.all_train_cuts + self.all_valid_cuts)

    def _index_path(self) -> Path:
        path = Path(self.data.manifest_dir) / self.data.index
        return path if path.exists() else Path(self.data.index)

    def usable(self, cuts: Sequence[Cut], max_duration: float, name: str) -> List[Cut]:
        """Leave out, by name and number, what is too short, too long, or without text."""
        problems = ProblemLog()
        normalize = get_normalizer(self.data.normalizer)
        kept = []
        for cut in cuts:
            link_of(cut, "utt_id")  # one linked supervision a cut
            text = normalize(cut.supervisions[0].text or "")
            if cut.duration < self.data.min_duration:
                problems.add("shorter than --min-duration", cut.id, f"{cut.duration:.3f} s")
            elif cut.duration > max_duration:
                problems.add("longer than --drop-duration", cut.id, f"{cut.duration:.1f} s")
            elif not self.tokenizer.encode(text):
                problems.add("without text", cut.id, repr(cut.supervisions[0].text or ""))
            else:
                kept.append(cut)
        if problems:
            logging.warning("%s cuts left out: %s", name, problems.summary())
        if not kept:
            raise InputError(f"no {name} cut can be used: {problems.summary()}")
        return kept

    def dataset(self, training: bool) -> ConversationDataset:
        """The dataset of training, or of validation: history of references, no noise."""
        options = history_options(self.model, self.data, training)
        history = None
        if options.sentences or options.audio_depth:
            cuts = self.all_train_cuts if training else self.all_valid_cuts
            corruptor = self._corruptor if options.noise else None
            history = HistoryReader(options, self.index, cuts, corruptor)
            history.report_missing(self.train_cuts if training else self.valid_cuts)
        return self._dataset(history)

    @cached_property
    def _corruptor(self) -> Corruptor:
        hypotheses = hypotheses_of(self.all_train_cuts) if self.data.history_hyps else {}
        if self.data.history_hyps and not hypotheses:
            raise InputError(
                f"--history-hyps: no cut of {self.data.train_cuts} holds a hypothesis; "
                "write them with icefall-ctx hypotheses"
            )
        turns = {link_of(cut, "utt_id"): None for cut in self.all_train_cuts}
        return Corruptor((self.index[utt_id] for utt_id in turns), hypotheses)

    def _dataset(self, history: Optional[HistoryReader]) -> ConversationDataset:
        return ConversationDataset(
            encode=self.tokenizer.encode,
            normalize=get_normalizer(self.data.normalizer),
            feature_dim=self.model.feature_dim,
            history=history,
            seed=self.seed,
            speaker_features=self.model.speaker_features,
            speaker_dim=self.model.speaker_dim,
        )

    def train_dataloader(
        self, epoch: int, position: int = 0, rank: int = 0, world_size: int = 1
    ) -> DataLoader:
        """Batches of ``epoch`` for process ``rank``, from number ``position`` on."""
        sampler = TrainingSampler(
            self.train_cuts,
            self.data.max_duration,
            self.data.num_buckets,
            self.seed,
            epoch,
            position,
            rank,
            world_size,
        )
        dataset = self.train_dataset
        dataset.set_epoch(epoch)
        return self._loader(dataset, sampler)

    @cached_property
    def train_dataset(self) -> ConversationDataset:
        return self.dataset(training=True)

    @cached_property
    def valid_dataset(self) -> ConversationDataset:
        return self.dataset(training=False)

    def valid_dataloader(self, rank: int = 0, world_size: int = 1) -> DataLoader:
        """The validation batches, the same in every epoch."""
        sampler = TrainingSampler(
            self.valid_cuts,
            self.data.max_duration,
            self.data.num_buckets,
            rank=rank,
            world_size=world_size,
        )
        return self._loader(self.valid_dataset, sampler)

    def test_dataloader(self, cuts: Sequence[Cut], batch_size: int = 16) -> DataLoader:
        """Turn k of up to ``batch_size`` conversations together, without any history.

        What a decoder remembers of a conversation is its own; no transcript of another turn
        gets into these batches.
        """
        for cut in cuts:
            self.warn_of_length(cut.id, cut.duration)
        return self._loader(self._dataset(None), TurnSynchronousSampler(cuts, batch_size))

    def warn_of_length(self, name: str, seconds: float) -> None:
        """An utterance many times longer than any that was trained on is worth a line."""
        if seconds > LONG_FACTOR * self.data.drop_duration:
            logging.warning(
                "%s: %.0f s, more than %d times what was trained on (--drop-duration %g); "
                "cut long recordings into turns",
                name,
                seconds,
                LONG_FACTOR,
                self.data.drop_duration,
            )

    def _loader(self, dataset: ConversationDataset, sampler: Sampler) -> DataLoader:
        return DataLoader(
            dataset, sampler=sampler, batch_size=None, num_workers=self.data.num_workers
        )
