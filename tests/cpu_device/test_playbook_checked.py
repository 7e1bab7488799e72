"""The checker on paths of playbook kernels that verification cases are too small for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpu_device.test_playbook_plans import IN_PARTS, IN_THREE_PARTS, MAIN, PLAYBOOK, PRODUCT, STEP
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.protocol import Ran

TELLS = "__syncwarp(); // one lane tells for all"


def checked(text: str, flags: list[str], sizes: tuple[int, ...], folder: Path) -> Ran:
    """A program of a step and a main of ours, in the build that looks for races and memory faults."""
    device = CpuDevice()
    compiled = device.compile_observed(text, ["-O2", *flags], "program", folder, "check")
    assert compiled.object is not None, compiled.log
    linked = device.link_observed([compiled.object], folder / "program", "check")
    assert linked.object is not None, linked.log
    return device.execute([str(linked.object), *map(str, sizes)], 120)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "told"),
    [("multiply_parts<Square>", True), ("multiply_on_the_way<Whole>", True), ("multiply_on_the_way<Whole>", False)],
    ids=["parts", "way", "way-without"],
)
def test_a_stage_of_fp32_is_filled_again_when_all_lanes_have_read_it(call: str, told: bool, tmp_path: Path) -> None:
    """One lane frees a stage for its warp.

    Parts are read by products alone, which all lanes have waited for. On the way lanes read by themselves: without what
    orders them before that one, the checker names the race.
    """
    text = IN_THREE_PARTS.read_text()
    assert text.count(TELLS) == 1
    flags = [f"-DCALL={call}(A, B, C, M, N, K, 2)"]
    ran = checked((text if told else text.replace(TELLS, "")) + IN_PARTS, flags, (68, 68, 200), tmp_path)
    if told:
        assert (ran.exit_code, '"kind"' in ran.stderr) == (0, False), ran.stderr
    else:
        assert '"kind": "race"' in ran.stderr, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["Wide", "Square", "Narrow", "Low"])
def test_nothing_is_found_in_plans_of_bf16(plan: str, tmp_path: Path) -> None:
    """Two blocks, more steps than stages, rows and columns that fill no tile."""
    flags = [f"-DPLAN={plan}", *(f"-D{name}={value}" for name, value in PRODUCT.items())]
    ran = checked((PLAYBOOK / "matrix_mul" / STEP).read_text() + MAIN, flags, (136, 136, 840, 1, 2), tmp_path)
    assert (ran.exit_code, '"kind"' in ran.stderr) == (0, False), ran.stderr
