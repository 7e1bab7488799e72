"""What a task's outputs are held against, in words: for whoever reads a verdict, writes a kernel, or is an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from cudamaster.core.expressions import evaluate
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision
from cudamaster.tasks.parameters import RANGES, SOUND, ULPS, Parameter

if TYPE_CHECKING:
    from cudamaster.tasks.cards import TaskCard

# c: a function in C++, reference/<task>.h; python: one in Python, reference/<task>.py; baseline: the baseline's output.
Truth = Literal["c", "python", "baseline"]
# Where the scale is an element's own size or the output's, it does not say of how many terms an element is made: fp32
# sums of thousands of terms in another order than the baseline's are off by more than 4 ulps of it. A baseline that is
# its own reference has no error to go by either.
ULPS_NORMWISE = "256"
# A baseline that is the truth and computes in half or bf16 has rounded its intermediate results to that type, of which
# nothing shows: a kernel that keeps them in fp32 is more exact, and off by as much as the baseline is. Four ulps of the
# type, in ulps of fp32, are eight roundings. A reference in Python shows that error, and four times it are allowed.
_OWN_ULPS = 4
ULPS_LOW = {"half": str(_OWN_ULPS * 2**13), "bf16": str(_OWN_ULPS * 2**16)}
_LOW = {Precision.FP16: "half", Precision.BF16: "bf16"}

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

    def with_usual(each: Any) -> Any:
        if not isinstance(each, dict) or each.get("role") not in ("output", "inout"):
            return each
        kind = _kind(each.get("type"), fields.get("precisions"))
        usual = ULPS_LOW.get(kind, ULPS_NORMWISE) if fields["truth"] == "baseline" else ULPS_NORMWISE
        return {"ulps": usual, **({"check": "exact"} if each.get("type") in RANGES else {}), **each}

    return {**fields, "parameters": [with_usual(each) for each in parameters]}


def _kind(of: object, precisions: object) -> str:
    """A parameter's element type. That of T is known if the task has one precision."""
    if of != "T" or not isinstance(precisions, list | tuple) or len(precisions) != 1:
        return str(of)
    return _LOW.get(precisions[0], "float")


def default_ulps(card: TaskCard, parameter: Parameter) -> str:
    """What any kernel may be off by where the card says nothing, in ulps of fp32 at an element's scale."""
    if card.truth == "c":
        return ULPS
    own = card.truth == "baseline"
    return ULPS_LOW.get(_kind(parameter.type, card.precisions), ULPS_NORMWISE) if own else ULPS_NORMWISE


def _in_words(card: TaskCard, parameter: Parameter) -> str:
    """What any kernel may be off by, in ulps of fp32 and of the output's own type where that is the default."""
    kind = _kind(parameter.type, card.precisions)
    own = card.truth == "baseline" and parameter.ulps == ULPS_LOW.get(kind)
    return f"{parameter.ulps} ulps of fp32" + (f" ({_OWN_ULPS} of {kind})" if own else "")


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
    low = [
        f"in {p.name} a kernel may be off by {_in_words(card, p)}"
        for p in _bounded(card)
        if card.truth == "baseline" and p.ulps in ULPS_LOW.values()
    ]
    return ("; ".join([f"truth: {source}", *low, *(f"wider bounds: {each}" for each in wider)]),)


def _wider(card: TaskCard) -> list[str]:
    """The outputs whose bounds are wider than usual, with the numbers."""
    found = []
    for p in _bounded(card):
        usual, words = float(default_ulps(card, p)), []
        if any(float(evaluate(p.ulps, case.values)) > usual for case in card.cases):
            words.append(f"a kernel {p.ulps} ulps of fp32 ({usual:g} by default)")
        if p.sound > SOUND:
            words.append(f"the baseline {p.sound:g} of the scale ({SOUND:g} by default)")
        if words:
            found.append(f"in {p.name}, {' and '.join(words)}")
    return found


def _bounded(card: TaskCard) -> list[Parameter]:
    return [p for p in card.parameters if p.is_written and p.check == "bounded"]


def how_judged(card: TaskCard, precision: Precision) -> str:
    """How errors are judged, for prompts."""
    exact = ", ".join(p.name for p in card.parameters if p.is_written and p.check == "exact")
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
        bounds = " or ".join(dict.fromkeys(_in_words(card, p) for p in bounded))
        return (
            f"the baseline's own output on the same inputs; it may differ by {bounds}, on the scale of "
            f"{_SCALES['baseline']}, beside the rounding of the result."
        )
    error = f"{against(card)}; its error may not exceed a small multiple of the baseline's own error"
    if card.truth == "c":
        scale = "the sum of the absolute terms that make the element"
        return f"{error}, on the scale of {scale}.{_LOWER.get(precision, '')}"
    bounds = " or ".join(dict.fromkeys(_in_words(card, p) for p in bounded))
    # With more ulps of a scale that is the sum of the terms, TF32 may pass.
    lower = _LOWER.get(precision, "") if all(p.ulps == ULPS for p in bounded) else ""
    return f"{error} or {bounds}, on the scale of {_SCALES[card.truth]}.{lower}"


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
    ulps = f"{parameter.ulps} times 2^-42" if parameter.type == "double" else _in_words(card, parameter)
    own = card.truth == "baseline"
    error = "4 times the difference between two of its calls" if own else "4 times the baseline's own worst error"
    return (
        f"each element against {against(card)}, on the scale of {_SCALES[card.truth]}; bound: {error} or {ulps}, plus "
        "2 ulps of the result in its own type."
    )
