"""Several training processes: one machine with ``--world-size``, or any number by torchrun.

Gradients are summed over the processes once an update and divided by the utterances that all
of them saw.  Averaging batch by batch, as ``DistributedDataParallel`` does, would weigh an
utterance by the size of the batch it happens to be in, and would need every parameter in every
batch; here the result is the gradient of one process that saw all batches, also if a process
skipped one, had none left, or had no history in it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any, Callable, List, Sequence

import torch
from torch import Tensor, nn

from icefall_ctx.errors import InputError

PR_SET_PDEATHSIG = 1  # of Linux's prctl


@dataclass(frozen=True)
class Process:
    """Which of how many processes this is, and its device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def is_main(self) -> bool:
        return self.rank == 0


def started_by_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def this_process() -> Process:
    """Join the other processes, if there are any (environment variables of torchrun)."""
    rank = int(os.environ.get("RANK", 0))
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if world_size > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Process(rank, world_size, device)


def leave() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _end_with_parent() -> None:
    """Let this process end when the one that started it does, however that ends.

    ``torch.multiprocessing.spawn`` asks for SIGINT, which a run in the background ignores: its
    processes would train on, and write, after the run was killed.  Linux only.
    """
    if sys.platform.startswith("linux"):
        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before we asked
            sys.exit(1)


def _run_as(local_rank: int, world_size: int, port: int, function: Callable, args: Sequence[Any]):
    _end_with_parent()
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(local_rank),
        LOCAL_RANK=str(local_rank),
        WORLD_SIZE=str(world_size),
    )
    function(*args)


def launch(function: Callable, args: Sequence[Any], world_size: int) -> None:
    """Run ``function(*args)`` in ``world_size`` processes; here if there is only one.

    ``function`` is importable and calls :func:`this_process`.  Under torchrun it runs as is.
    """
    if world_size < 1:
        raise InputError(f"--world-size {world_size} is less than 1")
    if world_size == 1 or started_by_torchrun():
        function(*args)
        return
    devices = torch.cuda.device_count()
    if 0 < devices < world_size:
        raise InputError(f"--world-size {world_size} is more than the {devices} CUDA devices")
    torch.multiprocessing.spawn(
        _run_as, (world_size, _free_port(), function, args), nprocs=world_size
    )


def sum_over_processes(tensor: Tensor, world_size: int) -> Tensor:
    """In place."""
    if world_size > 1:
        torch.distributed.all_reduce(tensor)
    return tensor


def reduce_gradients(
    parameters: Sequence[nn.Parameter], utterances: float, process: Process
) -> float:
    """Turn sums of gradients into the mean over the utterances of all processes.

    Args:
      parameters: with the gradient of this process's summed loss; None where it has none.
      utterances: in that sum.

    Returns:
      The number of utterances of all processes.  A parameter that no process used keeps None.
    """
    used = [float(p.grad is not None) for p in parameters]
    counts = torch.tensor([float(utterances)] + used, dtype=torch.float64, device=process.device)
    total, *used = sum_over_processes(counts, process.world_size).tolist()
    chosen = [p for p, n in zip(parameters, used) if n]
    for p in chosen:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    gradients: List[Tensor] = [p.grad for p in chosen]
    if process.world_size > 1 and gradients:
        flat = torch.cat([g.flatten() for g in gradients])
        sum_over_processes(flat, process.world_size)
        for g, part in zip(gradients, flat.split([g.numel() for g in gradients])):
            g.copy_(part.view_as(g))
    if total:
        for g in gradients:
            g.div_(total)
    return total


def broadcast_buffers(model: nn.Module, process: Process) -> None:
    """Give every process the running statistics of the first, which are those that are saved."""
    if process.world_size > 1:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, src=0)
