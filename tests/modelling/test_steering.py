"""Which launches no number in memory steers (steering.py), of kernels that hide the way from a load to a branch."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
from traced_program import traced_program

from cudamaster.build.building import Builder
from cudamaster.core.values import Candidate, Precision
from cudamaster.devices.cpu import steering
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cpu.instructions import code_of
from cudamaster.modelling import tracing
from cudamaster.modelling.verdicts import chosen_gpu
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region

KERNELS = re.findall(
    r"^(?:KERNEL\(|__global__ void )(\w+)\(?", Path(__file__).with_name("steering.cu").read_text(), re.M
)


@pytest.fixture(scope="session")
def unsteered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Of each kernel of steering.cu, whether nothing in memory steers it."""
    code = code_of(traced_program(tmp_path_factory, "steering.cu"))
    launched = {place: name for place, name in code.functions.items() if steering.launches(name)}
    return {
        kernel: place in code.unsteered
        for kernel in KERNELS
        for place, name in launched.items()
        if f"{len('launch_' + kernel)}launch_{kernel}" in name
    }


@pytest.mark.slow
def test_every_kernel_is_looked_at(unsteered: dict[str, bool]) -> None:
    assert len(KERNELS) > 80
    assert set(unsteered) == set(KERNELS)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_is_steered_by_what_it_is_named_after(unsteered: dict[str, bool], kernel: str) -> None:
    assert unsteered[kernel] == kernel.startswith("plain")


def test_what_is_said_of_launches_is_tried_before_it_is_believed() -> None:
    """Without inputs rows have no entries. Said to be unsteered, its first case shows otherwise, counted in full."""
    card, device = cards.load("spmv_csr"), CpuDevice()
    builder = Builder(card, Precision.FP32, device)
    candidate = Candidate(card.name, Precision.FP32, baseline_region(card, Precision.FP32), device.default_command)
    labels = [case.label for case in card.cases if case.sweep][:2]
    worker = builder.traced_worker(candidate, read=tracing.prepare).worker
    assert worker is not None
    count = partial(tracing.trace, device, builder.judge(), worker, labels, wanted=chosen_gpu(), seed=1)
    assert not tracing._seems_unsteered(worker)
    right = count()
    said = tracing._kept(worker)
    before = said.read_text()
    code = tracing._code_of(worker)
    try:
        said.write_text(before.replace(json.dumps(code.unsteered), json.dumps(list(code.functions)), 1))
        assert tracing._seems_unsteered(worker)
        assert count() == right
    finally:
        said.write_text(before)
