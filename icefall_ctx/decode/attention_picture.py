"""Attention of the decoder as pictures: two models side by side, tokens on both axes."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

import torch
from lhotse.cut import Cut
from torch import Tensor

from icefall_ctx.data.batch import TokenHistory
from icefall_ctx.data.history import link_of
from icefall_ctx.decode.live import LiveSession
from icefall_ctx.decode.run import Experiment
from icefall_ctx.errors import InputError
from icefall_ctx.files import write_picture
from icefall_ctx.models.asr import AsrModel, decoder_input
from icefall_ctx.models.attention import MultiHead
from icefall_ctx.text.tokenizer import Tokenizer

LAYER, HEAD = 3, 1  # counted from 1, as in the paper
FULL_CELLS = 24  # up to so many tokens an axis names every one


@dataclass(frozen=True)
class AttentionMap:
    """Attributes:
    title: what is shown.
    weights: (U, K), every row sums to one, or to zero where there is nothing to attend to.
    rows, columns: U and K labels.
    """

    title: str
    weights: Tensor
    rows: List[str]
    columns: List[str]


@dataclass(frozen=True)
class Heard:
    """A turn as a model heard it, with what it read before.

    Attributes:
      encoder_out: (1, T', d).
      encoder_lens: (1,).
      history: of the turn, or None.
      tokens: the hypothesis.
    """

    encoder_out: Tensor
    encoder_lens: Tensor
    history: Optional[TokenHistory]
    tokens: List[int]


def hear(experiment: Experiment, turns: Sequence[Cut]) -> Heard:
    """Recognise a conversation up to the last of ``turns`` and keep what that one was made of."""
    call = LiveSession(experiment, turns[0].sampling_rate, link_of(turns[0], "conv_id"))
    for cut in turns[:-1]:
        call.turn(cut)
    features = call.features(turns[-1])
    if features is None:
        raise InputError(f"{turns[-1].id}: is too short to look at")
    speaker = turns[-1].supervisions[0].speaker or ""
    batch = call.batch(features, speaker, call.speaker_vector(turns[-1]))
    recogniser = experiment.recogniser
    earlier = [recogniser.history_of(call.session, speaker)]
    with torch.no_grad():  # with a copy: encoding changes what a session remembers
        encoded = recogniser.encode(batch, [copy(call.session)])
    [nbest] = recogniser.recognise(batch, [call.session], earlier)
    history = recogniser.token_history(batch, earlier)
    return Heard(encoded.out, encoded.lens, history, nbest[0].tokens)


@torch.no_grad()
def attention_maps(
    model: AsrModel,
    tokenizer: Tokenizer,
    heard: Heard,
    tokens: Sequence[int],
    layer: int = LAYER,
    head: int = HEAD,
) -> List[AttentionMap]:
    """Self-attention of one decoder head over ``tokens``, and what the model has beside it.

    A conditional decoder adds the attention of its input to the history (its only head), history
    attention that of the same layer and head.

    Args:
      tokens: ids without ``<sos/eos>``, teacher-forced.
      layer, head: from 1; the last layer stands in for one that the model lacks.

    Raises:
      InputError: not a Transformer decoder, or a head that it lacks.
    """
    decoder = model.decoder
    if not hasattr(decoder, "layers") or not hasattr(decoder, "conditional"):
        raise InputError("attention pictures need a model with --decoder transformer, no memory")
    if not 1 <= head <= model.config.heads or layer < 1:
        raise InputError(f"layer {layer}, head {head}: the model has {model.config.heads} heads")
    index = min(layer, len(decoder.layers)) - 1
    block = decoder.layers[index]
    ids = decoder_input(torch.tensor([list(tokens)], dtype=torch.long))
    ids = ids.to(heard.encoder_out.device)
    state = decoder.prepare(heard.encoder_out, heard.encoder_lens, heard.history)
    with watching(block.self_attention, *([block.history.attention] if block.history else [])):
        decoder(ids, state)
    rows = token_labels(tokenizer, ids[0].tolist())
    name = f"layer {index + 1}, head {head}"
    own = block.self_attention.weights[0, head - 1].cpu()
    maps = [AttentionMap(f"self-attention, {name}", own, rows, rows)]
    if heard.history is None or not bool(heard.history.has_history):
        return maps
    if decoder.conditional is not None:
        maps.append(_conditional_map(decoder, ids, state, heard.history, tokenizer, rows))
    if block.history is not None:
        weights = block.history.attention.weights[0, head - 1].cpu()
        kept = heard.history.mask[0].flatten().cpu()
        columns = token_labels(tokenizer, heard.history.tokens[0].flatten().cpu()[kept].tolist())
        maps.append(AttentionMap(f"history attention, {name}", weights[:, kept], rows, columns))
    return maps


@contextmanager
def watching(*attentions: MultiHead) -> Iterator[None]:
    """Their weights are kept inside the block."""
    for attention in attentions:
        attention.keep_weights = True
    try:
        yield
    finally:
        for attention in attentions:
            attention.keep_weights = False


def _conditional_map(decoder, ids, state, history, tokenizer, rows) -> AttentionMap:
    """What the last step of A3 reads: its memory has the places of the newest sentence."""
    conditional = decoder.conditional
    x = decoder.embedding(ids) * conditional.scale
    kept = state.conditional.mask[0].cpu()
    weights = conditional.weights(x, state.conditional)[0].cpu()[:, kept]
    newest = history.tokens[0, -1].cpu()[kept].tolist()
    return AttentionMap(
        "conditional input, previous sentence", weights, rows, token_labels(tokenizer, newest)
    )


def token_labels(tokenizer: Tokenizer, ids: Sequence[int]) -> List[str]:
    """The pieces, with ``_`` where a word begins in place of a sign that fonts may lack."""
    return [tokenizer.pieces[i].replace("\u2581", "_") for i in ids]


def compare_attention(
    experiments: Sequence[Experiment],
    turns: Sequence[Cut],
    tokens: Optional[Sequence[int]] = None,
    layer: int = LAYER,
    head: int = HEAD,
) -> List[List[AttentionMap]]:
    """The maps of each model for the last of ``turns``, over the same tokens.

    Args:
      tokens: what to look at; default, the hypothesis of the last model.

    Raises:
      InputError: models of different vocabularies.
    """
    if len({experiment.tokenizer.fingerprint for experiment in experiments}) > 1:
        raise InputError("the models have different vocabularies; train them with one tokenizer")
    heard = [hear(experiment, turns) for experiment in experiments]
    chosen = heard[-1].tokens if tokens is None else tokens
    return [
        attention_maps(e.recogniser.model, e.tokenizer, h, chosen, layer, head)
        for e, h in zip(experiments, heard)
    ]


def plot_attention(
    maps: Sequence[Sequence[AttentionMap]], names: Sequence[str], path: Path, title: str = ""
) -> None:
    """Write a PNG file, the maps of all models in one row."""
    from matplotlib.figure import Figure

    panels = [(name, shown) for name, row in zip(names, maps) for shown in row]
    figure = Figure(figsize=(5 * len(panels), 5))
    for number, (name, shown) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), number)
        image = axes.imshow(
            shown.weights.numpy(), cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto"
        )
        figure.colorbar(image, ax=axes, fraction=0.046).set_label("weight", fontsize=8)
        axes.set_title(f"{name}\n{shown.title}", fontsize=10)
        axes.set_ylabel("token of this turn", fontsize=8)
        axes.set_xlabel("token attended to", fontsize=8)
        _ticks(axes.set_xticks, axes.set_xticklabels, shown.columns, rotation=90)
        _ticks(axes.set_yticks, axes.set_yticklabels, shown.rows, rotation=0)
    if title:
        figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    write_picture(path, figure)


def _ticks(set_places, set_labels, labels: Sequence[str], rotation: int) -> None:
    step = 1 + len(labels) // FULL_CELLS
    set_places(range(0, len(labels), step))
    set_labels(labels[::step], rotation=rotation, fontsize=7)
