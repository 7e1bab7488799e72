"""Modelled times and profiles on a device that has none of its own: what a candidate does is counted there, and priced.

    Candidate -- traced build --> CallCounts of each case -- model of a GPU --> Modelled, Profile

One of these serves a workbench: counts of the baseline, and of every candidate that is asked for again, are kept. All
are counted on inputs of one seed, so that two kernels are compared on the same work.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic

from cudamaster.build.building import Builder
from cudamaster.core import configuration
from cudamaster.core import modelled as modelled_speeds
from cudamaster.core.likelihood import Makeup
from cudamaster.core.speed import modelled as by_one_error
from cudamaster.core.values import (
    OF_BASELINE,
    OF_BOTH,
    Candidate,
    CaseVerdict,
    GpuModel,
    Hardware,
    Modelled,
    Profile,
    Status,
    Verdict,
    content_hash,
)
from cudamaster.devices.ncu import NoProfile
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Device, Observing
from cudamaster.modelling import constants, eager, gpu, model, tracing
from cudamaster.modelling.counts import CallCounts, Launch
from cudamaster.modelling.makeup import makeup
from cudamaster.modelling.memory import SECTOR_BYTES
from cudamaster.modelling.model import ModelledCall

# Counts of a candidate by the labels of cases, or why a case has none; the last argument is the seed of the inputs.
Count = Callable[[Candidate, Sequence[str], int], Mapping[str, "CallCounts | str"]]
CHOICE = "CUDAMASTER_GPU_MODEL"


def chosen_gpu() -> gpu.Gpu:
    """The GPU that is modelled: the H200, or what $CUDAMASTER_GPU_MODEL or a file names. Raises UsageError."""
    return gpu.load(configuration.setting("gpu-model", CHOICE) or gpu.DEFAULT)


class Modeller:
    """The model of one GPU for the candidates of one task and precision."""

    def __init__(
        self, builder: Builder, count: Count, *, seed: int | None = None, wanted: gpu.Gpu | None = None
    ) -> None:
        """`count` runs a candidate's traced build. By default the GPU is `chosen_gpu()`, and the seed a fresh one."""
        self._builder = builder
        self._count = count
        self._gpu = wanted or chosen_gpu()
        # Fresh, so that no kernel can know the inputs that it is counted on.
        self._seed = secrets.randbits(63) if seed is None else seed
        self._counts: dict[str, dict[str, CallCounts | str]] = {}
        self._eager: dict[str, ModelledCall | str] = {}

    @property
    def model(self) -> GpuModel:
        """The model with its known error, which was measured on one GPU: the intervals of others are assumed."""
        fitted = constants.shipped()
        error, intervals = fitted.known_error, fitted.intervals
        assumed = intervals is not None and intervals.gpu != self._gpu.label
        errors = None if intervals is None else intervals.errors(assumed=assumed)
        if error is None or error.gpu != self._gpu.label:
            return GpuModel(f"v{fitted.version}", self._gpu.label, errors=errors)
        return GpuModel(f"v{fitted.version}", self._gpu.label, error.ratios_within, error.pairs_ordered, errors=errors)

    @property
    def fingerprint(self) -> str:
        """Hash of all that modelled times depend on beside the candidate and the inputs."""
        return content_hash(repr(constants.shipped()), repr(self._gpu))

    @property
    def gpu_name(self) -> str:
        """Name of the GPU."""
        return self._gpu.name

    def hardware(self, host: Hardware) -> Hardware:
        """The modelled GPU in figures, on the `host` that executes kernels."""
        figures, limits = self._gpu.figures, self._gpu.limits
        capability = ".".join(map(str, self._gpu.compute_capability))
        described = {
            "modelled GPU": f"{self._gpu.name}, compute capability {capability}",
            "SMs": f"{limits.sms} of {limits.threads} threads, {limits.registers} registers each",
            "clock": f"{figures.clock_mhz:g} MHz",
            "shared memory": f"{limits.shared_bytes // 1024} KB an SM, out of {figures.l1_bytes / 1024:g} KB with L1",
            "L2 cache": f"{figures.l2_bytes / 2**20:g} MB",
            "memory bandwidth": f"{figures.read_bytes_per_s / 1e12:.3g} TB/s reading",
            "fp32": f"{2 * figures.fp32_lanes * limits.sms * figures.clock_mhz / 1e6:.3g} TFLOP/s",
            "empty launch": f"{figures.empty_call_us:g} us for a whole call",
        }
        name = f"CPU device with gpu-model {self.model.version} of an {self._gpu.label}"
        of_host = {name: figure for name, figure in host.figures.items() if name != "device"}
        return replace(host, name=name, figures={**described, **of_host}, modelled=self.model)

    @contextmanager
    def preparing(self, *candidates: Candidate) -> Iterator[None]:
        """Builds what counting `candidates` takes, beside what is done meanwhile."""
        with threads(1) as pool:
            for candidate in {one.id: one for one in candidates if one.id not in self._counts}.values():
                # Whatever is wrong with a build is reported when it is counted.
                pool.submit(self._prepare, candidate)
            yield

    def _prepare(self, candidate: Candidate) -> None:
        self._builder.traced_worker(candidate, read=tracing.prepare)

    def profile(self, candidate: Candidate, label: str) -> Profile | NoProfile:
        """The modelled profile of a candidate's kernels at a timed case, or why there is none."""
        counts = self.counts(candidate, [label])[label]
        if isinstance(counts, str):
            return NoProfile(f"the call could not be modelled: {counts}")
        return model.profile(counts, self._gpu, candidate.id, self.model)

    def verdict(
        self, verdict: Verdict, candidate: Candidate | None, against: Candidate | None, *, rivals: bool = False
    ) -> Verdict:
        """A correct verdict with modelled times in place of the device's own, which say nothing of a GPU.

        P is over all timed cases that the baseline has counts of, also over those too long to be run. A candidate that
        lacks one of them has no P: it may hide there what is slow. Of `rivals`, neither of which is the baseline, that
        holds for both. Where `against` has no counts at all the device's own times stay, and a note says so. None in
        place of a candidate is a baseline in eager PyTorch, whose times are rougher (eager.py).
        """
        if verdict.status is not Status.CORRECT:
            return verdict
        started = monotonic()
        labels = [case.label for case in verdict.cases if case.sweep]
        theirs = self._calls(against, labels)
        if all(isinstance(found, str) for found in theirs.values()):
            why = next((str(found) for found in theirs.values()), "there is no timed case")
            return replace(verdict, notes=(*verdict.notes, f"times are emulated: the baseline has no model, {why}"))
        same = candidate == against or (candidate is not None and against is not None and candidate.id == against.id)
        ours = theirs if same else self._calls(candidate, labels)
        used = replace(self.model, seed=self._seed)
        if candidate is None or against is None:  # nobody has measured how far off that is
            used = replace(used, ratio_error=None, order_share=None, errors=None)
        made = {
            label: tuple(
                self._makeup(each, label, call[label]) for each, call in ((against, theirs), (candidate, ours))
            )
            for label in labels
        }
        cases = tuple(
            _case(case, theirs[case.label], ours[case.label], used, made[case.label], same=same, rivals=rivals)
            if case.sweep
            else case
            for case in verdict.cases
        )
        return _scored(replace(verdict, cases=cases, modelled=used), used, monotonic() - started, same=same)

    def _makeup(self, candidate: Candidate | None, label: str, call: ModelledCall | str) -> Makeup | None:
        """What a candidate's call is made of; None for eager PyTorch, and where there is no modelled call."""
        counts = None if candidate is None else self._counts[candidate.id][label]
        return None if isinstance(call, str) or counts is None or isinstance(counts, str) else makeup(call, counts)

    def _calls(self, candidate: Candidate | None, labels: Sequence[str]) -> Mapping[str, ModelledCall | str]:
        """The modelled calls of a candidate, or of eager PyTorch, at each case, or why there is none."""
        if candidate is not None:
            counts = self.counts(candidate, labels)
            return {k: v if isinstance(v, str) else model.modelled(v, self._gpu) for k, v in counts.items()}
        if missing := [case for case in self._builder.card.cases if case.sweep and case.label not in self._eager]:
            self._eager.update(eager.calls(self._builder.card, self._builder.precision, missing, self._gpu))
        return {label: self._eager[label] for label in labels}

    def counts(self, candidate: Candidate, labels: Sequence[str]) -> Mapping[str, CallCounts | str]:
        """What a call of a candidate does at each case, or why that is not known or no call of the GPU."""
        known = self._counts.setdefault(candidate.id, {})
        if missing := [label for label in labels if label not in known]:
            with self._builder.using(candidate):
                found = self._count(candidate, missing, self._seed)
            # The host executes what the GPU would refuse to launch.
            for label, one in found.items():
                known[label] = one if isinstance(one, str) else model.refused(one, self._gpu) or one
        return {label: known[label] for label in labels}


def _case(
    case: CaseVerdict,
    before: ModelledCall | str,
    after: ModelledCall | str,
    used: GpuModel,
    makeups: tuple[Makeup | None, ...],
    *,
    same: bool,
    rivals: bool,
) -> CaseVerdict:
    """A timed case without the device's own times, with the model's of baseline and candidate where there are any."""
    bare = replace(case, timing=None, speed=None, empty_us=None)
    if isinstance(before, str):
        whose = OF_BASELINE if not rivals else OF_BOTH if isinstance(after, str) else "the first: "
        return replace(bare, not_modelled=f"{whose}{before}")
    if isinstance(after, str):
        return replace(bare, not_modelled=after)
    modelled = Modelled(before.whole_us, after.whole_us, before.device_us, after.device_us, after.bound, *makeups)
    speed = _AS_ITSELF if same else modelled_speeds.of_case(modelled, used)
    return replace(bare, modelled=modelled, speed=speed)


_AS_ITSELF = by_one_error(1.0, 1.0)  # a kernel is as fast as itself


def _scored(verdict: Verdict, used: GpuModel, seconds: float, *, same: bool) -> Verdict:
    timed = [case for case in verdict.cases if case.sweep]
    scored = [(case.weight, case.modelled) for case in timed if case.modelled is not None]
    missing = _without_times(timed)
    weight = math.fsum(weight for weight, _ in scored)
    speed = None if not weight else _AS_ITSELF if same else modelled_speeds.of_cases(scored, used)
    detail = verdict.detail
    if speed is None:
        detail += ", but none of its calls could be modelled"
    elif lacking := [case for case in timed if case.lacks_model]:
        speed = None
        first, more = lacking[0], len(lacking) - 1
        detail += ", but no P: a case without a modelled time may be a slow one, "
        detail += f"{first.label} ({first.not_modelled})" + (f" and {more} more" if more else "")
    return replace(
        verdict,
        score=None if speed is None else speed.speedup,
        speed=speed,
        detail=detail,
        complete=not missing,
        notes=(*verdict.notes, *missing),
        seconds=replace(verdict.seconds, modelling=seconds),
    )


def _without_times(timed: Sequence[CaseVerdict]) -> list[str]:
    """Which cases have no modelled time and why, a sentence for each reason."""
    labels: dict[str, list[str]] = {}
    for case in timed:
        if case.not_modelled:
            labels.setdefault(case.not_modelled, []).append(case.label)
    return [
        f"{first} has no modelled time: {reason}"
        if not more
        else f"{first} and {len(more)} more have no modelled time: {reason}"
        for reason, (first, *more) in labels.items()
    ]


def left_out(counts: CallCounts, read: int, written: int) -> str | None:
    """Why a call cannot have done a task that has to read and write so many bytes, as a clause; None if it can.

    A counted call's outputs are not checked, and the largest cases are run nowhere else. Sectors count each time that
    they are asked for, so a call that passes may still have left something out.
    """
    reads = writes = 0.0
    for event in counts.events:
        if isinstance(event, Launch):
            both = sum(traffic.atomic_sectors + traffic.bulk_reduced_sectors for traffic in event.traffic)
            loads = sum(traffic.load_sectors + traffic.bulk_read_sectors for traffic in event.traffic)
            stores = sum(traffic.store_sectors + traffic.bulk_written_sectors for traffic in event.traffic)
            reads += event.count * SECTOR_BYTES * (loads + both)
            writes += event.count * SECTOR_BYTES * (stores + both)
        elif event.event in ("copy", "memset"):
            reads += event.count * event.bytes if event.event == "copy" else 0
            writes += event.count * event.bytes
    # Of long threads only the first part is known, and what they write may come behind it.
    written = 0 if counts.note else written
    # A sample of blocks says nearly what the whole moves.
    for verb, found, least in (("reads", reads, read), ("writes", writes, written)):
        if not found >= constants.shipped().counting.least_moved * least:
            return f"the counted call {verb} {found:.0f} bytes, and the task takes {least} at least"
    return None


def counter(builder: Builder, device: Device) -> Count:
    """Counts calls by the traced build of a device that can look on while it executes, for the `chosen_gpu`."""
    wanted = chosen_gpu()
    card, precision = builder.card, builder.precision

    def count(candidate: Candidate, labels: Sequence[str], seed: int) -> Mapping[str, CallCounts | str]:
        if not isinstance(device, Observing):
            return dict.fromkeys(labels, f"the {device.name} device cannot look on while it executes")
        build = builder.traced_worker(candidate, read=tracing.prepare)
        if build.worker is None:
            return dict.fromkeys(labels, f"its traced build failed, {build.detail}")
        found = tracing.trace(device, builder.judge(), build.worker, labels, wanted=wanted, seed=seed)
        cases = {case.label: case for case in card.cases}
        counts: dict[str, CallCounts | str] = {}
        for label, one in zip(labels, found, strict=True):
            if isinstance(one, tracing.NoTrace):
                counts[label] = one.reason
            else:
                least = card.floor_of(cases[label], precision)
                counts[label] = left_out(one, least["bytes_read"], least["bytes_written"]) or one
        return counts

    return count
