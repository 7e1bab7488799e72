"""The wrapper's parameter list, compared as C linkage does: by number and types, ignoring const.

The text decides if it can. What it does not show, such as a type made by a template, the compiler checks through
assertions after the region.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudamaster.guards.lexer import Kind, lex, words

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
    "ptrdiff_t": "long",
    "ssize_t": "long",
    "uint": "unsigned int",
    "uchar": "unsigned char",
    "CUstream": "CUstream_st*",
    "cudaStream_t": "CUstream_st*",
}
_INTEGER_WORDS = words("int long short char signed unsigned")
_WHOLE = words("float double void bool __nv_bfloat16 __half CUstream_st")
_IGNORED = words("const volatile restrict __restrict __restrict__ struct register __grid_constant__")

# Its names may not occur in a region, so no macro of a region affects it.
_CHECK = """
template <class mskb_T> struct mskb_bare { typedef mskb_T mskb_type; };
template <> struct mskb_bare<long long> { typedef long mskb_type; };
template <> struct mskb_bare<unsigned long long> { typedef unsigned long mskb_type; };
template <class mskb_T> struct mskb_bare<const mskb_T> : mskb_bare<mskb_T> {};
template <class mskb_T> struct mskb_bare<volatile mskb_T> : mskb_bare<mskb_T> {};
template <class mskb_T> struct mskb_bare<const volatile mskb_T> : mskb_bare<mskb_T> {};
template <class mskb_T> struct mskb_bare<mskb_T*> { typedef typename mskb_bare<mskb_T>::mskb_type* mskb_type; };
template <class mskb_T, class mskb_U> struct mskb_same { static constexpr bool mskb_value = false; };
template <class mskb_T> struct mskb_same<mskb_T, mskb_T> { static constexpr bool mskb_value = true; };
template <class... mskb_T> struct mskb_list;
template <int mskb_at, class mskb_T> struct mskb_nth;
template <class mskb_T, class... mskb_U> struct mskb_nth<0, mskb_list<mskb_T, mskb_U...>> : mskb_bare<mskb_T> {};
template <int mskb_at, class mskb_T, class... mskb_U> struct mskb_nth<mskb_at, mskb_list<mskb_T, mskb_U...>>
    : mskb_nth<mskb_at - 1, mskb_list<mskb_U...>> {};
template <class mskb_T, class... mskb_U> mskb_list<mskb_U...> mskb_parameters(mskb_T (*)(mskb_U...));
"""
_ASSERTION = (
    "static_assert(mskb_same<mskb_nth<{at}, decltype(mskb_parameters(&{wrapper}))>::mskb_type, "
    'mskb_bare<{kind}>::mskb_type>::mskb_value, "mskb_parameter_{at}");\n'
)
_FAILED = re.compile(r"mskb_parameter_(\d+)\b")


@dataclass(frozen=True)
class Signature:
    """A wrapper's name and parameters, each as (C type text, name). The return type is void.

    `headers` are the libraries whose headers the region may include (guards.headers.OPENED).
    """

    wrapper: str
    parameters: tuple[tuple[str, str], ...]
    headers: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The prototype, as it is shown to whoever got it wrong."""
        return f'extern "C" void {self.wrapper}({", ".join(f"{kind} {name}" for kind, name in self.parameters)})'

    def differs(self, at: int, written: str) -> str:
        """What is wrong with a parameter, by its place and as it was written."""
        kind, name = self.parameters[at]
        return f"the wrapper takes {written!r} where {kind} {name} is due"


@dataclass(frozen=True)
class Undecided:
    """A parameter whose type the text does not show: its place, and how it was written."""

    at: int
    written: str


def compiler_check(signature: Signature, undecided: Sequence[Undecided]) -> str:
    """Text to put after a region, so that it compiles only if those parameters have the right types."""
    if not undecided:
        return ""
    kinds = {one.at: signature.parameters[one.at][0] for one in undecided}
    headers = "".join(
        f"#include <{header}>\n"
        for word, header in (
            ("bfloat16", "cuda_bf16.h"),
            ("half", "cuda_fp16.h"),
            ("cudaStream_t", "cuda_runtime.h"),
            ("size_t", "cstddef"),
        )
        if any(word in kind for kind in kinds.values())
    )
    asserted = (_ASSERTION.format(at=at, kind=kind, wrapper=signature.wrapper) for at, kind in kinds.items())
    return f"\n{headers}{_CHECK}{''.join(asserted)}"


def refused_by_compiler(log: str, undecided: Sequence[Undecided]) -> Undecided | None:
    """The first of those parameters that the compiler's log says is of another type."""
    failed = {int(found[1]) for found in _FAILED.finditer(log)}
    return next((one for one in undecided if one.at in failed), None)


def canonical_type(text: str, aliases: Mapping[str, str] | None = None) -> tuple[str, ...] | None:
    """A parameter's type as comparable parts: the base type, then one part per pointer level.

    Spelling and the qualifiers of all levels do not count: none of them changes how a caller passes the parameter.
    `aliases` are the author's own typedefs. None where the text alone does not show the type.
    """
    known = {**_ALIASES, **(aliases or {})}
    parts = [token.text for token in lex(text).tokens if token.kind is not Kind.NEWLINE]
    for _ in range(8):  # aliases of aliases; a bound, so that a cycle ends
        expanded = _expand(parts, known)
        if expanded == parts:
            break
        parts = expanded
    parts = _array_as_pointer([word for word in parts if word not in _IGNORED])
    levels = len(parts)
    while levels and parts[levels - 1] in ("*", "&"):
        levels -= 1
    base = _base(parts[:levels])
    return None if base is None else (base, *parts[levels:])


def _expand(parts: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    result: list[str] = []
    for word in parts:
        if word == ":" and result[-1:] == [":"]:
            result.pop()  # `::T` names what T names; other qualified names keep their parts
            if result[-1:] == ["std"]:
                result[-1] = "std::"
        elif result[-1:] == ["std::"]:
            # It is not the author's alias of that name.
            result[-1:] = _ALIASES[word].split() if word in _ALIASES else [f"std::{word}"]
        else:
            result.extend(token.text for token in lex(aliases[word]).tokens) if word in aliases else result.append(word)
    return result


def _array_as_pointer(parts: list[str]) -> list[str]:
    """`float x[]` is `float *x` in a parameter list."""
    if parts[-1:] == ["]"] and parts.count("[") == 1:
        return [*parts[: parts.index("[")], "*"]
    return parts


def _base(parts: Sequence[str]) -> str | None:
    if parts and set(parts) <= _INTEGER_WORDS:
        return " ".join(_integer(parts))
    return parts[0] if len(parts) == 1 and parts[0] in _WHOLE else None


def _integer(parts: Sequence[str]) -> list[str]:
    """`long unsigned int` and `unsigned long` are one type; so are `long` and `long long`, as a caller passes them."""
    if "char" in parts:
        return [*sorted(set(parts) & {"signed", "unsigned"}), "char"]
    sign = ["unsigned"] if "unsigned" in parts else []
    width = [word for word in ("short", "long") if word in parts]
    return [*sign, *(width or ["int"])]
