"""Asynchronous means of Hopper times mistakes that a run may forgive: each is named, and its right twin raises nothing.

Most of these give right numbers here, in this or in every order of threads. docs/promises.md has the table.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cudamaster.faults.cpu_checker import reports

SOURCE = Path(__file__).parent / "kernels" / "async_mistakes.cu"
# With what the checker calls each; where the executor ends the block, what that says.
MISTAKES = {
    "store_overwritten": "early",
    "store_barrier_before_wait": "early",
    "store_barrier_before_load": "race",
    "store_freed_too_early": "race",
    "store_one_group_left": "early",
    "store_without_commit": "early",
    "store_target_read": "early",
    "store_target_barrier_before": "early",
    "store_by_two_blocks": "race",
    "store_ticket_before_wait": "early",
    "box_overwritten": "early",
    "load_waits_elsewhere": "early",
    "load_one_warp_waits": "early",
    "load_half_expected": "early",
    "load_old_phase": "early",
    "load_announced_too_late": "race",
    "load_announced_behind_relaxed": "race",
    "load_tells_nothing_of_issuer": "race",
    "load_source_overwritten": "race",
    "load_left_at_end": "ends before a copy in bulk into its shared memory",
    "load_over_readers": "race",
    "load_freed_too_early": "race",
    "init_unknown_to_waiters": "race",
    "init_known_to_warp": "race",
    "init_unknown_to_arrivals": "race",
    "init_again": "race",
    "inval_too_early": "race",
    "barrier_overwritten": "race",
    "arrivals_of_others": "race",
    "copy_not_waited_for": "early",
    "copy_one_group_left": "early",
    "copy_barrier_before_wait": "early",
    "copy_over_readers": "race",
    "copy_source_overwritten": "race",
    "copy_source_of_next_group": "race",
    "copy_source_old_phase": "race",
    "copy_by_barrier_not_waited": "early",
    "copy_fenced_too_early": "unfenced",
    "copy_fenced_before_wait": "unfenced",
    "cluster_no_wait": "unstarted",
    "cluster_ends": "that has ended",
    "cluster_ends_before_arrival": "that has ended",
    "cluster_init_not_fenced": "race",
    "cluster_arrival_before_init": "unstarted",
    "sent_not_waited_for": "early",
    "sent_before_begin": "unstarted",
    "sent_before_last_read": "race",
    "sent_over_readers": "early",
    "multicast_waits_by_other": "early",
    "multicast_over_readers": "early",
    "multicast_into_ended": "that has ended",
    "product_barrier_before_wait": "early",
    "product_freed_too_early": "early",
    "product_freed_by_one_warp": "race",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_and_its_right_twin_is_not(build_checked, name):
    """Where threads run in their order: the order in which candidates are checked."""
    program = build_checked("async_mistakes")
    kinds, said = program.found(name, "wrong")
    assert MISTAKES[name] in kinds or MISTAKES[name] in said, said
    assert program.found(name, "right") == (set(), "")


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_the_same_in_reverse_order(build_checked, name):
    """By whichever name: another thread is the first to come."""
    program = build_checked("async_mistakes")
    assert program.run(name, "wrong", reversed_threads=True).exit_code != 0
    assert program.found(name, "right", reversed_threads=True) == (set(), "")


def test_all_of_the_program_is_tried():
    """No mistake is in the program alone."""
    assert set(re.findall(r"CASE\((\w+), \d", SOURCE.read_text())) | {"box_overwritten"} == set(MISTAKES)


def test_the_words_name_what_is_not_ordered(build_checked):
    """The wait of a copy, the init of an mbarrier, the announcement of bytes."""
    program = build_checked("async_mistakes")
    code = SOURCE.read_text()

    def told(name: str) -> tuple[str, list[str]]:
        found = [
            one for of in reports(program.found(name, "wrong")[1], program.executable, code) for one in of.findings
        ]
        lines = code.splitlines()
        return found[0].what, [lines[line - 1] for line in (found[0].line, found[0].other_line) if line]

    what, lines = told("store_freed_too_early")
    assert re.fullmatch(
        r"Race without a barrier between: write here, asynchronous read in line \d+, which lasts until its wait", what
    )
    assert "tile[t] = 2" in lines[0]
    assert "store(" in lines[1] or "cp.async.bulk.global" in lines[1]
    what, lines = told("init_known_to_warp")
    assert re.search(r"arrival here, init or inval in line \d+$", what)
    what, lines = told("load_announced_too_late")
    assert re.search(r"here, expect_tx in line \d+$", what)


def test_a_product_is_named_by_its_own_line(build_checked):
    """It is in a function that is called in another one, with what becomes of the product in a lambda."""
    program, code = build_checked("async_mistakes"), SOURCE.read_text()
    said = program.found("product_barrier_before_wait", "wrong")[1]
    lines = {one.other_line for of in reports(said, program.executable, code) for one in of.findings}
    assert lines
    for line in lines:
        assert "wgmma.mma_async" in "".join(code.splitlines()[line - 1 : line + 1])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_program_is_ptx(tmp_path):
    """nvcc and ptxas take it."""
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, "-cubin", "-o", str(tmp_path / "x"), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
