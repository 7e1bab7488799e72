"""How much smaller the Planner's prompt is with the filtered profile than with the full one.

    python benchmarks/prompt_size.py --from FOLDER
    python benchmarks/prompt_size.py --from softmax-fp32-N=128,C=16384.txt --from ...
    python benchmarks/prompt_size.py --from FOLDER --strategy bandit

A file holds the raw output of Nsight Compute (--csv --page raw) for a task's kernel at one case, with the six sections
of the paper's table 6 or all; its name is TASK-PRECISION.txt for the heaviest case, or TASK-PRECISION-CASE.txt. The
kernel is taken to be the baseline. The filtered profile is that of the heaviest case, as `optimize --profile filtered`
sends it. Two full profiles are rendered:

    one case     every kernel at the heaviest case, all metrics of table 6 with units
    all cases    the same at each timed case of the task: what `optimize --profile full` sends, and what the paper's
                 Planner was given (appendix B.1: a report for each size)

Where only some of the cases were recorded, the prompt that would be sent is longer than the one that is measured, and
the saving is marked as "at least". Where the heaviest is not among them, the longest of the filtered profiles stands in
for its.

The rest of the prompt is that of a first round; times in it are made up, and have the same length as measured ones.
Tokens are those of cl100k_base, by LiteLLM, without a network.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudamaster.agents.brief import Brief
from cudamaster.agents.prompts import render
from cudamaster.core.speed import compare
from cudamaster.core.values import (
    Candidate,
    CaseVerdict,
    Findings,
    Hardware,
    Precision,
    Profile,
    Role,
    Status,
    Timing,
    Verdict,
)
from cudamaster.devices import ncu
from cudamaster.profiling.filter import findings
from cudamaster.profiling.thresholds import load
from cudamaster.runs import prompting
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region

COMMAND = "nvcc -O3 -std=c++17 -arch=sm_90 -c candidate.cu -o candidate.o"
HARDWARE = Hardware(
    "NVIDIA H200",
    {
        "compute capability": "9.0",
        "memory": "143771 MiB",
        "largest SM clock": "1980 MHz",
        "memory clock": "3201 MHz",
        "CUDA toolkit": "13.0",
        "multiprocessors (SMs)": "132",
        "threads per SM": "2048",
        "32-bit registers per SM": "65536",
        "shared memory per SM": "228 KiB",
        "shared memory per block": "48 KiB, up to 227 KiB as dynamic shared memory that cudaFuncSetAttribute allows",
        "L2 cache": "60 MiB",
        "memory bandwidth, measured": "reads 4.58 TB/s, writes 4.59 TB/s",
        "fp32 arithmetic, measured": "65.2 TFLOP/s",
        "bf16 arithmetic without tensor cores, measured": "130 TFLOP/s",
        "tensor cores, bf16 with fp32 sums, measured by wgmma": "970 TFLOP/s",
    },
    emulated=False,
)
NAME = re.compile(r"(?P<task>\w+?)-(?P<precision>fp32|bf16)(?:-(?P<case>.+))?\.txt")


@dataclass(frozen=True)
class Size:
    """Of a text, in characters and tokens."""

    characters: int
    tokens: int


@dataclass(frozen=True)
class Prompts:
    """The profile part and the whole prompt of one task under one mode."""

    part: Size
    whole: Size


@dataclass(frozen=True)
class Measured:
    """Prompts of one task; `one_case` is None where the heaviest case was not recorded."""

    filtered: Prompts
    one_case: Prompts | None
    all_cases: Prompts
    recorded: int
    timed: int


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="sources", type=Path, action="append", required=True, help="file or folder")
    parser.add_argument("--strategy", default="cudamaster", help="whose Planner is asked")
    given = parser.parse_args()
    files = [file for source in given.sources for file in _files(source)]
    recorded: dict[tuple[str, Precision], list[tuple[str | None, str]]] = {}
    for file in files:
        if named := NAME.fullmatch(file.name):
            key = named["task"], Precision(named["precision"])
            recorded.setdefault(key, []).append((named["case"], file.read_text()))
    if not recorded:
        raise SystemExit(
            f"No file is named TASK-PRECISION.txt or TASK-PRECISION-CASE.txt: {', '.join(map(str, files))}"
        )
    count = token_counter()
    heads = ("task", "full profile", "part: filtered", "full", "smaller", "prompt: filtered", "full", "smaller")
    rows = [heads, tuple("---" if i < 2 else "--:" for i in range(len(heads)))]
    for (task, precision), profiles in sorted(recorded.items()):
        rows += table_rows(f"{task} {precision}", measured(task, precision, profiles, count, given.strategy))
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    for row in rows:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print(f"| {' | '.join(cells)} |")
    print("\nSizes are tokens (characters); what is smaller is in tokens.")


def table_rows(name: str, found: Measured) -> list[tuple[str, ...]]:
    """Rows of the table for one task: against one case, where that is the heaviest, and against all that there are."""
    fulls = [("one case", found.one_case, "")]
    if found.recorded == found.timed:
        fulls.append((f"all {found.timed} cases", found.all_cases, ""))
    elif found.recorded > 1:
        fulls.append((f"{found.recorded} of {found.timed} cases", found.all_cases, "at least "))
    rows = []
    for label, full, mark in fulls:
        if full is not None:
            row = [name, label]
            for less, more in ((found.filtered.part, full.part), (found.filtered.whole, full.whole)):
                row += [_size(less), _size(more), f"{mark}{1 - less.tokens / more.tokens:.0%}"]
            rows.append(tuple(row))
    return rows


def measured(
    task: str,
    precision: Precision,
    profiles: Sequence[tuple[str | None, str]],
    count: Callable[[str], int],
    strategy: str = "cudamaster",
) -> Measured:
    """Sizes with the filtered profile, the full one of the heaviest case, and the full one of all recorded cases."""
    card, thresholds = cards.load(task), load()
    sweep = [case for case in card.cases if case.sweep]
    heaviest = max(sweep, key=lambda case: case.weight).label
    code = baseline_region(card, precision)
    candidate = Candidate(task, precision, code, COMMAND)
    seen: dict[str, Profile] = {}
    for case, text in profiles:
        profile = ncu.parse(text, candidate=candidate.id, case=case or heaviest, metrics=thresholds.full)
        if not isinstance(profile, Profile):
            raise SystemExit(f"{task} {precision}, case {case or heaviest}: {profile.reason}")
        if profile.case not in {each.label for each in sweep}:
            raise SystemExit(f"{task} {precision}: {profile.case} is none of its timed cases.")
        seen[profile.case] = profile
    timing = Timing((101.25,) * 3, (101.25,) * 3, (91.25,) * 3, (91.25,) * 3)
    verdict = Verdict(
        candidate.id,
        "cuda",
        False,
        Status.CORRECT,
        "",
        score=1.0,
        cases=tuple(
            CaseVerdict(
                case.label,
                True,
                case.weight,
                Status.CORRECT,
                timing=timing,
                speed=compare(timing.baseline_us, timing.candidate_us),
                empty_us=9.0,
                floor_us=19.0,
            )
            for case in sweep
        ),
    )
    brief = Brief(
        task=task,
        precision=precision,
        title=card.title,
        description=card.describe(precision),
        wrapper=card.wrapper(precision, optimized=True),
        declaration=card.declaration(precision),
        default_command=COMMAND,
        hardware=HARDWARE,
    )

    def sizes(subject: Findings) -> Prompts:
        found = replace(subject, candidate=candidate.id)
        request = prompting.of_kernel(Role.PLANNER, brief, candidate, candidate, verdict, found, strategy)
        whole = "".join(message.content for message in request.messages)
        part = render("_profile.md.j2", findings=subject)
        assert part.strip() in whole, "the part is a part of the prompt"
        return Prompts(*(Size(len(text), count(text)) for text in (part, whole)))

    at_heaviest = [seen[heaviest]] if heaviest in seen else list(seen.values())
    filtered = [sizes(findings(profile, thresholds)) for profile in at_heaviest]
    main_profile = seen.get(heaviest) or at_heaviest[0]
    others = [profile for profile in seen.values() if profile is not main_profile]
    return Measured(
        max(filtered, key=lambda prompts: prompts.whole.tokens),
        sizes(findings(main_profile, thresholds, full=True)) if heaviest in seen else None,
        sizes(findings(main_profile, thresholds, full=True, others=others)),
        len(seen),
        len(sweep),
    )


def token_counter() -> Callable[[str], int]:
    """Counts tokens as LiteLLM does for models that it has no tokenizer for."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    return lambda text: int(litellm.token_counter(model="", text=text))


def _files(source: Path) -> list[Path]:
    return sorted(source.glob("*.txt")) if source.is_dir() else [source]


def _size(size: Size) -> str:
    return f"{size.tokens:,} ({size.characters:,})"


if __name__ == "__main__":
    main()
