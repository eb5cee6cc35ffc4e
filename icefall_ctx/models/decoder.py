"""The decoder interface, and the Transformer decoder with its incremental search state.

Search, rescoring and the word memory know a decoder by four calls only:

    state = decoder.prepare(encoder_out, encoder_lens, history)
    log_probs = decoder(tokens, state)              training, rescoring: (N, U) -> (N, U, V)
    log_probs, state = decoder.step(tokens, state)  search: (R,) -> (R, V)
    state = state.select(rows)                      reorder, expand or drop hypotheses

A state has R = utterances x beam rows, those of one utterance together.  What belongs to an
utterance (keys of its audio, of its history) is held once, whatever the beam.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import ModelConfig
from icefall_ctx.data.batch import TokenHistory, length_mask
from icefall_ctx.models.attention import MultiHead, PositionalEncoding
from icefall_ctx.models.dropout import Dropout
from icefall_ctx.models.encoder import FeedForward
from icefall_ctx.models.history import (
    ConditionalInput,
    ConditionalMemory,
    GatedHistoryAttention,
    HistoryEncoder,
    HistoryMemory,
)

KeyValue = Tuple[Tensor, Tensor]


def regroup(rows: Tensor, beam: int) -> Tuple[Tensor, int]:
    """Utterances that the chosen rows belong to, as the rows name them, and the new beam.

    Raises:
      ValueError: rows of one utterance are not together, or their numbers differ.
    """
    utterances, counts = torch.unique_consecutive(rows // beam, return_counts=True)
    new_beam = int(counts[0])
    if not bool((counts == new_beam).all()) or utterances.unique().numel() != utterances.numel():
        raise ValueError("rows of one utterance must stand together and be as many for each")
    return utterances, new_beam


def select_pairs(pairs: List[KeyValue], index: Tensor) -> List[KeyValue]:
    return [(key[index], value[index]) for key, value in pairs]


@dataclass
class TransformerState:
    """Attributes:
    audio: keys and values of the encoder output, one pair a layer, (N, H, T, d_k).
    audio_mask: (N, 1, 1, T).
    beam: rows an utterance.
    past: keys and values of the tokens so far, one pair a layer, (R, H, u, d_k).
    position: tokens so far.
    conditional, history: what the context models read of earlier turns, a copy an utterance.
    """

    audio: List[KeyValue]
    audio_mask: Tensor
    beam: int = 1
    past: List[KeyValue] = field(default_factory=list)
    position: int = 0
    conditional: Optional[ConditionalMemory] = None
    history: Optional[HistoryMemory] = None

    @property
    def rows(self) -> int:
        return self.audio_mask.size(0) * self.beam

    def select(self, rows: Tensor) -> "TransformerState":
        """Rows (M,) of the current R rows; see :func:`regroup` for what is allowed."""
        utterances, beam = regroup(rows, self.beam)
        state = replace(self, beam=beam, past=select_pairs(self.past, rows))
        everybody = torch.arange(self.audio_mask.size(0), device=rows.device)
        if torch.equal(utterances, everybody):
            return state
        return replace(
            state,
            audio=select_pairs(self.audio, utterances),
            audio_mask=self.audio_mask[utterances],
            conditional=self.conditional and self.conditional.select(utterances),
            history=self.history and self.history.select(utterances),
        )


def fold_beam(x: Tensor, beam: int) -> Tensor:
    """(N * beam, 1, d) -> (N, beam, d): hypotheses as queries to one utterance's keys."""
    return x.view(-1, beam * x.size(1), x.size(2))


class TransformerDecoderLayer(nn.Module):
    """Self-attention, (gated history attention,) attention to the audio, feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim, heads, dropout = config.dim, config.heads, config.dropout
        self.norm_first = config.norm_first
        self.self_attention = MultiHead(dim, heads, dropout)
        self.audio_attention = MultiHead(dim, heads, dropout)
        self.feed_forward = FeedForward(dim, config.ff_dim, dropout, nn.ReLU(inplace=True))
        self.norm_self = nn.LayerNorm(dim)
        self.norm_audio = nn.LayerNorm(dim)
        self.norm_feed_forward = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)
        self.history = (
            GatedHistoryAttention(dim, heads, dropout)
            if config.text_context == "attention"
            else None
        )

    def residual(self, x: Tensor, norm: nn.LayerNorm, block) -> Tensor:
        """One block with its residual connection, in pre- or post-norm order."""
        if self.norm_first:
            return x + self.dropout(block(norm(x)))
        return norm(x + self.dropout(block(x)))

    def forward(
        self, x: Tensor, past: Optional[KeyValue], causal: Optional[Tensor], layer: int, state
    ) -> Tuple[Tensor, KeyValue]:
        """x (R, U, d) -> the same, and the keys and values of all tokens so far."""
        seen: List[KeyValue] = []

        def attend_self(y: Tensor) -> Tensor:
            key, value = self.self_attention.keys_values(y)
            if past is not None:
                key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
            seen.append((key, value))
            return self.self_attention.attend(y, key, value, causal)

        def attend_audio(y: Tensor) -> Tensor:
            folded = fold_beam(y, state.beam)
            out = self.audio_attention.attend(folded, *state.audio[layer], state.audio_mask)
            return out.view_as(y)

        x = self.residual(x, self.norm_self, attend_self)
        if self.history is not None and state.history is not None:
            x = self.history(x, state.history, layer, state.beam)
        x = self.residual(x, self.norm_audio, attend_audio)
        return self.residual(x, self.norm_feed_forward, self.feed_forward), seen[0]


class TransformerDecoder(nn.Module):
    """Transformer decoder; with ``text_context`` it reads earlier turns (A3, A3b)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.dim
        self.vocab_size = config.vocab_size
        self.embedding = nn.Embedding(config.vocab_size, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)  # PE scales it to unit variance
        self.positions = PositionalEncoding(dim, config.dropout)
        self.layers = nn.ModuleList(
            TransformerDecoderLayer(config) for _ in range(config.decoder_layers)
        )
        self.norm = nn.LayerNorm(dim) if config.norm_first else nn.Identity()
        self.out = nn.Linear(dim, config.vocab_size)
        self.conditional = (
            ConditionalInput(dim, config.history_pe)
            if config.text_context == "conditional"
            else None
        )
        self.history_encoder = (
            HistoryEncoder(config) if config.text_context == "attention" else None
        )

    def prepare(
        self, encoder_out: Tensor, encoder_lens: Tensor, history: Optional[TokenHistory] = None
    ) -> TransformerState:
        """Keys and values of the audio (N, T, d) and of the history, computed once."""
        state = TransformerState(
            audio=[layer.audio_attention.keys_values(encoder_out) for layer in self.layers],
            audio_mask=length_mask(encoder_lens, encoder_out.size(1))[:, None, None, :],
        )
        if history is not None and self.conditional is not None:
            state.conditional = self.conditional.prepare(history, self.embedding)
        if history is not None and self.history_encoder is not None:
            encoded = self.history_encoder(history, self.embedding)
            state.history = HistoryMemory(
                [layer.history.keys_values(encoded) for layer in self.layers],
                history.mask.flatten(1)[:, None, None, :],
                history.has_history,
            )
        return state

    def _run(self, tokens: Tensor, state: TransformerState, causal: Optional[Tensor]):
        x = self.embedding(tokens)
        if self.conditional is not None:
            x = self.conditional(x, state.conditional, state.beam)
        x = self.positions(x, state.position)
        past = []
        for index, layer in enumerate(self.layers):
            x, seen = layer(x, state.past[index] if state.past else None, causal, index, state)
            past.append(seen)
        return self.norm(x), past

    def hidden(self, tokens: Tensor, state: TransformerState) -> Tensor:
        """Output of the last layer for tokens (N, U) that begin with ``<sos/eos>``: (N, U, d)."""
        size = tokens.size(1)
        causal = torch.ones(size, size, dtype=torch.bool, device=tokens.device).tril()
        return self._run(tokens, state, causal)[0]

    def forward(self, tokens: Tensor, state: TransformerState) -> Tensor:
        """Teacher forcing: tokens (N, U) -> float32 log-probabilities of the next (N, U, V)."""
        return self.out(self.hidden(tokens, state)).float().log_softmax(dim=-1)

    def step(self, tokens: Tensor, state: TransformerState) -> Tuple[Tensor, TransformerState]:
        """One more token a row, (R,) -> log-probabilities of the next (R, V) and the new state."""
        x, past = self._run(tokens.unsqueeze(1), state, None)
        log_probs = self.out(x[:, -1]).float().log_softmax(dim=-1)
        return log_probs, replace(state, past=past, position=state.position + 1)


def build_decoder(config: ModelConfig) -> nn.Module:
    """The decoder of the config; with a word memory, that one around it."""
    decoder = _build_baseline(config)
    if config.memory == "none":
        return decoder
    from icefall_ctx.models.memory import MemoryDecoder

    return MemoryDecoder(decoder, config)


def _build_baseline(config: ModelConfig) -> nn.Module:
    if config.decoder == "lstm":
        from icefall_ctx.models.lstm import LstmDecoder

        return LstmDecoder(config)
    return TransformerDecoder(config)
