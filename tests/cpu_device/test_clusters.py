"""Clusters of several blocks: known answers, and kernels that wait too little, arrive too rarely or leave too early."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cudamaster.devices.cpu.rewrite import Unsupported, rewrite
from cudamaster.faults.cpu_checker import reports

KERNELS = Path(__file__).parent / "kernels"
CHECKS = ["pass-on", "give-away", "ring", "gather", "spread", "places", "limits", "polls", "with-the-grid"]


@pytest.fixture(scope="module")
def checked(build_checked):
    """The program under the checker."""
    return build_checked("clusters")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_known_answers(build, check, reversed_threads):
    """Distributed shared memory, remote atomics and arrivals, st.async, copies between blocks, multicast, shapes."""
    ran = build("clusters").run(check, reversed_threads=reversed_threads)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_known_answers_under_the_sanitizer(build, check):
    """The same where each shared variable is an allocation of its own, in each block."""
    ran = build("clusters", debug=True).run(check)
    assert ran.exit_code == 0, ran.stderr
    assert "AddressSanitizer" not in ran.stderr


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_honest_clusters_raise_nothing(checked, check, reversed_threads):
    """Barriers of the cluster, arrivals from afar and copies between blocks order what they order."""
    assert checked.found(check, reversed_threads=reversed_threads) == (set(), "")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("no-barrier", "unstarted"),
        ("no-barrier", "race"),
        ("no-wait", "race"),
        ("no-second-barrier", "race"),
        ("ends-unseen", "ended"),
    ],
)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_a_missing_barrier_of_a_cluster_is_found(checked, name, kind, reversed_threads):
    """At the beginning, between two uses, and at the end; whichever block runs first."""
    kinds, said = checked.found(name, reversed_threads=reversed_threads)
    assert kind in kinds, said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-last-barrier", "an access to the shared memory of a block of the cluster that has ended"),
        ("leaves-early", "a block of the cluster has ended while a copy out of its shared memory was on its way"),
        ("remote-as-own", "an address of another block's shared memory without .shared::cluster"),
        ("no-first-barrier", "an mbarrier that was not initialised"),
        ("an-arrival-too-few", "1 arrivals and 0 bytes are missing"),
        ("never", "no thread of the cluster can go on"),
        ("never", "block (0,0,0), thread (0,0,0), line 33: waits in barrier.cluster.wait for 32 of 64 threads"),
        ("never", "block (1,0,0), thread (0,0,0), line 59: waits at the mbarrier barrier for its phase of parity 0"),
        ("waits-afar", "a wait at an mbarrier of another block of the cluster"),
    ],
)
def test_a_cluster_that_cannot_go_on_says_why(build, name, words):
    """Shared memory of blocks that have ended, and waits that nobody will satisfy, end the cluster."""
    ran = build("clusters").run(name, limit_s=20)
    assert ran.exit_code != 0
    assert words in ran.stderr


@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_a_block_that_comes_back_from_the_grids_barrier_gets_its_turn(build, reversed_threads):
    """Also just when another one finds that it has nothing left to do: of thousands of times, none may be missed."""
    ran = build("clusters").run("by-turns", reversed_threads=reversed_threads, limit_s=40)
    assert (ran.exit_code, ran.expired) == (0, False), ran.stderr


@pytest.mark.parametrize("name", ["no-barrier", "no-wait"])
def test_without_its_barrier_a_cluster_is_wrong(build, name):
    """Blocks take turns, so a value that nobody has waited for is not there."""
    assert build("clusters").run(name).exit_code == 3


def test_what_is_missing_is_told_with_its_line(checked):
    """The read that may come too late, and what has to be behind it."""
    code = (KERNELS / "clusters.cu").read_text()
    told = [
        one for report in reports(checked.found("ends-unseen")[1], checked.executable, code) for one in report.findings
    ]
    assert [one.what for one in told] == [
        "Read of the shared variable mine of another block of the cluster, which may have ended: "
        "a barrier of the cluster is missing behind it"
    ]
    assert told[0].line is not None
    assert "*there" in code.splitlines()[told[0].line - 1]


def test_cluster_dims_need_the_body():
    """A declaration apart from the kernel is not understood; its lines stay where it is."""
    with pytest.raises(Unsupported, match="__cluster_dims__ away from the kernel's body, line 2"):
        rewrite("\n__global__ void __cluster_dims__(2) k(int*);\n__global__ void k(int*) {}\n")
    text = "__global__ void __cluster_dims__(2,\n 1, 1) k(int* p)\n{ *p = 1; }\n"
    assert "cluster_dims(2, 1, 1); *p = 1;" in rewrite(text).replace("  ", " ")
    assert rewrite(text).count("\n") == text.count("\n")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_program_is_cuda(tmp_path):
    """nvcc and ptxas take the same program."""
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = [
        "nvcc",
        "-std=c++17",
        target,
        "-rdc=true",
        "-cubin",
        "-o",
        str(tmp_path / "x"),
        str(KERNELS / "clusters.cu"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
