"""The built-in stand-in for a model: it answers the roles of all strategies from a library of hand-written kernels.

    cudamaster/playbook/<task>/<precision>/1_<idea>.cu, 2_<idea>.cu ...

For a user's own tasks it is the folder playbook/ beside theirs (`resources.task_folders`), where there is one. Of a
suite that has a task for every shape, a function gives the kernels of a task (runs/playbooks.py).

Each file opens with a header of comments, and goes through the same pipeline as any model's code:

    // idea: <title on one line>
    // why: <why it should help; every comment line until the flags goes on with it>
    // flags: <compiler flags, or nothing for the default command>
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.errors import ModelError, UsageError
from cudamaster.core.values import Role
from cudamaster.models.protocol import Reply, Request, Usage

NAME = "playbook"
_TAKES_VALUE = {"-D", "-std", "-arch", "-code", "-gencode", "-maxrregcount", "-Xptxas", "-Xcompiler", "-o"}


@dataclass(frozen=True)
class Step:
    """One file of the playbook. `code` is the whole file, header included."""

    idea: str
    why: str
    flags: str
    code: str


Steps = Callable[[str], tuple[Step, ...]]


class PlaybookModel:
    """Answers from the playbook in `library`; by default from the shipped one, and from those of a user's own tasks.

    `own` is the folder of a task that is not found by its name: its playbook goes before the others.
    `suites` gives the steps of tasks whose names begin with a suite's name and an underscore, by the whole name.
    """

    def __init__(
        self, library: Path | None = None, suites: Mapping[str, Steps] | None = None, own: Path | None = None
    ) -> None:
        self._suites = suites or {}
        shipped = library or resources.package() / "playbook"
        folders = resources.task_folders() if library is None else ()
        first = [own / "playbook"] if own is not None else []
        self._libraries = [*first, shipped, *(folder / "playbook" for folder in folders)]

    @property
    def name(self) -> str:
        """Always "playbook"."""
        return NAME

    def ask(self, request: Request) -> Reply:
        """Answer one request from its facts; the messages are not read.

        Raises UsageError if the playbook has nothing for the task or the role, ModelError for a malformed file.
        """
        steps = self.steps(_fact(request, "task"), _fact(request, "precision"))
        if request.role is Role.PLANNER:
            text = _plan(steps, request)
        elif request.role is Role.CODER and "exemplars" in request.facts:
            text = _compared(steps, request)
        elif request.role is Role.CODER and "idea" not in request.facts:
            text = f"```cuda\n{_unplanned(steps, request).code}```\n"
        elif request.role is Role.CODER:
            text = f"```cuda\n{_chosen(steps, request).code}```\n"
        elif request.role is Role.COMPILER:
            text = merged(_fact(request, "default_command"), _chosen(steps, request).flags)
        elif request.role is Role.JUDGE:
            text = _judged(steps, request)
        elif request.role in (Role.DEBUG, Role.REVIEWER):
            text = json.dumps({"diagnosis": "The playbook is not a model and cannot debug.", "fix": ""})
        else:
            raise UsageError(
                f"The built-in playbook has no answer for the {request.role}.",
                f"Name a model, e.g. --model openai/o4-mini, or --{request.role}-model for this role alone.",
            )
        return Reply(text, NAME, Usage())

    def steps(self, task: str, precision: str) -> tuple[Step, ...]:
        """The steps for a task, in order of their numbers. Raises as `ask` does."""
        folders = [library / task / precision for library in self._libraries]
        folder = next((each for each in folders if each.is_dir()), None)
        if folder is None:
            of_suite = next((make for suite, make in self._suites.items() if task.startswith(f"{suite}_")), None)
            if of_suite is not None:
                return of_suite(task)
        return read_steps(folder or folders[-1], task, precision)


def read_steps(folder: Path, task: str, precision: str) -> tuple[Step, ...]:
    """The steps in a folder, in order of their numbers. Raises UsageError if it has none for the task, and
    ModelError."""
    paths = [path for path in folder.glob("*.cu") if re.match(r"\d+_", path.name)]
    if not paths:
        raise UsageError(
            f"The playbook, which answers where no model is named, has no kernels for {task} in {precision}.",
            "Name a model with --model, such as --model openai/o4-mini, or in CUDAMASTER_MODEL. Or write kernels for a "
            f"task of your own: playbook/{task}/{precision}/1_idea.cu beside its folder tasks/, each with the header "
            "`// idea: ...`, `// why: ...`, `// flags: ...`.",
        )
    paths.sort(key=lambda path: int(path.name.split("_", 1)[0]))
    steps = tuple(read_step(path) for path in paths)
    if len({step.idea for step in steps}) < len(steps):
        raise ModelError(f"Two files in {folder} have the same idea.", "Give each file a title of its own.")
    return steps


def read_step(path: Path) -> Step:
    """Read one playbook file. Raises ModelError when its header is not in the form above."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"Playbook file {path} cannot be read: {error}.", "Restore or remove it.") from error
    fields: dict[str, list[str]] = {}
    wanted = ["idea", "why", "flags"]
    for line in text.splitlines():
        if wanted and (match := re.match(rf"// {wanted[0]}:(.*)$", line)):
            fields[wanted.pop(0)] = [match[1].strip()]
        elif "why" in fields and "flags" not in fields and line.startswith("// "):
            fields["why"].append(line[3:].strip())
        else:
            break
    if wanted or not fields["idea"][0] or not fields["why"][0]:
        raise ModelError(
            f"Playbook file {path} does not open with `// idea:`, `// why:` and `// flags:` lines in that order.",
            "Write them; the reason may go on over comment lines until the flags.",
        )
    code = text if text.endswith("\n") else text + "\n"
    return Step(fields["idea"][0], " ".join(fields["why"]), fields["flags"][0], code)


def merged(command: str, flags: str) -> str:
    """The default command with `flags` added; each replaces the same flag of the command."""
    program, *rest = _grouped(shlex.split(command))
    added = _grouped(shlex.split(flags))
    replaced = {_key(flag) for flag in added}
    kept = [flag for flag in rest if _key(flag) not in replaced]
    # Before the first word that is not a plain flag: the input, -c or -o.
    place = next((i for i, flag in enumerate(kept) if flag[0] in ("-c", "-o") or flag[0][0] != "-"), len(kept))
    return shlex.join(token for flag in (program, *kept[:place], *added, *kept[place:]) for token in flag)


def _grouped(tokens: list[str]) -> list[tuple[str, ...]]:
    """Tokens with each flag and its separate value together."""
    groups: list[tuple[str, ...]] = []
    for token in tokens:
        if groups and len(groups[-1]) == 1 and groups[-1][0] in _TAKES_VALUE:
            groups[-1] = (groups[-1][0], token)
        else:
            groups.append((token,))
    return groups


def _key(flag: tuple[str, ...]) -> str:
    """What a flag sets: two flags with the same key exclude each other."""
    first = flag[0]
    if re.fullmatch(r"-O\w*", first):
        return "-O"
    if first.startswith("-D"):
        return "-D" + (first[2:] or flag[-1]).split("=", 1)[0]
    if first.split("=", 1)[0] in ("-gencode", "--generate-code", "-arch", "--gpu-architecture"):
        return "-arch"
    if first in ("-Xptxas", "-Xcompiler"):
        return " ".join(flag)
    return first.split("=", 1)[0]


def _plan(steps: tuple[Step, ...], request: Request) -> str:
    step = _untried(steps, request)
    return json.dumps({"idea": step.idea, "plan": step.why} if step else {"idea": "", "plan": ""})


def _compared(steps: tuple[Step, ...], request: Request) -> str:
    """The next step as the three parts that the contrastive strategy asks for."""
    step = _untried(steps, request)
    algorithm, code = (f"{step.idea}\n\n1. {step.why}", f"```cuda\n{step.code}```") if step else ("", "")
    analysis = "The playbook is no model and compares nothing."
    return f"## Analysis\n\n{analysis}\n\n## Algorithm\n\n{algorithm}\n\n## Code\n\n{code}\n"


def _judged(steps: tuple[Step, ...], request: Request) -> str:
    """The step after the current one, in the form of CudaForge's Judge; it cannot fix a failing kernel."""
    if "status" in request.facts:
        issue = "The playbook is not a model and cannot find errors."
        return json.dumps({"critical_issue": issue, "why_it_matters": "", "minimal_fix_hint": ""})
    step = _following(steps, request)
    method, plan = (step.idea, step.why) if step else ("", "")
    return json.dumps({"bottleneck": "", "optimization method": method, "modification plan": plan})


def _unplanned(steps: tuple[Step, ...], request: Request) -> Step:
    """The step with a shot's number, or the one after the current step; otherwise the last one."""
    if "shot" in request.facts:
        return steps[min(int(_fact(request, "shot")), len(steps)) - 1]
    return _following(steps, request) or steps[-1]


def _following(steps: tuple[Step, ...], request: Request) -> Step | None:
    """The step after the one with the current code; None after the last."""
    code = _fact(request, "code")
    number = next((i for i, step in enumerate(steps) if step.code.strip() == code.strip()), -1)
    return steps[number + 1] if number + 1 < len(steps) else None


def _untried(steps: tuple[Step, ...], request: Request) -> Step | None:
    """The first step that is not among the ideas tried."""
    tried = request.facts.get("tried", ())
    return next((step for step in steps if step.idea not in tried), None)


def _chosen(steps: tuple[Step, ...], request: Request) -> Step:
    idea = _fact(request, "idea")
    for step in steps:
        if step.idea == idea:
            return step
    raise UsageError(
        f"The playbook has no step {idea!r}: it can only carry out its own plans.",
        "Use the playbook for planner, coder and compiler together, or a model for all of them.",
    )


def _fact(request: Request, name: str) -> str:
    value = request.facts.get(name)
    if not isinstance(value, str):
        raise ModelError(f"The playbook was asked without {name!r}.", "Please report this: it is a bug of the program.")
    return value
