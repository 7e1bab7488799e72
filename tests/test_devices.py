"""What is asked of a device, and the places that name devices: a new one has to be added to the command line and to
`choose`, and to nothing that builds or judges."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cudamaster
from cudamaster import devices
from cudamaster.cli.options import device as option
from cudamaster.devices import choose
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.devices.nvcc import find_nvcc
from cudamaster.devices.protocol import Device, Limited, Preprocessor
from cudamaster.guards.refusal import Refusal

PACKAGE = Path(cudamaster.__file__).parent
ABSENT = LocalGpu(0, "No GPU", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700")
# Faults are looked for, and profiles read, by tools of one vendor each; the model counts what the CPU device executes;
# a cluster's node without a GPU compiles for that of another.
NAMED_IN = {"faults", "profiling", "modelling", "vendor", "cluster", "training", "cli", "devices"}


def some_devices() -> list[Device]:
    return [CpuDevice(), *([CudaDevice(ABSENT)] if find_nvcc() else [])]


def test_every_device_can_be_asked_for() -> None:
    @option
    def command(device: str) -> None: ...

    (parameter,) = command.__click_params__  # type: ignore[attr-defined]
    assert tuple(parameter.type.choices) == ("auto", *devices.NAMES)
    assert tuple(choose._KINDS) == devices.NAMES


def test_auto_is_the_first_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "why_not_cuda", lambda: "there is none today")
    assert choose.choose("auto").name == "cpu"
    assert choose.units("auto") == ("cpu",)


@pytest.mark.parametrize("device", some_devices(), ids=lambda device: device.name)
def test_a_device_says_what_its_commands_may_hold(device: Device) -> None:
    """Its own default is allowed; what adds code is not, and neither is another compiler."""
    assert not isinstance(device.parse_command(device.default_command), Refusal)
    assert isinstance(device.parse_command(f"{device.default_command} -lcublas"), Refusal)
    assert isinstance(device.parse_command(device.default_command.replace("nvcc", "hipcc", 1)), Refusal)
    by = device.preprocessor()
    assert isinstance(by, Preprocessor)
    assert all(folder.is_dir() for folder in by.folders)
    assert isinstance(device, Limited) != device.emulated


def test_builders_and_judges_know_no_device_by_its_name() -> None:
    """They ask the protocol."""
    for path in PACKAGE.rglob("*.py"):
        package = path.relative_to(PACKAGE).parts[0]
        if package in NAMED_IN:
            continue
        named = {
            node.module
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith(("cudamaster.devices.cuda", "cudamaster.devices.cpu"))
        }
        assert not named, f"{path} imports {named}"
