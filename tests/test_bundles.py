"""Bundles: a result goes round as one file and says the same elsewhere; what was altered or is hostile is refused."""

from __future__ import annotations

import io
import json
import random
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cudamaster
from cudamaster.bundles import archive, contents, packing, words
from cudamaster.bundles.contents import Bundle
from cudamaster.bundles.reproduction import Reproduction, Word
from cudamaster.cli import main, reproduce
from cudamaster.core.errors import BundleError, RunFolderError, UsageError
from cudamaster.core.records import to_json
from cudamaster.core.values import Candidate, CaseVerdict, GpuModel, Precision, Status, Verdict
from cudamaster.devices import machine_code
from cudamaster.runs.folder import RunFolder
from cudamaster.runs.record import read_record
from cudamaster.tasks.harness import baseline_region

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "axpby"
WIDE = EXAMPLE / "playbook" / "axpby" / "fp32" / "1_wide_loads.cu"
H200 = ROOT / "results" / "h200" / "spmv_csr_bf16"
BEST, FIRST = "d1bd6139cad2d451", "39ac2b7da27a3ad9"  # P = 1.21 and 1.05
BRIEFLY = ("--device", "cpu", "--calls", "2")
# Few cases, the timed one large enough for the kernel to gain in it.
SMALLER = {
    "{N: [4096, 65536, 1048576]}": "{N: 262144}",
    "[1, 2, 3, 7, 8, 31, 33, 255, 257, 1023, 4099, 65537]": "[1, 33, 1023]",
    "[129, 1000], alpha: [0.0, -2.25], beta: [0.0, 1.0]": "129, alpha: -2.25, beta: 0.0",
    "[1, 30000]": "[1, 300]",
    "[700000, 1048576]": "[4000, 5000]",
}


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, words)), env={"CUDA_VISIBLE_DEVICES": ""})


@dataclass(frozen=True)
class Made:
    """A stated claim that was judged, the run of its kernel, a bundle of that, and what came of reproducing it."""

    claim: Result
    run: Path
    bundle: Path
    card: Path
    done: Result
    kept: Path

    @property
    def reproduction(self) -> Reproduction:
        """What was kept of it."""
        return packing.read_reproduction(self.kept)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Every kernel that is judged takes seconds: what is judged for the claim is the verdict of the run too."""
    folder = tmp_path_factory.mktemp("bundles")
    card = small_task(folder / "here")
    of_claim = ["--task", card, "--kernel", WIDE, "--claim", "1.30", "--claimed-on", "H100", *BRIEFLY]
    claim = run("reproduce", *of_claim, "--out", folder / "right.json")
    run_ = recorded(card, packing.read_reproduction(folder / "right.json"), folder / "run")
    bundle = folder / "axpby.zip"
    assert run("bundle", run_, "--out", bundle).exit_code == 0
    there = card.parent.parent.rename(folder / "there")
    refused = run("reproduce", bundle, "--device", "cpu")
    assert (refused.exit_code, "is its maker's: no task of this name is here" in refused.output) == (2, True)
    done = run("reproduce", bundle, "--trust", *BRIEFLY, "--json")
    (kept,) = folder.glob("axpby.reproduced-*.json")
    with pytest.raises(UsageError, match="is not here"):
        cudamaster.bundle(run_)
    there.rename(folder / "here")
    return Made(claim, run_, bundle, card, done, kept)


def small_task(folder: Path) -> Path:
    """The example's card with few cases, and a reference that has a header of its own."""
    shutil.copytree(EXAMPLE, folder)
    card, reference = folder / "tasks" / "axpby.yaml", folder / "reference" / "axpby.h"
    text = card.read_text()
    for before, after in SMALLER.items():
        assert before in text
        text = text.replace(before, after)
    card.write_text(text)
    (reference.parent / "terms.h").write_text("#pragma once\n#include <cmath>\n")
    reference.write_text(reference.read_text().replace("#include <cmath>", '#include "terms.h"'))
    return card


def recorded(path: Path, found: Reproduction, folder: Path) -> Path:
    """The folder of a run that judged this kernel, and found it its best."""
    card = cudamaster.load_task(path)
    kernel = Candidate(found.task, found.precision, found.code, found.command)
    baseline = replace(kernel, code=baseline_region(card, found.precision))
    manifest = replace(
        read_record(H200).manifest,
        task=card.name,
        precision=found.precision,
        card_hash=card.hash,
        card=card.source,
        suite=card.suite,
        baseline=baseline.id,
        hardware=found.hardware,
        versions=found.versions,
    )
    with RunFolder.create(folder, manifest) as made:
        for each in (baseline, kernel):
            made.save_candidate(each)
        made.save_build_log(kernel.id, "nvcc said nothing\n")
        made.save_verdict(found.verdict)
        made.save_best(kernel, found.verdict, found.verdict.score or 0.0)
    return folder


def remade(bundle: Bundle, path: Path) -> Path:
    """The file of a bundle that a liar changed, with hashes that fit."""
    bundle.save(path)
    return path


def test_a_result_goes_round(made: Made) -> None:
    """In ordinary tools' hands it is texts and JSON; elsewhere, without the task's folder, it says the same."""
    with zipfile.ZipFile(made.bundle) as file:
        assert file.testzip() is None
        names = set(file.namelist())
        assert "axpby_optimized" in file.read("kernel.cu").decode()
        assert json.loads(file.read("verdict.json"))["status"] == "correct"
    assert {"task/tasks/axpby.yaml", "task/fp32/axpby.cu", "task/reference/axpby.h", "task/reference/terms.h"} <= names
    assert made.done.exit_code == 0, made.done.output
    found, packed = made.reproduction, cudamaster.read_bundle(made.bundle)
    assert json.loads(made.done.stdout) == to_json(found)
    assert found.word is Word.SAME, found.said
    assert (found.verdict.mark, "modelled" in found.said) == ("modelled", True)
    assert found.differs == ("binary: the same object file",)
    assert found.verdict.build["reference sha256"] == packed.verdict.build["reference sha256"]
    assert found.claim.bundle == archive.hash_of(made.bundle.read_bytes()) == packed.sha256
    assert found.verdict.seed != packed.verdict.seed


def test_the_same_result_is_the_same_file(made: Made) -> None:
    """Whenever it is packed; and only while its task is what it was."""
    assert cudamaster.bundle(made.run).content == made.bundle.read_bytes()
    for name, what, before, after in (
        ("fp32/axpby.cu", "its baseline", "alpha", "beta"),
        ("reference/axpby.h", "its reference", "alpha", "beta"),
        ("tasks/axpby.yaml", "its card", "3 * N", "4 * N"),
    ):
        file = made.card.parent.parent / name
        text = file.read_text()
        file.write_text(text.replace(before, after))
        with pytest.raises(UsageError, match=rf"has changed since the run .* \({what}\)"):
            cudamaster.bundle(made.run)
        file.write_text(text)


def test_a_reproduction_is_kept_and_can_be_passed_on(made: Made, tmp_path: Path) -> None:
    done = run("bundle", made.kept, "--out", tmp_path / "next.zip")
    assert done.exit_code == 0, done.output
    found = cudamaster.read_bundle(tmp_path / "next.zip")
    assert found.claim.reproduces == made.reproduction.claim.bundle
    assert found.verdict == made.reproduction.verdict
    assert found.files == cudamaster.read_bundle(made.bundle).files
    # Nothing that was measured is overwritten, not even by two that end at the same time.
    first = made.reproduction.keep(tmp_path / "kept.json")
    assert made.reproduction.keep(first) == tmp_path / "kept-2.json"
    with pytest.raises(UsageError, match="no measurement is overwritten"):
        cudamaster.reproduce(made.bundle, device="cpu", trust=True, out=first)


def test_a_raised_score_is_slower(made: Made, tmp_path: Path) -> None:
    """With all hashes remade, and with times that give it; only a repetition shows that."""
    honest, again = cudamaster.read_bundle(made.bundle), made.reproduction.verdict
    raised = replace(honest, claim=replace(honest.claim, score=3 * honest.claim.score))
    opened = cudamaster.read_bundle(remade(raised, tmp_path / "raised.zip"))
    assert words.said(words.of_bundle(opened), again, "")[0] is Word.SLOWER
    assert "the times in its own verdict give" in contents.contradiction(opened)

    def shorter(case: CaseVerdict) -> CaseVerdict:
        return case if case.modelled is None else replace(case, modelled=replace(case.modelled, candidate_us=2.0))

    times = replace(honest.verdict, cases=tuple(map(shorter, honest.verdict.cases)))
    speed = contents.speed_of(times)
    assert speed is not None
    forged = replace(honest, verdict=times, claim=replace(honest.claim, score=speed.speedup))
    opened = cudamaster.read_bundle(remade(forged, tmp_path / "forged.zip"))
    assert contents.contradiction(opened) == ""
    assert words.said(words.of_bundle(opened), again, "")[0] is Word.SLOWER


def test_a_byte_that_changed_is_found_and_named(made: Made, tmp_path: Path) -> None:
    raw, path = made.bundle.read_bytes(), tmp_path / "altered.zip"
    for at in range(0, len(raw), max(1, len(raw) // 150)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(BundleError):
            cudamaster.read_bundle(path)
    parts, _ = archive.read(made.bundle)
    for name in ("kernel.cu", "verdict.json", "task/reference/axpby.h"):
        changed = {**parts, name: parts[name][:-2] + b" \n"}
        whole = {archive.MANIFEST: archive._manifest(parts), **changed}
        path.write_bytes(archive._archive(whole))
        done = run("reproduce", path, "--show")
        assert done.exit_code == 6
        assert f"its part {name} was changed" in done.output
    for name in ("claim.json", "kernel.cu", "verdict.json"):
        path.write_bytes(archive.packed({other: part for other, part in parts.items() if other != name}))
        with pytest.raises(BundleError, match=f"its part {name} is missing"):
            cudamaster.read_bundle(path)
    path.write_bytes(archive.packed({**parts, "command.txt": b"nvcc -c candidate.cu -o candidate.o -DX\n"}))
    with pytest.raises(BundleError, match="not of one candidate"):
        cudamaster.read_bundle(path)


def zipped(*entries: tuple[zipfile.ZipInfo | str, bytes], compressed: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as opened:
        for name, content in entries:
            opened.writestr(name, content)
    return file.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    about = zipfile.ZipInfo(name)
    about.create_system, about.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return about


def overlapping() -> bytes:
    """A central directory that names the same bytes three times."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr("manifest.json", b"x" * 4096)
        for name in ("README.txt", "kernel.cu"):
            twin = zipfile.ZipInfo(name)
            twin.header_offset, twin.file_size, twin.compress_size = 0, 4096, 4096
            twin.CRC = opened.infolist()[0].CRC
            opened.filelist.append(twin)
    return file.getvalue()


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "no zip": (lambda: b"P = 300, promised", "it is no zip archive that can be read"),
    "nothing": (lambda: b"", "it is no zip archive that can be read"),
    "no manifest": (lambda: zipped(("kernel.cu", b"")), "its part manifest.json is missing"),
    "no JSON": (lambda: zipped(("manifest.json", b"[" * 100_000)), "manifest.json is no JSON"),
    "other format": (lambda: zipped(("manifest.json", b'{"format": 99, "sha256": {}}')), "has format 99"),
    "up": (lambda: zipped(("../../etc/cron.d/x", b"")), "a name that leads out of the archive"),
    "root": (lambda: zipped(("/etc/passwd", b"")), "a name that leads out of the archive"),
    "windows": (lambda: zipped(("task\\..\\x", b"")), "a name that leads out of the archive"),
    "link": (lambda: zipped((link("task/reference/x.h"), b"/etc/passwd")), "is a link or no file"),
    "bomb": (lambda: zipped(("kernel.cu", bytes(40 << 20)), compressed=True), "is compressed"),
    "overlapping": (overlapping, "its parts lie over each other"),
    "many": (lambda: zipped(*((f"task/{k}", b"") for k in range(300))), "it has 300 parts"),
    "part in a part": (
        lambda: archive.packed({"task/x": b"", "task/x/y": b""}),
        "its part task/x/y lies in another part",
    ),
    "added behind": (lambda: archive.packed({"x": b""}) + b"more", "it is not as it was written"),
    "added before": (lambda: b"#!/bin/sh\n" + archive.packed({"x": b""}), "it is not as it was written"),
    "part missing": (
        lambda: zipped(("manifest.json", b'{"format": 1, "sha256": {"kernel.cu": "0"}}')),
        "its part kernel.cu is missing",
    ),
    "unknown part": (
        lambda: zipped(("manifest.json", b'{"format": 1, "sha256": {}}'), ("x", b"")),
        "it has a part 'x', which its manifest does not name",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_only_refused(kind: str, tmp_path: Path) -> None:
    make, why = HOSTILE[kind]
    path = tmp_path / "hostile.zip"
    path.write_bytes(make())
    done = run("reproduce", path, "--trust", "--device", "cpu")
    assert done.exit_code == 6, done.output
    assert why in done.output
    assert [each.name for each in tmp_path.iterdir()] == ["hostile.zip"]


def test_a_file_of_ten_gigabytes_is_not_read(tmp_path: Path) -> None:
    with (path := tmp_path / "large.zip").open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(BundleError, match="larger than 64 MiB"):
        cudamaster.read_bundle(path)
    with pytest.raises(UsageError, match="is no file"):
        cudamaster.read_bundle("/dev/zero")


def test_claims_that_make_no_sense_are_refused(made: Made, tmp_path: Path) -> None:
    """Whoever remakes hashes can write anything: what is no claim is said to be none before anything is built."""
    honest, path = cudamaster.read_bundle(made.bundle), tmp_path / "liar.zip"
    case = next(case for case in honest.verdict.cases if case.modelled is not None)
    assert case.modelled is not None
    timeless = replace(case, modelled=replace(case.modelled, candidate_us=0.0))
    for changed, why in (
        (replace(honest, claim=replace(honest.claim, score=float("inf"))), "claims P = inf"),
        (replace(honest, verdict=replace(honest.verdict, status=Status.WRONG)), "a kernel that was wrong"),
        (replace(honest, verdict=replace(honest.verdict, cases=(timeless,))), "the times in its verdict are none"),
        (replace(honest, verdict=replace(honest.verdict, candidate="0" * 16)), "not of one candidate"),
    ):
        with pytest.raises(BundleError, match=why):
            cudamaster.read_bundle(remade(changed, path))
    for claim in (replace(honest.claim, task="../axpby"), replace(honest.claim, task="axpby.yaml")):
        candidate = replace(honest.candidate, task=claim.task)
        liar = replace(honest, claim=replace(claim, candidate=candidate.id), candidate=candidate)
        liar = replace(liar, verdict=replace(honest.verdict, candidate=candidate.id))
        with pytest.raises(UsageError, match="has no card of its own"):
            cudamaster.reproduce(remade(liar, path), device="cpu", trust=True)


def places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all values below a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*place, key)
        yield from places(each, (*place, key))


def test_whatever_a_liar_writes_is_a_claim_or_refused(made: Made, tmp_path: Path) -> None:
    """Odd values in the places of others, with hashes remade: nothing but an error with a reason comes of them."""
    parts, _ = archive.read(made.bundle)
    draw, path, now = random.Random(28), tmp_path / "odd.zip", made.reproduction
    odd = [None, True, -1, 0, 1e308, 1e-320, 10**30, "nan", "inf", "", "\x1b[2J", [], {}, [1], "correct"]
    refused = 0
    for _ in range(120):
        name = draw.choice(["claim.json", "verdict.json"])
        said = json.loads(parts[name])
        *above, last = draw.choice(list(places(said)))
        inside = said
        for key in above:
            inside = inside[key]
        inside[last] = draw.choice(odd)
        path.write_bytes(archive.packed({**parts, name: json.dumps(said).encode()}))
        try:
            bundle = cudamaster.read_bundle(path)
        except BundleError:
            refused += 1
            continue
        word, _, _ = words.said(words.of_bundle(bundle), now.verdict, "")
        assert word in (Word.SAME, Word.SLOWER, Word.FASTER, Word.UNSURE, Word.OTHER_GPU)
        assert words.differs(bundle, now.verdict, now.hardware, now.versions)
    assert 60 < refused < 120


def test_a_project_cannot_trust_in_its_users_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "cudamaster.toml"
    monkeypatch.setenv("CUDAMASTER_PROJECT", str(project))
    for table in ("all", "reproduce"):
        project.write_text(f"[{table}]\ntrust = true\n")
        done = run("reproduce", "any.zip")
        assert done.exit_code == 2
        assert "is given on the command line alone" in done.output


def test_a_task_of_this_program_needs_no_trust_and_any_other_file_does(tmp_path: Path) -> None:
    kept = cudamaster.bundle(H200)
    shown = run("reproduce", remade(kept, tmp_path / "kept.zip"), "--show")
    said = " ".join(shown.stdout.split())
    for part in ("P claimed 1.21, faster (typical turn 1.20 to 1.22)", "1980 MHz while calls were timed",
                 "object not recorded", "NVIDIA H200", "580.159.04", "its task the same as here"):  # fmt: skip
        assert part in said
    name = "bf16/spmv_csr_bf16.cu"
    slow = replace(kept, files={**kept.files, name: kept.files[name] + "\n// slower\n"})
    with pytest.raises(UsageError, match=f"is its maker's: {name} is not as here"):
        cudamaster.reproduce(remade(slow, tmp_path / "slow.zip"), device="cpu")


def test_what_cannot_be_packed(made: Made, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no judged kernel 'nosuch'"):
        cudamaster.bundle(H200, candidate="nosuch")
    with pytest.raises(UsageError, match="a folder of 2 runs"):
        cudamaster.bundle(H200.parent)
    with pytest.raises(RunFolderError, match="There is no run"):
        cudamaster.bundle(tmp_path)
    with pytest.raises(UsageError, match="is not what `cudamaster reproduce` kept"):
        cudamaster.bundle(made.bundle)
    assert cudamaster.bundle(H200, round=1).claim.candidate == FIRST


def test_a_claim_made_with_another_harness(made: Made, tmp_path: Path) -> None:
    """The right kernel is as far judged as a device without times can; the wrong one is wrong, and where."""
    assert made.claim.exit_code == 12, made.claim.output
    assert made.claim.stdout.startswith("UNSURE: P = ")
    assert "A model of a GPU can neither confirm nor refute a measurement" in " ".join(made.claim.stdout.split())
    kernel = tmp_path / "wrong.cu"
    kernel.write_text(WIDE.read_text().replace("+ beta *", "- beta *"))
    of_claim = ["--task", made.card, "--kernel", kernel, "--claim", "1.30", *BRIEFLY]
    wrong = run("reproduce", *of_claim, "--out", tmp_path / "wrong.json", "--json")
    assert wrong.exit_code == 1, wrong.output
    found = json.loads(wrong.stdout)
    assert (found["word"], found["verdict"]["status"]) == ("wrong", "wrong")
    assert "y: " in found["said"]
    assert any("At the listed sizes alone it is wrong" in each for each in found["measured"])
    refused = run("bundle", tmp_path / "wrong.json")
    assert refused.exit_code == 2
    assert "there is no speedup to claim" in refused.output


# The words, on what an H200 measured.


@cache
def packed(candidate: str) -> Bundle:
    return cudamaster.bundle(H200, candidate=candidate)


def measured(candidate: str, *, part: slice = slice(None)) -> Verdict:
    """A verdict of a run on an H200 with some of its turns."""
    verdict = packed(candidate).verdict
    cases = tuple(
        case
        if case.timing is None
        else replace(
            case,
            timing=replace(
                case.timing, baseline_us=case.timing.baseline_us[part], candidate_us=case.timing.candidate_us[part]
            ),
        )
        for case in verdict.cases
    )
    cut = replace(verdict, cases=cases)
    speed = contents.speed_of(cut)
    assert speed is not None
    return replace(cut, speed=speed, score=speed.speedup)


def claimed(candidate: str, **changed: object) -> words.Claimed:
    return replace(words.of_bundle(packed(candidate)), **changed)  # type: ignore[arg-type]


def test_the_words_for_measurements_of_one_gpu() -> None:
    first_half, second_half, few = slice(0, 150), slice(150, None), slice(0, 2)
    for candidate in (BEST, FIRST):
        for part in (first_half, second_half):
            word, said, ratio = words.said(claimed(candidate), measured(candidate, part=part), "")
            assert word is Word.SAME, said
            assert ratio is not None
            assert ratio.low < 1 < ratio.high
    best, first = claimed(BEST), claimed(FIRST)
    assert words.said(best, measured(FIRST), "")[0] is Word.SLOWER
    assert words.said(first, measured(BEST), "")[0] is Word.FASTER
    assert words.said(best, measured(BEST, part=few), "")[0] is Word.UNSURE
    # A claim that is raised by what nobody can tell from noise stays the same, one by more does not.
    raised = [words._around(best.score * factor, best.speed) for factor in (1.01, 1.3)]  # type: ignore[arg-type]
    said = [words.said(replace(best, score=each.speedup, speed=each), measured(BEST), "")[0] for each in raised]
    assert said == [Word.SAME, Word.SLOWER]


def test_the_words_for_what_cannot_be_compared() -> None:
    verdict, model = measured(BEST), GpuModel("v6", "NVIDIA H200", 1.85)
    word, said, _ = words.said(claimed(BEST, gpu="NVIDIA H100 80GB HBM3"), verdict, "")
    assert (word, "this compares GPUs" in said, "gains as much here" in said) == (Word.OTHER_GPU, True, True)
    modelled = claimed(BEST, mark="modelled", modelled=model)
    wide = words.stated("1.2", tolerance=0.85)
    assert words.said(replace(modelled, speed=wide.speed), verdict, "")[0] is Word.UNSURE
    far = words.stated("9.0", tolerance=0.85)
    assert words.said(replace(modelled, score=9.0, speed=far.speed), verdict, "")[0] is Word.SLOWER
    by_model = replace(verdict, emulated=True, modelled=model)
    assert words.said(claimed(BEST), by_model, "")[0] is Word.UNSURE
    assert words.said(modelled, by_model, "")[0] is Word.SAME
    older = replace(modelled, modelled=replace(model, version="v5"))
    assert words.said(older, by_model, "")[0] is Word.UNSURE
    other = replace(modelled, modelled=replace(model, gpu="NVIDIA H100"))
    assert words.said(other, by_model, "")[0] is Word.OTHER_GPU
    fault = replace(verdict, status=Status.FAULT, score=None, speed=None, detail="no kernel image is available")
    assert words.said(claimed(BEST), fault, "")[0] is Word.WRONG
    assert words.said(claimed(BEST, gpu="NVIDIA B200"), fault, "")[0] is Word.OTHER_GPU
    fewer = replace(verdict, cases=tuple(case for case in verdict.cases if case.label != "rows=1024"))
    word, said, _ = words.said(claimed(BEST), fewer, "")
    assert (word, "6 there, 5 here, 5 of them in both" in said) == (Word.UNSURE, True)
    unsupported = replace(fault, status=Status.UNSUPPORTED)
    assert words.said(claimed(BEST), unsupported, "")[0] is Word.UNSURE


def test_a_stated_claim_has_the_tolerance_of_its_digits() -> None:
    verdict = measured(BEST)  # P = 1.21 with 1.2 % to each side
    for text, word in (("1.21", Word.SAME), ("1.2", Word.SAME), ("2", Word.SLOWER), ("1.05", Word.FASTER),
                       ("1", Word.UNSURE)):  # fmt: skip
        assert words.said(words.stated(text), verdict, "")[0] is word, text
    assert words.said(words.stated("1.24", tolerance=0.0, gpu="H200"), verdict, "")[0] is Word.SAME
    assert words.said(words.stated("1.21", gpu="A100"), verdict, "")[0] is Word.OTHER_GPU
    for text in ("fast", "0", "-2", "nan", "1e3", ""):
        with pytest.raises(UsageError, match="is no speedup"):
            words.stated(text)


def test_what_is_measured_beside_p_is_told() -> None:
    told = " ".join(words.measured(replace(measured(BEST), asked_bytes=4 << 20)))
    assert "Kernels alone, without launching and waiting" in told
    assert "An empty launch takes 9." in told
    assert "4,194,304 bytes" in told


def test_two_builds_are_told_apart_by_instructions() -> None:
    """nvcc's objects never have the same bytes; cuobjdump's listing of the same instructions is the same elsewhere."""
    listing = (
        "Fatbin elf code:\n================\narch = sm_90\nidentifier = /tmp/tmpxft_{0}\n\n\tcode for sm_90\n"
        "\t\tFunction : _ZN38_GLOBAL__N__cb97dc4{0}_12_candidate_cu_k1aEPfNS_1SE\n"
        '\t.headerflags\t@"{0}"\n'
        "        /*0000*/                   LDC R1, c[0x0][0x28] ;   /* 0x00000a00ff017b82 */\n"
        "                                                            /* 0x000e22000000020{1} */\n"
    )
    one, other, third = (machine_code.instructions_in(listing.format(*each)) for each in ("a1", "b1", "a2"))
    assert one.count("\n") == 3
    assert one == other != third
    verdict = measured(BEST)
    built = {machine_code.OBJECT: "1", machine_code.INSTRUCTIONS: "2"}
    then = replace(verdict, build=built)
    assert words.binary(verdict, then) == "binary: not recorded there"
    assert words.binary(then, replace(verdict, build={**built, machine_code.OBJECT: "3"})) == (
        "binary: the same GPU instructions"
    )
    assert "other GPU instructions" in words.binary(then, replace(verdict, build=dict.fromkeys(built, "4")))


def test_every_word_has_an_exit_code() -> None:
    assert set(reproduce.EXIT_CODES) == {word.value for word in Word}


def test_the_options_fit_together(tmp_path: Path) -> None:
    for given, why in (
        ([], "There is no bundle"),
        (["--task", "relu", "--claim", "2"], "--kernel is missing"),
        (["--task", "relu"], "--kernel and --claim are missing"),
        (["x.zip", "--claim", "2"], "A bundle says its task"),
        (["x.zip", "--precision", "fp32"], "A bundle says its task"),
        (["--task", "relu", "--kernel", "x.cu", "--claim", "2", "--trust"], "--show and --trust are about a bundle"),
        ([tmp_path / "none.zip"], "There is no file"),
    ):
        done = run("reproduce", *given)
        assert (done.exit_code, why in done.output) == (2, True), done.output


def test_old_verdicts_are_read_and_written_as_they_are() -> None:
    verdict = read_record(H200).verdict(BEST)
    text = json.loads((H200 / "verdicts" / f"{BEST}.json").read_text())
    del text["hash"]
    assert to_json(verdict) == text
    assert Precision.BF16 in cudamaster.load_task("spmv_csr").precisions


@pytest.mark.gpu
def test_a_measured_result_goes_round(tmp_path: Path) -> None:
    """On a GPU: the claim of a search is repeated, the binary is the same, and the paper's protocol has its say."""
    search = cudamaster.optimize(
        "relu", rounds=1, debug_tries=0, model="playbook", device="cuda", out=tmp_path / "runs"
    )
    file = tmp_path / "relu.zip"
    packed = cudamaster.bundle(search.path, out=file)
    assert (packed.verdict.mark, packed.verdict.protocol["pairs of processes"]) == ("", "2")
    assert contents.contradiction(packed) == ""
    found = cudamaster.reproduce(file)
    assert found.word is Word.SAME, found.said
    assert any(each.startswith("binary: ") for each in found.differs)
    if machine_code.INSTRUCTIONS in found.verdict.build:
        assert "binary: the same GPU instructions" in found.differs
    claim = cudamaster.reproduce_claim("relu", search.best, "100", out=tmp_path / "claim.json")
    assert (claim.word, claim.paper is not None and claim.paper.score is not None) == (Word.SLOWER, True)
    assert "By the paper's protocol" in " ".join(claim.measured)
