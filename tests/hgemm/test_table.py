"""Tables of products: what a killed writer leaves, other GPUs and forms, entries that were measured again."""

from __future__ import annotations

import fcntl
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_tables import H200, NAMES, entry, written
from scipy import stats

from cudamaster.core.errors import UsageError
from cudamaster.core.records import from_json, to_json
from cudamaster.hgemm import table
from cudamaster.hgemm.table import (
    Check,
    Form,
    Mode,
    Ratio,
    Writer,
    entry_from_samples,
    ratio_of,
    read,
    read_all,
    times_of,
)
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape, parse_shape

SMALL, LARGE = Shape(64, 128, 256), Shape(4096, 4096, 64)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    first, second = entry(LARGE, noise=0.03), entry(SMALL, Accumulate.FP16, noise=0.03)
    found = written(tmp_path / "h200.jsonl", first, second)
    assert (found.header, found.entries, found.notes) == (H200, (second, first), ())
    assert found.find(LARGE) == (first,)


def test_what_was_measured_before_a_kill_is_there(tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    written(path, entry(SMALL), entry(LARGE))
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    found = read(path)
    assert [each.shape for each in found.entries] == [SMALL]
    assert len(found.notes) == 1
    assert "not written to its end" in found.notes[0]
    with Writer(path, H200) as writer:
        assert "cut off" in writer.notes[0]
        writer.append(entry(LARGE))
    assert path.read_bytes() == content


@pytest.mark.parametrize("kept", [0, 5, 60])
def test_a_kill_within_the_first_line_costs_nothing(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "h200.jsonl"
    written(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UsageError, match="no table" if not kept else "first line"):
        read(path)
    with Writer(path, H200) as writer:
        writer.append(entry(SMALL))
    assert len(read(path).entries) == 1


def test_each_entry_is_on_the_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised = []
    monkeypatch.setattr(os, "fsync", lambda file: synchronised.append(os.fstat(file).st_size))
    path = tmp_path / "h200.jsonl"
    with Writer(path, H200) as writer:
        for count in range(3):
            assert len(synchronised) == count + 1
            assert synchronised[-1] == path.stat().st_size
            assert path.read_bytes().count(b"\n") == count + 1
            writer.append(entry(Shape(64, 64, 64 << count)))


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h200.jsonl"
    writer = Writer(path, H200)
    real = os.write

    def half(file: int, text: bytes) -> int:
        if len(text) < 1000:
            raise OSError(28, "No space left on device")
        return real(file, text[: len(text) - 500])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(Exception, match="No space left on device"):
        writer.append(entry(SMALL))
    monkeypatch.undo()
    writer.append(entry(SMALL))
    writer.close()
    assert len(read(path).entries) == 1


def test_the_last_of_several_entries_counts(tmp_path: Path) -> None:
    again = entry(SMALL, ratios={"cublas": 0.5})
    found = written(tmp_path / "h200.jsonl", entry(SMALL), entry(SMALL, Accumulate.FP16), again)
    assert len(found.entries) == 2
    assert found.find(SMALL)[0] == again
    assert "1 entries were measured again" in found.notes[0]


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (replace(H200, gpu="NVIDIA H100"), "GPU 'NVIDIA H200'"),
        (replace(H200, form=Form.OPEN), "form 'closed'"),
        (replace(H200, measuring=1), "way of measuring"),
    ],
)
def test_another_gpu_form_or_way_of_measuring_is_refused(tmp_path: Path, other: table.Header, what: str) -> None:
    path, beside = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    written(path, entry(SMALL))
    before = path.read_bytes()
    with pytest.raises(UsageError, match=what):
        Writer(path, other)
    assert path.read_bytes() == before
    written(beside, entry(LARGE), about=other)
    with pytest.raises(UsageError, match="never put together"):
        read_all([path, beside])
    with pytest.raises(UsageError, match="never put together"):
        read_all([tmp_path])
    path.write_bytes(before + beside.read_bytes())
    with pytest.raises(UsageError, match="never put together"):
        read(path)


def test_other_versions_are_said(tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    written(path, entry(SMALL))
    newer = replace(H200, driver="580.1")
    with Writer(path, newer) as writer:
        assert "driver 580.1" in writer.notes[0]
        writer.append(entry(LARGE))
    with Writer(path, newer) as writer:
        assert "2 sessions" in read(path).notes[0]
        assert not writer.notes
        assert [each.shape for each in writer.entries] == [SMALL, LARGE]
    found = read(path)
    assert found.headers == (H200, newer)
    assert len(found.entries) == 2


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    with Writer(path, H200), pytest.raises(UsageError, match="Another process"):
        Writer(path, H200)
    Writer(path, H200).close()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("some text\n", "no table"),
        ('{"header": {"format": 99}}\n'.replace(": {", ":{"), "format 99"),
        ('{"header":{"format":1}}\n', "Line 1 .* missing"),
    ],
)
def test_what_is_no_table_is_refused_and_left_alone(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=what):
        read(path)
    with pytest.raises(UsageError, match=what):
        Writer(path, H200)
    assert path.read_text("utf-8") == text


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    written(path, entry(SMALL), entry(LARGE))
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([lines[0], lines[1][:200], lines[2], ""]), encoding="utf-8")
    with pytest.raises(UsageError, match=r"Line 2 .* Remove that line"):
        read(path)


def test_several_files_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = entry(SMALL, ratios={"torch": 2.0}, date="2026-11-27T00:00:00+00:00")
    written(tmp_path / "runs/hgemm/a.jsonl", later, entry(LARGE))
    written(tmp_path / "runs/hgemm/b.jsonl", entry(SMALL))
    monkeypatch.chdir(tmp_path)
    found = read_all([])
    assert found.find(SMALL) == (later,)
    assert len(found.entries) == 2
    assert "the latest counts" in found.notes[0]
    with pytest.raises(UsageError, match="no table in"):
        read_all([tmp_path / "runs"])
    with pytest.raises(UsageError, match="cannot be read"):
        read_all([tmp_path / "nothing"])


def test_ratios_are_against_the_faster_layout_of_each_iteration() -> None:
    """By hand: the calls of an iteration are compared with each other, whatever the iterations differ by."""
    made = entry(SMALL, ratios={"cublas": 1.2}, noise=0.0)
    assert made.faster(Mode.OFFLINE, "cublas") is Layout.TN
    assert made.ratio(Mode.OFFLINE, "cublas", Layout.NN) == Ratio(1.2, 1.2, 1.2, 1.2, 1.2)
    assert made.ratio(Mode.SERVER, "cublas", Layout.TN) == Ratio(*[0.96] * 5)
    us = [[10.0, 30.0, 20.0], [100.0, 900.0, 400.0], [1.0, 1.0, 1.0]]
    made = entry_from_samples(
        SMALL, "fp16", date="2026-11-26", contestants=["ours_tn", "torch_nn", "torch_tn"], us={"offline": us},
        chosen={}, tried={}, algorithms={}, seconds={},
    )  # fmt: skip
    ratio = made.ratio(Mode.OFFLINE, "torch", Layout.TN)
    assert ratio is not None
    assert made.ratio(Mode.OFFLINE, "torch", Layout.NN) is None
    assert (ratio.mean, ratio.median, ratio.geometric) == pytest.approx((7 / 3, 2.0, 2.0), rel=1e-5)
    assert set(made.ratios) == {Mode.OFFLINE}
    assert set(made.ratios[Mode.OFFLINE]) == {"torch"}


def test_intervals_are_students() -> None:
    drawn = np.random.default_rng(3)
    ours, theirs = 10 * np.exp(0.1 * drawn.standard_normal((2, 40)))
    logarithms = np.log(theirs / ours)
    low, high = np.exp(stats.t.interval(0.95, 39, logarithms.mean(), stats.sem(logarithms)))
    found = ratio_of(theirs, ours)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-5)
    times = times_of(ours)
    assert (times.mean_us, times.sem_percent) == pytest.approx(
        (ours.mean(), 100 * stats.sem(ours) / ours.mean()), rel=1e-5
    )


def test_equal_kernels_are_decided_as_often_as_the_level_says() -> None:
    """Also where what disturbs one call disturbs its neighbours; the mean of ratios is above 1."""
    drawn = np.random.default_rng(5)
    decided, means = 0, []
    for _ in range(300):
        slow = np.repeat(0.1 * drawn.standard_normal((2, 40)), 25, axis=1) + 0.3 * drawn.standard_normal((2, 1000))
        found = ratio_of(*np.exp(slow))
        decided += found.verdict != 0
        means.append(found.mean)
    assert decided / 300 < 0.12
    assert np.mean(means) > 1.05


def test_one_iteration_decides_nothing() -> None:
    found = ratio_of(np.array([3.0]), np.array([1.0]))
    assert (found.geometric, found.low, found.high, found.verdict) == (3.0, 0.0, math.inf, 0)


@pytest.mark.parametrize(
    ("names", "us", "what"),
    [
        (["ours_xx"], [[1.0]], "unknown or there twice"),
        (["ours_nn", "ours_nn"], [[1.0, 1.0]], "unknown or there twice"),
        (["ours_nn"], [[1.0, 2.0]], "1 contestants"),
        (["ours_nn"], [[0.0]], "not positive"),
        (["ours_nn"], [[math.nan]], "not positive"),
    ],
)
def test_senseless_samples_are_refused(names: list[str], us: list[list[float]], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        entry_from_samples(
            SMALL, "fp32", date="", contestants=names, us={"offline": us}, chosen={}, tried={}, algorithms={},
            seconds={},
        )  # fmt: skip


def test_a_check_allows_what_the_libraries_differ_by_or_are_off() -> None:
    """Tables that were written before `of_libraries` have none."""
    older = entry(SMALL).checks[0]
    assert older.passed
    assert "of_libraries" not in to_json(older)
    closer = replace(older, among_libraries=0.001)
    assert not closer.passed
    newer = replace(closer, of_libraries=0.01)
    assert newer.passed
    assert from_json(Check, to_json(newer)) == newer
    assert not replace(newer, deviation=math.nan).passed
    assert not replace(newer, deviation=math.inf, of_libraries=math.inf).passed  # a library that fails excuses nobody
    assert not replace(newer, wrong_below_2048=1).passed


def test_shapes_in_words() -> None:
    assert parse_shape("4096x4096x64") == LARGE
    assert str(LARGE) == "4096x4096x64"
    assert (LARGE.operations, LARGE.bytes) == (2 * 4096 * 4096 * 64, 2 * (2 * 4096 * 64 + 4096 * 4096))
    for text in ("4096x64", "0x64x64", "ax1x1", "1x1x1x1"):
        with pytest.raises(UsageError, match="no shape"):
            parse_shape(text)


def test_lines_are_json_that_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    written(path, entry(SMALL))
    first, second = map(json.loads, path.read_text("utf-8").splitlines())
    assert first["header"]["gpu"] == "NVIDIA H200"
    assert first["header"]["format"] == table.FORMAT
    assert set(second["entry"]["times"]["offline"]) == set(NAMES)
    assert second["entry"]["chosen"]["nn"]["tile_m"] == 64
