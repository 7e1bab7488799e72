"""The wrapper's parameter list, compared by structure and not by spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudamaster.guards.lexer import Kind, lex

_ALIASES = {
    "nv_bfloat16": "__nv_bfloat16",
    "half": "__half",
    "nv_half": "__half",
    "int32_t": "int",
    "uint32_t": "unsigned int",
    "int8_t": "signed char",
    "uint8_t": "unsigned char",
    "int16_t": "short",
    "uint16_t": "unsigned short",
    "int64_t": "long",
    "uint64_t": "unsigned long",
    "size_t": "unsigned long",
    "uint": "unsigned int",
}
_INTEGER_WORDS = frozenset({"int", "long", "short", "char", "signed", "unsigned"})
_IGNORED = frozenset({"restrict", "__restrict", "__restrict__", "struct", "register", "__grid_constant__"})


@dataclass(frozen=True)
class Signature:
    """A wrapper's name and parameters, each as (C type text, name). The return type is void."""

    wrapper: str
    parameters: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """The prototype, as it is shown to whoever got it wrong."""
        return f'extern "C" void {self.wrapper}({", ".join(f"{kind} {name}" for kind, name in self.parameters)})'


def canonical_type(text: str, aliases: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """A parameter's type as comparable parts: the base type, then one part per pointer level.

    Spelling, the place of const, restrict and top-level const do not count, as they do not for a caller.
    `aliases` are the author's own typedefs.
    """
    words = [token.text for token in lex(text).tokens if token.kind is not Kind.NEWLINE]
    for _ in range(8):  # aliases of aliases; a bound, so that a cycle ends
        expanded = _expand(words, {**_ALIASES, **(aliases or {})})
        if expanded == words:
            break
        words = expanded
    words = [word for word in words if word not in _IGNORED]
    words = _arrays_as_pointers(words)
    levels: list[list[str]] = [[]]
    for word in words:
        if word in ("*", "&"):
            levels.append([word])
        else:
            levels[-1].append(word)
    parts = [_base(levels[0], top=len(levels) == 1)]
    for index, level in enumerate(levels[1:], 2):
        qualifiers = sorted(set(level[1:]) - ({"const"} if index == len(levels) else set()))
        parts.append(" ".join([level[0], *qualifiers]))
    return tuple(parts)


def _expand(words: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    result: list[str] = []
    for word in words:
        if word == ":" and result[-1:] == [":"]:
            result.pop()  # `::T` and `std::T` name what T names; other qualified names keep their parts
            if result[-1:] == ["std"]:
                result.pop()
            continue
        result.extend(aliases[word].split() if word in aliases else [word])
    return result


def _arrays_as_pointers(words: list[str]) -> list[str]:
    """`float x[]` is `float *x` in a parameter list."""
    if "[" not in words:
        return words
    start = words.index("[")
    return [*words[:start], "*", *(words[words.index("]", start) + 1 :] if "]" in words else [])]


def _base(words: Sequence[str], *, top: bool) -> str:
    qualifiers = sorted({word for word in words if word == "volatile" or (word == "const" and not top)})
    names = [word for word in words if word not in ("const", "volatile")]
    if names and set(names) <= _INTEGER_WORDS:
        names = _integer(names)
    return " ".join([*qualifiers, *names])


def _integer(words: Sequence[str]) -> list[str]:
    """`long unsigned int` and `unsigned long` are one type."""
    if "char" in words:
        return [*sorted(set(words) & {"signed", "unsigned"}), "char"]
    sign = ["unsigned"] if "unsigned" in words else []
    width = ["short"] if "short" in words else ["long"] * words.count("long")
    return [*sign, *(width or ["int"])]
