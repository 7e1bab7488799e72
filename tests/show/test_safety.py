"""Holds `cudamaster show` to leaving the run as it is, to text that stays text, and to showing no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from search_stand_ins import COMMAND, ESCAPES, ScriptedModel, ScriptedWorkbench, code, command, fix, kernel, plan
from show_runs import DONE, MENDED, SCRIPT, SECRET, SETTINGS, Page, page, run_of, show

from cudamaster.cli.optimize_output import conclude
from cudamaster.cli.output import console, report_error
from cudamaster.cli.search_progress import SearchProgress
from cudamaster.core.errors import ModelError
from cudamaster.runs.digest import without_secrets
from cudamaster.runs.optimization import optimize
from cudamaster.view.invisible import visible


def _state(run: Path) -> dict[str, tuple[int, int, int]]:
    """Names, sizes and times of all files and folders, the folder itself included."""
    every = [run, *run.rglob("*")]
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns, p.stat().st_ino) for p in every}


@pytest.mark.parametrize("end", ["finished", "stopped"])
def test_reading_changes_nothing(tmp_path: Path, end: str) -> None:
    """Not even what a kill left half-written, which resuming would remove, and no lock appears."""
    run = run_of(tmp_path / "run", SCRIPT if end == "finished" else MENDED[:4])
    (run / "verdicts" / ".half.json.tmp").write_text("{")
    (run / "lock").unlink()
    before = _state(run)
    for arguments in ([], ["--round", "1"], ["--json"], ["--html", str(tmp_path / "page.html")]):
        assert show(run, *arguments).exit_code == 0
    assert _state(run) == before


@pytest.mark.parametrize("name", ["best.cu", "page.html", "exchanges/page.html"])
def test_a_page_is_not_written_into_the_run(finished: Path, name: str) -> None:
    before = _state(finished)
    result = show(finished, "--html", finished / name)
    assert result.exit_code == 2
    assert _state(finished) == before


def test_a_page_that_cannot_be_written_is_a_usage_error(kept: Path, tmp_path: Path) -> None:
    result = show(kept, "--html", tmp_path / "none" / "page.html")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_what_models_write_stays_text_on_the_page(kept: Path, tmp_path: Path) -> None:
    """Tags in replies are escaped wherever they show: in plan, code, log. The page is well-formed and quiet."""
    text = page(kept, tmp_path / "page.html")
    parsed = Page(text)
    assert parsed.open == []
    assert "Mended <script>alert(1)</script>" in parsed.text
    assert "// wrong - b </pre>" in parsed.text
    assert "&lt;script&gt;" in text
    assert "script" not in {tag for tag, _ in parsed.tags}
    addresses = [
        value for _, found in parsed.tags for name, value in found.items() if name in ("src", "href", "srcset")
    ]
    assert addresses == [f"#round-{n}" for n in range(1, 8)]
    assert "url(" not in text
    assert "@import" not in text
    assert [name for _, found in parsed.tags for name in found if name.startswith("on")] == []
    assert ("meta", "default-src 'none'; style-src 'unsafe-inline'") in [(t, a.get("content")) for t, a in parsed.tags]


def test_what_cannot_be_seen_is_spelt_out(kept: Path, tmp_path: Path) -> None:
    """A reply cannot drive the terminal, or turn the direction of code."""
    assert visible("a\x1b[2Jb\u202ec\r\n\td") == "a\\x1b[2Jb\\u202ec\\x0d\n\td"
    shown = show(kept, "--round", "3").stdout
    assert "no \\x1b[31mcode" in shown
    assert "\x1b" not in shown
    text = page(kept, tmp_path / "page.html")
    assert "no \\x1b[31mcode" in text
    assert "\x1b" not in text


def test_a_search_shows_no_reply_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Title, diagnosis and command of a model, what its kernel failed with, and the reason of an error."""
    evil = "\x1b[2J\u202e"
    script = [
        plan(f"Title {evil}"), code(kernel("compile_error", tag=f"log{ESCAPES}")), command(f"{COMMAND} -D{evil}"),
        fix(f"brace {evil}"), code(kernel(score=2.0, tag="c")), command(),
        *DONE,
    ]  # fmt: skip
    path = tmp_path / "run"
    observer = SearchProgress(console())
    result = optimize(path, ScriptedWorkbench(), ScriptedModel(script).for_all(), SETTINGS, observer)
    observer.close()
    conclude(console(), result, path, SETTINGS)
    report_error(ModelError(f"it said {evil}", "Try again."))
    told = "".join(capsys.readouterr())
    assert not {"\x1b", "\u202e"} & set(told)
    for opening in ("plan: Title ", "1  Title ", "-D", "DETAIL log", "CAUSE brace ", "error: it said "):
        assert f"{opening}\\x1b[2J\\u202e" in told


def test_no_key_is_shown(kept: Path, tmp_path: Path) -> None:
    """Neither one of the environment nor one that stands in the address of a server, which the folder holds."""
    assert SECRET in (kept / "run.json").read_text(), "or this test would say nothing"
    outputs = [show(kept), show(kept, "--json"), show(kept, "--round", "1")]
    for text in (*(o.output for o in outputs), page(kept, tmp_path / "page.html")):
        assert SECRET not in text
    assert "http://localhost:1/v1" in outputs[0].stdout


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, None),
        ("https://user:key@[::1]:8000/v1?key=x#y", "https://[::1]:8000/v1"),
        ("https://host/v1", "https://host/v1"),
        ("key-without-scheme", "an address that cannot be read"),
        ("http://host:port/", "an address that cannot be read"),
    ],
)
def test_addresses_are_shown_without_secrets(url: str | None, shown: str | None) -> None:
    assert without_secrets(url) == shown
