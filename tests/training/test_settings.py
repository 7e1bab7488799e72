from __future__ import annotations

from pathlib import Path

import pytest

from cudamaster.core.errors import UsageError
from cudamaster.training.configuration import load
from cudamaster.training.settings import Contrastive, Sft

SFT = """
model: {new: llama, layers: 1}
data: set
optimization:
  learning_rate: 0.001
"""
CONTRASTIVE = """
model: {name: somebody/model}
data: set
judge: {tasks: [relu, own/card.yaml]}
budget: {steps: 3}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "stage.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    path = written(tmp_path, CONTRASTIVE + "out: there\ntricks: tricks.yaml\n")
    settings = load(Contrastive, path, ["model.name=earlier", "judge.verdicts=v.jsonl"])
    assert settings.data == tmp_path / "set"
    assert settings.out == tmp_path / "there"
    assert settings.tricks == tmp_path / "tricks.yaml"
    assert settings.model.name == str(tmp_path / "earlier")
    assert settings.judge.verdicts == tmp_path / "v.jsonl"
    assert settings.judge.tasks == ("relu", str(tmp_path / "own/card.yaml"))
    assert load(Contrastive, path).model.name == "somebody/model"
    for missing in ("runs/train/sft_sft", "../earlier", "/no/folder"):  # never a name on Hugging Face
        with pytest.raises(UsageError, match=f"there is no folder .*{missing}"):
            load(Contrastive, path, [f"model.name={missing}"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SFT.replace("learning_rate", "learning_rat"), r"stage\.yaml, line 5.*learning_rat.*Did you mean learning_rat"),
        (SFT + "bach: 3\n", r"line 6.*bach.*Did you mean batch"),
        (SFT + "batch: 3\n", r"batch 3 is no multiple of micro_batch 8"),
        (SFT.replace("0.001", "fast"), r"line 5.*'fast' should be"),
        (SFT.replace("new: llama", "new: lama"), r"'lama' should be.*Did you mean llama"),
        (SFT.replace("new: llama", "name: x, new: llama"), r"give either name"),
        (SFT + "judge: {tasks: relu}\n", r"judge\.tasks: 'relu' should be a list, as \[a, b\]"),
        (SFT + "judge: relu\n", r"judge: 'relu' should be a mapping of keys"),
        ("- a\n", r"no mapping"),
        ("a: [\n", r"line 2"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(Sft, written(tmp_path, text))


def test_keys_are_changed_from_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, SFT)
    changed = load(Sft, path, ["optimization.learning_rate=0.5", "budget.steps=7", "every={checkpoint: 2}"])
    assert (changed.optimization.learning_rate, changed.budget.steps, changed.every.checkpoint) == (0.5, 7, 2)
    with pytest.raises(UsageError, match=r"with --set: .*stops.*Did you mean steps"):
        load(Sft, path, ["budget.stops=7"])
    with pytest.raises(UsageError, match="KEY=VALUE"):
        load(Sft, path, ["budget.steps"])


def test_exemplars_may_be_one_word(tmp_path: Path) -> None:
    path = written(tmp_path, CONTRASTIVE)
    assert load(Contrastive, path).exemplars.method == "bucket"
    assert load(Contrastive, path, ["exemplars=none"]).exemplars.method == "none"
    assert load(Contrastive, path, ["exemplars={method: island, islands: 2}"]).exemplars.islands == 2
    with pytest.raises(UsageError, match="'buckets' should be"):
        load(Contrastive, path, ["exemplars=buckets"])


def test_constants_of_rewards_are_those_of_the_rule(tmp_path: Path) -> None:
    path = written(tmp_path, CONTRASTIVE)
    assert load(Contrastive, path, ["reward.smoothing=2"]).reward.smoothing == 2
    with pytest.raises(UsageError, match="smoothin"):
        load(Contrastive, path, ["reward.smoothin=2"])
    with pytest.raises(UsageError, match="clipped to -1"):
        load(Contrastive, path, ["reward.smoothing=-1"])
    with pytest.raises(UsageError, match=r"budget\.steps is missing"):
        load(Contrastive, path, ["budget={}"])
