"""Card expressions: they evaluate, they are written as the same C, and they can run no code."""

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudamaster.core.expressions import ExpressionError, call, evaluate, to_c

NAMES = {"rows": 7, "cols": 2048, "nnz": 143}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rows * cols // 100", 143),
        ("max(rows * cols // 100, rows)", 143),
        ("(rows + 1) * 4", 32),
        ("2 ** 10 - rows", 1017),
        ("min(cols, nnz)", 143),
        ("cols * log2(cols)", 2048 * 11),
    ],
)
def test_evaluates(text: str, value: float) -> None:
    """The arithmetic is the ordinary one."""
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "rows.real", "rows / 2", "unknown + 1", "rows +", "[1]", "1 // 0", "True", "rows ** cols"],
)
def test_refuses(text: str) -> None:
    """What is no arithmetic over the case's sizes is an error that shows the text."""
    with pytest.raises(ExpressionError, match=re.escape(repr(text))):
        evaluate(text, NAMES)


expressions = st.recursive(
    st.sampled_from(["rows", "cols", "nnz", "1", "3", "100"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "*", "//"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})" if t[1] != "//" else f"({t[0]} // (1 + {t[2]}))"
        ),
        st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=6,
)


def test_c_agrees_with_python(tmp_path: object) -> None:
    """The harness computes lengths in C from the same text; both have to agree."""
    texts: list[str] = []

    @settings(max_examples=60, derandomize=True, database=None)
    @given(expressions)
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    folder = str(tmp_path)
    prefix = {name: name for name in NAMES}
    body = "\n".join(f'std::printf("%lld\\n", (long long)({to_c(text, prefix)}));' for text in texts)
    sizes = "".join(f"long long {name} = {value};" for name, value in NAMES.items())
    with open(f"{folder}/t.cpp", "w") as file:  # noqa: PTH123
        file.write(f"#include <algorithm>\n#include <cmath>\n#include <cstdio>\nint main() {{{sizes}\n{body}}}")
    subprocess.run(["g++", "-w", "-o", f"{folder}/t", f"{folder}/t.cpp"], check=True)
    printed = subprocess.run([f"{folder}/t"], check=True, capture_output=True, text=True).stdout.split()
    small = [(t, int(p)) for t, p in zip(texts, printed, strict=True) if abs(evaluate(t, NAMES)) < 2**62]
    assert small
    assert small == [(t, evaluate(t, NAMES)) for t, _ in small]


def test_call_splits_a_generator() -> None:
    """Generators of inputs are named with their arguments."""
    assert call("csr(row_offsets, col_indices, rows * 2)") == ("csr", ("row_offsets", "col_indices", "rows * 2"))
    with pytest.raises(ExpressionError):
        call("rows + 1")
