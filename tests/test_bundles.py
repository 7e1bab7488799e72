"""Bundles: a result goes round as one file and says the same elsewhere; what was altered or is hostile is refused."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from cudamaster.core.values import Candidate, CaseVerdict, Precision, Status
from cudamaster.devices import machine_code
from cudamaster.runs.folder import RunFolder, write_record
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


def test_a_reproduction_is_kept_and_can_be_passed_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("bundle", made.kept, "--out", tmp_path / "next.zip")
    assert done.exit_code == 0, done.output
    found = cudamaster.read_bundle(tmp_path / "next.zip")
    assert found.claim.reproduces == made.reproduction.claim.bundle
    assert found.verdict == made.reproduction.verdict
    assert found.files == cudamaster.read_bundle(made.bundle).files
    # By default it does not take the name of the bundle that it reproduces, and no other file's.
    with monkeypatch.context() as there:
        there.chdir(tmp_path)
        assert run("bundle", made.kept).exit_code == 0
        file = tmp_path / f"{made.kept.stem}.zip"
        assert run("bundle", made.kept).exit_code == 0
        file.write_bytes(b"another")
        refused = run("bundle", made.kept)
    assert (refused.exit_code, "there already" in refused.output, file.read_bytes()) == (2, True, b"another")
    # Nothing that was measured is overwritten, not even by two that end at the same time.
    first = made.reproduction.keep(tmp_path / "kept.json")
    assert made.reproduction.keep(first) == tmp_path / "kept-2.json"
    with pytest.raises(UsageError, match="no measurement is overwritten"):
        cudamaster.reproduce(made.bundle, device="cpu", trust=True, out=first)


def test_where_the_second_measurement_counts_what_only_the_first_one_found_is_packed_too(
    made: Made, tmp_path: Path
) -> None:
    first = made.reproduction.verdict
    listed = replace(first, build={**first.build, machine_code.INSTRUCTIONS: "1"}, sanitizers={"memcheck": "nothing"})
    again = replace(first, score=(first.score or 0.0) * 0.99, build={**first.build, machine_code.OBJECT: "2"})
    folder = shutil.copytree(made.run, tmp_path / "run")
    for name, verdict in (("verdicts", listed), ("confirmations", again)):
        (folder / name).mkdir(exist_ok=True)
        write_record(folder / name / f"{first.candidate}.json", verdict)
    packed = cudamaster.bundle(folder)
    assert (packed.claim.score, packed.second) == (again.score, listed)
    assert packed.verdict == replace(
        again, build={**listed.build, machine_code.OBJECT: "2"}, sanitizers=listed.sanitizers
    )


def test_a_raised_score_is_slower(made: Made, tmp_path: Path) -> None:
    """With all hashes remade, and with times that give it; only a repetition shows that."""
    honest, again = cudamaster.read_bundle(made.bundle), made.reproduction.verdict
    raised = replace(honest, claim=replace(honest.claim, score=3 * honest.claim.score))
    opened = cudamaster.read_bundle(remade(raised, tmp_path / "raised.zip"))
    assert words.said(words.of_bundle(opened), again, "")[0] is Word.SLOWER
    assert "the times in its own verdict give" in contents.contradictions(opened)[0]

    def shorter(case: CaseVerdict) -> CaseVerdict:
        return case if case.modelled is None else replace(case, modelled=replace(case.modelled, candidate_us=2.0))

    times = replace(honest.verdict, cases=tuple(map(shorter, honest.verdict.cases)))
    speed = contents.speed_of(times)
    assert speed is not None
    forged = replace(honest, verdict=times, claim=replace(honest.claim, score=speed.speedup))
    opened = cudamaster.read_bundle(remade(forged, tmp_path / "forged.zip"))
    assert contents.contradictions(opened) == []
    assert words.said(words.of_bundle(opened), again, "")[0] is Word.SLOWER


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
    parts, _ = archive.read(made.bundle)
    path.write_bytes(archive.packed({**parts, "claim.json": b'{"score": 50, ' + parts["claim.json"].lstrip()[1:]}))
    with pytest.raises(BundleError, match="it has a key twice"):
        cudamaster.read_bundle(path)
    for claim in (replace(honest.claim, task="../axpby"), replace(honest.claim, task="axpby.yaml")):
        candidate = replace(honest.candidate, task=claim.task)
        liar = replace(honest, claim=replace(claim, candidate=candidate.id), candidate=candidate)
        liar = replace(liar, verdict=replace(honest.verdict, candidate=candidate.id))
        with pytest.raises(UsageError, match="has no card of its own"):
            cudamaster.reproduce(remade(liar, path), device="cpu", trust=True)


@pytest.mark.slow
def test_a_bundles_card_is_not_asked_which_other_card_times_the_same(made: Made, tmp_path: Path) -> None:
    """That is its maker's word: a claim by another card is told all the same."""
    honest, another = cudamaster.read_bundle(made.bundle), "0" * 16
    (name,) = (name for name in honest.files if name.endswith("axpby.yaml"))
    files = {**honest.files, name: f"{honest.files[name]}\ntimed_as: ['{another}']\n"}
    liar = replace(honest, files=files, claim=replace(honest.claim, card_hash=another))
    path = remade(liar, tmp_path / "liar.zip")
    found = cudamaster.reproduce(path, device="cpu", trust=True, calls=1, out=tmp_path / "found.json")
    assert "The bundle claims a speedup by another card than it has." in found.notes


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
    with pytest.raises(UsageError, match="no JSON file that `cudamaster reproduce` kept"):
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
        "spmv_ell", rounds=1, debug_tries=0, model="playbook", device="cuda", out=tmp_path / "runs"
    )
    file = tmp_path / "spmv_ell.zip"
    packed = cudamaster.bundle(search.path, out=file)
    assert (packed.verdict.mark, packed.verdict.protocol["pairs of processes"]) == ("", "2")
    assert contents.contradictions(packed) == []
    found = cudamaster.reproduce(file)
    assert found.word is Word.SAME, found.said
    assert any(each.startswith("binary: ") for each in found.differs)
    if machine_code.INSTRUCTIONS in found.verdict.build:
        assert "binary: the same GPU instructions" in found.differs
    claim = cudamaster.reproduce_claim("spmv_ell", search.best, "100", out=tmp_path / "claim.json")
    assert (claim.word, claim.paper is not None and claim.paper.score is not None) == (Word.SLOWER, True)
    assert "By the paper's protocol" in " ".join(claim.measured)
