"""Contrastive reinforcement learning: section 2.4 of the CUDA-L1 paper, by TRL's GRPOTrainer.

    each step:  draw exemplars -> sample a group -> judge -> reward -> advantages -> update
                     ^                                  |
                     +--- right kernels join, with their rewards

Prompts are drawn at their step, from what is known by then; all samples of a group have the same one. Rewards come from
verdicts alone (reward.py), a leap is looked at before it counts (watching.py), then

    advantages = eq4(eq6(rewards))      smoothed (k), then normalised in the group
    loss       = eq5                    clipped ratio (epsilon) and divergence from the first model (beta)

What the paper leaves open is decided here: the divergence is the estimate of GRPO, and the mean over tokens is taken in
each sample first, as in GRPO. A sample of which nothing can be said (reward None) has no advantage and is left out of
its group's mean. A kernel that was shown and comes back earns what it earned; its copy does not join.

A step is a group of prompts; with `iterations` above 1 the trainer makes so many updates in it. A checkpoint is made
between steps. A run that goes on from one does later steps again, with the same draws and random numbers, and finds
their verdicts on disk.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from cudamaster.agents.contrast import Exemplar
from cudamaster.core.errors import BudgetSpent, RunFolderError
from cudamaster.core.values import Verdict, content_hash
from cudamaster.models.protocol import Message
from cudamaster.training import evaluating, prompts, reward
from cudamaster.training.database import Database, order
from cudamaster.training.fitting import Hooks, arguments, train
from cudamaster.training.guarding import Guards
from cudamaster.training.problems import Problem
from cudamaster.training.reward import Measured
from cudamaster.training.session import Sample, Session
from cudamaster.training.settings import Contrastive
from cudamaster.training.shown import baselines, known, wanted
from cudamaster.training.state import SAMPLES, STEPS

_TOLD = {"kl": "kl", "entropy": "entropy", "grad_norm": "grad_norm", "clip_ratio/region_mean": "clipped",
         "completions/mean_length": "length", "completions/clipped_ratio": "cut"}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """The samples of one prompt, and what it showed."""

    problem: Problem
    exemplars: tuple[Exemplar, ...]
    messages: tuple[Message, ...]
    samples: tuple[Sample, ...]


def run(session: Session, guards: Guards) -> str:
    """Step after step, to the end of the budget; returns why it ended."""
    settings, folder = session.settings, session.folder
    assert isinstance(settings, Contrastive)
    total = settings.budget.steps
    assert total is not None
    checkpoint, updates = folder.checkpoint()
    done = updates // settings.grpo.iterations
    if folder.model.exists() and folder.ended is not None and len(folder.rows(STEPS)) >= total:
        return folder.ended
    folder.go_back_to(done)
    work = _Work(session, guards, total)
    work.go_back_to(done)
    trained = done < total and train(_trainer(session, work, total), work, session, checkpoint)
    if not trained and checkpoint is not None:
        session.policy.restore(checkpoint)
    return work.stopped or f"{total} steps are done"


def _trainer(session: Session, work: _Work, total: int) -> Any:
    settings, policy = session.settings, session.policy
    assert isinstance(settings, Contrastive)
    grpo, generation = settings.grpo, settings.generation
    in_step = grpo.prompts * grpo.group
    every = settings.every.checkpoint * grpo.iterations
    config = GRPOConfig(
        **arguments(policy, settings.optimization, session.folder.checkpoints, every=every, seed=settings.seed),
        max_steps=total * grpo.iterations,
        per_device_train_batch_size=grpo.micro_batch,
        gradient_accumulation_steps=in_step // grpo.micro_batch,
        num_generations=grpo.group,
        num_iterations=grpo.iterations,
        max_completion_length=generation.max_tokens,
        temperature=generation.temperature,
        top_p=generation.top_p,
        loss_type="grpo",
        epsilon=grpo.epsilon,
        beta=grpo.beta,
        use_bias_correction_kl=False,
        scale_rewards="none",  # `work.advantages` has the equations
        # Prompts are drawn when their step has come, whatever the loader has read ahead.
        ignore_data_skip=True,
        shuffle_dataset=False,
    )
    places = Dataset.from_list([{"prompt": ""}] * grpo.prompts * total)
    return GRPOTrainer(
        policy.model, work.advantages, config, train_dataset=places, processing_class=policy.tokenizer,
        rollout_func=work.rollout,
    )  # fmt: skip


class _Work(Hooks):
    """What the trainer asks for, step after step: samples, their advantages, and a line at the end."""

    def __init__(self, session: Session, guards: Guards, total: int) -> None:
        settings = session.settings
        assert isinstance(settings, Contrastive)
        self._session = session
        self._settings = settings
        self._guards = guards
        self._total = total
        self._step = 0
        self._groups: list[Group] = []
        self._row: dict[str, Any] = {}
        self._since = monotonic()
        self.stopped: str | None = None
        problems = (*session.problems, *session.tried)
        own, left_out = known(settings.data, session.problems, settings.reward, settings.judge.cases)
        for why, count in left_out.items():
            session.observer.said(f"Kernels of the export that are no exemplars: {count} ({why}).")
        self._database = Database(settings.exemplars, settings.seed, baselines(session, problems), own)

    def go_back_to(self, step: int) -> None:
        """Let the kernels join again that joined up to a step, island by island. Raises RunFolderError."""
        scoring = self._session.scoring
        assert scoring is not None
        joined: dict[int, list[Any]] = {}
        for row in self._session.folder.rows(SAMPLES):
            if row["joined"]:
                joined.setdefault(row["step"], []).append(row)
        for number in range(1, step + 1):
            for row in joined.get(number, []):
                kernel = scoring.verdicts.get(row["key"])
                if kernel is None or kernel.candidate.id != row["candidate"]:
                    what = f"The verdict on {row['candidate']}, an exemplar of step {number}, is gone."
                    raise RunFolderError(what, "Bring its file of verdicts back, or begin again in another folder.")
                exemplar = Exemplar(kernel.candidate, kernel.verdict, row["reward"])
                self._database.add(row["task"], number, exemplar)
            self._database.end_step(number)
        self._step = step

    def begins(self) -> bool:
        """Before the first step the model may be tried."""
        return self._goes_on()

    def rollout(self, every: Sequence[str], trainer: Any) -> dict[str, Any]:
        """The samples of the next step (TRL's rollout_func), each of which is judged while others are written."""
        session, settings = self._session, self._settings
        session.taken_seconds()
        self._since = monotonic()
        self._step = trainer.state.global_step // settings.grpo.iterations + 1
        asked = [self._problem_and_prompt(number) for number in range(settings.grpo.prompts)]
        written = session.write(
            [(problem, messages) for problem, _, messages in asked], settings.grpo.group,
            f"{settings.seed} step {self._step}",
        )  # fmt: skip
        self._groups = [
            Group(problem, exemplars, tuple(messages), tuple(samples))
            for (problem, exemplars, messages), samples in zip(asked, written, strict=True)
        ]
        samples = [sample for group in self._groups for sample in group.samples]
        ids = [session.policy.ids(group.messages) for group in self._groups for _ in group.samples]
        return {"prompt_ids": ids, "completion_ids": [list(one.tokens) for one in samples], "logprobs": None}

    def _problem_and_prompt(self, number: int) -> tuple[Problem, tuple[Exemplar, ...], Sequence[Message]]:
        """What the step's group of this number is about, and its prompt."""
        session, settings = self._session, self._settings
        turn = (self._step - 1) * settings.grpo.prompts + number
        problem = session.problems[order(len(session.problems), turn, settings.seed)]
        return problem, *self._asked(problem, self._step, number)

    def _asked(self, problem: Problem, step: int, number: int) -> tuple[tuple[Exemplar, ...], Sequence[Message]]:
        """The prompt of a group. Of exemplars that leave no room for a kernel, the slowest are left out."""
        session, form = self._session, self._settings.form
        exemplars = self._database.draw(problem.name, step, number)
        while True:
            messages = prompts.prompt(form, problem.brief, exemplars)
            room = session.policy.fits(session.policy.ids(messages), self._settings.generation)
            if room or len(exemplars) == 1:
                return exemplars, messages
            exemplars = exemplars[1:]

    def advantages(self, **of_trl: Any) -> list[float | None]:
        """Equations 6 and 4 for the samples of the step (TRL's reward function); None for those with no reward."""
        session, settings, database = self._session, self._settings, self._database
        every = [session.verdicts(group.samples) for group in self._groups]
        began = monotonic()
        with session.turns.of_judges():
            rewards = [self._rewards(group, verdicts) for group, verdicts in zip(self._groups, every, strict=True)]
        session.seconds.judging += monotonic() - began
        found: list[float | None] = []
        for number, (group, of_group) in enumerate(zip(self._groups, rewards, strict=True)):
            advantages = reward.advantages([one.speedup for one in of_group], settings.reward.smoothing)
            for sample, verdict, one, advantage in zip(group.samples, every[number], of_group, advantages, strict=True):
                self._record(number, group, sample, verdict, one, advantage)
            found += advantages
        database.end_step(self._step)
        self._row = self._summary(every, rewards)
        return found

    def _rewards(self, group: Group, verdicts: Sequence[Verdict | None]) -> list[Measured]:
        settings, problem = self._settings, group.problem
        rewards = []
        for sample, verdict in zip(group.samples, verdicts, strict=True):
            if sample.candidate is None or verdict is None:
                rewards.append(Measured(0.0, "the reply has no code in the form that was asked for"))
                continue
            cases = wanted(problem, settings.judge.cases)
            if settings.equation == "cuda-l2":
                earned = reward.hgemm_reward(sample.candidate, verdict, settings.reward, cases)
            else:
                earned = reward.measured(verdict, settings.reward, cases)
            best = self._database.best(problem.name)
            rewards.append(self._guards.looked_at(problem, sample.candidate, verdict, earned, best))
        return rewards

    def _record(
        self,
        number: int,
        group: Group,
        sample: Sample,
        verdict: Verdict | None,
        earned: Measured,
        advantage: float | None,
    ) -> None:
        """The line of a sample; a right kernel with a reward joins the exemplars."""
        scoring, problem = self._session.scoring, group.problem
        assert scoring is not None
        joined = False
        if sample.candidate is not None and verdict is not None and verdict.correct and earned.speedup:
            exemplar = Exemplar(sample.candidate, verdict, earned.speedup)
            joined = self._database.add(problem.name, self._step, exemplar)
        row = {
            "step": self._step,
            "group": number,
            "task": problem.name,
            "prompt": content_hash(*(message.content for message in group.messages)),
            "exemplars": [{"kernel": one.candidate.id, "score": one.score} for one in group.exemplars],
            "text": sample.text,
            "candidate": None if sample.candidate is None else sample.candidate.id,
            "key": None if sample.candidate is None else scoring.key(problem, sample.candidate),
            "status": None if verdict is None else verdict.status.value,
            "reward": earned.speedup,
            "why": earned.why,
            "advantage": advantage,
            "joined": joined,
        }
        self._session.folder.append(SAMPLES, row)

    def _summary(
        self, verdicts: Sequence[Sequence[Verdict | None]], rewards: Sequence[Sequence[Measured]]
    ) -> dict[str, Any]:
        scoring = self._session.scoring
        assert scoring is not None
        flat = [verdict for some in verdicts for verdict in some]
        earned = [one.speedup for some in rewards for one in some]
        fast = [each for each in earned if each]
        known_ones = [each for each in earned if each is not None]
        return {
            "step": self._step,
            "tasks": [group.problem.name for group in self._groups],
            "rewards": earned,
            "right": sum(verdict is not None and verdict.correct for verdict in flat) / len(flat),
            "reward": statistics.fmean(known_ones) if known_ones else None,
            "mean": statistics.fmean(fast) if fast else None,
            "best": max(fast, default=None),
            "discarded": earned.count(None),
            "exemplars": {problem.name: self._database.size(problem.name) for problem in self._session.problems},
            "evaluations": scoring.verdicts.paid,
        }

    def logged(self, step: int, logs: Mapping[str, Any]) -> bool:
        """What the trainer says of an update; after the last one of a step its line is written.

        Whether to stop there.
        """
        told = {ours: float(logs[theirs]) for theirs, ours in _TOLD.items() if logs.get(theirs) is not None}
        self._row = {**self._row, "loss": float(logs["loss"]), **told}
        if step % self._settings.grpo.iterations:
            return False
        session = self._session
        waited = session.seconds.generation + session.seconds.judging
        session.seconds.training += monotonic() - self._since - waited
        self._row["seconds"] = session.taken_seconds()
        session.folder.append(STEPS, self._row)
        session.folder.save()
        session.observer.step(self._row, self._total)
        return not self._goes_on()

    def _goes_on(self) -> bool:
        """Whether the budget has room for the next step, after what is due: canaries, and a try-out of the model."""
        session, settings, step = self._session, self._settings, self._step
        try:
            self._guards.try_canaries(step)
            if evaluating.is_due(session, step):
                evaluating.try_out(session, step, lambda problem: self._asked(problem, step + 1, 0)[1])
            if step < self._total:
                # Each sample may be a leap, which is measured again.
                session.must_afford(2 * settings.grpo.prompts * settings.grpo.group)
        except BudgetSpent as spent:
            self.stopped = spent.reason
        return self.stopped is None
