"""The word memory (paper B): a memory decoder beside any baseline decoder, gate and mixture.

A list of words becomes rows of a memory.  A second decoder looks into it; a gate mixes its
probabilities with those of the baseline:

    P = g P_baseline + (1 - g) P_memory                                            (B3)

The list can change between two utterances; nothing is trained again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import ModelConfig
from icefall_ctx.data.batch import TokenHistory, length_mask
from icefall_ctx.models.decoder import TransformerDecoderLayer, TransformerState, regroup
from icefall_ctx.models.memory_attention import EntryEmbedding, MemoryAttention, MemoryEncoder
from icefall_ctx.models.memory_entries import DUMMY, EncodedMemory, EntryTokens, MemoryScores

SMALLEST = 1e-12  # of a mixed probability
GATE_START = 4.0  # g starts at sigmoid(-2) without and sigmoid(2) with all probability on dummies


class MemoryBlock(nn.Module):
    """A Transformer decoder layer and memory attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layer = TransformerDecoderLayer(replace(config, text_context="none"))
        self.memory = MemoryAttention(config)


@dataclass
class MemoryState:
    """Attributes:
    baseline: state of the baseline decoder.
    own: audio and past of the memory decoder; None where the memory is empty.
    memory: what it reads; None where the memory is empty.
    reading: after a step, the rows whose last block chose an entry, (R,); else None.
    """

    baseline: Any
    own: Optional[TransformerState] = None
    memory: Optional[EncodedMemory] = None
    reading: Optional[Tensor] = None

    def select(self, rows: Tensor) -> "MemoryState":
        """Rows (M,) of the current R rows; see :func:`~icefall_ctx.models.decoder.regroup`."""
        baseline = self.baseline.select(rows)
        if self.own is None:
            return MemoryState(baseline)
        utterances, _ = regroup(rows, self.own.beam)
        return MemoryState(baseline, self.own.select(rows), self.memory.select(utterances))


@dataclass
class MemoryOutput:
    """Both decoders, and what the memory decoder looked at.

    Attributes:
      baseline, memory: log-probabilities (R, U, V).
      gate: g (R, U, 1), the weight of the baseline.
      scores: of every block.
    """

    baseline: Tensor
    memory: Tensor
    gate: Tensor
    scores: List[MemoryScores]

    @property
    def log_probs(self) -> Tensor:
        """Logarithm of the mixture (B3), (R, U, V)."""
        return mix(self.gate, self.baseline.exp(), self.memory.exp())


def mix(gate: Tensor, baseline: Tensor, memory: Tensor) -> Tensor:
    """``log(g P_baseline + (1 - g) P_memory)``, float32, clamped at 1e-12."""
    return (gate * baseline + (1 - gate) * memory).clamp(min=SMALLEST).log()


class MemoryDecoder(nn.Module):
    """A baseline decoder with a word memory beside it, behind the decoder interface.

    With an empty memory only the baseline runs, and the result is its result, bit for bit.

    Args:
      baseline: any decoder of the interface; it can be frozen, or another one take its place
        after training.
      config: ``memory`` is ``mem`` or ``2mem``.
    """

    def __init__(self, baseline: nn.Module, config: ModelConfig) -> None:
        super().__init__()
        self.baseline = baseline
        self.vocab_size = config.vocab_size
        self.two_step = config.memory == "2mem"
        self.embed = EntryEmbedding(config)
        self.encoder = MemoryEncoder(config)
        self.dummy = nn.Parameter(torch.randn(config.dim))
        self.blocks = nn.ModuleList(
            MemoryBlock(config) for _ in range(config.memory_decoder_layers)
        )
        self.norm = nn.LayerNorm(config.dim)
        self.out = nn.Linear(config.dim, config.vocab_size)
        self.gate = nn.Linear(len(self.blocks), 1)
        nn.init.constant_(self.gate.weight, GATE_START / len(self.blocks))
        nn.init.constant_(self.gate.bias, -GATE_START / 2)

    # ------------------------------------------------------------------ the memory

    def encode(self, entries: EntryTokens) -> EncodedMemory:
        """The memory of a batch in which every utterance has the same list, of L >= 1 entries."""
        mask = entries.mask
        encoded, summed = self.encoder(self.embed(entries.tokens), mask)
        keys, values = self.project(torch.cat([self.dummy.unsqueeze(0), summed]))
        lens = nn.functional.pad(entries.lens, (1, 0))
        return EncodedMemory(
            keys=keys,
            values=values,
            tokens=entries.tokens[mask],
            encoded=encoded[mask],
            starts=lens.cumsum(0) - lens,
            lens=lens,
        )

    def project(self, entries: Tensor) -> Tuple[List[Tensor], List[Tensor]]:
        """Keys and, in MEM, values of every block from rows (J, d)."""
        attentions = [block.memory for block in self.blocks]
        values = [] if self.two_step else [a.value(entries) for a in attentions]
        return [a.keys(entries) for a in attentions], values

    # ------------------------------------------------------------------ the interface

    def prepare(
        self,
        encoder_out: Tensor,
        encoder_lens: Tensor,
        history: Optional[TokenHistory] = None,
        memory: Optional[EncodedMemory] = None,
        audio: Optional[Tuple[Tensor, Tensor]] = None,
    ) -> MemoryState:
        """Everything that depends on the utterance.

        Args:
          memory: what can be read; None for an empty memory.
          audio: encoder output and lengths for the memory decoder, where the baseline has an
            encoder of its own.
        """
        baseline = self.baseline.prepare(encoder_out, encoder_lens, history)
        if memory is None:
            return MemoryState(baseline)
        out, lens = (encoder_out, encoder_lens) if audio is None else audio
        own = TransformerState(
            audio=[block.layer.audio_attention.keys_values(out) for block in self.blocks],
            audio_mask=length_mask(lens, out.size(1))[:, None, None, :],
        )
        return MemoryState(baseline, own, memory)

    def _run(
        self, tokens: Tensor, state: MemoryState, causal: Optional[Tensor], choice: Optional[Tensor]
    ):
        """Hidden (R, U, d), the scores of every block, and the memory decoder's next state."""
        own, memory = state.own, state.memory
        x = self.embed(tokens, own.position)
        past, found, columns = [], [], None
        for index, block in enumerate(self.blocks):
            before = own.past[index] if own.past else None
            x, seen = block.layer(x, before, causal, index, own)
            past.append(seen)
            last = found[-1] if found else None
            scores = block.memory.scores(x, memory, index, last, columns)
            x = block.memory(x, scores, memory, index, self.embed, choice)
            found.append(scores)
            if index == 0:
                columns = scores.best_columns(own.audio_mask.size(0), memory.preselect)
        return self.norm(x), found, replace(own, past=past, position=own.position + tokens.size(1))

    def gate_of(self, scores: List[MemoryScores], state: MemoryState) -> Tensor:
        """``g = sigmoid(w . [p_1(dummy), ..., p_M(dummy)] + b)``, (R, U, 1); 1 for utterances
        without any entry.  The probabilities carry no gradient."""
        dummies = torch.stack([s.dummy_probability.detach() for s in scores], dim=-1)
        gate = torch.sigmoid(self.gate(dummies).float())
        if state.memory.present is None:
            return gate
        present = state.memory.present.repeat_interleave(state.own.beam).view(-1, 1, 1)
        return gate.masked_fill(~present, 1.0)

    def mixture(
        self, tokens: Tensor, state: MemoryState, choice: Optional[Tensor] = None
    ) -> MemoryOutput:
        """Teacher forcing with everything that the loss, or a trace, looks at.

        Args:
          tokens: (N, U) that begin with ``<sos/eos>``.
          state: of a memory that is not empty.
          choice: (N, U) entries that 2MEM reads instead of its own choice.
        """
        size = tokens.size(1)
        causal = torch.ones(size, size, dtype=torch.bool, device=tokens.device).tril()
        hidden, scores, _ = self._run(tokens, state, causal, choice)
        memory = self.out(hidden).float().log_softmax(dim=-1)
        baseline = self.baseline(tokens, state.baseline)
        return MemoryOutput(baseline, memory, self.gate_of(scores, state), scores)

    def forward(self, tokens: Tensor, state: MemoryState) -> Tensor:
        """Teacher forcing: tokens (N, U) -> float32 log-probabilities of the next (N, U, V)."""
        if state.own is None:
            return self.baseline(tokens, state.baseline)
        return self._mixed(self.mixture(tokens, state), state)

    def step(self, tokens: Tensor, state: MemoryState) -> Tuple[Tensor, MemoryState]:
        """One more token a row, (R,) -> log-probabilities of the next (R, V) and the new state."""
        baseline, baseline_state = self.baseline.step(tokens, state.baseline)
        if state.own is None:
            return baseline, MemoryState(baseline_state)
        hidden, scores, own = self._run(tokens.unsqueeze(1), state, None, None)
        memory = self.out(hidden).float().log_softmax(dim=-1)
        output = MemoryOutput(baseline.unsqueeze(1), memory, self.gate_of(scores, state), scores)
        log_probs = self._mixed(output, state)[:, 0]
        reading = scores[-1].choice()[:, 0] != DUMMY
        return log_probs, MemoryState(baseline_state, own, state.memory, reading)

    @staticmethod
    def _mixed(output: MemoryOutput, state: MemoryState) -> Tensor:
        """The mixture; for utterances without any entry exactly the baseline."""
        mixed, present = output.log_probs, state.memory.present
        if present is None:
            return mixed
        present = present.repeat_interleave(state.own.beam).view(-1, 1, 1)
        return torch.where(present, mixed, output.baseline)

    # ------------------------------------------------------------------ start of training

    def start_from_baseline(self) -> None:
        """Copy what the baseline has learnt of the same shape: embedding, layers, output.

        With a baseline of fewer blocks than M some layers are used twice; of more, the last M.
        An LSTM baseline gives its embedding and output only.
        """
        copy_matching(self.baseline.embedding, self.embed.table)
        copy_matching(self.baseline.out, self.out)
        layers = getattr(self.baseline, "layers", None)
        if layers is None:
            return
        depth, blocks = len(layers), len(self.blocks)
        for index, block in enumerate(self.blocks):
            source = depth - blocks + index if depth >= blocks else index * depth // blocks
            copy_matching(layers[source], block.layer)
        if isinstance(self.baseline.norm, nn.LayerNorm):
            copy_matching(self.baseline.norm, self.norm)


def copy_matching(source: nn.Module, target: nn.Module) -> None:
    """Copy the parameters that both have, with the same shape."""
    theirs = dict(source.named_parameters())
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            if name in theirs and theirs[name].shape == parameter.shape:
                parameter.copy_(theirs[name])
