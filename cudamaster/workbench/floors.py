"""The floor under a call's time: what memory, arithmetic units and an empty launch allow at best.

bench/harness/limits.cu measures the GPU's bandwidths and rates once, and the cache keeps them. A floor is a true lower
bound for calls that find their inputs in memory; with warm caches, as in the paper's protocol, it does not apply.
Special functions are measured too but bound nothing, since no card counts them.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from cudamaster.core import resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.records import to_json
from cudamaster.core.values import CaseVerdict, Precision, Status, Verdict
from cudamaster.devices.protocol import Device, Limited, Unit
from cudamaster.tasks.cards import Case, TaskCard

# GpuLimits are measured, and another kernel may be a few percent faster than the best of ours.
TOLERANCE = 0.95
_MEASURING_LIMIT_S = 120.0
_BUSY = "See with nvidia-smi whether another program fills the GPU, and try again."
# Tensor cores, dense, bf16 with fp32 sums: operations per multiprocessor and clock (NVIDIA's architecture papers).
# They apply if no instruction in limits.cu reaches the peak. A newer GPU counts as the fastest known one.
_TENSOR_PER_CLOCK = {"10.0": 8192, "10.3": 8192}
_TENSOR_PER_CLOCK_OTHERS = 8192
# A product of fp32 precision takes three half-precision products on tensor cores (Ootomo and Yokota, 2022); no way with
# fewer is known.
_HALF_PRODUCTS = 3
# Shared memory and L1 have 32 banks of 4 bytes in each multiprocessor, on every architecture so far.
SHARED_BYTES_PER_CLOCK = 128

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(gt=0)]


@dataclass(frozen=True)
class GpuLimits:
    """What a GPU can do at best, when that was measured (ISO date and time, UTC), and by which source of limits.cu.

    Bandwidths are in bytes per second; a copy counts what it reads and what it writes. Rates are in operations per
    second, a multiplication and an addition being two. The clock before and after is that of the fp32 units at work.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    date: str
    uuid: str
    driver: str
    source: str
    name: str
    compute_capability: str
    multiprocessors: _Count
    l2_bytes: Annotated[int, Field(ge=0)]
    threads_per_sm: _Count
    registers_per_sm: _Count
    shared_bytes_per_sm: _Count
    shared_bytes_per_block: _Count  # the most that a kernel can be allowed
    read_bytes_per_s: _Positive
    write_bytes_per_s: _Positive
    copy_bytes_per_s: _Positive
    memory_peak_bytes_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # 0 if the driver does not say
    fp32_per_s: _Positive
    bf16_pairs_per_s: _Positive
    tensor_per_s: _Positive
    tensor_by: Literal["wgmma", "mma.sync"]
    special_per_s: _Positive
    sm_clock_max_mhz: _Count
    sm_clock_before_mhz: _Positive
    sm_clock_after_mhz: _Positive

    @property
    def tensor_bound_per_s(self) -> float:
        """Rate that the tensor cores do not exceed: the measured one, or the documented one if that is larger."""
        if self.tensor_by == "wgmma" or self.compute_capability.split(".")[0] in ("8", "12"):
            return self.tensor_per_s
        per_clock = _TENSOR_PER_CLOCK.get(self.compute_capability, _TENSOR_PER_CLOCK_OTHERS)
        return max(self.tensor_per_s, per_clock * self.multiprocessors * self.sm_clock_max_mhz * 1e6)

    @property
    def shared_bytes_per_s(self) -> float:
        """What the shared memories of all multiprocessors together deliver at the highest clock."""
        return SHARED_BYTES_PER_CLOCK * self.multiprocessors * self.sm_clock_max_mhz * 1e6

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the figures may be lower than the GPU's best: something else used it or slowed it down."""
        found = []
        if self.read_bytes_per_s < 0.75 * self.memory_peak_bytes_per_s:
            share = self.read_bytes_per_s / self.memory_peak_bytes_per_s
            found.append(f"Reading reached {share:.0%} of what the memory's clock and width allow.")
        if (clock := min(self.sm_clock_before_mhz, self.sm_clock_after_mhz)) < 0.9 * self.sm_clock_max_mhz:
            found.append(f"The SMs ran at {clock:.0f} MHz of {self.sm_clock_max_mhz}.")
        return tuple(found)

    @property
    def figures(self) -> Mapping[str, str]:
        """What the author of a kernel for this GPU has to know, by name, with units."""
        return {
            "multiprocessors (SMs)": f"{self.multiprocessors}",
            "threads per SM": f"{self.threads_per_sm}",
            "32-bit registers per SM": f"{self.registers_per_sm}",
            "shared memory per SM": f"{self.shared_bytes_per_sm / 1024:.4g} KiB",
            "shared memory per block": f"48 KiB, up to {self.shared_bytes_per_block / 1024:.4g} KiB as dynamic shared "
            "memory that cudaFuncSetAttribute allows",
            "L2 cache": f"{self.l2_bytes / 2**20:.3g} MiB",
            "memory bandwidth, measured": f"reads {_scaled(self.read_bytes_per_s)}B/s, writes "
            f"{_scaled(self.write_bytes_per_s)}B/s",
            "fp32 arithmetic, measured": f"{_scaled(self.fp32_per_s)}FLOP/s",
            "bf16 arithmetic without tensor cores, measured": f"{_scaled(self.bf16_pairs_per_s)}FLOP/s",
            f"tensor cores, bf16 with fp32 sums, measured by {self.tensor_by}": f"{_scaled(self.tensor_per_s)}FLOP/s",
        }

    def operations_per_s(self, precision: Precision, *, products: bool) -> tuple[float, str]:
        """Rate of the fastest unit for a task's operations, and its name."""
        if precision is not Precision.FP32:  # fp16 runs at the rates of bf16, with sums in either type
            rates = [(self.fp32_per_s, "fp32"), (self.bf16_pairs_per_s, f"{precision} pairs")]
            tensor = (self.tensor_bound_per_s, "tensor")
        else:
            rates = [(self.fp32_per_s, "fp32")]
            tensor = (self.tensor_bound_per_s / _HALF_PRODUCTS, f"tensor, {_HALF_PRODUCTS} products for one of fp32")
        return max([*rates, tensor] if products else rates)


_LIMITS = TypeAdapter(GpuLimits)


@dataclass(frozen=True)
class Term:
    """One resource of the GPU: the least that a call needs of it, in bytes or operations, and its speed.

    `by` is the unit that does the operations, or says which bytes they are.
    """

    what: str
    amount: float
    per_s: float
    unit: str  # "B" or "operations"
    by: str = ""

    @property
    def us(self) -> float:
        """Least time in microseconds."""
        return self.amount / self.per_s * 1e6

    def explain(self) -> str:
        """The sum in words, e.g. "reads 268 MB at 4.31 TB/s: 62.3 µs"."""
        if self.unit == "B":
            which = f" {self.by}" if self.by else ""
            return f"{self.what} {_scaled(self.amount)}B{which} at {_scaled(self.per_s)}B/s: {duration(self.us)}"
        rate = f"{_scaled(self.per_s)}FLOP/s ({self.by})"
        return f"{self.what} {self.amount:.3g} operations at {rate}: {duration(self.us)}"


@dataclass(frozen=True)
class Floor:
    """Least time of one call of a case. `terms`: read, write, memory (both together) and operations.

    `gather` bounds nothing and is no part of the floor: a kernel may keep in registers what it takes more than once.
    Where it is longer than the floor, it is what holds most kernels back.
    """

    terms: Mapping[str, Term]
    gather: Term | None = None

    @property
    def hardware_us(self) -> float:
        """The largest term: the time that the GPU's units need, without the launch."""
        return max(term.us for term in self.terms.values())

    def call_us(self, empty_us: float) -> float:
        """Least time of a whole wrapper call if an empty one takes `empty_us`."""
        return self.hardware_us + empty_us

    def impossible(self, time_us: float) -> bool:
        """Whether no kernel can have done it in that time. The launch is left out, as its time varies."""
        return not time_us >= TOLERANCE * self.hardware_us

    def explain(self) -> str:
        """The sum in words: every term that is not zero, and the largest, which is the floor."""
        sums = [term.explain() for term in self.terms.values() if term.amount]
        return "; ".join([*sums, f"the floor is {duration(self.hardware_us)}"])

    def beside(self) -> str:
        """What is no part of the floor, in words; empty where the card names nothing."""
        return "" if self.gather is None else f"Not in the floor: {self.gather.explain()}"


def floor(card: TaskCard, case: Case, precision: Precision, limits: GpuLimits) -> Floor:
    """The floor of a case: the longest of reading, writing, both together, and arithmetic.

    Bytes that fit in L2 need not be written when the call is over. Memory's pins carry either reads or writes, so both
    together take as long as all of their bytes at the best rate of either.
    """
    least = card.floor_of(case, precision)
    read, written = least["bytes_read"], max(0, least["bytes_written"] - limits.l2_bytes)
    fastest = max(limits.read_bytes_per_s, limits.write_bytes_per_s, limits.copy_bytes_per_s)
    operations_per_s, unit = limits.operations_per_s(precision, products=card.floor.products)
    return Floor(
        {
            "read": Term("reads", read, limits.read_bytes_per_s, "B"),
            "write": Term("writes", written, limits.write_bytes_per_s, "B", "beyond L2"),
            "memory": Term("moves", read + written, fastest, "B"),
            "operations": Term("does", least["operations"], operations_per_s, "operations", unit),
        },
        gather(card, case, precision, limits.shared_bytes_per_s),
    )


def gather(card: TaskCard, case: Case, precision: Precision, shared_bytes_per_s: float) -> Term | None:
    """What a case gathers on the chip, through shared memory or L1; None where its card names nothing."""
    amount = card.gathered_bytes(case, precision)
    by = f"through shared memory ({SHARED_BYTES_PER_CLOCK} bytes a cycle and SM)"
    return None if amount is None else Term("gathers", amount, shared_bytes_per_s, "B", by)


def explained(verdict: Verdict, card: TaskCard, precision: Precision, limits: GpuLimits) -> str:
    """The floor of the heaviest case that was timed and what is beside it, for a card that names what it gathers."""
    timed = {case.label for case in verdict.cases if case.timing is not None}
    cases = [case for case in card.cases if case.sweep and case.label in timed]
    if card.floor.gathered is None or not cases:
        return ""
    heaviest = max(cases, key=lambda case: case.weight)
    least = floor(card, heaviest, precision, limits)
    return f"{heaviest.label}: {least.explain()}. {least.beside()}."


def least_empty_us(cases: Sequence[CaseVerdict]) -> float | None:
    """The time of an empty launch in one run of the judge, the same at all sizes: the smallest measured.

    A burst of other work may disturb its 20 calls: 13.9 µs at one size of a task on an H200, 8.4 µs at the next.
    """
    return min((case.empty_us for case in cases if case.empty_us is not None), default=None)


def hold(
    verdict: Verdict, card: TaskCard, precision: Precision, limits: GpuLimits, *, rivalled: bool = False
) -> Verdict:
    """The verdict with the floor of each timed case; a candidate whose typical call is below one is refused.

    `rivalled` says that a rival, trusted no more than a candidate, was timed in the baseline's place.
    """
    listed = {case.label: case for case in card.cases}
    empty_us = least_empty_us(verdict.cases)
    cases, impossible = [], ""
    for case in verdict.cases:
        if (timing := case.timing) is not None and empty_us is not None:
            least = floor(card, listed[case.label], precision, limits)
            case = replace(case, floor_us=least.call_us(empty_us))
            sides = [("", timing.candidate_us)]
            sides += [(" of the kernel that it is compared with", timing.baseline_us)] if rivalled else []
            for whose, calls_us in sides:
                time_us = statistics.median(calls_us)
                if least.impossible(time_us) and not impossible:
                    took = f"a call{whose} took {time_us:.1f} µs"
                    impossible = f"impossible in case {case.label}: {took}, and {least.explain()}"
        cases.append(case)
    verdict = replace(verdict, cases=tuple(cases))
    if not verdict.correct or not impossible:
        return verdict
    return replace(verdict, status=Status.REJECTED, detail=impossible, log=impossible, score=None, speed=None)


def hold_on(
    device: Device, verdict: Verdict, card: TaskCard, precision: Precision, *, rivalled: bool = False
) -> Verdict:
    """The verdict checked against the floors of a device; an emulated one has none. Raises DeviceError.

    What the kept limits refuse has to be impossible by new ones, too: what else used the GPU when those were measured,
    or held it back, made each floor too high for as long as they are kept.
    """
    known = limits(device)
    if known is None:
        return verdict
    held = hold(verdict, card, precision, known, rivalled=rivalled)
    if held.correct or not verdict.correct:
        return held
    assert isinstance(device, Limited)
    measured = measure(device)
    again = hold(verdict, card, precision, measured, rivalled=rivalled)
    if not again.correct:
        return held
    _write(place(device.gpu), measured)
    return replace(again, notes=(*again.notes, f"the GPU's limits were measured again: by the old ones {held.detail}"))


def limits(device: Device, *, again: bool = False, say: Callable[[str], None] = lambda _: None) -> GpuLimits | None:
    """The saved limits of a device's GPU; measured and saved if there are no valid ones, or with `again`.

    None for a device that has none: its times are emulated. `say` gets the reason if something kept is measured again.
    Raises DeviceError when measuring fails.
    """
    if not isinstance(device, Limited):
        return None
    path = place(device.gpu)
    if not again and path.is_file():
        found = read(path, device.gpu)
        if isinstance(found, GpuLimits):
            return found
        say(f"The limits kept in {path} are measured again: {found}.")
    measured = measure(device)
    _write(path, measured)
    return measured


def place(gpu: Unit) -> Path:
    """Where the limits of a GPU are kept."""
    return resources.cache() / "limits" / f"{gpu.uuid}.json"


def read(path: Path, gpu: Unit) -> GpuLimits | str:
    """The limits in a file, or why they do not count for this GPU, its driver and the present source of limits.cu."""
    try:
        kept = _LIMITS.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        return f"the file cannot be used ({_first_line(error)})"
    now = {"GPU": gpu.uuid, "driver": gpu.driver, "source of limits.cu": source_hash()}
    then = {"GPU": kept.uuid, "driver": kept.driver, "source of limits.cu": kept.source}
    changed = [f"the {what} was {then[what]} and is {now[what]}" for what in now if then[what] != now[what]]
    return ", ".join(changed) if changed else kept


def source_hash() -> str:
    """Hash over what limits.cu is made of."""
    folder = resources.bench() / "harness"
    digest = hashlib.sha256()
    for path in (folder / "limits.cu", *sorted((folder / "limits").glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def measure(device: Device) -> GpuLimits:
    """Build and run bench/harness/limits.cu, which takes seconds. Raises DeviceError when that fails."""
    assert isinstance(device, Limited)  # others have no limits
    said = run_harness(device, "limits", "the GPU's limits")
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "uuid": device.gpu.uuid,
        "driver": device.gpu.driver,
        "source": source_hash(),
    }
    try:
        return _LIMITS.validate_json(json.dumps({**json.loads(said.splitlines()[-1]), **about}))
    except (IndexError, TypeError, ValueError) as error:  # ValueError: no JSON, or figures that make no sense
        raise unusable("the GPU's limits", error, said) from error


def run_harness(device: Device, name: str, what: str) -> str:
    """What the program bench/harness/NAME.cu says, built and run. Raises DeviceError when that fails."""
    assert isinstance(device, Limited)
    source = (resources.bench() / "harness" / f"{name}.cu").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="cudamaster-") as made:
        folder = Path(made)
        built = device.compile(source, device.limits_flags(), name, folder)
        if built.object is not None:
            built = device.link([built.object], folder / name)
        if built.object is None:
            raise DeviceError(
                f"The measurement of {what} does not build: {built.log[-500:]}.", "Run `cudamaster doctor`."
            )
        ran = device.execute([str(built.object)], _MEASURING_LIMIT_S)
    said = ran.stderr.strip()
    if ran.exit_code != 0:
        why = f"it took more than {_MEASURING_LIMIT_S:g} s" if ran.expired else said[-500:]
        raise DeviceError(f"The measurement of {what} failed: {why}.", _BUSY)
    return said


def unusable(what: str, error: Exception, said: str) -> DeviceError:
    """The error of a measurement that gave figures of no sense."""
    why = f"{_first_line(error)} in {said[-500:]}"
    return DeviceError(f"The measurement of {what} gave unusable figures: {why}.", _BUSY)


def _write(path: Path, measured: GpuLimits) -> None:
    """Save limits; a reader meanwhile sees the complete old file or the complete new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as file:
        file.write(json.dumps(to_json(measured), indent=1) + "\n")
    Path(file.name).replace(path)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    return str(error).partition("\n")[0]


def duration(us: float) -> str:
    """A time with three digits: "62.3 µs", "3.37 ms"."""
    return f"{us:.3g} µs" if us < 999.5 else f"{us / 1e3:.3g} ms"


def _scaled(number: float) -> str:
    """A number with three digits and the prefix of its unit, e.g. "4.31 T"."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * size:
            return f"{number / size:.3g} {prefix}"
    return f"{number:.3g} "
