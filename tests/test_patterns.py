"""Descriptions of wrong results: which elements, what their values have in common, which sizes it depends on.

The words of bench/include/mskb/pattern.h are held by a small program made of that header alone, and a few wrong kernels
go the whole way on the CPU device.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from plain_device import PlainCpuDevice

from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.tasks import cards
from cudamaster.tasks.harness import row_width
from cudamaster.workbench.evaluation import Workbench

PROGRAM = """
#include <cstdio>
#include <cstdlib>
#include "mskb/pattern.h"

// shape ELEMENTS WIDTH INDEX...  or  values EXPECTED GOT ... with errors measured on 1 and 1e-6 allowed
int main(int count, char** words) {
    if (words[1][0] == 's') {
        mskb::Shape shape(std::atoll(words[2]), std::atoll(words[3]));
        for (int k = 4; k < count; ++k)
            shape.add(std::atoll(words[k]));
        std::puts(shape.words().c_str());
    } else {
        mskb::Values values;
        for (int k = 2; k + 1 < count; k += 2) {
            double got = words[k + 1][0] == '?' ? mskb::poison() : std::atof(words[k + 1]);
            values.count(mskb::flaw_of(got, mskb::Kind::kFloat));
            values.look_at({0, std::atof(words[k]), got, 1e-6, 1.0});
        }
        std::puts(values.words(mskb::Kind::kFloat).c_str());
    }
}
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """What the header says of a set of elements or of pairs of values."""
    device, folder = CpuDevice(), tmp_path_factory.mktemp("patterns")
    compiled = device.compile(PROGRAM, [], "patterns", folder)
    assert compiled.object is not None, compiled.log
    linked = device.link([compiled.object], folder / "patterns")
    assert linked.object is not None, linked.log

    def say(*arguments: object) -> str:
        command = [str(linked.object), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return say


def box(width: int, rows: range, columns: range) -> list[int]:
    return [r * width + c for r in rows for c in columns]


SHAPES = {
    "every element": (6, 0, range(6)),
    "one element, 3": (6, 0, [3]),
    "one element, 13 (row 2, column 3)": (20, 5, [13]),
    "the last 17 elements, 1024..1040 (what full blocks of 32, 64, 128, 256, 512, 1024 leave over)":
        (1041, 0, range(1024, 1041)),
    "the last 3 elements, 1020..1022 (what full blocks of 4 leave over)": (1023, 0, range(1020, 1023)),
    "elements 10..19": (100, 0, range(10, 20)),
    "every 4th element, 1..97": (100, 0, range(1, 100, 4)),
    "most of elements 10..29": (100, 0, [i for i in range(10, 30) if i != 17]),
    "scattered, 5 elements within 1..90": (100, 0, [1, 5, 40, 77, 90]),
    "nearly every element, 95 of 100": (100, 0, [i for i in range(100) if i % 20 != 7]),
    "row 2": (600, 60, box(60, range(2, 3), range(60))),
    "the last 2 rows, 8..9 (what full blocks of 4, 8 leave over)": (600, 60, box(60, range(8, 10), range(60))),
    "every 3rd row, 0..9": (600, 60, box(60, range(0, 10, 3), range(60))),
    "column 7": (600, 60, box(60, range(10), range(7, 8))),
    "the last 28 columns, 32..59 (what full blocks of 32 leave over)": (600, 60, box(60, range(10), range(32, 60))),
    "every 8th column, 0..56": (600, 60, box(60, range(10), range(0, 60, 8))),
    "a tile: rows 4..7; columns 16..31": (600, 60, box(60, range(4, 8), range(16, 32))),
    "a tile: row 4; columns 16..31": (600, 60, box(60, range(4, 5), range(16, 32))),
    "a run, elements 55 (row 0, column 55) to 130 (row 2, column 10)": (600, 60, range(55, 131)),
    "the last 70 elements, 530..599, from 530 (row 8, column 50)": (600, 60, range(530, 600)),
    "the last row, 9, and the last 2 columns, 58..59":
        (600, 60, sorted({*box(60, range(9, 10), range(60)), *box(60, range(10), range(58, 60))})),
    "scattered, 4 elements in 4 rows within 0..9; 4 columns within 0..41": (600, 60, [3, 130, 300, 581]),
}  # fmt: skip


@pytest.mark.parametrize("said", SHAPES)
def test_shapes(words: Callable[..., str], said: str) -> None:
    """Vectors have elements, matrices rows, columns and tiles; a few that are right by chance change nothing."""
    elements, width, wrong = SHAPES[said]
    assert words("shape", elements, width, *wrong) == said


EXPECTED = [0.731 + 0.173 * k for k in range(12)]
VALUES: dict[str, list[object]] = {
    "each NaN": ["nan"] * 12,
    "each as it was before the call (never written, or only added to)": ["?"] * 12,
    "2 of them as it was before the call (never written, or only added to), 1 of them NaN": [
        "?", "?", "nan", *range(5, 14)],
    "each zero": [0] * 12,
    "each infinite": ["inf"] * 12,
    "each 0.5 times what it should be": [0.5 * x for x in EXPECTED],
    "each -1 times what it should be": [-x for x in EXPECTED],
    "small errors, at most 2^-8 of the scale: lost precision, a term left out, or a constant slightly off":
        [x + 0.0035 * (-1) ** k for k, x in enumerate(EXPECTED)],
    "": [x + 0.1 * k for k, x in enumerate(EXPECTED, 1)],
}  # fmt: skip


@pytest.mark.parametrize("said", VALUES)
def test_values(words: Callable[..., str], said: str) -> None:
    """Only what all values have in common is said, but odd ones are counted."""
    pairs = [number for pair in zip(EXPECTED, VALUES[said], strict=True) for number in pair]
    assert words("values", *pairs) == said


def test_few_values_have_nothing_in_common(words: Callable[..., str]) -> None:
    """Three values that are half of what they should be may be so by accident."""
    assert words("values", 1, 0.5, 2, 1, 3, 1.5) == ""


def test_rounded_values(words: Callable[..., str]) -> None:
    """Results with few significant bits, where the expected ones have more."""
    tf32 = [x + 1 / 2048 for x in (1 + k / 1024 for k in range(12))]
    assert words("values", *(n for x in tf32 for n in (x, x - 1 / 2048))).startswith("each rounded to 11")
    bf16 = [x + 1 / 2048 for x in (1 + k / 128 for k in range(12))]
    assert words("values", *(n for x in bf16 for n in (x, x - 1 / 2048))).startswith("each rounded to 8")


@pytest.mark.parametrize(
    ("length", "width"), [("rows * K", "K"), ("N * C * H_out * W_out", "W_out"), ("N", None), ("1", None)]
)
def test_row_width(length: str, width: str | None) -> None:
    """The last factor of the number of elements."""
    assert row_width(length) == width


def evaluated(task: str, precision: Precision, old: str, new: str) -> Verdict:
    """The verification cases of a baseline with a change."""
    bench = Workbench(cards.load(task), precision, PlainCpuDevice(), seed=5)
    code = bench.baseline.code
    assert old in code
    return bench.evaluate(Candidate(task, precision, code.replace(old, new), bench.baseline.command), check_only=True)


def pattern(verdict: Verdict, label: str) -> str:
    assert verdict.status is Status.WRONG, verdict.detail
    (output,) = next(case.outputs for case in verdict.cases if case.label == label)
    return output.pattern


@pytest.mark.slow
def test_a_forgotten_tail_and_its_sizes() -> None:
    """Groups of four alone: the pattern and the rule both lead to it."""
    verdict = evaluated("vector_add", Precision.FP32, "if (i >= N)", "if (i >= N / 4 * 4)")
    assert pattern(verdict, "N=1023").startswith("the last 3 elements, 1020..1022 (what full blocks of 4 leave over)")
    assert "never written" in pattern(verdict, "N=1023")
    assert "N is not a multiple of 4" in verdict.log.splitlines()[1]


@pytest.mark.slow
def test_a_tile_and_its_factor() -> None:
    """A tile counted twice, also where the reference covers a sample and the device compares every element."""
    tile = "C[row * N + col] = row / 32 == 1 && col / 16 == 1 ? 2 * sum : sum"
    verdict = evaluated("matrix_mul", Precision.FP32, "C[row * N + col] = sum", tile)
    assert pattern(verdict, "M=65,N=129,K=33") == (
        "a tile: rows 32..63; columns 16..31; each 2 times what it should be"
    )
    large = next(case for case in verdict.cases if case.label == "M=7561,N=131,K=3")
    (output,) = large.outputs
    assert output.oracle_elements < output.elements
    assert output.mismatches == 512
    assert output.pattern == "a tile: rows 32..63; columns 16..31; each 2 times what it should be"
    assert output.width == 131
    assert output.first[0].element == 32 * 131 + 16


@pytest.mark.slow
def test_one_element_of_a_million_that_is_off_by_a_percent() -> None:
    """The reference covers few of the elements; the comparison with the baseline finds this one, exactly."""
    one = "C[row * N + col] = row == 7000 && col == 100 ? 1.01f * sum : sum"
    verdict = evaluated("matrix_mul", Precision.FP32, "C[row * N + col] = sum", one)
    assert pattern(verdict, "M=7561,N=131,K=3").startswith("one element, 917100 (row 7000, column 100)")
    (wrong,) = next(case.outputs[0].first for case in verdict.cases if case.label == "M=7561,N=131,K=3")
    assert wrong.got == pytest.approx(1.01 * wrong.expected, rel=1e-5)
    assert wrong.allowed < 1e-4 * abs(wrong.expected)


@pytest.mark.slow
def test_an_honest_kernel_is_not_refused_for_a_guessed_scale(tmp_path: Path) -> None:
    """With four elements sampled of 65536 that lie 35 orders of magnitude apart, the reference has the last word."""
    bench = Workbench(cards.load("softmax"), Precision.FP32, PlainCpuDevice())
    code = bench.baseline.code.replace(
        "expf(x[j] - largest) / sum;", "exp2f((x[j] - largest) * 1.4426950408889634f) / sum;"
    )
    builder = bench._builder
    build = builder.build(Candidate("softmax", Precision.FP32, code, bench.baseline.command))
    assert build.worker is not None, build.log
    workers = ["--baseline", builder.baseline_worker(), "--candidate", build.worker]
    for seed in range(4):
        report = tmp_path / f"{seed}.jsonl"
        command = [
            builder.judge(),
            *workers,
            "--cases",
            "none",
            "--case",
            "N=64,C=1024,low=-40,high=40",
            "--calls",
            "0",
        ]
        command += ["--oracle-elements", "4", "--seed", str(seed), "--report", report]
        assert subprocess.run(command, check=False).returncode == 0, report.read_text()


@pytest.mark.slow
def test_one_element_within_twice_the_bound_is_seen_where_the_reference_takes_a_sample(tmp_path: Path) -> None:
    """Two kernels may be apart by that much; the reference, asked about the furthest, says which of them is wrong."""
    bench = Workbench(cards.load("matrix_scalar_mul"), Precision.FP32, PlainCpuDevice())
    assert "scalar * A[i]" in bench.baseline.code
    for ulps, code in ((0.0, 0), (6.0, 1)):  # of fp32 at the element; the bound is four
        text = bench.baseline.code.replace(
            "scalar * A[i]", f"scalar * A[i] * (i == 5000 ? 1.0f + {ulps}f * 0x1p-23f : 1.0f)"
        )
        build = bench._builder.build(Candidate("matrix_scalar_mul", Precision.FP32, text, bench.baseline.command))
        assert build.worker is not None, build.log
        command = [bench._builder.judge(), "--baseline", bench._builder.baseline_worker(), "--candidate", build.worker]
        command += [
            "--cases",
            "none",
            "--case",
            "M=100,N=100,scalar=2",
            "--calls",
            "0",
            "--oracle-elements",
            "200",
            "--seed",
            "1",
        ]
        report = tmp_path / f"{ulps}.jsonl"
        assert subprocess.run([*command, "--report", report], check=False).returncode == code, report.read_text()


@pytest.mark.slow
def test_a_wrong_kernel_on_the_command_line(tmp_path: Path) -> None:
    """What is printed names the elements, what was expected, got and allowed; the JSON has it all for every case."""
    bench = Workbench(cards.load("spmv_csr"), Precision.FP32, PlainCpuDevice())
    code = re.sub(r"y\[row\] = sum;", "y[row] = row == 5 ? sum + 0.25f : sum;", bench.baseline.code)
    assert code != bench.baseline.code
    file = tmp_path / "wrong.cu"
    file.write_text(code)
    command = [sys.executable, "-m", "cudamaster", "evaluate", "spmv_csr", str(file), "--device", "cpu", "--check-only"]
    printed = subprocess.run([*command, "--seed", "5"], capture_output=True, text=True, check=False)
    assert printed.returncode == 1, printed.stderr
    assert "one element, 5" in printed.stdout
    assert re.search(r"element +expected +got +allowed error\n +y\[5\] ", printed.stdout)
    told = subprocess.run([*command, "--seed", "5", "--json"], capture_output=True, text=True, check=False)
    verdict = json.loads(told.stdout)
    ran = [case for case in verdict["cases"] if case["status"]]
    assert ran
    for case in ran:
        (output,) = case["outputs"]
        assert output["bound"] > 0
        assert output["baseline_worst_error"] <= output["bound"]
        assert (float(output["worst_error"]) > output["bound"]) == (case["status"] == "wrong") == bool(output["first"])
