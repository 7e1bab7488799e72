"""Macros that put an asm template together: their uses are written out, and the template is string literals alone.

Only such macros are looked at, and those that use them; all others are the compiler's. A name that is defined twice, in
two branches of an `#if` say, is left as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cudamaster.devices.cpu.ptx.scanning import closing, split
from cudamaster.devices.cpu.unsupported import code_only

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?((?:\\\n|[^\n])*)", re.MULTILINE)
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(r'\s+|"(?:\\.|[^"\\])*"|##|#|[A-Za-z_]\w*|\d\w*|.', re.DOTALL)
_LITERALS = re.compile(r'(?:\s|\\\n|"(?:\\.|[^"\\\n])*")*')
_MOST_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class _Macro:
    """`parameters` is None of one without parentheses."""

    name: str
    parameters: tuple[str, ...] | None
    body: str
    start: int
    end: int


def written_out(source: str) -> str:
    """The text with the uses of such macros replaced by what they stand for, in as many lines."""
    if not _ASM.search(source) or "#" not in source:
        return source
    known = _single(source)
    open_ones = _open(known)
    if not open_ones:
        return source
    text = list(source)
    for macro in open_ones.values():
        text[macro.start : macro.end] = re.sub(r"[^\n]", " ", source[macro.start : macro.end].replace("\\\n", " \n"))
    return _expanded("".join(text), open_ones)


def _single(source: str) -> dict[str, _Macro]:
    """All macros that are defined once."""
    found = []
    for each in _DEFINE.finditer(source):
        listed = each[2]
        parameters = None if listed is None else tuple(word.strip() for word in listed[1:-1].split(",") if word.strip())
        found.append(_Macro(each[1], parameters, each[3].replace("\\\n", " "), each.start(), each.end()))
    counts = Counter(macro.name for macro in found)
    return {macro.name: macro for macro in found if counts[macro.name] == 1}


def _open(known: Mapping[str, _Macro]) -> dict[str, _Macro]:
    """Macros with a template that is more than literals, what stands in those templates, and who uses any of them."""
    found = {name for name, macro in known.items() if _composes(macro.body)}
    if not found:
        return {}
    found |= {word for name in found for word in _WORD.findall(code_only(known[name].body)) if _is_text(known, word)}
    while True:
        users = {name for name, macro in known.items() if found & set(_WORD.findall(code_only(macro.body)))}
        if users <= found:
            return {name: known[name] for name in found}
        found |= users


def _is_text(known: Mapping[str, _Macro], word: str) -> bool:
    """Whether a word is a macro that makes string literals."""
    body = known[word].body.strip() if word in known else ""
    return bool(body) and (_LITERALS.fullmatch(body) is not None or body.startswith("#"))


def _composes(body: str) -> bool:
    code = code_only(body)
    for found in _ASM.finditer(code):
        start = code.find("(", found.end())
        end = closing(code, start) if start >= 0 else None
        if end is not None:
            first, last = split(code, start + 1, end, ":")[0]
            if not _LITERALS.fullmatch(body[first:last]):
                return True
    return False


def _expanded(text: str, macros: Mapping[str, _Macro]) -> str:
    """All uses written out, those in what they stand for too."""
    use = re.compile(r"\b(?:" + "|".join(map(re.escape, macros)) + r")\b")
    at = 0
    while len(text) < _MOST_CHARACTERS:
        code = code_only(text)
        found = use.search(code, at)
        if found is None:
            break
        macro = macros[found[0]]
        end = found.end()
        arguments: tuple[str, ...] = ()
        if macro.parameters is not None:
            opening = re.compile(r"\s*\(").match(code, found.end())
            close = closing(code, opening.end() - 1) if opening else None
            if opening is None or close is None:
                at = found.end()
                continue
            arguments = tuple(text[first:last] for first, last in split(code, opening.end(), close, ","))
            end = close + 1
        lines = text.count("\n", found.start(), end)
        made = _replaced(macro, [re.sub(r"\\?\n", " ", argument).strip() for argument in arguments])
        text = text[: found.start()] + made + "\n" * lines + text[end:]
        at = found.start()
    return text


def _replaced(macro: _Macro, arguments: list[str]) -> str:
    """The body with its parameters replaced, after # and about ## as they are."""
    values = dict(zip(macro.parameters or (), arguments, strict=False))
    if macro.parameters and macro.parameters[-1] == "...":
        values["__VA_ARGS__"] = ", ".join(arguments[len(macro.parameters) - 1 :])
    parts: list[str] = []
    quoting = False
    for token in _TOKEN.findall(macro.body.strip()):
        if quoting and token in values:
            text = values[token].replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{text}"')
            quoting = False
        elif token == "#" and macro.parameters is not None:
            quoting = True
        elif not quoting:
            parts.append(values.get(token, token))
    return re.sub(r"\s*##\s*", "", "".join(parts))
