"""Cuts a file into pieces that stand by themselves.

A piece is a kernel with the helpers, types, constants, macros and includes of its file that it needs, and the host
function that launches it. Kernels that share a launcher are one piece as long as they fit; beyond that each is a piece,
in which the launcher finds the others declared. Device functions that no
kernel of the file uses, as in headers, are gathered to pieces of their own. No function is cut.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from cudamaster.training.corpus.outline import Is, Item, Outline, outline
from cudamaster.training.corpus.sources import LeftOut, SourceFile

LONGEST = 12_000  # characters of a piece, by default
SHORTEST = 60
_GATHERED = 2_000  # characters; device functions without a kernel are gathered up to here
_IF = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b")
_KEPT = (Is.INCLUDE, Is.USING)  # what they bring is not known by name
_BROKEN, _SPLIT = "does not parse", "an #if would be cut in two"


@dataclass(frozen=True)
class Piece:
    """A piece of a file: its code, which lines it is of (first and last, from 1), and the names it is about.

    `functions` are the texts of its kernels, or of its device functions where it has no kernel: what is compared with
    other kernels.
    """

    path: str
    code: str
    lines: tuple[tuple[int, int], ...]
    names: tuple[str, ...]
    functions: tuple[str, ...]


def cut(source: SourceFile, hidden: Collection[int] = (), longest: int = LONGEST) -> tuple[list[Piece], list[LeftOut]]:
    """The pieces of a file, and what of it is in none. `hidden` lines, such as licences, are in no piece."""
    read = outline(source.text)
    if read is None:
        return [], [LeftOut(source.path, _BROKEN, "it nests too deeply")]
    cutter = _Cutter(source, read, frozenset(hidden), longest)
    cutter.kernels()
    cutter.device_functions()
    for line in read.lost:
        cutter.left.append(LeftOut(source.path, _BROKEN, "a kernel is not understood", line, line))
    if not cutter.pieces and not cutter.left:
        cutter.left.append(LeftOut(source.path, "no kernel and no device function in it"))
    return cutter.pieces, cutter.left


class _Cutter:
    def __init__(self, source: SourceFile, read: Outline, hidden: frozenset[int], longest: int) -> None:
        self.pieces: list[Piece] = []
        self.left: list[LeftOut] = []
        self._source = source
        self._lines = source.text.split("\n")
        self._items = read.items
        self._hidden = hidden
        self._longest = longest
        self._by_name: dict[str, list[Item]] = {}
        for item in self._items:
            for name in item.names:
                self._by_name.setdefault(name, []).append(item)
        self._covered: set[Item] = set()
        self._heads: dict[Item, str] = {}  # declarations that we make of kernels, and their last line

    def kernels(self) -> None:
        """A piece for each group of kernels that share a launcher; for each kernel where the group does not fit."""
        kernels = [item for item in self._items if item.kind is Is.KERNEL]
        launchers = {kernel: self._launchers(kernel) for kernel in kernels}
        for group in _groups(kernels, launchers):
            together = [*group, *dict.fromkeys(host for kernel in group for host in launchers[kernel])]
            if self._add(group, together) is None:
                continue
            for kernel in group:
                choices = [[kernel, *launchers[kernel]], *([kernel, host] for host in launchers[kernel]), [kernel]]
                why = None
                for chosen in choices:
                    if (why := self._add([kernel], chosen)) is None:
                        break
                if why is not None:
                    self._covered.update(self._needed([kernel]))
                    self._leave(kernel, why)

    def device_functions(self) -> None:
        """Pieces of device functions and types that no kernel of the file uses, several small ones together."""
        free = [
            item
            for item in self._items
            if item not in self._covered and item.names and (item.kind is Is.DEVICE or self._is_device_type(item))
        ]
        used = {name for item in free for name in item.uses}
        roots = [item for item in free if not item.names & used] or free
        gathered: list[Item] = []
        for root in roots:
            trial = [*gathered, root]
            if gathered and len(self._composed(self._needed(trial))[0]) > _GATHERED:
                self._finish(gathered)
                trial = [root]
            gathered = trial
        if gathered:
            self._finish(gathered)

    def _finish(self, gathered: Sequence[Item]) -> None:
        if self._add(gathered, gathered) is None:
            return
        for root in gathered:
            if (why := self._add([root], [root])) is not None:
                self._leave(root, why)

    def _is_device_type(self, item: Item) -> bool:
        return item.kind is Is.TYPE and item.on_device

    def _launchers(self, kernel: Item) -> list[Item]:
        """Host functions that name a kernel, `main` only where there is no other; the shortest first."""
        found = [item for item in self._items if item.kind is Is.HOST and item.uses & kernel.names]
        others = [item for item in found if "main" not in item.names]
        return sorted(others or found, key=lambda item: item.last - item.first)

    def _leave(self, item: Item, why: str) -> None:
        self.left.append(LeftOut(self._source.path, why, " ".join(sorted(item.names)), item.first, item.last))

    def _needed(self, roots: Sequence[Item]) -> list[Item]:
        """The roots and all of the file that they use, also through others, in the file's order."""
        left = [(root, root.kind in (Is.HOST, Is.TYPE)) for root in roots]
        found = set(left)
        while left:
            item, by_host = left.pop()
            for name in item.uses:
                for other in self._by_name.get(name, ()):
                    if (other, by_host) not in found and self._goes_with(by_host, other, name):
                        found.add((other, by_host))
                        left.append((other, by_host))
        needed = {item for item, _ in found}
        return [item for item in self._items if item in needed or item.kind in _KEPT]

    def _goes_with(self, by_host: bool, other: Item, name: str) -> bool:
        """Whether what is used by that name comes along: no host code for the device, and no further kernels.

        `by_host` says that host code uses it, if only through a macro.
        """
        if other.kind is Is.KERNEL:
            return False
        if other.kind is Is.HOST:
            return by_host and "main" not in other.names
        if other.kind is Is.DECLARED:
            return not any(each.kind in (Is.KERNEL, Is.DEVICE, Is.HOST) for each in self._by_name[name])
        return True

    def _add(self, about: Sequence[Item], roots: Sequence[Item]) -> str | None:
        """Make a piece of what the roots need; the reason if that is impossible."""
        needed = self._needed(roots)
        if others := self._others(needed):
            needed = [*self._needed([*roots, *others]), *others]
        if any(item.broken for item in needed):
            return _BROKEN
        code, lines = self._composed(needed)
        if len(code) > self._longest:
            return f"longer than {self._longest:,} characters"
        if len(code) < SHORTEST:
            return f"shorter than {SHORTEST} characters"
        if not _balanced(code):
            return _SPLIT
        self._covered.update(needed)
        names = tuple(dict.fromkeys(name for item in about for name in sorted(item.names)))
        functions = tuple("\n".join(self._lines[item.first - 1 : item.last]) for item in about)
        self.pieces.append(Piece(self._source.path, code, lines, names, functions))
        return None

    def _others(self, needed: Sequence[Item]) -> list[Item]:
        """Declarations of the kernels that host functions among the needed name and that are not among them."""
        used = {name for item in needed if item.kind is Is.HOST for name in item.uses}
        return [
            self._declaration(item)
            for item in self._items
            if item.kind is Is.KERNEL and item.names & used and item not in needed and item.opens
        ]

    def _declaration(self, kernel: Item) -> Item:
        """A kernel up to its body."""
        head = self._lines[kernel.opens - 1].partition("{")[0].rstrip()
        words = frozenset(re.findall(r"\w+", "\n".join((*self._lines[kernel.first - 1 : kernel.opens - 1], head))))
        item = replace(kernel, kind=Is.DECLARED, last=kernel.opens, uses=words - kernel.names)
        self._heads[item] = f"{head};"
        return item

    def _composed(self, items: Sequence[Item]) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The text of items in the file's order, inside their namespaces, and which lines it is of."""
        scope_of = {line: item.scope for item in items for line in range(item.first, item.last + 1)}
        ends = {item.last: self._heads[item] for item in items if item in self._heads}
        shown = [line for line in sorted(scope_of) if line not in self._hidden]
        rows: list[str] = []
        lines: list[tuple[int, int]] = []
        scope: tuple[str, ...] = ()
        for line in shown:
            follows = bool(lines) and lines[-1][1] == line - 1
            if scope_of[line] != scope:
                rows.extend(_moved(scope, scope_of[line]))
                scope = scope_of[line]
            elif rows and not follows and not _both_includes(self._lines, lines[-1][1], line):
                rows.append("")
            rows.append(ends.get(line, self._lines[line - 1].rstrip()))
            lines[-1:] = [(lines[-1][0], line)] if follows else [*lines[-1:], (line, line)]
        rows.extend(_moved(scope, ()))
        code = re.sub(r"\n{3,}", "\n\n", "\n".join(rows)).strip("\n")
        return f"{code}\n", tuple(lines)


def _groups(kernels: Sequence[Item], launchers: dict[Item, list[Item]]) -> list[list[Item]]:
    """Kernels that share a launcher, directly or through others, or a name: overloads belong together."""
    groups: list[tuple[set[object], list[Item]]] = []
    for kernel in kernels:
        keys: set[object] = {*launchers[kernel], *kernel.names}
        members = [kernel]
        for group in [each for each in groups if each[0] & keys]:
            groups.remove(group)
            keys |= group[0]
            members = [*group[1], *members]
        groups.append((keys, members))
    return [sorted(members, key=lambda item: item.first) for _, members in groups]


def _moved(scope: Sequence[str], to: Sequence[str]) -> Iterable[str]:
    """The lines that close namespaces and open others."""
    shared = 0
    while shared < min(len(scope), len(to)) and scope[shared] == to[shared]:
        shared += 1
    closed = [f"}}  // {head}" for head in reversed(scope[shared:])]
    opened = [f"{head} {{" for head in to[shared:]]
    return [*closed, *([""] if closed or opened else []), *opened]


def _both_includes(lines: Sequence[str], one: int, other: int) -> bool:
    return all(lines[line - 1].lstrip().startswith("#include") for line in (one, other))


def _balanced(code: str) -> bool:
    depth = 0
    for line in code.split("\n"):
        found = _IF.match(line)
        if not found:
            continue
        if found[1] in ("if", "ifdef", "ifndef"):
            depth += 1
        elif depth == 0:
            return False
        elif found[1] == "endif":
            depth -= 1
    return depth == 0
