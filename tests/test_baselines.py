"""The table of the baselines' times, and the make target that checks them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision
from cudamaster.tasks import cards
from cudamaster.workbench.baselines import BaselineCase, BaselineRecord, naive, to_markdown


@pytest.mark.parametrize("task", cards.names())
def test_every_baseline_says_what_is_naive_about_it(task: str) -> None:
    """The table takes its reasons from there."""
    for precision in BENCHMARK_PRECISIONS:
        reason = naive(cards.load(task), precision)
        assert len(reason) > 20
        assert "//" not in reason
        assert "#include" not in reason


def test_the_table_gives_a_reason_for_slow_baselines_alone() -> None:
    """Times, floor and ratio in a row each; what is far above the floor is explained."""
    records = [
        BaselineRecord("dot_product", Precision.FP32, True, 21, {}, "", 1.0, 1e-7,
                       (BaselineCase("N=8", 8.0, 20.0, 20.0, 0.1, 9.0, 10.0),)),
        BaselineRecord("sorting", Precision.BF16, True, 34, {}, "", 1.0, 0.0,
                       (BaselineCase("N=256", 1.0, 90.0, 90.0, 0.1, 9.0, 10.0),
                        BaselineCase("N=512", 3.0, 900.0, 900.0, 0.1, 9.0, 10.0))),
    ]  # fmt: skip
    text = to_markdown(records, {name: cards.load(name) for name in ("dot_product", "sorting")}, {"device": "a GPU"})
    assert "| dot_product | fp32 | 21 | N=8 | 20.0 | 10.0 | 2.0 | 2.0 |" in text
    assert "| sorting | bf16 | 34 | N=512 | 900.0 | 10.0 | 90.0 | 69.8 |" in text
    assert "- sorting bf16, 90 times at N=512: bottom-up merge sort" in text
    assert "- dot_product" not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--calls", "5"], "cannot be timed on the CPU device"), (["--save", "x"], "nothing is timed")],
)
def test_times_need_a_gpu_and_calls(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before anything is built or written."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["baselines", "dot_product", "--device", "cpu", "--json", *options])
    assert result.exit_code != 0
    assert said in f"{result.output} {result.exception}"
    assert list(tmp_path.iterdir()) == []


def test_the_kept_table_is_of_this_suite() -> None:
    """The committed times are those of all hundred baselines, of every timed case, and none below its floor."""
    kept = json.loads((Path(__file__).parent.parent / "results" / "h200" / "baselines.json").read_text())
    times = {(record["task"], record["precision"]): record for record in kept["baselines"]}
    for task in cards.names():
        labels = [case.label for case in cards.load(task).cases if case.sweep]
        for precision in BENCHMARK_PRECISIONS:
            record = times[task, precision.value]
            assert record["right"]
            assert [case["label"] for case in record["timed"]] == labels
            assert all(case["mean_us"] >= 0.95 * case["floor_us"] for case in record["timed"])


def test_make_in_a_checkout_with_a_space_in_its_path(tmp_path: Path) -> None:
    """`make -C bench test` finds the command and the setup of its own checkout."""
    checkout = tmp_path / "my work"
    (checkout / "bench").mkdir(parents=True)
    shutil.copy(resources.bench() / "Makefile", checkout / "bench")
    (checkout / "Makefile").write_text(".venv/.ready:\n\t@echo set up\n")
    command = checkout / ".venv" / "bin" / "cudamaster"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\necho "$@"\n')
    command.chmod(0o755)
    made = subprocess.run(
        ["make", "-s", "-C", checkout / "bench", "test", "TASK=relu"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert [line for line in made.stdout.splitlines() if "directory" not in line] == [
        "set up",
        "baselines relu --precision both --device auto",
    ]
