"""Where the replies and verdicts of a run come from: models and a device, or the record of an earlier run."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.core import resources
from cudamaster.core.values import Precision, Role
from cudamaster.devices.choose import choose as choose_device
from cudamaster.models import choose
from cudamaster.models.protocol import Model
from cudamaster.runs import playbooks, replaying
from cudamaster.runs.budget import Limits
from cudamaster.runs.record import Replay, RunRecord, Settings, read_record
from cudamaster.strategies.protocol import Workbench
from cudamaster.tasks.cards import TaskCard
from cudamaster.workbench import evaluation

if TYPE_CHECKING:
    from cudamaster.cluster.fleet import Fleet


def replayed_settings(recorded: Settings, replay: Replay, *, device: str, seed: int | None) -> Settings:
    """Settings of a run that replays one with the settings `recorded`: the same.

    `device` and `seed` of the inputs apply if only the models are replayed and kernels are measured again.
    """
    settings = changed(recorded, replay=replay)
    return changed(settings, device=device, seed=seed) if replay.models_only else settings


def record_of(settings: Settings) -> RunRecord | None:
    """The record that a run replays, with every file checked; None if it replays none. Raises RunFolderError."""
    return None if settings.replay is None else read_record(Path(settings.replay.record))


def whole_record_of(settings: Settings) -> RunRecord | None:
    """The record that verdicts come from as well; None if kernels are measured, which takes a device."""
    return None if settings.replay is None or settings.replay.models_only else record_of(settings)


def workbench(
    settings: Settings,
    card: TaskCard,
    precision: Precision,
    unit: str | None = None,
    fleet: Fleet | None = None,
    model: str | None = None,
) -> Workbench:
    """What judges a run's candidates: a device (of several GPUs, the one with the UUID `unit`) or the run's record.

    With a `fleet` the device is on a node of its cluster; `model` is the GPU that the run was begun on, if it was.
    Raises DeviceError, RunFolderError, and UsageError for thresholds that cannot be used.
    """
    record = whole_record_of(settings)
    if record is not None:
        return replaying.workbench(record, card)
    if fleet is not None:
        from cudamaster.cluster.workbench import ClusterWorkbench

        return ClusterWorkbench(
            fleet,
            card,
            precision,
            unit=unit,
            model=model,
            seed=settings.seed,
            profile=settings.profile,
            thresholds=settings.thresholds,
        )
    return evaluation.Workbench(
        card,
        precision,
        choose_device(settings.device, unit),
        seed=settings.seed,
        profile=settings.profile,
        thresholds=settings.thresholds,
        brief_baseline=True,
    )


def models_must_be_usable(settings: Settings, answered: Container[Role] = ()) -> None:
    """Raise early for errors that a first call would show after measurements, as `choose.must_be_usable` does.

    The roles in `answered` have models of the caller's own.
    """
    if settings.replay is None:
        asked = {role: name for role, name in settings.models.items() if role not in answered}
        choose.must_be_usable(_choice(changed(settings, models=asked)))


def models(settings: Settings, run: Path, limits: Limits | None = None, own: Path | None = None) -> dict[Role, Model]:
    """A model for each role that is asked, within `limits`; `run` is the run's own folder, which may hold replies.

    `own` is the folder of a task that is not found by its name, where its playbook lies.

    Raises RunFolderError for a record that cannot be used, and UsageError.
    """
    record = record_of(settings)
    if settings.replay is None or record is None:
        asked = choose.build(_choice(settings), (limits or Limits()).reply_seconds, partial(playbooks.playbook, own))
        return {**asked, Role.AGENT: _agent(settings, run, own)} if Role.AGENT in settings.models else asked
    done = replaying.answered(read_record(run)) if (run / "run.json").is_file() else None
    return replaying.models(
        record, done, same_requests=not settings.replay.models_only, real_time=settings.replay.real_time
    )


def _choice(settings: Settings) -> choose.Choice:
    names: dict[Role, str] = {role: name for role, name in settings.models.items() if role is not Role.AGENT}
    return choose.Choice(names, settings.base_url, settings.sampling)


def _agent(settings: Settings, run: Path, own: Path | None) -> Model:
    """The outside agent of a run, which finds the tasks that this process finds."""
    from cudamaster.outside.agent import OutsideAgent  # other searches need no HTTP server

    tasks = (*([] if own is None else [own]), *resources.task_folders())
    options = settings.options
    return OutsideAgent(str(options["command"]), run, minutes=float(options["minutes"]), tasks=tasks)
