"""All fifty tasks on the CPU device: baselines and references against NumPy, playbook steps against the references.

Everything runs at the verification sizes: the baselines of one precision under AddressSanitizer, playbook steps of
every task in the builds that test_playbook_steps_are_right names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from plain_device import PlainCpuDevice
from small_cards import precision_tried

import cudamaster
from cudamaster.build.building import Builder
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, Status
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Compiled, ObserverKind
from cudamaster.faults.finding import FaultFinder
from cudamaster.judging.judge_process import Trial, Trials
from cudamaster.judging.verdicts import judge, parse
from cudamaster.models.playbook import PlaybookModel, merged
from cudamaster.tasks import cards
from cudamaster.tasks.cards import Case, TaskCard

if TYPE_CHECKING:
    from numpy_oracles.form import Oracle

EVERY = [
    pytest.param(task, precision, id=f"{task}-{precision}")
    for task in cards.names()
    for precision in BENCHMARK_PRECISIONS
]
OF_EACH_CATEGORY = [
    "relu-bf16", "sorting-fp32", "dot_product-bf16", "silu_and_mul-fp32", "hinge_loss-bf16", "layer_norm-bf16",
    "spmv_csr-bf16", "stencil_2d-fp32", "reverse_array-bf16",
]  # fmt: skip
# The work of a case (its card's weight) up to which all checkers look at the playbook steps of a task, where that is
# not all cases: heavier ones would take most of the time.
LIGHT = {
    "softmax_attention": 1.2e5,
    "triangle_attention": 2.9e5,
    "matrix_power": 6e5,
    "matrix_mul": 8e4,
    "high_order_contraction": 3e5,
    "square_matrix_mul": 1.2e6,
    "conv_2d": 2.5e6,
    "spmm_coo": 2e4,
    "spmm_csc": 5e4,
    "spmm_csr": 2e4,
    "spmm_ell": 5e4,
    "spmv_coo": 50,
}
# Heavier cases at which a step launches kernels that it launches at no light one, by the step's number. A later step
# has the kernels of the first one unchanged, so here are only those of its own.
ALONE = {
    ("matrix_mul", 1): ["M=3850,N=70,K=5", "M=7561,N=131,K=3", "M=7688,N=8,K=72", "M=15240,N=8,K=40"],
    ("softmax_attention", 1): [
        "q_seq_len=3,kv_seq_len=7,dim_qk=5,dim_v=12301",
        "q_seq_len=128,kv_seq_len=16389,dim_qk=2,dim_v=1",
    ],
    ("softmax_attention", 2): [
        "q_seq_len=2,kv_seq_len=4099,dim_qk=8,dim_v=24",
        "q_seq_len=64,kv_seq_len=64,dim_qk=64,dim_v=64",
        "q_seq_len=130,kv_seq_len=65,dim_qk=100,dim_v=132",
    ],
    ("triangle_attention", 1): [
        "batch_size=1,head_num=1,seq_length=40,head_dim=257",
        "batch_size=2,head_num=1,seq_length=65,head_dim=65",
    ],
    ("triangle_attention", 2): [
        "batch_size=2,head_num=1,seq_length=65,head_dim=65",
        "batch_size=1,head_num=1,seq_length=129,head_dim=128",
    ],
    ("triangle_attention", 3): ["batch_size=1,head_num=1,seq_length=129,head_dim=128"],
    ("matrix_power", 2): ["N=65,P=9"],
    ("high_order_contraction", 1): [
        "a_dim=16,b_dim=16,c_dim=16,x_dim=16,y_dim=16",
        "a_dim=123,b_dim=124,c_dim=65,x_dim=3,y_dim=1",
        "a_dim=120,b_dim=127,c_dim=72,x_dim=1,y_dim=8",
    ],
    ("high_order_contraction", 2): ["a_dim=96,b_dim=89,c_dim=24,x_dim=2,y_dim=8,outliers=16777216"],
    ("square_matrix_mul", 2): ["M=200"],
    # Rows that a whole block shares, and columns beyond the slab or of several chunks.
    ("spmm_coo", 2): ["rows=500,K=64,nnz=3001,heavy_rows=1"],
    ("spmm_csr", 2): ["rows=500,K=64,nnz=3001,heavy_rows=1"],
    ("spmm_csc", 2): ["columns=4099,rows=100,K=100"],
    ("spmm_ell", 2): ["cols=1025,rows=64,K=64,nnz=1500,heavy_rows=1", "cols=2049,rows=127,K=128"],
    # Every case is 128 blocks of 1024 threads for step 2. Heavy rows are more than a block can send in place.
    ("spmv_coo", 1): ["rows=1009,nnz=1010", "rows=1023,empty_rows=1", "rows=4099,nnz=70001,heavy_rows=1"],
    ("spmv_coo", 2): ["rows=257,nnz=3000,heavy_rows=3", "rows=4099,nnz=70001,heavy_rows=1"],
}
# Tasks with a step that has a block of many threads for each multiprocessor, however little there is to do.
OF_WHOLE_GPUS = {"spmm_coo", "spmm_csc", "spmm_csr", "spmm_ell", "spmv_coo", "spmv_csc"}
# Tasks in which the numbers of an input say where a kernel reads or writes. Elsewhere sizes alone do: there all
# checkers look at one set of inputs of a case, and the plain build has three.
PLACES_BY_NUMBERS = {task for task in cards.names() if cards.load(task).category == "sparse"} | {"sorting", "top_k"}
PLAYBOOK = Path(cudamaster.__file__).parent / "playbook"
# Both sides compute in double precision, each in its own order.
AGREEMENT = 1e-12


def oracles() -> Mapping[str, Oracle]:
    """By task; only a test that asks for them waits for SciPy."""
    from numpy_oracles import ORACLES

    return ORACLES


def test_of_each_category_a_task_is_tried_in_the_short_tests_too() -> None:
    named = {one.rpartition("-")[0] for one in OF_EACH_CATEGORY}
    assert {cards.load(name).category for name in named} == {cards.load(name).category for name in cards.names()}


def test_heavy_cases_that_are_named_exist() -> None:
    """Each is a verification case that LIGHT leaves out, of a step that there is."""
    assert {task for task, _ in ALONE} <= set(LIGHT) <= set(cards.names())
    for (task, number), labels in ALONE.items():
        heavy = {case.label for case in cards.load(task).cases if not case.sweep and case.weight > LIGHT[task]}
        assert set(labels) <= heavy, task
        assert any(len(PlaybookModel().steps(task, precision.value)) >= number for precision in BENCHMARK_PRECISIONS), (
            task
        )


def test_the_suite_is_whole() -> None:
    """Fifty tasks, 419 timed cases, an expression in NumPy for each."""
    loaded = [cards.load(name) for name in cards.names()]
    assert [card.id for card in loaded] == list(range(1, 51))
    assert sum(case.sweep for card in loaded for case in card.cases) == 419
    assert set(oracles()) == {card.name for card in loaded}


@pytest.mark.slow(but=OF_EACH_CATEGORY)
@pytest.mark.parametrize(("task", "precision"), EVERY)
def test_baseline_reference_and_numpy_agree(task: str, precision: Precision, tmp_path: Path) -> None:
    """The baseline lies within its bound of the reference, and the reference is what NumPy makes of the same inputs.

    The baseline of one precision runs under AddressSanitizer, in turn: that of the other differs in its types.
    """
    card, device = cards.load(task), CpuDevice()
    builder = Builder(card, precision, device)
    request = JudgeRequest(
        judge=(str(builder.judge()),),
        baseline=(str(builder.baseline_worker(debug=precision is precision_tried(task))), "--exact"),
        cases="verify",
        calls=0,
        baseline_only=True,
        others=("--dump", str(tmp_path)),
    )
    report = tmp_path / "report.jsonl"
    ran = device.run(request, report, 300)
    verify = [case for case in card.cases if not case.sweep]
    judged = judge(parse(report.read_text()), ran, verify)
    assert judged.status is Status.CORRECT, judged.detail
    assert len(judged.cases) == len(verify) >= 8
    for index, case in enumerate(verify):
        _hold_against_numpy(card, precision, case, tmp_path, index)


def _hold_against_numpy(card: TaskCard, precision: Precision, case: Case, folder: Path, index: int) -> None:
    sizes = {name: _rounded(card, name, value, precision) for name, value in case.values.items()}
    inputs = {}
    for p in card.parameters:
        if p.role in ("input", "inout"):
            numbers = np.fromfile(folder / f"{index}.{p.name}.input")
            inputs[p.name] = numbers.astype(np.int64) if p.type == "int" else numbers
    with np.errstate(over="ignore", under="ignore"):  # exp of large magnitudes
        outputs = oracles()[card.name](sizes, inputs)
    assert set(outputs) == {p.name for p in card.parameters if p.role in ("output", "inout")}
    for name, expected in outputs.items():
        wanted = np.fromfile(folder / f"{index}.{name}.wanted").astype(np.int64)
        value, scale = (np.fromfile(folder / f"{index}.{name}.{part}") for part in ("value", "scale"))
        expected = np.asarray(expected, dtype=np.float64)[wanted]
        differs = expected != value  # an infinity equals itself
        off = np.zeros_like(value)
        scales = np.maximum(scale, np.abs(value) + 1e-300)[differs]
        off[differs] = np.abs(expected[differs] - value[differs]) / scales
        assert np.all(off <= AGREEMENT), (case.label, name, int(np.argmax(off)), float(np.max(off)))
        assert np.all(scale >= 0)


def _rounded(card: TaskCard, name: str, value: float, precision: Precision) -> float:
    """A size as the wrapper gets it: scalar parameters are rounded to their type."""
    kind = next((p.element_type(precision) for p in card.parameters if p.name == name), None)
    if kind == "float":
        return float(np.float32(value))
    if kind == "__nv_bfloat16":
        bits = np.float32(value).view(np.uint32)
        return float((((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32))
    return value


def whatever_the_size(code: str) -> str:
    """A step as it would be if it took no size for too small.

    A kernel that is worthwhile for large sizes alone leaves the others to an earlier step's. Its thresholds are called
    kMany and what there are many of; the verification cases lie below them.
    """
    return re.sub(r"(?m)^(constexpr int kMany\w+ = )\d+;", r"\g<1>0;", code)


def forms(code: str) -> list[str]:
    """A step whatever the size, and if it has a kernel of its own for small sizes, also as it is with that for all."""
    plain = whatever_the_size(code)
    small, found = re.subn(r"(?m)^(constexpr long long kFewResults = )[^;]+;", r"\g<1>0;", plain)
    return [plain, small] if found else [plain]


def test_thresholds_are_taken_away_where_there_are_any() -> None:
    steps = {path: path.read_text("utf-8") for path in PLAYBOOK.rglob("*_slabs_in_shared_memory.cu")}
    assert len(steps) == 8
    for path, code in steps.items():
        plain = whatever_the_size(code)
        assert len(re.findall(r"constexpr int kMany\w+ = 0;", plain)) == code.count("constexpr int kMany") >= 2, path
        assert len(forms(code)) == (2 if "spmm_csr" in str(path) or "spmm_coo" in str(path) else 1), path
    assert whatever_the_size("constexpr int kThreads = 256;") == "constexpr int kThreads = 256;"


class SmallDevice(CpuDevice):
    """With few multiprocessors: a kernel with a block for each has few blocks, each with several pieces of work.

    The verification cases are too small for that on a whole GPU, and its idle blocks would take most of the time.
    """

    multiprocessors = 6


class AlignmentOnceDevice(CpuDevice):
    """Its checker of threads leaves misaligned accesses to the memory checker, which looks at the same ones.

    Looking for them takes two thirds of the compilation of the checker's build, which has a name of its own here.
    """

    def observer_fingerprint(self, observer: ObserverKind) -> str:
        """Another one than that of whole builds."""
        return f"{super().observer_fingerprint(observer)}-without-alignment"

    def compile_observed(
        self, source: str, flags: Sequence[str], name: str, folder: Path, observer: ObserverKind
    ) -> Compiled:
        """As the device does, without that flag."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(toolchain, "_ALIGNMENT", ())
            return super().compile_observed(source, flags, name, folder, observer)


class LightTrials(Trials):
    """Trials on light cases alone, and on those of `also`.

    They are asked for by their sizes, so that the judge is the one that is built for all cases.
    """

    also: Collection[str] = ()
    sets: int | None = None  # of inputs, for each case

    def verification(self, seed: int) -> list[Case]:
        """Those cases. One that is asked for by its sizes counts as held out."""
        light = LIGHT.get(self._card.name, math.inf)
        cases = (case for case in super().verification(seed) if case.weight <= light or case.label in self.also)
        return [case.model_copy(update={"held_out": True}) for case in cases]

    def verifying(
        self, candidate: Sequence[str], seed: int, *, first_failure: bool = False, reversed_threads: bool = False
    ) -> Trial:
        """The trial on them."""
        trial = super().verifying(candidate, seed, first_failure=first_failure, reversed_threads=reversed_threads)
        return replace(trial, request=replace(trial.request, cases="none", sets=self.sets))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "precision"), EVERY)
def test_playbook_steps_are_right(task: str, precision: Precision) -> None:
    """Every step passes the guards and is right on every verification case; each task and precision has one.

    Thresholds below which a step leaves sizes to an earlier one's kernels are taken away. A step with a kernel
    for small sizes alone is tried in both forms.
    All cases run as on a GPU, built with all optimisation; the heavy ones of a few tasks run in one precision of an
    idea that both have. Under AddressSanitizer and the check of alignment with threads in reversed order, and under the
    checker of threads, run all cases but the heavy ones of a few tasks, and of these at least one for each kernel, with
    few multiprocessors where a step has a block for each. An idea that both precisions have is looked at so in one of
    them, in turn. Where no number of the inputs says where a kernel reads or writes, they look at one set of inputs.
    """
    card = cards.load(task)
    (other,) = set(BENCHMARK_PRECISIONS) - {precision}
    steps = PlaybookModel().steps(task, precision.value)
    twins = {step.idea for step in PlaybookModel().steps(task, other.value)}
    assert steps
    for number, step in enumerate(steps, 1):
        checked = precision is precision_tried(task) or step.idea not in twins
        device = AlignmentOnceDevice() if checked else PlainCpuDevice()
        builder, few = Builder(card, precision, device), SmallDevice() if task in OF_WHOLE_GPUS else device
        for form, code in enumerate(forms(step.code)):
            candidate = Candidate(task, precision, code, merged(device.default_command, step.flags))
            build = builder.build(candidate)
            assert build.status is None, (step.idea, build.detail, build.log)
            light, looking = (LightTrials(card, builder, few, device.protocol, calls=0, seed=None) for _ in range(2))
            light.also = looking.also = ALONE.get((task, number), ())
            looking.sets = None if task in PLACES_BY_NUMBERS else 1
            seed = light.draw_seed()
            kind = Trials if checked else LightTrials
            plain = light if form else kind(card, builder, device, device.protocol, calls=0, seed=None)
            judged = [plain.run(plain.verifying([str(build.worker)], seed))]
            if checked:
                debug = looking.verifying([str(build.debug), "--exact"], seed, reversed_threads=True)
                judged.append(looking.run(debug))
                looked = FaultFinder(builder, few, looking).look(candidate, seed)
                assert looked is not None
                assert not looked.found, (step.idea, looked.found)
                judged.append(looked.judgement)
            for judgement in judged:
                assert judgement.status is Status.CORRECT, (step.idea, form, judgement.detail, judgement.log)


@pytest.mark.parametrize("task", cards.names())
def test_floors_fit_the_declared_buffers(task: str) -> None:
    """No more has to be read than there is to read, everything written is an output, and no figure is negative."""
    card = cards.load(task)
    for case in card.cases:
        for precision in BENCHMARK_PRECISIONS:
            floor = card.floor_of(case, precision)
            read, written = (card.buffer_bytes(case, precision, roles)
                             for roles in (("input", "inout"), ("output", "inout")))  # fmt: skip
            assert 0 <= floor["bytes_read"] <= read, case.label
            assert floor["bytes_written"] == written, case.label
            assert floor["operations"] >= 0
            if case.sweep:
                assert floor["bytes_read"] > 0


def test_every_reference_counts_its_work() -> None:
    """Where a timed case asks the reference for more than it can do in a blink, the card says what an element costs."""
    for name in cards.names():
        card = cards.load(name)
        for case in card.cases:
            for p in card.parameters:
                if case.sweep and p.role in ("output", "inout"):
                    unit, cost = card.reference_unit(p, case)
                    assert unit >= 1
                    # Four units at least are asked for on every call that is checked.
                    assert 4 * cost <= 3e8, (name, case.label, p.name)
