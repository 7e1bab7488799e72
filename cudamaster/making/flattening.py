"""A user's file and the headers of their own as one text, each line of which knows where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core.errors import UsageError
from cudamaster.guards.headers import is_allowed
from cudamaster.guards.lexer import Directive, Kind, directives, lex
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.text import SIZE_LIMIT, read_region


@dataclass(frozen=True)
class Line:
    """A line of the flat text, and the file and line (from 1) that it was written in."""

    text: str
    file: Path
    number: int


@dataclass(frozen=True)
class Flat:
    """The lines of a file with its own headers in place of their includes, and those headers."""

    lines: tuple[Line, ...]
    headers: tuple[Path, ...]

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(line.text for line in self.lines)

    def place(self, line: int) -> str:
        """Where a line of the flat text (from 1) was written: "my.cu, line 12"."""
        at = self.lines[min(max(line, 1), len(self.lines)) - 1]
        return f"{at.file.name}, line {at.number}"


def flatten(file: Path, folders: Sequence[Path] = ()) -> Flat:
    """The file with each header that it includes in quotes put in place, once.

    Headers are looked for beside the including file, beside `file` and in `folders`. System and CUDA headers stay.
    Raises UsageError for a file that cannot be read, and for a header that is nowhere.
    """
    seen = {file.resolve(): None}
    lines = tuple(_lines(file, _text(file), (file.parent, *folders), seen))
    return Flat(lines, tuple(seen)[1:])


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", "Give the path of a .cu file.") from error
    if len(raw) > SIZE_LIMIT:
        raise UsageError(f"{file} is larger than {SIZE_LIMIT // 1024} KiB.", "Give the kernel and what it needs alone.")
    text = read_region(raw)
    if isinstance(text, Refusal):
        raise UsageError(f"{file} cannot be used: {text.reason}.", text.fix)
    return text


def _lines(file: Path, text: str, folders: Sequence[Path], seen: dict[Path, None]) -> Iterator[Line]:
    found = directives(lex(text).tokens)
    included = {directive.line: name for directive in found if (name := _quoted(directive)) is not None}
    dropped = _guard_lines(found) if len(seen) > 1 else {each.line for each in found if _is_once(each)}
    for number, row in enumerate(text.split("\n"), 1):
        name = included.get(number)
        header = None if name is None else _header(name, (file.parent, *folders))
        if header is not None and header not in seen:
            seen[header] = None
            yield from _lines(header, _text(header), folders, seen)
        elif name is not None and header is None and not is_allowed(name):
            fix = "Put it beside the file, or name its folder with -I FOLDER."
            raise UsageError(f"{file.name}, line {number}: the header {name} is not there.", fix)
        elif header is None and number not in dropped:
            yield Line(row, file, number)


def _quoted(directive: Directive) -> str | None:
    """The name that a directive includes in quotes."""
    if directive.name != "include" or len(directive.rest) != 1 or directive.rest[0].kind is not Kind.STRING:
        return None
    return directive.rest[0].text.strip('"')


def _header(name: str, folders: Sequence[Path]) -> Path | None:
    return next((path.resolve() for folder in folders if (path := folder / name).is_file()), None)


def _is_once(directive: Directive) -> bool:
    return directive.name == "pragma" and [token.text for token in directive.rest] == ["once"]


def _guard_lines(found: Sequence[Directive]) -> set[int]:
    """Lines that keep a header from being read twice: it is put in place once, and their names are often reserved."""
    once = {each.line for each in found if _is_once(each)}
    rest = [each for each in found if each.line not in once]
    if len(rest) < 3 or [rest[0].name, rest[1].name, rest[-1].name] != ["ifndef", "define", "endif"]:
        return once
    depth = 0
    for at, each in enumerate(rest):  # the first #ifndef has to end with the last #endif
        depth += (each.name in ("if", "ifdef", "ifndef")) - (each.name == "endif")
        if (depth == 0) != (at == len(rest) - 1) or (depth == 1 and each.name in ("else", "elif")):
            return once
    names = [[token.text for token in each.rest] for each in rest[:2]]
    return once | {rest[0].line, rest[1].line, rest[-1].line} if names[0] == names[1] else once
