"""Holds benchmarks/prompt_size.py to what the filter of metrics saves of the Planner's prompt."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
from recorded_runs import PROFILES, ROOT

from cudamaster.core.values import Precision
from cudamaster.tasks import cards


@pytest.fixture(scope="module")
def prompt_size() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prompt_size", ROOT / "benchmarks" / "prompt_size.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prompt_size"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_filter_makes_the_prompt_smaller(prompt_size: ModuleType) -> None:
    """The benchmark on a recorded profile: the part by far more than 30 %, and with every case the whole prompt too."""
    text = (PROFILES / "all_sections.txt").read_text()
    cases = (None, *(case.label for case in cards.load("sorting").cases if case.sweep))
    found = prompt_size.measured("sorting", Precision.FP32, [(case, text) for case in cases], len)
    filtered, one, every = found.filtered, found.one_case, found.all_cases
    assert found.recorded == found.timed == len(cases) - 1
    assert filtered.part.tokens < 0.7 * one.part.tokens
    assert filtered.whole.tokens < one.whole.tokens
    assert filtered.whole.tokens < 0.7 * every.whole.tokens
    assert every.part.tokens > 4 * one.part.tokens
    assert one.whole.tokens - filtered.whole.tokens == one.part.tokens - filtered.part.tokens


@pytest.mark.parametrize(
    ("task", "timed", "recorded"),
    [
        ("spmv_csr", 6, 6),
        ("softmax", 16, 16),
        ("merge_attn_states", 12, 12),
        ("stencil_2d", 9, 9),
        ("conv_1d", 20, 20),
        ("conv_1d", 20, 10),
    ],
)
def test_of_profiles_of_an_h200_too(prompt_size: ModuleType, task: str, timed: int, recorded: int) -> None:
    """Of a task with cases that were not recorded the saving is called a least one, and none against one case."""
    files = sorted((ROOT / "results" / "h200" / "full_profiles").glob(f"{task}-fp32-*.txt"))
    assert len(files) == timed
    profiles = [(prompt_size.NAME.fullmatch(file.name)["case"], file.read_text()) for file in files]
    heaviest = max(cards.load(task).cases, key=lambda case: case.weight if case.sweep else 0).label
    whole = recorded == timed
    kept = profiles if whole else [(case, text) for case, text in profiles if case != heaviest][:recorded]
    found = prompt_size.measured(task, Precision.FP32, kept, len)
    assert (found.recorded, found.timed) == (recorded, timed)
    assert found.filtered.whole.tokens < 0.7 * found.all_cases.whole.tokens
    lines = prompt_size.table_rows(task, found)
    assert [line[1] for line in lines] == (["one case", f"all {timed} cases"] if whole else ["10 of 20 cases"])
    assert lines[-1][-1].startswith("at least ") == (not whole)
    with pytest.raises(SystemExit, match="N=3 is none of its timed cases"):
        prompt_size.measured(task, Precision.FP32, [("N=3", kept[0][1])], len)
