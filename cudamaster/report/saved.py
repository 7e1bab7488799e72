"""A report that was saved with --json, read back: everything but what is computed of it."""

from __future__ import annotations

from pathlib import Path

from cudamaster.core.errors import UsageError
from cudamaster.core.records import RecordError, from_json
from cudamaster.report.data import Report
from cudamaster.report.export import FORMAT
from cudamaster.runs.record import read_json

FILE_NAME = "report.json"  # what is looked for in folders; a file that is named may have any name
_FIX = "Make it again from its runs: cudamaster report RUNS --json."


def is_report(path: Path) -> bool:
    """Whether a JSON file is a saved report, of any format. Raises RunFolderError if it is not JSON."""
    raw = read_json(path)
    return isinstance(raw, dict) and "results" in raw and "benchmark" in raw


def read(path: Path) -> Report:
    """The saved report. Raises UsageError if it is damaged or has another format, RunFolderError if it is not JSON."""
    raw = read_json(path)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        form = raw.get("format") if isinstance(raw, dict) else None
        raise UsageError(f"{path} is a report of format {form}, this version reads format {FORMAT}.", _FIX)
    try:
        return from_json(Report, {name: value for name, value in raw.items() if name not in ("format", "groups")})
    except RecordError as error:
        raise UsageError(f"{path} is no report that this version reads: {error}.", _FIX) from error
