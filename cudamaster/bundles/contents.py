"""What a bundle holds, as values: a kernel, its verdict, what was claimed of it and where, and the files of its task.

claim.json      what is claimed, on which machine, by which program
kernel.cu       the kernel, with its compile command in command.txt
verdict.json    the verdict whole: checks, raw times of each call in microseconds, hashes of what was built
second.json     where a score was measured twice: the verdict that did not count
build.log       what compiler and linker said
task/...        card, baseline, reference and its headers, as in a folder of tasks
README.txt      the claim in words
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cudamaster.bundles import archive
from cudamaster.core.errors import UsageError, one_line, unwritable
from cudamaster.core.modelled import of_cases
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.speed import Comparison, margin_of, modelled, overall
from cudamaster.core.values import Candidate, CaseVerdict, Hardware, Precision, Verdict
from cudamaster.core.writing import whole

T = TypeVar("T")
_NEEDED = ("claim.json", "kernel.cu", "command.txt", "verdict.json")
_OTHERS = ("second.json", "build.log", "README.txt")
_TASK = "task/"
_MOST_TURNS = 100_000  # ten times what can be asked for
_LARGEST = 1e9  # speedup that is one
_NEAR = 1e-6  # two sums of the same numbers
_README = """\
A speedup that somebody claims of a CUDA kernel, as `cudamaster bundle` packed it.

  {claimed}

To check it: cudamaster reproduce FILE (docs/bundles.md). manifest.json has the SHA-256 of every part. Packed again, by
whatever program, this archive is another one and is refused: pass on the file itself.
"""


@dataclass(frozen=True)
class Claim:
    """claim.json. `score` is P. `origin` is what was packed: a run, or a reproduction.

    `hardware` is the device with its driver, toolkit and clocks, `versions` the program that measured. `reproduces` is
    the SHA-256 of the bundle that was reproduced, where the claim is of a reproduction.
    """

    task: str
    precision: Precision
    suite: str
    card_hash: str
    candidate: str
    score: float
    hardware: Hardware
    versions: Mapping[str, str]
    made: str
    origin: str
    reproduces: str = ""


@dataclass(frozen=True)
class Bundle:
    """A result that can be checked elsewhere. `files` are the texts of its task, by their paths in its folder.

    `sha256` is that of the file, which is the same whenever the same result is packed.
    """

    claim: Claim
    candidate: Candidate
    verdict: Verdict
    files: Mapping[str, str]
    second: Verdict | None = None
    build_log: str = ""
    sha256: str = field(default="", compare=False)

    @property
    def content(self) -> bytes:
        """The file's bytes."""
        parts = {
            "claim.json": _json(self.claim),
            "kernel.cu": self.candidate.code,
            "command.txt": f"{self.candidate.command}\n",
            "verdict.json": _json(self.verdict),
            **({} if self.second is None else {"second.json": _json(self.second)}),
            **({"build.log": self.build_log} if self.build_log else {}),
            "README.txt": _README.format(claimed=self.claimed),
            **{f"{_TASK}{name}": text for name, text in self.files.items()},
        }
        return archive.packed({name: text.encode() for name, text in parts.items()})

    @property
    def claimed(self) -> str:
        """The claim in a line."""
        claim, mark = self.claim, f" ({self.verdict.mark})" if self.verdict.mark else ""
        on = self.claim.hardware.name
        return f"{claim.task} in {claim.precision}: P = {claim.score:.4g}{mark} on {on}, kernel {claim.candidate}"

    @property
    def of_samples(self) -> Comparison | None:
        """P as the verdict's own times give it; None where it has none, or only emulated ones."""
        return speed_of(self.verdict)

    def save(self, path: Path) -> None:
        """Write the file, in place of an older one. Raises UsageError or DeviceError where that cannot be."""
        content = self.content
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole(path) as staged:
                staged.write_bytes(content)
        except OSError as error:
            raise unwritable(path, error, "Choose another file with --out.") from error


def labels(verdict: Verdict) -> tuple[str, ...]:
    """The sizes that P is over: those of the timed cases that have a time."""
    return tuple(sorted(case.label for case in verdict.cases if case.sweep and case.times_us is not None))


def timed(verdict: Verdict) -> list[tuple[float, tuple[float, ...], tuple[float, ...]]]:
    """Weight and raw samples of each timed case, as core.speed takes them."""
    return [
        (case.weight, case.timing.baseline_us, case.timing.candidate_us)
        for case in verdict.cases
        if case.sweep and case.timing is not None
    ]


def speed_of(verdict: Verdict) -> Comparison | None:
    """P with its interval as the raw samples of a verdict give it, or as its modelled cases do.

    None where it has neither, or where its times are emulated. Raises ValueError for times that are none.
    """
    if verdict.modelled is not None:
        return _of_model(verdict)
    cases = timed(verdict)
    return None if verdict.emulated or not sum(weight for weight, *_ in cases) else overall(cases)


def margin(verdict: Verdict) -> float:
    """What P may differ by from one process to the next, a part of 1; 0 without raw samples."""
    cases = timed(verdict)
    return margin_of(cases) if sum(weight for weight, *_ in cases) else 0.0


def _of_model(verdict: Verdict) -> Comparison | None:
    cases = [case for case in verdict.cases if case.sweep and case.modelled is not None]
    weight = math.fsum(case.weight for case in cases)
    if not weight or verdict.speed is None:
        return None
    score = math.fsum(case.weight * _ratio(case) for case in cases) / weight
    model, speed = verdict.modelled, verdict.speed
    if model is not None and model.errors is not None and speed.interval.low < speed.interval.high:
        return of_cases([(case.weight, case.modelled) for case in cases if case.modelled is not None], model)
    known = verdict.speed.interval.high / verdict.speed.speedup  # the model's error, a factor
    return modelled(score, known if math.isfinite(known) and known >= 1 else None)


def _ratio(case: CaseVerdict) -> float:
    times = case.modelled
    if times is None or not (0 < times.baseline_us < math.inf and 0 < times.candidate_us < math.inf):
        raise ValueError(f"the modelled time of case {case.label} is none")
    return times.baseline_us / times.candidate_us


def opened(path: Path) -> Bundle:
    """The bundle in a file, every part of which was checked.

    Nothing in it is run or written. Raises UsageError for a file that is not there, BundleError for what is no bundle,
    was altered, or contradicts itself.
    """
    parts, sha256 = archive.read(path)
    if missing := next((name for name in _NEEDED if name not in parts), None):
        raise archive.wrong(path, f"its part {missing} is missing")
    if other := next((name for name in parts if name not in (*_NEEDED, *_OTHERS) and not name.startswith(_TASK)), None):
        raise archive.wrong(path, f"its part {other} is none of a bundle")
    claim, verdict = _value(path, parts, Claim, "claim.json"), _value(path, parts, Verdict, "verdict.json")
    texts = {name: archive.text_of(path, name, content) for name, content in parts.items()}
    command = texts["command.txt"].removesuffix("\n")
    candidate = Candidate(claim.task, claim.precision, texts["kernel.cu"], command)
    if not candidate.id == claim.candidate == verdict.candidate:
        raise archive.wrong(path, "its kernel, command, verdict and claim are not of one candidate")
    bundle = Bundle(
        claim,
        candidate,
        verdict,
        {name.removeprefix(_TASK): text for name, text in texts.items() if name.startswith(_TASK)},
        _value(path, parts, Verdict, "second.json") if "second.json" in parts else None,
        texts.get("build.log", ""),
        sha256,
    )
    _must_make_sense(path, bundle)
    return bundle


def _must_make_sense(path: Path, bundle: Bundle) -> None:
    score, verdict = bundle.claim.score, bundle.verdict
    if not 1 / _LARGEST < score < _LARGEST:
        raise archive.wrong(path, f"it claims P = {score}")
    if not verdict.correct:
        raise archive.wrong(path, f"it claims a speedup of a kernel that was {verdict.status}")
    if not all(0 <= case.weight < math.inf for case in verdict.cases):
        raise archive.wrong(path, "the weight of a case in its verdict is none")
    if max((len(samples) for _, *both in timed(verdict) for samples in both), default=0) > _MOST_TURNS:
        raise archive.wrong(path, f"a case in its verdict has more than {_MOST_TURNS} turns")
    try:
        found = speed_of(verdict)
        if found is not None and not 1 / _LARGEST < found.speedup < _LARGEST:
            raise ValueError(f"they give P = {found.speedup}")
        margin(verdict)
    except (ValueError, ArithmeticError) as error:
        raise archive.wrong(path, f"the times in its verdict are none: {error}") from error


def contradictions(bundle: Bundle) -> list[str]:
    """How a bundle's parts differ from each other, in sentences: each is a reason to doubt who made it."""
    claim, verdict, said = bundle.claim, bundle.verdict, []
    found = bundle.of_samples
    if found is not None and not math.isclose(found.speedup, claim.score, rel_tol=_NEAR):
        said.append(
            f"The bundle claims P = {claim.score:.4g}, and the times in its own verdict give {found.speedup:.4g}: "
            "one of them was changed, or another version computed P."
        )
    device = "" if verdict.emulated or verdict.modelled else one_line(verdict.hardware.get("device", ""))
    name = one_line(claim.hardware.name)
    one, other = _words(name), _words(device)
    if device and not (one <= other or other <= one):  # the driver's tools may add a word to a name
        said.append(f"The bundle claims P on an {name}, and its own verdict is of an {device}.")
    return said


def _words(name: str) -> set[str]:
    return set(name.lower().replace("-", " ").split())


def _value(path: Path, parts: Mapping[str, bytes], kind: type[T], name: str) -> T:
    try:
        return from_json(kind, archive.json_of(path, name, parts[name]))
    except RecordError as error:
        raise archive.wrong(path, f"its part {name} does not say what it should: {error}") from error


def _json(value: object) -> str:
    return json.dumps(to_json(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def must_be_result(candidate: Candidate, verdict: Verdict) -> float:
    """P of a verdict that can be claimed. Raises UsageError for one without a speedup."""
    if not verdict.correct:
        raise UsageError(
            f"The kernel {candidate.id} was {verdict.status}: there is no speedup to claim.",
            "Name another with --candidate or --round.",
        )
    if verdict.score is None:
        raise UsageError(
            f"The kernel {candidate.id} is correct and has no P: {verdict.detail}.",
            "Name another with --candidate or --round, or measure it on a GPU.",
        )
    return verdict.score
