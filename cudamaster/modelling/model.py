"""The model of a GPU: counts of a call to its times, whole and on the device, with what bounds each launch.

The host enqueues one thing after another, the device does them in their order, and the call is over when the device is
idle: the two timelines are followed side by side. An honest estimate, no cycle simulator: docs/gpu_model.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudamaster.core.values import GpuModel, Profile
from cudamaster.modelling import launch_time, metrics
from cudamaster.modelling.constants import Constants, shipped
from cudamaster.modelling.counts import CallCounts, Launch, Other
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.launch_time import LaunchTime, Part, Work
from cudamaster.modelling.memory import L2

US_OF_S = 1e6
# A call is bound by launching and waiting if its kernels take a smaller part of it.
_LEAST_OF_KERNELS = 1 / 3
_SHOWN = 0.01  # of the kernels' time: a smaller part is left out of the breakdown
AROUND = "launches, waiting and other work"  # what of a call is no time of its kernels


@dataclass(frozen=True)
class ModelledCall:
    """A call at one case, in microseconds: by the host's clock until the device is idle, and on the device alone.

    `other_us` is the device's and the host's time for what is no launch: memsets, copies, allocations.
    `version` is the model's, `gpu` the key of the GPU's file, `note` what the counts say was cut short.
    """

    case: str
    whole_us: float
    device_us: float
    launches: tuple[LaunchTime, ...]
    other_us: float
    gpu: str
    version: int
    note: str

    @property
    def kernels_us(self) -> float:
        """Time of all launches on the device, without the gaps."""
        return sum(launch.device_us * launch.count for launch in self.launches)

    @property
    def parts_us(self) -> Mapping[Part, float]:
        """What each part of the GPU would take for all launches, were the others free."""
        return {part: sum(launch.parts_us[part] * launch.count for launch in self.launches) for part in Part}

    @property
    def dominating(self) -> LaunchTime | None:
        """The launch that takes most of the time, with those like it; None where there is none."""
        return max(self.launches, key=lambda launch: launch.device_us * launch.count, default=None)

    @property
    def bound(self) -> str:
        """What bounds the call: a part of the GPU in its dominating launch, or "launch overhead" where that is most."""
        main = self.dominating
        if main is None or self.kernels_us < self.whole_us * _LEAST_OF_KERNELS:
            return "launch overhead"
        return main.bound.value


def works(counts: CallCounts, gpu: Gpu, constants: Constants | None = None) -> tuple[Work, ...]:
    """What of a call's launches depends on no constant that is fitted."""
    constants = shipped().constants if constants is None else constants
    l2 = L2(gpu.figures.l2_bytes)
    return tuple(launch_time.work(event, gpu, constants, l2) for event in counts.events if isinstance(event, Launch))


def modelled(
    counts: CallCounts, gpu: Gpu, constants: Constants | None = None, known: Sequence[Work] | None = None
) -> ModelledCall:
    """The times of a call on a GPU; the constants are those that ship unless others are given.

    A fit gives what it knows of the launches, `works` of the call.
    """
    constants = shipped().constants if constants is None else constants
    clocks = Clocks(gpu)
    of_launches = iter(works(counts, gpu, constants) if known is None else known)
    priced = []
    for event in counts.events:
        if isinstance(event, Launch):
            time = launch_time.priced(event, next(of_launches), gpu, constants)
            priced.append(time)
            clocks.launch(time.device_us, event.count, early=event.early)
        else:
            clocks.other(event)
    return ModelledCall(
        case=counts.case,
        whole_us=clocks.whole_us,
        device_us=clocks.device_us,
        launches=tuple(priced),
        other_us=clocks.other_us,
        gpu=gpu.key,
        version=shipped().version,
        note=counts.note,
    )


def refused(counts: CallCounts, gpu: Gpu) -> str | None:
    """Why a call cannot be made on a GPU, or has no time, a clause: one of its kernels does not fit, or does what has
    no price. None where it can."""
    launches = (event for event in counts.events if isinstance(event, Launch))
    return next((why for each in launches if (why := launch_time.refused(each, gpu)) is not None), None)


def profile(counts: CallCounts, gpu: Gpu, candidate: str, mark: GpuModel) -> Profile:
    """The modelled profile of a call of `candidate`, an id, for the filter that reads measured ones; `mark` goes along.

    Metrics that the model cannot give are absent.
    """
    call = modelled(counts, gpu)
    launches = [event for event in counts.events if isinstance(event, Launch)]
    return Profile(
        candidate=candidate,
        case=counts.case,
        source=f"modelled, {mark.described}",
        kernels=metrics.kernels(list(zip(launches, call.launches, strict=True)), gpu),
        modelled=mark,
        breakdown=breakdown(call),
    )


def breakdown(call: ModelledCall) -> Mapping[str, float]:
    """Where the time of a call goes, in microseconds: its kernels, and what each part of the GPU would take alone.

    Parts overlap, so they add up to more than the kernels' time; those below 1 % of it are left out.
    """
    parts = {f"{part} alone": us for part, us in call.parts_us.items() if us > _SHOWN * call.kernels_us}
    around = max(0.0, call.whole_us - call.kernels_us)
    return {
        "whole call": call.whole_us,
        "kernels": call.kernels_us,
        AROUND: around,
        **dict(sorted(parts.items(), key=lambda item: -item[1])),
    }


class Clocks:
    """Host and device side by side, in microseconds from the call's start.

    A call with one empty kernel takes the host `empty_call_us`, of which one launch is `launch_host_us`; the rest is
    the way to the device and the wait for its end, in equal parts.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.figures = gpu.figures
        self.host = 0.0
        self.device = 0.0
        self.began: float | None = None
        self.other_us = 0.0
        self._allocated: list[float] = []  # what each costs to release

    @property
    def _way(self) -> float:
        """From the host to the device, and as long back."""
        figures = self.figures
        return max(0.0, figures.empty_call_us - figures.launch_host_us - figures.gap_us) / 2

    @property
    def _idle(self) -> float:
        """When the host knows that the device is idle."""
        return self.host if self.began is None else max(self.host, self.device + self._way)

    @property
    def whole_us(self) -> float:
        """Time of the call so far, were it over when the device is idle."""
        return max(self._idle, self.figures.empty_call_us - self.figures.launch_host_us)

    @property
    def device_us(self) -> float:
        """From where an empty kernel would have started to the end of the last work on the device: an event in front of
        the call would not wait for what the host does first."""
        if self.began is None:
            return 0.0
        return self.device - self.began + self.figures.empty_device_us - self.figures.gap_us

    def launch(self, device_us: float, count: int, *, early: bool = False) -> None:
        """Kernels in a row that take so long each; `early` ones begin while what is before them ends."""
        gap_us = self.figures.gap_us
        if early and self.began is not None:
            self.device -= gap_us
        self._enqueue(self.figures.launch_host_us, device_us, count, 0.0 if early else gap_us)

    def other(self, event: Other) -> None:
        """What is no launch."""
        figures = self.figures
        if event.event == "alloc":
            cost = figures.small_alloc_us if event.bytes <= figures.small_alloc_bytes else figures.alloc_us
            self._allocated += [cost] * event.count
            self.host_work(cost * event.count)
        elif event.event == "free":  # which waits for the device
            self.host = self._idle
            for _ in range(event.count):
                self.host_work(self._allocated.pop() if self._allocated else figures.small_alloc_us)
        elif event.event == "synchronise":
            self.host = self._idle
            self.host_work(figures.synchronise_us * event.count)
        elif event.event == "host":
            self.host_work(event.instructions / figures.host_instructions_per_us * event.count)
        elif event.host:  # which waits for the device, and the host for it
            for _ in range(event.count):
                device_us = figures.memset_device_us + event.bytes / figures.host_bytes_per_s * US_OF_S
                self._enqueue(figures.memset_host_us, device_us, 1)
                self.host = self._idle
                self.other_us += device_us
        else:
            rate = figures.copy_bytes_per_s / 2 if event.event == "copy" else figures.write_bytes_per_s
            device_us = figures.memset_device_us + event.bytes / rate * US_OF_S
            self._enqueue(figures.memset_host_us, device_us, event.count)
            self.other_us += device_us * event.count

    def host_work(self, cost_us: float) -> None:
        """The host does what is no launch."""
        self.host += cost_us
        self.other_us += cost_us

    def _enqueue(self, host_us: float, device_us: float, count: int, between_us: float | None = None) -> None:
        """`count` times the same on the device, with the usual gap between two of them unless another one is given.
        Whichever of host and device is slower sets the pace."""
        self.host += host_us
        start = max(self.device, self.host + self._way)
        if self.began is None:
            self.began = min(start, self.figures.launch_host_us + self._way)
        gap_us = self.figures.gap_us
        each = device_us + (gap_us if between_us is None else between_us)
        self.host += host_us * (count - 1)
        self.device = max(start + each * (count - 1), self.host + self._way) + device_us + gap_us
