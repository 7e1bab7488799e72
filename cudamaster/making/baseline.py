"""The baseline of a task out of a user's file: what the wrapper needs, as one text that a candidate may start from.

Lines keep their place in the user's files, so that a refusal can name it. What is changed or left out is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from cudamaster.build.source_guard import guarded
from cudamaster.core.errors import UsageError
from cudamaster.devices.protocol import Device
from cudamaster.guards.grammar import walk
from cudamaster.guards.headers import does_the_task, is_allowed
from cudamaster.guards.lexer import Directive, Kind, Token, closing, lex, split
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.renaming import as_candidate
from cudamaster.guards.signature import Signature
from cudamaster.guards.storage import declarators, device_variables, is_function
from cudamaster.making.disarming import macro_body, only_checks, prints, without_prints
from cudamaster.making.flattening import Flat, Line
from cudamaster.making.reading import Function, Passed, Source, above

_HEAD = frozenset({"static", "inline", "extern", '"C"', "void", "__host__", "__forceinline__", "__noinline__"})
_FILLS_VARIABLES = frozenset({"cudaMemcpyToSymbol", "cudaMemcpyToSymbolAsync", "cudaGetSymbolAddress"})
_SPEAKS_OF_ERRORS = frozenset({"cudaSuccess", "cudaError_t", "cudaError", "cudaGetErrorString", "cudaGetLastError"})


@dataclass(frozen=True)
class Baseline:
    """The baseline's lines, the functions that were left out, and other changes in words."""

    lines: tuple[Line, ...]
    left_out: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def flat(self) -> Flat:
        """As a text whose lines know where they were written."""
        return Flat(self.lines, ())


def assemble(source: Source, wrapper: Function) -> Baseline:
    """What the wrapper needs of the file. Raises UsageError where it cannot be cut out."""
    kept = source.reachable([wrapper.name, *_named_outside(source)])
    gone = [function for function in source.functions if function.name not in kept and not function.scope]
    _must_be_filled(source, wrapper, gone)
    edits = _Edits(source.flat)
    left_out = [function.name for function in gone if edits.cut(source, function)]
    for first, last in _prototypes(source, {*left_out, wrapper.name}):
        edits.drop(range(first, last + 1))
    edits.drop_untaken_main(source)
    edits.make_c(wrapper)
    edits.disarm(source, {function.name for function in gone})
    edits.drop_headers()
    return Baseline(tuple(_without_gaps(edits.lines())), tuple(dict.fromkeys(left_out)), tuple(edits.changes))


def _must_be_filled(source: Source, wrapper: Function, gone: Sequence[Function]) -> None:
    """Raises UsageError where a function that is left out fills a variable on the device that kernels read."""
    there = {function.name for function in gone}
    used = {name for function in source.functions if function.name not in there for name in function.uses}
    for function in gone:
        filled = sorted(device_variables(source.parsed) & used & function.uses)
        if filled and function.uses & _FILLS_VARIABLES:
            raise UsageError(
                f"{source.flat.place(function.first)}: {function.name} fills {filled[0]} on the device, and "
                f"{wrapper.name} does not call it.",
                f"A call keeps nothing: fill it in {wrapper.name}, or pass the data as a parameter.",
            )


def must_pass_guard(made: Baseline, wrapper: Function, passed: Sequence[Passed], device: Device) -> None:
    """Raises UsageError where the source guard would refuse the baseline as a candidate: a search starts from it."""
    flags = device.parse_command(device.default_command)
    assert not isinstance(flags, Refusal)
    own, name = f"{wrapper.name}_optimized", wrapper.name
    signature = Signature(own, tuple((parameter.c_type, parameter.name) for parameter in passed))
    refused = guarded(as_candidate(made.flat.text, name, comments=False), flags, device, signature)
    if isinstance(refused, Refusal):
        where = "" if refused.line is None else f"{made.flat.place(refused.line)}: "
        more = "A search starts from this text, and no candidate may have that."
        raise UsageError(f"{where}{refused.reason.replace(own, name)}.", f"{refused.fix.replace(own, name)} {more}")


class _Edits:
    """Changes to the lines of a flat text, whose numbers (from 1) stay."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.changes: list[str] = []
        self._rows: dict[int, str | None] = {}
        found = lex(flat.text)
        self._spliced = found.spliced
        self._directives, self._code = split(found.tokens)

    def lines(self) -> Iterator[Line]:
        """All lines that are left."""
        for number, line in enumerate(self.flat.lines, 1):
            text = self._rows.get(number, line.text)
            if text is not None:
                yield Line(text, line.file, line.number)

    def drop(self, numbers: range) -> None:
        """Leave lines out."""
        self._rows.update(dict.fromkeys(numbers))

    def cut(self, source: Source, function: Function) -> bool:
        """Leave out a function with the comments above it, if its lines hold nothing else. Says whether it did."""
        rows = range(function.first, function.last + 1)
        start = source.parsed.head_start(function.outer)
        others = [token for token in source.parsed.tokens
                  if token.line in rows and not start <= token.start < function.outer.end_byte]  # fmt: skip
        inside = [each.name for each in self._directives if each.line in rows]
        opened = sum(name in ("if", "ifdef", "ifndef") for name in inside)
        if others or opened != inside.count("endif"):
            if function.name == "main":
                raise UsageError(f"{self.flat.place(function.first)}: main shares a line with other code.",
                                 "Put it on lines of its own, or take it out.")  # fmt: skip
            return False
        first = function.first
        while first > 1 and self.flat.lines[first - 2].text.lstrip().startswith("//"):
            first -= 1
        self.drop(range(first, function.last + 1))
        return True

    def drop_untaken_main(self, source: Source) -> None:
        """Leave out conditional branches that are not taken and define `main`: no candidate may have one."""
        taken = {token.line for token in source.parsed.tokens}
        mains = [token.line for token, after in zip(self._code, self._code[1:], strict=False)
                 if token.text == "main" and after.text == "("]  # fmt: skip
        opened: list[int] = []
        for each in self._directives:
            if each.name in ("if", "ifdef", "ifndef"):
                opened.append(each.line)
            elif each.name == "endif" and opened:
                rows = range(opened.pop(), each.line + 1)
                if any(line in rows for line in mains) and not taken & set(rows):
                    self.drop(rows)
                    self.changes.append("without a branch that is not compiled and has a main")

    def make_c(self, wrapper: Function) -> None:
        """Give the wrapper C linkage, in place of whatever stands before its name."""
        for at, token in enumerate(self._code):
            called = at + 1 < len(self._code) and self._code[at + 1].text == "("
            if token.text == wrapper.name and called and wrapper.first <= token.line <= wrapper.last:
                break
        else:
            raise UsageError(f"{self.flat.place(wrapper.first)}: a macro makes the function {wrapper.name}.",
                             "Write it out, or add a plain function that calls it, and give --wrapper.")  # fmt: skip
        before = [each.text for each in self._code[:at] if each.line >= wrapper.first]
        if not set(before) <= _HEAD:
            raise UsageError(f"{self.flat.place(wrapper.first)}: {' '.join(before)} stands before {wrapper.name}.",
                             f"Write void {wrapper.name}(...) on a line of its own.")  # fmt: skip
        if before == ["extern", '"C"', "void"] or (wrapper.c_linkage and before == ["void"]):
            return
        row = self.flat.lines[token.line - 1].text
        found = re.search(rf"\b{wrapper.name}\s*(?:\(|$)", row)
        assert found is not None
        self.drop(range(wrapper.first, token.line))
        self._rows[token.line] = f'extern "C" void {row[found.start() :]}'
        if before != ["void"]:
            self.changes.append(f'{wrapper.name} is extern "C" void, in place of {" ".join(before)}')

    def disarm(self, source: Source, gone: set[str]) -> None:
        """Take prints and exits out of macros and functions that check CUDA's errors: the rest stays.

        A candidate may do neither, and the judge asks for errors itself after every call.
        """
        changed = []
        for each in self._directives:
            texts = [token.text for token in each.rest]
            called = _macro_parameters(each) if each.name == "define" else None
            if called is None or not prints(each.rest) or not _SPEAKS_OF_ERRORS & set(texts):
                continue
            names = {"__VA_ARGS__" if name == "..." else name.removesuffix("...") for name in called}
            body = macro_body(each.rest[closing(each.rest, 1) + 1 :], names)
            if body is None:
                raise UsageError(
                    f"{self.flat.place(each.line)}: what {texts[0]} does beside its prints and exits is unclear.",
                    "Write it as do { cudaError_t e = (call); if (e != cudaSuccess) { ...; exit(1); } } while (0).",
                )
            self.drop(range(each.line, each.rest[-1].line + 1))
            self._rows[each.line] = f"#define {texts[0]}({', '.join(called)}) {body}"
            changed.append(texts[0])
        for function in source.functions:
            stays = function.kind == "host" and function.name not in gone and not function.launches
            if stays and self._silence(function):
                changed.append(function.name)
        if changed:
            told = "no longer print or exit" if len(changed) > 1 else "no longer prints or exits"
            self.changes.append(f"{' and '.join(changed)} {told}: the judge asks for CUDA's errors itself")

    def _silence(self, function: Function) -> bool:
        """Take prints and exits out of a function that checks errors, or empty it if it does nothing else.

        Says whether it did.
        """
        inside = [at for at, token in enumerate(self._code) if function.first <= token.line <= function.last]
        opening = next((at for at in inside if self._code[at].text == "{"), None)
        if opening is None:
            return False
        end = closing(self._code, opening)
        head, body = self._code[inside[0] : opening], self._code[opening + 1 : end]
        left = without_prints(body)
        # Branches that are not taken count too: the source guard reads them.
        texts = {token.text for token in (*head, *body)}
        if len(left) == len(body) or not _SPEAKS_OF_ERRORS & (function.uses | texts):
            return False
        row, first = self.flat.lines[self._code[opening].line - 1].text, self._code[opening].line
        names = {token.text for token in head if token.kind is Kind.NAME}
        is_alone = self._code[end].line == function.last and (row.count("{") == 1 or first == function.last)
        if is_alone and "void" in names and only_checks(left, names):
            self.drop(range(first, function.last + 1))
            self._rows[first] = f"{row[: row.index('{')]}{{}}"
        else:
            kept = {token.start for token in left}
            self._take_out([token for token in body if token.start not in kept])
        return True

    def _take_out(self, tokens: Sequence[Token]) -> None:
        """Leave tokens out of their lines."""
        for token in reversed(tokens):
            row = self._rows.get(token.line, self.flat.lines[token.line - 1].text) or ""
            column = token.start - self._spliced.rfind("\n", 0, token.start) - 1
            if row[column : column + len(token.text)] != token.text:  # a line that goes on in the next
                place = self.flat.place(token.line)
                raise UsageError(f"{place}: this print cannot be taken out.", "Put it on a line of its own.")
            before = row[:column]
            rest = (before.rstrip() or before) + row[column + len(token.text) :]
            self._rows[token.line] = rest.rstrip() if rest.strip() else None

    def drop_headers(self) -> None:
        """Leave out headers that a candidate may not include, unless they do the task."""
        dropped = []
        for each in self._directives:
            text = "".join(token.text for token in each.rest)
            name = text[1:-1] if text[:1] in ("<", '"') else ""
            closed = bool(name) and not is_allowed(name) and not does_the_task(name)
            if each.name == "include" and closed and self._rows.get(each.line, "") is not None:
                self.drop(range(each.line, each.line + 1))
                dropped.append(f"<{name}>")
        if dropped:
            self.changes.append(f"without {', '.join(dict.fromkeys(dropped))}, which a candidate may not include")


def _named_outside(source: Source) -> set[str]:
    """Names outside the bodies of functions that could be left out: what they name is kept."""
    inside = [(source.parsed.head_start(f.outer), f.outer.end_byte) for f in source.functions if not f.scope]
    prototypes = [(node.start_byte, node.end_byte) for node, _ in _declared(source)]
    covered = sorted(inside + prototypes)
    names, at = set(), 0
    for token in source.parsed.tokens:
        while at < len(covered) and covered[at][1] <= token.start:
            at += 1
        if token.kind is Kind.NAME and not (at < len(covered) and covered[at][0] <= token.start):
            names.add(token.text)
    return names


def _declared(source: Source) -> Iterator[tuple[Node, str]]:
    """Declarations of functions at file scope, with `extern "C"` before them, and their names."""
    for node in walk(source.parsed.root):
        if node.type != "declaration" or source.parsed.function_of(node) is not None:
            continue
        around = node.parent
        outer = around if around is not None and around.child_by_field_name("body") == node else node
        if any(each.type in ("namespace_definition", "class_specifier") for each in above(node)):
            continue
        if (found := next(declarators(node), None)) is not None and is_function(found[1]):
            yield outer, found[0]


def _prototypes(source: Source, names: set[str]) -> Iterator[tuple[int, int]]:
    """First and last lines of declarations of these functions."""
    for node, name in _declared(source):
        if name in names:
            inside = source.tokens_in(source.parsed.head_start(node), node.end_byte)
            yield inside[0].line, inside[-1].line


def _macro_parameters(define: Directive) -> list[str] | None:
    """The parameters of a macro that is called, None for another one."""
    tokens = define.rest
    if len(tokens) < 2 or tokens[1].text != "(" or tokens[1].start != tokens[0].end:
        return None
    end = closing(tokens, 1)
    return "".join(token.text for token in tokens[2:end]).split(",") if end > 2 else []


def _without_gaps(lines: Iterator[Line]) -> Iterator[Line]:
    """Without empty lines where cuts left several in a row, and without any at the ends."""
    first = True
    held: Line | None = None
    for line in lines:
        if not line.text.strip():
            held = None if first else line
            continue
        if held is not None:
            yield held
        held, first = None, False
        yield line
