"""One call, recognised while it goes on: a turn of audio in, its text out.

The same :class:`~icefall_ctx.decode.recogniser.Recogniser` and the same session as in batch
decoding, with one conversation in step, so a live call gives the text that decoding it from a
manifest gives.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Iterable, List, Optional, Sequence, Union

import numpy as np
import torch
from lhotse.cut import Cut
from torch import Tensor

from icefall_ctx.data.batch import MIN_FRAMES, Batch
from icefall_ctx.data.dataset import extractor_for, load_features, load_speaker_vector
from icefall_ctx.data.history import link_of
from icefall_ctx.decode.beam import Hypothesis
from icefall_ctx.decode.output import recognised_text
from icefall_ctx.decode.run import Experiment
from icefall_ctx.decode.session import ConversationSession
from icefall_ctx.errors import InputError
from icefall_ctx.features.extractor import FRAME_SHIFT
from icefall_ctx.models.memory_bank import EntryList

Audio = Union[Cut, Tensor, np.ndarray]


@dataclass(frozen=True)
class LiveTurn:
    """What was recognised in one turn.

    Attributes:
      tokens: ids without ``<sos/eos>``.
      confidence: in [0, 1]; 0 where the turn was too short to recognise anything.
      history: texts the model could read when it recognised the turn, oldest first.
    """

    text: str
    speaker: str
    confidence: float
    tokens: List[int]
    history: List[str]


class LiveSession:
    """One call.

    Args:
      experiment: the trained model, opened with the options of ``decode.py``.
      sampling_rate: of the waveforms that will be fed, Hz; the rate the model was trained at.
      name: of the call, for messages.
    """

    def __init__(self, experiment: Experiment, sampling_rate: int, name: str = "live") -> None:
        self.experiment = experiment
        self.sampling_rate = sampling_rate
        self.session = ConversationSession(name, experiment.config.history_min_confidence)

    def turn(
        self, audio: Audio, speaker: str = "", speaker_vector: Optional[Tensor] = None
    ) -> LiveTurn:
        """Recognise the next turn and remember it.

        Args:
          audio: a waveform (num_samples,) of floats in [-1, 1], or a Lhotse cut of one turn.
          speaker: who speaks; a cut's own speaker if empty.
          speaker_vector: (D,), for a model with speaker features; a cut may bring its own.

        Raises:
          InputError: audio of another sampling rate or of several channels, or no speaker vector
            for a model that needs one.
        """
        if isinstance(audio, Cut) and not speaker and audio.supervisions:
            speaker = audio.supervisions[0].speaker or ""
        features = self.features(audio)
        if features is None:
            return LiveTurn("", speaker, 0.0, [], [])
        batch = self.batch(features, speaker, self.speaker_vector(audio, speaker_vector))
        self.experiment.module.warn_of_length(batch.utt_ids[0], batch.durations[0])
        history = self.history(speaker)
        [nbest] = self.experiment.recogniser.recognise(batch, [self.session])
        return self._result(nbest[0], speaker, history)

    def features(self, audio: Audio) -> Optional[Tensor]:
        """(T, C), or None, and a line in the log, for a turn too short or not finite."""
        dim = self.experiment.recogniser.model.config.feature_dim
        if isinstance(audio, Cut):
            features = load_features(audio, dim)
        else:
            wave = torch.as_tensor(audio, dtype=torch.float32)
            if wave.numel() < MIN_FRAMES * FRAME_SHIFT * self.sampling_rate:
                features = torch.zeros(0, dim)
            else:
                features = extractor_for(dim, self.sampling_rate).extract(
                    wave, self.sampling_rate
                )
        if features.size(0) < MIN_FRAMES or not bool(torch.isfinite(features).all()):
            logging.warning(
                "%s: turn %d is too short, or not finite; nothing is recognised",
                self.session.conv_id,
                self.session.turns,
            )
            return None
        return features

    def speaker_vector(self, audio: Audio, given: Optional[Tensor] = None) -> Optional[Tensor]:
        """(1, D): the given one, or what a cut brings; None for a model without."""
        config = self.experiment.recogniser.model.config
        kind = config.speaker_features
        if kind == "none":
            return None
        if given is not None:
            return torch.as_tensor(given, dtype=torch.float32).view(1, -1)
        if isinstance(audio, Cut):
            return load_speaker_vector(audio, kind, config.speaker_dim).view(1, -1)
        raise InputError(f"the model expects a {kind} for every turn; give speaker_vector")

    def batch(self, features: Tensor, speaker: str, vector: Optional[Tensor] = None) -> Batch:
        """The turn (T, C) as a batch of one; there is no reference in it."""
        name = f"{self.session.conv_id}-{self.session.turns}"
        return Batch(
            utt_ids=[name],
            cut_ids=[name],
            conv_ids=[self.session.conv_id],
            turns=[self.session.turns],
            speakers=[speaker],
            sides=[""],
            texts=[""],
            features=features.unsqueeze(0),
            feature_lens=torch.tensor([features.size(0)]),
            tokens=torch.zeros(1, 0, dtype=torch.long),
            token_lens=torch.tensor([0]),
            speaker_features=vector,
            durations=[features.size(0) * FRAME_SHIFT],
        ).to(self.experiment.device)

    def history(self, speaker: str) -> List[str]:
        """Texts that the model will read as history of a turn of ``speaker``, oldest first."""
        recogniser = self.experiment.recogniser
        if not recogniser.reads_text:
            return []
        turns = recogniser.history_of(self.session, speaker)
        return [self.experiment.tokenizer.decode(list(turn.tokens)) for turn in turns]

    def _result(self, best: Hypothesis, speaker: str, history: List[str]) -> LiveTurn:
        text = recognised_text(best, self.experiment.tokenizer)
        return LiveTurn(text, speaker, best.confidence, best.tokens, history)

    def set_words(self, words: Optional[Iterable[str]]) -> None:
        """The word list from the next turn on; None returns to the list of all calls.

        Raises:
          InputError: the model has no word memory.
        """
        if not self.experiment.recogniser.model.has_memory:
            raise InputError(
                f"{self.experiment.config.exp_dir}: this model has no word memory; "
                "train one with --memory 2mem"
            )
        self.session.words = None if words is None else self._entries(words)

    def _entries(self, words: Iterable[str]) -> EntryList:
        """Spelled as the model spells them; what it cannot spell is named and left out."""
        from icefall_ctx.text.words import WordEntry, WordLoader

        loader = WordLoader(self.experiment.tokenizer, self.experiment.normalize)
        loaded = loader.load([WordEntry(word) for word in words])
        for spelling in loaded.spellings:
            if spelling.problem:
                logging.warning("word '%s' is left out: %s", spelling.entry.text, spelling.problem)
        entries = EntryList()
        for ids, weight in loaded.weights.items():
            entries.add(ids, weight)
        return entries


def turns_of(cuts: Sequence[Cut], conversation: str) -> List[Cut]:
    """The turns of a conversation, in order.

    Raises:
      InputError: none of the cuts is of this conversation.
    """
    chosen = [cut for cut in cuts if link_of(cut, "conv_id") == conversation]
    if not chosen:
        known = sorted({link_of(cut, "conv_id") for cut in cuts})
        raise InputError(f"no conversation '{conversation}'; there are {', '.join(known[:3])} ...")
    return sorted(chosen, key=lambda cut: link_of(cut, "turn"))
