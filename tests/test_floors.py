"""The limits of a GPU, how they are kept, and the floors made of them."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cudamaster.cli.limits import rows
from cudamaster.core import resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.records import from_json, to_json
from cudamaster.core.values import CaseVerdict, Precision, Status, Timing, Verdict
from cudamaster.devices.choose import why_not_cuda
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import CudaDevice, LocalGpu, find_nvcc
from cudamaster.tasks import cards
from cudamaster.workbench import floors
from cudamaster.workbench.floors import Floor, GpuLimits, Term, floor

ABSENT = LocalGpu(0, "No GPU", "GPU-of-a-test", "9.0", "580", "143771", "1980", "3201", "700")
# Invented round figures of a GPU that does not exist.
LIMITS = GpuLimits(
    date="2026-01-02T03:04:05+00:00",
    uuid="GPU-of-a-test",
    driver="580",
    source="0123456789abcdef",
    name="No GPU",
    compute_capability="9.0",
    multiprocessors=100,
    l2_bytes=50_000_000,
    threads_per_sm=2048,
    registers_per_sm=65536,
    shared_bytes_per_sm=233472,
    shared_bytes_per_block=232448,
    read_bytes_per_s=4e12,
    write_bytes_per_s=2e12,
    copy_bytes_per_s=3e12,
    memory_peak_bytes_per_s=4.4e12,
    fp32_per_s=50e12,
    bf16_pairs_per_s=100e12,
    tensor_per_s=900e12,
    tensor_by="wgmma",
    special_per_s=4e12,
    sm_clock_max_mhz=2000,
    sm_clock_before_mhz=1990.0,
    sm_clock_after_mhz=1980.0,
)


def of_task(task: str, precision: Precision = Precision.FP32, limits: GpuLimits = LIMITS) -> Floor:
    """The floor of the timed case of the largest weight."""
    card = cards.load(task)
    return floor(card, max((c for c in card.cases if c.sweep), key=lambda case: case.weight), precision, limits)


def kept(path: Path, **changes: object) -> Path:
    """A file of limits that count, but for the changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**to_json(LIMITS), "source": floors.source_hash(), **changes}))
    return path


def test_the_floor_is_what_takes_longest() -> None:
    """By hand: 2 * 2^20 floats read and one written; a matrix of 65536 x 2048 floats scaled."""
    dot = of_task("dot_product")
    assert dot.terms["read"].us == dot.hardware_us == pytest.approx(8 * 2**20 / 4e6)
    assert dot.terms["write"].us == 0  # a few bytes stay in L2
    assert dot.terms["operations"].us == pytest.approx(2 * 2**20 / 50e6)
    assert dot.call_us(9.0) == pytest.approx(dot.hardware_us + 9)
    size = 4 * 65536 * 2048
    scaled = of_task("matrix_scalar_mul")
    assert scaled.terms["read"].us == pytest.approx(size / 4e6)
    assert scaled.terms["write"].us == pytest.approx((size - 50_000_000) / 2e6)
    # Both share the pins of the memory: all bytes at the best rate, which is that of reading here.
    assert scaled.terms["memory"].us == pytest.approx((2 * size - 50_000_000) / 4e6)
    assert scaled.hardware_us == scaled.terms["memory"].us
    slow_writes = dataclasses.replace(LIMITS, write_bytes_per_s=1e12)
    assert of_task("matrix_scalar_mul", limits=slow_writes).hardware_us == pytest.approx((size - 50_000_000) / 1e6)


def test_arithmetic_is_bound_by_the_fastest_unit_that_can_do_it() -> None:
    """Products by tensor cores, in fp32 at a third of their rate where that is more; the rest by fp32 or bf16 pairs."""
    operations = 2 * 4096**3
    assert of_task("square_matrix_mul", Precision.BF16).hardware_us == pytest.approx(operations / 900e6)
    split = of_task("square_matrix_mul")
    assert split.hardware_us == pytest.approx(operations / 300e6)
    assert "3 products" in split.terms["operations"].by
    no_tensor = dataclasses.replace(LIMITS, tensor_per_s=90e12)
    assert of_task("square_matrix_mul", limits=no_tensor).hardware_us == pytest.approx(operations / 50e6)
    assert LIMITS.operations_per_s(Precision.BF16, products=False) == (100e12, "bf16 pairs")
    assert LIMITS.operations_per_s(Precision.FP32, products=False) == (50e12, "fp32")


def test_tensor_cores_that_may_be_faster_than_measured() -> None:
    """mma.sync is not the fastest instruction on 10.0: the documented rate counts there, 8192 a clock."""
    by_mma = dataclasses.replace(LIMITS, tensor_by="mma.sync")
    assert dataclasses.replace(by_mma, compute_capability="10.0").tensor_bound_per_s == pytest.approx(8192 * 100 * 2e9)
    assert dataclasses.replace(by_mma, compute_capability="9.0").tensor_bound_per_s == pytest.approx(8192 * 100 * 2e9)
    for complete in ("8.0", "8.9", "12.0"):
        assert dataclasses.replace(by_mma, compute_capability=complete).tensor_bound_per_s == 900e12
    assert LIMITS.tensor_bound_per_s == 900e12


def test_the_sum_is_shown() -> None:
    """Amount, rate and time of every term that is not zero, and the floor; it can be recorded and read back."""
    least = Floor(
        {
            "read": Term("reads", 268_435_456, 4.31e12, "B"),
            "write": Term("writes", 4e8, 4e12, "B", "beyond L2"),
            "operations": Term("does", 5.4e8, 61e12, "operations", "fp32"),
        }
    )
    assert least.explain() == (
        "reads 268 MB at 4.31 TB/s: 62.3 µs; writes 400 MB beyond L2 at 4 TB/s: 100 µs; "
        "does 5.4e+08 operations at 61 TFLOP/s (fp32): 8.85 µs; the floor is 100 µs"
    )
    assert from_json(Floor, json.loads(json.dumps(to_json(least)))) == least
    assert Term("reads", 4, 1e12, "B").explain().startswith("reads 4 B at 1 TB/s")
    assert "write" not in of_task("dot_product").explain()


def test_what_is_gathered_stands_beside_the_floor() -> None:
    """By hand: 20 * 262144 entries, each of which takes a row of 4096 floats; it makes no call impossible."""
    least = of_task("spmm_csr")
    assert least.gather is not None
    assert least.gather.amount == card_nnz() * 4096 * 4
    assert least.gather.per_s == LIMITS.shared_bytes_per_s == 128 * 100 * 2e9
    assert least.gather.us > least.hardware_us == max(term.us for term in least.terms.values())
    assert not least.impossible(least.hardware_us)
    assert least.beside() == (
        "Not in the floor: gathers 88 GB through shared memory (128 bytes a cycle and SM) at 25.6 TB/s: 3.44 ms"
    )
    assert "gathers" not in least.explain()
    half = of_task("spmm_csr", Precision.BF16).gather
    assert half is not None
    assert 2 * half.amount == least.gather.amount
    assert of_task("relu").gather is None
    assert not of_task("relu").beside()


def card_nnz() -> int:
    """Entries of the heaviest timed case of spmm_csr."""
    return 262144 * 2048 // 100


def test_the_floor_is_explained_with_what_is_gathered() -> None:
    """For the heaviest case that was timed, where the card names a gather; nothing elsewhere."""
    card = cards.load("spmm_csr")
    timing = Timing(baseline_us=(9.0,), candidate_us=(9.0,))
    cases = [
        CaseVerdict(case.label, True, case.weight, Status.CORRECT, timing=timing) for case in card.cases if case.sweep
    ]
    verdict = Verdict("c0ffee", "cuda", False, Status.CORRECT, "right", score=1.0, cases=tuple(cases[:2]))
    said = floors.explained(verdict, card, Precision.FP32, LIMITS)
    assert re.fullmatch(
        r"rows=4096,K=4096: reads .* the floor is 12\.8 µs\. Not in the floor: gathers 1\.37 GB .*: 53\.7 µs\.", said
    ), said
    assert not floors.explained(dataclasses.replace(verdict, cases=()), card, Precision.FP32, LIMITS)
    assert not floors.explained(verdict, cards.load("relu"), Precision.FP32, LIMITS)


def test_a_long_time_is_in_milliseconds() -> None:
    assert floors.duration(62.34) == "62.3 µs"
    assert floors.duration(999.4) == "999 µs"
    assert floors.duration(999.6) == "1 ms"
    assert floors.duration(3374.0) == "3.37 ms"


def test_what_is_impossible() -> None:
    """Well below the hardware's own time; limits are measured and so good to a few percent. NaN is no time."""
    least = Floor({"read": Term("reads", 4e8, 4e12, "B")})
    assert least.hardware_us == pytest.approx(100.0)
    assert not least.impossible(96.0)
    assert least.impossible(94.0)
    assert least.impossible(float("nan"))


def test_figures_for_whoever_writes_a_kernel() -> None:
    """With units; the rates are those measured, not what is documented."""
    assert dict(LIMITS.figures) == {
        "multiprocessors (SMs)": "100",
        "threads per SM": "2048",
        "32-bit registers per SM": "65536",
        "shared memory per SM": "228 KiB",
        "shared memory per block": "48 KiB, up to 227 KiB as dynamic shared memory that cudaFuncSetAttribute allows",
        "L2 cache": "47.7 MiB",
        "memory bandwidth, measured": "reads 4 TB/s, writes 2 TB/s",
        "fp32 arithmetic, measured": "50 TFLOP/s",
        "bf16 arithmetic without tensor cores, measured": "100 TFLOP/s",
        "tensor cores, bf16 with fp32 sums, measured by wgmma": "900 TFLOP/s",
    }


def test_limits_that_count_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert floors.read(kept(tmp_path / "a.json"), ABSENT) == dataclasses.replace(LIMITS, source=floors.source_hash())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"driver": "570"}, "the driver was 570 and is 580"),
        ({"uuid": "GPU-another"}, "the GPU was GPU-another"),
        ({"source": "fedcba9876543210"}, "the source of limits.cu was fedcba9876543210"),
        ({"read_bytes_per_s": 0}, "read_bytes_per_s"),
        ({"fp32_per_s": "61e12"}, "fp32_per_s"),
        ({"tensor_by": "magic"}, "tensor_by"),
        ({"a_field_of_tomorrow": 1}, "a_field_of_tomorrow"),
    ],
)
def test_limits_that_do_not_count(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    """Of another GPU, driver or program, or with a figure that makes no sense: the reason is said."""
    found = floors.read(kept(tmp_path / "a.json", **changes), ABSENT)
    assert isinstance(found, str)
    assert said in found


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"date": "2026-01-02"}', b"\xff\xfe\x00"])
def test_a_damaged_file_is_no_limits(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(text)
    found = floors.read(tmp_path / "a.json", ABSENT)
    assert isinstance(found, str)
    assert found.startswith("the file cannot be used (")


def test_the_source_hash_covers_every_part(tmp_path: Path) -> None:
    """Each file that limits.cu includes from its own folder is one of those hashed."""
    folder = resources.bench() / "harness"
    named = set()
    for path in (folder / "limits.cu", *(folder / "limits").iterdir()):
        named |= {Path(name).name for name in re.findall(r'#include "(?:harness/limits/)?(\w+\.h)"', path.read_text())}
    assert named == {path.name for path in (folder / "limits").glob("*.h")}


def test_doubts_are_about_what_held_the_gpu_back() -> None:
    assert LIMITS.doubts == ()
    slow = dataclasses.replace(LIMITS, read_bytes_per_s=2.2e12, sm_clock_after_mhz=1000.0)
    assert slow.doubts == (
        "Reading reached 50% of what the memory's clock and width allow.",
        "The SMs ran at 1000 MHz of 2000.",
    )
    assert dataclasses.replace(LIMITS, memory_peak_bytes_per_s=0.0).doubts == ()


def test_emulated_devices_have_no_limits() -> None:
    assert floors.limits(CpuDevice()) is None


@pytest.mark.slow
@pytest.mark.nvcc
def test_limits_are_measured_where_none_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept limits are taken as they are. A damaged file is measured again with a word; without a GPU that fails with
    the reason, and the file stays."""
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    device, words = CudaDevice(ABSENT), list[str]()
    path = kept(floors.place(ABSENT))
    assert path.is_relative_to(tmp_path)
    assert floors.limits(device, say=words.append) == dataclasses.replace(LIMITS, source=floors.source_hash())
    assert words == []
    path.write_text("{")
    with pytest.raises(DeviceError, match="cudaGetDevice"):
        floors.limits(device, say=words.append)
    assert len(words) == 1
    assert "measured again: the file cannot be used" in words[0]
    assert path.read_text() == "{"


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.parametrize(("target", "tensor"), [("80", "mma.sync.aligned.m16n8k16"), ("90a", "wgmma.mma_async")])
def test_the_loops_hold_the_instructions_they_measure(target: str, tensor: str, tmp_path: Path) -> None:
    """For both generations limits.cu compiles without a warning, and no step of a loop was optimised away."""
    source = resources.bench() / "harness" / "limits.cu"
    flags = ["-O2", "-std=c++17", f"-gencode=arch=compute_{target},code=sm_{target}", f"-I{resources.bench()}"]
    command = [str(find_nvcc()), *flags, "--keep", "--keep-dir", str(tmp_path), "-Xptxas=-v", "-c", str(source)]
    done = subprocess.run([*command, "-o", "limits.o"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"warning|[1-9]\d* bytes spill|serialized", done.stderr), done.stderr
    (ptx,) = tmp_path.glob("*.ptx")
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)\n}", ptx.read_text(), re.DOTALL))
    counted = {"Fp32": ("fma.rn.f32", 128), "Bf16Pair": ("fma.rn.bf16x2", 128), "Special": ("ex2.approx.ftz.f32", 128),
               "tensor_kernel": (tensor, 8)}  # fmt: skip
    for kernel, (instruction, times) in counted.items():
        (body,) = (text for name, text in bodies.items() if kernel in name)
        assert body.count(instruction) == times, kernel


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`cudamaster limits ARGUMENTS` in a process of its own."""
    command = [sys.executable, "-m", "cudamaster", "limits", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(why_not_cuda() is None, reason="there is a GPU")
@pytest.mark.parametrize(("device", "code"), [("auto", 4), ("cuda", 4), ("cpu", 2)])
def test_without_a_gpu_the_command_says_so(device: str, code: int) -> None:
    """With what to do, for people and programs; the exit codes are those of all commands."""
    done = run("--device", device, "--json")
    assert done.returncode == code
    error = json.loads(done.stdout)["error"]
    assert error["reason"]
    assert error["fix"]
    assert len(done.stderr.splitlines()) == 1


def test_the_table_says_how_each_figure_was_got() -> None:
    """Where the measured rate of the tensor cores is no bound, the documented one stands below it."""
    assert ["tensor", "900", "TFLOP/s", "bf16 with fp32 sums, wgmma"] in rows(LIMITS)
    newer = rows(dataclasses.replace(LIMITS, compute_capability="10.0", tensor_by="mma.sync"))
    assert [row[:2] for row in newer][5:7] == [["tensor", "900"], ["tensor bound", "1638"]]
    assert len(newer) == len(rows(LIMITS)) + 1


@pytest.mark.gpu
def test_the_limits_of_this_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that a GPU can have: memory below its peak, each unit at most what it does in a clock."""
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path))
    device = CudaDevice()
    found = floors.limits(device)
    assert found is not None
    assert floors.limits(device) == found  # the second time from the file
    if found.memory_peak_bytes_per_s:
        for bandwidth in (found.read_bytes_per_s, found.write_bytes_per_s, found.copy_bytes_per_s):
            assert 0.5 < bandwidth / found.memory_peak_bytes_per_s < 1.05
    cycles = found.multiprocessors * found.sm_clock_max_mhz * 1e6
    assert 100 < found.fp32_per_s / cycles < 1.03 * 256
    assert 100 < found.bf16_pairs_per_s / cycles < 1.03 * 1024
    assert 8 <= found.special_per_s / cycles < 1.03 * 32
    assert 400 < found.tensor_per_s / cycles < 1.03 * 8192
    if found.compute_capability == "9.0":
        assert found.tensor_by == "wgmma"
        assert found.tensor_per_s / cycles > 0.85 * 4096


@pytest.mark.parametrize(("part", "status"), [(1.5, Status.CORRECT), (0.97, Status.CORRECT), (0.5, Status.REJECTED)])
def test_a_time_below_the_floor_is_refused_with_the_sum(part: float, status: Status) -> None:
    """What no kernel can have done in that time was not done; a few percent are what the limits may be off by."""
    card = cards.load("matrix_scalar_mul")
    heaviest = max((c for c in card.cases if c.sweep), key=lambda case: case.weight)
    least = floor(card, heaviest, Precision.FP32, LIMITS)
    times = (part * least.hardware_us,) * 5
    timed = CaseVerdict(
        heaviest.label, True, heaviest.weight, Status.CORRECT, timing=Timing((900.0,) * 5, times), empty_us=9.0
    )
    verdict = Verdict("c0ffee", "cuda", False, Status.CORRECT, "right", score=2.0, cases=(timed,))
    held = floors.hold(verdict, card, Precision.FP32, LIMITS)
    assert held.cases[0].floor_us == pytest.approx(least.hardware_us + 9)
    assert held.status is status
    if status is Status.REJECTED:
        assert held.score is None
        assert f"impossible in case {heaviest.label}" in held.detail
        assert "reads 537 MB at 4 TB/s" in held.detail


def test_both_kernels_of_a_comparison_are_held_to_the_floor() -> None:
    """A first kernel with an impossible time would make an honest second one look slower; a baseline is ours."""
    card = cards.load("matrix_scalar_mul")
    heaviest = max((c for c in card.cases if c.sweep), key=lambda case: case.weight)
    least = floor(card, heaviest, Precision.FP32, LIMITS)
    timing = Timing((0.5 * least.hardware_us,) * 5, (1.5 * least.hardware_us,) * 5)
    timed = CaseVerdict(heaviest.label, True, heaviest.weight, Status.CORRECT, timing=timing, empty_us=9.0)
    verdict = Verdict("c0ffee", "cuda", False, Status.CORRECT, "right", score=0.3, cases=(timed,))
    assert floors.hold(verdict, card, Precision.FP32, LIMITS).correct
    held = floors.hold(verdict, card, Precision.FP32, LIMITS, rivalled=True)
    assert (held.status, held.score) == (Status.REJECTED, None)
    assert f"case {heaviest.label}: a call of the kernel that it is compared with took" in held.detail


@pytest.mark.nvcc
def test_what_limits_refuse_is_impossible_by_new_ones_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that were taken while another program filled the GPU make floors that honest kernels fall below."""
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path))
    slowed = {name: 0.5 * getattr(LIMITS, name) for name in ("read_bytes_per_s", "write_bytes_per_s")}
    path = kept(floors.place(ABSENT), **slowed, copy_bytes_per_s=1e12)
    device, card = CudaDevice(ABSENT), cards.load("matrix_scalar_mul")
    heaviest = max((c for c in card.cases if c.sweep), key=lambda case: case.weight)
    least_us = floor(card, heaviest, Precision.FP32, LIMITS).hardware_us
    good = dataclasses.replace(LIMITS, source=floors.source_hash())
    monkeypatch.setattr(floors, "measure", lambda _: good)

    def held(part: float) -> Verdict:
        timing = Timing((3 * least_us,) * 5, (part * least_us,) * 5)
        timed = CaseVerdict(heaviest.label, True, heaviest.weight, Status.CORRECT, timing=timing, empty_us=9.0)
        verdict = Verdict("c0ffee", "cuda", False, Status.CORRECT, "right", score=2.0, cases=(timed,))
        return floors.hold_on(device, verdict, card, Precision.FP32)

    cheat = held(0.5)
    assert cheat.status is Status.REJECTED
    assert floors.read(path, ABSENT) != good  # those that were kept said the same
    honest = held(1.2)
    assert honest.status is Status.CORRECT
    assert honest.cases[0].floor_us == pytest.approx(least_us + 9)
    assert any("measured again: by the old ones impossible in case" in note for note in honest.notes)
    assert floors.read(path, ABSENT) == good


def test_an_empty_launch_is_the_same_at_all_sizes() -> None:
    """One that was measured in a burst of other work would put the floor of its size above honest calls."""
    card = cards.load("leaky_relu")
    times = Timing((11.3,) * 5, (11.2,) * 5)
    cases = [
        CaseVerdict(case.label, True, case.weight, Status.CORRECT, timing=times, empty_us=empty_us)
        for case, empty_us in zip((c for c in card.cases if c.sweep), (13.9, 8.4, 8.7), strict=False)
    ]
    verdict = Verdict("c0ffee", "cuda", False, Status.CORRECT, "right", score=1.0, cases=tuple(cases))
    held = floors.hold(verdict, card, Precision.FP32, LIMITS)
    assert held.correct
    for case in held.cases:
        assert case.floor_us is not None
        assert 8.4 < case.floor_us < 8.7
