"""How well the vectors tell speakers apart: equal error rate, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from icefall_ctx.errors import InputError
from icefall_ctx.features.ivector.transforms import scatter
from icefall_ctx.files import write_picture


class EqualErrorRate(NamedTuple):
    """``rate`` in 0..1 at the score ``threshold``, and how many pairs it was measured on."""

    rate: float
    threshold: float
    num_same: int
    num_different: int

    def __str__(self) -> str:
        return (
            f"EER {100 * self.rate:.2f} % ({self.num_same} pairs of one speaker, "
            f"{self.num_different} of two)"
        )


def equal_error_rate(scores: Tensor, same: Tensor) -> EqualErrorRate:
    """Where misses equal false alarms; ``scores`` (P,) higher for ``same`` (P,) True.

    Equal scores are accepted or rejected together; between two thresholds the rates are
    interpolated linearly.
    """
    num_same, num_different = int(same.sum()), int((~same).sum())
    if not num_same or not num_different:
        raise InputError(
            f"{num_same} pairs of one speaker and {num_different} of two: both kinds are needed"
        )
    scores, order = scores.double().sort()
    same = same[order].double()
    last = torch.ones(len(scores), dtype=torch.bool)
    last[:-1] = scores[1:] != scores[:-1]
    miss = torch.cat([torch.zeros(1).double(), (same.cumsum(0) / num_same)[last]])
    rejected = torch.cat([torch.zeros(1).double(), ((1 - same).cumsum(0) / num_different)[last]])
    gap = miss - (1 - rejected)  # rises from -1 to 1
    above = int((gap >= 0).nonzero()[0, 0])
    below = above - 1
    part = float(-gap[below] / (gap[above] - gap[below]))
    rate = float(miss[below] + part * (miss[above] - miss[below]))
    return EqualErrorRate(rate, float(scores[last][below]), num_same, num_different)


def speaker_pairs(
    vectors: Tensor,
    speakers: Sequence[str],
    conversations: Optional[Sequence[str]] = None,
    max_vectors: int = 3000,
    seed: int = 0,
) -> Tuple[Tensor, Tensor]:
    """Cosine scores (P,) of pairs of ``vectors`` (N, R), and whether the speaker is the same.

    Args:
      conversations: of every vector.  With them no pair is of one conversation, whose line, noise
        and, in mode ``online``, very speech both vectors would share; without, all are compared.
      max_vectors: of more vectors a random choice is compared.
    """
    chosen = torch.arange(len(vectors))
    if len(vectors) > max_vectors:
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(vectors), generator=generator)[:max_vectors]
    unit = torch.nn.functional.normalize(vectors[chosen].double(), dim=1)
    rows, columns = torch.triu_indices(len(unit), len(unit), offset=1)
    label = _numbers(speakers)[chosen]
    scores, same = (unit @ unit.T)[rows, columns], label[rows] == label[columns]
    if conversations is None:
        return scores, same
    call = _numbers(conversations)[chosen]
    apart = call[rows] != call[columns]
    return scores[apart], same[apart]


def _numbers(names: Sequence[str]) -> Tensor:
    """(N,) equal where names are."""
    known = {name: number for number, name in enumerate(sorted(set(names)))}
    return torch.tensor([known[name] for name in names])


def speaker_error_rate(
    vectors: Tensor,
    speakers: Sequence[str],
    conversations: Optional[Sequence[str]] = None,
    **options,
) -> EqualErrorRate:
    """Equal error rate of cosine scoring over the pairs of :func:`speaker_pairs`."""
    return equal_error_rate(*speaker_pairs(vectors, speakers, conversations, **options))


def one_vector_a_speaker(vectors: Tensor, speakers: Sequence[str]) -> bool:
    """Whether several ``vectors`` (N, R) of a speaker are always one and the same, as in mode
    ``speaker``: then pairs of one speaker score 1 whatever the extractor does."""
    label = _numbers(speakers)
    means = torch.stack([vectors[label == k].mean(0) for k in range(int(label.max()) + 1)])
    apart = (vectors - means[label]).abs().max()
    return len(means) < len(vectors) and float(apart) <= 1e-3 * float(vectors.abs().max())


def averaged(
    vectors: Tensor, speakers: Sequence[str], conversations: Sequence[str]
) -> Tuple[Tensor, List[str], List[str]]:
    """The mean (M, R) of the vectors (N, R) that each speaker has in each conversation, with the
    speakers and the conversations (M,)."""
    rows: Dict[Tuple[str, str], List[int]] = {}
    for row, key in enumerate(zip(speakers, conversations)):
        rows.setdefault(key, []).append(row)
    means = torch.stack([vectors[chosen].mean(0) for chosen in rows.values()])
    return means, [speaker for speaker, _ in rows], [call for _, call in rows]


def projection(vectors: Tensor, speakers: Optional[Sequence[str]] = None) -> Tensor:
    """``(N, 2)``: the two directions of ``vectors`` (N, R) in which the speakers differ most.

    These are principal components of the speakers' means with three speakers or more, of the
    vectors themselves otherwise; one-dimensional vectors get a second coordinate of zero.
    """
    vectors = vectors.double()
    centred = vectors - vectors.mean(0)
    if speakers is not None and len(set(speakers)) > 2:
        covariance = scatter(vectors, speakers)[1]
    else:
        covariance = centred.T @ centred
    _, directions = torch.linalg.eigh(covariance)
    plane = centred @ directions.flip(1)[:, :2]
    return torch.nn.functional.pad(plane, (0, 2 - plane.shape[1]))


def draw(
    vectors: Tensor, speakers: Sequence[str], path: Union[str, Path], title: str = ""
) -> None:
    """Write a scatter plot of :func:`projection`, one colour a speaker, to ``path``."""
    from matplotlib.figure import Figure

    points = projection(vectors, speakers)
    figure = Figure(figsize=(7, 6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    names = sorted(set(speakers))
    for number, name in enumerate(names):
        mine = points[[k for k, s in enumerate(speakers) if s == name]]
        marker = "os^Dv*PX<>"[number // 10 % 10]  # ten colours, then another shape
        axes.scatter(mine[:, 0], mine[:, 1], s=14, alpha=0.7, marker=marker, label=name)
    if len(names) <= 30:
        place = dict(loc="center left", bbox_to_anchor=(1, 0.5)) if len(names) > 10 else {}
        axes.legend(fontsize="small", **place)
    axes.set(xlabel="first direction", ylabel="second direction", title=title)
    write_picture(path, figure)
