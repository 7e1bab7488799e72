"""Compares tables of times with each other: disagreements are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cudamaster.cli import main
from cudamaster.core.errors import UsageError
from cudamaster.modelling import measured
from cudamaster.report import agreement
from cudamaster.report.agreement import Committed, disagreements, of_folder
from cudamaster.report.loading import load

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted({path.parent for name in ("baselines.json", "times*.csv") for path in RESULTS.rglob(name)})


def time(us: float, source: str = "times.csv", task: str = "relu", **more: object) -> Committed:
    return Committed(task, "fp32", "baseline", "N=1024", us, source, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "second", "far"),
    [
        (time(100.0, empty_us=9.0), time(105.4, "report.json", empty_us=9.0), False),
        (time(100.0, empty_us=9.0), time(105.6, "report.json", empty_us=9.0), True),
        (time(107.6, empty_us=11.0), time(100.0, "report.json", empty_us=9.0), True),
        (time(107.4, empty_us=11.0), time(100.0, "report.json", empty_us=9.0), False),
        (time(100.0), time(108.4, "report.json"), False),
        (time(100.0), time(108.6, "report.json"), True),
        (time(100.0, task="layer_norm"), time(128.4, "report.json", task="layer_norm"), False),
        (time(100.0, task="layer_norm"), time(128.6, "report.json", task="layer_norm"), True),
        (time(100.0, device="NVIDIA H200"), time(500.0, "report.json", device="NVIDIA L4"), False),
        (time(100.0), time(500.0, "report.json", task="elu"), False),
    ],
)
def test_times_are_apart_by_more_than_two_measurements_are(first: Committed, second: Committed, far: bool) -> None:
    """By 5 % and 0.5 µs, what their empty launches differ by or 3 µs, and 25 % where a call allocates."""
    found = disagreements([first, second])
    assert bool(found) == far
    for one in found:
        assert (one.us, one.other_us) == tuple(sorted((first.us, second.us)))


def tables(folder: Path) -> Path:
    """A folder in which baselines.json has a time that times.csv has not."""
    folder.mkdir()
    head = "task,precision,kernel,case,whole_us,device_us,code\n"
    (folder / "times.csv").write_text(head + "relu,fp32,baseline,N=1024,12.0,,\nrelu,fp32,baseline,N=4096,12.0,,\n")
    timed = [{"label": label, "median_us": 107.0, "empty_us": 9.0} for label in ("N=1024", "N=4096")]
    baseline = {"task": "relu", "precision": "fp32", "timed": timed}
    content = {"about": {"device": "NVIDIA H200"}, "baselines": [baseline]}
    (folder / "baselines.json").write_text(json.dumps(content))
    return folder


@pytest.mark.slow
def test_a_report_names_what_its_tables_disagree_on(tmp_path: Path) -> None:
    """In the terminal, on the page and for programs, with both figures and where they stand."""
    told = load([RESULTS / "h200" / "spmv_csr_fp32", tables(tmp_path / "mine")])
    (one,) = told.disagreements
    assert (one.us, one.source, one.other_us, one.other_source) == (12.0, "times.csv", 107.0, "baselines.json")
    assert one.cases == 2
    words = [str(RESULTS / "h200" / "spmv_csr_fp32"), str(tmp_path / "mine"), "--html", str(tmp_path / "page.html")]
    shown = CliRunner().invoke(main, ["report", *words], env={"COLUMNS": "200"}).output
    for text in (shown, (tmp_path / "page.html").read_text()):
        assert "Times that disagree" in text
        for word in ("relu_fp32 baseline", "12.0", "times.csv", "107.0", "baselines.json"):
            assert word in text
    (tmp_path / "mine" / "times.csv").write_text("no,table\n")
    assert "it has no column task" in " ".join(problem.what for problem in load([tmp_path / "mine"]).problems)


def test_a_table_has_one_time_of_a_kernel_at_a_case(tmp_path: Path) -> None:
    path = tables(tmp_path / "mine") / "times.csv"
    path.write_text(path.read_text() + "relu,fp32,baseline,N=4096,13.0,,\n")
    with pytest.raises(UsageError, match="two times of relu-fp32 baseline at N=4096"):
        measured.read(path)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_committed_tables_agree_or_say_so(folder: Path) -> None:
    """If committed times contradict another table, they have to be listed, with both figures."""
    path = folder / "disagreeing.md"
    named = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    silent = [line for one in of_folder(folder) if (line := agreement.line(one)) not in named]
    assert not silent, f"python benchmarks/agreement.py {folder} names them, or measure again:\n" + "\n".join(silent)
