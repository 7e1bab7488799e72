"""How much of one kernel's text is in another: shingles, runs of neighbouring tokens, with names and numbers blanked.

Comments, blanks, the names that a kernel chooses and its numbers make no difference, so a copy with other names, other
block sizes or other constants has the same shingles. What CUDA and C++ name stays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping

from cudamaster.core.values import content_hash
from cudamaster.guards.lexer import Kind, Token, lex, words

WIDTH = 5  # tokens of a shingle: about an operand with its operator and what is on either side

_KEPT = words(
    """
    alignas auto bool break case char class const constexpr continue decltype default delete do double else enum extern
    false float for goto if inline int long namespace new nullptr operator private public return short signed sizeof
    static struct switch template this true typedef typename union unsigned using void volatile while define include
    ifdef ifndef endif pragma unroll asm threadIdx blockIdx blockDim gridDim warpSize x y z dim3 half half2 float2
    float4 int2 int4 uint2 uint4 min max memset memcpy malloc free fma fmaf sqrt sqrtf rsqrt rsqrtf exp expf log logf
    tanh tanhf erf erff powf fabs fabsf fmax fmaxf fmin fminf
    """
)
_KEPT_BEGINNINGS = ("__", "cuda", "atomic", "nv", "wmma", "std")


def normalised(code: str) -> tuple[str, ...]:
    """The tokens of a code, blanked."""
    return tuple(_blanked(token) for token in lex(code).tokens if token.kind is not Kind.NEWLINE)


def fingerprint(code: str) -> str:
    """A hash that codes with the same blanked tokens share."""
    return content_hash(*normalised(code))


def shingles(code: str) -> frozenset[tuple[str, ...]]:
    """All runs of WIDTH blanked tokens; of a shorter code the whole, of an empty one nothing."""
    tokens = normalised(code)
    last = max(1, len(tokens) - WIDTH + 1)
    return frozenset(tokens[start : start + WIDTH] for start in range(last) if tokens)


def similarity(
    first: Collection[tuple[str, ...]],
    second: Collection[tuple[str, ...]],
    weights: Mapping[tuple[str, ...], float] | None = None,
) -> float:
    """0 for no common shingle to 1 for the same: the cosine between the two sets; unknown shingles weigh 1."""
    weights = weights or {}

    def length(some: Collection[tuple[str, ...]]) -> float:
        return math.fsum(weights.get(shingle, 1.0) ** 2 for shingle in some)

    both = length(set(first) & set(second))
    return both / math.sqrt(length(first) * length(second)) if both else 0.0


def rarity(all_of: Collection[Collection[tuple[str, ...]]]) -> dict[tuple[str, ...], float]:
    """A weight for each shingle of a collection of codes, the larger the fewer of them have it."""
    counts = Counter(shingle for some in all_of for shingle in set(some))
    return {shingle: math.log((1 + len(all_of)) / count) for shingle, count in counts.items()}


def _blanked(token: Token) -> str:
    if token.kind is Kind.NAME:
        known = token.text in _KEPT or token.text.startswith(_KEPT_BEGINNINGS)
        return token.text if known else "name"
    return "0" if token.kind is Kind.NUMBER else token.text
