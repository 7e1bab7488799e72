"""`cudamaster check` names all that is wrong with a card and its files, each with file, line and fix."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cudamaster.cli import main
from cudamaster.core.errors import CardError
from cudamaster.tasks import cards

EXAMPLE = Path(__file__).parents[2] / "examples" / "axpby"
CARD, FP32, BF16, REFERENCE = "tasks/axpby.yaml", "fp32/axpby.cu", "bf16/axpby_bf16.cu", "reference/axpby.h"


def check(*words: str) -> Result:
    return CliRunner().invoke(main, ("check", *words))


def changed(folder: Path, file: str, before: str, after: str) -> Path:
    """The example in a folder, with another text in place of one in a file."""
    if not folder.exists():
        shutil.copytree(EXAMPLE, folder)
    text = (folder / file).read_text()
    assert before in text
    (folder / file).write_text(text.replace(before, after))
    return folder


def test_good_cards_say_what_they_have() -> None:
    """By folder, by name, and of the suite that has a task for every shape."""
    done = check(str(EXAMPLE), "relu", "hgemm_tn_fp32_64x64x64")
    assert done.exit_code == 0, done.output
    first, *_, last = done.output.splitlines()
    assert first == "axpby: right. 3 timed and 20 checked cases, 2 buffers, fp32 and bf16; suite axpby."
    assert last == "3 cards: all right."


def test_a_folder_is_known_by_what_it_holds(tmp_path: Path) -> None:
    """The user's own is called tasks, as the part of a folder is that has the cards, and may hold further folders."""
    own = tmp_path / "tasks"
    shutil.copytree(EXAMPLE, own)
    (own / "suite.yaml").write_text("name: mine\n")
    shutil.copytree(EXAMPLE, own / "inner")
    for given, count in ((own / "tasks", "1 card"), (own, "2 cards")):
        done = check(str(given))
        assert (done.exit_code, done.output.splitlines()[-1]) == (0, f"{count}: all right."), done.output


@pytest.mark.parametrize(
    ("file", "before", "after", "where", "what", "fix"),
    [
        (CARD, "id: 51", "id: [51", f"{CARD}:2", "cannot be read", ""),
        (CARD, "id: 51", "id: 51\nid: 52", f"{CARD}:2", "key id comes twice", ""),
        (CARD, "weight: N", "wieght: N", f"{CARD}:27", "no such field", "Did you mean weight?"),
        (CARD, "  operations: 3 * N\n", "", f"{CARD}:28", "operations is missing", "Add operations."),
        (CARD, "type: T, role: input", "type: flaot, role: input", f"{CARD}:10", "'flaot'", "Did you mean float?"),
        (CARD, "N: [4096, 65536, 1048576]", "N: [4096, many]", f"{CARD}:19", "sweep.0.N.1: 'many' should be", ""),
        (CARD, "weight: N", "weight: Nn", f"{CARD}:27", "known are N, alpha, beta", "Did you mean N?"),
        (CARD, "3 * N", "3 * P", f"{CARD}:31", "known are N, alpha, beta, element_bytes", "Use these names"),
        (CARD, "uniform(y", "unifrom(y", f"{CARD}:17", "is no input generator", "Did you mean uniform?"),
        (CARD, "{N: [129", "{K: [129", f"{CARD}:22", "sets ['K']", ""),
        (CARD, "{N: null", "{M: null", f"{CARD}:8", "scalar parameters ['N'] have no entry", ""),
        (CARD, "{N: [700000, 1048576]", "{N: [9, 1]", f"{CARD}:26", "nothing between 9 and 1", ""),
        (CARD, "weight: N", "weight: log2(N - N)", f"{CARD}:27", "has no value", ""),
        (CARD, "name: axpby", "name: axpy", f"{CARD}:2", "the file has another name", "Make them the same."),
        (FP32, "float alpha, float beta, int N) {\n    int", "float alpha, int N) {\n    int",
         f"{FP32}:15", "takes 4 parameters, not 5", 'Write extern "C" void axpby('),
        (BF16, "void axpby_bf16(", "void axpby_b16(", f"{BF16}:1", "is not defined", 'extern "C" void axpby_bf16('),
        (FP32, 'extern "C" void', "void", f"{FP32}:15", "lacks extern C linkage", 'Write extern "C" void axpby('),
        (REFERENCE, "axpby_reference", "axpby_refernce", f"{REFERENCE}:1", "declares no function axpby_reference",
         "Did you mean axpby_refernce?"),
    ],
)  # fmt: skip
def test_each_problem_has_file_line_and_fix(
    file: str, before: str, after: str, where: str, what: str, fix: str, tmp_path: Path
) -> None:
    mine = changed(tmp_path / "mine", file, before, after)
    done = check(str(mine / CARD))
    assert done.exit_code == CardError.exit_code, done.output
    lines = done.output.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith(f"{mine}/{where}: "))
    assert what in lines[at]
    assert fix in lines[at + 1]


def test_all_problems_of_a_card_are_told_at_once(tmp_path: Path) -> None:
    mine = changed(tmp_path / "mine", CARD, "weight: N", "weight: M")
    changed(mine, CARD, "length: N, meaning: first", "length: K, meaning: first")
    changed(mine, CARD, "uniform(y, -1, 1)", "uniform(y, -1)")
    told = json.loads(check(str(mine), "--json").stdout)
    (card,) = told["cards"]
    assert [(one["line"], one["field"]) for one in card["problems"]] == [
        (10, "parameters.0.length"), (17, "inputs.1"), (27, "weight"),
    ]  # fmt: skip
    assert told["bad"] == 1
    with pytest.raises(CardError, match=rf"{mine}/{CARD}:10 is wrong at parameters.0.length") as refused:
        cards.load(str(mine / CARD))
    assert "2 more problems" in refused.value.fix


def test_references_in_python_and_none_at_all(tmp_path: Path) -> None:
    """A reference in Python has a function `reference`; where the baseline is the truth, there is none to look for."""
    rows = EXAMPLE.parent / "row_sums"
    assert check(str(rows)).exit_code == 0
    mine = tmp_path / "mine"
    shutil.copytree(rows, mine)
    changed(mine, "reference/row_sums.py", "def reference(", "def referenc(")
    done = check(str(mine))
    assert done.exit_code == CardError.exit_code
    assert (
        f"{mine}/reference/row_sums.py:1: it declares no function reference\n    Did you mean referenc?" in done.output
    )
    changed(mine, "reference/row_sums.py", "def referenc(", "def reference(:")
    assert f"{mine}/reference/row_sums.py:6: it is no Python" in check(str(mine)).output
    shutil.rmtree(mine / "reference")
    changed(mine, "tasks/row_sums.yaml", "truth: python", "truth: baseline")
    assert check(str(mine)).exit_code == 0


def test_a_reference_in_python_asks_for_what_the_card_has(tmp_path: Path) -> None:
    mine = Path(shutil.copytree(EXAMPLE.parent / "row_sums", tmp_path / "mine"))
    changed(mine, "reference/row_sums.py", "(x, R, C)", "(x, rows, C, *, eps=1.0, y)")
    done = check(str(mine))
    assert done.exit_code == 3
    assert [line.partition(": ")[2] for line in done.output.splitlines() if "has a parameter" in line] == [
        "reference has a parameter rows, which is neither an input nor a size of the card",
        "reference has a parameter y, which is neither an input nor a size of the card",
    ]


def test_missing_files_are_named_with_what_they_have_to_hold(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(EXAMPLE, mine)
    for file in (BF16, REFERENCE):
        (mine / file).unlink()
    done = check(str(mine))
    assert done.exit_code == CardError.exit_code
    assert f"{mine / BF16}, cannot be read" in done.output
    assert "or leave bf16 out with `precisions: [fp32]`" in done.output
    assert f"{mine / REFERENCE}, cannot be read" in done.output
    assert done.output.endswith("1 card: 2 problems in 1 of them.\n")
