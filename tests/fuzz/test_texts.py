"""Candidate texts: refused or let through, soon, and what is let through calls and keeps nothing that is forbidden."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from guards.support import SIGNATURE, region
from hypothesis import given
from hypothesis import strategies as st
from small_cards import small_card

from cudamaster.build.building import Builder
from cudamaster.core import resources
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.guards.lexer import Kind, lex
from cudamaster.guards.object import check_object
from cudamaster.guards.preprocess import preprocess
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.source import check_source, device_names
from cudamaster.guards.text import check_characters

from .support import damaged, examples, within

PLAYBOOK = resources.package() / "playbook"
TEXTS = [path.read_text() for path in sorted(PLAYBOOK.glob("*/fp32/1_*.cu"))]
PIECES = [
    "#", "##", "#define A ", "#define A(x) x##x\n", "#undef A\n", "#if 0\n", "#if ", "#else\n", "#endif\n",
    "#include <cmath>\n", "#include A\n", '#include "/etc/passwd"\n', "#include_next <a>\n", "#embed <a>\n",
    "#line 7\n", "# 1 \"x\"\n", "#pragma once\n", "#pragma GCC poison int\n", "#error x\n", "_Pragma(\"once\")",
    "__VA_ARGS__", "__VA_OPT__(", "\\\n", "\\ \n", "\\", "<%", "%>", "<:", ":>", "%:", "??=", "??/\n", "\\u0041",
    'R"(', ')"', 'R"x(', 'u8R"()"', '"', "'", "'ab'", "1'000", "0x", "1e+", "/*", "*/", "//", "\x00", "\x0c", "\r",
    "\r\n", "\ufeff", "é", "\u202e", "\ud800", "$", "@", "`", ">>> CANDIDATE REGION", "<<<", ">>>", "<<<1, 1>>>(",
    "[[", "]]", "[[gnu::constructor]]", "__attribute__((", "asm(", "((", "{{{{", "}", "(", ")", ";", "static ",
    "extern ", 'extern "C" ', "thread_local ", "__device__ ", "__global__ ", "__shared__ ", "__host__ ", "namespace ",
    "template <", "using ", "operator", "= {", "[] { ", "if (", "else ", "sizeof(", "mskb_x", "getenv(", "#" * 500,
    "(" * 500,
]  # fmt: skip


def _expanded_alone(code: str) -> str:
    """What a preprocessor without macros and headers would say."""
    return f'# 1 "candidate.cu"\n{code}'


@pytest.mark.slow
@examples(600)
@given(st.sampled_from(TEXTS).flatmap(lambda text: damaged(text, PIECES)), st.booleans())
def test_damaged_regions_are_judged(code: str, expanded: bool) -> None:
    """Whatever the text, the source guard says yes or no with a reason and a fix, and raises nothing."""
    with within(10):
        said = check_characters(code)
        if said is None:
            preprocessed = _expanded_alone(code) if expanded else None
            said = check_source(code, SIGNATURE, preprocessed)
            device_names(code, preprocessed)
    if said is not None:
        assert said.reason
        assert said.fix
        assert said.line is None or 1 <= said.line <= code.count("\n") + 2


REPEATED = [
    "/* ", 'R"(', "(", "{", "[", "<<<", "f<<<1,1", "__attribute__((", "asm(", "[[a", "__device__ int a;",
    "__device__ void f();", "#\n", "#define a\n", "static const int a = 1;", "static const int b = n;", "{int a;",
    "auto a=[]{int b;", "sizeof(v)+", "n=sizeof(v);", "!", "a<", "1+", "n?1:", "if (n) {} else ",
    "template<class T> ", "namespace a{", "struct A{", '"a"', '"', "\\\n", "::a", "<", ">> ", "CANDIDATE ", "\n", ";",
]  # fmt: skip


@pytest.mark.slow(but=["("])
@pytest.mark.parametrize("piece", REPEATED)
def test_endless_repetition_is_judged_soon(piece: str) -> None:
    """A model that repeats itself until its tokens end costs seconds: no check takes time with the text squared."""
    code = region(body=piece * (40_000 // len(piece)), includes="#include <cuda_runtime.h>\n__device__ int v;\n")
    with within(30):
        if check_characters(code) is None and check_source(code, SIGNATURE, _expanded_alone(code)) is None:
            device_names(code, _expanded_alone(code))


def _preprocessed(code: str) -> str | Refusal:
    device = CpuDevice()
    folders, defines = device.include_folders(), device.preprocessor().defines
    return preprocess(code, toolchain.compiler(), folders, defines, prelude=("cuda_runtime.h",))


@pytest.mark.slow
@examples(60)
@given(st.sampled_from(TEXTS).flatmap(lambda text: damaged(text, PIECES, rounds=2)))
def test_damaged_regions_are_preprocessed(code: str) -> None:
    """With the real preprocessor and the CPU device's headers before the guard, as a build does it."""
    with within(40):
        expanded = check_characters(code) or _preprocessed(code)
        if isinstance(expanded, str):
            check_source(code, SIGNATURE, expanded)
            device_names(code, expanded)


# ---- forbidden things in disguise


@dataclass(frozen=True)
class Forbidden:
    """Something that no candidate may do: the text before the wrapper and in it, and the symbol it leaves."""

    before: str
    body: str
    symbol: str


FORBIDDEN = [
    *(
        Forbidden(before, body, "getenv")
        for before, body in [
            ("", 'if (getenv("A")) n = 1;'),
            ("", 'if (std::getenv("A")) n = 1;'),
            ("", 'char* (*f)(const char*) = &::getenv; if (f("A")) n = 1;'),
            ('extern "C" char* getenv(const char*);', 'if ((getenv)("A")) n = 1;'),
            ("", 'extern char* getenv(const char*); if (getenv("A")) n = 1;'),
            ('extern "C" char* quiet(const char*) __asm__("getenv");', 'if (quiet("A")) n = 1;'),
            ('extern "C" char* quiet(const char*) asm("get" "env");', 'if (quiet("A")) n = 1;'),
            ('asm(".globl getenv");', 'asm volatile("call getenv");'),
            ("template <class T> char* t(T a) { return getenv(a); }", 'if (t("A")) n = 1;'),
            ('struct S { char* f() { return getenv("A"); } };', "if (S().f()) n = 1;"),
        ]
    ),
    Forbidden("", 'n = system("true");', "system"),
    Forbidden("", "exit(n);", "exit"),
    Forbidden("", "atexit([] {});", "atexit"),
    Forbidden("", 'printf("{}");', "printf"),
    *(
        Forbidden(before, body, "kept")
        for before, body in [
            ("", "static int kept; n += kept++;"),
            ("int kept;", "n += kept++;"),
            ("static int kept[2];", "n += kept[0]++;"),
            ("namespace { int kept; }", "n += kept++;"),
            ("inline int kept = 0;", "n += kept++;"),
            ("thread_local int kept;", "n += kept++;"),
            ("struct S { static int kept; }; int S::kept;", "n += S::kept++;"),
            ("struct S { static inline int kept = 0; };", "n += S::kept++;"),
            ("template <class T> int kept = 0;", "n += kept<int>++;"),
            ("", "n += [] { static int kept; return kept++; }();"),
            ("inline int& f() { static int kept; return kept; }", "n += f()++;"),
            ("int g() try { static int kept; return kept++; } catch (...) { return 0; }", "n += g();"),
            ("", "static union { int kept; }; n += kept++;"),
            ("static const struct { mutable int v; } kept{};", "n += kept.v++;"),
            ('extern "C++" { static int kept; }', "n += kept++;"),
        ]
    ),
    Forbidden('__attribute__((constructor)) void early() { asm volatile(""); }', "", "early"),
    Forbidden('[[gnu::constructor]] void early() { asm volatile(""); }', "", "early"),
    Forbidden('__attribute__((section(".init_array"))) void (*early)() = nullptr;', "", "early"),
    Forbidden("struct E { E() { volatile int i = 0; i = i + 1; } }; E early;", "", "early"),
    Forbidden('extern "C" void extra(int) {}', "", "extra"),
    Forbidden('extern "C" { void extra(int) {} }', "", "extra"),
    Forbidden('extern "C" void mskb_report(int) {}', "", "mskb_report"),
    Forbidden("namespace mskb { int task() { return 1; } }", "", "mskb"),
    Forbidden("int main() { return 0; }", "", "main"),
    Forbidden("void* operator new(decltype(sizeof(0))) { return nullptr; }", "", "_Znwm"),
]

_DIGRAPHS = {"{": "<%", "}": "%>", "[": "<:", "]": ":>", "#": "%:"}
_TRIGRAPHS = {"{": "??<", "}": "??>", "[": "??(", "]": "??)"}


@st.composite
def disguised(draw: st.DrawFn) -> tuple[Forbidden, str]:
    """A region with a forbidden thing in it, written in one to three odd ways that change nothing for a compiler."""
    thing = draw(st.sampled_from(FORBIDDEN))
    macros: list[str] = []
    parts = []
    for part in (thing.before, thing.body):
        for _ in range(draw(st.integers(0, 2)) if part else 0):
            part = _odd(draw, part, macros)
        parts.append(part)
    return thing, region(before=parts[0], body=parts[1], includes="\n".join([INCLUDES, *macros, ""]))


INCLUDES = "#include <cuda_runtime.h>\n#include <cstdio>\n#include <cstdlib>"


def _odd(draw: st.DrawFn, text: str, macros: list[str]) -> str:
    tokens = [token for token in lex(text).tokens if token.kind is not Kind.NEWLINE]
    if not tokens or any(token.text == "#" for token in tokens):
        return text
    words = [token.text for token in tokens]
    at = draw(st.integers(0, len(words) - 1))
    word, name = words[at], f"M{len(macros)}"
    kind = draw(st.sampled_from(("splice", "comment", "macro", "paste", "whole", "digraph", "trigraph", "ucn", "branch",
                                 "pragma", "string", "argument", "undefined", "scope", "nothing")))  # fmt: skip
    cut = draw(st.integers(1, max(len(word) - 1, 1)))
    if kind == "splice" and len(word) > 1:
        words[at] = word[:cut] + draw(st.sampled_from(["\\\n", "\\ \n", "\\\n\\\n"])) + word[cut:]
    elif kind == "comment":
        words[at] = f"/* */ {word} // x\n"
    elif kind == "macro":
        macros.append(f"#define {name} {word}")
        words[at] = name
    elif kind == "paste" and tokens[at].kind is Kind.NAME and len(word) > 1:
        macros += [f"#define {name}(a, b) a##b", ""]
        words[at] = f"{name}({word[:cut]}, {word[cut:]})"
    elif kind == "whole":
        macros.append(f"#define {name} {' '.join(words)}")
        return name
    elif kind == "argument":
        macros.append(f"#define {name}(...) __VA_ARGS__")
        return f"{name}({' '.join(words)})"
    elif kind in ("digraph", "trigraph"):
        table = _DIGRAPHS if kind == "digraph" else _TRIGRAPHS
        return " ".join(table.get(each, each) for each in words)
    elif kind == "ucn" and tokens[at].kind is Kind.NAME:
        words[at] = f"\\u{ord(word[0]):04x}{word[1:]}"
    elif kind == "branch":
        macro = draw(
            st.sampled_from(["1", "defined(__CUDACC__) || 1", "!0", "__cplusplus", "MSKB_CPU_DEVICE", "__LINE__"])
        )
        return f"\n#if {macro}\n{text}\n#endif\n"
    elif kind == "pragma":
        words[at] = f'_Pragma("unroll") {word}'
    elif kind == "string" and tokens[at].kind is Kind.STRING and len(word) > 3:
        words[at] = f'{word[:2]}" "{word[2:]}'
    elif kind == "undefined":
        macros.append(f"#define {word}" if tokens[at].kind is Kind.NAME else "")
        words[at] = f"\n#undef {word}\n{word}" if tokens[at].kind is Kind.NAME else word
    elif kind == "scope" and word not in ("extern", '"C"'):
        words[at] = f"__extension__ {word}"
    return " ".join(words)


def _traces(path: Path, thing: Forbidden) -> list[str]:
    """Symbols of an object that show the forbidden thing."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        names = [symbol.name for symbol in table.iter_symbols()]
        arrays = [section.name for section in elf.iter_sections() if section.name.startswith((".init_array", ".ctors"))]
    found = [name for name in names if name == thing.symbol or f"{len(thing.symbol)}{thing.symbol}" in name]
    return found + (arrays if thing.symbol == "early" else [])


@pytest.mark.slow
@examples(120)
@given(disguised())
def test_what_is_forbidden_is_not_built(tmp_path_factory: pytest.TempPathFactory, made: tuple[Forbidden, str]) -> None:
    """Whatever it is dressed in: a guard or the compiler refuses it, or nothing of it is left in the object."""
    thing, code = made
    expanded = check_characters(code) or _preprocessed(code)
    if isinstance(expanded, Refusal) or check_source(code, SIGNATURE, expanded) is not None:
        return
    device, folder = CpuDevice(), tmp_path_factory.mktemp("built")
    compiled = device.compile(code, ["-O0"], "candidate", folder)
    if compiled.object is None:
        return
    rules = device.object_rules()
    refused = check_object(
        compiled.object, SIGNATURE.wrapper, rules.symbols, constructors=rules.constructors, state=rules.state,
        device=device_names(code, expanded),
    )  # fmt: skip
    assert refused is not None or not _traces(compiled.object, thing), code


@pytest.mark.parametrize("thing", FORBIDDEN, ids=lambda thing: (thing.before + thing.body)[:60])
def test_the_undisguised_is_refused(thing: Forbidden) -> None:
    """Each of the forbidden things in plain words, so that the disguises hide something."""
    code = region(before=thing.before, body=thing.body, includes=f"{INCLUDES}\n")
    expanded = _preprocessed(code)
    assert isinstance(expanded, Refusal) or check_source(code, SIGNATURE, expanded) is not None


DOT = (PLAYBOOK / "dot_product" / "fp32" / "1_shuffle_reduction.cu").read_text()


@pytest.mark.slow
@examples(6)
@given(damaged(DOT, PIECES, rounds=1))
def test_a_build_has_an_end(code: str) -> None:
    """The whole builder on the CPU device: executables, or a status out of the list with a log for the Debug agent."""
    device = CpuDevice()
    built = Builder(small_card("dot_product"), Precision.FP32, device).build(
        Candidate("dot_product", Precision.FP32, code.encode("utf-8", "replace").decode(), device.default_command)
    )
    if built.status is None:
        assert built.worker is not None
        assert built.worker.is_file()
    else:
        assert built.status in (Status.REJECTED, Status.COMPILE_ERROR, Status.UNSUPPORTED)
        assert built.detail
        assert built.log
