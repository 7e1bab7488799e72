"""Pages for a browser, as Jinja files: each is one HTML file that asks nothing of a network.

The page of a run has no script; that of a report has one of its own, which sorts and filters (report/page.py).

Everything that is put into a page is escaped, and what cannot be seen is spelt out: models and compilers write
anything. A name that a template uses and nobody gives is an error (StrictUndefined).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

import jinja2
from markupsafe import Markup, escape

from cudamaster.core.numerals import plain
from cudamaster.runs.digest import main_part
from cudamaster.runs.summary import RunSummary, change
from cudamaster.view.invisible import visible


def run_page(run: RunSummary) -> str:
    """The page of a run."""
    scores = [score for done in run.rounds for score in (done.best_score, done.score) if score is not None]
    highest = max([1.0, *(score for score in scores if math.isfinite(score))])
    return environment().get_template("run.html.j2").render(run=run, highest=highest, inf=math.inf)


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Where pages are rendered from."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("cudamaster.view", "pages"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["diff_class"] = diff_class
    made.filters["plain"] = plain
    made.filters["breaks"] = breaks
    made.filters["change"] = change
    made.filters["main_part"] = main_part
    return made


def _visible(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def breaks(name: str, after: str = ",") -> Markup:
    """A long name of parts, e.g. "rows=1024,K=64", that a narrow page may break between them and not within."""
    parts = re.split(f"(?<={re.escape(after)})", visible(name))
    return Markup("<wbr>").join(escape(part) for part in parts)


def diff_class(line: str) -> str:
    """CSS class of a line of a unified diff."""
    return {"+": "add", "-": "del", "@": "at"}.get(line[:1], "same")
