"""What it means that two pieces of code are alike: normalised tokens, shingles of them, and three measures.

All of training compares code here: exports for near copies of held-out kernels, the corpus for copies of its pieces and
of the benchmark, and the database of tricks for what resembles a kernel.

Comments and layout are gone, numbers are one token, and so are all names but those of the language, of CUDA and of
their libraries (`float4`, `threadIdx`, `__shfl_xor_sync`, `expf`): what a kernel calls is what it does. Which names
these are is told by a list and the tokens beside them, never by declarations. So a few lines, a function and a whole
file that have the same text have the same tokens, and what no compiler would read has tokens too.

A shingle is a run of SHINGLE tokens (Broder, On the resemblance and containment of documents, 1997).

NEAR_COPY is from the baselines and the playbook's kernels of the fifty tasks, each pair of two tasks in one precision.
From 0.7 on, both are one scheme with another formula in it: `elu` and `leaky_relu` (0.92), a product and one of square
matrices (0.99), a stencil in two and in three dimensions (0.70). Below it are the first pairs that share little but an
element for each thread and a launch: `row_tanh` and `prefix_sum` (0.67 in BF16), a product and a transposition (0.63).
`docs/training.md#near-copies` has more of them, which a test computes again.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypeAlias
from zlib import crc32

from cudamaster.core.values import content_hash
from cudamaster.guards.lexer import Kind, lex, words

SHINGLE = 8  # tokens: about a statement
NEAR_COPY = 0.7  # the Jaccard index from which on two pieces of code are near copies

Shingles: TypeAlias = frozenset[int]

_LANGUAGE = words(
    """
    alignas alignof asm auto bool break case catch char class const const_cast constexpr continue decltype default
    delete do double dynamic_cast else enum explicit extern false float for friend goto if inline int long mutable
    namespace new noexcept nullptr operator private protected public register reinterpret_cast return short signed
    sizeof static static_assert static_cast struct switch template this throw true try typedef typename union unsigned
    using virtual void volatile while
    define undef include ifdef ifndef elif endif pragma unroll
    """
)
_OF_CUDA = words(
    """
    threadIdx blockIdx blockDim gridDim clusterDim warpSize dim3 half half2 size_t INFINITY
    std cuda nvcuda cooperative_groups cub thrust wmma mma
    """
)
_VECTOR = r"(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]"
_NAMES_OF_CUDA = re.compile(
    rf"__\w+|cuda[A-Z]\w*|CUDA\w*|cu[A-Z]\w*|CU_\w+|CU[a-z]\w*|cu(?:rand|blas|fft|sparse|solver|dnn)\w*"
    rf"|atomic[A-Z]\w*|(?:make_)?{_VECTOR}|u?int(?:8|16|32|64|ptr)_t"
)
_FUNCTIONS = words("memset memcpy memmove malloc free printf assert trap clock clock64 min max abs swap") | {
    f"{before}{name}{after}"
    for before in ("", "h", "h2")  # of half precision
    for after in ("", "f")
    for name in words(
        """
        acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfcx erfinv exp
        exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp lgamma log
        log10 log1p log2 logb lrint lround modf nearbyint normcdf pow powi rcbrt rcp remainder rint round rsqrt signbit
        sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc
        """
    )
}
_MEMBERS = frozenset("xyzw")  # of vectors, threadIdx and its like


def tokens(code: str) -> tuple[str, ...]:
    """The normalised tokens of a piece of code."""
    all_of = [token for token in lex(code).tokens if token.kind is not Kind.NEWLINE]
    found: list[str] = []
    for place, token in enumerate(all_of, 1):
        is_called = place < len(all_of) and all_of[place].text == "("
        if token.kind is Kind.NUMBER:
            found.append("0")
        elif token.kind is Kind.NAME and not _is_known(token.text, found, is_called):
            found.append("v")
        else:
            found.append(token.text)
    return tuple(found)


def shingles(code: str) -> Shingles:
    """The shingles of a piece of code, as hashes that are the same in every process.

    Fewer tokens than SHINGLE are one shingle, and no token is none.
    """
    found = tokens(code)
    runs = max(1, len(found) - SHINGLE + 1) if found else 0
    return frozenset(crc32("\0".join(found[start : start + SHINGLE]).encode()) for start in range(runs))


def fingerprint(code: str) -> str:
    """A hash that pieces of code with the same tokens share."""
    return content_hash(*tokens(code))


def jaccard(one: Shingles, other: Shingles) -> float:
    """What both have over what either has: 0 to 1. This is the similarity that NEAR_COPY is a limit of."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if one or other else 1.0


def overlap(one: Shingles, other: Shingles) -> float:
    """What both have over what the smaller one has: 1 if it lies in the other whole; 0 if either is empty."""
    return len(one & other) / min(len(one), len(other)) if one and other else 0.0


def cosine(one: Shingles, other: Shingles, weights: Mapping[int, float] | None = None) -> float:
    """The cosine between two sets, 0 to 1, with weights of shingles; unknown ones weigh 1.

    It ranks, and is no measure of a near copy: some lines can be far up in a long kernel that has them.
    """
    known = weights or {}

    def length(some: Shingles) -> float:
        return math.fsum(known.get(shingle, 1.0) ** 2 for shingle in some)

    both = length(one & other)
    return both / math.sqrt(length(one) * length(other)) if both else 0.0


def rarity(all_of: Collection[Shingles]) -> dict[int, float]:
    """A weight for each shingle of a collection, the larger the fewer of it have the shingle."""
    counts = Counter(shingle for some in all_of for shingle in some)
    return {shingle: math.log((1 + len(all_of)) / count) for shingle, count in counts.items()}


def _is_known(name: str, before: list[str], is_called: bool) -> bool:
    """Whether a name is the language's or CUDA's, after these tokens."""
    if before[-1:] == ["."] or before[-2:] == ["-", ">"]:
        return name in _MEMBERS
    if before[-2:] == [":", ":"]:
        return before[-3:-2] != ["v"]  # nvcuda::wmma::mma_sync
    if is_called and name in _FUNCTIONS:
        return True
    return name in _LANGUAGE or name in _OF_CUDA or _NAMES_OF_CUDA.fullmatch(name) is not None
