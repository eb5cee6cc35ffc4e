import os
import subprocess
import sys

import pytest

from icefall_ctx.cpu import fast_blas_on_amd

AMD = "vendor_id\t: AuthenticAMD\nflags\t\t: sse2 avx avx2 fma\n"


def on(tmp_path, monkeypatch, text, before=None):
    monkeypatch.delenv("MKL_DEBUG_CPU_TYPE", raising=False)
    if before is not None:
        monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", before)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text)
    return fast_blas_on_amd(cpuinfo), os.environ.get("MKL_DEBUG_CPU_TYPE")


def test_amd_with_avx2(tmp_path, monkeypatch):
    assert on(tmp_path, monkeypatch, AMD) == (True, "5")


def test_users_own_value_stays(tmp_path, monkeypatch):
    assert on(tmp_path, monkeypatch, AMD, before="4") == (True, "4")


def test_other_processors_are_left_alone(tmp_path, monkeypatch):
    intel = AMD.replace("AuthenticAMD", "GenuineIntel")
    assert on(tmp_path, monkeypatch, intel) == (False, None)
    assert on(tmp_path, monkeypatch, AMD.replace("avx2", "")) == (False, None)
    assert fast_blas_on_amd(tmp_path / "absent") is False


FAULTS = """
import resource, sys
import torch
from icefall_ctx.cpu import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    return [torch.ones(1 << 21) for _ in range(24)]  # 192 MB, freed together
for _ in range(3):
    step()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(4)))  # the heap may still grow by a block in some of them
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_freed_tensors_are_used_again():
    """The tensors of a step cost no page faults in the steps after it."""
    faults = {
        mode: int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True
            ).stdout
        )
        for mode in ("keep", "return")
    }
    assert faults["keep"] < 1000 < faults["return"], faults
