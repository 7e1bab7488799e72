"""What needs no cluster: commands without Ray, wrong addresses, and what a task is as a parcel."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cudamaster.cluster import ray_calls
from cudamaster.cluster.fleet import Fleet, Station
from cudamaster.cluster.messages import Description, Message
from cudamaster.cluster.parcel import packed, unpacked
from cudamaster.cluster.retrying import Retrying
from cudamaster.core.errors import DeviceError, UsageError
from cudamaster.core.values import Hardware, Precision
from cudamaster.tasks import cards


def told(*arguments: str, before: str = "") -> tuple[int, str]:
    """The exit code of a command and what it says, with `before` run first in its process."""
    script = f"{before}import sys; from cudamaster.cli import main; sys.argv[1:] = {list(arguments)!r}; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_it_says_what_to_install() -> None:
    missing = "import sys; sys.modules['ray'] = None; "
    code, said = told("optimize", "relu", "--device", "cpu", "--ray", before=missing)
    assert code == 2
    assert "pip install 'cudamaster[ray]'" in said


@pytest.mark.parametrize("address", ["relu", "ray://localhost:10001", "localhost", "a/b:6379"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is no address of a cluster's head node"):
        ray_calls.connect(address)


def test_a_head_that_does_not_answer_is_said_at_once() -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        port = taken.getsockname()[1]
        with pytest.raises(DeviceError, match=f"No Ray cluster answers at 127.0.0.1:{port}: Connection refused"):
            ray_calls.connect(f"127.0.0.1:{port}")


def test_ray_is_loaded_for_its_option_alone() -> None:
    script = (
        "import sys, cudamaster.cli.suite, cudamaster.cli.optimize, cudamaster.cli.audit, cudamaster.cluster.fleet, "
        "cudamaster.cluster.workbench; print('ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_task_is_the_same_after_its_way() -> None:
    """Card, baseline and reference, of shipped tasks and of a user's own."""
    for name in ("relu", "spmv_csr", "hgemm_tn_fp32_512x512x512", "examples/axpby/tasks/axpby.yaml"):
        card = cards.load(name)
        for precision in card.precisions:
            there = unpacked(packed(card, precision))
            assert there.hash == card.hash
            assert there.shipped == card.shipped
            assert there.baseline(precision) == card.baseline(precision)
            assert there.reference() == card.reference()
            assert there.declaration(precision) == card.declaration(precision)
    assert there.folder != card.folder


def test_a_reference_takes_its_headers_with_it(tmp_path: Path) -> None:
    shutil.copytree("examples/axpby", tmp_path / "own")
    reference = tmp_path / "own" / "reference" / "axpby.h"
    reference.write_text(f'#include "parts/one.h"\n#include "mskb/expected.h"\n{reference.read_text()}')
    (reference.parent / "parts").mkdir()
    (reference.parent / "parts" / "one.h").write_text('#include "../two.h"\n')
    (reference.parent / "two.h").write_text("#pragma once\n")
    (reference.parent / "not_included.h").write_text("#pragma once\n")
    card = cards.load(str(tmp_path / "own" / "tasks" / "axpby.yaml"))
    assert sorted(packed(card, Precision.FP32).files) == [
        "fp32/axpby.cu", "reference/axpby.h", "reference/parts/one.h", "reference/two.h",
    ]  # fmt: skip


def station(node: str, gpu: str, **figures: str) -> Station:
    """A station that is never asked anything."""
    hardware = Hardware(gpu, figures, emulated=False)
    about = Description("", "", "cuda", f"GPU-{node}", hardware, "nvcc", emulated=False, cores=4, gpu=None)
    return Station(None, node, about)


def test_work_moves_to_a_gpu_of_the_same_model_alone() -> None:
    first, other = station("a", "NVIDIA H100", driver="580"), station("b", "NVIDIA H200")
    same = station("c", "NVIDIA H100", driver="590")
    same.calls = 9  # the busier one
    fleet = Fleet("cuda", [first, other, same], [], [], "10.0.0.5:6379")
    lines: list[str] = []
    work = Retrying(fleet, "relu (fp32)", first, lines.append)
    fleet.leave_out(first, "its disk is full")
    work._move((), "its disk is full")
    assert work.station is same
    assert len(lines) == 1
    assert lines[0].startswith("relu (fp32) continues on c (NVIDIA H100, GPU-c) instead of a (NVIDIA H100, GPU-a), ")
    assert lines[0].endswith("which is left out: its disk is full. It has driver 590 instead of 580.")
    fleet.leave_out(same, "its process or its node ended")
    with pytest.raises(DeviceError, match="No node of the cluster with NVIDIA H100 is left"):
        fleet.choose(first.kind)
    assert fleet.choose() is other


def test_what_ends_three_nodes_is_not_tried_on_a_fourth(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def messages(_actor: object, _method: str, *_arguments: object) -> list[Message]:
        tried.append("a node")
        raise ray_calls.Lost("its process or its node ended")

    monkeypatch.setattr(ray_calls, "messages", messages)
    fleet = Fleet("cuda", [station(name, "NVIDIA H100") for name in "abcd"], [], [], "10.0.0.5:6379")
    work = Retrying(fleet, "relu (fp32)", fleet.choose(), lambda _: None)
    with pytest.raises(DeviceError, match="3 times a node was lost that worked on relu"):
        work.do(lambda _: None, "work")
    assert len(tried) == 3
