"""A region whose text differs between builds is refused, whether its names say so or all builds are asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cudamaster.build import source_guard
from cudamaster.core.values import Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.guards.flags import Flags
from cudamaster.guards.preprocess import differing, plain_headers
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import Signature
from cudamaster.tasks import cards

KERNEL = """#include <cuda_runtime.h>
#include <float.h>
BEFORE
__global__ void kernel(float* output, const float* input, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) output[i] = max(input[i], 0.0f) VALUE;
}
extern "C" void relu_optimized(float* output, const float* input, int N) {
    kernel<<<(N + 255) / 256, 256>>>(output, input, N);
}
"""
SAME = [
    ("", ""),
    ("#define LEAST -FLT_MAX\n#if __cplusplus >= 201703L\n#define MORE 1\n#endif", "+ (LEAST > 0 ? 1 : 0)"),
    ("// __OPTIMIZE__ is no macro in a comment\n#pragma unroll", '+ (sizeof("__TIME__") > 99)'),
]
# What the names show, and what only the preprocessor does.
OTHER = [
    ("#ifdef __OPTIMIZE__\n#define MORE 1\n#else\n#define MORE 0\n#endif", "+ MORE"),
    ("#if defined(__SANITIZE_ADDRESS__)\n#define MORE + 1\n#else\n#define MORE\n#endif", "MORE"),
    ("#ifndef __AVX2__\n#define MORE + 1\n#else\n#define MORE\n#endif", "MORE"),
    ("", "+ __TIME__[0]"),
    ("", "+ sizeof(__BASE_FILE__)"),
    ("#define A __OPTI\\\nMIZE__", "+ A"),
    ("#define JOINED(a, b) a##b", "+ JOINED(__OPTI, MIZE__)"),
    ("#define JOINED(a, b) a%:%:b", "+ JOINED(__OPTI, MIZE__)"),
    ("%:ifdef __SANITIZE_THREAD__\n#define MORE + 1\n%:else\n#define MORE\n%:endif", "MORE"),
    ("#if __has_include(<nothing.h>) || defined(CUDAMASTER_CPU_OBSERVED)\n#define MORE + 1\n#endif", "+ 0"),
]


def guarded(before: str, value: str, flags: str = "") -> Refusal | None:
    """What is said about how the kernel differs between builds."""
    device = CpuDevice()
    code = KERNEL.replace("BEFORE", before).replace("VALUE", value)
    parsed = device.parse_command(f"nvcc -O3 {flags} -c candidate.cu -o candidate.o")
    assert isinstance(parsed, Flags)
    card = cards.load("relu")
    signature = Signature("relu_optimized", card.signature(Precision.FP32), ())
    expanded = source_guard.expand(code, parsed, device)
    assert isinstance(expanded, str), expanded
    return source_guard._differs_between_builds(code, parsed, device, signature, expanded)


@pytest.mark.parametrize(("before", "value"), SAME, ids=range(len(SAME)))
def test_no_compiler_is_asked_about_a_region_of_plain_names(
    before: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guarded(before, value) is None  # so that the macros are known
    monkeypatch.setattr(source_guard, "threads", None)
    assert guarded(before, value) is None


@pytest.mark.slow(but=["0", "4", "8"])
@pytest.mark.parametrize(("before", "value"), OTHER, ids=range(len(OTHER)))
def test_a_region_that_differs_is_refused_as_if_all_builds_were_asked(
    before: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = guarded(before, value)
    monkeypatch.setattr(source_guard, "_is_surely_the_same", lambda *_: False)
    assert said == guarded(before, value)
    assert (said is None) == (value == "+ 0")


def test_a_macro_of_the_command_line_counts() -> None:
    assert guarded("", "+ MORE", "-DMORE=1") is None
    assert guarded("", "+ MORE", "-DMORE=__OPTIMIZE__") is not None


def test_what_a_header_defines_in_terms_of_another_macro_counts() -> None:
    """By any number of steps, and where it puts names together."""
    plain = {"ONE": " 1", "DEPTH": " __OPTIMIZE__", "DEEPER(x)": " (DEPTH + x)", "JOIN(a,b)": " a##b"}
    named = {name.partition("(")[0]: text for name, text in plain.items()}
    assert differing(named, [{**named, "__OPTIMIZE__": " 1"}]) == {
        "__COUNTER__", "__OPTIMIZE__", "DEPTH", "DEEPER", "JOIN",
    }  # fmt: skip


@pytest.mark.parametrize(
    "code",
    [
        "#define A(x) x##_",
        "??=define A",
        "%:define A",
        "int a\\u0062;",
        "/* no end",
        "#define NDEBUG\n#include <cassert>",
        "#define HEADER <float.h>\n#include HEADER",
        "#include_next <float.h>",
        "#line 7",
    ],
)
def test_names_alone_do_not_say_what_such_a_region_uses(code: str) -> None:
    assert plain_headers(code) is None


def test_what_a_region_includes() -> None:
    code = '#pragma once\n#include <float.h>\n# include "cuda_runtime.h"\n#define A 1\n#if A\n#endif\n'
    assert plain_headers(code) == ("<float.h>", '"cuda_runtime.h"')


def parsed_flags(device: CpuDevice) -> Flags:
    parsed = device.parse_command("nvcc -O3 -c candidate.cu -o candidate.o")
    assert isinstance(parsed, Flags)
    return parsed


def test_what_the_compiler_has_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """__has_feature(address_sanitizer) and the like: no macro's text says what they give."""
    device = CpuDevice()
    monkeypatch.setattr(source_guard, "_differing", lambda *_: frozenset({"__OPTIMIZE__"}))
    for code, same in (("int a;", True), ("int __OPTIMIZE__;", False), ("#if __has_feature(a)\n#endif", False)):
        assert source_guard._is_surely_the_same(code, parsed_flags(device), device, ()) is same, code


def test_the_cache_keeps_names_of_macros_by_includes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other includes, ways of building and rules are asked about anew; a header that one lacks is not kept."""
    monkeypatch.setattr(source_guard.resources, "cache", lambda: tmp_path)
    asked: list[tuple[Sequence[str], Sequence[str]]] = []

    def macros(headers: Sequence[str], *_: object, flags: Sequence[str], **__: object) -> dict[str, str] | None:
        asked.append((headers, flags))
        return None if "-missing" in flags else {"".join(headers): " ".join(flags)}

    monkeypatch.setattr(source_guard, "macros", macros)
    device = CpuDevice()

    def differing_by(headers: tuple[str, ...], *ways: str) -> frozenset[str] | None:
        return source_guard._differing(parsed_flags(device), device, [(way,) for way in ways], headers)

    assert differing_by(("A",), "-x") == differing_by(("A",), "-x") == {"A", "__COUNTER__"}
    assert len(asked) == 2
    assert differing_by(("B",), "-x") == {"B", "__COUNTER__"}
    assert len(asked) == 4
    assert differing_by(("A",), "-y", "-z") == {"A", "__COUNTER__"}
    assert len(asked) == 7
    assert differing_by(("A",), "-x", "-missing") is None
    (tmp_path / "rules").write_text("other rules")
    monkeypatch.setattr(source_guard, "RULES", tmp_path / "rules")
    assert differing_by(("A",), "-x") == {"A", "__COUNTER__"}
    assert len(asked) == 12


def test_headers_that_a_task_opens_are_read_in_all_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shortcut knows of includes does not hold for them."""
    monkeypatch.setattr(source_guard, "_is_surely_the_same", None)
    monkeypatch.setattr(source_guard, "expand", lambda *_, **__: "")
    device, signature = CpuDevice(), Signature("f", (), ("cutlass",))
    assert source_guard._differs_between_builds("", parsed_flags(device), device, signature, "") is None
