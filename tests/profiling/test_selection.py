"""Metric selection on tables made by hand, for which the answer is known, and the command that does it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cudamaster.cli import main
from cudamaster.core.errors import UsageError
from cudamaster.profiling import metric_sets, selection
from cudamaster.profiling.selection import Fate, Judged, Kernel, MetricOutcome, Selection, Task

TIMES = (1.0, 2.0, 4.0, 5.0, 7.0, 20.0, 23.0, 30.0, 31.0, 40.0)
# With exact sums: no r with TIMES in any table below is left to rounding.
WOBBLE = (1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0)


def table(name: str, columns: Mapping[str, Sequence[float | None]], times: Sequence[float] = TIMES) -> Task:
    """A task with a kernel per time; None is a metric that was not measured."""
    kernels = []
    for k, time_us in enumerate(times):
        metrics = {metric: value for metric, values in columns.items() if (value := values[k]) is not None}
        kernels.append(Kernel(f"k{k}", time_us, metrics))
    return Task(name, tuple(kernels))


def judged(task: Task, collinear_above: float = selection.COLLINEAR_ABOVE) -> dict[str, Judged]:
    """Every metric of a task that stands alone."""
    (choice,) = selection.select([task], collinear_above=collinear_above).tasks
    return {each.metric: each for each in choice.metrics}


def chosen(found: Selection) -> list[str]:
    return [each.metric for each in found.chosen]


def noisy(amount: float, scale: float = 1.0) -> list[float]:
    """Goes with the time, the less the more noise there is."""
    return [scale * (time + amount * wobble) for time, wobble in zip(TIMES, WOBBLE, strict=True)]


# Algorithm 1


def test_sample_is_the_five_fastest_and_the_five_slowest() -> None:
    """Of twenty in any order; on equal times the name decides."""
    times = [float(7 * k % 20 + 1) for k in range(20)]
    found = selection.sample(table("conv", {"sm__a.sum": times}, times))
    assert [kernel.time_us for kernel in found] == [1, 2, 3, 4, 5, 16, 17, 18, 19, 20]
    same = Task("same", tuple(Kernel(name, 1.0, {}) for name in "lkjihgfedcba"))
    assert "".join(kernel.name for kernel in selection.sample(same)) == "abcdehijkl"


def test_too_few_kernels_and_one_twice() -> None:
    """Both name the task; ten kernels are enough."""
    assert len(selection.sample(table("conv", {}))) == 10
    with pytest.raises(UsageError, match="conv has 9 kernels, and 10 are needed"):
        selection.sample(table("conv", {}, TIMES[:9]))
    with pytest.raises(UsageError, match="kernel k3 of conv is there twice"):
        selection.sample(Task("conv", (*table("conv", {}).kernels, Kernel("k3", 9.0, {}))))


# Pearson


def test_pearson_is_the_textbooks() -> None:
    """By the definition, worked out by hand: deviations (-1, 0, 1) and (-1, 1, 0) give 1 / 2."""
    assert selection.pearson(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 1.0])) == pytest.approx(0.5, abs=1e-15)


def test_pearson_agrees_with_numpy_also_for_byte_counts() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=10), rng.normal(size=10)
    assert selection.pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-14)
    assert selection.pearson(1e200 * (x + 3), 1e-200 * y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-13)
    assert selection.pearson(3 * x, -x) == -1.0


def test_which_metrics_have_a_correlation() -> None:
    """Not a constant one, not one that a kernel lacks, and not the duration; missing is not zero."""
    lacking: list[float | None] = [*TIMES]
    lacking[4] = None
    columns = {
        "sm__up.sum": TIMES,
        "sm__down.avg": [-time for time in TIMES],
        "launch__block_size": [256.0] * 10,
        "dram__zero.sum": [0.0] * 10,
        "lts__lacking.sum": lacking,
        "gpu__time_duration.sum": [1000 * time for time in TIMES],
    }
    task = table("conv", columns)
    assert selection.correlations(task.kernels) == pytest.approx({"sm__up.sum": 1.0, "sm__down.avg": -1.0})
    fates = {metric: each.fate for metric, each in judged(task).items()}
    assert fates["launch__block_size"] == fates["dram__zero.sum"] == Fate.CONSTANT
    assert fates["lts__lacking.sum"] is Fate.MISSING
    assert fates["gpu__time_duration.sum"] is Fate.RUN_TIME
    assert judged(task)["lts__lacking.sum"].r is None


def test_only_the_sample_counts() -> None:
    """What kernels of middling speed have, or lack, changes nothing."""
    times = [*range(1, 6), 10.0, 11.0, *range(20, 25)]
    values: list[float | None] = [*times]
    values[5], values[6] = None, -1e9
    assert judged(table("conv", {"sm__up.sum": values}, times))["sm__up.sum"].r == pytest.approx(1.0)


# Twins


def test_an_alias_is_dropped_for_the_first_by_name() -> None:
    """A multiple, an identical and a negative metric: for equal |r| the name decides, and the twin is named."""
    columns = {
        "smsp__inst.sum": noisy(3, 528),
        "smsp__inst.avg": noisy(3),
        "smsp__inst.max": noisy(3),
        "smsp__inst.min": noisy(3, -2),
    }
    found = judged(table("conv", columns))
    assert found["smsp__inst.avg"].fate is Fate.TOP
    for name, r in (("smsp__inst.sum", 1.0), ("smsp__inst.max", 1.0), ("smsp__inst.min", -1.0)):
        assert (found[name].fate, found[name].twin) == (Fate.ALIAS, "smsp__inst.avg")
        assert found[name].r_with_twin == pytest.approx(r)


def test_a_complement_is_collinear_and_no_alias() -> None:
    """Issue slots with and without an instruction add up to 100 %, as in table 9 of the paper: r of -1 between them."""
    columns = {
        "smsp__issue_active.avg": [80 - time for time in noisy(3)],
        "smsp__issue_inst0.avg": [20 + time for time in noisy(3)],
    }
    found = judged(table("spmm", columns))
    assert found["smsp__issue_inst0.avg"].fate is Fate.COLLINEAR
    assert found["smsp__issue_inst0.avg"].twin == "smsp__issue_active.avg"
    assert found["smsp__issue_inst0.avg"].r_with_twin == pytest.approx(-1.0)


def test_of_two_collinear_ones_the_one_nearer_to_the_time_stays() -> None:
    """Whatever their names; the limit is strict, and another one may be given."""
    near, far = noisy(0.5), noisy(1.5)
    r = selection.pearson(np.array(near), np.array(far))
    assert 0.99 < r < 1 - 1e-6
    task = table("conv", {"sm__a_far.sum": far, "sm__b_near.sum": near})
    found = judged(task)
    assert found["sm__b_near.sum"].fate is Fate.TOP
    assert found["sm__a_far.sum"].fate is Fate.COLLINEAR
    assert found["sm__a_far.sum"].twin == "sm__b_near.sum"
    assert judged(task, collinear_above=(1 + r) / 2)["sm__a_far.sum"].fate is Fate.TOP


def independent(count: int, seed: int = 0) -> dict[str, list[float]]:
    """Metrics of which no two are collinear; m00 goes with the time best, and so on."""
    rng = np.random.default_rng(seed)
    columns = {}
    for k in range(count):
        columns[f"sm__m{k:02}.sum"] = [
            time + (6 + k) * noise for time, noise in zip(TIMES, rng.normal(size=10), strict=True)
        ]
    return columns


def test_twenty_stay() -> None:
    """The metrics of highest |r|; the others are listed as below. Twins take no place among the twenty."""
    columns = independent(26)
    doubled = {**columns, **{f"{name}.per_second": [2 * v for v in values] for name, values in columns.items()}}
    task = table("conv", doubled)
    (choice,) = selection.select([task]).tasks
    assert choice.counts == {Fate.TOP: 20, Fate.BELOW: 6, Fate.ALIAS: 26}
    ranked = [abs(each.r) for each in choice.metrics if each.r is not None]
    assert ranked == pytest.approx(sorted(ranked, reverse=True), abs=1e-9)
    below = [abs(each.r) for each in choice.metrics if each.fate is Fate.BELOW and each.r is not None]
    assert min(abs(each.r or 0) for each in choice.top) >= max(below)


# Across tasks


def four(columns_of: Callable[[int], Mapping[str, Sequence[float | None]]]) -> list[Task]:
    return [table(name, columns_of(k)) for k, name in enumerate(("conv_2d", "matrix_mul", "softmax", "spmm_csr"))]


def test_known_answer() -> None:
    """One that always goes with the time, its alias, one whose sign flips, one in half of the tasks, one in most."""

    def columns(k: int) -> dict[str, Sequence[float | None]]:
        shifted = [*WOBBLE[1:], 0.0]
        sign = -1 if k == 3 else 1
        made: dict[str, Sequence[float | None]] = {
            "sm__cycles_active.avg": [100 * time for time in TIMES],
            "sm__cycles_active.sum": [13200 * time for time in TIMES],
            "l1tex__flips.pct": [sign * (time + 9 * wobble) for time, wobble in zip(TIMES, WOBBLE, strict=True)],
            "launch__block_size": [128.0] * 10,
        }
        if k < 2:
            made["lts__half.pct"] = [time - 12 * wobble for time, wobble in zip(TIMES, shifted, strict=True)]
        if k < 3:
            made["dram__most.sum"] = [50 - t + 15 * w * (t > 10) for t, w in zip(TIMES, shifted, strict=True)]
        return made

    found = selection.select(four(columns))
    assert found.tasks_at_least == 3  # more than half of four
    assert chosen(found) == ["sm__cycles_active.avg", "dram__most.sum"]
    cycles, most = found.chosen
    assert cycles.r == pytest.approx(dict.fromkeys(("conv_2d", "matrix_mul", "softmax", "spmm_csr"), 1.0))
    assert set(most.r) == {"conv_2d", "matrix_mul", "softmax"}
    assert most.mean_abs_r == pytest.approx(-sum(most.r.values()) / 3)
    others = {each.metric: each.outcome for each in found.others}
    assert others == {"l1tex__flips.pct": MetricOutcome.SIGNS_DIFFER, "lts__half.pct": MetricOutcome.TOO_FEW}

    two = selection.select(four(columns), tasks_at_least=2)
    assert set(chosen(two)) == {"sm__cycles_active.avg", "dram__most.sum", "lts__half.pct"}
    assert chosen(selection.select(four(columns), tasks_at_least=4)) == ["sm__cycles_active.avg"]


def test_chosen_ones_come_in_order_of_their_mean() -> None:
    """Falling mean |r|, whatever the sign."""
    found = selection.select(four(lambda k: independent(8, seed=3)))
    assert len(found.chosen) == 8
    means = [each.mean_abs_r for each in found.chosen]
    assert means == sorted(means, reverse=True)
    assert means[0] > means[-1] + 0.1


def test_a_family_of_near_copies_keeps_one_name_in_all_tasks() -> None:
    """Each task's own best copy is another one; the best on average stands for the family everywhere."""

    def columns(k: int) -> dict[str, list[float]]:
        amounts = {"gpc__cycles.max": 0.2, "lts__cycles.avg": 0.4, "sm__cycles.avg": 0.4, "smsp__cycles.avg": 0.4}
        best = list(amounts)[k]
        return {name: noisy(0.1 if name == best else amount) for name, amount in amounts.items()}

    tasks = four(columns)
    own_best = {max(r, key=lambda name: r[name]) for task in tasks if (r := selection.correlations(task.kernels))}
    assert len(own_best) == 4, "each task prefers another copy, or this test shows nothing"
    found = selection.select(tasks)
    assert chosen(found) == ["gpc__cycles.max"]
    assert found.others == ()
    assert [choice.counts for choice in found.tasks] == [{Fate.TOP: 1, Fate.COLLINEAR: 3}] * 4


def test_twins_across_tasks_are_told(tmp_path: Path) -> None:
    """A metric that is near a better one in all tasks but one says so, and does not recur."""
    tasks = four(lambda k: {"sm__a.avg": noisy(0.1), "sm__b.avg": noisy(0.4 if k else 20)})
    found = selection.select(tasks)
    assert chosen(found) == ["sm__a.avg"]
    (other,) = found.others
    assert (other.metric, other.outcome, set(other.r)) == ("sm__b.avg", MetricOutcome.TOO_FEW, {"conv_2d"})
    assert other.twins == dict.fromkeys(("matrix_mul", "softmax", "spmm_csr"), "sm__a.avg")
    paths = [tmp_path / f"{task.name}.csv" for task in tasks]
    for path, task in zip(paths, tasks, strict=True):
        path.write_text(as_csv(task))
    assert "In too few: sm__b.avg (conv_2d +0." in run("select", *paths).stdout


def test_bad_tasks() -> None:
    """One task twice, more tasks asked for than there are, none at all, and kernels of one speed."""
    task = table("conv", {"sm__a.sum": noisy(1)})
    with pytest.raises(UsageError, match="task conv is there twice"):
        selection.select([task, task])
    for tasks, needed in (([task], 2), ([task], 0), ([], None)):
        with pytest.raises(UsageError, match="tasks"):
            selection.select(tasks, needed)
    with pytest.raises(UsageError, match="All kernels of still take the same time"):
        selection.select([table("still", {"sm__a.sum": TIMES}, [3.0] * 10)])


# What the paper says


def test_the_papers_tables_keep_collinear_metrics() -> None:
    """Why the limit is ours: two metrics of r = 1.000000 with the time (table 8) have at least 0.99999 between them."""
    with_time = math.acos(1 - 0.5e-6)  # the largest angle that is printed as 1.000000
    assert math.cos(2 * with_time) > 0.99999 > selection.COLLINEAR_ABOVE


def test_the_figures_are_the_papers() -> None:
    """Ten kernels a task, five from each end, and the top 20."""
    assert (selection.FASTEST, selection.SLOWEST, selection.TOP) == (5, 5, 20)


# The table


def as_csv(task: Task) -> str:
    names = list(dict.fromkeys(name for kernel in task.kernels for name in kernel.metrics))
    lines = [",".join(["kernel", "time_us", *names])]
    for kernel in task.kernels:
        cells = [str(kernel.metrics.get(name, "")) for name in names]
        lines.append(",".join([kernel.name, str(kernel.time_us), *cells]))
    return "\n".join(lines) + "\n"


def test_parse_gives_back_what_was_written() -> None:
    lacking: list[float | None] = [*TIMES[:9], None]
    task = table("conv", {"sm__a.sum": noisy(1), "lts__b.pct": lacking})
    assert selection.parse("conv", as_csv(task)) == task


def test_parse_of_cells() -> None:
    """Columns in any order; what is empty, n/a or not finite was not measured; zero was."""
    text = 'sm__a.sum,time_us,kernel,sm__b.sum\n\n0,1.5,"tiled, v2",n/a\n nan ,2,k2,inf\n,3e0,k3,-1e3\n'
    assert selection.parse("conv", text).kernels == (
        Kernel("tiled, v2", 1.5, {"sm__a.sum": 0.0}),
        Kernel("k2", 2.0, {}),
        Kernel("k3", 3.0, {"sm__b.sum": -1000.0}),
    )


BAD = {
    "empty": ("", "table of conv is empty"),
    "blank": ("\n\n", "table of conv is empty"),
    "no time": ("kernel,sm__a.sum\nk,1\n", "no column time_us"),
    "no kernel": ("name,time_us,sm__a.sum\nk,1,1\n", "no column kernel"),
    "no metrics": ("kernel,time_us\nk,1\n", "no metrics"),
    "no metric's name": ("kernel,time_us,SM Busy\nk,1,1\n", "'SM Busy'"),
    "a column twice": ("kernel,time_us,sm__a.sum,sm__a.sum\nk,1,1,1\n", "column sm__a.sum twice"),
    "not a number": (
        "kernel,time_us,sm__a.sum\nk7,1,fast\n",
        "sm__a.sum of k7 in the table of conv is no number: 'fast'",
    ),
    "a decimal comma": ('kernel,time_us,sm__a.sum\nk7,1,"0,5"\n', "no number: '0,5'"),
    "time not a number": ("kernel,time_us,sm__a.sum\nk7,soon,1\n", "time_us of k7"),
    "no time measured": ("kernel,time_us,sm__a.sum\nk7,,1\n", "time_us of k7 in the table of conv is ''"),
    "time zero": ("kernel,time_us,sm__a.sum\nk7,0,1\n", "time_us of k7"),
    "time negative": ("kernel,time_us,sm__a.sum\nk7,-2,1\n", "time_us of k7"),
    "a cell too few": ("kernel,time_us,sm__a.sum\nk0,1,1\nk1,2\n", "Kernel 2 in the table of conv has 2 cells"),
    "no name": ("kernel,time_us,sm__a.sum\n ,1,1\n", "Kernel 1 in the table of conv has no name"),
    "a huge cell": ("kernel,time_us,sm__a.sum\n" + "k" * 200_000 + ",1,1\n", "table of conv is no CSV"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_says_what_and_where(name: str) -> None:
    text, said = BAD[name]
    with pytest.raises(UsageError) as raised:
        selection.parse("conv", text)
    assert said in raised.value.reason
    assert raised.value.fix


# The command


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["metrics", *map(str, arguments)])


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Four tasks with ten kernels each: cycles always go with the time, the hit rate flips, dram is in two."""

    def columns(k: int) -> dict[str, Sequence[float | None]]:
        flipped = [(-1 if k == 2 else 1) * value for value in noisy(9)]
        made: dict[str, Sequence[float | None]] = {"sm__cycles_active.avg": noisy(0.1), "l1tex__hit.pct": flipped}
        if k < 2:
            made["dram__bytes.sum"] = noisy(20)
        return made

    paths = []
    for task in four(columns):
        paths.append(tmp_path / f"{task.name}.csv")
        paths[-1].write_text(as_csv(task), encoding="utf-8-sig")  # with the mark that spreadsheets write
    return paths


def test_select_for_people(files: list[Path]) -> None:
    """Each task with its sample, the chosen with r by task, and what is left out for its sign."""
    done = run("select", *files)
    assert done.exit_code == 0, done.output
    assert "conv_2d: 10 of 10 kernels, 1 to 7 µs and 20 to 40 µs; 3 metrics: 3 top" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.endswith(" sm__cycles_active.avg")]
    assert row.split()[:-1] == ["1.000", "+1.000", "+1.000", "+1.000", "+1.000"]
    assert "Chosen: 1, in the top 20 of at least 3 of 4 tasks" in done.stdout
    assert "Signs differ: l1tex__hit.pct (conv_2d +0." in done.stdout
    assert "dram__bytes.sum" not in done.stdout


def test_select_for_programs(files: list[Path]) -> None:
    """Everything that explains a choice is there."""
    done = run("select", *files, "--json", "--tasks-at-least", 2)
    found = json.loads(done.stdout)
    assert [each["metric"] for each in found["chosen"]] == ["sm__cycles_active.avg", "dram__bytes.sum"]
    assert found["others"][0]["outcome"] == "signs differ"
    assert found["tasks"][0]["sample"][0] == {"kernel": "k0", "time_us": 1.0}
    assert {"tasks_at_least", "top", "collinear_above"} <= set(found)


def test_select_writes_a_set(files: list[Path], tmp_path: Path) -> None:
    """The file is one for --metrics, and says what it was made of."""
    out = tmp_path / "mine.yaml"
    done = run("select", *files, "--tasks-at-least", 2, "--out", out)
    assert done.exit_code == 0, done.output
    assert list(metric_sets.load(str(out)).metrics) == ["sm__cycles_active.avg", "dram__bytes.sum"]
    assert "from conv_2d, matrix_mul, softmax, spmm_csr" in out.read_text()
    assert "sm__cycles_active.avg: conv_2d +1.000" in out.read_text()
    shown = run("show", out)
    assert shown.exit_code == 0
    assert "2 metrics" in shown.stdout


def test_no_set_is_written_where_nothing_recurs(tmp_path: Path) -> None:
    """Nothing chosen is no fault, but there is no such set to write."""
    paths = []
    for k, task in enumerate(four(lambda k: {f"sm__m{k}.sum": noisy(1)})):
        paths.append(tmp_path / f"{k}.csv")
        paths[-1].write_text(as_csv(task))
    done = run("select", *paths)
    assert done.exit_code == 0
    assert "Chosen: none" in done.stdout
    out = tmp_path / "mine.yaml"
    done = run("select", *paths, "--out", out)
    assert done.exit_code == 2
    assert "No metric" in done.stderr
    assert not out.exists()


def test_mistakes_get_one_clear_line(files: list[Path], tmp_path: Path) -> None:
    """Exit code 2, what is wrong and where, no traceback, and the measured kernels are as they were."""
    short, binary = tmp_path / "short.csv", tmp_path / "binary.csv"
    short.write_text("\n".join(files[0].read_text().splitlines()[:8]))
    binary.write_bytes(b"\xff\xfe\x00")
    before = files[0].read_bytes()
    for arguments, said in (
        (["select", short], "short has 7 kernels, and 10 are needed"),
        (["select", binary], "binary.csv is not text"),
        (["select", tmp_path / "none.csv"], "none.csv cannot be read"),
        (["select", tmp_path], "cannot be read"),
        (["select", "/dev/zero"], "/dev/zero is larger than"),
        (["select"], "FILE"),
        (["select", *files, "--tasks-at-least", "5"], "5 of 4 tasks"),
        (["select", *files, "--out", files[0]], "holds measured kernels"),
        (["select", *files, "--out", tmp_path / "none" / "x.yaml"], "cannot be written"),
        (["show", "cudaforge25"], "cudaforge24"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, arguments
        assert said in done.stderr, arguments
        assert "Traceback" not in done.output
    assert files[0].read_bytes() == before


def test_show() -> None:
    """All 24 with what they mean, and what stands in; as JSON too."""
    done = run("show", "cudaforge24")
    assert done.exit_code == 0
    assert "warps that wait at a barrier of their block" in done.stdout
    assert "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio" in done.stdout
    found = json.loads(run("show", "cudaforge24", "--json").stdout)
    assert len(found["metrics"]) == 24
    assert found["metrics"]["dram__bytes_read.sum"] == []
