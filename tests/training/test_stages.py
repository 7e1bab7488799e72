"""The stages one after another, with a new model of one layer on a task that is judged in seconds.

Each run is in this process but one, which is killed. All share a file of verdicts.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

for _library in ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers"):
    pytest.importorskip(_library)

from training import tiny_task  # noqa: E402

from cudamaster.cli import main  # noqa: E402
from cudamaster.core import keys  # noqa: E402
from cudamaster.core.errors import CudaMasterError  # noqa: E402
from cudamaster.core.values import Candidate  # noqa: E402
from cudamaster.training import looks, state  # noqa: E402
from cudamaster.training.collecting import read_kernels  # noqa: E402
from cudamaster.training.prompts import Form  # noqa: E402
from cudamaster.training.settings import Generation, Model  # noqa: E402
from cudamaster.training.stages import room_for_weights  # noqa: E402

# The kernel is a hundred tokens, and every prompt fits.
COMMON = """\
data: set
generation: {temperature: 0.7, max_tokens: 120, batch: 2}
judge: {device: cpu, workers: 1, tasks: [tiny/tasks/tiny_relu.yaml], cases: [N=1024], verdicts: verdicts.jsonl}
"""
SFT = """\
model: {new: llama, layers: 1, width: 32, heads: 2, vocabulary: 420, context: 900, device: cpu}
optimization: {learning_rate: 0.02}
exemplars: random
copies: 3
batch: 4
micro_batch: 4
budget: {steps: 80}
every: {checkpoint: 40, evaluation: 80}
evaluation: {samples: 2}
"""
SELFTAUGHT = """\
model: {name: sft, context: 900, device: cpu}
optimization: {learning_rate: 0.001}
rounds: 2
samples: 3
batch: 2
micro_batch: 2
"""
CONTRASTIVE = """\
model: {name: sft, context: 900, device: cpu}
optimization: {learning_rate: 0.002}
grpo: {group: 4, micro_batch: 2, iterations: 2}
budget: {steps: 3}
every: {checkpoint: 1, canaries: 2}
canaries: 1
reward: {jump_factor: 1.2}
"""

# It can write both kernels, and learns which one is fast.
BOTH = """\
model: {name: sft, context: 900, device: cpu}
optimization: {learning_rate: 0.005}
batch: 8
micro_batch: 8
budget: {steps: 40}
"""
PREFERRED = """\
model: {name: sft_both, context: 900, device: cpu}
optimization: {learning_rate: 0.001, schedule: cosine}
grpo: {group: 8, micro_batch: 8, beta: 0.1}
exemplars: none
budget: {steps: 10}
every: {checkpoint: 0}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The task, its export, and a configuration for each stage."""
    made = tmp_path_factory.mktemp("training")
    tiny_task.export(made / "set", tiny_task.make(made / "tiny"))
    # What the last stage begins with lacks the kernel that it is to find.
    (made / "less").mkdir()
    tiny_task.write_kernels(made / "less", *(one for one in read_kernels(made / "set") if not is_fast(one.candidate)))
    for name, text in (("sft", SFT), ("selftaught", SELFTAUGHT), ("contrastive", CONTRASTIVE)):
        common = COMMON.replace("data: set", "data: less") if name == "contrastive" else COMMON
        (made / f"{name}.yaml").write_text(common + text, encoding="utf-8")
    return made


def is_fast(candidate: Candidate) -> bool:
    return candidate.code.strip() == tiny_task.FAST.strip()


def train(folder: Path, stage: str, *more: str, out: str = "", config: str = "") -> Mapping[str, Any]:
    """What a stage says with --json."""
    file = folder / f"{config or stage}.yaml"
    command = ["train", stage, str(file), "--out", str(folder / (out or stage)), "--json", *more]
    ran = CliRunner().invoke(main, command, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    found: Mapping[str, Any] = json.loads(ran.stdout)
    return found


@pytest.fixture(scope="module")
def tuned(folder: Path) -> Mapping[str, Any]:
    """The stage sft, with a new model."""
    return train(folder, "sft")


@pytest.fixture(scope="module")
def contrasted(folder: Path, tuned: Mapping[str, Any]) -> Mapping[str, Any]:
    """The stage contrastive, after sft."""
    return train(folder, "contrastive")


def rows(folder: Path, run: str, name: str) -> list[Any]:
    return state.rows(folder / run / name)


def test_prompts_of_several_lengths_are_continued_as_alone(tuned: Mapping[str, Any]) -> None:
    """What is padded at the left is not seen. Nearly without chance, so that each has one continuation."""
    from cudamaster.training import policy

    model = policy.loaded(Model(name=tuned["model"], context=640), Form.COMPACT, on_gpus=0)
    generation = Generation(temperature=1e-3, max_tokens=12)
    texts = ("extern", "#include <cuda_runtime.h>\n\n__global__ void relu_kernel_optimized(")
    asked = [model.tokenizer(text)["input_ids"] for text in texts]
    assert len(asked[0]) < len(asked[1])
    assert model.sample(asked, generation, "a") == [model.sample([one], generation, "b")[0] for one in asked]


def test_a_new_model_learns_to_write_the_kernel(folder: Path, tuned: Mapping[str, Any]) -> None:
    losses = [row["loss"] for row in rows(folder, "sft", state.STEPS)]
    assert len(losses) == 80
    assert losses[-1] < 0.2 < 3 < losses[0]
    before, after = tuned["evaluations"]
    assert (before["step"], before["right"]) == (0, 0)
    assert (after["step"], after["right"], after["cases"]) == (80, 1, "1 of 2, not in the reward")
    assert (folder / "sft" / "model" / "config.json").is_file()
    # It is done: the same command changes nothing.
    assert train(folder, "sft")["steps"] == 80
    assert [row["loss"] for row in rows(folder, "sft", state.STEPS)] == losses


def test_a_tuning_that_was_stopped_goes_on_as_if_it_was_not(folder: Path, tuned: Mapping[str, Any]) -> None:
    """Weights, optimizer and the order of the pairs are those of before."""
    whole = [row["loss"] for row in rows(folder, "sft", state.STEPS)]
    train(folder, "sft", "--set", "budget.steps=43", "--set", "every={checkpoint: 40}", out="parts")
    (folder / "parts" / "checkpoints" / "checkpoint-43" / "complete").unlink()  # as if it was killed then
    train(folder, "sft", "--set", "budget.steps=46", "--set", "every={checkpoint: 40}", out="parts")
    parts = [row["loss"] for row in rows(folder, "parts", state.STEPS)]
    assert parts == pytest.approx(whole[:46], rel=1e-4)
    assert [row["step"] for row in state.rows(folder / "parts" / "abandoned.jsonl")] == [41, 42, 43]


def test_a_kill_before_the_model_is_written_loses_nothing(folder: Path, tuned: Mapping[str, Any]) -> None:
    """All updates are done, and there is no model yet: it is that of the last checkpoint."""
    load_file = pytest.importorskip("safetensors.torch").load_file

    run = folder / "sft"
    before = load_file(run / "model" / "model.safetensors")
    shutil.rmtree(run / "model")
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    (run / "manifest.json").write_text(json.dumps(manifest | {"ended": None}), encoding="utf-8")
    assert train(folder, "sft")["ended"] == "80 steps are done"
    after = load_file(run / "model" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(bool((before[name] == after[name]).all()) for name in before)


def test_rounds_train_on_what_is_right(folder: Path, tuned: Mapping[str, Any]) -> None:
    done = train(folder, "selftaught")
    assert done["ended"] == "2 rounds are done"
    first, second = rows(folder, "selftaught", state.STEPS)
    assert first["samples"] == second["samples"] == 3
    assert first["right"] > 0
    assert first["kept"] >= 1
    # Killed after the samples of the second round: nothing is sampled or judged again.
    (folder / "selftaught" / state.STEPS).write_text(json.dumps(first) + "\n", encoding="utf-8")
    sampled = rows(folder, "selftaught", state.SAMPLES)
    again = train(folder, "selftaught")
    assert rows(folder, "selftaught", state.SAMPLES) == sampled
    assert len(rows(folder, "selftaught", state.STEPS)) == 2
    assert again["last"]["right"] == second["right"]
    assert again["last"]["evaluations"] == second["evaluations"]


def test_rewards_move_the_model(folder: Path, contrasted: Mapping[str, Any]) -> None:
    steps, samples = rows(folder, "contrastive", state.STEPS), rows(folder, "contrastive", state.SAMPLES)
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert len(samples) == 12
    for row in samples:
        assert row["reward"] == (pytest.approx(2, abs=1) if row["status"] == "correct" else 0)
        assert 1 <= len(row["exemplars"]) <= 2
    # The first fast one is a leap: it is measured again, counts, and is shown to those that follow.
    (look, *_) = looks.read(folder / "contrastive" / state.LEAPS)
    assert look.outcome is looks.Outcome.COUNTS
    assert steps[-1]["best"] == look.counts
    joined = [row for row in samples if row["joined"]]
    assert look.candidate in [row["candidate"] for row in joined]
    assert steps[-1]["exemplars"] == {f"{tiny_task.NAME}/fp32": 2 + len(joined)}
    groups = [[row for row in samples if row["step"] == step] for step in (1, 2, 3)]
    assert all(len({row["prompt"] for row in group}) == 1 for group in groups)
    assert all(sum(row["advantage"] for row in group) == pytest.approx(0, abs=1e-6) for group in groups)
    assert steps[-1]["kl"] >= 0
    (canary,) = rows(folder, "contrastive", state.CANARIES)
    assert (canary["step"], canary["earned"]) == (2, [])


@pytest.fixture(scope="module")
def able(folder: Path, tuned: Mapping[str, Any]) -> Mapping[str, Any]:
    """The stage sft again, after which the model writes both kernels."""
    tiny_task.export_both(folder / "set", folder / "both")
    for name, text in (("sft_both", BOTH), ("preferred", PREFERRED)):
        (folder / f"{name}.yaml").write_text(COMMON.replace("data: set", "data: both") + text, encoding="utf-8")
    return train(folder, "sft", config="sft_both", out="sft_both")


def test_it_comes_to_write_the_fast_kernel(folder: Path, able: Mapping[str, Any]) -> None:
    """By measured speed alone."""
    train(folder, "contrastive", config="preferred", out="preferred")
    samples = rows(folder, "preferred", state.SAMPLES)
    fast = [
        sum(row["text"].strip() == tiny_task.FAST.strip() for row in samples if row["step"] in steps)
        for steps in ((1, 2), (9, 10))
    ]
    assert fast[0] <= 12
    assert fast[1] >= 15, "of 16"


def test_adapters_learn_go_on_and_are_merged(folder: Path, able: Mapping[str, Any]) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file

    model = "model={name: sft_both, context: 900, device: cpu, lora: {r: 4, alpha: 8}}"
    adapted = ("--set", model, "--set", "every={checkpoint: 1}", "--set", "optimization={learning_rate: 0.01}")
    for run, steps in (("adapted", 3), ("adapted_parts", 2), ("adapted_parts", 3)):
        train(folder, "contrastive", *adapted, "--set", f"budget.steps={steps}", config="preferred", out=run)
    runs = ("sft_both", "adapted", "adapted_parts")
    before, whole, parts = (load_file(folder / run / "model" / "model.safetensors") for run in runs)
    assert before.keys() == whole.keys() == parts.keys(), "nothing of an adapter is left"
    moved = {name: float((whole[name] - before[name]).abs().max()) for name in before}
    assert max(moved.values()) > 1e-3
    assert all(float((parts[name] - whole[name]).abs().max()) < 1e-6 for name in whole)
    assert told(rows(folder, "adapted", state.SAMPLES)) == told(rows(folder, "adapted_parts", state.SAMPLES))


def test_a_run_that_a_canary_stopped_does_not_go_on(folder: Path, contrasted: Mapping[str, Any]) -> None:
    out = folder / "caught"
    shutil.copytree(folder / "contrastive", out)
    (row,) = rows(folder, "caught", state.CANARIES)
    (out / state.CANARIES).write_text(json.dumps({**row, "earned": ["zeros on relu (fp32): 9.00"]}) + "\n")
    ran = CliRunner().invoke(main, ["train", "contrastive", str(folder / "contrastive.yaml"), "--out", str(out)])
    assert (ran.exit_code, "9.00" in ran.output) == (8, True)


def test_a_killed_run_goes_on_and_pays_for_nothing_twice(folder: Path, contrasted: Mapping[str, Any]) -> None:
    """Killed in its second step, it ends as the one that was not: the same draws, samples and rewards."""
    out, verdicts = folder / "killed", folder / "verdicts.jsonl"
    before = verdicts.read_bytes().count(b"\n")
    command = [sys.executable, "-m", "cudamaster", "train", "contrastive", str(folder / "contrastive.yaml"), "--out",
               str(out)]  # fmt: skip
    environment = {**keys.for_tools(), "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    environment["CUDAMASTER_CACHE"] = os.environ["CUDAMASTER_CACHE"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while len(rows(folder, "killed", state.SAMPLES)) < 5:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    done = train(folder, "contrastive", out="killed")
    assert done["steps"] == 3
    assert told(rows(folder, "killed", state.SAMPLES)) == told(rows(folder, "contrastive", state.SAMPLES))
    # All it needed had been judged for the other run, but its canary.
    assert verdicts.read_bytes().count(b"\n") == before + 1
    # Of another configuration it is refused.
    refused = CliRunner().invoke(main, [*command[3:], "--set", "grpo.beta=0.5"])
    assert refused.exit_code == 6
    assert "grpo.beta is 0.04 there and 0.5 here" in refused.output


def told(samples: Sequence[Mapping[str, Any]]) -> list[Any]:
    kept = ("step", "group", "prompt", "exemplars", "text", "candidate", "reward", "joined")
    return [tuple(row[name] for name in kept) for row in samples]


def test_evaluations_are_not_exceeded(folder: Path, tuned: Mapping[str, Any]) -> None:
    stopped = train(folder, "contrastive", "--set", "budget.evaluations=7", out="poor")
    assert (stopped["steps"], stopped["ended"]) == (0, "0 of 7 evaluations are spent, and the next step may need 8")


def test_the_report_has_curve_and_canaries(folder: Path, contrasted: Mapping[str, Any]) -> None:
    page = folder / "page.html"
    ran = CliRunner().invoke(main, ["train", "report", str(folder / "contrastive"), "--html", str(page)])
    assert ran.exit_code == 0, ran.output
    text = (folder / "contrastive" / "report.md").read_text(encoding="utf-8")
    assert "Canaries" in text
    assert (folder / "contrastive" / "curve.svg").read_text(encoding="utf-8").count("Speedup of right samples") == 1
    assert "<svg" in page.read_text(encoding="utf-8")


def test_a_limit_on_files_is_an_error_with_a_fix_where_weights_are_written(tmp_path: Path) -> None:
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    earlier = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(CudaMasterError, match=r"File too large.*Make room"), room_for_weights(tmp_path):
            safetensors.save_file({"weights": torch.zeros(1 << 16)}, str(tmp_path / "weights"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, earlier)
