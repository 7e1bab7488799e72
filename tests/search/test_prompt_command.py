"""Holds `cudamaster prompt` to what a role would be asked about a kernel at hand, of any strategy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asked_prompts import shown
from click.testing import CliRunner
from recorded_runs import baseline
from search_stand_ins import dot_product

from cudamaster.cli import main
from cudamaster.core.values import Precision
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region


@pytest.mark.parametrize("role", ["planner", "coder", "compiler"])
def test_the_baseline_before_anything_was_measured(role: str) -> None:
    """The whole text of the baseline, as the search starts from it, and an estimate of the tokens."""
    result = shown("spmv_csr", "--role", role, "--precision", "bf16", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert baseline("spmv_csr", "bf16").code.rstrip() in result.stdout
    assert ("It has not been measured." in result.stdout) == (role == "planner")
    whole = json.loads(shown("spmv_csr", "--role", role, "--precision", "bf16", "--device", "cpu", "--json").stdout)
    assert [message["role"] for message in whole["messages"]] == ["system", "user"]
    assert whole["characters"] == sum(len(message["content"]) for message in whole["messages"])
    assert whole["tokens_estimate"] == pytest.approx(whole["characters"] / 4, abs=1)
    assert f"{whole['characters']:,} characters" in result.stdout


def test_a_kernel_that_fails_is_shown_to_debug_and_to_nobody_else(tmp_path: Path) -> None:
    """The Coder is asked to mend it, the Planner is never asked about it."""
    file = tmp_path / "k.cu"
    file.write_text(dot_product("totl += X[i];"))
    told = shown("dot_product", "--role", "debug", "--candidate", file, "--device", "cpu")
    assert "Status: compile_error" in told.stdout
    assert "totl" in told.stdout
    assert "## Fix to make" in shown("dot_product", "--role", "coder", "--candidate", file, "--device", "cpu").stdout
    refused = shown("dot_product", "--role", "planner", "--candidate", file, "--device", "cpu")
    assert refused.exit_code == 2
    assert "Take --role debug" in refused.stderr


@pytest.mark.slow
def test_judge_and_reviewer_see_the_kernel_beside_the_plain_one(tmp_path: Path) -> None:
    """The Judge in both of its modes; the Reviewer a kernel that is right, with its score."""
    broken, right = tmp_path / "broken.cu", tmp_path / "right.cu"
    broken.write_text(dot_product("totl += X[i];"))
    right.write_text(dot_product("total += X[i] * Y[i]; // mine"))
    plain = baseline_region(cards.load("dot_product"), Precision.FP32).strip()
    told = shown("dot_product", "--role", "judge", "--device", "cpu").stdout
    assert '"modification plan"' in told
    assert "There is no hardware profile" in told
    told = shown("dot_product", "--role", "judge", "--candidate", broken, "--device", "cpu").stdout
    assert '"minimal_fix_hint"' in told
    assert "Status: compile_error" in told
    assert plain in told
    told = shown("dot_product", "--role", "reviewer", "--candidate", right, "--device", "cpu").stdout
    assert "// mine" in told
    assert plain in told
    assert "Weighted speedup over the plain kernel" in told


@pytest.mark.slow
def test_the_coder_is_that_of_the_strategy(tmp_path: Path) -> None:
    """Of the baseline, and of a kernel at hand that is right or fails."""

    def told(strategy: str, *more: str | Path) -> str:
        result = shown("dot_product", "--role", "coder", "--device", "cpu", "--strategy", strategy, *more)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    broken, right = tmp_path / "broken.cu", tmp_path / "right.cu"
    broken.write_text(dot_product("totl += X[i];"))
    right.write_text(dot_product("total += X[i] * Y[i]; // mine"))
    assert "<the Planner's scheme>" in told("cudamaster")
    assert "There is one try" in told("sample")
    assert "## Latest kernel (failing)" in told("cudaforge", "--candidate", broken)
    assert "<the smallest fix>" in told("cudaforge", "--candidate", broken)
    assert "The one kernel to learn from" in told("contrastive")
    both = told("contrastive", "--candidate", right)
    assert both.count("### Kernel") == 2
    assert "// mine" in both


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--role", "planner"), "No task was given."),
        (("spmv_csr", "--role", "debug"), "failing kernels alone. Give one with --candidate FILE."),
        (("spmv_csr", "--role", "planner", "--strategy", "sample"), "The strategy sample asks no planner agent."),
        (("--role", "planner", "--run", "x", "--strategy", "sample"), "give no TASK, and no options but"),
        (("spmv_csr", "--role", "reviewer"), "have a score alone. Give one with --candidate FILE."),
        (("spmv_csr", "--role", "planner", "--round", "1"), "Give --run RUN with --round."),
        (("spmv_csr", "--role", "planner", "--command", "nvcc"), "Give the kernel with --candidate FILE."),
        (("spmv_csr", "--role", "planner", "--run", "x"), "give no TASK"),
        (("--role", "planner", "--run", "x"), "There is no run in x."),
        (("nothing", "--role", "planner"), "Unknown task 'nothing'."),
    ],
)
def test_what_makes_no_prompt_is_refused_with_the_fix(arguments: tuple[str, ...], said: str) -> None:
    result = shown(*arguments, *([] if "--run" in arguments else ["--device", "cpu"]))
    assert result.exit_code != 0
    assert said in result.stderr


@pytest.mark.parametrize("more", [["--precision", "bf16"], ["--device", "cpu"], ["--seed", "3"], ["relu"]])
def test_what_a_run_knows_is_not_asked_for_again(more: list[str], tmp_path: Path) -> None:
    """It would be passed over in silence."""
    done = CliRunner().invoke(main, ["prompt", "--role", "planner", "--run", str(tmp_path), *more])
    assert done.exit_code == 2
    assert "A run has its own task, precision, device" in done.output


def test_a_prompt_with_control_characters_drives_no_terminal(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(dot_product("total += X[i]; // \x1b[31m"))
    result = shown("dot_product", "--role", "debug", "--candidate", file, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert "\x1b[31m" not in result.stdout
    assert "\\x1b[31m" in result.stdout
