"""Which launches no number in memory steers (steering.py), of kernels that hide the way from a load to a branch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from traced_program import traced_program

from cudamaster.devices.cpu import steering
from cudamaster.devices.cpu.instructions import code_of

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


def test_every_kernel_is_looked_at(unsteered: dict[str, bool]) -> None:
    assert len(KERNELS) > 80
    assert set(unsteered) == set(KERNELS)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_is_steered_by_what_it_is_named_after(unsteered: dict[str, bool], kernel: str) -> None:
    assert unsteered[kernel] == kernel.startswith("plain")
