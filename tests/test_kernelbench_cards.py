"""Tasks of problems in KernelBench's form, as far as no PyTorch is needed: cards, texts, the rough model, tables."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from report.scored_results import report, scored

from cudamaster.build import card_check, eager
from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.errors import CardError, DeviceError, UsageError
from cudamaster.core.values import Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.faults.compute_sanitizer import Tool
from cudamaster.kernelbench import suite_folder, writing
from cudamaster.kernelbench.problem import Problem
from cudamaster.modelling import eager as model
from cudamaster.modelling import gpu
from cudamaster.modelling.constants import shipped
from cudamaster.report import against_eager
from cudamaster.tasks import cards, folders, harness, held_out, task_suites
from cudamaster.tasks.cards import TaskCard
from cudamaster.workbench.evaluation import Workbench

EXAMPLE = Path(__file__).parent.parent / "examples" / "kernelbench" / "linear_gelu.py"


def tensor(name: str, shape: list[Any], low: float, high: float, **more: Any) -> dict[str, Any]:
    spread = (high - low) / 12**0.5
    told = {"name": name, "shape": shape, "contiguous": True, "dtype": "float32", "min": low, "max": high,
            "whole": False}  # fmt: skip
    return {**told, "mean": (low + high) / 2, "std": spread, **more}


# What bench/pytorch/read.py prints of a problem.
TOLD: dict[str, Any] = {
    "training": True,
    "sizes": {"x_dim0": {"given": 4096, "low": 1, "of": "x", "dim": 0}},
    "inputs": [tensor("x", ["x_dim0", 96], 0.0, 1.0), {"name": "scale", "value": 0.5}, {"name": "mode", "value": None}],
    "state": [
        tensor("linear_weight", [64, 96], -0.1, 0.1, path="linear.weight", kind="parameter"),
        tensor("norm_weight", [64], 1.0, 1.0, path="norm.weight", kind="parameter"),
    ],
    "outputs": [{"shape": ["(x_dim0 + 1) // 2", 64], "dtype": "float32"}],
    "unused": ["norm.num_batches_tracked"],
    "faults": [{"kind": "near zero", "words": "all elements lie near zero"}],
    "operations": 4096 * 96 * 64,
    "operators": ["addmm", "gelu"],
}


def written(folder: Path, **changed: Any) -> TaskCard:
    problem = Problem(EXAMPLE, EXAMPLE.read_text(), {**TOLD, **changed})
    return writing.write(problem, suite_folder.opened(folder / "level 1", None), "linear_gelu", 3).card


def test_the_wrapper_has_the_documented_order(tmp_path: Path) -> None:
    """Tensors, scalars, the module's state, outputs, sizes; what forward takes beside numbers is not passed."""
    card = written(tmp_path)
    assert card.declaration(Precision.FP32) == (
        'extern "C" void linear_gelu_optimized(const float* x, float scale, const float* linear_weight, '
        "const float* norm_weight, float* out, int x_dim0)"
    )
    assert (card.precisions, card.is_eager, card.truth) == ((Precision.FP32,), True, "python")
    assert [case.label for case in card.cases if case.sweep] == ["x_dim0=4096"]
    assert min(case.values["x_dim0"] for case in card.cases) == 1
    assert "mode" in card.summary
    assert "num_batches_tracked" in card.summary
    assert "Known fault: all elements lie near zero." in card.summary


def test_inputs_are_drawn_as_the_problem_draws_them_and_no_parameter_is_known_before(tmp_path: Path) -> None:
    card = written(tmp_path)
    # A weight of ones would be known to a kernel.
    assert card.inputs == (
        "uniform(x, 0, 1)",
        "uniform(linear_weight, -0.1, 0.1)",
        "uniform(norm_weight, 0.9, 1.1)",
    )
    normal = tensor("x", ["x_dim0", 96], -4.4, 4.5, mean=0.01, std=1.0)
    assert written(tmp_path / "b", inputs=[normal]).inputs[0] == "uniform(x, -3, 3)"
    whole = tensor("x", ["x_dim0", 96], 0, 9, dtype="int32", whole=True)
    assert written(tmp_path / "c", inputs=[whole]).inputs[0] == "integers(x, 0, 9)"


def test_held_out_sizes_are_drawn_where_the_problem_allows_it(tmp_path: Path) -> None:
    card = written(tmp_path)
    small = {case.values["x_dim0"] for case in held_out.draw(card, 1)}
    large = {case.values["x_dim0"] for case in held_out.draw(card, 1, largest=True)}
    assert max(small) < 100 < 2500 < min(large)
    assert {case.values["scale"] for case in held_out.draw(card, 1)} != {0.5}
    fixed = written(tmp_path / "b", sizes={}, inputs=[tensor("x", [8, 96], 0.0, 1.0)], outputs=[
        {"shape": [8, 64], "dtype": "float32"}])  # fmt: skip
    assert "No size can be another" in fixed.summary
    assert "int" not in fixed.declaration(Precision.FP32)


def test_an_input_that_indices_choose_from_need_not_be_read(tmp_path: Path) -> None:
    row = tensor("row", ["x_dim0"], 0, 95, dtype="int64", whole=True)
    assert written(tmp_path / "whole").floor.bytes_read != "0"
    assert written(tmp_path / "rows", inputs=[*TOLD["inputs"], row]).floor.bytes_read == "0"
    assert written(tmp_path / "best", operators=["argmax", "index_select"]).floor.bytes_read == "0"


def test_agents_see_the_module_and_a_search_starts_from_the_skeleton(tmp_path: Path) -> None:
    card = written(tmp_path)
    assert "class Model(nn.Module):" in card.describe(Precision.FP32)
    start = harness.baseline_region(card, Precision.FP32)
    # An untouched skeleton is a kernel that gives zeros, and no PyTorch.
    assert start.endswith(skeleton := harness.skeleton(card, Precision.FP32))
    assert start != skeleton
    assert "// class Model(nn.Module):" in harness.render(card, Precision.FP32)
    wired = eager.wiring(card, Precision.FP32, "cuda", [])
    assert [each["name"] for each in wired["buffers"] if each["output"]] == ["out"]
    assert wired["buffers"][0]["shape"] == ["x_dim0", "96"]
    assert wired["scalars"] == ["scale", "x_dim0"]


def test_a_buffer_of_a_type_that_pytorch_lacks_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path).folder / "tasks" / "linear_gelu.yaml"
    file.write_text(file.read_text().replace("type: T", "type: unsigned int", 1))
    with pytest.raises(CardError, match="no elements of type unsigned int"):
        cards.load(str(file))


@pytest.mark.parametrize(("module", "said"), [("x = (", "it is no Python"), ("x = 1", "it declares no class Model")])
def test_check_reads_the_module(tmp_path: Path, module: str, said: str) -> None:
    card = written(tmp_path)
    assert card_check.check(card.source).problems == ()
    card.reference_path.write_text("try:\n    def reference(): pass\nexcept OSError:\n    raise\n")
    card.baseline_path(Precision.FP32).write_text(module)
    (problem,) = card_check.check(card.source).problems
    assert problem.what.startswith(said)


def test_what_takes_a_kernel_alone_refuses_what_stands_for_pytorch(tmp_path: Path) -> None:
    bench = Workbench(written(tmp_path), Precision.FP32, CpuDevice())
    with pytest.raises(UsageError, match="stands for the baseline of linear_gelu"):
        bench.by_paper(bench.baseline)
    with pytest.raises(UsageError, match="no kernel of the task's own"):
        bench.sanitize(bench.baseline, tuple(Tool))


def test_a_card_of_before_keeps_its_hash() -> None:
    assert "baseline_by" in cards.load("relu")._unused


def test_what_no_card_can_say_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    many = [tensor(f"w{k}", [2], 0.0, 1.0, path=f"w.{k}", kind="parameter") for k in range(80)]
    with pytest.raises(CardError, match="would have 84 parameters"):
        written(tmp_path, state=many)
    with pytest.raises(CardError, match="complex64"):
        written(tmp_path, outputs=[{"shape": [2], "dtype": "complex64"}])
    assert list((tmp_path / "level 1" / "tasks").iterdir()) == []


def test_eager_pytorch_may_be_off_by_what_its_operators_round(tmp_path: Path) -> None:
    def sound(**changed: Any) -> float:
        return next(p.sound for p in written(tmp_path, **changed).parameters if p.role == "output")

    assert sound() == 1e-4
    assert sound(operators=["convolution", "relu"]) == 2e-3  # by cuDNN, in TF32
    short = [{**TOLD["outputs"][0], "dtype": "bfloat16"}]
    assert (sound(outputs=short), sound(outputs=short, operators=["addmm"])) == (2e-2, 1e-4)


def test_names_of_tasks_and_suites(tmp_path: Path) -> None:
    assert writing.task_name(Path("1_Square Matmul_.py")) == "kb_1_square_matmul"
    assert writing.task_name(Path("softmax.py")) == "kb_softmax"
    assert writing.task_name(Path("Mine.py")) == "mine"
    folder = suite_folder.opened(tmp_path / "level 1", None)
    assert "name: level_1" in (folder / "suite.yaml").read_text()
    assert folders.id_for(folder, "any") == 1


def test_a_suite_among_ones_own_tasks_has_a_folder_and_no_other_ones_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(resources.DATA, str(tmp_path))
    own = tmp_path / "tasks"
    assert suite_folder.opened(None, "level 1") == suite_folder.opened(None, "level 1") == own / "level_1"
    assert suite_folder.opened(None, None) == own
    # Of those that are named, the first, as for `new`; a folder with tasks keeps its name.
    (tmp_path / "named" / "tasks").mkdir(parents=True)
    with monkeypatch.context() as place:
        place.setenv(resources.TASKS, f"{tmp_path / 'named'}:{own}")
        assert suite_folder.opened(None, None) == folders.default() == tmp_path / "named"
        assert not (tmp_path / "named" / "suite.yaml").exists()
    assert [suite.name for suite in task_suites.every()][-2:] == ["mine", "level_1"]
    assert task_suites.named("level_1").folder == own / "level_1"
    for name in ("mine", "HGEMM", "level_1"):
        with pytest.raises(UsageError, match=f"cannot have the name {name}"):
            suite_folder.opened(tmp_path / "problems" / name, None)
    with pytest.raises(UsageError, match="tasks"):
        suite_folder.opened(None, "tasks")
    assert not (tmp_path / "problems").exists()


def test_a_python_without_pytorch_is_named_with_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(DeviceError, match=r"pip install 'cudamaster\[torch\]'"):
        eager.torch_of(str(bare))
    done = CliRunner().invoke(main, ["import", "kernelbench", str(EXAMPLE), "--into", str(tmp_path / "t"),
                                     "--python", str(bare)])  # fmt: skip
    assert done.exit_code == 4
    assert "No module named 'torch'" in done.output


def test_the_rough_time_of_an_operator() -> None:
    """Bytes by bandwidth or operations by the peak, whichever takes longer; the host pays for each operator."""
    h200 = gpu.load("h200")
    moving = model.Operator("add", 4_580_000_000, 0, 1, False)
    assert model.device_us(moving, Precision.FP32, h200) == pytest.approx(1000)
    product = model.Operator("mm", 0, 0, 10**12, True)
    fp32, bf16 = (model.device_us(product, precision, h200) for precision in (Precision.FP32, Precision.BF16))
    assert 10 < fp32 / bf16 < 20
    convolution = replace(product, name="convolution")  # in TF32 by default
    assert fp32 > model.device_us(convolution, Precision.FP32, h200) > bf16
    small = model.Operator("add", 4, 4, 1, False)
    one, four = (model._call("x", [small] * count, Precision.FP32, h200).whole_us for count in (1, 4))
    assert four - one > 3 * shipped().constants.dispatch_us
    assert one > h200.figures.empty_call_us


def test_the_table_against_eager_pytorch() -> None:
    """Columns of CUDA-L1's and CudaForge's tables; tasks with another baseline are in none of them."""
    of_suite = {"category": "any", "suite": "mine", "baseline_by": "pytorch"}
    results = [scored("a", 1.005, **of_suite), scored("b", 2.5, **of_suite), scored("c", None, **of_suite),
               scored("d", 0.7, **of_suite)]  # fmt: skip
    (table,) = against_eager.tables(report(*results, scored("kernel", 9.0, suite="mine")))
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (cells["tasks"], cells["success"]) == ("4", "75%")
    assert (cells["> 1.01"], cells["> 1"]) == ("25%", "50%")
    assert [cells[f"fast_{p}"] for p in ("0", "0.5", "0.8", "1", "1.5", "2")] == [
        "75%", "75%", "50%", "50%", "25%", "25%",
    ]  # fmt: skip
    assert (cells["max"], cells["50 %"]) == ("2.50", "1.00")
    assert against_eager.tables(report(scored("relu", 2.0))) == ()
