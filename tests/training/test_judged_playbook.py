"""The playbook's kernels are judged once, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_cards import small_card

from cudamaster.core.errors import RunFolderError, UsageError
from cudamaster.core.folderlock import locked
from cudamaster.core.values import Precision
from cudamaster.devices.choose import choose
from cudamaster.training.collecting import read_kernels
from cudamaster.training.judged_playbook import FILE, chosen, judge
from cudamaster.training.kernels import JudgedKernel

TESTS = Path(__file__).parents[1]
# The process that is killed: it judges the same, and says when.
CHILD = """
import sys
from pathlib import Path
from small_cards import small_card
from cudamaster.core.values import Precision
from cudamaster.devices.choose import choose
from cudamaster.training.judged_playbook import judge
judge([(small_card("relu"), Precision.FP32)], choose("cpu"), Path(sys.argv[1]))
"""


def judged(folder: Path, told: list[str] | None = None) -> list[JudgedKernel]:
    found = judge(
        [(small_card("relu"), Precision.FP32)],
        choose("cpu"),
        folder,
        told=lambda what, done, of: None if told is None else told.append(f"{done + 1}/{of} {what}"),
    )
    assert found.unread == []
    assert found.hardware is not None
    return found.kernels


@pytest.mark.slow
def test_what_was_judged_before_a_kill_is_not_judged_again(tmp_path: Path) -> None:
    log = tmp_path / "data" / FILE
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(log.parent)],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while (not log.exists() or b"\n" not in log.read_bytes()) and time.monotonic() < until:
        assert child.poll() is None
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    first = read_kernels(log)
    assert [one.provenance.is_baseline for one in first] == [True]
    with log.open("ab") as file:
        file.write(b'{"candidate": {"task": "relu", "co')  # a line that a kill cut off
    told: list[str] = []
    kernels = judged(log.parent, told)
    assert told == ["2/2 relu (fp32): Move four elements per thread by 16-byte loads and stores"]
    assert kernels[:1] == first
    assert kernels == read_kernels(log)
    assert all(one.verdict.correct and one.gpu == "NVIDIA H200 (modelled)" for one in kernels)
    assert [one.provenance.author for one in kernels] == ["", "playbook"]
    lock = locked(log.parent)
    with pytest.raises(RunFolderError, match="Another process is working"):
        judged(log.parent, told)
    os.close(lock)
    log.write_text("nonsense\n")
    with pytest.raises(UsageError, match=r"judged\.jsonl is damaged"):
        judged(log.parent, told)
    assert len(told) == 1


def test_tasks_are_chosen_by_globs() -> None:
    pairs = chosen(["spmv_c*", "relu"], [Precision.BF16])
    assert {card.name for card, _ in pairs} == {"relu", "spmv_coo", "spmv_csc", "spmv_csr"}
    assert {precision for _, precision in pairs} == {Precision.BF16}
    assert len(chosen([], list(Precision))) == 100
    with pytest.raises(UsageError, match="Did you mean relu"):
        chosen(["rely"], [Precision.FP32])
