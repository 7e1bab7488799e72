"""Mutated task cards: a card that can be used, or one CardError that names the file; and no card writes C++."""

from __future__ import annotations

import copy
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cudamaster.core import resources, yaml_text
from cudamaster.core.errors import CardError, UsageError
from cudamaster.core.expressions import evaluate
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision
from cudamaster.guards.lexer import Kind, lex
from cudamaster.tasks import cards, held_out
from cudamaster.tasks.harness import render

from .support import damaged, examples, within

FILES = sorted((resources.bench() / "tasks").glob("*.yaml"))
TEXTS = [path.read_text() for path in FILES]
CONTENTS = [yaml_text.load(text) for text in TEXTS]
SOON_S = 4.0  # for what takes milliseconds, on a machine that does other things as well

INJECTED = "injected_by_a_card"
BREAKS = [
    "\n{}", "\r{}", "\x0b{}", "\x85{}", "\u2028{}", "\\\n{}", "*/ {} /*", '"; {} "', "\\", "x\\", "??/\n{}",
    "{{{{ {} }}}}", "{{% {} %}}", "{}", "x); {} (", "0; {}", "x\n#define {}", 'R"({})"', "// {}", "{},", "x = {}",
    "int {}() {{ return 1; }}",
]  # fmt: skip
WORDS = [text.format(f"{INJECTED}()") if "{" in text else text for text in BREAKS]
NUMBERS = [0, 1, -1, 2, 7, 2**31, 2**53 + 1, 2**63, 10**400, 0.5, -0.0, 1e308, math.inf, -math.inf, math.nan, True]
EXPRESSIONS = [
    "unknown", "rows", "N", "-N", "N - 1000000", "rows ** 63", "N ** 63 ** 63", "((N**63)**63)**63", "N // 0",
    "1 // (N - N)", "N * 0.5", "1e999", "0 * 1e999", "log2(0)", "log2(N)", "isqrt(-1)", "max(N)", "max()",
    "max(N, 1, 2)", "N +", "(" * 60 + "N" + ")" * 60, "-" * 300 + "N", "N" + "+N" * 500, "True", "'a'", "[N]",
    "N.real", "__import__('os')", "lambda: 1", "9" * 400, "N if N else 1", "", " ", "\x00", "é", "element_bytes",
    "uniform(X, -1, 1)", "uniform(X, -1)", "csr(a, b, 1, 2, 3, 4)", "uniform(*X)", "uniform(X, a=1)",
]  # fmt: skip
values = st.one_of(
    st.sampled_from([None, [], {}, "", [[]], [{}], {"a": 1}, [1, 2], "text", *NUMBERS]),
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(WORDS),
    st.integers(),
    st.floats(),
)


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    """A real card with a few fields dropped, renamed, repeated or of other values, at any depth."""
    card: Any = copy.deepcopy(draw(st.sampled_from(CONTENTS)))
    for _ in range(draw(st.integers(1, 2))):
        parent, at = None, None
        part = card
        while isinstance(part, dict | list) and part and (parent is None or draw(st.integers(0, 3))):
            parent = part
            at = draw(st.sampled_from(sorted(part, key=str) if isinstance(part, dict) else range(len(part))))
            part = part[at]
        if parent is None:
            continue
        kind = draw(st.sampled_from(("set", "set", "set", "drop", "rename", "repeat", "append", "foreign")))
        if kind == "set":
            parent[at] = copy.deepcopy(draw(values))
        elif kind == "drop":
            del parent[at]
        elif kind == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from([*WORDS, "x", "int", 5, None, "id"]))] = parent.pop(at)
        elif kind == "repeat" and isinstance(parent, list):
            parent.insert(at, copy.deepcopy(part))
        elif kind == "append" and isinstance(part, str):
            parent[at] = part + draw(st.sampled_from([*WORDS, *EXPRESSIONS]))
        elif kind == "foreign":
            other = draw(st.sampled_from(CONTENTS))
            name = draw(st.sampled_from(sorted(other)))
            card[name] = copy.deepcopy(other[name])
    return card


def _use(path: Path) -> cards.TaskCard | None:
    """The card where it can be read, after everything was done with it that is done with a card."""
    with within(SOON_S):
        try:
            card = cards.load(str(path))
        except (CardError, UsageError) as error:
            told = str(path) in error.reason and error.fix and "\n" not in error.reason and len(error.reason) < 2000
            if not told:
                raise AssertionError("the error does not name the card in one line") from error
            return None
        for case in (*card.cases, *held_out.draw(card, 1), *held_out.draw(card, 1, largest=True)):
            assert math.isfinite(case.weight)
            assert case.weight > 0 or not case.sweep
            assert case.weight >= 0
            assert case.label.isprintable()
            for parameter in card.parameters:
                if parameter.length is not None:
                    length = evaluate(parameter.length, case.values)
                    assert isinstance(length, int)
                    assert length >= 0
                elements, cost = card.reference_unit(parameter, case)
                assert elements >= 1
                assert cost >= 0
        for precision in BENCHMARK_PRECISIONS:
            for case in card.cases:
                assert 0 <= card.footprint_bytes(case, precision) < 2**63
                assert min(card.floor_of(case, precision).values()) >= 0
            assert card.hash
            assert card.describe(precision)
            try:
                text = render(card, precision)
            except CardError:
                return card  # a name of a task for which there is no baseline
            _check_text(text, precision)
    return card


def _check_text(text: str, precision: Precision) -> None:
    """The harness around the baseline holds no word of the card outside comments and strings, and is in balance."""
    tokens = lex(text).tokens
    assert not any(token.kind is Kind.BAD for token in tokens)
    code = [token for token in tokens if token.kind is not Kind.STRING]
    assert INJECTED not in " ".join(token.text for token in code)
    for opening, closing in ("()", "{}", "[]"):
        assert sum(token.text == opening for token in code) == sum(token.text == closing for token in code)
    head = text.split("#include <cuda_bf16.h>", 1)[0]
    assert all(line.startswith("//") for line in head.splitlines() if line), head
    assert not re.search(r"\b(nan|inf)\b", text.split("---- Task:", 1)[1])


def _written(content: bytes, act: Any = _use) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "card.yaml"
        path.write_bytes(content)
        return act(path)


def _dumped(card: dict[str, Any]) -> bytes:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times faster, where it is there
    text = yaml.dump(card, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return str(text).encode("utf-8", "surrogatepass")


@pytest.mark.slow
@examples(250)
@given(changed())
def test_changed_fields(card: dict[str, Any]) -> None:
    """Fields of other names, types and values, expressions that bite: refused with the file's name, or usable."""
    _written(_dumped(card))


PIECES = [
    "\t", "\n", ":", ": ", "- ", "[", "]", "{", "}", "&a ", "*a", "<<: *a", "<<: ", "!!python/object:os.system ",
    "!!bool ", "!!timestamp x", "!!int ", "!!binary ", "2001-99-99", "2001-12-14t21:59:43.10-05:00", "0b_", "0x",
    "1:99", ".nan", ".inf", "~", "null", "|\n", ">-\n", "'", '"', "#", "%YAML 1.1", "---\n", "...\n", "? ", "\x00",
    "\x85", "\u2028", "\ufeff", "é", "\\", "\\ud800", "9" * 5000, "[" * 3000, "- " * 3000, "a: {" * 500, "id: 1\n",
    "weight: 1\n",
]  # fmt: skip


@pytest.mark.slow
@examples(250)
@given(st.sampled_from(TEXTS).flatmap(lambda text: damaged(text, PIECES)))
def test_damaged_yaml(text: str) -> None:
    """Text that is cut, doubled, nested, tagged or full of what YAML has and a card has no use for."""
    _written(text.encode("utf-8", "surrogatepass"))


@examples(150)
@given(st.sampled_from(TEXTS), st.data())
def test_damaged_bytes(text: str, data: st.DataObject) -> None:
    """Bytes that are no UTF-8, lost and flipped ones."""
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _written(bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw))


def _bomb(levels: int, link: str) -> str:
    rows = ["a0: &a0 {x: 1}"]
    rows += [link.format(k=k, many=", ".join([f"*a{k - 1}"] * 9)) for k in range(1, levels)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    "text",
    [
        _bomb(12, "a{k}: &a{k} [{many}]"),
        _bomb(12, "a{k}: &a{k} {{<<: [{many}]}}"),
        "&a [*a]",
        "[" * 200_000,
        "- " * 200_000,
        "x: " + "9" * 10_000_000,
        TEXTS[0] + "weight: 1\n",
        TEXTS[0].replace("sweep:", "sweep:\n  - {N: [" + ", ".join(map(str, range(1, 1500))) + "]}"),
    ],
    ids=["aliases", "merges", "itself", "lists", "items", "digits", "twice", "cases"],
)
def test_bombs(text: str) -> None:
    """A few lines that stand for millions of values, nest without end, or say a thing twice are refused at once."""
    assert _written(text.encode()) is None


FIELDS = ["title", "summary", "formula", "weight", "size", "length", "input", "meaning", "default"]
# A quarter, with each word and each field among them.
IN_TURN = [f"{field}-{at}" for at in range(len(WORDS)) for row, field in enumerate(FIELDS) if (at + row) % 4 == 0]


@pytest.mark.slow(but=IN_TURN)
@pytest.mark.parametrize("words", WORDS, ids=range(len(WORDS)))
@pytest.mark.parametrize("field", FIELDS)
def test_no_card_writes_code(field: str, words: str) -> None:
    """Whatever stands in a field, it reaches the harness in a comment, in a string, as a name, or not at all."""
    card = copy.deepcopy(CONTENTS[[path.stem for path in FILES].index("spmv_csr")])
    if field == "size":
        card["sizes"][words] = 1
    elif field == "default":
        card["sizes"]["nnz"] = words
    elif field == "length":
        card["parameters"][1]["length"] = words
    elif field == "meaning":
        card["parameters"][1]["meaning"] = words
    elif field == "input":
        card["inputs"][1] = words
    else:
        card[field] = words
    _written(_dumped(card))


@pytest.mark.parametrize(
    "name", ["\x00", "x" * 5000, "../tasks/elu\n", "", ".", "/", "é", "x\x00.yaml", "/dev.yaml", "y" * 5000 + ".yaml"]
)
def test_odd_names(name: str) -> None:
    """A name that is none, or that no file can have, is an unknown task."""
    with pytest.raises(UsageError):
        cards.load(name)
