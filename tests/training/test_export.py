"""From runs to training sets: real runs of an H200 that are kept, and a short search on the CPU device."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from judged_kernels import RESULTS, RUN
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, kernel
from small_cards import small_card

import cudamaster
from cudamaster.cli import main
from cudamaster.core.errors import RunFolderError, UsageError
from cudamaster.core.folderlock import locked
from cudamaster.core.values import Precision, Role, Status
from cudamaster.models.playbook import PlaybookModel
from cudamaster.runs.optimization import optimize
from cudamaster.runs.record import Settings
from cudamaster.suites.folder import FORMAT, Entry, State, Suite, SuiteFolder
from cudamaster.training.collecting import collect, gather, read_kernels
from cudamaster.training.exporting import Exported, HoldOut, export
from cudamaster.training.prompts import Form
from cudamaster.training.searches import read_run
from cudamaster.training.sets import NAMES, Wanted
from cudamaster.training.shingles import NEAR_COPY, jaccard, shingles

BOTH = [RUN, RESULTS / "spmv_csr_bf16"]
WIDE = PlaybookModel().steps("relu", "fp32")[0].code
COMPACT = Wanted(Form.COMPACT, modelled=True, at_least=0.5)


def fenced(text: str) -> str:
    return f"```cuda\n{text}```\n"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search on the CPU device: one kernel that is right, one that is wrong, one that is no C++."""
    wrong = WIDE.replace("0.0f", "1.0f")
    model = ScriptedModel([(Role.CODER, fenced(text)) for text in (WIDE, wrong, "int f( { }\n")])
    out = tmp_path_factory.mktemp("search")
    done = cudamaster.optimize(small_card("relu"), strategy="sample", rounds=3, device="cpu", model=model, out=out)
    assert [one.outcome.status for one in done.result.rounds] == [Status.CORRECT, Status.WRONG, Status.REJECTED]
    return done.path


@pytest.fixture(scope="module")
def whole(searched: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Exported]:
    """An export of the kept runs and of the search, whose task is held out."""
    out = tmp_path_factory.mktemp("export") / "data"
    return out, export(gather([*BOTH, searched]), out, COMPACT, HoldOut(names=("relu",)))


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_bytes().splitlines()]


def sides(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    yield from rows(folder, name)
    yield from rows(folder / "held-out", name)


def test_the_full_form_is_chat_messages_as_an_agent_reads_them(tmp_path: Path) -> None:
    done = export(gather(BOTH), tmp_path, Wanted())
    assert done.rows == {"sft": 6, "preference": 11, "contrastive": 10, "trajectories": 2}
    for row in rows(tmp_path, "sft"):
        assert [one["role"] for one in row["prompt"]] == ["system", "user"]
        assert "NVIDIA H200" in row["prompt"][0]["content"]
        assert "memory bandwidth, measured" in row["prompt"][0]["content"]
        assert "spmv_csr_kernel_optimized" in row["prompt"][1]["content"] or row["provenance"]["precision"] == "bf16"
        (answer,) = row["completion"]
        assert answer["role"] == "assistant"
        assert f"## Algorithm\n\n{row['provenance']['idea']}\n" in answer["content"]
        assert "```cuda\n" in answer["content"]
        assert row["provenance"]["score"] >= 1
    best = max(rows(tmp_path, "sft"), key=lambda row: row["provenance"]["score"])
    assert best["provenance"] | {"high": 0, "low": 0, "score": 0, "source": ""} == {
        "suite": "MSKernelBench", "task": "spmv_csr", "precision": "fp32", "category": "sparse",
        "card_hash": "e2406d2f9bf6a5f6", "gpu": "NVIDIA H200", "modelled": False, "harness": "0.1.0",
        "kernel": "6aaf94a83a299182", "command": best["provenance"]["command"], "status": "correct", "change": "faster",
        "is_baseline": False, "idea": "Stage x in shared memory while the row offsets are on their way",
        "author": "playbook", "high": 0, "low": 0, "score": 0, "source": "",
    }  # fmt: skip


def test_the_compact_form_is_plain_text(whole: tuple[Path, Exported]) -> None:
    for row in sides(whole[0], "sft"):
        assert row["prompt"].startswith(
            f"// {row['provenance']['task']} {row['provenance']['precision']}\n// score 1.00\n"
        )
        assert row["prompt"].endswith("// write\n")
        assert row["completion"].startswith("// idea: ")


def test_held_out_tasks_are_files_of_their_own(whole: tuple[Path, Exported]) -> None:
    out, done = whole
    assert done.held_out_tasks == ("relu",)
    # By the model the kernel is as fast as the baseline, so both may be in one bucket, or in two.
    assert {**done.held_out_rows, "contrastive": 1} == {"sft": 1, "preference": 2, "contrastive": 1, "trajectories": 1}
    for name in NAMES:
        tasks = [[of["task"] for of in _about(row)] for side in (out, out / "held-out") for row in rows(side, name)]
        assert len(rows(out, name)) == done.rows[name]
        assert [set(each) for each in tasks] == [{"spmv_csr"}] * done.rows[name] + [{"relu"}] * done.held_out_rows[name]
    assert {one.candidate.task for one in read_kernels(out)} == {"spmv_csr"}
    assert {one.candidate.task for one in read_kernels(out / "held-out")} == {"relu"}


def _about(row: dict[str, Any]) -> list[dict[str, Any]]:
    about = row["provenance"]
    return [about["chosen"], about["rejected"]] if "chosen" in about else [about]


def test_what_was_refused_is_only_ever_the_worse_one(whole: tuple[Path, Exported]) -> None:
    out, _ = whole
    assert sorted(one.verdict.status for one in read_kernels(out / "held-out")) == sorted(
        [Status.CORRECT, Status.CORRECT, Status.WRONG, Status.REJECTED]
    )
    assert all(row["provenance"]["status"] == "correct" for row in sides(out, "sft"))
    assert all(row["completion"].strip() == WIDE.strip() for row in rows(out / "held-out", "sft"))
    for row in sides(out, "contrastive"):
        assert all(one["score"] > 0 and "1.0f" not in one["code"] for one in row["exemplars"])
        assert all(one["code"].strip() in row["prompt"] for one in row["exemplars"])
    pairs = list(sides(out, "preference"))
    assert {row["provenance"]["why"] for row in pairs} == {"right", "faster"}
    for row in pairs:
        chosen, rejected = row["provenance"]["chosen"], row["provenance"]["rejected"]
        assert (chosen["status"], row["chosen"] == row["rejected"]) == ("correct", False)
        if row["provenance"]["why"] == "right":
            assert rejected["status"] in ("wrong", "rejected")
            assert rejected["score"] == 0
        elif rejected["is_baseline"]:
            assert chosen["low"] > 1
        else:
            assert chosen["low"] > rejected["high"]
        assert all(chosen[name] == rejected[name] for name in ("suite", "task", "precision", "gpu", "harness"))


def test_a_search_is_a_conversation(whole: tuple[Path, Exported]) -> None:
    for row in sides(whole[0], "trajectories"):
        roles = [one["role"] for one in row["messages"]]
        assert roles[0] == "system"
        assert roles[1:] == ["user", "assistant"] * (len(roles) // 2 - 1) + ["user"]
        for attempt in row["attempts"]:
            said = row["messages"][attempt["message"]]
            assert said["role"] == "user"
            assert said["content"].startswith(f"The judge: {attempt['status']}")
        assert row["provenance"]["finished"]
    (relu,) = rows(whole[0] / "held-out", "trajectories")
    assert [one["status"] for one in relu["attempts"]] == ["correct", "wrong", "rejected"]
    wrong = relu["messages"][relu["attempts"][1]["message"]]["content"]
    assert "elements wrong" in wrong
    assert relu["provenance"]["models"] == "scripted"


def test_modelled_times_are_left_out_unless_asked_for(searched: Path, tmp_path: Path) -> None:
    done = export(gather([searched]), tmp_path, replace(COMPACT, modelled=False))
    assert done.rows == {"sft": 0, "preference": 0, "contrastive": 1, "trajectories": 0}
    assert done.kernels == 4
    assert done.left_out == {
        "refused": 2,
        "modelled (--modelled takes them)": 1,
        "searches without measured times": 1,
    }
    (row,) = rows(tmp_path, "contrastive")
    assert [one["is_baseline"] for one in row["exemplars"]] == [True]


def test_hugging_face_reads_it(whole: tuple[Path, Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = pytest.importorskip("datasets")
    out, done = whole
    for name in NAMES:
        loaded = datasets.load_dataset(str(out), name, cache_dir=str(tmp_path))
        assert {split: len(part) for split, part in loaded.items()} == {
            "train": done.rows[name],
            "held_out": done.held_out_rows[name],
        }
        assert list(loaded["train"]) == rows(out, name)
        assert loaded["train"].features == loaded["held_out"].features


def test_the_card_says_what_it_is_of(whole: tuple[Path, Exported]) -> None:
    text = (whole[0] / "README.md").read_text()
    for said in ("Held-out tasks: relu.", "| NVIDIA H200 | 8 |", "| NVIDIA H200 (modelled) | 4 |", "| scripted | 3 |",
                 "MIT license", "The card of relu has changed since", "| refused | 2 |"):  # fmt: skip
        assert said in text


def test_an_export_is_a_source_too(whole: tuple[Path, Exported], tmp_path: Path) -> None:
    out, done = whole
    again = export(gather([out, out / "held-out"]), tmp_path / "again", COMPACT, HoldOut(names=("relu",)))
    assert {name: count for name, count in again.rows.items() if name != "trajectories"} == {
        name: count for name, count in done.rows.items() if name != "trajectories"
    }
    for name in ("sft", "preference", "contrastive", "kernels"):
        assert (tmp_path / "again" / f"{name}.jsonl").read_bytes() == (out / f"{name}.jsonl").read_bytes()
    assert json.loads((tmp_path / "again/hardware.json").read_text()) == json.loads((out / "hardware.json").read_text())
    # Without held-out tasks, those of before are gone.
    export(gather([RUN]), tmp_path / "again", Wanted())
    assert not (tmp_path / "again" / "held-out").exists()


def test_saved_reports_and_kept_results_are_sources(tmp_path: Path) -> None:
    found = gather([RESULTS, RESULTS.parents[1] / "tests" / "kept"], tasks=["elu", "spmv_csr", "sorting"])
    assert found.unread == ()
    done = export(found, tmp_path, Wanted())
    assert done.tasks == ("elu", "sorting", "spmv_csr")
    assert {row["provenance"]["chosen"]["task"] for row in rows(tmp_path, "preference")} == {"sorting", "spmv_csr"}
    by_source = {(one.candidate.task, one.provenance.source) for one in found.kernels}
    assert ("elu", "runs/suite_20261122-174246/elu_bf16") in by_source
    # The report has the best kernel of spmv_csr too; the run has its raw times.
    assert all(case.timing for one in found.kernels if one.candidate.task == "spmv_csr" and "runs/" not in
               one.provenance.source for case in one.verdict.cases if case.sweep)  # fmt: skip
    assert done.left_out["judged more than once: one verdict counts"] >= 4


def test_no_row_shows_a_near_copy_of_what_is_held_out(tmp_path: Path) -> None:
    """Checked on the files, text by text: all that a model is shown, and all that it is to write."""
    found = gather([RESULTS / "report.json"], tasks=["leaky_relu", "elu", "selu", "relu", "sorting"])
    done = export(found, tmp_path, Wanted(Form.COMPACT), HoldOut(names=("leaky_relu",)))
    assert done.left_out["near copies of held-out kernels"] >= 4
    assert done.tasks == ("relu", "selu", "sorting"), "of selu, what is far enough"
    apart = [one.candidate.code for one in read_kernels(tmp_path / "held-out")]
    assert len(apart) == 4
    shown = {row["completion"] for row in rows(tmp_path, "sft")}
    shown |= {row[side] for row in rows(tmp_path, "preference") for side in ("chosen", "rejected")}
    shown |= {one["code"] for row in rows(tmp_path, "contrastive") for one in row["exemplars"]}
    assert len(shown) >= 4
    sides = [[shingles(code) for code in side] for side in (shown, apart)]
    assert max(jaccard(one, other) for one in sides[0] for other in sides[1]) < NEAR_COPY


def copied(folder: Path, name: str = "spmv_csr_fp32") -> Path:
    return Path(shutil.copytree(RUN, folder / name))


def test_what_is_damaged_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    verdict = next(copied(tmp_path, "b").glob("verdicts/*.json"))
    verdict.write_text(verdict.read_text().replace('"score": 1.', '"score": 9.', 1))
    (copied(tmp_path, "c") / "run.json").unlink()
    (copied(tmp_path, "d") / "run.json").write_text("{}")
    found = gather([tmp_path, RESULTS / "spmv_csr_bf16"])
    assert {one.candidate.precision for one in found.kernels} == {Precision.BF16}
    told = "\n".join(found.unread)
    assert f"{verdict} was changed" in told
    assert f"{tmp_path / 'c'} is damaged: its run.json is missing" in told
    assert len(found.unread) == 3


def test_a_run_that_is_not_over_counts_as_far_as_it_is(tmp_path: Path) -> None:
    run = copied(tmp_path)
    (run / "summary.json").unlink()
    for path in sorted(run.glob("exchanges/*.json"))[5:]:
        path.unlink()
    lock = locked(run)
    found = gather([run])
    assert "still goes on: it counts with the 2 kernels" in found.notes[0]
    assert [one.provenance.is_baseline for one in found.kernels] == [True, False]
    os.close(lock)
    assert "was stopped while asking" in gather([run]).notes[0]


def test_a_suite_tells_of_every_task(tmp_path: Path) -> None:
    settings = read_settings()
    entries = (
        Entry("spmv_csr", Precision.FP32, State.DONE),
        Entry("relu", Precision.FP32, State.FAILED, error="the disk\nis full"),
        Entry("elu", Precision.FP32),
    )
    with SuiteFolder.create(tmp_path / "suite", Suite(FORMAT, "2026-11-26T00:00:00+00:00", {}, settings, entries)):
        copied(tmp_path / "suite")
    found = gather([tmp_path])
    assert len(found.kernels) == 4
    assert found.unread == (
        f"{tmp_path}/suite/relu_fp32 failed: the disk is full",
        f"{tmp_path}/suite did not get to elu_fp32.",
    )


def read_settings() -> Settings:
    from cudamaster.runs.record import read_manifest

    return read_manifest(RUN).settings


@pytest.mark.parametrize("hack", [True, False])
def test_what_a_reviewer_refused_is_refused(hack: bool, tmp_path: Path) -> None:
    """Its verdict on the disk says correct: the reviewer's word came after."""
    said = json.dumps({"verdict": "hack" if hack else "honest", "case": "", "reason": "It knows the sizes."})
    model = ScriptedModel([code(kernel(score=5.0, tag="a")), (Role.REVIEWER, said)])
    settings = Settings("sample", 1, 0, "stand-in", {Role.CODER: "scripted", Role.REVIEWER: "scripted"})
    optimize(tmp_path / "run", ScriptedWorkbench(), model.for_all(), settings)
    run = read_run(tmp_path / "run")
    (one,) = (each for each in run.kernels if not each.provenance.is_baseline)
    assert one.verdict.status is (Status.REJECTED if hack else Status.CORRECT)
    assert run.search is not None
    assert run.search.messages[-1].content.startswith("The judge: rejected" if hack else "The judge: correct")


def test_an_outside_agent_s_search_is_one_too(tmp_path: Path) -> None:
    script = [
        (Role.AGENT, json.dumps({"code": kernel(score=score, tag=tag)})) for score, tag in ((2.0, "a"), (0.5, "b"))
    ]
    script.append((Role.AGENT, json.dumps({"ended": "The agent ended."})))
    settings = Settings("agent", 5, 0, "stand-in", {Role.AGENT: "outside"}, options={"command": "x", "minutes": 1.0},
                        jump_factor=0, jump_above=0)  # fmt: skip
    optimize(tmp_path / "run", ScriptedWorkbench(), ScriptedModel(script, name="outside").for_all(), settings)
    search = read_run(tmp_path / "run").search
    assert search is not None
    assert [(one.score, one.idea) for one in search.tried] == [(2.0, "correct 2.0 a"), (0.5, "correct 0.5 b")]
    assert [one.role for one in search.messages] == ["system", *["user", "assistant"] * 3]
    assert search.messages[3].content.startswith("The judge: correct, P = 2.000 (emulated). all cases pass\n\n")


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"holds thesis\.tex, and is no export"):
        export(gather([RUN]), tmp_path, Wanted())
    (tmp_path / "thesis.tex").unlink()
    (tmp_path / "README.md").write_text("# Mine\n")
    with pytest.raises(UsageError, match=r"holds README\.md"):
        export(gather([RUN]), tmp_path, Wanted())


def test_two_exports_at_once_do_not_mix(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    with pytest.raises(RunFolderError, match="Another process is working"):
        export(gather([RUN]), tmp_path, Wanted())
    os.close(lock)
    export(gather([RUN]), tmp_path, Wanted())


def test_the_command_says_what_it_wrote_and_what_not(searched: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    words = [str(RUN), str(searched), "--out", str(out), "--form", "compact", "--best", "1", "--hold-out", "relu"]
    done = CliRunner().invoke(main, ["export", *words])
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    for said in ("sft 1 0", "kernels 4 4", "held out: relu", "refused 2", "not among the 1 best, so not in sft 2",
                 f"Written to {out}.", "train sft CONFIG"):  # fmt: skip
        assert said in shown


def test_without_a_kernel_there_is_nothing_to_write(tmp_path: Path) -> None:
    failed = CliRunner().invoke(main, ["export", str(tmp_path), "--out", str(tmp_path / "new"), "--json"])
    assert failed.exit_code == 6
    assert f"There are no judged kernels. {tmp_path} holds no judged kernels." in failed.output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((str(RUN / "nothing"), "--out", "x"), "There is no"),
        ((str(RUN), "--out", "x", "--tasks", "spmv_cs"), "Did you mean spmv_csr"),
        ((str(RUN), "--out", "x", "--at-least", "nan"), "not a number"),
        (("playbook", "--out", "x", "--tasks", "rely"), "Did you mean relu"),
    ],
)
def test_what_makes_no_sense_is_said(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["export", *words])
    assert (done.exit_code, said in done.output) == (2, True), done.output
    assert list(tmp_path.glob("x/*.jsonl")) == []


def test_collect_gives_the_kernels_alone() -> None:
    assert collect([RUN]) == list(gather([RUN]).kernels)
