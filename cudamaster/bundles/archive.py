"""The file of a bundle: a zip archive that any program opens, and that has one form only.

Its parts are stored as they are, in the order of their names, with one fixed time. So the same parts give the same
bytes everywhere, whatever library compresses there, and the SHA-256 of the file names the result. Reading makes the
archive again from its parts and compares: what is not as it was written is refused, so no link, no other path, no
compressed part and nothing before, between or behind the parts gets any further. manifest.json has the SHA-256 of every
other part.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudamaster.core.errors import BundleError, UsageError, one_line

FORMAT = 1
MANIFEST = "manifest.json"
LARGEST_BYTES = 64 << 20  # of a file: a verdict of five hundred cases has a tenth of it
_ROOM_BYTES = 1 << 20  # for names, hashes and the archive's own
_MOST_PARTS = 200
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*){0,8}")
_LONGEST_NAME = 200
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip archive can say
_MODE = stat.S_IFREG | 0o644
_UNIX = 3
_A_FILE = "Give the path of a bundle; `cudamaster bundle` makes one of a run."
_AGAIN = "Get the file again from where it came from; `cudamaster bundle` makes one of a run."


def is_name(name: str) -> bool:
    """Whether a part may have this name: relative, inside its folder on every system, and not hidden."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def packed(parts: Mapping[str, bytes]) -> bytes:
    """The archive of parts, with their manifest. Raises UsageError where they are too many or too large."""
    size = sum(map(len, parts.values()))
    if size > LARGEST_BYTES - _ROOM_BYTES or len(parts) >= _MOST_PARTS:
        raise UsageError(
            f"The result has {len(parts)} parts of {size >> 20} MiB, which is too much for a bundle.",
            "Bundle a kernel that was timed with fewer calls.",
        )
    return _archive({MANIFEST: _manifest(parts), **parts})


def hash_of(content: bytes) -> str:
    """SHA-256, in hexadecimal digits: of a part, or of a whole bundle, which it names."""
    return hashlib.sha256(content).hexdigest()


def read(path: Path) -> tuple[dict[str, bytes], str]:
    """The parts of a bundle without their manifest, and the SHA-256 of the file.

    Raises UsageError for a file that is not there, and BundleError, which names the part, for one that is not whole.
    """
    raw = _bytes_of(path)
    parts = _parts_of(path, raw)
    listed = _listed(path, parts.pop(MANIFEST, None))
    if missing := sorted(set(listed) - set(parts)):
        raise wrong(path, f"its part {missing[0]} is missing")
    if unknown := sorted(set(parts) - set(listed)):
        raise wrong(path, f"it has a part {unknown[0]!r}, which its manifest does not name")
    if both := next((name for name in sorted(parts) if any(str(each) in parts for each in Path(name).parents)), None):
        raise wrong(path, f"its part {both} lies in another part")
    if changed := sorted(name for name, content in parts.items() if hash_of(content) != listed[name]):
        raise wrong(path, f"its part {changed[0]} was changed: it does not have the SHA-256 of the manifest")
    if packed(parts) != raw:
        raise wrong(path, "it is not as it was written: unpacked and packed again, or something was added")
    return parts, hash_of(raw)


def _archive(parts: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(parts):
            about = zipfile.ZipInfo(name, _TIME)
            about.create_system, about.external_attr = _UNIX, _MODE << 16
            archive.writestr(about, parts[name])
    return file.getvalue()


def _manifest(parts: Mapping[str, bytes]) -> bytes:
    said = {"format": FORMAT, "sha256": {name: hash_of(parts[name]) for name in sorted(parts)}}
    return (json.dumps(said, indent=1) + "\n").encode()


def _bytes_of(path: Path) -> bytes:
    """A file's content, unless it is larger than a bundle may be. No device or pipe is waited for."""
    try:
        if not path.exists():
            raise UsageError(f"There is no file {path}.", _A_FILE)
        if not path.is_file():
            raise UsageError(f"{path} is no file.", _A_FILE)
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", _A_FILE) from error
    if len(raw) > LARGEST_BYTES:
        raise wrong(path, f"it is larger than {LARGEST_BYTES >> 20} MiB, which no bundle is")
    return raw


def _parts_of(path: Path, raw: bytes) -> dict[str, bytes]:
    """Every part of an archive. Nothing is unpacked: a part is never longer than the file that holds it."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            listed = archive.infolist()
            if len(listed) > _MOST_PARTS:
                raise wrong(path, f"it has {len(listed)} parts, and {_MOST_PARTS} is the most")
            for part in listed:
                if (why := _why_no_part(part)) is not None:
                    raise wrong(path, why)
            if sum(part.file_size for part in listed) > len(raw):
                raise wrong(path, "its parts lie over each other")
            parts = {part.filename: archive.read(part) for part in listed}
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, ValueError, EOFError) as error:
        raise wrong(path, f"it is no zip archive that can be read: {one_line(error, 200)}") from error
    except (OSError, RuntimeError, OverflowError, MemoryError) as error:
        raise wrong(path, f"it cannot be read: {one_line(error, 200)}") from error
    if len(parts) < len(listed):
        raise wrong(path, "two of its parts have the same name")
    return parts


def _why_no_part(part: zipfile.ZipInfo) -> str | None:
    name = one_line(repr(part.orig_filename), 120)
    if part.orig_filename != part.filename or not is_name(part.filename):
        return f"its part {name} has a name that leads out of the archive, or that no part has"
    if stat.S_IFMT(part.external_attr >> 16) not in (0, stat.S_IFREG):
        return f"its part {name} is a link or no file"
    if part.flag_bits & 1:
        return f"its part {name} is encrypted"
    if part.compress_type != zipfile.ZIP_STORED or part.compress_size != part.file_size:
        return f"its part {name} is compressed (to {part.file_size} bytes), and parts of bundles are stored as they are"
    return None


def _listed(path: Path, manifest: bytes | None) -> Mapping[str, str]:
    """The hashes of the parts, by their names."""
    if manifest is None:
        raise wrong(path, f"its part {MANIFEST} is missing")
    said = json_of(path, MANIFEST, manifest)
    if not isinstance(said, dict) or not isinstance(said.get("sha256"), dict):
        raise wrong(path, f"its part {MANIFEST} lists no parts")
    if said.get("format") != FORMAT:
        raise BundleError(
            f"The bundle {path} has format {one_line(repr(said.get('format')), 40)}, this version reads {FORMAT}.",
            "Reproduce it with the version that wrote it: its claim.json names that.",
        )
    return {str(name): str(each) for name, each in said["sha256"].items()}


def json_of(path: Path, name: str, content: bytes) -> Any:
    """What a part in JSON holds. A key that is there twice would be two claims. Raises BundleError."""
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise wrong(path, f"its part {name} is no JSON: {one_line(error, 200)}") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a key twice")
    return found


def text_of(path: Path, name: str, content: bytes) -> str:
    """The text of a part. Raises BundleError."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong(path, f"its part {name} is no text in UTF-8") from error


def wrong(path: Path, why: str) -> BundleError:
    """The error for a bundle that cannot be used; `why` is a clause."""
    return BundleError(f"The bundle {path} cannot be used: {why}.", _AGAIN)
