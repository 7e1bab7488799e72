"""A stage from its settings to its result: `cudamaster train` calls this."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.core.errors import DeviceError, unwritable
from cudamaster.core.values import Role
from cudamaster.devices.cuda import find_gpus
from cudamaster.models import choose as choose_model
from cudamaster.models.protocol import Model
from cudamaster.training import libraries, shown, state
from cudamaster.training.benches import Benches, chosen
from cudamaster.training.collecting import KERNELS
from cudamaster.training.problems import Problem, loaded, must_have_cases
from cudamaster.training.scoring import Scoring, scoring
from cudamaster.training.session import Observer, Session
from cudamaster.training.settings import Contrastive, Judge, Selftaught, Sft, Stage
from cudamaster.training.state import TrainingFolder
from cudamaster.training.turns import Turns
from cudamaster.training.verdicts import Verdicts

if TYPE_CHECKING:
    from cudamaster.cluster.fleet import Fleet
    from cudamaster.devices.cuda import LocalGpu
    from cudamaster.training.policy import Policy

START = "start"  # in the folder of a run that began with a new model


@dataclass(frozen=True)
class Ended:
    """How a stage ended: its folder, in which the model is, and why."""

    folder: Path
    why: str


def place_of(settings: Stage, config: Path) -> Path:
    """The folder of a run: the one that is named, or one named after stage and file."""
    return settings.out or Path("runs") / "train" / f"{settings.stage}_{config.stem}"


def run(settings: Stage, out: Path, observer: Observer | None = None, fleet: Fleet | None = None) -> Ended:
    """Run a stage in the folder `out`, from its beginning or from where it was stopped, to its end.

    Its model is written when it ends, also when a budget ended it. Raises UsageError, RunFolderError, DeviceError,
    ModelError, CardError and CanaryError; what was done until then is in the folder, and the same call goes on.
    """
    libraries.must_be_there()
    there = find_gpus()
    on = libraries.gpus_for(settings.model.device, there)
    libraries.be_quiet()
    if on and not libraries.sees_gpus():
        if settings.model.device != "auto":
            raise DeviceError(
                f"model.device is {settings.model.device}, and this PyTorch computes on no GPU.",
                "Install PyTorch with CUDA, or write model.device: cpu.",
            )
        on = ()
    observer = observer or Observer()
    with room_for_weights(out), _opened(settings, out, observer, on, there, fleet) as session:
        why = _run(session).rstrip(".")  # who shows it makes a sentence of it
        if not session.folder.model.exists() or session.folder.ended != why:
            with session.turns.of_model():
                session.policy.save(session.folder.model)
            session.folder.end(why)
    return Ended(out, why)


@contextmanager
def room_for_weights(out: Path) -> Iterator[None]:
    """A full disk is an error of ours too where safetensors finds it, whose error is no OSError."""
    found: type[Exception] = importlib.import_module("safetensors").SafetensorError
    try:
        yield
    except found as error:
        if (number := re.search(r"I/O error.*os error (\d+)", str(error))) is None:
            raise
        reason = OSError(int(number[1]), os.strerror(int(number[1])))
        raise unwritable(out, reason, "Make room, and run the same command again.") from error


def _run(session: Session) -> str:
    settings = session.settings
    if isinstance(settings, Sft):
        from cudamaster.training import sft

        return sft.run(session)
    if isinstance(settings, Selftaught):
        from cudamaster.training import selftaught

        return selftaught.run(session)
    from cudamaster.training import contrastive
    from cudamaster.training.guarding import Guards

    assert isinstance(settings, Contrastive)
    return contrastive.run(session, Guards(session, _reviewer(settings)))


@contextmanager
def _opened(
    settings: Stage,
    out: Path,
    observer: Observer,
    on: Sequence[LocalGpu],
    there: Sequence[LocalGpu],
    fleet: Fleet | None,
) -> Iterator[Session]:
    """A stage with all that it needs, until the block is left."""
    judge: Judge | None = getattr(settings, "judge", None)
    from cudamaster.training.policy import parameters

    with ExitStack() as stack:
        benches: Benches | None = None
        problems: Sequence[Problem] = ()
        tried: Sequence[Problem] = ()
        if judge is not None:
            benches = chosen(judge.device, judge.workers, on, there, fleet)
            stack.callback(benches.close)
            problems = loaded(judge.tasks, judge.precisions, benches.bench)
            must_have_cases(problems, judge.cases)
            if not isinstance(settings, Sft):
                shown.must_not_be_held_out(settings.data, problems)
            tried = loaded(settings.evaluation.tasks or judge.tasks, judge.precisions, benches.bench)
            tried = [next((own for own in problems if own.name == one.name), one) for one in tried]
        data = [settings.data / KERNELS] if isinstance(settings, Contrastive) else []
        if isinstance(settings, Sft):
            data = [settings.data / "sft.jsonl"]
            if settings.exemplars.method != "none":
                data.append(settings.data / KERNELS)
        folder = stack.enter_context(state.opened(out, settings, data, _facts(problems, tried)))
        if folder.changed_versions:
            changed = ", ".join(folder.changed_versions)
            observer.said(f"Other versions than in the session before: {changed}. Draws and weights may differ.")
        turns = Turns(on, libraries.finish_on_gpus)
        with turns.of_model():
            policy = _policy(settings, folder, len(on))
        weights, learning = parameters(policy)
        observer.said(f"The model has {weights:,} weights, of which {learning:,} learn.")
        pool: Scoring | None = None
        if judge is not None and benches is not None:
            verdicts = Verdicts(judge.verdicts or out / "verdicts.jsonl", folder.manifest["run"])
            stack.callback(verdicts.close)
            if len(verdicts) > verdicts.paid:
                observer.said(f"Verdicts of other runs in {verdicts.path}: {len(verdicts) - verdicts.paid}.")
            pool = stack.enter_context(scoring(benches, verdicts, str(out)))
        yield Session(settings, folder, policy, turns, observer, pool, problems, tried)


def _facts(problems: Sequence[Problem], tried: Sequence[Problem]) -> Mapping[str, str]:
    """What makes measurements comparable: the GPU, the model of one, and the cards."""
    found: dict[str, str] = {}
    for problem in (*problems, *tried):
        modelled = problem.hardware.modelled
        found["gpu"] = problem.hardware.name if modelled is None else modelled.described
        found[problem.name] = problem.card.hash
    return found


def _policy(settings: Stage, folder: TrainingFolder, on_gpus: int) -> Policy:
    """The model that the stage begins with, or goes on with."""
    from cudamaster.training import policy

    place: Path | None = None
    if isinstance(settings, Sft) and settings.model.new is not None:
        from cudamaster.training import sft

        place = folder.path / START
        if not place.is_dir():
            policy.make_new(settings.model, sft.texts(settings), settings.seed, place)
    if isinstance(settings, Selftaught):
        from cudamaster.training import selftaught

        place = selftaught.model_after(folder, len(folder.rows(state.STEPS)))
    at = None if place is None else str(place)
    return policy.loaded(settings.model, settings.form, on_gpus=on_gpus, place=at, seed=settings.seed)


def _reviewer(settings: Contrastive) -> Model | None:
    """The model that looks at leaps, if one is named. Raises UsageError and ModelError."""
    if settings.reviewer is None:
        return None
    choice = choose_model.Choice({Role.REVIEWER: settings.reviewer})
    choose_model.must_be_usable(choice)
    return choose_model.build(choice)[Role.REVIEWER]
