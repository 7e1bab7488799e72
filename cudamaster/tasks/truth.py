"""What a task's outputs are held against, in words: for whoever reads a verdict, writes a kernel, or is an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from cudamaster.core.expressions import evaluate
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision
from cudamaster.tasks.parameters import RANGES, SOUND, ULPS, Parameter

if TYPE_CHECKING:
    from cudamaster.tasks.cards import TaskCard
    from cudamaster.tasks.parameters import Parameter

# c: a function in C++, reference/<task>.h; python: one in Python, reference/<task>.py; baseline: the baseline's output.
Truth = Literal["c", "python", "baseline"]
# Where the scale is an element's own size or the output's, it does not say of how many terms an element is made: fp32
# sums of thousands of terms in another order than the baseline's are off by more than 4 ulps of it. A baseline that is
# its own reference has no error to go by either.
ULPS_NORMWISE = "256"

_SCALES: Mapping[Truth, str] = {
    "c": "the sum of the absolute terms that make it",
    "python": "its own size or the output's root mean square, whichever is larger, unless the reference gives another",
    "baseline": "its own size or the output's root mean square, whichever is larger",
}
# What is outside the bound, by precision. Of FP16 the summary says in what sums are due.
_LOWER = dict.fromkeys(
    BENCHMARK_PRECISIONS,
    " TF32, FP16 or BF16 arithmetic in place of FP32, or BF16 accumulation, is outside that.",
)


def with_defaults(fields: Any) -> Any:
    """The fields of a card as they were read, with what its truth brings where an output says nothing: other bounds,
    and integers that have to be exact."""
    parameters = fields.get("parameters") if isinstance(fields, dict) else None
    if not isinstance(parameters, list | tuple) or fields.get("truth", "c") == "c":
        return fields
    usual = {"ulps": ULPS_NORMWISE}

    def with_usual(each: Any) -> Any:
        if not isinstance(each, dict) or each.get("role") not in ("output", "inout"):
            return each
        return {**usual, **({"check": "exact"} if each.get("type") in RANGES else {}), **each}

    return {**fields, "parameters": [with_usual(each) for each in parameters]}


def default_ulps(card: TaskCard) -> str:
    """What any kernel may be off by where the card says nothing, in ulps of fp32 at an element's scale."""
    return ULPS if card.truth == "c" else ULPS_NORMWISE


def notes(card: TaskCard) -> tuple[str, ...]:
    """The line of a verdict that says what the truth was; none for a reference in C++ with the usual bounds."""
    wider = _wider(card)
    if card.truth == "c" and not wider:
        return ()
    source = {
        "c": f"reference/{card.reference_path.name} (C++)",
        "python": f"reference/{card.reference_path.name} (Python)",
        "baseline": "the baseline's own output, no independent reference",
    }[card.truth]
    return ("; ".join([f"truth: {source}", *(f"wider bounds: {each}" for each in wider)]),)


def _wider(card: TaskCard) -> list[str]:
    """The outputs whose bounds are wider than usual, with the numbers."""
    usual, found = float(default_ulps(card)), []
    for p in _bounded(card):
        words = []
        if any(float(evaluate(p.ulps, case.values)) > usual for case in card.cases):
            words.append(f"a kernel {p.ulps} ulps of fp32 ({usual:g} by default)")
        if p.sound > SOUND:
            words.append(f"the baseline {p.sound:g} of the scale ({SOUND:g} by default)")
        if words:
            found.append(f"in {p.name}, {' and '.join(words)}")
    return found


def _bounded(card: TaskCard) -> list[Parameter]:
    return [p for p in card.parameters if p.role in ("output", "inout") and p.check == "bounded"]


def how_judged(card: TaskCard, precision: Precision) -> str:
    """How errors are judged, for prompts."""
    exact = ", ".join(p.name for p in card.parameters if p.role in ("output", "inout") and p.check == "exact")
    said = [f"{exact} must be exactly right{'' if card.truth == 'c' else f', by {against(card)}'}."] if exact else []
    if bounded := _bounded(card):
        doubles = ", ".join(p.name for p in bounded if p.type == "double")
        said.append(
            f"Each {'other ' if exact else ''}output element is compared with {_compared(card, precision, bounded)}"
            + (f" FP32 arithmetic is outside it for {doubles}, of double." if doubles else "")
        )
    return " ".join(said)


def _compared(card: TaskCard, precision: Precision, bounded: list[Parameter]) -> str:
    """With what, and by how much an element may differ."""
    if card.truth == "baseline":
        bounds = " or ".join(dict.fromkeys(p.ulps for p in bounded))
        return (
            f"the baseline's own output on the same inputs; it may differ by {bounds} ulps of FP32, on the scale of "
            f"{_SCALES['baseline']}, beside the rounding of the result."
        )
    lower = "" if card.truth != "c" and _wider(card) else _LOWER.get(precision, "")
    scale = "the sum of the absolute terms that make the element" if card.truth == "c" else _SCALES[card.truth]
    return (
        f"{against(card)}; its error may not exceed a small multiple of the baseline's own error, on the scale of "
        f"{scale}.{lower}"
    )


def against(card: TaskCard) -> str:
    """What outputs are held against, in a few words."""
    return {
        "c": "a double-precision reference",
        "python": f"a double-precision reference in Python (reference/{card.reference_path.name})",
        "baseline": "the baseline's own output",
    }[card.truth]


def bound(card: TaskCard, parameter: Parameter) -> str:
    """How an output is compared, for whoever writes a kernel."""
    if parameter.check == "exact":
        return "compared exactly" + (" with the baseline's own output." if card.truth == "baseline" else ".")
    ulps = f"{parameter.ulps} times 2^-42" if parameter.type == "double" else f"{parameter.ulps} ulps of fp32"
    own = card.truth == "baseline"
    error = "4 times the difference between two of its calls" if own else "4 times the baseline's own worst error"
    return (
        f"each element against {against(card)}, on the scale of {_SCALES[card.truth]}; bound: {error} or {ulps}, plus "
        "2 ulps of the result in its own type."
    )
