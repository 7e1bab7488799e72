"""The cuda device: what can be tested without a GPU (nvcc builds, guards, symbols), and everything with one."""

import os
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from small_cards import SWEEPS, small_card

from cudamaster.build import building
from cudamaster.build.building import Build, Builder
from cudamaster.core.errors import DeviceError
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, Status
from cudamaster.devices import cuda
from cudamaster.devices.cuda import CudaDevice, LocalGpu, find_nvcc, measuring_cores, other_cores, visible
from cudamaster.devices.process import run_limited
from cudamaster.devices.protocol import Compiled
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.symbols import CUDA_ALLOWED_SYMBOLS
from cudamaster.models.playbook import PlaybookModel, merged
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region
from cudamaster.workbench.evaluation import Workbench

ABSENT = LocalGpu(0, "No GPU", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700")


def builder(task: str, precision: Precision) -> Builder:
    """A builder for a GPU that need not be there."""
    return Builder(cards.load(task), precision, CudaDevice(ABSENT))


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_build_out_of_the_cache_has_its_compile_log() -> None:
    """Profiles run such builds, and show the spills that ptxas reported when they were made."""
    where = builder("relu", Precision.FP32)
    code, command = baseline_region(where.card, Precision.FP32), where.device.default_command
    baseline = Candidate("relu", Precision.FP32, code, command)
    made = where.build(baseline)
    found = where.built(baseline)
    assert found.worker == made.worker is not None
    assert "bytes spill stores" in found.record["compile log"]
    assert found.record["compile log"] == made.record["compile log"]


@pytest.mark.slow
@pytest.mark.nvcc
def test_the_compiler_does_not_wait_for_the_guard_and_is_stopped_where_that_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names alone are looked at before; of what the rest of the guard refuses no object is used, nor waited for."""
    where = builder("relu", Precision.FP32)
    where.build_shared()
    code, command = baseline_region(where.card, Precision.FP32), where.device.default_command
    compiled: list[tuple[bool, Compiled]] = []
    refused = False
    guarded, compile = building.guarded, where.device.compile

    def guards_late(*given: Any) -> object:
        nonlocal refused
        time.sleep(0.3)
        found = guarded(*given)
        refused = isinstance(found, Refusal)
        return found

    def compiles(*words: Any, **how: Any) -> Compiled:
        before = refused
        made = compile(*words, **how)
        compiled.append((before, made))
        return made

    monkeypatch.setattr(building, "guarded", guards_late)
    monkeypatch.setattr(where.device, "compile", compiles)

    def build(more: str) -> Build:
        compiled.clear()
        return where.build(Candidate("relu", Precision.FP32, f"// {time.time_ns()}\n{more}{code}", command))

    assert build("").status is None
    assert [made.object is not None for _, made in compiled] == [True]
    long = "namespace std { struct mine {}; }\n" + "".join(
        f"template <int n> __global__ void k{i}(float* a) {{ for (int j = 0; j < n; ++j) a[j] = sinf(a[j] * {i}.5f); }}"
        f"template __global__ void k{i}<4000>(float*);\n"
        for i in range(60)
    )
    assert build(long).status is Status.REJECTED
    assert [(before, made.object) for before, made in compiled] == [(False, None)]
    assert build('#include "/etc/passwd"\n').status is Status.REJECTED
    assert compiled == []


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of the driver's name to link with, which a machine without a GPU may lack."""
    library = ["gcc", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(tmp_path / "libcuda.so"), "-x", "c", "-"]
    subprocess.run(library, input="int cuTensorMapEncodeTiled(void) { return 0; }", text=True, check=True)
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path))


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.parametrize(("task", "precision"), [("dot_product", Precision.FP32), ("matrix_mul", Precision.BF16)])
def test_baselines_and_playbook_build_and_pass_the_guards(task: str, precision: Precision, driver: None) -> None:
    """With the flags that each file asks for, for the architecture of the GPU; the wrapper alone stays visible."""
    where = builder(task, precision)
    codes = {"baseline": (baseline_region(where.card, precision), "")}
    for step in PlaybookModel().steps(task, precision.value):
        codes[step.idea] = (step.code, step.flags)
    assert len(codes) >= 2
    for name, (code, flags) in codes.items():
        command = merged(where.device.default_command, flags)
        built = where.build(Candidate(task, precision, code, command))
        assert built.status is None, (name, built.detail, built.log)
        assert "ptxas info" in built.record["compile log"]
        local = Path(built.record["folder"]) / "candidate.local.o"
        symbols = subprocess.run(["nm", "-g", "--defined-only", local], capture_output=True, text=True, check=True)
        assert [line.split()[-1] for line in symbols.stdout.splitlines()] == [
            where.card.wrapper(precision, optimized=True)
        ]


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.parametrize("task", ["batch_norm", "layer_norm"])
def test_device_functions_in_namespaces_build_and_leave_no_way_to_exit(task: str) -> None:
    """nvcc gives them names of its own, and host bodies that call exit; a worker's process cannot get there."""
    where = builder(task, Precision.FP32)
    text = baseline_region(where.card, Precision.FP32)
    at = text.index('extern "C"')
    head, includes = text[:at], "".join(line for line in text.splitlines(True) if line.startswith("#include"))
    for line in includes.splitlines(True):
        head = head.replace(line, "")
    code = f"{includes}namespace v2 {{ namespace {{\n{head}}} }}\nusing namespace v2;\n{text[at:]}"
    built = where.build(Candidate(task, Precision.FP32, code, where.device.default_command))
    assert built.status is None, (built.detail, built.log)
    folder = Path(built.record["folder"])
    called = {name: called_by(folder / name) for name in ("candidate.o", "candidate.local.o")}
    assert {name for name, names in called.items() if "exit" in names} == {"candidate.o"}
    assert "abort" in called["candidate.local.o"]


def called_by(path: Path) -> set[str]:
    """Names of what an object wants from others."""
    listed = subprocess.run(["nm", "-u", path], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in listed.stdout.splitlines()}


@pytest.mark.nvcc
def test_headers_are_found_behind_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script in the PATH that starts nvcc hides no header from the source guard, not even CCCL's."""
    script = tmp_path / "nvcc"
    script.write_text(f'#!/bin/sh\nexec "{find_nvcc()}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(script))
    folders = CudaDevice(ABSENT).include_folders()
    for header in ("cuda_runtime.h", "cuda/barrier"):
        assert any((folder / header).is_file() for folder in folders), header


TENSOR_MAP = """
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void relu(const __grid_constant__ CUtensorMap map, float* output, const float* input, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        output[i] = fmaxf(input[i], 0);
}
extern "C" void relu_optimized(float* output, const float* input, int N) {
    CUtensorMap map{};
    cuuint64_t size[1] = {(cuuint64_t)N}, stride[1] = {4};
    cuuint32_t box[1] = {256}, step[1] = {1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, (void*)input, size, stride, box, step,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    relu<<<(N + 255) / 256, 256>>>(map, output, input, N);
}
"""


@pytest.mark.slow
@pytest.mark.nvcc
def test_tensor_maps_link_with_the_driver(driver: None) -> None:
    """By a library of the driver's name, which has to be there; nothing else is linked with it."""
    where = builder("relu", Precision.FP32)
    needed = {}
    for name, code in {"maps": TENSOR_MAP, "baseline": baseline_region(where.card, Precision.FP32)}.items():
        built = where.build(Candidate("relu", Precision.FP32, code, where.device.default_command))
        assert built.status is None, (built.detail, built.log)
        assert built.worker is not None
        needed[name] = subprocess.run(["readelf", "-d", built.worker], capture_output=True, text=True).stdout
    assert "[libcuda.so.1]" in needed["maps"]
    assert "libcuda" not in needed["baseline"]


def bundles() -> dict[str, list[tuple[str, str]]]:
    """(name, code) of every kernel file, so grouped that no two wrappers of a group have the same name."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for task in cards.names():
        for precision in BENCHMARK_PRECISIONS:
            card = cards.load(task)
            groups.setdefault(f"baselines {precision}", []).append((card.wrapper(precision), card.baseline(precision)))
            for number, step in enumerate(PlaybookModel().steps(task, precision.value), 1):
                name = f"{card.wrapper(precision)}_{number}"
                groups.setdefault(f"step {number} {precision}", []).append((name, step.code))
    return groups


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.parametrize("group", bundles())
def test_every_kernel_compiles_with_nvcc(group: str, tmp_path: Path) -> None:
    """For sm_80 and sm_90, many to a file because most of nvcc's time goes into headers; all they call is allowed."""
    files = bundles()[group]
    includes = sorted({line for _, code in files for line in code.splitlines() if line.startswith("#include")})
    text = "\n".join(includes) + "\n"
    for name, code in files:
        body = "\n".join("" if line.startswith("#include") else line for line in code.splitlines())
        text += f'namespace {name} {{\n#line 1 "{name}.cu"\n{body}\n}}\n'
    (tmp_path / "bundle.cu").write_text(text)
    targets = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"]
    # Nothing is run: neither compiler nor assembler need do its best.
    lazily = ["-Xcicc=-O1", "-Xptxas=-O0"]
    command = [str(find_nvcc()), "-std=c++17", *lazily, *targets, "-c", "bundle.cu", "-o", "bundle.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "warning" not in done.stderr, done.stderr[-4000:]
    called = called_by(tmp_path / "bundle.o")
    allowed = re.compile("|".join(f"(?:{pattern})" for pattern in CUDA_ALLOWED_SYMBOLS))
    assert [name for name in called if not allowed.fullmatch(name)] == []


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (("sum +=", "summ +="), Status.COMPILE_ERROR, "candidate.cu"),
        (("int threads = 256;", 'int threads = 256; system("true");'), Status.REJECTED, "system"),
        (("int threads = 256;", "static int threads = 256;"), Status.REJECTED, "threads"),
    ],
)  # fmt: skip
def test_what_nvcc_and_the_guards_refuse(change: tuple[str, str], status: Status, said: str) -> None:
    """Compiler errors are data with the region's lines; a call to the system never links."""
    where = builder("spmv_csr", Precision.FP32)
    code = baseline_region(where.card, Precision.FP32)
    assert change[0] in code
    built = where.build(Candidate("spmv_csr", Precision.FP32, code.replace(*change), where.device.default_command))
    assert built.status is status
    assert said in built.log


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("flags", "architecture"),
    [("", "sm_90"), ("-Xcompiler -march=native", "sm_90"), ("-arch=sm_80", "sm_80")],
)
def test_kernels_are_built_for_the_gpu_unless_the_agent_says_otherwise(flags: str, architecture: str) -> None:
    """A host flag with "arch" in its name is no choice of a GPU."""
    where = builder("spmv_csr", Precision.FP32)
    code = baseline_region(where.card, Precision.FP32)
    command = f"nvcc -O3 {flags} -c candidate.cu -o candidate.o"
    built = where.build(Candidate("spmv_csr", Precision.FP32, code, command))
    assert built.status is None, built.log
    assert f"for '{architecture}'" in built.record["compile log"]


OTHER = LocalGpu(1, "No GPU", "GPU-12ab", "9.0", "580", "143771", "1980", "3201", "700")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, (ABSENT, OTHER)),
        ("1", (OTHER,)),
        ("1,0", (OTHER, ABSENT)),
        ("1, 1", (OTHER,)),
        ("GPU-12,GPU-0", (OTHER, ABSENT)),
        ("0,2,1", (ABSENT,)),
        ("2", ()),
        ("", ()),
        ("GPU-3", ()),
    ],
)
def test_the_gpus_that_the_environment_names(wanted: str | None, found: tuple[LocalGpu, ...]) -> None:
    """$CUDA_VISIBLE_DEVICES chooses, by number or by the beginning of a UUID, in its order, and hides the others."""
    assert visible([ABSENT, OTHER], wanted) == found


HOLDER = """
import sys
from pathlib import Path
from cudamaster.devices import cuda
locks, how, *gpu = sys.argv[1:]
cuda._LOCKS = Path(locks)
with cuda.CudaDevice(cuda.LocalGpu(0, how, *gpu)).held(alone=how != "shared", quiet=how == "quiet"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_compilers_keep_off_the_cores_of_those_who_measure(tmp_path: Path) -> None:
    """Each GPU has a core for its judge and one for the workers; where few would be left, none is kept free."""
    cores = range(64)
    measuring = {core for gpu in range(4) for core in measuring_cores(cores, gpu)}
    others = other_cores(cores, 4)
    assert measuring == set(range(56, 64))
    assert measuring.isdisjoint(others)
    assert measuring.union(others) == set(cores)
    assert (measuring_cores(range(3), 0), other_cores(range(3), 1)) == ([], [])
    assert other_cores(range(16), 8) == []
    usable = sorted(os.sched_getaffinity(0))
    asked = "import os, time; time.sleep(0.2); print(sorted(os.sched_getaffinity(0)))"
    ran = run_limited([sys.executable, "-c", asked], 20, folder=tmp_path, cores=usable[-1:])
    assert ran.stderr.strip() == str(usable[-1:])


@pytest.mark.slow(but=["shared-alone-True-False"])
@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("first", "second", "same_gpu", "together"),
    [
        ("alone", "alone", True, False),
        ("shared", "alone", True, False),
        ("shared", "shared", True, True),
        ("alone", "alone", False, True),
        ("quiet", "alone", False, False),
        ("quiet", "shared", False, False),
        ("alone", "quiet", False, False),
    ],
)
def test_one_process_at_a_time_measures_on_a_gpu(
    first: str, second: str, same_gpu: bool, together: bool, tmp_path: Path
) -> None:
    """Another one waits until the first has ended, however it ended; untimed checks share the GPU.

    Where calls ask the driver for memory, other GPUs wait too. Runs need not agree on a folder for temporary files.
    """

    def start(how: str, gpu: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", HOLDER, str(tmp_path), how, gpu, "9.0", "580", "1", "1", "1", "1"]
        environment = {**os.environ, "TMPDIR": tempfile.mkdtemp(dir=tmp_path)}
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    one = start(first, "GPU-0")
    assert one.stdout is not None
    assert one.stdout.readline() == "held\n"
    two = start(second, "GPU-0" if same_gpu else "GPU-1")
    assert two.stdout is not None
    held_too = bool(select.select([two.stdout], [], [], 60 if together else 3)[0])  # until Python is there
    assert held_too == together
    one.kill()
    assert two.stdout.readline() == "held\n"
    two.kill()
    for process in (one, two):
        process.communicate()


@pytest.mark.nvcc
def test_locks_are_for_all_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the umask of the first was; what cannot be opened is said."""
    monkeypatch.setattr(cuda, "_LOCKS", tmp_path)
    before = os.umask(0o077)
    try:
        with CudaDevice(ABSENT).held():
            pass
    finally:
        os.umask(before)
    made = list(tmp_path.iterdir())
    assert len(made) == 3
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in made)
    monkeypatch.setattr(cuda, "_LOCKS", made[0])  # no folder
    with pytest.raises(DeviceError, match="cannot be opened"), CudaDevice(ABSENT).held():
        pass


@pytest.mark.gpu
@pytest.mark.parametrize("task", SWEEPS)
def test_the_whole_way_on_a_gpu(task: str) -> None:
    """Build, check and time for real."""
    where = Workbench(small_card(task), Precision.BF16, CudaDevice())
    verdict = where.evaluate(where.baseline)
    assert verdict.status is Status.CORRECT, verdict.log
    assert not verdict.emulated
    assert verdict.score is not None
    assert 0.8 < verdict.score < 1.25
    assert verdict.speed is not None
    assert "no network" in verdict.hardware["isolation"]
    for case in verdict.cases:
        if case.timing is not None:
            assert case.floor_us is not None
            assert len(case.timing.candidate_device_us) == 3


ALL_MEMORY = """    void* taken = nullptr;
    for (size_t bytes = size_t{1} << 38; bytes >= size_t{1} << 20; bytes /= 2)
        while (cudaMalloc(&taken, bytes) == cudaSuccess) {}
    cudaGetLastError();"""


@pytest.mark.gpu
def test_who_takes_all_memory_costs_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    """That candidate gets a verdict, whatever happens to the judge, and the GPU works for the next one."""
    where = Workbench(small_card("dot_product"), Precision.FP32, CudaDevice())
    honest = where.baseline
    code = honest.code.replace("    int threads", ALL_MEMORY + "\n    int threads", 1)
    greedy = Candidate(honest.task, honest.precision, code, honest.command)
    verdict = where.evaluate(greedy)
    with capsys.disabled():
        print(f"\nall memory taken: {verdict.status}, {verdict.detail}")
    assert where.evaluate(honest).correct
