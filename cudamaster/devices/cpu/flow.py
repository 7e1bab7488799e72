"""Orders a function's basic blocks so that the threads of a warp meet again (runtime/trace).

Of threads in different blocks, those in the earlier block continue. So a block where paths meet has to come after all
of these paths, and what follows a loop after the whole loop. Addresses do not give this order, because compilers place
blocks as they like.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence


def in_order(blocks: Collection[int], successors: Mapping[int, Sequence[int]]) -> list[int]:
    """Blocks, named by their addresses, in an order along all edges but those back to the start of a loop."""
    inside = set(blocks)
    edges = {block: [to for to in successors.get(block, ()) if to in inside] for block in inside}
    parts = _strongly_connected(sorted(inside), edges)
    part_of = {block: number for number, part in enumerate(parts) for block in part}
    order: list[int] = []
    for number in _topological(parts, part_of, edges):
        part = parts[number]
        if len(part) == 1:
            order += part
            continue
        entered = {to for block in inside if part_of[block] != number for to in edges[block] if part_of[to] == number}
        head = min(entered or part)
        rest = set(part) - {head}
        order += [head, *in_order(rest, successors)]
    return order


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
