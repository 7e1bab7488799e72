"""Files of GPUs and of constants: mistakes are named, and what ships is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.modelling import constants, gpu

H200 = resources.profiles() / "gpus" / "h200.yaml"


def with_change(folder: Path, old: str, new: str) -> str:
    text = H200.read_text()
    assert old in text
    path = folder / "mine.yaml"
    path.write_text(text.replace(old, new, 1))
    return str(path)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("sms: {value: 132,", "sms: {value: -1,", "figures.sms.value"),
        ("sms: {value: 132,", "sms: {value: many,", "figures.sms.value"),
        ("sms: {value: 132,", "sms: {value: 0.5,", "figures.sms.value: it is no whole number"),
        ("threads_per_sm: {value: 2048,", "threads_per_sm: {value: 16,", "threads_per_sm.value: no warp of 32 fits"),
        ("  clock_mhz:", "  clock_ghz:", "clock_mhz"),
        ("source: measured,", "source: hearsay,", "figures.sms.source"),
        ("unit: SMs,", "unit: GPCs,", "figures.sms.unit: it is SMs"),
        ("value: 16.5,", "value: 18.5,", "figures.barrier_cycles: .*18.5 is not in its range, 12.3 to 17"),
        ('compute_capability: "9.0"', 'compute_capability: "nine"', "compute_capability"),
    ],
)
def test_a_mistake_in_a_gpu_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        gpu.load(with_change(tmp_path, old, new))


def test_an_unknown_gpu_lists_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="h300") as raised:
        gpu.load("h300")
    assert "h200" in raised.value.fix


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: [", r"cannot be read: line \d: "),
        ("a: 1\nb:\t- 2\n", "cannot be read: line 2: "),
        ("a: 2026-99-99", "cannot be read: a value makes no sense: month must be in 1..12"),
        ("a: \0", "cannot be read: unacceptable character"),
    ],
)
def test_a_file_that_is_no_yaml_is_told(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UsageError, match=named) as raised:
        gpu.load(str(tmp_path / "x.yaml"))
    assert "unicode string" not in raised.value.reason


@pytest.mark.parametrize(
    ("text", "named"), [("", "holds nothing"), ("# to do\n", "holds nothing"), ("- 132\n", "table")]
)
def test_a_file_without_figures_is_told_in_our_words(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"mine.yaml .*{named}") as raised:
        gpu.load(str(path))
    assert "h200.yaml" in raised.value.fix
    assert "_File" not in str(raised.value)


@pytest.mark.parametrize("key", gpu.known())
def test_every_figure_has_a_source_and_only_the_h200_was_measured(key: str) -> None:
    found = gpu.load(key)
    warpgroups = {"warpgroup_operations"} if found.compute_capability == (9, 0) else set()
    assert set(found.sources) == set(gpu.Figures.__dataclass_fields__) - {"warpgroup_operations"} | warpgroups
    assert (found.figures.warpgroup_operations is not None) == bool(warpgroups)
    assert ("measured" in found.sources.values()) == (key == "h200")


def test_the_h200s_bandwidths_are_those_that_were_measured() -> None:
    """results/h200/timing.md has them; units are bytes per second, MHz and microseconds."""
    found = gpu.load("h200").figures
    assert (found.read_bytes_per_s, found.write_bytes_per_s, found.copy_bytes_per_s) == (4.58e12, 4.60e12, 4.26e12)
    assert 2 * found.fp32_lanes * found.sms * found.clock_mhz * 1e6 == pytest.approx(64.9e12, rel=0.05)
    assert found.special_lanes * found.sms * found.clock_mhz * 1e6 == pytest.approx(4.17e12, rel=0.02)
    assert found.warpgroup_operations is not None
    assert found.warpgroup_operations * found.sms * found.clock_mhz * 1e6 == pytest.approx(975e12, rel=0.001)
    assert found.empty_call_us == 9.8


def test_a_mistake_in_the_constants_is_named(tmp_path: Path) -> None:
    text = constants.place().read_text()
    path = tmp_path / "constants.yaml"
    path.write_text(text.replace("block_cycles:", "blok_cycles:"))
    with pytest.raises(UsageError, match="block_cycles"):
        constants.load(path)


def test_constants_are_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    error = constants.KnownError(
        gpu="NVIDIA H200", date="2026-11-22", times=100, pairs=20, rank_correlation=0.95, times_within=1.9,
        ratios_within=1.5, pairs_ordered=0.9,
    )  # fmt: skip
    before = constants.shipped().model_copy(update={"known_error": error})
    path = tmp_path / "constants.yaml"
    path.write_text(constants.to_yaml(before))
    assert constants.load(path) == before
