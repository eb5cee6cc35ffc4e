"""Cuts to :class:`~icefall_ctx.data.batch.Batch`: audio, targets, history of every utterance."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from lhotse.audio import AudioLoadingError
from lhotse.cut import Cut
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from icefall_ctx.data.batch import MIN_FRAMES, AudioHistory, Batch, TokenHistory
from icefall_ctx.data.history import HistoryReader, copy_key, history_rng, link_of
from icefall_ctx.errors import InputError

# What Lhotse and the libraries below it raise for features or audio missing, moved or cut off.
UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, AssertionError, AudioLoadingError)


@lru_cache(maxsize=None)
def extractor_for(feature_dim: int, sampling_rate: int) -> Any:
    """The extractor whose features have ``feature_dim`` dimensions: mel bins, and pitch if the
    number ends in 3."""
    from icefall_ctx.features.extractor import PITCH_DIM, FbankPitch, FbankPitchConfig

    pitch = feature_dim % 10 == PITCH_DIM
    return FbankPitch(
        FbankPitchConfig(
            sampling_rate=sampling_rate,
            num_mel_bins=feature_dim - PITCH_DIM * pitch,
            pitch=pitch,
        )
    )


def load_features(cut: Cut, feature_dim: int) -> Tensor:
    """Features (T, C) of a cut, stored ones, or computed from the audio.

    Raises:
      InputError: features that cannot be read, or of another dimension than ``feature_dim``.
    """
    features = _read(cut, feature_dim)
    if features.shape[1] != feature_dim:
        raise InputError(
            f"{cut.id}: features have {features.shape[1]} dimensions, the model expects "
            f"{feature_dim}; set --feature-dim, or compute the features again"
        )
    return torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))


def _read(cut: Cut, feature_dim: int) -> np.ndarray:
    kind = "features" if cut.has_features else "audio"
    try:
        if cut.has_features:
            return cut.load_features()
        return cut.compute_features(extractor_for(feature_dim, cut.sampling_rate))
    except UNREADABLE as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            f"{cut.id}: its {kind} cannot be read ({reason}); run this in the recipe's folder, or, "
            "where they are damaged, delete them and run prepare.sh --stage 3"
        ) from error


def load_speaker_vector(cut: Cut, name: str, dim: int) -> Tensor:
    """The array ``name`` (D,) stored with a cut or its supervision; D has to be ``dim``."""
    for holder in (cut, cut.supervisions[0]):
        if (holder.custom or {}).get(name) is not None:
            value = holder.custom[name]
            array = value if isinstance(value, list) else holder.load_custom(name)
            vector = torch.as_tensor(np.asarray(array, dtype=np.float32)).flatten()
            if len(vector) != dim:
                raise InputError(
                    f"{cut.id}: its {name} has {len(vector)} dimensions, the model wants {dim}; "
                    f"use --speaker-dim {len(vector)} in training"
                )
            return vector
    raise InputError(f"{cut.id}: has no {name}; run the recipe's {name} stage first")


class ConversationDataset(Dataset):
    """Maps a list of cuts, one utterance each, to a Batch.

    What it returns depends on the cuts, the seed and the epoch only: not on the process that
    loads it, nor on what was loaded before.

    Args:
      encode: text to token ids.
      normalize: applied to transcripts and histories before ``encode``.
      feature_dim: C.
      history: finds earlier turns; None for models without context.
      seed: of the random choices in the history.
      speaker_features: ``none``, or the name of the vector stored with every cut.
      speaker_dim: dimension D of that vector.
    """

    def __init__(
        self,
        encode: Callable[[str], List[int]],
        normalize: Callable[[str], str],
        feature_dim: int,
        history: Optional[HistoryReader] = None,
        seed: int = 0,
        speaker_features: str = "none",
        speaker_dim: int = 0,
    ) -> None:
        self.encode = encode
        self.normalize = normalize
        self.feature_dim = feature_dim
        self.history = history
        self.seed = seed
        self.speaker_features = speaker_features
        self.speaker_dim = speaker_dim
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Call before the iterator of a data loader is made: worker processes get a copy."""
        self.epoch = epoch

    def __getitem__(self, cuts: Sequence[Cut]) -> Optional[Batch]:
        """The batch of ``cuts``, or None if nothing of them can be used."""
        loaded = {copy_key(cut): load_features(cut, self.feature_dim) for cut in cuts}
        cuts = [cut for cut in cuts if _usable(cut, loaded[copy_key(cut)])]
        if not cuts:
            return None
        features = [loaded[copy_key(cut)] for cut in cuts]
        texts = [self.normalize(cut.supervisions[0].text or "") for cut in cuts]
        tokens = [torch.tensor(self.encode(text), dtype=torch.long) for text in texts]
        token_history, audio_history = self._histories(cuts, loaded)
        return Batch(
            **_identity(cuts),
            texts=texts,
            features=pad_sequence(features, batch_first=True),
            feature_lens=torch.tensor([f.size(0) for f in features]),
            tokens=pad_sequence(tokens, batch_first=True),
            token_lens=torch.tensor([len(ids) for ids in tokens]),
            history=token_history,
            audio_history=audio_history,
            speaker_features=self._speaker_vectors(cuts),
            durations=[cut.duration for cut in cuts],
        )

    def _histories(
        self, cuts: Sequence[Cut], loaded: Dict[str, Tensor]
    ) -> Tuple[Optional[TokenHistory], Optional[AudioHistory]]:
        if self.history is None:
            return None, None
        rngs = [history_rng(self.seed, self.epoch, cut.id) for cut in cuts]
        options = self.history.options
        dropped = [rng.random() < options.drop for rng in rngs]
        text = self._token_history(cuts, rngs, dropped) if options.sentences else None
        audio = self._audio_history(cuts, loaded, dropped) if options.audio_depth else None
        return text, audio

    def _token_history(self, cuts: Sequence[Cut], rngs: Sequence[Any], dropped: Sequence[bool]):
        found = [self.history.text(cut, rng) for cut, rng in zip(cuts, rngs)]
        return TokenHistory.from_lists(
            [
                [] if drop else [self.encode(self.normalize(text)) for text in history.texts]
                for history, drop in zip(found, dropped)
            ],
            [[] if drop else history.same_speaker for history, drop in zip(found, dropped)],
            max_sentences=self.history.options.sentences,
            max_tokens=self.history.options.max_tokens,
        )

    def _audio_history(
        self, cuts: Sequence[Cut], loaded: Dict[str, Tensor], dropped: Sequence[bool]
    ) -> Optional[AudioHistory]:
        """Every distinct earlier turn once; those of the batch itself are loaded already."""
        rows: Dict[str, int] = {}
        turns: List[Cut] = []
        chains = []
        for cut, drop in zip(cuts, dropped):
            chain = []
            for earlier in self.history.audio(cut):
                row = -1 if drop or earlier is None else rows.get(copy_key(earlier), len(turns))
                if row == len(turns):
                    rows[copy_key(earlier)] = row
                    turns.append(earlier)
                chain.append(row)
            chains.append(chain)
        features = [self._clean_features(turn, loaded) for turn in turns]
        good = [_is_usable(f) for f in features]
        chains = [_unbroken(chain, good) for chain in chains]
        depth = max(sum(row >= 0 for row in chain) for chain in chains)
        if depth == 0:
            return None
        chains = [chain[-depth:] for chain in chains]
        return AudioHistory.from_chains(features, chains, self._speaker_vectors(turns))

    def _clean_features(self, cut: Cut, loaded: Dict[str, Tensor]) -> Tensor:
        key = copy_key(cut)
        if key not in loaded:
            loaded[key] = load_features(cut, self.feature_dim)
        return loaded[key]

    def _speaker_vectors(self, cuts: Sequence[Cut]) -> Optional[Tensor]:
        """(N, D)."""
        if self.speaker_features == "none":
            return None
        name, dim = self.speaker_features, self.speaker_dim
        return torch.stack([load_speaker_vector(cut, name, dim) for cut in cuts])


def _unbroken(chain: List[int], good: Sequence[bool]) -> List[int]:
    """-1 for a turn that cannot be used, and for all before it, whose scores would get lost."""
    chain = [row if row >= 0 and good[row] else -1 for row in chain]
    broken = max((i for i, row in enumerate(chain) if row < 0), default=-1)
    return [-1] * (broken + 1) + chain[broken + 1 :]


def _is_usable(features: Tensor) -> bool:
    return features.size(0) >= MIN_FRAMES and bool(torch.isfinite(features).all())


def _usable(cut: Cut, features: Tensor) -> bool:
    """False, and a line in the log, for an utterance that would spoil its batch."""
    if _is_usable(features):
        return True
    logging.warning(
        "%s: skipped: %d frames, of which the encoder needs %d, or values that are not finite",
        cut.id,
        features.size(0),
        MIN_FRAMES,
    )
    return False


def _identity(cuts: Sequence[Cut]) -> Dict[str, List[Any]]:
    supervisions = [cut.supervisions[0] for cut in cuts]
    return dict(
        utt_ids=[link_of(cut, "utt_id") for cut in cuts],
        cut_ids=[cut.id for cut in cuts],
        conv_ids=[link_of(cut, "conv_id") for cut in cuts],
        turns=[link_of(cut, "turn") for cut in cuts],
        speakers=[s.speaker or "" for s in supervisions],
        sides=[str((s.custom or {}).get("side", "")) for s in supervisions],
    )
