"""CPU settings that training and decoding on a CPU want."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
FIRST_PROCESSOR = 8192  # characters; the entry of one processor is shorter


def is_amd(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor is one of AMD's that can run AVX2 code; False where nobody can tell."""
    try:
        with cpuinfo.open(errors="replace") as file:
            text = file.read(FIRST_PROCESSOR)
    except OSError:  # not Linux
        return False
    return "AuthenticAMD" in text and "avx2" in text


def fast_blas_on_amd(cpuinfo: Path = CPUINFO) -> bool:
    """Let MKL use its AVX2 kernels on AMD processors.

    The MKL inside torch 1.13 takes its slowest kernels where the processor is not Intel's: matrix
    products were 3 to 4 times slower on an AMD EPYC.  MKL reads the variable at its first
    call, so this may follow ``import torch``.  Newer MKL ignores it.
    A value that is set already stays.

    Returns:
      Whether the processor is one for which the variable is (now) set.
    """
    if not is_amd(cpuinfo):
        return False
    os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    return True


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
MMAP_THRESHOLD = 32 << 20  # bytes; the most that glibc takes
TRIM_THRESHOLD = 1 << 30


def keep_freed_memory() -> bool:
    """Let freed tensors be used again instead of going back to the system.

    A training step frees all its activations at its end.  With glibc's defaults they are
    unmapped and faulted in again in every step: a sixth of the time of a small model on a
    virtual machine.

    Returns:
      Whether the C library took the settings: only glibc has them.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((M_MMAP_THRESHOLD, MMAP_THRESHOLD), (M_TRIM_THRESHOLD, TRIM_THRESHOLD))
    return all([mallopt(name, value) for name, value in settings])
