"""Orders a function's basic blocks so that the threads of a warp meet again (runtime/trace).

Of threads in different blocks, those in the earlier block continue. So a block where paths meet has to come after all
of these paths, and what follows a loop after the whole loop. Addresses do not give this order, because compilers place
blocks as they like.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

_MOST_TRIED = 300  # blocks of a loop that is entered at several


@dataclass(frozen=True)
class Loop:
    """A loop, or a block in none, which has no `head`: where the loop begins. `inner` is what it is without that."""

    blocks: Sequence[int]
    head: int | None
    inner: Sequence[Loop]


def nested(blocks: Collection[int], successors: Mapping[int, Sequence[int]]) -> list[Loop]:
    """The loops of blocks, named by their addresses, and their other blocks, along all edges between these."""
    return [
        Loop(part, head, () if head is None else nested(set(part) - {head}, successors))
        for part, head in _parts(blocks, successors)
    ]


def in_order(
    blocks: Collection[int], successors: Mapping[int, Sequence[int]], loops: Sequence[Loop] | None = None
) -> list[int]:
    """Blocks, named by their addresses, in an order along all edges but those back to the start of a loop. `loops` are
    what `nested` has found of them."""
    order: list[int] = []
    for loop in nested(blocks, successors) if loops is None else loops:
        order += loop.blocks if loop.head is None else [loop.head, *in_order((), successors, loop.inner)]
    return order


def simple_loops(
    blocks: Collection[int], successors: Mapping[int, Sequence[int]], loops: Sequence[Loop] | None = None
) -> dict[int, frozenset[int]]:
    """Loops that have no other loop in them and are left from one place, by where they begin: from where they begin or
    from one other block, or from those alone that go back, as a compiler may have several of these for one."""
    found: dict[int, frozenset[int]] = {}
    for loop in nested(blocks, successors) if loops is None else loops:
        if loop.head is None:
            continue
        if all(one.head is None for one in loop.inner):
            inside = frozenset(loop.blocks)
            backs = {block for block in inside if loop.head in successors.get(block, ())}
            left = {block for block in inside if not inside.issuperset(successors.get(block, ()))}
            if left <= backs or left == {loop.head} or len(backs) == len(left) == 1:
                found[loop.head] = inside
        found.update(simple_loops((), successors, loop.inner))
    return found


def _parts(
    blocks: Collection[int], successors: Mapping[int, Sequence[int]]
) -> Iterator[tuple[Sequence[int], int | None]]:
    """Loops, each with where it begins, and single blocks in an order along all edges between them.

    A compiler may enter a loop amid a pass for the first one. It begins then where most of its passes come by: without
    that block the loops that are left are smallest, of those where it is entered if that is most of it.
    """
    inside = set(blocks)
    edges = {block: [to for to in successors.get(block, ()) if to in inside] for block in inside}
    parts = _strongly_connected(sorted(inside), edges)
    part_of = {block: number for number, part in enumerate(parts) for block in part}
    entries: dict[int, set[int]] = {}
    for block, ends in edges.items():
        for to in ends:
            if part_of[block] != part_of[to]:
                entries.setdefault(part_of[to], set()).add(to)
    for number in _topological(parts, part_of, edges):
        part = parts[number]
        if len(part) == 1 and part[0] not in edges[part[0]]:
            yield part, None
            continue
        heads = sorted(entries.get(number, part))
        if len(heads) > 1:
            left = {block: _largest_loop(set(part) - {block}, successors) for block in heads}
            if 2 * min(left.values()) > len(part) <= _MOST_TRIED:
                left = {block: _largest_loop(set(part) - {block}, successors) for block in sorted(part)}
            heads = [min(left, key=lambda block: left[block])]
        yield part, heads[0]


def _largest_loop(blocks: Collection[int], successors: Mapping[int, Sequence[int]]) -> int:
    """How many blocks the largest loop has, 0 where there is none."""
    inside = set(blocks)
    edges = {block: [to for to in successors.get(block, ()) if to in inside] for block in inside}
    parts = _strongly_connected(sorted(inside), edges)
    return max((len(part) for part in parts if len(part) > 1 or part[0] in edges[part[0]]), default=0)


def _topological(
    parts: Sequence[Sequence[int]], part_of: Mapping[int, int], edges: Mapping[int, Sequence[int]]
) -> list[int]:
    """Numbers of the parts along the edges between them; where these leave a choice, by address."""
    between = {(part_of[block], part_of[to]) for block, ends in edges.items() for to in ends}
    between = {(start, end) for start, end in between if start != end}
    following: dict[int, list[int]] = {}
    waiting = dict.fromkeys(range(len(parts)), 0)
    for start, end in between:
        following.setdefault(start, []).append(end)
        waiting[end] += 1
    ready = [(min(parts[number]), number) for number, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for end in following.get(number, ()):
            waiting[end] -= 1
            if waiting[end] == 0:
                heapq.heappush(ready, (min(parts[end]), end))
    return order


def _strongly_connected(blocks: Sequence[int], edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Sets of blocks that reach each other, by Tarjan's algorithm without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    parts: list[list[int]] = []
    for root in blocks:
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            block, at = work.pop()
            if at == 0:
                index[block] = low[block] = len(index)
                stack.append(block)
                on_stack.add(block)
            ends = edges[block]
            if at > 0:
                low[block] = min(low[block], low[ends[at - 1]])
            for number in range(at, len(ends)):
                end = ends[number]
                if end not in index:
                    work += [(block, number + 1), (end, 0)]
                    break
                if end in on_stack:
                    low[block] = min(low[block], index[end])
            else:
                if low[block] == index[block]:
                    part = []
                    while True:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                        if part[-1] == block:
                            break
                    parts.append(part)
    return parts
