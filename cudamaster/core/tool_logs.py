"""Logs of compilers, linkers and memory checkers, cleaned up for a Debug agent and for a person.

What they say about the region stays. Folders of this machine, addresses, and frames of harness and executor are
removed.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path

_FOLDERS = re.compile(r"(?<![\w./])/(?:[\w.+~@-]+/)+")
_FRAME = re.compile(r"^\s+#\d+ 0x[0-9a-f]+ (?:in )?(?P<what>.*)$")
_ERROR = re.compile(r"^=+\d+=+\s*(?P<what>ERROR: AddressSanitizer: .*?)(?: on (?:unknown )?address .*)?$")
_ADDRESS = re.compile(r"^0x[0-9a-f]+ (?=is located)| (?:at )?0x[0-9a-f]{6,}\b| \[0x[0-9a-f]+,0x[0-9a-f]+\)")
_NO_FRAMES = re.compile(r"here:(?=\n(?!    )|$)")
# Sections of a checker's report that say nothing about the region.
_THREADS = re.compile(r"^Thread T\d+ .*created by ")
_SHADOW = "Shadow bytes around the buggy address"


def without_folders(log: str) -> str:
    """The log with every absolute path cut down to its file name."""
    for folder in _own_folders():
        log = log.replace(f"{folder}/", "/own/")
    return _FOLDERS.sub("", log)


def _own_folders() -> list[str]:
    """Folders whose paths tools write, and whose names may contain spaces, where a pattern would stop."""
    folders = [tempfile.gettempdir()]
    with contextlib.suppress(OSError):  # it may be gone
        folders.append(str(Path.cwd()))
    return [folder for folder in folders if " " in folder]


def first_error(log: str) -> str:
    """The line of a tool's log that says what is wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")


def readable(log: str) -> str:
    """What a crashed program wrote; for a checker's report, only its frames in the region and its words."""
    kept: list[str] = []
    skipping = False
    for line in log.splitlines():
        if line.startswith(_SHADOW):
            break
        frame = _FRAME.match(line)
        if frame is not None:
            if not skipping and "candidate.cu:" in line:
                kept.append(f"    {frame['what']}")
            continue
        skipping = bool(_THREADS.match(line))
        if skipping or (line and not line.strip("=")):
            continue
        error = _ERROR.match(line)
        kept.append(error["what"] if error else _ADDRESS.sub("", line))
    text = _NO_FRAMES.sub("outside the region", "\n".join(kept).strip())
    return without_folders(re.sub(r"\n{3,}", "\n\n", text))


def summary(log: str) -> str | None:
    """A memory checker's finding in a few words: what it is and where, e.g. "heap-buffer-overflow candidate.cu:7"."""
    found = re.search(r"^SUMMARY: AddressSanitizer: (.*?)(?: in .*)?$", log, re.M)
    return without_folders(found[1]) if found else None
