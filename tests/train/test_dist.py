"""Processes of a run end with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = """
import os, sys, time
from icefall_ctx.train.dist import launch

def work(folder):
    with open(f"{folder}/{os.environ['RANK']}.tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, f"{folder}/{os.environ['RANK']}.pid")
    time.sleep(600)

if __name__ == "__main__":
    launch(work, (sys.argv[1],), 2)
"""


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of it for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds: float) -> bool:
    end = time.time() + seconds
    while not condition() and time.time() < end:
        time.sleep(0.1)
    return condition()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses prctl and /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_a_run_in_the_background(tmp_path, how):
    """A shell lets what it starts in the background ignore SIGINT."""
    script = tmp_path / "run.py"
    script.write_text(RUN)
    run = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    pids = [tmp_path / f"{rank}.pid" for rank in range(2)]
    try:
        assert wait_until(lambda: all(path.exists() for path in pids), 120)
    finally:
        run.send_signal(how)
        run.wait()
    numbers = [int(path.read_text()) for path in pids]
    try:
        assert wait_until(lambda: not any(map(is_running, numbers)), 20)
    finally:
        for pid in filter(is_running, numbers):
            os.kill(pid, signal.SIGKILL)
