"""The suite hgemm: products of half-precision matrices at a thousand shapes, one task for each shape and variant.

A task's name says all about it, and `cards.load` makes the card of any such name from bench/hgemm/hgemm.yaml:

    hgemm_tn_fp32_4096x2048x512     B column-major, sums in fp32, M x N x K
    hgemm_nn_fp16_64x64x128         B row-major, sums in fp16
    hgemm_open_tn_fp32_64x64x128    the same task, whose kernels may include CUTLASS's headers

The suite is that of CUDA-L2 (arXiv 2512.02551): M, N and K of its grid are each one of `SIZES`. Every other shape is a
task too. `Shape`, `Layout` and `Accumulate` are also those of the kernel family and of the tables of measurements.
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

SUITE = "hgemm"
CARD_FILE = Path("hgemm/hgemm.yaml")  # in bench/
SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384)  # of M, N and K (paper, section 1)
EXAMPLE = "hgemm_tn_fp32_4096x2048x512"
PIECE = 8  # elements of the 16 bytes that rows are whole pieces of
LONGEST_EDGE = 2**20
_MOST_ELEMENTS = 2**31  # of one matrix
_SHAPE = re.compile(r"([1-9]\d{0,8})x([1-9]\d{0,8})x([1-9]\d{0,8})")
_FORM = "hgemm_<nn|tn>_<fp32|fp16>_<M>x<N>x<K>"


class Layout(StrEnum):
    """How B lies in memory: row after row (nn) or column after column (tn), in the letters that BLAS has for A and B.

    A and C lie row after row.
    """

    NN = "nn"
    TN = "tn"


class Accumulate(StrEnum):
    """The type that products are added up in; factors and results are fp16."""

    FP32 = "fp32"
    FP16 = "fp16"


@dataclass(frozen=True, order=True)
class Shape:
    """M rows of A and C, N columns of B and C, and the K products that are summed up for an element."""

    m: int
    n: int
    k: int

    def must_be_legal(self) -> None:
        """Raises UsageError unless it is the shape of a task: rows are whole pieces of 16 bytes, and matrices fit."""
        for edge, size in (("N", self.n), ("K", self.k)):
            if size % PIECE:
                above = size + PIECE - size % PIECE
                near = f"{above - PIECE} or {above}" if above > PIECE else f"{above}"
                fix = f"Take {near}; M may be any number, and N and K are multiples of {PIECE}."
                raise UsageError(f"{edge} of {self} is no multiple of {PIECE}.", fix)
        if max(self.m, self.n, self.k) > LONGEST_EDGE:
            raise UsageError(f"{self} is too large.", f"M, N and K are at most {LONGEST_EDGE}.")
        if max(self.m * self.n, self.m * self.k, self.n * self.k) > _MOST_ELEMENTS:
            raise UsageError(f"A matrix of {self} is too large.", "Take a shape whose matrices have at most 4 GiB.")

    @property
    def products(self) -> int:
        """M N K, the multiplications of a call."""
        return self.m * self.n * self.k

    @property
    def operations(self) -> int:
        """Floating-point operations: a multiplication and an addition for each product."""
        return 2 * self.products

    @property
    def bytes(self) -> int:
        """Bytes of A, B and C, each once."""
        return 2 * (self.m * self.k + self.k * self.n + self.m * self.n)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def parse_shape(text: str) -> Shape:
    """The shape that is written as MxNxK; `must_be_legal` says whether there is a task of it.

    Raises UsageError for any other text.
    """
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no shape.", "Write M, N and K as MxNxK, for example 4096x2048x512.")
    return Shape(*map(int, found.groups()))


GRID: tuple[Shape, ...] = tuple(Shape(*sizes) for sizes in itertools.product(SIZES, repeat=3))


@dataclass(frozen=True)
class Task:
    """What a task's name says; `open_headers` is whether kernels may include CUTLASS's headers."""

    shape: Shape
    layout: Layout = Layout.TN
    accumulate: Accumulate = Accumulate.FP32
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
    layout: Layout = Layout.TN,
    accumulate: Accumulate = Accumulate.FP32,
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
    shape = parse_shape(rest[2])
    shape.must_be_legal()
    return Task(shape, Layout(rest[0]), Accumulate(rest[1]), open_headers)


@cache
def grid_names() -> tuple[str, ...]:
    """Names of the tasks of the grid, of all four variants: closed ones, then open ones."""
    return tuple(
        name(shape, layout, accumulate, open_headers=open_headers)
        for open_headers in (False, True)
        for layout in Layout
        for accumulate in Accumulate
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
    return template.render(task=task, M=task.shape.m, N=task.shape.n, K=task.shape.k)
