"""The attention LSTM decoder, the second baseline of paper B, behind the decoder interface."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import ModelConfig
from icefall_ctx.data.batch import TokenHistory, length_mask
from icefall_ctx.models.attention import MultiHead
from icefall_ctx.models.decoder import KeyValue, fold_beam, regroup


@dataclass
class LstmDecoderState:
    """Attributes:
    audio: keys and values of the encoder output, (N, H, T, d_k).
    audio_mask: (N, 1, 1, T).
    hidden: h and c after the tokens so far, each (layers, R, d); None before the first.
    beam: rows an utterance.
    """

    audio: KeyValue
    audio_mask: Tensor
    hidden: Optional[Tuple[Tensor, Tensor]] = None
    beam: int = 1

    @property
    def rows(self) -> int:
        return self.audio_mask.size(0) * self.beam

    def select(self, rows: Tensor) -> "LstmDecoderState":
        """Rows (M,) of the current R rows; see :func:`~icefall_ctx.models.decoder.regroup`."""
        utterances, beam = regroup(rows, self.beam)
        hidden = self.hidden and tuple(part[:, rows] for part in self.hidden)
        state = replace(self, hidden=hidden, beam=beam)
        if torch.equal(utterances, torch.arange(self.audio_mask.size(0), device=rows.device)):
            return state
        key, value = self.audio
        return replace(
            state,
            audio=(key[utterances], value[utterances]),
            audio_mask=self.audio_mask[utterances],
        )


class LstmDecoder(nn.Module):
    """LSTM layers over the tokens, whose output asks the audio:

        h   = LSTM(Embed(y))
        out = W tanh(W_c [h ; MultiHead(h, audio, audio)])

    The audio is not fed back into the LSTM, so that a whole sentence is one call in training.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim, layers = config.dim, config.decoder_layers
        self.vocab_size = config.vocab_size
        self.embedding = nn.Embedding(config.vocab_size, dim)
        between = config.dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(dim, dim, layers, batch_first=True, dropout=between)
        self.audio_attention = MultiHead(dim, config.heads, config.dropout)
        self.combine = nn.Linear(2 * dim, dim)
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(dim, config.vocab_size)

    def prepare(
        self, encoder_out: Tensor, encoder_lens: Tensor, history: Optional[TokenHistory] = None
    ) -> LstmDecoderState:
        """Everything that depends on the utterance; ``history`` is not read."""
        mask = length_mask(encoder_lens, encoder_out.size(1))[:, None, None, :]
        return LstmDecoderState(self.audio_attention.keys_values(encoder_out), mask)

    def _run(self, tokens: Tensor, state: LstmDecoderState):
        h, hidden = self.lstm(self.dropout(self.embedding(tokens)), state.hidden)
        folded = fold_beam(h, state.beam)
        heard = self.audio_attention.attend(folded, *state.audio, state.audio_mask).view_as(h)
        x = torch.tanh(self.combine(torch.cat([h, heard], dim=-1)))
        return self.out(self.dropout(x)).float().log_softmax(dim=-1), hidden

    def forward(self, tokens: Tensor, state: LstmDecoderState) -> Tensor:
        """Teacher forcing: tokens (N, U) -> float32 log-probabilities of the next (N, U, V)."""
        return self._run(tokens, state)[0]

    def step(self, tokens: Tensor, state: LstmDecoderState) -> Tuple[Tensor, LstmDecoderState]:
        """One more token a row, (R,) -> log-probabilities of the next (R, V) and the new state."""
        log_probs, hidden = self._run(tokens.unsqueeze(1), state)
        return log_probs[:, 0], replace(state, hidden=hidden)
