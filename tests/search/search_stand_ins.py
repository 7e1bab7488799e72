# ruff: noqa: D102
"""Stand-ins for what a search needs from outside: cards, workbenches and models.

`ScriptedWorkbench` reads a candidate's verdict from a comment in its code.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cudamaster.agents.submitter import Submission, text_of
from cudamaster.core.speed import compare
from cudamaster.core.values import (
    Candidate,
    CaseVerdict,
    Findings,
    Hardware,
    Precision,
    Role,
    Status,
    Timing,
    Verdict,
)
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.models.protocol import Model, Reply, Request, Usage
from cudamaster.runs.record import Settings
from cudamaster.strategies import registry
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region

COMMAND = "nvcc -O3 -std=c++17 -c candidate.cu -o candidate.o"
HARDWARE = Hardware("Stand-in device", {"Cores": "2"}, emulated=True)


@dataclass(frozen=True)
class FakeCard:
    """A task card with just what prompts need."""

    name: str = "double_it"
    title: str = "Double it"
    hash: str = "0123456789abcdef"
    headers: tuple[str, ...] = ()
    suite: str = "Stand-ins"
    source: str = "double_it"
    baseline_by: str = "kernel"

    def wrapper(self, precision: Precision, *, optimized: bool = False) -> str:
        return self.name + ("_optimized" if optimized else "")

    def declaration(self, precision: Precision, *, optimized: bool = True) -> str:
        return f'extern "C" void {self.wrapper(precision, optimized=optimized)}(float* out, int N)'

    def describe(self, precision: Precision) -> str:
        return f"DESCRIPTION of {self.name} in {precision.value}"


ESCAPES = "<escapes>"


def kernel(status: str = "correct", score: float | None = None, tag: str = "") -> str:
    """Code whose verdict the scripted workbench reads from its first line."""
    return (
        f"// {status} {score if score is not None else '-'} {tag}\nvoid double_it_optimized(float* out, int N) {{}}\n"
    )


SPEED = compare((2.0, 4.0), (1.0, 2.0))


class ScriptedWorkbench:
    """Judges by the first line of the code, and counts how often it was asked about each candidate."""

    def __init__(self, precision: Precision = Precision.FP32, delay: Callable[[], None] = lambda: None) -> None:
        self.card = FakeCard()
        self.precision = precision
        self.hardware = HARDWARE
        self.baseline = Candidate(self.card.name, precision, kernel(score=1.01, tag="baseline"), COMMAND)
        self.evaluated: list[str] = []
        self.profiled: list[str] = []
        self._delay = delay

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        self.evaluated.append(candidate.id)
        self._delay()
        _, status, score, tag = candidate.code.split("\n", 1)[0].split(" ", 3)
        tag = tag.replace(ESCAPES, "\x1b[2J\u202e")  # code cannot hold them, what a program prints can
        timing = Timing((2.0, 4.0), (1.0, 2.0))
        return Verdict(
            candidate=candidate.id,
            device="stand-in",
            emulated=True,
            status=Status(status),
            detail=f"DETAIL {tag}" if status != "correct" else "all cases pass",
            log=f"LOG of {tag}" if status != "correct" else "",
            score=None if score == "-" else float(score),
            cases=(CaseVerdict("N=8", True, 8.0, Status(status), timing=timing, speed=SPEED),),
        )

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        self.profiled.append(candidate.id)
        return Findings(candidate.id, f"no profiler here; NOTE {len(self.profiled)}")


class RealTask(ScriptedWorkbench):
    """The scripted workbench on a real card, whose baseline it takes for correct."""

    def __init__(self) -> None:
        super().__init__()
        self.card = cards.load("dot_product")  # type: ignore[assignment]
        text = baseline_region(cards.load("dot_product"), Precision.FP32)
        self.baseline = Candidate("dot_product", Precision.FP32, text, CpuDevice.default_command)

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """By the first line, but for the baseline."""
        if candidate.id != self.baseline.id:
            return super().evaluate(candidate)
        told = super().evaluate(replace(candidate, code=kernel(score=1.01)))
        return replace(told, candidate=candidate.id)


@dataclass
class ScriptedModel:
    """Answers in order; each answer names the role that must be asking."""

    script: Iterable[tuple[Role, str]]
    name: str = "scripted"
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = iter(list(self.script))

    def ask(self, request: Request) -> Reply:
        self.requests.append(request)
        role, text = next(self._left)
        assert request.role is role, f"{request.role} asked where {role} was expected"
        return Reply(text, self.name, Usage(10, 5, 0.25, 0.1))

    @property
    def exhausted(self) -> bool:
        return next(self._left, None) is None

    def for_all(self) -> dict[Role, ScriptedModel]:
        return dict.fromkeys(Role, self)

    def prompts(self, role: Role) -> list[str]:
        return [request.messages[-1].content for request in self.requests if request.role is role]


def search(
    workbench: Any,
    models: Mapping[Role, Model],
    strategy: str,
    rounds: int,
    debug_tries: int = 0,
    observer: Observer | None = None,
    **more: Any,
) -> Result:
    """A search without a run folder, in which no score is too good; `more` are further settings."""
    asked = dict.fromkeys(registry.find(strategy).roles, "scripted")
    rule = {"jump_factor": 0, "jump_above": 0}
    settings = Settings(strategy, rounds, debug_tries, "stand-in", asked, **rule, **more)
    return registry.run(registry.begin(workbench, models, settings, observer or Observer()), settings)


def plan(idea: str) -> tuple[Role, str]:
    return Role.PLANNER, json.dumps({"idea": idea, "plan": f"PLAN for {idea}"})


def code(text: str) -> tuple[Role, str]:
    return Role.CODER, f"Here it is.\n```cuda\n{text}```\n"


def command(text: str = COMMAND) -> tuple[Role, str]:
    return Role.COMPILER, text


def submission(text: str) -> tuple[Role, str]:
    return Role.AGENT, text_of(Submission(text))


def fix(text: str) -> tuple[Role, str]:
    return Role.DEBUG, json.dumps({"diagnosis": f"CAUSE {text}", "fix": f"FIX {text}"})


def dot_product(statement: str) -> str:
    """A dot product whose loop body is `statement`; real CUDA, if slow."""
    return f"""#include <cuda_runtime.h>

__global__ void dot_product_kernel_optimized(float* out, const float* X, const float* Y, int N) {{
    double total = 0.0;
    for (int i = 0; i < N; ++i) {{
        {statement}
    }}
    *out = total;
}}

extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) {{
    dot_product_kernel_optimized<<<1, 1>>>(out, X, Y, N);
    cudaDeviceSynchronize();
}}
"""


class PlainHttpModel:
    """The chat protocol without LiteLLM, whose import would cost seconds in every killed process."""

    name = "plain-http"

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, request: Request) -> Reply:
        body = {"model": "m", "messages": [{"role": m.role, "content": m.content} for m in request.messages]}
        raw = urllib.request.Request(
            f"{self._url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(raw, timeout=20) as response:
            text = json.load(response)["choices"][0]["message"]["content"]
        return Reply(text, self.name, Usage(100, 20, None, 0.0))
