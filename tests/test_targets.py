"""Of the targets that a command names, only what the GPU's driver takes is built."""

import re
import time

import pytest

from cudamaster.build.building import Builder
from cudamaster.core.values import Candidate, Precision
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.devices.targets import for_gpu
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region


def _named(*targets: str) -> tuple[str, ...]:
    return tuple(f"-gencode=arch=compute_{re.search(r'[0-9]+[af]?', each)[0]},code={each}" for each in targets)  # type: ignore[index]


CHOICES = {
    "its own among others": ("9.0", ("sm_90a", "sm_80"), ("sm_90a",)),
    "the nearest of its own major capability": ("8.9", ("sm_80", "sm_86", "sm_90"), ("sm_86",)),
    "code for one GPU alone runs on no other": ("10.3", ("sm_100a", "sm_100"), ("sm_100",)),
    "a family's code runs on its later members": ("10.3", ("sm_100f", "sm_90", "sm_120f"), ("sm_100f",)),
    "two digits of the major capability": ("12.1", ("sm_90", "sm_120"), ("sm_120",)),
    "machine code of its own before its PTX": ("9.0", ("sm_90", "compute_90"), ("sm_90",)),
    "machine code before PTX that is no nearer": ("9.0", ("sm_90", "compute_80"), ("sm_90",)),
    "PTX that is nearer may be taken": ("8.9", ("sm_80", "compute_86", "compute_80"), ("sm_80", "compute_86")),
    "machine code of an older major capability does not run": ("9.0", ("sm_80", "compute_80"), ("compute_80",)),
    "the latest PTX": ("10.0", ("compute_80", "compute_90", "compute_120", "sm_80"), ("compute_90",)),
    "PTX for one GPU alone runs on no other": ("10.0", ("compute_90a", "compute_80"), ("compute_80",)),
    "both for one capability: it is the driver's choice": ("9.0", ("sm_90", "sm_90a", "sm_80"), ("sm_90", "sm_90a")),
}


@pytest.mark.parametrize("name", CHOICES)
def test_only_what_the_driver_takes_is_left(name: str) -> None:
    """Other flags stay where they are."""
    capability, targets, left = CHOICES[name]
    assert for_gpu(("-O3", *_named(*targets), "-lineinfo"), capability) == ("-O3", *_named(*left), "-lineinfo")


@pytest.mark.parametrize("targets", [("sm_80",), ("sm_90a", "sm_80"), ("compute_120", "sm_120")])
def test_a_command_for_other_gpus_stays_as_it_is(targets: tuple[str, ...]) -> None:
    """It fails on the GPU as a build of the whole command would."""
    assert for_gpu(_named(*targets), "10.0") == _named(*targets)


def test_lists_of_codes_are_shortened() -> None:
    """The PTX that the code is made from stays the one that the command names."""
    both = "-gencode=arch=compute_80,code=[sm_80,sm_86,compute_80]"
    assert for_gpu([both], "8.6") == ("-gencode=arch=compute_80,code=sm_86",)
    assert for_gpu([both], "9.0") == ("-gencode=arch=compute_80,code=compute_80",)
    named = "-gencode=arch=compute_80,code=[sm_80,compute_80,compute_86]"
    assert for_gpu([named], "8.9") == ("-gencode=arch=compute_80,code=[sm_80,compute_86]",)


@pytest.mark.parametrize("flags", [(), ("-arch=sm_80",), ("-arch=native",), ("-arch=compute_80", "-O3")])
def test_a_single_target_is_left_alone(flags: tuple[str, ...]) -> None:
    """`-arch` names one, whether the GPU runs it or not."""
    assert for_gpu(flags, "9.0") == flags


@pytest.mark.nvcc
def test_nvcc_builds_that_target_alone_and_the_record_keeps_the_command() -> None:
    """By ptxas's own report. What was really run stands beside the command."""
    gpu = LocalGpu(0, "No GPU", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700")
    builder = Builder(cards.load("relu"), Precision.FP32, CudaDevice(gpu))
    command = f"nvcc {' '.join(_named('sm_90a', 'sm_80'))} -c candidate.cu -o candidate.o"
    code = f"// {time.time_ns()}\n{baseline_region(builder.card, Precision.FP32)}"
    built = builder.build(Candidate("relu", Precision.FP32, code, command))
    assert built.status is None, built.log
    assert set(re.findall(r"Compiling entry function .* for '(\w+)'", built.record["compile log"])) == {"sm_90a"}
    assert built.record["command"] == command
    assert re.findall(r"-gencode=\S+", built.record["compile"]) == list(_named("sm_90a"))
