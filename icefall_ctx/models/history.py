"""What the decoder reads of earlier turns: conditional input (A3) and history attention (A3b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import ModelConfig
from icefall_ctx.data.batch import TokenHistory
from icefall_ctx.models.attention import MultiHead, PositionalEncoding, masked_softmax

MAX_SENTENCE_AGE = 16  # older sentences share the embedding of this age


@dataclass
class ConditionalMemory:
    """c_{n-1} of each utterance, attended to by every token of the current sentence.

    Attributes:
      c: (N, W, d).
      mask: (N, W), True at tokens.
    """

    c: Tensor
    mask: Tensor

    def select(self, utterances: Tensor) -> "ConditionalMemory":
        return ConditionalMemory(self.c[utterances], self.mask[utterances])


class ConditionalInput(nn.Module):
    """Decoder input of the conditional decoder (A3).

        c_0 = Embed(Y_{m-n})
        c_k = Embed(Y_{m-n+k}) + Linear(Attn(query = Embed(Y_{m-n+k}), key = value = c_{k-1}))

    One head without projections, one shared ``Linear(d, d)``.  An empty ``c_{k-1}`` contributes
    exactly zero.  The current sentence is the query of the last step, so every row depends on
    its own token and on the history only.
    """

    def __init__(self, dim: int, positions: bool = False) -> None:
        super().__init__()
        self.scale = dim**0.5  # embeddings have variance 1/d; c is kept at unit variance
        self.linear = nn.Linear(dim, dim)
        self.positions = PositionalEncoding(dim) if positions else None

    def weights(self, x: Tensor, memory: ConditionalMemory) -> Tensor:
        """Attention of x (N, U, d) to the tokens of the memory: (N, U, W)."""
        scores = torch.matmul(x, memory.c.transpose(1, 2)) * x.size(-1) ** -0.5
        return masked_softmax(scores, memory.mask.unsqueeze(1))

    def attend(self, x: Tensor, memory: ConditionalMemory) -> Tensor:
        """x (N, U, d) plus what it finds in memory: (N, U, d)."""
        found = torch.matmul(self.weights(x, memory), memory.c)
        any_history = memory.mask.any(dim=1).view(-1, 1, 1).to(x.dtype)
        return x + any_history * self.linear(found)

    def embed(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        x = embedding(tokens)
        return self.positions(x) if self.positions is not None else x * self.scale

    def prepare(self, history: TokenHistory, embedding: nn.Embedding) -> ConditionalMemory:
        """c_{n-1} from the sentences of the history."""
        mask = history.mask
        memory = ConditionalMemory(self.embed(history.tokens[:, 0], embedding), mask[:, 0])
        for k in range(1, history.tokens.size(1)):
            x = self.embed(history.tokens[:, k], embedding)
            memory = ConditionalMemory(self.attend(x, memory), mask[:, k])
        return memory

    def forward(self, x: Tensor, memory: Optional[ConditionalMemory], beam: int) -> Tensor:
        """c_n for embeddings x (R, U, d) of the current sentence, before scaling."""
        if memory is None:
            return x
        folded = (x * self.scale).view(-1, beam * x.size(1), x.size(2))
        return self.attend(folded, memory).view_as(x) / self.scale


@dataclass
class HistoryMemory:
    """Encoded history of each utterance, as keys and values of every decoder layer.

    Attributes:
      layers: keys and values (N, H, S * W, d_k).
      mask: (N, 1, 1, S * W).
      has_history: (N,).
    """

    layers: List[Tuple[Tensor, Tensor]]
    mask: Tensor
    has_history: Tensor

    def select(self, utterances: Tensor) -> "HistoryMemory":
        layers = [(key[utterances], value[utterances]) for key, value in self.layers]
        return HistoryMemory(layers, self.mask[utterances], self.has_history[utterances])


class HistoryEncoder(nn.Module):
    """Earlier sentences as one sequence (A3b).

        H = Encoder(Embed(tokens) + position + sentence age + same/other speaker)     (N, S W, d)
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.dim
        self.positions = PositionalEncoding(dim, config.dropout)
        self.age = nn.Embedding(MAX_SENTENCE_AGE, dim)
        self.same_speaker = nn.Embedding(2, dim)
        nn.init.normal_(self.age.weight, std=0.1)
        nn.init.normal_(self.same_speaker.weight, std=0.1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                dim, config.heads, config.ff_dim, config.dropout, batch_first=True, norm_first=True
            )
            for _ in range(config.history_layers)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, history: TokenHistory, embedding: nn.Embedding) -> Tensor:
        """-> (N, S * W, d); rows of padding are finite and are to be masked."""
        n, sentences, width = history.tokens.shape
        x = self.positions(embedding(history.tokens).view(n * sentences, width, -1))
        x = x.view(n, sentences, width, -1)
        ages = torch.arange(sentences - 1, -1, -1, device=x.device).clamp(max=MAX_SENTENCE_AGE - 1)
        x = x + self.age(ages).view(1, sentences, 1, -1)
        x = x + self.same_speaker(history.same_speaker.long()).unsqueeze(2)
        x = x.flatten(1, 2)
        padding = ~history.mask.flatten(1)
        # a history without any token may look at its padding: its output is gated away
        padding = padding & history.has_history.unsqueeze(1)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return self.norm(x)


GATE_START = 0.5  # g


class GatedHistoryAttention(nn.Module):
    """``x + has_history * tanh(g) * MultiHead(LN(x), H, H)``, shut at the start (A3b).

    It is the output projection of the attention that starts at zero and not ``g``: a baseline
    with history attention added computes what it did before, and learning opens it at once.
    With ``g = 0`` at the start the projections learn in a direction that turns round with every
    change of sign of ``g``, and a model that has little to gain stays shut for good.
    """

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = MultiHead(dim, heads, dropout)
        nn.init.zeros_(self.attention.out.weight)
        nn.init.zeros_(self.attention.out.bias)
        self.gate = nn.Parameter(torch.tensor(GATE_START))

    def keys_values(self, encoded: Tensor) -> Tuple[Tensor, Tensor]:
        return self.attention.keys_values(encoded)

    def forward(self, x: Tensor, memory: HistoryMemory, layer: int, beam: int) -> Tensor:
        """x (R, U, d) -> the same shape."""
        folded = self.norm(x).view(-1, beam * x.size(1), x.size(2))
        found = self.attention.attend(folded, *memory.layers[layer], memory.mask)
        found = found * memory.has_history.view(-1, 1, 1).to(x.dtype)
        return x + torch.tanh(self.gate) * found.view_as(x)
