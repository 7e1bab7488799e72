"""Vendors' libraries in a candidate's place: what their files ask for, how they are judged, skipped and reported.

Without a GPU the files meet stand-ins: plain loops behind the libraries' interfaces (vendor_stand_ins/), on the CPU
device. CUB, which is headers full of device code, has none.
"""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from plain_device import PlainCpuDevice
from small_cards import small_card

from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision, Status, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.report.best import best_kernels
from cudamaster.report.loading import load
from cudamaster.tasks import cards
from cudamaster.tasks.harness import vendor_declarations
from cudamaster.tasks.held_out import draw
from cudamaster.vendor import comparison, libraries
from cudamaster.vendor.libraries import Found, Library
from cudamaster.vendor.measuring import Measurement
from cudamaster.workbench.evaluation import Workbench

# By task, in both precisions.
LIBRARIES = {
    "dot_product": ["cuBLAS"],
    "square_matrix_mul": ["cuBLAS", "cuBLASLt"],
    "matrix_mul": ["cuBLAS", "cuBLASLt"],
    "matrix_vector_mul": ["cuBLAS"],
    "matrix_power": ["cuBLAS"],
    **{f"{product}_{form}": ["cuSPARSE"] for form in ("coo", "csc", "csr", "ell") for product in ("spmv", "spmm")},
    "fft": ["cuFFT"],
    "sorting": ["CUB"],
    "prefix_sum": ["CUB"],
}
SPARSE = [task for task, found in LIBRARIES.items() if "cuSPARSE" in found]
# The forms of a matrix between which a file for cuSPARSE chooses, by their names in the stand-in.
FORMS = {
    "spmv_csc": ["kCsc", "kTransposedCsr"],
    "spmm_csc": ["kCsc", "kTransposedCsr"],
    "spmv_ell": ["kSlicesOfOne", "kSlices", "kCsr"],
    "spmm_ell": ["kBlockedEll", "kCsr"],
}
STAND_INS = Path(__file__).parent / "vendor_stand_ins"
RESULTS = Path(__file__).parent.parent / "results" / "h200"


def all_files() -> list[comparison.VendorFile]:
    return comparison.files([cards.load(task) for task in cards.names()], list(BENCHMARK_PRECISIONS))


FILES = pytest.mark.parametrize("file", all_files(), ids=lambda file: file.path.stem)


def test_each_library_of_a_task_has_a_file_in_each_precision() -> None:
    """The second one is named in its file's name, and none is left over."""
    for precision in BENCHMARK_PRECISIONS:
        found: dict[str, list[str]] = {}
        for file in all_files():
            if file.precision is precision:
                found.setdefault(file.card.name, []).append(file.library)
        assert found == LIBRARIES
    assert len(list((resources.bench() / "vendor").glob("*.cu"))) == len(all_files())


def types(text: str, name: str) -> list[str]:
    """Types of the parameters of an extern "C" function, without the parameters' names."""
    (listed,) = re.findall(rf'extern "C" void {name}\(([^)]*)\)', text)
    return [re.sub(r"(?<=[\w*]) ?\b(?!long$)\w+$", "", " ".join(one.split())) for one in listed.split(",")]


@FILES
def test_a_file_has_the_interface_of_its_card(file: comparison.VendorFile) -> None:
    """The baseline's wrapper, what makes ready for a shape and a call. The head says what a call is and leaves out."""
    wrapper = file.card.wrapper(file.precision)
    declared = "\n".join(vendor_declarations(file.card, file.precision))
    binds = [f"{wrapper}_bind"] if file.library == "cuSPARSE" else []
    for name in (wrapper, f"{wrapper}_prepare", *binds):
        assert types(file.text, name) == types(declared, name)
    assert all(f"\n{word} " in file.head for word in ("Call", "Includes", "Without"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", [file for file in all_files() if file.library != "CUB"], ids=lambda file: file.path.stem
)
def test_a_file_asks_its_library_for_the_task(file: comparison.VendorFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts, leading dimensions, types and orders: the loops behind the interface make what the reference makes.

    On inputs of one seed: powers on the way are bf16, and one element of a high power may be off by more than allowed.
    """
    verdict = verdict_by_stand_in(file, monkeypatch)
    assert verdict.status is Status.CORRECT, (verdict.detail, verdict.log)
    assert len(verdict.cases) > sum(not case.sweep for case in file.card.cases)  # and those that were drawn


def stand_in(library: str) -> str:
    """The loops behind one library's interface: the others would take half of the compilation."""
    shared, *parts = re.split(r"(?m)^// ---- (\w+) -+$", (STAND_INS / "libraries.cu").read_text())
    own = dict(zip(parts[::2], parts[1::2], strict=True))
    assert library == "cuBLAS" or library in own, library
    return shared + own.get(library, "")


def verdict_by_stand_in(file: comparison.VendorFile, monkeypatch: pytest.MonkeyPatch, before: str = "") -> Verdict:
    """What a file makes of its library's stand-in; `before` stands in front of that."""
    monkeypatch.setenv("CPATH", str(STAND_INS / "include"))
    bench = Workbench(file.card, file.precision, PlainCpuDevice(), seed=20261124)
    # The device refuses a text that names a library's header. The one of bench/vendor/ brings it too.
    text = re.sub(r"#include <cu(?:blas_v2|blasLt|sparse|fft)\.h>\n", "", stand_in(file.library) + file.text)
    worker = bench.vendor_worker(before + text, comparison.headers(), [], [])
    return bench.evaluate_vendor(worker, file.id, check_only=True)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "form"), [(task, form) for task, forms in FORMS.items() for form in forms])
def test_each_form_of_a_sparse_matrix_is_the_matrix(task: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where cuSPARSE refuses all others, which are left out of the choice. In one precision, from form to form the
    other one: the forms of a task are made by the same lines in both."""
    precision = list(BENCHMARK_PRECISIONS)[FORMS[task].index(form) % 2]
    (file,) = comparison.files([cards.load(task)], [precision])
    verdict = verdict_by_stand_in(file, monkeypatch, f"#define TAKES (form == SparseForm::{form})\n")
    assert verdict.status is Status.CORRECT, (verdict.detail, verdict.log)


@pytest.mark.slow
def test_what_cusparse_says_is_told_where_it_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = comparison.files([cards.load("spmv_csc")], [Precision.FP32])
    verdict = verdict_by_stand_in(file, monkeypatch, "#define TAKES false\n")
    assert verdict.status is Status.FAULT
    assert "cusparseSpMV said CUSPARSE_STATUS_NOT_SUPPORTED" in verdict.detail + verdict.log


@pytest.mark.slow
def test_a_way_that_faults_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing works on a device after a fault, so what a later call says would name another."""
    (file,) = comparison.files([cards.load("spmm_csr")], [Precision.BF16])
    faults = "#define FAULTS (algorithm == CUSPARSE_SPMM_CSR_ALG2 && !narrow)\n"
    verdict = verdict_by_stand_in(file, monkeypatch, faults)
    assert verdict.status is Status.FAULT
    said = "CSR, algorithm 6, results in fp32: cudaMemcpy said cudaErrorIllegalAddress; no other way can be tried"
    assert said in verdict.detail + verdict.log


# By the algorithms that a file offers, the first of which rounds on the way, and by what the library takes.
ROUNDING = {
    "another": ("CUSPARSE_SPMM_COO_ALG1, CUSPARSE_SPMM_COO_ALG2", "narrow", Status.CORRECT),
    "results in fp32": ("CUSPARSE_SPMM_COO_ALG1", "true", Status.CORRECT),
    "nothing": ("CUSPARSE_SPMM_COO_ALG1", "narrow", Status.WRONG),
}


@pytest.mark.slow
@pytest.mark.parametrize("right", ROUNDING)
def test_an_algorithm_that_rounds_on_the_way_is_taken_only_where_nothing_is_right(
    right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the fastest of the stand-in. Where it is taken, the check lists it as wrong."""
    offered, takes, status = ROUNDING[right]
    (file,) = comparison.files([cards.load("spmm_coo")], [Precision.BF16])
    text, changed = re.subn(r"\{CUSPARSE_SPMM_COO_ALG1,[^}]*", f"{{{offered}", file.text)
    assert changed == 1
    verdict = verdict_by_stand_in(replace(file, text=text), monkeypatch, f"#define TAKES {takes}\n")
    assert verdict.status is status, (verdict.detail, verdict.log)


LOOP = """// Dot product, by a loop.
//
// Call      a loop
#include <cuda_runtime.h>
#include "vendor/check.h"

namespace {
vendor::Memory partial;
long long ready = -1;

__global__ void sum_kernel(const float* X, const float* Y, double* partial, int N) {
    double sum = 0;
    for (int i = 0; i < N; ++i) sum += static_cast<double>(X[i]) * Y[i];
    *partial = sum;
}
__global__ void store_kernel(const double* partial, float* out) { *out = static_cast<float>(*partial); }
}

extern "C" void dot_product_prepare(long long N) {
    partial.hold(sizeof(double));
    ready = N;
}

extern "C" void dot_product(float* out, const float* X, const float* Y, int N) {
    if (ready != N) vendor::fail("loop(out)", "LOOP_STATUS_NOT_PREPARED");
    sum_kernel<<<1, 1>>>(X, Y, partial.as<double>(), N);
    store_kernel<<<1, 1>>>(partial.as<double>(), out);
}
"""
# What a file may define too.
BIND = """extern "C" void dot_product_bind(float* out, const float* X, const float* Y, int N) {
    usleep(20000);
    bound = X;
}

"""
_CALL = 'extern "C" void dot_product('
# By what is wrong: what of LOOP is replaced, and what the report says.
BAD = {
    "a result is wrong": ("*out = static_cast<float>(*partial)", "*out = 1.5f * *partial", "wrong", "elements wrong"),
    "the library says no": ("ready = N;", "ready = N < 100 ? N : 0;", "fault", "loop said LOOP_STATUS_NOT_PREPARED"),
    "it cannot make ready": ("partial.hold(", 'vendor::fail("makePlan(N)", "NO"), (', "fault", "makePlan said NO"),
    "other parameters": ("const float* X, const float* Y, int N) {\n    if", "const float* X, int N) {\n    if",
                         "compile_error", "dot_product-vendor.cu"),
    "other parameters before": (_CALL, BIND.replace("int", "long") + _CALL, "compile_error", "dot_product-vendor.cu"),
    "the process ends": ("ready = N;", "ready = N; if (N > 100) std::_Exit(3);", "fault", "exit code 3"),
}  # fmt: skip


def folder_with(text: str, folder: Path) -> Path:
    (folder / "dot_product.cu").write_text(text)
    return folder


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["vendor", *arguments, "--device", "cpu"])


def test_a_library_is_made_ready_for_each_case_before_its_first_call(tmp_path: Path) -> None:
    """The loop refuses a size that it was not prepared for, and keeps memory between calls, which no candidate may."""
    save = tmp_path / "deep" / "vendor.json"
    done = command("dot_product", "--sources", str(folder_with(LOOP, tmp_path)), "--check-only", "--save", str(save))
    assert done.exit_code == 0, done.output
    assert "dot_product fp32, no library: correct" in done.output
    kept = comparison.read(save)
    assert kept.emulated
    assert [record.vendor and record.vendor.status for record in kept.records] == [Status.CORRECT]


@pytest.mark.slow
def test_a_file_sees_what_each_call_gets_before_its_time(tmp_path: Path) -> None:
    """The loop refuses a call whose arguments it was not shown, and what takes long there is not in its times."""
    text = LOOP.replace("#include", "#include <unistd.h>\n#include", 1)
    for old, new in (
        ("long long ready", "const float* bound = nullptr;\nlong long ready"),
        (_CALL, BIND + _CALL),
        ("if (ready != N)", "if (ready != N || bound != X)"),
        ("    store_kernel<<<", "    bound = nullptr;\n    store_kernel<<<"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    card, device = small_card("dot_product"), PlainCpuDevice()
    bench = Workbench(card, Precision.FP32, device, modelled=False)
    (file,) = comparison.files([card], [Precision.FP32], folder_with(text, tmp_path))
    record = comparison.measure(comparison.prepare(file, bench, device), bench)
    assert record.vendor is not None
    assert record.vendor.status is Status.CORRECT, record.vendor.log
    (case,) = record.vendor.cases
    assert case.own_us is not None
    assert case.own_us < 20_000


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD)
def test_a_call_that_fails_is_listed_and_told(what: str, tmp_path: Path) -> None:
    """With the library's own words, in the report and in the exit code."""
    old, new, status, said = BAD[what]
    assert LOOP.count(old) == 1
    where = folder_with(LOOP.replace(old, new), tmp_path)
    done = command("dot_product", "--sources", str(where), "--check-only", "--json")
    assert done.exit_code == 1, done.output
    (record,) = json.loads(done.stdout)["records"]
    assert record["vendor"]["status"] == status
    assert said in record["vendor"]["detail"] + record["vendor"]["log"], record["vendor"]
    assert record["skipped"] is None
    shown = command("dot_product", "--sources", str(where), "--check-only")
    assert shown.exit_code == 1
    assert "0 of 1 vendor calls right, 1 not, 0 skipped" in shown.output
    assert said in shown.output


@pytest.mark.slow
def test_library_and_our_kernel_stand_side_by_side(tmp_path: Path) -> None:
    """Each against the baseline, and our kernel against the library, case by case; the record comes back as it was."""
    card, device = small_card("dot_product"), PlainCpuDevice()
    bench = Workbench(card, Precision.FP32, device, modelled=False)
    (file,) = comparison.files([card], [Precision.FP32], folder_with(LOOP, tmp_path))
    record = comparison.measure(comparison.prepare(file, bench, device), bench, bench.baseline)
    assert record.vendor is not None
    assert record.ours is not None
    assert record.duel is not None
    for contest in (record.vendor, record.ours, record.duel):
        assert contest.status is Status.CORRECT, contest.log
        assert contest.score is not None
        (case,) = contest.cases
        assert case.label == "N=65536"
        assert case.own_us is not None
        assert case.against_us is not None
        assert case.own_us > 0
        assert case.against_us > 0
        assert case.floor_us is None  # there is none on the CPU device
    assert record.kernel == bench.baseline.id
    report = comparison.VendorReport(comparison.FORMAT, True, {"device": "a CPU"}, (record,))
    comparison.write(tmp_path / "report.json", report)
    assert comparison.read(tmp_path / "report.json") == report


@pytest.mark.slow
def test_two_libraries_of_a_task_meet_our_kernel_in_one_measurement(tmp_path: Path) -> None:
    """Our kernel's contest with the baseline is one for both; each library has its own, and its own duel."""
    card, device = small_card("dot_product"), PlainCpuDevice()
    folder_with(LOOP, tmp_path)
    (tmp_path / "dot_product.another.cu").write_text(LOOP.replace("by a loop", "by another"))
    (tmp_path / "dot_product_bf16.another.cu").write_text("of another precision")
    found = comparison.files([card], [Precision.FP32], tmp_path)
    assert [file.path.name for file in found] == ["dot_product.cu", "dot_product.another.cu"]
    bench = Workbench(card, Precision.FP32, device, modelled=False)
    kernels = {(card.name, Precision.FP32): bench.baseline}
    work = Measurement(found, device, kernels, seed=None, calls=2, check_only=False)
    work.build()
    one, another = work.run(None, lambda record: None, lambda words: None)
    assert one.ours is not None
    assert one.ours == another.ours
    assert one.kernel == another.kernel == bench.baseline.id
    for record in (one, another):
        assert record.vendor is not None
        assert record.duel is not None
        assert record.vendor.status is record.duel.status is Status.CORRECT
    assert one.vendor != another.vendor
    assert one.duel != another.duel
    assert one.head.startswith("Dot product, by a loop.")
    assert another.head.startswith("Dot product, by another.")


def test_a_library_is_skipped_where_it_cannot_run() -> None:
    """On the CPU device, with the reason; that is no failure."""
    done = command("spmv_csr", "sorting", "--precision", "bf16")
    assert done.exit_code == 0
    assert "spmv_csr bf16, cuSPARSE: skipped, cuSPARSE runs on a GPU, and this is the cpu device" in done.output
    assert "0 of 2 vendor calls right, 0 not, 2 skipped" in done.output


@pytest.mark.slow
def test_a_shared_library_is_linked_and_found_again(tmp_path: Path) -> None:
    """By its path, with the files that it needs from beside it."""
    flags = ["-shared", "-fPIC", "-x", "c++", "-"]
    for name, text, more in (
        ("libdeep.so", 'extern "C" double deep() { return 1; }', []),
        ("libscale.so.1", 'extern "C" double deep(); extern "C" double scale() { return deep(); }', ["libdeep.so"]),
    ):
        line = ["g++", "-Wl,--no-as-needed", *more, "-o", name, *flags]
        subprocess.run(line, input=text, text=True, cwd=tmp_path, check=True)
    text = LOOP.replace("namespace {", 'extern "C" double scale();\nnamespace {', 1)
    text = text.replace("partial.as<double>(), N);", "partial.as<double>(), scale() == 1 ? N : 0);")
    bench = Workbench(cards.load("dot_product"), Precision.FP32, CpuDevice())
    worker = bench.vendor_worker(text, comparison.headers(), [], [tmp_path / "libscale.so.1"])
    assert bench.evaluate_vendor(worker, "scaled", check_only=True).status is Status.CORRECT


@pytest.mark.nvcc
def test_a_library_that_is_not_installed_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a GPU, before anything is compiled; the record has no contest."""
    monkeypatch.setattr(libraries, "LIBRARIES", (Library("cuNONE", "cunone.h", "cunone.h", None, "nvidia-cunone"),))
    (file,) = comparison.files(
        [cards.load("dot_product")], [Precision.FP32], folder_with(f"#include <cunone.h>\n{LOOP}", tmp_path)
    )
    device = CudaDevice(LocalGpu(0, "a GPU", "GPU-0", "9.0", "580", "1000", "1", "1", "1"))
    bench = Workbench(file.card, file.precision, device)
    record = comparison.measure(comparison.prepare(file, bench, device), bench)
    assert record.library == "cuNONE"
    assert record.skipped is not None
    assert record.skipped.startswith("cuNONE is not installed: cunone.h is not there; it comes with the CUDA toolkit")
    assert record.vendor is None
    assert not record.failed


def test_a_task_without_a_library_is_refused() -> None:
    """With those that have one."""
    done = CliRunner().invoke(main, ["vendor", "relu", "--device", "cpu", "--json"])
    assert done.exit_code == 2
    assert "There is no vendor file for relu" in done.output
    assert all(task in done.output for task in LIBRARIES)


def test_a_library_is_found_with_its_version_or_missed_with_a_reason(tmp_path: Path) -> None:
    """Header and shared object, by the name that executables ask for where the plain one is not installed."""
    wanted = Library("cuNONE", "cunone.h", "cunone_api.h", "libcunone.so", "nvidia-cunone")
    include, home = tmp_path / "include", tmp_path / "lib"
    include.mkdir()
    home.mkdir()
    assert "cunone.h is not there; it comes with the CUDA toolkit" in str(libraries.find(wanted, [include]))
    (include / "cunone.h").write_text('#include "cunone_api.h"\n')
    parts = {"MAJOR": 13, "MINOR": 1, "PATCH": 0, "BUILD": 3}
    (include / "cunone_api.h").write_text("".join(f"#define CUNONE_VER_{k} {v}\n" for k, v in parts.items()))
    assert f"cunone.h is in {include}, but no libcunone.so beside it" in str(libraries.find(wanted, [include]))
    (home / "libcunone.so.13").touch()
    assert libraries.find(wanted, [include]) == Found("13.1.0", include, home / "libcunone.so.13")
    (home / "libcunone.so").touch()
    assert libraries.find(wanted, [include]) == Found("13.1.0", include, home / "libcunone.so")


@pytest.mark.slow
def test_our_kernels_are_the_fastest_of_some_results() -> None:
    """Of run folders and of a saved report, with the command that each was measured with."""
    found = best_kernels(load([RESULTS]))
    candidate = found["spmv_csr", Precision.BF16]
    folder = RESULTS / "spmv_csr_bf16"
    assert candidate.code == (folder / "best.cu").read_text()
    assert candidate.id == json.loads((folder / "best.json").read_text())["candidate"]
    assert best_kernels(load([RESULTS / "report.json"])) == found
    assert found["matrix_mul", Precision.BF16].command.startswith("nvcc ")


def test_a_kernel_that_was_changed_is_not_shown_under_its_old_result() -> None:
    report = load([RESULTS / "spmv_csr_bf16"])
    (result,) = report.results
    assert result.best is not None
    edited = replace(result, best=replace(result.best, code=f"{result.best.code}// edited\n"))
    with pytest.raises(UsageError, match="not the one that was measured"):
        best_kernels(replace(report, results=(edited,)))
    emulated = replace(result, hardware=replace(result.hardware, emulated=True))
    assert best_kernels(replace(report, results=(emulated,))) == {}


@pytest.mark.slow
def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    """A saved measurement is carried on: the same seed shows that it was taken over."""
    (tmp_path / "sources").mkdir()
    sources, saved = folder_with(LOOP, tmp_path / "sources"), tmp_path / "vendor.json"
    place = ["--precision", "fp32", "--sources", str(sources), "--save", str(saved)]
    options = [*place, "--check-only"]

    def seed(*more: str) -> int | None:
        shown = command("dot_product", *options, *more)
        assert shown.exit_code == 0, shown.output
        (record,) = comparison.read(saved).records
        assert record.vendor is not None
        return record.vendor.seed

    assert seed("--seed", "1") == 1
    assert seed("--seed", "2") == 1
    (sources / "dot_product.cu").write_text(LOOP.replace("double sum = 0;", "double sum = 0.0;"))
    assert seed("--seed", "3") == 3
    refused = command("dot_product", *place, "--calls", "7")
    assert refused.exit_code == 2
    assert "its timed calls per case is" in refused.output
    assert "move this one away" in refused.output
    kept = comparison.read(saved)
    comparison.write(saved, replace(kept, records=(replace(kept.records[0], task="fft", key="another"),)))
    assert command("dot_product", *options).exit_code == 0
    assert [record.task for record in comparison.read(saved).records] == ["fft", "dot_product"]
    # Another library of the same task is another record.
    kept = comparison.read(saved)
    comparison.write(saved, replace(kept, records=(replace(kept.records[1], library="cuNONE", key="another"),)))
    assert command("dot_product", *options).exit_code == 0
    assert [record.library for record in comparison.read(saved).records] == ["cuNONE", "no library"]


@pytest.mark.parametrize("text", ["", "[]", '{"format": 0}', '{"format": 1, "about": {}}'])
def test_a_damaged_measurement_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "vendor.json").write_text(text)
    with pytest.raises(UsageError, match="vendor"):
        comparison.read(tmp_path / "vendor.json")


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["dot_product", "spmv_csr", "fft", "sorting"])
def test_the_libraries_themselves_are_right(task: str) -> None:
    """One task of each library, on the GPU; skipped where the library is not installed."""
    done = CliRunner().invoke(main, ["vendor", task, "--check-only", "--json"])
    records = json.loads(done.stdout)["records"]
    if all(record["skipped"] is not None for record in records):
        pytest.skip(records[0]["skipped"])
    assert [record["vendor"]["status"] for record in records] == ["correct", "correct"], records


@pytest.mark.gpu
@pytest.mark.parametrize("task", SPARSE)
def test_a_matrix_with_more_entries_than_cells(task: str) -> None:
    """Columns may repeat, so that a held-out case may have one, which cuSPARSE refuses as it stands."""
    card = cards.load(task)

    def has_one(seed: int) -> bool:
        drawn = [case.values for case in draw(card, seed)]
        return any(size["nnz"] > size["rows"] * size.get("cols", size.get("columns", 0)) for size in drawn)

    seed = next(filter(has_one, range(10_000)))
    done = CliRunner().invoke(main, ["vendor", task, "--check-only", "--json", "--seed", str(seed)])
    records = json.loads(done.stdout)["records"]
    if all(record["skipped"] is not None for record in records):
        pytest.skip(records[0]["skipped"])
    assert [record["vendor"]["status"] for record in records] == ["correct", "correct"], records


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "file", [file for file in all_files() if file.library == "cuSPARSE"], ids=lambda file: file.path.stem
)
def test_a_file_for_cusparse_is_built_by_nvcc(file: comparison.VendorFile) -> None:
    """With the library's own headers, and linked to it; no GPU is needed. Skipped where it is not installed."""
    device = CudaDevice(LocalGpu(0, "a GPU", "GPU-0", "9.0", "580", "1000", "1", "1", "1"))
    ready = comparison.prepare(file, Workbench(file.card, file.precision, device), device)
    if ready.record is not None and ready.record.skipped is not None:
        pytest.skip(ready.record.skipped)
    assert ready.worker is not None, ready.record
