"""The family of kernels: what can be rendered, what the model says of it, and the steps of the playbook."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cudamaster.core.errors import UsageError
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.devices.nvcc import find_nvcc
from cudamaster.families import model
from cudamaster.families.config import Config, Schedule
from cudamaster.families.render import FLAGS, Misfit, render
from cudamaster.families.steps import STEPS, promising, steps
from cudamaster.models.playbook import read_step
from cudamaster.tasks.hgemm import GRID, Accumulate, Layout, Shape

VARIANTS = [(layout, accumulate) for layout in Layout for accumulate in Accumulate]
TILED = Config(Layout.TN, Accumulate.FP32, Schedule.COOPERATIVE, 128, 128, 6, 1, 1, 1, 8)


@pytest.mark.parametrize(("layout", "accumulate"), VARIANTS)
def test_every_member_can_be_rendered(layout: Layout, accumulate: Accumulate) -> None:
    found = list(model.family(layout, accumulate))
    fewer = set() if accumulate is Accumulate.FP32 else {Schedule.WARPS}  # whose sums are in fp32 anyway
    assert {config.schedule for config in found} == set(Schedule) - fewer
    codes = [render(config) for config in found]
    assert len(set(codes)) == len(found)
    for config, code in zip(found, codes, strict=True):
        assert 'extern "C" void hgemm_fp16_optimized(' in code
        assert "hgemm_with_band" not in code
        assert ("cudaLaunchAttributeCooperative" in code) == (config.schedule is Schedule.THROUGH_L2)
    assert "hgemm_with_band" in render(found[0], tuning=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tile_m": 96}, "tiles of 96 rows"),
        ({"tile_n": 8}, "tiles of 8 columns"),
        ({"stages": 7}, "no room in shared memory for results"),
        ({"tile_n": 48, "stages": 11}, "11 stages of 22528 bytes do not fit"),
        ({"schedule": Schedule.PINGPONG, "tile_m": 256, "tile_n": 256}, "registers of sums in a thread"),
        ({"split": 32}, "a cluster of 32 blocks"),
        ({"split": 2, "cluster_m": 2}, "not both"),
        ({"schedule": Schedule.THROUGH_L2}, "nothing meets in L2"),
    ],
)
def test_what_no_kernel_can_have_is_said(changes: dict[str, object], said: str) -> None:
    with pytest.raises(Misfit, match=said):
        render(replace(TILED, **changes))  # type: ignore[arg-type]


@pytest.mark.nvcc
@pytest.mark.slow(but=["warps"])
@pytest.mark.parametrize("schedule", Schedule)
def test_a_member_builds_with_its_flags(schedule: Schedule, tmp_path: Path) -> None:
    """For every GPU that they name, and without a warning."""
    config = next(each for each in model.family(Layout.TN, Accumulate.FP32) if each.schedule is schedule)
    (tmp_path / "kernel.cu").write_text(render(config), encoding="utf-8")
    nvcc = find_nvcc()
    assert nvcc is not None
    command = [str(nvcc), "-std=c++17", *FLAGS.split(), "-Werror", "all-warnings", "-c", "kernel.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_config_is_the_same_text_as_before() -> None:
    """Tables hold it."""
    assert to_json(TILED) == {
        "layout": "tn", "accumulate": "fp32", "schedule": "cooperative", "tile_m": 128, "tile_n": 128, "stages": 6,
        "cluster_m": 1, "cluster_n": 1, "split": 1, "band": 8,
    }  # fmt: skip
    assert [schedule.value for schedule in Schedule] == ["cooperative", "pingpong", "through_l2", "warps"]
    for config in model.family(Layout.NN, Accumulate.FP16):
        assert from_json(Config, to_json(config)) == config
    with pytest.raises(RecordError, match="schedule"):
        from_json(Config, {**to_json(TILED), "schedule": "other"})


def test_a_config_in_words() -> None:
    assert str(TILED) == "128x128 tiles, 6 stages, cooperative, band 8"
    shared = replace(TILED, schedule=Schedule.PINGPONG, cluster_m=2, band=-4)
    assert str(shared) == "128x128 tiles, 6 stages, pingpong, cluster 2x1, band -4"
    l2 = replace(TILED, schedule=Schedule.THROUGH_L2, split=4)
    assert str(l2) == "128x128 tiles, 6 stages, K split in 4 through L2, band 8"
    warps = replace(TILED, schedule=Schedule.WARPS, tile_m=16, tile_n=32, stages=8)
    assert str(warps) == "16x32 tiles, 8 warps that share K"


def test_the_model_ranks_what_can_be_made() -> None:
    for shape in GRID[::97]:
        ranked = model.ranked(Layout.TN, Accumulate.FP16, shape)
        times = [model.microseconds(config, shape) for config in ranked]
        assert times == sorted(times)
        assert all(0 < time < math.inf for time in times)
        assert {config.accumulate for config in ranked} == set(Accumulate)
    large = Shape(8192, 8192, 8192)
    assert math.isinf(model.microseconds(replace(TILED, schedule=Schedule.THROUGH_L2, split=4), large))
    best = model.ranked(Layout.TN, Accumulate.FP32, large)[0]
    assert model.modelled(best, large).bound is model.Bound.TENSOR
    small = Shape(64, 64, 64)
    assert model.modelled(TILED, small).bound is model.Bound.AROUND
    assert model.modelled(TILED, Shape(16384, 8, 16384)).bound is model.Bound.MEMORY


def test_the_model_counts_waves_room_and_turns() -> None:
    one = model.modelled(TILED, Shape(128 * 132, 128, 512))
    two = model.modelled(TILED, Shape(128 * 133, 128, 512))
    assert (one.waves, one.blocks, two.waves, two.blocks) == (1, 132, 2, 132)
    assert two.microseconds > one.microseconds
    shared = replace(TILED, schedule=Schedule.THROUGH_L2, split=4)
    full = model.modelled(shared, Shape(128 * 33, 128, 4096))
    assert (full.waves, full.blocks) == (1, 132)
    assert math.isinf(model.microseconds(shared, Shape(128 * 34, 128, 4096)))
    # Where warpgroups take turns, one stores while the other multiplies.
    short = Shape(4096, 4096, 512)
    turns = replace(TILED, schedule=Schedule.PINGPONG)
    assert model.microseconds(turns, short) < 0.8 * model.microseconds(TILED, short)


def test_bands_are_tried_where_tiles_outnumber_blocks() -> None:
    large = Shape(8192, 8192, 64)
    assert {1, 8, -1, -16} < set(model.bands(TILED, large))
    assert model.bands(replace(TILED, split=2, band=4), large) == [4]
    assert model.bands(TILED, Shape(128 * 132, 128, 64)) == [8]
    assert "multiply_matrices(A, B, C, M, N, K, -4)" in render(replace(TILED, band=-4))


@pytest.mark.parametrize("shape", [Shape(128, 64, 96), Shape(64, 64, 16384), Shape(4096, 2048, 512), GRID[-1]])
@pytest.mark.parametrize(("layout", "accumulate"), VARIANTS)
def test_steps_are_the_models_first_of_their_kind(
    shape: Shape, layout: Layout, accumulate: Accumulate, tmp_path: Path
) -> None:
    """Each is what the same text in a file of the playbook would be."""
    found = steps(f"hgemm_{layout}_{accumulate}_{shape}")
    configs = promising(layout, accumulate, shape)
    assert len({(each.schedule, each.tile_m, each.tile_n) for each in configs}) == len(found) == STEPS
    assert configs[0] == model.ranked(layout, accumulate, shape)[0]
    assert len({step.idea for step in found}) == STEPS
    for step, config in zip(found, configs, strict=True):
        file = tmp_path / "1_step.cu"
        file.write_text(step.code, encoding="utf-8")
        assert read_step(file) == step
        assert step.flags == FLAGS
        assert step.code.endswith(render(config))
        assert f"{config.tile_m} x {config.tile_n}" in step.why
        assert f"expects {model.microseconds(config, shape):.1f} µs for {shape}" in step.why
        assert ("whose sums meet" in step.why) == (config.split > 1)
        assert max(map(len, step.code.partition("// flags")[0].splitlines())) <= 120


def test_other_tasks_have_no_steps() -> None:
    with pytest.raises(UsageError, match="no layout"):
        steps("hgemm_64x64x64")
