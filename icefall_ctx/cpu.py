"""CPU settings that have to be made before the first matrix product."""

from __future__ import annotations

import os
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
FIRST_PROCESSOR = 8192  # characters; the entry of one processor is shorter


def fast_blas_on_amd(cpuinfo: Path = CPUINFO) -> bool:
    """Let MKL use its AVX2 kernels on AMD processors.

    The MKL inside torch 1.13 takes its slowest kernels where the processor is not Intel's: matrix
    products were 3 to 4 times slower on an AMD EPYC.  MKL reads the variable at its first
    call, so this may follow ``import torch``.  Newer MKL ignores it.  A value that is set already stays.

    Returns:
      Whether the processor is one for which the variable is (now) set.
    """
    try:
        with cpuinfo.open(errors="replace") as file:
            text = file.read(FIRST_PROCESSOR)
    except OSError:  # not Linux: nothing to repair
        return False
    if "AuthenticAMD" not in text or "avx2" not in text:
        return False
    os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    return True
