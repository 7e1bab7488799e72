"""The suite hgemm: a task for every shape, by its name alone, with checks that tell right kernels from wrong ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from plain_device import PlainCpuDevice

from cudamaster.build import open_headers, source_guard
from cudamaster.cli import main
from cudamaster.core.errors import DeviceError, UsageError
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.families.config import Config, Schedule
from cudamaster.families.render import render
from cudamaster.guards.flags import Flags
from cudamaster.guards.headers import is_allowed
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import Signature
from cudamaster.models.playbook import merged
from cudamaster.runs import playbooks, worked_examples
from cudamaster.runs.record import Settings
from cudamaster.strategies import registry
from cudamaster.suites import planning
from cudamaster.tasks import cards, harness, held_out, hgemm
from cudamaster.tasks.hgemm import GRID, SIZES, Accumulate, Layout, Shape
from cudamaster.workbench.evaluation import Workbench

VARIANTS = [(layout, sums) for layout in Layout for sums in Accumulate]
SMALL = Shape(16, 24, 40)


def name(layout: Layout, sums: Accumulate, shape: Shape = SMALL) -> str:
    return hgemm.name(shape, layout, sums)


def bench_of(task: str) -> Workbench:
    return Workbench(cards.load(task), Precision.FP16, PlainCpuDevice(), modelled=False)


def judged(task: str, code: str | None = None, flags: str = "") -> tuple[Status, str]:
    """What becomes of a kernel, by default the baseline, on the verification cases."""
    bench = bench_of(task)
    made = Candidate(task, Precision.FP16, code or bench.baseline.code, merged(bench.baseline.command, flags))
    verdict = bench.evaluate(made, check_only=True)
    return verdict.status, verdict.log or verdict.detail


def test_a_name_says_all_of_a_task() -> None:
    for task in (*hgemm.grid_names()[::97], "hgemm_nn_fp16_7x8x16", "hgemm_open_tn_fp32_64x64x128"):
        assert hgemm.parse_name(task).name == task
        assert hgemm.is_name(task)
    found = hgemm.parse_name("hgemm_open_nn_fp16_1x16x24")
    assert (found.shape, found.layout, found.accumulate) == (Shape(1, 16, 24), Layout.NN, Accumulate.FP16)
    assert found.open_headers
    assert len(GRID) == len(SIZES) ** 3 == len(set(GRID)) == 1000


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("hgemm", "no layout, type of sums and shape"),
        ("hgemm_xx_fp32_64x64x64", "'xx' is no layout"),
        ("hgemm_tn", "no type of sums"),
        ("hgemm_tn_bf16_64x64x64", "'bf16' is no type of sums"),
        ("hgemm_tn_fp32", "no shape"),
        ("hgemm_tn_fp32_64x64", "'64x64' is no shape"),
        ("hgemm_tn_fp32_064x64x64", "is no shape"),
        ("hgemm_tn_fp32_64x64x64_fp16", "behind the shape"),
        ("hgemm_tn_fp32_64x60x64", "N of 64x60x64 is no multiple of 8"),
        ("hgemm_tn_fp32_64x64x7", "Take 8; M may be any number"),
        ("hgemm_tn_fp32_1048576x1048576x8", "too large"),
        ("hgemm_tn_fp32_8x8x2097152", "too large"),
    ],
)
def test_a_name_that_is_none_is_refused_with_what_is_wrong(wrong: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        cards.load(wrong)
    assert not hgemm.is_name(wrong)


def test_cards_of_all_sizes_can_be_made() -> None:
    """A card is checked when it is made: cases, held-out ones, and every expression."""
    shapes = [*GRID[:: len(GRID) // 12], Shape(1, 8, 8), Shape(5, 16, 24), Shape(1, 8, 1048576), GRID[-1]]
    for place, shape in enumerate(shapes):
        layout, sums = VARIANTS[place % 4]
        card = cards.load(hgemm.name(shape, layout, sums))
        (timed,) = [case for case in card.cases if case.sweep]
        assert [timed.values[edge] for edge in ("M", "N", "K", "ones")] == [shape.m, shape.n, shape.k, 0]
        assert card.precisions == (Precision.FP16,)
        assert not card.of_benchmark
        assert card.declaration(Precision.FP16) == (
            'extern "C" void hgemm_fp16_optimized(const __half* A, const __half* B, __half* C, int M, int N, int K)'
        )


def test_held_out_cases_are_legal_and_never_beyond_the_shape() -> None:
    for task in ("hgemm_nn_fp16_64x64x16384", "hgemm_tn_fp32_4096x2048x4096"):
        card, shape, sums = cards.load(task), hgemm.parse_name(task).shape, [0.0]
        for seed in range(40):
            for large in (False, True):
                for case in held_out.draw(card, seed, largest=large):
                    m, n, k, ones = (int(case.values[edge]) for edge in ("M", "N", "K", "ones"))
                    assert n % 8 == k % 8 == 0
                    sums.append(k * (ones / 100) ** 2)  # on average
                    if large:
                        assert m <= shape.m
                        assert n <= shape.n
                        assert k <= shape.k
        fp16_sums = "_fp16_" in task
        assert max(sums) <= (1024 if fp16_sums else 60000), task
        assert fp16_sums or max(sums) > 2048


def test_the_hash_depends_on_the_shape_and_the_variant() -> None:
    tasks = [name(*variant) for variant in VARIANTS]
    tasks += [name(*VARIANTS[0], Shape(24, 24, 40)), hgemm.name(SMALL, open_headers=True)]
    assert len({cards.load(task).hash for task in tasks}) == len(tasks)
    assert cards.load(tasks[0]).hash == cards.load(tasks[0]).hash


def test_the_fifty_are_as_before() -> None:
    assert len(cards.names()) == 50
    assert not any(hgemm.is_meant(task) for task in cards.names())
    card = cards.load("matrix_mul")
    assert card.precisions == (Precision.FP32, Precision.BF16)
    assert card.hash == "fbce5960cc043a6a"
    assert card.times_as("8d91e0d1fb53038c")  # as records of matrix_mul have it


def test_a_sample_is_spread_over_the_sizes_and_always_the_same() -> None:
    drawn = hgemm.sample(GRID, 40)
    assert drawn == hgemm.sample(GRID, 40) != hgemm.sample(GRID, 40, seed=1)
    assert len(set(drawn)) == 40
    in_order = sorted(GRID, key=lambda shape: shape.products)
    bounds = [in_order[len(GRID) * k // 40].products for k in range(40)]
    for k, shape in enumerate(sorted(drawn, key=lambda shape: shape.products)):
        assert bounds[k] <= shape.products
        assert k == 39 or shape.products <= bounds[k + 1]
    assert hgemm.sample(GRID[:3], 5) == GRID[:3]
    with pytest.raises(UsageError, match="sample of 0"):
        hgemm.sample(GRID, 0)


def test_globs_match_the_grid_of_one_form_alone() -> None:
    assert len(hgemm.matching("hgemm_tn_fp32_*x*x64")) == 100
    assert len(hgemm.matching("hgemm*")) == 4000
    assert not any("open" in task for task in hgemm.matching("hgemm*"))
    assert len(hgemm.matching("hgemm_open_*")) == 4000
    assert hgemm.matching("hgemm_nn_fp16_100x104x8") == ["hgemm_nn_fp16_100x104x8"]


def test_a_suite_takes_globs_and_samples() -> None:
    settings = Settings("cudamaster", 1, 0, "cpu", {})
    made = planning.fresh(settings, ["hgemm_tn_fp32_64x64x*", "relu"], [Precision.FP32, Precision.BF16])
    tasks = [(entry.task, entry.precision) for entry in made.entries]
    assert tasks[:2] == [("relu", Precision.FP32), ("relu", Precision.BF16)]
    assert len(tasks) == 2 + len(SIZES)
    assert {precision for _, precision in tasks[2:]} == {Precision.FP16}
    made = planning.fresh(settings, ["hgemm_*"], [Precision.FP32], sample=25)
    assert len(made.entries) == 25
    assert len(planning.fresh(settings, [], [Precision.FP32]).entries) == 50
    for patterns, sample, said in (
        (["relu"], 3, "Samples are drawn from the suite hgemm alone"),
        (["hgemm_tn_fp32_65*"], None, "No task of the grid"),
        (["hgemm"], None, "no layout"),
    ):
        with pytest.raises(UsageError, match=said):
            planning.fresh(settings, patterns, [Precision.FP32], sample)


@pytest.mark.slow(but=["tn-fp32"])
@pytest.mark.parametrize(("layout", "sums"), VARIANTS)
def test_the_baseline_is_right(layout: Layout, sums: Accumulate) -> None:
    assert judged(name(layout, sums)) == (Status.CORRECT, "26 cases right")


@pytest.mark.slow(but=["nn-fp32"])
@pytest.mark.parametrize(("layout", "sums"), VARIANTS)
def test_the_playbook_is_right(layout: Layout, sums: Accumulate) -> None:
    """One step of each variant."""
    task = name(layout, sums, Shape(128, 64, 96))
    first, *others = playbooks.playbook().steps(task, "fp16")
    assert judged(task, first.code, first.flags) == (Status.CORRECT, "26 cases right")
    assert all(guarded(task, step.code, step.flags) is None for step in others)


# Members with few stages, so that these are used again and again.
MEMBERS = {
    "cooperative": Config(Layout.NN, Accumulate.FP32, Schedule.COOPERATIVE, 64, 64, 2, 1, 1, 1, 2),
    "copies shared": Config(Layout.TN, Accumulate.FP16, Schedule.COOPERATIVE, 64, 64, 2, 1, 2, 1, -1),
    "split in a cluster": Config(Layout.TN, Accumulate.FP32, Schedule.COOPERATIVE, 64, 16, 3, 1, 1, 3, 8),
    "pingpong": Config(Layout.TN, Accumulate.FP32, Schedule.PINGPONG, 64, 64, 2, 1, 1, 1, -2),
    "through_l2": Config(Layout.NN, Accumulate.FP32, Schedule.THROUGH_L2, 64, 64, 2, 1, 1, 3, 8),
    "warps": Config(Layout.NN, Accumulate.FP32, Schedule.WARPS, 16, 32, 4, 1, 1, 1, 8),
}


@pytest.mark.slow(but=["pingpong"])
@pytest.mark.parametrize("member", MEMBERS)
def test_the_kernels_for_hopper_are_right(member: str) -> None:
    """The CPU device executes them whatever the flags. Without the plain way, results are theirs or missing.

    Two clusters have to make all tiles, so that each makes several and they come in bands.
    """
    config = MEMBERS[member]
    code, launches = re.subn(r"hgemm_fragments_kernel<<<.*\n", "(void)tiles;\n", render(config))
    assert launches == 1
    if config.schedule is not Schedule.WARPS and config.split == 1:
        before = "    if (major != 9)"
        assert before in code
        code = code.replace(before, f"    blocks = 2 * kBlocks;\n{before}")
    assert judged(name(config.layout, config.accumulate), code) == (Status.CORRECT, "26 cases right")


PRODUCT = "__half2float(a[threadIdx.y][k]) * __half2float(b[k][threadIdx.x])"
# What is replaced in the baseline with sums in fp32, and what the refusal says.
WRONG = {
    "sums in bf16": (f"sum += {PRODUCT};", f"sum = __bfloat162float(__float2bfloat16(sum + {PRODUCT}));"),
    "sums in fp16": (f"sum += {PRODUCT};", f"sum = __half2float(__float2half(sum + {PRODUCT}));"),
    "products rounded to fp16": (PRODUCT, "__half2float(__hmul(a[threadIdx.y][k], b[k][threadIdx.x]))"),
    "a term left out": ("k < kTile; ++k", "k < (base + kTile < K ? kTile : (K - 1) % kTile); ++k"),
    "the last rounded to bf16": ("= __float2half(sum);", "= __float2half(__bfloat162float(__float2bfloat16(sum)));"),
    "cut off in place of rounded": ("= __float2half(sum);", "= __float2half_rz(sum);"),
    "the layout of the other variant": ("B[loaded * K + k]", "B[(size_t)k * N + loaded]"),
}


@pytest.mark.slow(but=["a term left out"])
@pytest.mark.parametrize("idea", WRONG)
def test_a_wrong_kernel_is_refused(idea: str) -> None:
    task = name(Layout.TN, Accumulate.FP32)
    old, new = WRONG[idea]
    code = bench_of(task).baseline.code
    assert old in code
    assert judged(task, "#include <cuda_bf16.h>\n" + code.replace(old, new))[0] is Status.WRONG


@pytest.mark.slow
def test_sums_in_fp16_are_refused_where_fp32_is_asked_and_bf16_where_fp16_is() -> None:
    half = bench_of(name(Layout.TN, Accumulate.FP16)).baseline.code
    assert judged(name(Layout.TN, Accumulate.FP32), half)[0] is Status.WRONG
    code, changed = re.subn(
        r"sum = __hfma\((.*?), (.*?), sum\);",
        r"sum = __float2half(__bfloat162float(__float2bfloat16(__half2float(__hfma(\1, \2, sum)))));",
        half,
    )
    assert changed == 1
    assert judged(name(Layout.TN, Accumulate.FP16), "#include <cuda_bf16.h>\n" + code)[0] is Status.WRONG


@pytest.mark.slow
def test_a_kernel_with_better_sums_passes_where_fp16_is_asked() -> None:
    full = bench_of(name(Layout.NN, Accumulate.FP32)).baseline.code
    assert judged(name(Layout.NN, Accumulate.FP16), full)[0] is Status.CORRECT


def test_results_of_zeros_and_ones_are_exact() -> None:
    """Results that are off by one in the last place pass elsewhere, and not where inputs are zeros and ones."""
    task = name(Layout.TN, Accumulate.FP32)
    code = bench_of(task).baseline.code
    bent = code.replace(
        "= __float2half(sum);",
        "= __ushort_as_half(__half_as_ushort(__float2half(sum)) + (sum == floorf(sum) && sum > 0 && row % 16 == 5));",
    )
    assert bent != code
    status, log = judged(task, bent)
    assert status is Status.WRONG
    assert "ones=" in log


def test_the_harness_names_what_the_suite_shares() -> None:
    text = harness.render(cards.load("hgemm_nn_fp16_64x72x80"), Precision.FP16)
    for part in (
        "bench/hgemm/hgemm.yaml",
        '#include "reference/hgemm.h"',
        "hgemm_nn_reference<T>",
        "using T = __half;",
        "(c.ones) != 0",
        "hgemm_nn_fp16_kernel",
    ):
        assert part in text, part
    assert "__float2half(0.0f)" in harness.skeleton(cards.load("hgemm_nn_fp16_64x72x80"), Precision.FP16)


def test_worked_examples_are_of_dense_tasks_in_bf16() -> None:
    examples = worked_examples.choose(name(Layout.TN, Accumulate.FP32), Precision.FP16, 2)
    assert [cards.load(example.task).category for example in examples] == ["dense", "dense"]
    assert all("bfloat16" in example.code for example in examples)


def command(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(words))
    return done.exit_code, done.output


def test_commands_take_the_suite_and_a_shape() -> None:
    code, shown = command("tasks", "hgemm", "--shape", "4096x2048x512", "--accumulate", "fp16", "--b-layout", "row")
    assert code == 0
    assert "hgemm_nn_fp16_4096x2048x512" in shown
    assert "hgemm_fp16_optimized" in shown
    code, listed = command("tasks", "hgemm", "--shape", "64x64x64", "--skeleton")
    assert code == 0
    assert "cudamaster evaluate hgemm_tn_fp32_64x64x64 THIS_FILE" in listed
    code, made = command("harness", "hgemm_tn_fp32_64x64x64")
    assert (code, "HGEMM 64 x 64 x 64" in made) == (0, True)
    assert "hgemm --shape" in command("tasks")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("harness", "hgemm"), "Add --shape 4096x2048x512"),
        (("harness", "relu", "--shape", "64x64x64"), "and the task is relu. Give it with hgemm alone"),
        (("harness", "hgemm", "--shape", "64x64"), "'64x64' is no shape"),
        (("harness", "hgemm", "--shape", "64x64x12"), "no multiple of 8"),
        (("harness", "hgemm_tn_fp32_64x64x64", "--accumulate", "fp16"), "belongs to the task hgemm"),
        (("harness", "hgemm_tn_fp32_64x64x64", "--precision", "bf16"), "is a task in fp16, not in bf16"),
        (("harness", "relu", "--precision", "fp16"), "is a task in fp32 and bf16, not in fp16"),
        (("optimize", "--shape", "64x64x64"), "the task is not given"),
        (("harness", "hgem"), "Did you mean hgemm?"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], said: str) -> None:
    code, shown = command(*words)
    assert code == 2
    assert said in shown


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU device without its checker, which other tests are about: it takes half of the time."""
    monkeypatch.setattr(CpuDevice, "has_debug_build", False)


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("strategy", [name for name in registry.STRATEGIES if name != "agent"])  # it asks no playbook
def test_every_strategy_searches_with_the_playbook(tmp_path: Path, strategy: str) -> None:
    """From the command line to a result that can be shown and resumed by the run folder alone."""
    words = [
        "--strategy",
        strategy,
        "-R",
        "1",
        "--profile",
        "none",
        "--device",
        "cpu",
        "--out",
        str(tmp_path),
        "--json",
    ]
    code, shown = command("optimize", "hgemm", "--shape", str(SMALL), *words)
    assert code == 0, shown
    (run,) = tmp_path.iterdir()
    assert run.name.startswith(f"{name(Layout.TN, Accumulate.FP32)}_fp16_")
    tried = [json.loads(path.read_text()) for path in (run / "verdicts").glob("*.json")]
    assert len(tried) == 2
    assert {verdict["status"] for verdict in tried} == {"correct"}
    assert command("optimize", "--resume", str(run), "--json")[0] == 0
    assert "hgemm_tn_fp32_16x24x40 (fp16): finished" in command("show", str(run))[1]


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
def test_a_suite_of_two_shapes_has_a_report_of_its_own(tmp_path: Path) -> None:
    words = ["-R", "1", "-D", "0", "--profile", "none", "--device", "cpu", "--out", str(tmp_path)]
    code, shown = command("suite", "--tasks", "hgemm_nn_fp32_64x64x64", "--tasks", "hgemm_nn_fp32_8x*x8", *words)
    assert (code, "No task of the grid" in shown) == (2, True)
    shapes = ("hgemm_nn_fp32_64x64x64", "hgemm_nn_fp32_64x64x128")
    code, shown = command("suite", "--tasks", "hgemm_nn_fp32_64x64x64", "--tasks", "hgemm_nn_fp32_64x64x12[!2]", *words)
    assert code == 0, shown
    (suite,) = tmp_path.iterdir()
    code, told = command("report", str(suite))
    assert code == 0, told
    assert "2 of 2 tasks of the suite hgemm got a correct kernel" in told
    for shape in shapes:
        assert shape in told
    assert "missing" not in told


WITH_CUTE = """
#include <cuda_fp16.h>
#include <cute/tensor.hpp>
__global__ void none_kernel(__half* C) { CUTE_NOTHING(C) }
extern "C" void hgemm_fp16_optimized(const __half* A, const __half* B, __half* C, int M, int N, int K) {
    none_kernel<<<1, 1>>>(C);
}
"""
OPEN, CLOSED = hgemm.name(SMALL, open_headers=True), hgemm.name(SMALL)


@pytest.fixture
def cutlass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of CUTLASS that has what the kernel above includes."""
    include = tmp_path / "include"
    for header, text in (("cute/tensor.hpp", "#define CUTE_NOTHING(to) *to = 0;"), ("cutlass/version.h", "// 4.2")):
        (include / header).parent.mkdir(parents=True)
        (include / header).write_text(text + "\n")
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    return include


def guarded(task: str, code: str, flags: str = "") -> str | None:
    """What the source guard says, with the CPU device's preprocessor; None where it has nothing to say."""
    card = cards.load(task)
    signature = Signature(card.wrapper(Precision.FP16, optimized=True), card.signature(Precision.FP16), card.headers)
    found = source_guard.guarded(code, Flags(tuple(flags.split())), PlainCpuDevice(), signature)
    return str(found) if isinstance(found, Refusal) else None


def test_cutlass_is_open_to_the_kernels_of_open_tasks_alone(cutlass: Path) -> None:
    assert guarded(OPEN, WITH_CUTE) is None
    assert open_headers.folders(WITH_CUTE, ("cutlass", "cute")) == (cutlass,)
    assert "belongs to a library that does the task" in str(guarded(CLOSED, WITH_CUTE))
    for header in ("cutlass/../../mine.h", "cub/cub.cuh", "cublas_v2.h", "cute/tensor"):
        said = str(guarded(OPEN, WITH_CUTE.replace("cute/tensor.hpp", header)))
        assert f"the header {header}" in said, said
    assert is_allowed(
        "cutlass/gemm/device/gemm_universal_adapter.h", ("cutlass",)
    )  # a ready product, as the guide says
    assert not is_allowed("cutlass/gemm/device/gemm_universal_adapter.h")
    named = WITH_CUTE.replace("CUTE_NOTHING(C)", "cutlass::nothing(C); cute::nothing(C);")
    assert guarded(OPEN, named) is None
    assert "cutlass names a library" in str(guarded(CLOSED, named.replace("#include <cute/tensor.hpp>", "")))
    printing = WITH_CUTE.replace("    none_kernel", "    std::cerr << M;\n    none_kernel")
    assert "cerr prints and keeps its settings" in str(guarded(OPEN, printing))
    assert judged(OPEN, WITH_CUTE) == (Status.UNSUPPORTED, "the cpu device cannot execute header <cute/tensor.hpp>")
    assert judged(CLOSED, WITH_CUTE)[0] is Status.REJECTED


def test_a_missing_cutlass_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    with pytest.raises(DeviceError, match=r"Set CUTLASS_PATH .* or install the package nvidia-cutlass"):
        open_headers.folders(WITH_CUTE, ("cutlass", "cute"))
    assert open_headers.folders("#include <mma.h>", ("cutlass", "cute")) == ()
    assert open_headers.flags("#include <mma.h>", ("cutlass", "cute")) == []
    assert open_headers.symbols(WITH_CUTE, ()) == frozenset()


def test_prompts_of_open_tasks_say_so() -> None:
    for task, said in ((OPEN, "`cute/*` and `cutlass/*` may be included"), (CLOSED, "Thrust or CUTLASS")):
        code, shown = command("prompt", task, "--role", "coder", "--device", "cpu")
        assert code == 0, shown
        assert said in shown


@pytest.mark.slow
def test_a_shape_that_is_too_long_for_the_cpu_device_has_modelled_times() -> None:
    """Only its small cases run there; what a call of the shape itself does is counted on a sample."""
    task = "hgemm_nn_fp32_8192x4096x2048"
    bench = Workbench(cards.load(task), Precision.FP16, PlainCpuDevice())
    step, *_ = playbooks.playbook().steps(task, "fp16")
    verdict = bench.evaluate(Candidate(task, Precision.FP16, step.code, bench.baseline.command))
    assert verdict.status is Status.CORRECT
    (timed,) = [case for case in verdict.cases if case.sweep]
    assert timed.skipped == "too long for this device"
    assert verdict.modelled is not None
    assert verdict.score is not None
    assert verdict.score > 2
