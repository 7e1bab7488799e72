"""The database of exemplars of a training run: which kernels a prompt shows, and which ones join (section 2.4.3).

Each problem has a pool of right kernels with their scores, or several as islands. Draws depend on the seed, the step
and the pool alone, and the pool on the kernels that joined before that step. So a run that goes on draws what it would
have drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random

from cudamaster.agents.contrast import Exemplar
from cudamaster.guards.lexer import Kind, lex
from cudamaster.strategies.exemplars import Islands, Pool, Selection
from cudamaster.training.settings import Exemplars


class Database:
    """The pools of all problems, by the problems' names."""

    def __init__(
        self,
        about: Exemplars,
        seed: int,
        baselines: Mapping[str, Exemplar],
        known: Mapping[str, Sequence[Exemplar]],
    ) -> None:
        """It begins with the baselines and the `known` kernels, which islands get in turn."""
        self._about = about
        self._seed = seed
        self._baselines = dict(baselines)
        count = about.islands if about.method == "island" else 1
        self._islands = {name: Islands(baseline, count, about.interval) for name, baseline in baselines.items()}
        for name, exemplars in known.items():
            for number, exemplar in enumerate(exemplars):
                self._islands[name].pools[number % count].add(exemplar)
        self._best = {name: max(pool.best_score for pool in each.pools) for name, each in self._islands.items()}

    def draw(self, problem: str, step: int, group: int) -> tuple[Exemplar, ...]:
        """What the prompt of a group shows, the slowest first. Steps count from 1."""
        about, random = self._about, Random(f"{self._seed} draw {step} {group} {problem}")
        if about.method == "none":
            return (self._baselines[problem],)
        pool = self._pool(problem, step)
        if about.method == "random":
            left = list(pool.members)
            drawn: list[Exemplar] = []
            while left and len(drawn) < about.number:
                drawn.append(left.pop(int(random.random() * len(left))))
            return tuple(sorted(drawn, key=lambda exemplar: exemplar.score))
        return pool.draw(Selection(about.number, about.temperature, about.bucket_ratio), random)

    def add(self, problem: str, step: int, exemplar: Exemplar) -> bool:
        """Let a right kernel join, on the island that its prompt was drawn from; whether it was new there.

        One that is there already, whatever its comments and blanks, is not: of many copies, each with a measurement
        of its own, the luckiest would be shown.
        """
        self._best[problem] = max(self._best[problem], exemplar.score)
        pool, text = self._pool(problem, step), _text(exemplar.candidate.code)
        return all(_text(member.candidate.code) != text for member in pool.members) and pool.add(exemplar)

    def end_step(self, step: int) -> None:
        """After each step: islands exchange kernels when an interval has ended."""
        for name, islands in self._islands.items():
            islands.end_round(step, Random(f"{self._seed} islands {step} {name}"))

    def best(self, problem: str) -> float:
        """The highest score that counts so far: at first the baseline's, 1."""
        return self._best[problem]

    def size(self, problem: str) -> int:
        """How many kernels there are, without copies on several islands."""
        return len({member.candidate.id for pool in self._islands[problem].pools for member in pool.members})

    def _pool(self, problem: str, step: int) -> Pool:
        return self._islands[problem].of_round(step)


def order(problems: int, number: int, seed: int) -> int:
    """The index of the problem of the `number`-th group, from 0: every problem in turn, each time in another order."""
    turn, place = divmod(number, problems)
    left, random = list(range(problems)), Random(f"{seed} order {turn}")
    drawn = [left.pop(int(random.random() * len(left))) for _ in range(problems)]
    return drawn[place]


@lru_cache(maxsize=4096)
def _text(code: str) -> str:
    """What a kernel says, without comments and layout."""
    return " ".join(token.text for token in lex(code).tokens if token.kind is not Kind.NEWLINE)
