"""The suite hgemm: products of half-precision matrices at a thousand shapes, one task for each shape and variant.

A task's name says all about it, and `cards.load` makes the card of any such name from bench/hgemm/hgemm.yaml:

    hgemm_tn_fp32_4096x2048x512     B column-major, sums in fp32, M x N x K
    hgemm_nn_fp16_64x64x128         B row-major, sums in fp16
    hgemm_open_tn_fp32_64x64x128    the same task, whose kernels may include CUTLASS's headers

The suite is that of CUDA-L2 (arXiv 2512.02551): M, N and K of its grid are each one of `EDGES`. Every other shape is a
task too.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import jinja2

from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision

SUITE = "hgemm"
CARD_FILE = Path("hgemm/hgemm.yaml")  # in bench/
EDGES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384)
EXAMPLE = "hgemm_tn_fp32_4096x2048x512"
PIECE = 8  # elements of the 16 bytes that rows are whole pieces of
LONGEST_EDGE = 2**20
_MOST_ELEMENTS = 2**31  # of one matrix
_SHAPE = re.compile(r"([1-9]\d{0,8})x([1-9]\d{0,8})x([1-9]\d{0,8})")
_FORM = "hgemm_<nn|tn>_<fp32|fp16>_<M>x<N>x<K>"


class Layout(StrEnum):
    """How B lies in memory, in the letters that BLAS has for A and B together."""

    ROW = "nn"
    COLUMN = "tn"


@dataclass(frozen=True)
class Shape:
    """M rows of A and C, N columns of B and C, and the K products that are summed up for an element."""

    M: int
    N: int
    K: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """The shape in a text like 4096x2048x512. Raises UsageError for another text, and for one of no task."""
        found = _SHAPE.fullmatch(text)
        if found is None:
            raise UsageError(f"{text!r} is no shape.", "Write M x N x K as whole numbers: 4096x2048x512.")
        shape = cls(*map(int, found.groups()))
        shape.must_be_legal()
        return shape

    def must_be_legal(self) -> None:
        """Raises UsageError unless rows are whole pieces of 16 bytes and the matrices can be held."""
        for edge, size in (("N", self.N), ("K", self.K)):
            if size % PIECE:
                above = size + PIECE - size % PIECE
                near = f"{above - PIECE} or {above}" if above > PIECE else f"{above}"
                fix = f"Take {near}; M may be any number, and N and K are multiples of {PIECE}."
                raise UsageError(f"{edge} of {self} is no multiple of {PIECE}.", fix)
        if max(self.M, self.N, self.K) > LONGEST_EDGE:
            raise UsageError(f"{self} is too large.", f"M, N and K are at most {LONGEST_EDGE}.")
        if max(self.M * self.N, self.M * self.K, self.N * self.K) > _MOST_ELEMENTS:
            raise UsageError(f"A matrix of {self} is too large.", "Take a shape whose matrices have at most 4 GiB.")

    @property
    def products(self) -> int:
        """Multiplications of a call."""
        return self.M * self.N * self.K

    def __str__(self) -> str:
        return f"{self.M}x{self.N}x{self.K}"


GRID: tuple[Shape, ...] = tuple(Shape(*edges) for edges in itertools.product(EDGES, repeat=3))


@dataclass(frozen=True)
class Task:
    """What a task's name says. `accumulate` is the type of the sums, fp32 or fp16; `open_headers` says whether kernels
    may include CUTLASS's headers."""

    shape: Shape
    layout: Layout = Layout.COLUMN
    accumulate: Precision = Precision.FP32
    open_headers: bool = False

    @property
    def name(self) -> str:
        """The task's name."""
        return name(self.shape, self.layout, self.accumulate, open_headers=self.open_headers)

    @property
    def variant(self) -> str:
        """Layout and sums, e.g. tn_fp32: what tasks with the same baseline have in common."""
        return f"{self.layout}_{self.accumulate}"

    @property
    def category(self) -> str:
        """The suite's form: results of the two are never compared."""
        return f"{SUITE}_open" if self.open_headers else SUITE


def name(
    shape: Shape,
    layout: Layout = Layout.COLUMN,
    accumulate: Precision = Precision.FP32,
    *,
    open_headers: bool = False,
) -> str:
    """The name of a task."""
    return f"{SUITE}_{'open_' if open_headers else ''}{layout}_{accumulate}_{shape}"


def is_meant(text: str) -> bool:
    """Whether a name is one of this suite, or should be."""
    return text == SUITE or text.startswith(f"{SUITE}_")


def is_name(text: str) -> bool:
    """Whether a text is the name of a task of this suite."""
    try:
        return is_meant(text) and parse_name(text).name == text
    except UsageError:
        return False


def parse_name(text: str) -> Task:
    """What a task's name says. Raises UsageError, which says what is wrong with a name that is none."""
    first, *rest = text.split("_")
    open_headers = rest[:1] == ["open"]
    rest = rest[1:] if open_headers else rest
    wrong = None
    if first != SUITE:
        wrong = f"it does not begin with {SUITE}_"
    elif not rest:
        wrong = "it has no layout, type of sums and shape"
    elif rest[0] not in list(Layout):
        wrong = f"{rest[0]!r} is no layout: nn has B row-major, tn column-major"
    elif rest[1:2] not in (["fp32"], ["fp16"]):
        wrong = f"{rest[1]!r} is no type of sums: they are fp32 or fp16" if rest[1:] else "it has no type of sums"
    elif len(rest) != 3:
        wrong = "it has no shape" if len(rest) < 3 else "something stands behind the shape"
    if wrong is not None:
        raise UsageError(f"No task is named {text!r}: {wrong}.", f"Write {_FORM}, for example {EXAMPLE}.")
    return Task(Shape.parse(rest[2]), Layout(rest[0]), Precision(rest[1]), open_headers)


@cache
def grid_names() -> tuple[str, ...]:
    """Names of the tasks of the grid, of all four variants: closed ones, then open ones."""
    return tuple(
        name(shape, layout, accumulate, open_headers=open_headers)
        for open_headers in (False, True)
        for layout in Layout
        for accumulate in (Precision.FP32, Precision.FP16)
        for shape in GRID
    )


def matching(pattern: str) -> list[str]:
    """Names that a glob matches: of the grid, or the one task of any shape that it names.

    Open tasks are matched by globs that begin with hgemm_open alone, so that no suite mixes the two. Raises UsageError
    for a name that is none.
    """
    if pattern == SUITE or not any(letter in pattern for letter in "*?["):
        return [parse_name(pattern).name]
    opened = pattern.startswith(f"{SUITE}_open")
    half = len(grid_names()) // 2
    return fnmatch.filter(grid_names()[half:] if opened else grid_names()[:half], pattern)


def sample(shapes: Sequence[Shape], n: int, seed: int = 0) -> tuple[Shape, ...]:
    """A stratified sample of n shapes, or all of them where they are no more, in the order given.

    They are sorted by log2(M N K), cut into n strata of the same length, give or take one, and one is drawn from each.
    """
    return tuple(shapes[place] for place in _places([shape.products for shape in shapes], n, seed))


def sample_names(names: Sequence[str], n: int, seed: int = 0) -> tuple[str, ...]:
    """The same of tasks of any variants."""
    return tuple(names[place] for place in _places([parse_name(one).shape.products for one in names], n, seed))


def _places(products: Sequence[int], n: int, seed: int) -> list[int]:
    if n < 1:
        raise UsageError(f"A sample of {n} is none.", "Take 1 or more.")
    if n >= len(products):
        return list(range(len(products)))
    stream = random.Random(f"{SUITE} {seed}")
    # random() is the one method whose numbers stay the same from one version of Python to the next.
    order = sorted(range(len(products)), key=lambda place: (math.log2(products[place]), stream.random()))
    bounds = [len(order) * stratum // n for stratum in range(n + 1)]
    drawn = [order[low + int(stream.random() * (high - low))] for low, high in itertools.pairwise(bounds)]
    return sorted(drawn)


def card_text(task: Task) -> str:
    """The card of a task as YAML. Raises OSError if the suite's description cannot be read."""
    text = (resources.bench() / CARD_FILE).read_text(encoding="utf-8")
    template = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True).from_string(text)
    return template.render(task=task, M=task.shape.M, N=task.shape.N, K=task.shape.K)
