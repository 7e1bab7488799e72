"""The inputs that a judge draws for the cases of a card, always with the same seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from cudamaster.build.building import Builder
from cudamaster.core.values import Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.tasks import held_out
from cudamaster.tasks.cards import Case, TaskCard

SEED = 20261127


def drawn(
    card: TaskCard,
    folder: Path,
    *,
    cases: Literal["all", "verify", "none"] = "none",
    further: Sequence[Case] = (),
    seed: int = SEED,
    work_limit: float | None = None,
) -> dict[str, Mapping[str, np.ndarray]]:
    """The inputs that a judge draws, by the case's label and the buffer's name."""
    device = CpuDevice()
    builder = Builder(card, Precision.FP32, device)
    request = JudgeRequest(
        judge=(str(builder.judge()),),
        baseline=(str(builder.baseline_worker()),),
        cases=cases,
        labels=tuple(map(held_out.argument, further)),
        calls=0,
        seed=seed,
        baseline_only=True,
        work_limit=work_limit,
        others=("--dump", str(folder)),
    )
    ran = device.run(request, folder / "report.jsonl", 300)
    assert ran.exit_code == 0, ran.stderr
    own = {"all": card.cases, "verify": [case for case in card.cases if not case.sweep], "none": ()}[cases]
    found = {}
    for index, case in enumerate((*own, *further)):
        files = sorted(folder.glob(f"{index}.*.input"))
        if files:
            found[case.label] = {file.name.split(".")[1]: np.fromfile(file) for file in files}
    return found


def digest_of_the_lightest(card: TaskCard, folder: Path) -> str:
    """Of the inputs of the lightest timed case."""
    lightest = min((case for case in card.cases if case.sweep), key=lambda case: case.weight)
    inputs = drawn(card, folder, cases="all", work_limit=lightest.weight)[lightest.label]
    digest = hashlib.sha256()
    for name, numbers in sorted(inputs.items()):
        digest.update(name.encode() + numbers.tobytes())
    return digest.hexdigest()[:16]
