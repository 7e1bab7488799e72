"""Card expressions: a value that C computes too, or an ExpressionError, and soon."""

from __future__ import annotations

import math
import subprocess
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudamaster.core import resources
from cudamaster.core.expressions import ExpressionError, evaluate, to_c

from .support import damaged, examples, within

WHOLE = {"rows": 7, "cols": 2048, "one": 1, "zero": 0, "big": 3_000_000_007}
REAL = {"alpha": 0.75, "beta": 1e-3}
NAMES = {**WHOLE, **REAL}
PIECES = [
    *NAMES, "0", "1", "63", "65536", "1e308", "1e999", "9" * 30, "9" * 5000, "**", "//", "/", "%", "+", "-", "*", "(",
    ")", "max(", "min(", "log2(", "isqrt(", ",", "**63", "(" * 50, "-" * 100, "not ", " if ", "else", "lambda: ", "[",
    "]", "{", "'", '"', "\\", "\x00", "\n", "\ud800", "é", "True", "None", "1j", "f'{rows}'", ":=", "*rows",
    "key=max", "__import__('os')", "#",
]  # fmt: skip
GROWN = ["rows * cols // 100", "max(rows * cols // 100, rows)", "2 ** 10 - rows", "isqrt(cols) * log2(cols)"]


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "*", "+"]), inner)
    called = st.tuples(st.sampled_from(["max", "min"]), st.lists(inner, min_size=2, max_size=3))
    return st.one_of(
        two.map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        called.map(lambda t: f"{t[0]}({', '.join(t[1])})"),
        inner.map(lambda text: f"-{text}"),
        inner.map(lambda text: f"log2({text})"),
        inner.map(lambda text: f"isqrt({text})"),
        st.tuples(inner, st.integers(1, 5)).map(lambda t: f"({t[0]}) ** {t[1]}"),
    )


arithmetic = st.recursive(
    st.sampled_from([*NAMES, "0", "1", "2", "3", "100", "65536", "2147483647", "0.5", "2.5"]), _compound, max_leaves=7
)


@pytest.mark.slow
@examples(1500)
@given(st.one_of(st.text(max_size=40), st.sampled_from(GROWN).flatmap(lambda text: damaged(text, PIECES))))
def test_any_text_has_a_value_or_an_error(text: str) -> None:
    """A value is a number that C can hold; nothing warns, hangs or raises anything else, in both readers."""
    with within(2), warnings.catch_warnings():
        warnings.simplefilter("error")
        for read in (lambda: evaluate(text, NAMES), lambda: to_c(text, {name: f"c.{name}" for name in NAMES}, REAL)):
            try:
                value = read()
            except ExpressionError:
                continue
            if isinstance(value, str):
                assert "\n" not in value
                assert len(value) < 20_000
            else:
                assert abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)


def test_towers_of_powers_end() -> None:
    """Values are held before they are used again, and text before it is repeated."""
    tower = "one"
    for _ in range(30):
        tower = f"({tower})**63"
    with within(2):
        assert evaluate(tower, NAMES) == 1
        for text, read in ((tower, lambda t: to_c(t, {"one": "c.one"})), (tower.replace("one", "rows"), None)):
            try:
                read(text) if read else evaluate(text, NAMES)
            except ExpressionError:
                continue
            raise AssertionError(f"{text} was taken")


def test_c_computes_the_same(tmp_path: Path) -> None:
    """What has a value here has the same one in the harness: rounding, integer widths and mixed types included."""
    texts: list[str] = []
    tried = 0

    @examples(600)
    @given(arithmetic)
    def collect(text: str) -> None:
        nonlocal tried
        tried += 1
        try:
            evaluate(text, NAMES)
        except ExpressionError:
            return
        if text not in texts:
            texts.append(text)

    collect()
    texts += [
        text
        for text in ("isqrt(big * 2147483647)", "isqrt(big * 3000000007)", "max(big * 2147483647, alpha) - 1")
        if text not in texts
    ]
    assert len(texts) > tried // 4 > 50
    sizes = "".join(f"volatile long long v_{name} = {value};" for name, value in WHOLE.items())
    sizes += "".join(f"volatile double v_{name} = {value!r};" for name, value in REAL.items())
    prefix = {name: f"({'double' if name in REAL else 'long long'})v_{name}" for name in NAMES}
    body = "\n".join(f'std::printf("%.17g\\n", (double)({to_c(text, prefix, REAL)}));' for text in texts)
    source, program = tmp_path / "t.cpp", tmp_path / "t"
    include = f'#include <cmath>\n#include <cstdio>\n#include "{resources.bench()}/include/mskb/case.h"\n'
    source.write_text(f"{include}#include <algorithm>\nint main() {{{sizes}\n{body}}}")
    subprocess.run(["g++", "-w", "-fsanitize=undefined", "-fno-sanitize-recover", "-o", program, source], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text, printed in zip(texts, done.stdout.split(), strict=True):
        assert math.isclose(float(printed), evaluate(text, NAMES), rel_tol=1e-12, abs_tol=1e-300), text
