"""The search strategies beside each other, with a scripted model or the playbook and the same number of evaluations.

    python benchmarks/strategies.py --kept build/strategies           # three tasks, 40 seeds, 12 evaluations a search
    python benchmarks/strategies.py --kept build/strategies --rounds 30
    python benchmarks/strategies.py --kept build/strategies --together 0
    python benchmarks/strategies.py --kept build/strategies --playbook
    python benchmarks/strategies.py --kept build/strategies-gpu --device cuda

Kernels are real and judged by the real harness (strategies_families.py, strategies_bench.py): each once, and then the
verdict is kept. The model is a script. It reads the kernel in its prompt and plans to change one or two choices of it,
drawn evenly from the plans that were not tried on this very kernel; where a kind is asked for, one of the changes is of
that kind. A part of its kernels is wrong, and a part does not compile. It does not reason: the figures say how a
strategy goes about random steps in three small landscapes, not what a language model makes of its prompts.

There are no debug tries, so that every round is one evaluation. Of each strategy and task the table has

    P at the end     geometric mean over the seeds
    area             mean of log P of the best so far over the evaluations, of that of the fastest kernel of the family
    found            share of the seeds that end within 1 % of that kernel
    right            share of the evaluations that are correct
    replies, profiles, tokens    per search: replies of models, kernels that are profiled, tokens of all prompts
                     (4 characters each)

A search whose model runs out of ideas makes fewer evaluations, and counts with its best to the end.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from strategies_bench import KeptBench
from strategies_families import FAMILIES, Choices, Family

from cudamaster.core.values import Candidate, Findings, Role, Status, Verdict
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Model, Reply, Request, Usage
from cudamaster.runs.prompting import tokens
from cudamaster.runs.record import Settings
from cudamaster.strategies import registry
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result

STRATEGIES = ("cudamaster", "beam", "mapelites", "bandit")
CHANGE = re.compile(r"\b(\w+) to (\d+)")
IDEA = re.compile(r"set (?:\w+ to \d+(?: and )?)+")
Change = tuple[str, int]


class ScriptedModel:
    """All roles. Its draws depend on the seed and on the number of the request alone."""

    name = "scripted"

    def __init__(self, family: Family, seed: int, wrong: float, broken: float, together: float) -> None:
        self.prompt_tokens = 0
        self._family = family
        self._random = Random(seed)
        self._wrong, self._broken, self._together = wrong, broken, together

    def ask(self, request: Request) -> Reply:
        """Answer a request from its messages, as a chat model would."""
        self.prompt_tokens += sum(tokens(message.content) for message in request.messages)
        prompt = request.messages[-1].content
        if request.role is Role.COMPILER:
            text = re.search(r"^ {4}(\S.*)$", prompt, re.MULTILINE)[1]  # type: ignore[index]
        else:
            code = re.findall(r"```cuda\n(.*?)```", prompt, re.DOTALL)[-1]
            text = self._plan(prompt, code) if request.role is Role.PLANNER else self._code(prompt, code)
        return Reply(text, self.name, Usage())

    def _plan(self, prompt: str, code: str) -> str:
        here = self._family.read(code)
        tried = {frozenset(_changes(idea)) for idea in IDEA.findall(_of_this_kernel(prompt))}
        kind = re.search(r"^\*\*(.+)\*\*:", prompt, re.MULTILINE)
        all_changes = [(name, value) for name, values in self._family.values.items() for value in values]
        first = [change for change in all_changes if kind is None or self._family.kinds[change[0]] == kind[1]]
        one = [(change,) for change in first]
        two = [(change, other) for change in first for other in all_changes if change[0] != other[0]]
        first_of = (two, one) if self._random.random() < self._together else (one, two)
        for plans in first_of if self._together else (one,):
            new = [plan for plan in plans if frozenset(plan) not in tried and self._differs(here, plan)]
            if new:
                plan = new[int(self._random.random() * len(new))]
                idea = " and ".join(f"{name} to {value}" for name, value in plan)
                return json.dumps({"idea": f"set {idea}", "plan": "That may be faster."})
        return json.dumps({"idea": "", "plan": ""})

    def _differs(self, here: Choices, plan: Sequence[Change]) -> bool:
        """Whether each change is one, and the kernel is another one then."""
        other = self._family.normal({**here, **dict(plan)})
        return all(here[name] != value for name, value in plan) and other != self._family.normal(here)

    def _code(self, prompt: str, code: str) -> str:
        idea = IDEA.search(prompt)
        assert idea is not None
        choices = self._family.normal({**self._family.read(code), **dict(_changes(idea[0]))})
        drawn = self._random.random()
        text = self._family.write(choices)
        if drawn < self._wrong + self._broken:  # the same kernel each time, so that it is judged once
            text = self._family.code({name: values[0] for name, values in self._family.values.items()})
            bad = "" if drawn < self._wrong else "    no kernel;\n"
            text = re.sub(r"^.*<<<.*\n", bad, text, flags=re.MULTILINE)
        return f"```cuda\n{text}```"


def _changes(idea: str) -> list[Change]:
    return [(name, int(value)) for name, value in CHANGE.findall(idea)]


def _of_this_kernel(prompt: str) -> str:
    """The part of a Planner's prompt that says what was tried on the kernel in it.

    Where it is the best so far, that is what was tried since it was accepted.
    """
    title, _, plans = prompt.rpartition("\n## Plans ")[2].partition("\n")
    if title.startswith("for this kernel") or "ACCEPTED" not in plans:
        return plans
    return plans.rpartition("ACCEPTED")[2].partition("\n")[2]


@dataclass(frozen=True)
class Searched:
    """One search: its best P after each evaluation, and what it took."""

    best: tuple[float, ...]
    right: float
    evaluations: int
    replies: int
    profiles: int
    prompt_tokens: int


class Counting:
    """A workbench that counts which kernels were profiled."""

    def __init__(self, bench: KeptBench) -> None:
        self.profiled: set[str] = set()
        self._bench = bench

    def __getattr__(self, name: str) -> object:
        return getattr(self._bench, name)

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """Findings of the bench."""
        self.profiled.add(candidate.id)
        return self._bench.findings(candidate, verdict)


def searched(bench: KeptBench, strategy: str, model: Model, rounds: int, seed: int) -> Searched:
    """One search of so many evaluations, or fewer if the model runs out of ideas."""
    found, counting = registry.find(strategy), Counting(bench)
    settings = Settings(
        strategy, rounds, 0, "cpu", dict.fromkeys(found.roles, model.name),
        options=registry.parse_options(found, ()), search_seed=seed, jump_factor=0, jump_above=0, tie=0.01,
    )  # fmt: skip
    result: Result = registry.run(registry.begin(counting, dict.fromkeys(Role, model), settings, Observer()), settings)  # type: ignore[arg-type]
    best = [done.best_score for done in result.rounds]
    best += [result.score] * (rounds - len(best))
    tried = [attempt.status for done in result.rounds for attempt in done.attempts]
    return Searched(
        tuple(best),
        sum(status is Status.CORRECT for status in tried) / max(1, len(tried)),
        len(tried),
        sum(usage.calls for usage in result.usage.values()),
        len(counting.profiled),
        getattr(model, "prompt_tokens", 0),
    )


def row(name: str, runs: Sequence[Searched], top: float) -> tuple[str, ...]:
    """A line of the table; `top` is P of the fastest kernel of the family."""
    logs = [math.log(run.best[-1]) for run in runs]
    areas = [statistics.fmean(map(math.log, run.best)) / math.log(top) for run in runs]
    error = statistics.stdev(areas) / math.sqrt(len(areas)) if len(areas) > 1 else 0.0

    def mean(values: Sequence[float]) -> float:
        return statistics.fmean(values)

    return (
        name,
        f"{math.exp(mean(logs)):.2f}",
        f"{mean(areas):.0%} ± {error:.0%}",
        f"{mean([run.best[-1] > top / 1.01 for run in runs]):.0%}",
        f"{mean([run.right for run in runs]):.0%}",
        f"{mean([run.evaluations for run in runs]):.1f}",
        f"{mean([run.replies for run in runs]):.1f}",
        f"{mean([run.profiles for run in runs]):.1f}",
        f"{mean([run.prompt_tokens for run in runs]):,.0f}",
    )


def fastest(family: Family, bench: KeptBench) -> float:
    """P of the fastest kernel of a family, each of which is judged if it was not before."""
    scores: Mapping[str, float | None] = {
        text: bench.evaluate(bench.candidate(text)).score for text in map(family.write, family.members())
    }
    return max(score for score in scores.values() if score is not None)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True, help="folder for the verdicts")
    parser.add_argument("--tasks", default=",".join(family.task for family in FAMILIES))
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--wrong", type=float, default=0.15, help="share of kernels that are wrong")
    parser.add_argument("--broken", type=float, default=0.1, help="share that does not compile")
    parser.add_argument("--together", type=float, default=0.5, help="share of plans that change two choices at once")
    parser.add_argument("--playbook", action="store_true", help="ask the playbook in place of the scripted model")
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    heads = ("strategy", "P at the end", "area", "found", "right", "evaluations", "replies", "profiles", "tokens")
    for family in (each for each in FAMILIES if each.task in given.tasks.split(",")):
        bench = KeptBench(family, given.device, given.kept / f"{family.task}.json")
        top = math.e if given.playbook else fastest(family, bench)
        lines = [heads]
        for strategy in given.strategies.split(","):
            if given.playbook:
                runs = [searched(bench, strategy, PlaybookModel(), given.rounds, 0)]
            else:
                shares = given.wrong, given.broken, given.together
                models = [ScriptedModel(family, seed, *shares) for seed in range(given.seeds)]
                runs = [searched(bench, strategy, model, given.rounds, seed) for seed, model in enumerate(models)]
            cells = row(strategy, runs, top)
            lines.append((*cells[:2], "-", "-", *cells[4:-1], "-") if given.playbook else cells)
        members = sum(1 for _ in family.members())
        print(f"\n{family.task}" + ("" if given.playbook else f": {members} kernels, the fastest P = {top:.2f}"))
        widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
        for line in lines:
            print(
                "  ".join(
                    cell.ljust(w) if not i else cell.rjust(w)
                    for i, (cell, w) in enumerate(zip(line, widths, strict=True))
                )
            )


if __name__ == "__main__":
    main()
