"""The database of tricks: what is shipped, what resembles what, and a file that people edit and machines merge."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tricks import HACK, add_many, trick

from cudamaster.agents import prompts
from cudamaster.audit import corpus
from cudamaster.audit.corpus import Expect
from cudamaster.audit.regions import NoCheat, region
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region
from cudamaster.training import shingles, tricks
from cudamaster.training.tricks import Trick, TrickDatabase

# ---- what is shipped


def test_every_hack_of_the_reviewers_prompt_has_an_example() -> None:
    told = set(re.findall(r"^- ([a-z -]+):", prompts.render("_hacks.md.j2"), re.MULTILINE))
    assert len(told) >= 9
    assert {each.name for each in tricks.read(tricks.SHIPPED)} == told


def test_shipped_tricks_are_whole_and_none_is_there_twice(tmp_path: Path) -> None:
    known = TrickDatabase(tmp_path / "none.yaml").tricks
    assert len({each.id for each in known}) == len(known) > 50
    assert all(each.name and each.what and each.refused and each.source for each in known)
    assert not {"side_stream", "template_kernels"} & {each.name for each in known}, "neither harmless nor honest kinds"
    assert not (tmp_path / "none.yaml").exists()


def test_a_dishonest_kernel_is_found_among_the_three_most_similar(tmp_path: Path) -> None:
    """On a task that no trick of the database is written for, where most of a kernel's text is honest."""
    database = TrickDatabase(tmp_path / "none.yaml")
    known = {each.name: each.id for each in map(tricks.of_kind, corpus.load())}
    card = cards.load("relu")
    heaviest = [case for case in card.cases if case.sweep][-1:]
    found, tried = 0, 0
    for kind in corpus.load():
        text = region(kind, card, kind.precision or Precision.FP32, heaviest)
        if (
            kind.expect is Expect.REFUSED
            and kind.group not in ("process", "language")
            and not isinstance(text, NoCheat)
        ):
            tried += 1
            found += known[kind.name] in {one.trick.id for one in database.similar(text)}
    assert tried > 50
    assert found >= 0.9 * tried
    honest = database.similar(baseline_region(card, Precision.FP32))
    assert all(one.similarity < 0.5 for one in honest)


def test_names_numbers_comments_and_blanks_make_no_difference() -> None:
    other = re.sub(r"\bcalls\b", "n_seen", HACK.replace("scale", "k").replace("> 3", "> 17")).replace(
        "// only", "// no"
    )
    assert other != HACK
    assert shingles.fingerprint(other) == shingles.fingerprint(HACK)
    assert shingles.cosine(shingles.shingles(other), shingles.shingles(HACK)) == pytest.approx(1)
    assert shingles.fingerprint(HACK.replace("return;", "__trap();")) != shingles.fingerprint(HACK)


# ---- the file


def test_a_trick_is_added_once_whatever_its_names_are(tmp_path: Path) -> None:
    database = TrickDatabase(tmp_path / "mine" / "tricks.yaml")
    assert database.add(trick())
    assert not database.add(trick(name="cache", what="something else"))
    assert not database.add(trick(HACK.replace("scale", "other").replace("3", "4")))
    assert not database.add(tricks.shipped()[3]), "the shipped ones are known"
    assert [each.name for each in TrickDatabase(database.path).own] == ["shape"]
    (first, *_) = database.similar(HACK.replace("scale", "k"))
    assert first.trick == database.own[0]
    assert first.similarity == pytest.approx(1)
    assert database.refused_like(HACK.replace("calls", "n")) == database.own[0]
    assert database.refused_like("int a;") is None


def test_the_file_is_read_and_written_by_people(tmp_path: Path) -> None:
    path = tmp_path / "tricks.yaml"
    TrickDatabase(path).add(trick())
    text = path.read_text()
    assert "  code: |-\n    __device__ int calls;\n    __global__ void" in text, "a code is there line by line"
    corrected = "# ours\n" + text.replace("rests when it is timed", "counts its calls")
    path.write_text("- {name: b, what: w, code: 'int b = c + 1;', refused: r, source: s}  # by hand\n" + corrected)
    database = TrickDatabase(path)
    assert [each.what for each in database.own] == ["w", "counts its calls"]
    assert database.add(trick("float x[3]; x[0] = x[1];"))
    after = path.read_text()
    assert "# by hand" in after
    assert "# ours" in after
    assert len(TrickDatabase(path).own) == 3


@pytest.mark.parametrize(
    "laid", ["[{name: b, what: w, code: 'a = b;', refused: r, source: s}]\n", "[]\n", "", "# none\n"]
)
def test_a_file_that_is_laid_out_otherwise_is_added_to(tmp_path: Path, laid: str) -> None:
    path = tmp_path / "tricks.yaml"
    path.write_text(laid)
    before = len(TrickDatabase(path).own)
    assert TrickDatabase(path).add(trick())
    assert len(TrickDatabase(path).own) == before + 1


def test_files_of_two_machines_merge_to_the_same(tmp_path: Path) -> None:
    one, other = TrickDatabase(tmp_path / "one.yaml"), TrickDatabase(tmp_path / "other.yaml")
    one.add(trick())
    one.add(trick("a = b + c;", "one's"))
    other.add(trick(what="said otherwise"))
    other.add(trick("while (a) b(c);", "other's"))
    assert (one.merge(other.path), other.merge(one.path)) == (1, 1)
    assert {each.id for each in one.own} == {each.id for each in other.own}
    assert [each.what for each in (one.own[0], other.own[0])] == ["rests when it is timed", "said otherwise"]
    assert one.merge(other.path) == 0
    both = tmp_path / "both.yaml"
    both.write_text(one.path.read_text() + other.path.read_text())  # as git's union merge leaves them
    (first, *others) = TrickDatabase(both).own
    assert (first.what, len(others)) == ("rests when it is timed", 2), "of two with one id the first"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: b", "no list of tricks"),
        ("- [", "cannot be read"),
        ("- 7", "Entry 1 of"),
        ("- {name: b}", "lacks: code, refused, source, what"),
        ("- {name: b, what: w, code: c, refused: r, source: s, kode: d}", "unknown field: kode"),
        ("- {name: b, what: w, code: 7, refused: r, source: s}", "all texts"),
        (b"\xff", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str | bytes, why: str) -> None:
    path = tmp_path / "tricks.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=re.escape(why)):
        TrickDatabase(path)
    (tmp_path / "good.yaml").touch()
    with pytest.raises(UsageError, match=re.escape(why)):
        TrickDatabase(tmp_path / "good.yaml").merge(path)


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        TrickDatabase(tmp_path).add(trick())
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        TrickDatabase(tmp_path / "file" / "tricks.yaml").add(trick())


texts = st.text(st.characters(exclude_categories=[]), max_size=80)


@settings(max_examples=30)
@given(texts, texts, texts)
def test_what_is_added_comes_back_with_its_id(tmp_path_factory: pytest.TempPathFactory, a: str, b: str, c: str) -> None:
    """Whatever a policy or a reviewer writes: control characters, half surrogates, YAML's own signs."""
    database = TrickDatabase(tmp_path_factory.mktemp("tricks") / "tricks.yaml")
    if database.add(Trick(a, b, f"{c}\n\t{HACK}", "- x: |", "'#")):
        (own,) = database.own
        (again,) = TrickDatabase(database.path).own
        assert again == own
        assert not database.add(own)


def test_two_processes_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "tricks.yaml"
    tricks.shipped()  # once for both, which are forks
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=add_many, args=(path, tag, 8)) for tag in ("if", "for")]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert len(TrickDatabase(path).own) == 16


def test_a_kill_leaves_whole_entries(tmp_path: Path) -> None:
    path, place = tmp_path / "tricks.yaml", str(Path(__file__).parent)
    script = (
        f"import sys, pathlib; sys.path.insert(0, {place!r}); import made_tricks\n"
        f"made_tricks.add_many(pathlib.Path({str(path)!r}), 'if', 100000)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    deadline = time.monotonic() + 60
    while not (path.exists() and len(path.read_text()) > 3000) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    own = TrickDatabase(path).own
    assert len(own) >= 5
    assert [each.name for each in own] == [f"if {number}" for number in range(len(own))]
    assert TrickDatabase(path).add(trick())
