"""Kernels that differ from a baseline or a playbook kernel in one constant of their text, for the fit of the GPU model.

    python benchmarks/gpu_model_variants.py [TASK-PRECISION...]    lists them

What is varied is a number in the text: a block's threads, rows or vectors of a thread, stages of a ring, the unrolling
of a loop. Whether a variant compiles and is right is found out where it is measured. The same text gives the same
variants, and a variant's name says what was changed: "2_tiles kStages=3".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudamaster.core import resources
from cudamaster.core.values import BENCHMARK_PRECISIONS, content_hash
from cudamaster.models.playbook import read_step
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region

MOST = 2  # variants of a kernel of the playbook; of a baseline, one
_DECLARED = re.compile(r"\b(?:constexpr|const) (?:unsigned )?int (?P<names>[^;{}()]*);|\bint (?P<plain>threads = \d+);")
_ASSIGNED = re.compile(r"\b(k[A-Z]\w*|threads) = (\d+)(?=\s*(?:,|$))")
_UNROLLED = re.compile(r"#pragma unroll (\d+)\b")
# Names of facts of the hardware or of a format, of sizes from which on another kernel is chosen, and of limits.
_FIXED = re.compile(
    r"^k(?:Warp|WarpSize|Fragment|Many|Enough|Short|Shortest|Most|Min|Few|Fewest|Exact|Slack|Least|Longest|Large|Lane|"
    r"No[A-Z]|None|Sign|Bits|Bytes|Mask|Radix|Digits|Heads|Roots|Taps|Small|Inputs|Outputs|Elements|Radius|Halo|Points"
    r"|Group|Log|Shift|Exponent|Max(?:Blocks|Heads|Chunks|Weights|Threads|Kernel))"
)
# The first words of a kernel's parameters that a programmer would try, the likeliest first.
_LIKELY = (
    "threads", "kThreads", "kWarps", "kStages", "kStaged", "kAhead", "kDepth", "kRows", "kLanes", "kWidth", "kVectors",
    "kBatch", "kAtOnce", "kTile", "kStep", "kChunk", "kColumns", "kCols", "kBlocks", "kCluster", "kPadding", "unroll",
)  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A kernel with one constant changed: the name of the kernel, of the constant, and the new text."""

    kernel: str
    change: str
    code: str
    flags: str  # of the playbook's step; none of a baseline

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.kernel} {self.change}"


@dataclass(frozen=True)
class _Place:
    """A number in a text: what it is called, and where its digits are."""

    name: str
    begin: int
    end: int
    value: int


def variants(task: str, precision: str) -> Iterator[Variant]:
    """All variants of a task's kernels, each text once."""
    seen = {code for _, code, _ in texts(task, precision)}
    for kernel, code, flags in texts(task, precision):
        for variant in _of(kernel, code, flags, 1 if kernel == "baseline" else MOST):
            if variant.code not in seen:
                seen.add(variant.code)
                yield variant


def texts(task: str, precision: str) -> list[tuple[str, str, str]]:
    """Name, text and flags of a task's baseline and of its playbook's kernels, in their order."""
    card = cards.load(task)
    each = next(one for one in BENCHMARK_PRECISIONS if one.value == precision)
    found = [("baseline", baseline_region(card, each), "")]
    folder = resources.package() / "playbook" / task / precision
    for path in sorted(folder.glob("[0-9]*_*.cu"), key=lambda path: int(path.name.partition("_")[0])):
        step = read_step(path)
        found.append((path.stem, step.code, step.flags))
    return found


def _of(kernel: str, code: str, flags: str, most: int) -> Iterator[Variant]:
    """The variants of one text: of its likeliest constants one other value each, and then their second values."""
    places = sorted(_places(code), key=lambda place: (_likelihood(place.name), place.begin))[: most + 2]
    # Not always those that nearly every kernel has.
    places.sort(key=lambda place: content_hash(code, place.name))
    places = places[:most]
    offered = [(place, _others(place)) for place in places]
    made = 0
    for turn in range(most):
        for place, values in offered:
            if made < most and turn < len(values):
                # Which way the first goes differs from kernel to kernel, so that both ways occur.
                ways = values if int(content_hash(code, place.name)[:4], 16) % 2 else values[::-1]
                value = ways[turn]
                changed = code[: place.begin] + str(value) + code[place.end :]
                yield Variant(kernel, f"{place.name}={value}", changed, flags)
                made += 1


def _places(code: str) -> Iterator[_Place]:
    names: dict[str, int] = {}
    for declared in _DECLARED.finditer(code):
        inner = declared["names"] or declared["plain"]
        start = declared.start("names") if declared["names"] else declared.start("plain")
        for found in _ASSIGNED.finditer(inner):
            if not _FIXED.match(found[1]) and int(found[2]) > 0:
                names[found[1]] = names.get(found[1], 0) + 1
                name = found[1] if names[found[1]] == 1 else f"{found[1]}#{names[found[1]]}"
                yield _Place(name, start + found.start(2), start + found.end(2), int(found[2]))
    for number, found in enumerate(_UNROLLED.finditer(code), 1):
        yield _Place(f"unroll#{number}", found.start(1), found.end(1), int(found[1]))


def _likelihood(name: str) -> int:
    for place, word in enumerate(_LIKELY):
        if name.startswith(word):
            return place
    return len(_LIKELY)


def _others(place: _Place) -> Sequence[int]:
    """Other values of a constant: half and twice of a power of two, else its neighbours."""
    value = place.value
    if place.name.startswith("kPadding"):
        return (0, 2 * value)
    if place.name.lower().startswith(("kthreads", "threads")):
        return [other for other in (value // 2, 2 * value) if 32 <= other <= 1024]
    if value & (value - 1) == 0:
        return [other for other in (value // 2, 2 * value) if other > 0]
    return [other for other in (value - 1, value + 1) if other > 0]


def main() -> None:
    """List variants."""
    wanted = sys.argv[1:] or [f"{task}-{each}" for task in cards.names() for each in BENCHMARK_PRECISIONS]
    count = 0
    for name in wanted:
        for variant in variants(*name.rsplit("-", 1)):
            print(f"{name} {variant.name}")
            count += 1
    print(f"{count} variants")


if __name__ == "__main__":
    main()
