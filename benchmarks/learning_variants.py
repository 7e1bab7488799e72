"""Kernels of one family in many variants: sums over arrays, with block size, loads, unrolling and reduction chosen.

A small model learns to write kernels from these (benchmarks/learning.py). `real` has the variants of tasks of the
benchmark, for the judge. `made_up` has variants of sums with names and terms drawn at random: nobody judges them, and a
model that reads many of them learns to take names and terms from the prompt instead of from memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

BLOCKS = (64, 256, 1024)
GRIDS = (132, 1056)  # most blocks
WIDTHS = (1, 4)  # elements of a load
UNROLLS = (1, 4)
REDUCTIONS = ("tree", "shuffle", "warps")


@dataclass(frozen=True)
class Choice:
    """One member of the family."""

    block: int
    grid: int
    width: int
    unroll: int
    reduction: str

    @property
    def idea(self) -> str:
        """In words, as a plan's title."""
        loads = f"loads of {self.width}, unrolled {self.unroll}"
        return f"{self.block} threads, at most {self.grid} blocks, {loads}, {self.reduction}"


CHOICES = tuple(itertools.starmap(Choice, itertools.product(BLOCKS, GRIDS, WIDTHS, UNROLLS, REDUCTIONS)))


@dataclass(frozen=True)
class Sum:
    """What is summed: `term` is an expression in `i`, `length`, and the names of `arrays`, which stand for elements.

    `parameters` are those of the wrapper in C. The sum is multiplied by `factor`, an expression in `scalars` that the
    wrapper computes as `prepared` says; without a factor it is the result itself.
    """

    name: str
    parameters: str
    out: str
    arrays: tuple[str, ...]
    length: str
    term: str
    factor: str = ""
    prepared: str = ""  # a declaration in the wrapper, such as "float h = (b - a) / (N - 1);"


TASKS = {
    one.name: one
    for one in (
        Sum("dot_product", "float* out, const float* X, const float* Y, int N", "out", ("X", "Y"), "N", "X * Y"),
        Sum(
            "mse_loss",
            "float* loss, const float* X, const float* Y, int N",
            "loss",
            ("X", "Y"),
            "N",
            "(X - Y) * (X - Y)",
            "scale",
            "float scale = 1.0f / N;",
        ),
        Sum(
            "monte_carlo_int",
            "const float* y_samples, float* result, float a, float b, int N",
            "result",
            ("y_samples",),
            "N",
            "y_samples",
            "scale",
            "float scale = (b - a) / N;",
        ),
        Sum(
            "simpson_int",
            "const float* y_samples, float* result, float a, float b, int N",
            "result",
            ("y_samples",),
            "N",
            "(i == 0 || i == N - 1 ? 1.0f : i % 2 == 1 ? 4.0f : i < N - 2 ? 2.0f : 0.0f) * y_samples",
            "scale",
            "float scale = (b - a) / (N - 1) / 3.0f;",
        ),
        Sum(
            "cross_entropy_loss",
            "float* loss, const float* X, const float* Y, int C",
            "loss",
            ("X", "Y"),
            "C",
            "-Y * logf(X)",
        ),
    )
}


def real(task: str, choices: Sequence[Choice]) -> Iterator[tuple[Choice, str]]:
    """The regions of a task's variants, in fp32."""
    for choice in choices:
        yield choice, region(TASKS[task], choice)


def region(what: Sum, choice: Choice) -> str:
    """The code of a region that computes the sum."""
    indexed = " i" in f" {what.term}".replace("(", " ")
    term_parameters = ", ".join(
        [*(f"float {array}" for array in what.arrays), *(["long long i", f"int {what.length}"] if indexed else [])]
    )
    pointers = ", ".join(f"const float* {array}" for array in what.arrays)
    extra = f", float {what.factor}" if what.factor else ""
    parts = [
        "#include <cuda_runtime.h>\n",
        # Each number stands in one place: a small model need not repeat it.
        f"constexpr int kThreads = {choice.block};\nconstexpr int kBlocks = {choice.grid};\n",
        f"__device__ float term({term_parameters}) {{\n    return {what.term};\n}}\n",
        f"__global__ void sum_kernel(float* {what.out}, {pointers}{extra}, int {what.length}) {{",
        *_thread_sum(what, choice, indexed),
        *_reduction(what, choice),
        "}\n",
        *_wrapper(what, choice),
    ]
    return "\n".join(parts) + "\n"


def _thread_sum(what: Sum, choice: Choice, indexed: bool) -> Iterator[str]:
    """Lines that leave a thread's share in `sum`."""
    n = what.length

    def term(parts: Sequence[str], index: str) -> str:
        return f"term({', '.join([*parts, *([index, n] if indexed else [])])})"

    unrolled = [f"    #pragma unroll {choice.unroll}"] if choice.unroll > 1 else []
    yield "    long long thread = blockIdx.x * (long long)kThreads + threadIdx.x;"
    yield "    long long stride = gridDim.x * (long long)kThreads;"
    yield "    long long first = thread;"
    yield "    float sum = 0.0f;"
    if choice.width > 1:
        together = " | ".join(f"(size_t){array}" for array in what.arrays)
        yield f"    if ((({together}) & 15) == 0) {{"
        yield from ("    " + line for line in unrolled)
        yield f"        for (long long k = thread; k < {n} / 4; k += stride) {{"
        for array in what.arrays:
            yield f"            float4 {array}4 = ((const float4*){array})[k];"
        for place, part in enumerate("xyzw"):
            yield f"            sum += {term([f'{array}4.{part}' for array in what.arrays], f'4 * k + {place}')};"
        yield "        }"
        yield f"        first += {n} / 4 * 4;"
        yield "    }"
    yield from unrolled
    yield f"    for (long long i = first; i < {n}; i += stride)"
    yield f"        sum += {term([f'{array}[i]' for array in what.arrays], 'i')};"


def _reduction(what: Sum, choice: Choice) -> Iterator[str]:
    """Lines that add the threads' shares to the result."""
    shuffle = [
        "    for (int distance = 16; distance > 0; distance /= 2)",
        "        sum += __shfl_down_sync(0xffffffffu, sum, distance);",
    ]
    add = f"atomicAdd({what.out}, {'sum' if not what.factor else f'{what.factor} * sum'});"
    if choice.reduction == "tree":
        yield "    __shared__ float partial[kThreads];"
        yield "    partial[threadIdx.x] = sum;"
        yield "    __syncthreads();"
        yield "    for (int half = kThreads / 2; half > 0; half /= 2) {"
        yield "        if (threadIdx.x < half)"
        yield "            partial[threadIdx.x] += partial[threadIdx.x + half];"
        yield "        __syncthreads();"
        yield "    }"
        yield "    sum = partial[0];"
        yield "    if (threadIdx.x == 0)"
    elif choice.reduction == "shuffle":
        yield "    __shared__ float partial[kThreads / 32];"
        yield from shuffle
        yield "    if (threadIdx.x % 32 == 0)"
        yield "        partial[threadIdx.x / 32] = sum;"
        yield "    __syncthreads();"
        yield "    for (int warp = 1; warp < kThreads / 32 && threadIdx.x == 0; ++warp)"
        yield "        sum += partial[warp];"
        yield "    if (threadIdx.x == 0)"
    else:
        yield from shuffle
        yield "    if (threadIdx.x % 32 == 0)"
    yield f"        {add}"


def _wrapper(what: Sum, choice: Choice) -> Iterator[str]:
    n = what.length
    yield f'extern "C" void {what.name}_optimized({what.parameters}) {{'
    if what.prepared:
        yield f"    {what.prepared}"
    piece = f"({choice.width} * kThreads)" if choice.width > 1 else "kThreads"
    yield f"    int blocks = min(({n} - 1) / {piece} + 1, kBlocks);"
    yield f"    cudaMemset({what.out}, 0, sizeof(float));"
    arguments = ", ".join([what.out, *what.arrays, *([what.factor] if what.factor else []), n])
    yield f"    sum_kernel<<<blocks, kThreads>>>({arguments});"
    yield "}"


# Names and terms of sums that nobody asks for.
_WORDS = (
    "absolute", "balanced", "biased", "bounded", "central", "clipped", "cubic", "damped", "difference", "distance",
    "energy", "entropy", "error", "excess", "field", "flux", "gain", "harmonic", "huber", "integral", "kernel", "kl",
    "log", "mass", "mean", "moment", "noise", "norm", "overlap", "penalty", "power", "quadratic", "ratio", "residual",
    "rate", "score", "shifted", "signal", "sine", "smooth", "squared", "total", "trapezoid", "variance", "volume",
    "weight",
)  # fmt: skip
_ARRAYS = ("A", "B", "P", "Q", "U", "V", "W", "X", "Y", "input", "target", "samples", "values", "data", "left", "right")
_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
_OUTS = ("out", "result", "loss", "total", "sum_out", "output", "value", "answer")
_LENGTHS = ("N", "C", "M", "L", "K", "count", "size")
_FUNCTIONS = ("logf", "expf", "fabsf", "sqrtf", "sinf", "cosf", "tanhf")
_PAIRS = (
    "{} * {}", "({} - {})", "({} + {})", "{} / {}", "-{} * {}", "fmaxf({}, {})", "fminf({}, {})",
    "({0} - {1}) * ({0} - {1})",
)  # fmt: skip


def made_up(random: Random) -> Sum:
    """A sum with random names and a random term."""
    name = "_".join(_word(random) for _ in range(random.choice((2, 2, 3))))
    count = random.choice((1, 2, 2, 2, 3))
    arrays = tuple(random.sample((*_ARRAYS, *(f"{letter}_{_word(random)}" for letter in "uvxyz")), count))
    out, length = random.choice(_OUTS), random.choice(_LENGTHS)
    # In any order, as the first array need not stand first in a term.
    term = _expression(random, random.sample(arrays, count), depth=random.choice((1, 1, 2)))
    pointers = [f"const float* {array}" for array in arrays]
    scalars: list[str] = []
    factor = prepared = ""
    if random.random() < 0.6:
        factor = "scale"
        kind = random.randrange(3)
        if kind == 0:
            prepared = f"float scale = {random.choice(('1.0f', '0.5f', '2.0f'))} / {length};"
        elif kind == 1:
            scalars = ["float a", "float b"]
            divisor = random.choice((length, f"({length} - 1)", f"({length} + 1)"))
            prepared = f"float scale = (b - a) / {divisor}{random.choice(('', ' / 3.0f', ' / 2.0f'))};"
        else:
            scalars = ["float alpha"]
            prepared = f"float scale = alpha / {length};"
    outs = [f"float* {out}"]
    order = [*outs, *pointers] if random.random() < 0.5 else [*pointers, *outs]
    parameters = ", ".join([*order, *scalars, f"int {length}"])
    if random.random() < 0.15:
        edge, inside = random.choice(("1.0f", "0.5f")), random.choice(("2.0f", "3.0f"))
        term = f"(i == 0 || i == {length} - 1 ? {edge} : {inside}) * {arrays[0]}"
    return Sum(name, parameters, out, arrays, length, term, factor, prepared)


def _word(random: Random) -> str:
    """A word of a name: most mean nothing, so that a model learns to copy letters and knows no names by heart."""
    kind = random.randrange(3)
    if kind == 0:
        # Also those that stand elsewhere in a text: a word that never was in a name would not be copied there.
        return random.choice((*_WORDS, *_OUTS, *(array for array in _ARRAYS if len(array) > 1)))
    if kind == 1:
        syllables = (random.choice(_CONSONANTS) + random.choice(_VOWELS) for _ in range(random.choice((2, 3))))
        return "".join(syllables) + random.choice(("", random.choice(_CONSONANTS)))
    return "".join(random.choices(_VOWELS + _CONSONANTS, k=random.randrange(2, 8)))


def _expression(random: Random, values: Sequence[str], depth: int) -> str:
    """An expression in which each value occurs."""
    if len(values) > 1:
        cut = random.randrange(1, len(values))
        left, right = (_expression(random, part, depth - 1) for part in (values[:cut], values[cut:]))
        form = random.choice(_PAIRS)
        joined = form.format(left, right).replace("--", "-")  # that would be a decrement
    else:
        joined = values[0]
    kind = random.randrange(7) if depth > 0 else 6
    if kind == 0:
        return f"{random.choice(_FUNCTIONS)}({joined})"
    if kind == 1:
        # Names need no parentheses, and a difference has its own.
        return f"{joined} * {joined}" if re.fullmatch(r"\w+|\([^()]*\)", joined) else f"({joined}) * ({joined})"
    if kind == 2:
        return f"{'-' if random.random() < 0.5 else ''}{random.choice(('0.5f', '2.0f', '1.5f'))} * {joined}"
    if kind == 3:
        return joined if joined.startswith("-") else f"-{joined}"
    return joined


def baseline_region(what: Sum, random: Random) -> str:
    """The region of a naive kernel of a made-up sum, in the style of the benchmark's baselines."""
    n = what.length
    term = re.sub(rf"\b({'|'.join(what.arrays)})\b", r"\1[i]", what.term)
    square = re.fullmatch(r"(\(.+\)) \* \1", term)
    inside = f"\n        term = {term};"
    if square and random.random() < 0.5:
        inside = f" {{\n        float part = {square[1][1:-1]};\n        term = part * part;\n    }}"
    kernel = f"{what.name}_kernel_optimized"
    pointers = ", ".join(f"const float* {array}" for array in what.arrays)
    extra = f", float {what.factor}" if what.factor else ""
    add = f"{what.factor} * partial[0]" if what.factor else "partial[0]"
    threads = random.choice((128, 256, 256, 512))
    prepared = f"    {what.prepared}\n" if what.prepared else ""
    arguments = ", ".join([what.out, *what.arrays, *([what.factor] if what.factor else []), n])
    header = f"""// {what.name.replace("_", " ").capitalize()}, fp32: {what.out}[0] = sum of {term}.
//
// Shapes  {", ".join(what.arrays)}: {n}, {what.out}: 1
// Naive   one element per thread, a tree in shared memory, and one atomic addition per block
"""
    return f"""{header if random.random() < 0.5 else ""}#include <cuda_runtime.h>

__global__ void {kernel}(float* {what.out}, {pointers}{extra}, int {n}) {{
    __shared__ float partial[{threads}];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    float term = 0.0f;
    if (i < {n}){inside}
    partial[threadIdx.x] = term;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {{
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }}
    if (threadIdx.x == 0)
        atomicAdd({what.out}, {add});
}}

extern "C" void {what.name}_optimized({what.parameters}) {{
{prepared}    int threads = {threads};
    int blocks = ({n} - 1) / threads + 1;
    cudaMemset({what.out}, 0, sizeof(float));
    {kernel}<<<blocks, threads>>>({arguments});
}}
"""
