"""Named metric sets: the shipped one is CudaForge's, and what was measured decides what is absent."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Profile
from cudamaster.devices import ncu
from cudamaster.profiling.metric_sets import SHIPPED, load, resolve, to_yaml

# The 24 names as CudaForge's authors publish them.
CUDAFORGE = [
    "sm__cycles_active.avg",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__registers_per_thread",
    "sm__inst_executed.sum",
    "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum.per_second",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_sector_hit_rate.pct",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "lts__t_sector_hit_rate.pct",
    "lts__throughput.avg.pct_of_peak_sustained_active",
    "smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct",
    "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct",
    "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct",
    "smsp__warp_issue_stalled_barrier_per_warp_active.pct",
    "smsp__warp_issue_stalled_branch_resolving_per_warp_active.pct",
    "smsp__sass_average_branch_targets_threads_uniform.pct",
]
MEMORY_DEPENDENCY = "smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct"
BARRIER = "smsp__warp_issue_stalled_barrier_per_warp_active.pct"
BARRIER_TODAY = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
SET = load("cudaforge24")


def test_the_shipped_set_is_cudaforges() -> None:
    """All 24 names in their order, each with a base name of its own but for none, and words for all."""
    assert list(SET.metrics) == CUDAFORGE
    assert len(set(CUDAFORGE)) == 24
    assert SET.metrics[BARRIER] == (BARRIER_TODAY,)
    assert SET.metrics[MEMORY_DEPENDENCY] == ()
    assert set(SET.meanings) == set(CUDAFORGE)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_loads(name: str) -> None:
    assert load(name).metrics


def test_resolve() -> None:
    """What was measured stands for itself; the others are absent; both in the set's order."""
    measured = [name for name in reversed(CUDAFORGE) if name.startswith("dram__")]
    found = resolve(SET.metrics, [*measured, "lts__something_else.sum"])
    assert list(found.names) == list(found.names.values()) == measured[::-1]
    assert list(found.absent) == [name for name in CUDAFORGE if name not in measured]


def test_a_stand_in_is_taken_where_the_name_was_not_measured() -> None:
    """The name itself goes first; both are asked for."""
    assert {BARRIER, BARRIER_TODAY} <= set(SET.asked)
    assert resolve(SET.metrics, {BARRIER, BARRIER_TODAY}).names[BARRIER] == BARRIER
    assert resolve(SET.metrics, {BARRIER_TODAY}).names[BARRIER] == BARRIER_TODAY
    assert BARRIER in resolve(SET.metrics, {BARRIER_TODAY + "x"}).absent


def test_nothing_stands_in_for_what_was_split_up() -> None:
    """Long scoreboard is a part of memory dependency and is in the set itself: it is not shown for it."""
    every = set(SET.asked) - {MEMORY_DEPENDENCY}
    assert resolve(SET.metrics, every).absent == (MEMORY_DEPENDENCY,)


def test_what_an_h200_has_of_it() -> None:
    """Recorded there: all but two, under the names that CudaForge's authors publish."""
    text = (Path(__file__).parent / "data" / "cudaforge24.txt").read_text()
    found = ncu.parse(text, candidate="c0ffee", case="rows=32768", metrics=SET.asked)
    assert isinstance(found, Profile)
    resolved = resolve(SET.metrics, found.kernels[0].metrics)
    assert set(resolved.absent) == {
        "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active",
        MEMORY_DEPENDENCY,
    }
    assert all(name == own for own, name in resolved.names.items())
    assert found.kernels[0].metrics["launch__registers_per_thread"] == 32
    assert found.kernels[0].metrics["smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"] == 52.73


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda content: content.clear(), "metrics"),
        (lambda content: content.update(metrics={}), "metrics"),
        (lambda content: content.update(metric={}), "metric"),
        (lambda content: content["metrics"].update({"SM Busy": []}), "SM Busy"),
        (lambda content: content["metrics"].update({BARRIER: ["barrier stalls"]}), BARRIER),
        (lambda content: content["metrics"].update({"sm__x.sum": ["dram__bytes_read.sum"]}), "dram__bytes_read.sum is"),
        (lambda content: content["meanings"].update({"sm__x.sum": "x"}), "meanings has sm__x.sum"),
    ],
)
def test_refused(change, where: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Each mistake is one UsageError that names the file and the place."""
    content = yaml.safe_load((resources.profiles() / "cudaforge24.yaml").read_text())
    change(content)
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(UsageError) as raised:
        load(str(path))
    assert where in raised.value.reason
    assert str(path) in raised.value.reason
    assert "Compare it" in raised.value.fix


def test_unknown_and_unreadable(tmp_path: Path) -> None:
    """The error for an unknown name lists the known ones; a missing file or one that is no YAML is refused."""
    with pytest.raises(UsageError, match="no metric set cudaforge25") as raised:
        load("cudaforge25")
    assert "cudaforge24" in raised.value.fix
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path / "none.yaml"))
    bad = tmp_path / "bad.yaml"
    for content in (b"\xff\xfe", b"a: ["):
        bad.write_bytes(content)
        with pytest.raises(UsageError, match="cannot be read"):
            load(str(bad))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """In order, and a line break in a comment stays in the comment."""
    path = tmp_path / "mine.yaml"
    path.write_text(to_yaml(["sm__b.sum", "sm__a.avg"], ["from a\nb: c", ""]))
    assert list(load(str(path)).metrics) == ["sm__b.sum", "sm__a.avg"]
    assert path.read_text().startswith("# from a b: c\n#\nmetrics:")
