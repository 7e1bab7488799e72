"""Wrong kernels are refused and honest ones pass, end to end: guards, CPU device, harness and judging.

Each candidate is built twice (plain and AddressSanitizer) and run for real.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import pytest
from small_cards import small_card

from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

HEAD = "#include <cuda_runtime.h>\n"

SPMV = (
    HEAD
    + """
{globals}
__global__ void spmv_kernel_optimized(int rows, const float* values, const int* col_indices, const int* row_offsets,
                                      const float* x, float* y) {{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int p = row_offsets[row]; p < row_offsets[row + 1]; ++p) sum += values[p] * x[col_indices[p]];
    {body}
}}
extern "C" void spmv_csr_optimized(int rows, const float* values, const int* col_indices, const int* row_offsets,
                                   const float* x, float* y) {{
    {wrapper}
}}
"""
)
LAUNCH = "spmv_kernel_optimized<<<(rows + 127) / 128, 128>>>(rows, values, col_indices, row_offsets, x, y);"


def spmv(body: str = "y[row] = sum;", wrapper: str = LAUNCH, globals: str = "") -> str:
    """A kernel for spmv_csr with parts replaced."""
    return SPMV.format(body=body, wrapper=wrapper, globals=globals)


DOT = (
    HEAD
    + """
{globals}
__global__ void dot_kernel_optimized(float* out, const float* X, const float* Y, int N) {{
    __shared__ float part[64];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < ({count}); i += 64) sum += X[i] * Y[i];
    part[threadIdx.x] = sum;
    {barrier}
    if (threadIdx.x == 0) {{
        float total = 0.0f;
        for (int t = 0; t < 64; ++t) total += part[t];
        {store}
    }}
}}
extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) {{
    {wrapper}
}}
"""
)


def dot(
    count: str = "N",
    store: str = "out[0] = total;",
    barrier: str = "__syncthreads();",
    globals: str = "",
    wrapper: str = "dot_kernel_optimized<<<1, 64>>>(out, X, Y, N);",
) -> str:
    """A kernel for dot_product with parts replaced."""
    return DOT.format(count=count, store=store, barrier=barrier, globals=globals, wrapper=wrapper)


SORT = (
    HEAD
    + """
__global__ void rank_kernel_optimized(const float* from, float* to, int N) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    int rank = 0;
    for (int j = 0; j < N; ++j) rank += from[j] < from[i] || ({tie});
    to[rank] = from[i];
}}
extern "C" void sorting_optimized(float* data, int N) {{
    float* copy = nullptr;
    cudaMalloc(&copy, sizeof(float) * N);
    cudaMemcpyAsync(copy, data, sizeof(float) * N, cudaMemcpyDeviceToDevice);
    rank_kernel_optimized<<<(N + 127) / 128, 128>>>(copy, data, N);
    cudaFree(copy);
}}
"""
)


@cache
def bench(task: str, call_limit_s: float = 10.0) -> Workbench:
    """A workbench with one small timed case and little patience."""
    device = CpuDevice()
    device.protocol = replace(device.protocol, call_limit_s=call_limit_s)
    return Workbench(small_card(task), Precision.FP32, device, modelled=False)


def verdict(task: str, code: str, command: str | None = None, *, call_limit_s: float = 10.0) -> Verdict:
    """Evaluate a candidate on the CPU device."""
    where = bench(task, call_limit_s)
    return where.evaluate(Candidate(task, Precision.FP32, code, command or where.baseline.command))


@pytest.mark.slow(but=["spmv_csr"])
@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("spmv_csr", spmv()),
        ("dot_product", dot()),
    ],
    ids=["spmv_csr", "dot_product"],
)
def test_an_honest_kernel_passes_and_is_scored(task: str, code: str) -> None:
    """Correct on every case, timed, marked as emulated where no model is asked (test_modelled_runs.py has one)."""
    result = verdict(task, code, call_limit_s=60.0)  # patience for a machine that is busy with other things
    assert result.status is Status.CORRECT, result.log
    assert result.score is not None
    assert result.score > 0
    assert result.emulated
    assert all(case.timing for case in result.cases if case.sweep)
    assert result.seed is not None


# The audit's corpus (test_audit.py) has many more; these are what it has no kind for.
WRONG = {
    "rounds to fewer bits": (
        "spmv_csr",
        spmv(body="y[row] = __int_as_float(__float_as_int(sum) & 0xffffe000);"),
    ),
    "right at powers of two alone": ("dot_product", dot(count="(N & (N - 1)) ? N - 1 : N")),
    "remembers its first result": (
        "dot_product",
        dot(
            globals="__device__ float kept; __device__ int kept_for;",
            store="if (kept_for != N) { kept = total; kept_for = N; } out[0] = kept;",
        ),
    ),
}
RACING = {
    "forgets ties": ("sorting", SORT.format(tie="false")),
    "has no barrier": ("dot_product", dot(barrier="")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_refused(name: str) -> None:
    """Each of these looks right to a harness that checks too little."""
    result = verdict(*WRONG[name])
    assert result.status is Status.WRONG, (result.status, result.detail, result.log)
    assert result.score is None
    assert "expected" in result.log


@pytest.mark.slow
@pytest.mark.parametrize("name", RACING)
def test_a_race_is_a_fault(name: str) -> None:
    """A wrong result due to a race is reported as a race, with its line."""
    result = verdict(*RACING[name], call_limit_s=60.0)  # where the checker has no time, only the result is looked at
    assert result.status is Status.FAULT, (result.status, result.detail, result.log)
    assert result.score is None
    assert "Race " in result.detail
    assert ", line " in result.detail


@pytest.mark.slow
def test_timed_calls_never_see_the_same_inputs_twice() -> None:
    """Remembering results by the inputs' values is of no use: this kernel spoils any call whose inputs it knows."""
    spoils = dot(
        globals="__device__ float keys[256]; __device__ int used;",
        store="""out[0] = total;
        for (int k = 0; k < used; ++k) if (keys[k] == X[0] + 3 * Y[N / 2]) out[0] = 1e30f;
        keys[used++] = X[0] + 3 * Y[N / 2];""",
    )
    result = verdict("dot_product", spoils)
    assert result.status is Status.CORRECT, result.log
    (timed,) = (case.timing for case in result.cases if case.sweep)
    assert timed is not None
    assert len(timed.candidate_us) >= 5


FAULTS = {
    "writes past the output": ("dot_product", dot(store="out[0] = total; out[1] = 0.0f;"), "kernel"),
    "reads past an input": ("dot_product", dot(count="N + 1"), "kernel"),
    "changes an input": (
        "dot_product",
        dot(store="out[0] = total; const_cast<float*>(X)[0] = 0.0f;"),
        "X was changed",
    ),
    "too many threads": (
        "dot_product",
        dot(wrapper="dot_kernel_optimized<<<1, 2048>>>(out, X, Y, N);"),
        "InvalidConfiguration",
    ),
    "a barrier that not all reach": (
        "dot_product",
        dot(barrier="if (threadIdx.x < 63) __syncthreads(); else __syncwarp(0xffffffff);"),
        "",
    ),
}


@pytest.mark.slow(but=["reads past an input"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused(name: str) -> None:
    """A kernel that damages or breaks something is refused whatever its outputs are."""
    task, code, said = FAULTS[name]
    result = verdict(task, code)
    assert result.status is Status.FAULT, (result.status, result.detail, result.log)
    assert said in result.detail + result.log


@pytest.mark.slow
def test_a_kernel_that_never_ends_is_stopped() -> None:
    """The watchdog ends it; the run goes on without it."""
    result = verdict("dot_product", dot(store="while (total != 0.25f || N > 0) { __nanosleep(100); } out[0] = total;"))
    assert result.status is Status.TIMEOUT


def test_a_compile_error_names_the_line_of_the_region() -> None:
    """The log speaks of the region's own lines."""
    code = spmv(body="y[row] = summ;")
    line = 1 + code[: code.index("summ;")].count("\n")
    result = verdict("spmv_csr", code)
    assert result.status is Status.COMPILE_ERROR
    assert f"candidate.cu:{line}" in result.log
    assert "summ" in result.detail


@pytest.mark.slow
def test_inline_ptx_is_executed() -> None:
    """Instructions that the CPU device knows are judged like any other code."""
    result = verdict("spmv_csr", spmv(body='asm volatile("st.global.f32 [%0], %1;" :: "l"(y + row), "f"(sum));'))
    assert result.status is Status.CORRECT


def test_unknown_ptx_is_unsupported_here_and_not_wrong() -> None:
    """What the CPU device cannot execute says nothing about the kernel."""
    result = verdict("spmv_csr", spmv(body='asm volatile("tcgen05.wait::ld.sync.aligned;"); y[row] = sum;'))
    assert result.status is Status.UNSUPPORTED
    assert "tcgen05.wait::ld.sync.aligned" in result.detail


def test_ptx_with_a_mistake_is_a_compile_error() -> None:
    """What ptxas refuses is the kernel's mistake, at its line."""
    code = spmv(body='asm volatile("add.f32 %0, %1;" : "=f"(y[row]) : "f"(sum));')
    result = verdict("spmv_csr", code)
    assert result.status is Status.COMPILE_ERROR
    assert f"candidate.cu:{1 + code[: code.index('asm')].count(chr(10))}" in result.log
    assert "add" in result.detail


# A constant of one of two names: which, is told by a macro of the compiler's own.
PASTED = """
#define PASTE(a, b) a##b
#define PASTED(a, b) PASTE(a, b)
constexpr int PASTED(kind_, NAME) = 0;
"""


@pytest.mark.parametrize(
    ("code", "command", "said"),
    [
        (spmv(wrapper=f'if (getenv("X")) return; {LAUNCH}'), None, "getenv"),
        (spmv(globals="static int calls = 0;", wrapper=f"++calls; {LAUNCH}"), None, "calls"),
        (spmv(), "nvcc -O3 -c candidate.cu -o candidate.o -lcublas", "-lcublas"),
        (spmv(), "nvcc -O3 -c candidate.cu -o candidate.o; rm x", ";"),
        (spmv().replace("const float* x, float* y)", "const float* x, float* y, int extra = 0)"), None, ""),
        (spmv(globals="#include <thrust/sort.h>"), None, "thrust"),
        (spmv(globals=PASTED.replace("NAME", "__SANITIZE_THREAD__")), None, "how it is compiled"),
        (spmv(globals=PASTED.replace("NAME", "__OPTIMIZE__")), None, "how it is compiled"),
        (spmv(globals="constexpr int length = sizeof __BASE_FILE__;"), None, "how it is compiled"),
    ],
)
def test_a_breach_of_contract_is_rejected(code: str, command: str | None, said: str) -> None:
    """Rejected before anything runs, with the reason."""
    result = verdict("spmv_csr", code, command)
    assert result.status is Status.REJECTED
    assert said in result.detail


@pytest.mark.slow
@pytest.mark.parametrize("task", ["conv_2d", "prefix_sum"])
def test_no_verification_case_is_too_heavy(task: str) -> None:
    """On a slow device, only timed cases are left out."""
    bench = Workbench(cards.load(task), Precision.FP32, CpuDevice(), modelled=False)
    limit = bench.device.protocol.work_limit
    assert limit is not None
    assert max(case.weight for case in bench.card.cases if not case.sweep) > limit
    judged = bench.check_baseline()
    assert judged.status is Status.CORRECT
    assert not [case for case in judged.cases if case.skipped]


def test_the_build_log_is_reported() -> None:
    """Each build's log is reported when the build ends."""
    where = Workbench(cards.load("spmv_csr"), Precision.FP32, CpuDevice(), modelled=False)
    told: list[tuple[str, str]] = []
    where.on_build = lambda candidate, log: told.append((candidate, log))
    candidate = Candidate("spmv_csr", Precision.FP32, spmv(body="y[row] = oops;"), where.baseline.command)
    where.evaluate(candidate)
    assert [candidate.id] == [who for who, _ in told]
    assert "oops" in told[0][1]


@pytest.mark.slow
def test_two_runs_may_judge_the_same_candidate_at_once() -> None:
    """Builds of one candidate do not disturb each other."""
    where = bench("spmv_csr")
    candidate = Candidate("spmv_csr", Precision.FP32, "// twice\n" + spmv(), where.baseline.command)
    with ThreadPoolExecutor(2) as pool:
        statuses = [verdict.status for verdict in pool.map(where.evaluate, [candidate, candidate])]
    assert statuses == [Status.CORRECT, Status.CORRECT]


@pytest.mark.slow
def test_a_case_that_is_left_out_takes_no_memory() -> None:
    """Three gigabytes for a case that this device does not run: more than a file or a small machine may hold."""
    fields = cards.load("dot_product").model_dump()
    card = cards.TaskCard.model_validate({**fields, "sweep": [{"N": [65536, 400_000_000]}]})
    bench = Workbench(card, Precision.FP32, CpuDevice(), calls=1, modelled=False)
    verdict = bench.evaluate(bench.baseline)
    assert verdict.status is Status.CORRECT, verdict.detail
    assert not verdict.complete
    assert [case.skipped for case in verdict.cases if case.sweep] == [None, "too long for this device"]
