"""The prompts, as Jinja files, and the one function that renders them.

`<role>.system.md.j2` says who the agent is and what form its reply has; `<role>.user.md.j2` holds the values
of one call. A name that a template uses and the caller does not give is an error (StrictUndefined), never a
hole.
"""

from __future__ import annotations

import statistics
from functools import lru_cache

import jinja2

LOG_LIMIT = 12_000


def render(template: str, /, **values: object) -> str:
    """Text of one prompt file, e.g. render("planner.user.md.j2", ...).

    Raises jinja2.UndefinedError when a value is missing: a fault of ours, so it is not caught.
    """
    return _environment().get_template(template).render(values).strip() + "\n"


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cudamaster.agents", "prompts"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["clip"] = clip
    environment.filters["median"] = statistics.median
    environment.filters["us"] = microseconds
    return environment


def microseconds(time_us: float) -> str:
    """A time as figures in prompts have it: three digits, and no more behind the point than the clock can tell."""
    return f"{time_us:.2f}" if time_us < 10 else f"{time_us:.1f}" if time_us < 100 else f"{time_us:.0f}"


def clip(text: str, limit: int = LOG_LIMIT) -> str:
    """The text, or its first two thirds and last third when it is longer than `limit` characters.

    Compilers put the cause first, memory checkers put the summary last.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[-tail:]}"
