"""Marks in loops that a kernel's text has nvcc leave as they are."""

from __future__ import annotations

import pytest

from cudamaster.devices.cpu import rolled

LOOP = "#pragma unroll 1\n    for ({}) {{\n"


@pytest.mark.parametrize("condition", ["i < n", "i < least(n, 4) && [&] { return true; }()"])
def test_the_condition_gets_a_mark(condition: str) -> None:
    text = rolled.marked("  " + LOOP.format(f"int i = 0; {condition}; i += step(i)"))
    before, _, behind = text.partition("__extension__")
    assert before == "  #pragma unroll 1\n    for (int i = 0; ("
    assert behind.endswith(f", {condition}); i += step(i)) {{\n")
    assert rolled.is_marked([(0, "nopl", "0x4d0ce(%rax)")])
    assert not rolled.is_marked([(0, "nopl", "0x0(%rax)"), (4, "mov", "0x4d0ce(%rax)")])


@pytest.mark.parametrize("pragma", ["#pragma unroll(1)", "# pragma  unroll ( 1 )", "#pragma unroll (1)"])
def test_the_pragma_may_have_parentheses(pragma: str) -> None:
    text = LOOP.format("int i = 0; i < n; ++i").replace("#pragma unroll 1", pragma)
    assert rolled.marked(text) != text


@pytest.mark.parametrize(
    "text",
    [
        LOOP.format("int i = 0;; ++i"),
        LOOP.format("int each : all"),
        LOOP.format("char c = ';'; c < n; ++c"),
        LOOP.format("char c = 0; c != '('; ++c"),
        LOOP.format("int i = 0;\n#if FEW\n i < 4;\n#endif\n ++i"),
        LOOP.format("int i = 0; i < n; ++i").replace("unroll 1", "unroll 4"),
        LOOP.format("int i = 0; i < n; ++i").replace("unroll 1", "unroll"),
        LOOP.format("int i = 0; i < n; ++i").replace("for", "while"),
        "#pragma unroll 1\n    for (int i = 0; i < n",
    ],
)
def test_other_loops_stay_as_they_are(text: str) -> None:
    assert rolled.marked(text) == text
