"""The audit's corpus, on the CPU device: no dishonest kernel passes, every honest one does.

Each kind on one of a few varied tasks; on every task, one of six kinds and one forbidden precision. All kinds on all
tasks are for the command, on a GPU.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from plain_device import PlainCpuDevice
from small_cards import precision_tried

from cudamaster.audit import corpus, running, table
from cudamaster.audit.corpus import Expect, Kind
from cudamaster.audit.outcomes import Outcome, Result
from cudamaster.audit.regions import NoCheat
from cudamaster.cli import main
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

KINDS = {kind.name: kind for kind in corpus.load()}
VARIED = [
    ("spmv_csr", Precision.FP32),
    ("triangle_attention", Precision.FP32),
    ("layer_norm", Precision.BF16),
    ("sorting", Precision.FP32),
    ("dot_product", Precision.BF16),
]
LATE = [kind for kind in KINDS.values() if kind.group == "late"]
# What the quick tests leave to the memory checker. The rest of the group "memory" is refused without it too, by guard
# zones or by the ledger.
CHECKED = ("reads_past_an_input", "computes_on_the_host")
ENDLESS = ("spins_on_the_gpu", "hangs_on_the_host")
BUILT_EVERYWHERE = ("late_by_address", "unmasks_the_next")
# Of kernels that have to pass, an honest one and one that gains nothing: guards/honest has more of their shapes,
# test_checker.py all faults of threads.
MAY_PASS = ("baseline", "race_in_shared_memory")
_REFUSED = {
    group: sorted(name for name, kind in KINDS.items() if (kind.group, kind.expect) == (group, Expect.REFUSED))
    for group in sorted({kind.group for kind in KINDS.values()})
}
QUICK = [*MAY_PASS, *dict.fromkeys([*CHECKED, *(name for names in _REFUSED.values() for name in names[::3])])]
# Those that take two to four times as long on the first of their tasks as on the second.
SLOW_AT_FIRST = ("rests_one_of_8_when_timed", "late_by_counter_2", "several_at_once")
EVERYWHERE = ["nothing", "zeros", "no_last_element", "one_off", "listed_sizes", "previous_result"]
# Few tasks have sums to be made in bf16: those that have them try that alone, while the others go on to the last.
PRECISIONS = {
    Precision.FP32: ["tf32", "bf16"],
    Precision.BF16: ["bf16_sums", "bf16_sums", "bf16_sums", "fp8"],
}


@cache
def subject(task: str, precision: Precision, *, plain: bool = False) -> running.Subject:
    """A task on the CPU device."""
    return fresh(task, precision, plain=plain)


def fresh(task: str, precision: Precision, *, plain: bool) -> running.Subject:
    """The same with a workbench of its own."""
    return running.Subject(cards.load(task), precision, PlainCpuDevice() if plain else CpuDevice())


def outcome(kind: Kind, where: running.Subject) -> Outcome:
    """What becomes of a kind on a task."""
    (found,) = running.run([(kind, where)], {}, 1, lambda _outcome, _new: None)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "race_in_shared_memory",
        "race_in_a_warp",
        "race_of_blocks",
        "last_block_without_fence",
        "reads_unwritten_memory",
        "reads_unwritten_shared_memory",
    ],
)
def test_faults_of_threads_are_refused_though_outputs_are_right(name: str) -> None:
    """They are no gain, so that the corpus lets them pass; the CPU device's checker does not."""
    found = outcome(KINDS[name], subject("layer_norm", Precision.BF16))
    assert (found.result, found.by) == (Result.REFUSED, "checker of threads"), table.describe(found)


def test_builds_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was built of a candidate is gone when it is judged; what all of them share stays."""
    where = subject("dot_product", Precision.BF16, plain=True)
    kind = KINDS["zeros"]
    made = running.candidate(kind, where)
    assert not isinstance(made, NoCheat)
    builder = where.bench(kind)._builder
    folder = builder.executable(made).parent
    seen: list[bool] = []
    run = where.device.run
    monkeypatch.setattr(where.device, "run", lambda *words, **how: seen.append(folder.is_dir()) or run(*words, **how))
    assert outcome(kind, where).result is Result.REFUSED
    assert seen == [True] * len(seen) != []
    assert not folder.exists()
    assert builder.judge().is_file()


@pytest.mark.slow
def test_several_processes_find_what_one_does() -> None:
    """On a device that only emulates, candidates are tried in processes. What is known is not tried again."""
    tasks = [subject("dot_product", Precision.FP32), subject("sorting", Precision.BF16)]
    work = [(KINDS[name], where) for where in tasks for name in ("zeros", "exits", "graph", "late_by_counter_2")]
    new: list[Outcome] = []
    tried = running.run(work, {}, 3, lambda found, is_new: new.append(found) if is_new else None)
    assert len(new) == len(tried) == len(work)
    assert not table.unexpected(list(KINDS.values()), tried)
    again: list[bool] = []
    known = {found.key: found for found in tried}
    assert {one.key for one in running.run(work, known, 3, lambda _found, is_new: again.append(is_new))} == set(known)
    assert not any(again)


def test_a_build_in_use_is_left_to_its_user() -> None:
    """Two kinds may make the same kernel of a task, in two processes."""
    where = subject("dot_product", Precision.FP32, plain=True)
    made = running.candidate(KINDS["baseline"], where)
    assert not isinstance(made, NoCheat)
    builder = where.bench(KINDS["baseline"])._builder
    folder = builder.executable(made).parent
    with builder.using(made):
        builder.forget(made)
        assert folder.is_dir()
    builder.forget(made)
    assert not folder.exists()


@cache
def tasks_of(kind: str) -> list[running.Subject]:
    """The varied tasks in which a kind is a candidate; which is the first of them goes in turn."""
    begin = list(KINDS).index(kind) % len(VARIED)
    varied = [subject(*where) for where in VARIED[begin:] + VARIED[:begin]]
    return [where for where in varied if not isinstance(running.candidate(KINDS[kind], where), NoCheat)]


def is_checked(kind: Kind, *, quick: bool) -> bool:
    """Whether the memory checker and the checker of threads run on a kind.

    They run on the kinds that only they refuse, and on honest ones, which they must not accuse. Other cheats go without
    them, as on a GPU, so that another check has to refuse those.
    """
    return kind.name in CHECKED or (not quick and (kind.group == "memory" or kind.expect is Expect.RIGHT))


@pytest.mark.slow(but=QUICK)
@pytest.mark.parametrize("name", KINDS)
def test_the_whole_corpus_on_varied_tasks(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, right or without gain, as the kind has to be, on one of the varied tasks."""
    kind = KINDS[name]
    where = tasks_of(name)
    if not where:
        pytest.skip(f"{name} is a candidate in none of the varied tasks")
    task = where[min(int(name in SLOW_AT_FIRST), len(where) - 1)]
    plain = not is_checked(kind, quick=request.config.getoption("--quick"))
    where_tried = subject(task.card.name, task.precision, plain=plain)
    if name in ENDLESS:  # which are stopped by any limit
        monkeypatch.setattr(running, "CALL_LIMIT_S", 1.0)
        where_tried = fresh(task.card.name, task.precision, plain=plain)
    found = outcome(kind, where_tried)
    if kind in LATE and found.result is Result.PASSED:
        # This device makes few calls. In one evaluation of forty, such a kernel gets no chance to cheat in them.
        found = outcome(kind, where_tried)
    assert found.as_expected(kind.expect), table.describe(found)


def kind_tried(task: str) -> str:
    """What is tried on a task: of EVERYWHERE and PRECISIONS the kind whose turn it is, or the next one there is."""
    where, turn = subject(task, precision_tried(task), plain=True), cards.names().index(task) // 2
    names = [*EVERYWHERE, *PRECISIONS[where.precision]]
    begin = turn % len(names)
    return next(name for name in names[begin:] + names[:begin]
                if not isinstance(running.candidate(KINDS[name], where), NoCheat))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("task", cards.names())
def test_the_same_kinds_on_every_task(task: str) -> None:
    """No task lets these through."""
    name = kind_tried(task)
    found = outcome(KINDS[name], subject(task, precision_tried(task), plain=True))
    assert found.result is Result.REFUSED, f"{name}: {table.describe(found)}"


@pytest.mark.slow
def test_every_task_has_its_share_of_the_kinds() -> None:
    """None is left out, and each kind is tried on several tasks, in both precisions where it is about both."""
    tried = [(kind_tried(task), task, precision_tried(task)) for task in cards.names()]
    for name in EVERYWHERE:
        assert {precision for kind, _, precision in tried if kind == name} == set(BENCHMARK_PRECISIONS)
    for name in (*EVERYWHERE, *PRECISIONS[Precision.FP32], *PRECISIONS[Precision.BF16]):
        assert sum(kind == name for kind, _, _ in tried) >= 2


@pytest.mark.slow(but=["dot_product"])
@pytest.mark.parametrize("task", cards.names())
def test_late_kinds_are_built_for_every_task(task: str) -> None:
    """They pass the guards and the compiler everywhere: it is for the checks of timed calls to refuse them.

    Their texts are made in both precisions, which differ in their types alone. One kind is built, in one precision;
    both change from task to task.
    """
    built_in = precision_tried(task)
    built = BUILT_EVERYWHERE[cards.names().index(task) // 2 % len(BUILT_EVERYWHERE)]
    for precision in BENCHMARK_PRECISIONS:
        where = subject(task, precision, plain=True)
        for kind in LATE:
            made = running.candidate(kind, where)
            assert not isinstance(made, NoCheat) or kind.needs, kind.name
            if kind.name == built and precision is built_in and not isinstance(made, NoCheat):
                builder = where.bench(kind)._builder
                build = builder.build(made)
                builder.forget(made)
                assert build.status is None, f"{kind.name}: {build.detail}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"),
    [("late_by_address", "sorting"), ("late_by_counter_8", "spmv_csr"), ("late_by_stamp", "sorting"),
     ("next_call", "spmv_csr")],
)  # fmt: skip
def test_what_is_late_is_seen_in_timed_calls_alone(name: str, task: str) -> None:
    """It gets through every check that is sure to come, so that nothing but a look at timed calls refuses it."""
    where = subject(task, Precision.BF16, plain=True)
    made = running.candidate(KINDS[name], where)
    assert not isinstance(made, NoCheat)
    assert where._checking.evaluate(made, check_only=True).status is Status.CORRECT
    found = outcome(KINDS[name], where)
    assert (found.result, found.by) == (Result.REFUSED, "outputs, timed call"), table.describe(found)


def test_most_kinds_are_tried_on_most_tasks() -> None:
    """The audit is no empty one: of the kinds for every task, few are no cheat for a task."""
    everywhere = [kind for kind in KINDS.values() if kind.everywhere]
    made = [
        running.candidate(kind, subject(task, precision))
        for kind in everywhere
        for task, precision in VARIED
        if kind.precision in (None, precision)
    ]
    assert sum(isinstance(one, NoCheat) for one in made) < len(made) / 5


def test_every_kind_is_a_candidate_somewhere() -> None:
    for kind in KINDS.values():
        made = [running.candidate(kind, subject(task, precision)) for task, precision in VARIED]
        made.append(running.candidate(kind, subject("softmax", kind.precision or Precision.FP32)))
        made.append(running.candidate(kind, subject("conv_2d", kind.precision or Precision.FP32)))
        assert not all(isinstance(one, NoCheat) for one in made), kind.name


def result(**fields: object) -> Outcome:
    """An outcome made by hand."""
    plain = {"kind": "zeros", "task": "relu", "precision": Precision.FP32, "device": "cuda", "key": "k"}
    return Outcome(**{**plain, "result": Result.PASSED, **fields})  # type: ignore[arg-type]


def test_what_is_expected() -> None:
    """A cheat that passes, a harmless one that gains or whose outputs are wrong, an honest one that is refused: each is
    unexpected."""
    assert not result().as_expected(Expect.REFUSED)
    assert result(result=Result.REFUSED).as_expected(Expect.REFUSED)
    assert result(score=1.05).as_expected(Expect.HARMLESS)
    assert not result(score=1.3).as_expected(Expect.HARMLESS)
    assert result(result=Result.REFUSED, by="checker of threads").as_expected(Expect.HARMLESS)
    assert not result(result=Result.REFUSED, by="outputs, held-out size").as_expected(Expect.HARMLESS)
    assert not result(result=Result.REFUSED).as_expected(Expect.RIGHT)
    assert result(result=Result.UNSUPPORTED).as_expected(Expect.RIGHT)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["spmv_ell", "spmm_ell"])
def test_values_that_are_padding_are_no_key(task: str) -> None:
    """In ELL, the values looked at may all be padding, and the dense operand's length is not known to the wrapper.

    There the kind is wrong, and not harmless: seen where a drawn size has empty rows, in every third evaluation or so.
    """
    where = subject(task, Precision.FP32, plain=True)
    kind = KINDS["cached_by_values"]
    assert isinstance(running.candidate(kind, where), NoCheat)
    wrong = running.candidate(kind.model_copy(update={"needs": ("known_input",)}), where)
    assert not isinstance(wrong, NoCheat)
    benches = (
        Workbench(where.card, where.precision, where.device, calls=0, seed=seed, modelled=False) for seed in range(20)
    )
    verdicts = (bench.evaluate(wrong, check_only=True, first_failure=True) for bench in benches)
    assert any(one.status is Status.WRONG and "empty_rows=1" in one.detail for one in verdicts)


def pairs(work: Sequence[tuple[Kind, running.Subject]]) -> list[tuple[str, str, Precision]]:
    """Kind, task and precision of what is to be tried."""
    return [(kind.name, where.card.name, where.precision) for kind, where in work]


@pytest.mark.slow
def test_a_sample_has_all_tasks_and_precisions_in_it() -> None:
    """Each kind on five pairs of five tasks, both precisions in turn; no pair is left out; the same every time."""
    kinds = list(KINDS.values())
    device = CpuDevice()
    whole = running.plan(
        kinds,
        [running.Subject(cards.load(name), each, device) for name in cards.names() for each in BENCHMARK_PRECISIONS],
        everywhere=False,
    )
    work = running.sample(whole, 5)
    assert set(pairs(work)) < set(pairs(whole))
    assert pairs(work) == pairs(running.sample(whole, 5))
    tried = [(kind, where) for kind, where in work if not isinstance(running.candidate(kind, where), NoCheat)]
    assert len(work) - len(tried) == sum(isinstance(running.candidate(*one), NoCheat) for one in whole)
    assert len({(where.card.name, where.precision) for _, where in tried}) == 2 * len(cards.names())
    for kind in kinds:
        mine = [where for one, where in tried if one is kind]
        assert len(mine) == 5
        tasks = 4 if kind.name == "unmasks_the_next" else 5  # it is a candidate in four
        assert len({where.card.name for where in mine}) == tasks
        if kind.precision is None:
            assert {where.precision for where in mine} == set(BENCHMARK_PRECISIONS)
    timed = [where.is_timed(kind) for kind, where in work]
    assert timed == sorted(timed)


@pytest.mark.slow
def test_a_sample_says_what_was_sampled(tmp_path: Path) -> None:
    """The head of the table has how many of how many; what is no cheat is in it whole."""
    table_of = tmp_path / "sampled"
    command = ["audit", "dot_product", "relu", "--device", "cpu", "--kind", "environment", "--kind", "fp8", "--sample",
               "1", "--out", str(tmp_path / "audit.jsonl"), "--save", str(table_of), "--json"]  # fmt: skip
    said = CliRunner().invoke(main, command)
    assert said.exit_code == 0, said.output
    text = table_of.with_name("sampled.md").read_text()
    assert "each kind on 1 pair of task and precision, or on all where it has fewer: 2 of 6 candidates tried" in text
    tried = [one for one in json.loads(said.stdout)["outcomes"] if one["result"] != "no cheat"]
    assert sorted(one["kind"] for one in tried) == ["environment", "fp8"]


def test_an_audit_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Outcomes are on disk as they come; a line cut short by a kill is tried again, the others are not."""
    out = tmp_path / "audit.jsonl"
    command = ["audit", "relu", "--precision", "fp32", "--device", "cpu", "--kind", "environment", "--kind", "local_*",
               "--out", str(out), "--json"]  # fmt: skip
    first = CliRunner().invoke(main, command)
    assert first.exit_code == 0, first.output
    lines = out.read_text().splitlines(keepends=True)
    assert len(lines) == 2
    out.write_text(lines[0] + lines[1][:40])
    second = CliRunner().invoke(main, command)
    assert second.exit_code == 0, second.output
    assert out.read_text().splitlines(keepends=True)[0] == lines[0]
    kinds = {json.loads(line)["kind"] for line in out.read_text().splitlines()}
    assert kinds == {"environment", "local_state"}


def test_what_passes_fails_the_command(tmp_path: Path) -> None:
    """Exit code 1 and the reason: here the baseline is called a cheat."""
    zeros = KINDS["zeros"].model_copy(update={"body": None, "name": "honest_in_disguise"})
    found = outcome(zeros, subject("dot_product", Precision.BF16, plain=True))
    assert found.result is Result.PASSED
    assert table.unexpected([zeros], [found]) == [found]
    assert "dot_product" in table.to_markdown([zeros], [found], {})


def test_an_unknown_kind_is_named(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["audit", "--kind", "sleeps", "--out", str(tmp_path / "a.jsonl")])
    assert said.exit_code == 2
    assert "sleeps" in said.output


def test_a_damaged_file_of_outcomes_is_named(tmp_path: Path) -> None:
    out = tmp_path / "audit.jsonl"
    out.write_text("{}\n")
    said = CliRunner().invoke(main, ["audit", "relu", "--device", "cpu", "--kind", "zeros", "--out", str(out)])
    assert said.exit_code == 2
    assert "Line 1" in said.output


@pytest.mark.parametrize("file", ["README.md", "docs/promises.md"])
def test_documents_say_how_many_kinds_there_are(file: str) -> None:
    """The number goes with the corpus."""
    text = " ".join((Path(__file__).parent.parent / file).read_text().split())
    assert f"{len(corpus.load())} kinds of" in text
