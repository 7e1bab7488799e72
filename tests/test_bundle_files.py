"""Files that were altered, or were made to do harm, are refused as bundles, with the reason, and nothing else."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cudamaster
from cudamaster.bundles import archive
from cudamaster.cli import main
from cudamaster.core.errors import BundleError, UsageError

H200 = Path(__file__).parent.parent / "results" / "h200" / "spmv_csr_bf16"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, words)), env={"CUDA_VISIBLE_DEVICES": ""})


def test_a_byte_that_changed_is_found_and_named(tmp_path: Path) -> None:
    path = tmp_path / "altered.zip"
    cudamaster.bundle(H200, round=1, out=path)
    raw, (parts, _) = path.read_bytes(), archive.read(path)
    for at in range(0, len(raw), max(1, len(raw) // 150)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(BundleError):
            cudamaster.read_bundle(path)
    for name in ("kernel.cu", "verdict.json", "task/reference/spmv_csr.h"):
        changed = {**parts, name: parts[name][:-2] + b" \n"}
        whole = {archive.MANIFEST: archive._manifest(parts), **changed}
        path.write_bytes(archive._archive(whole))
        done = run("reproduce", path, "--show")
        assert done.exit_code == 6
        assert f"its part {name} was changed" in done.output
    for name in ("claim.json", "kernel.cu", "verdict.json"):
        path.write_bytes(archive.packed({other: part for other, part in parts.items() if other != name}))
        with pytest.raises(BundleError, match=f"its part {name} is missing"):
            cudamaster.read_bundle(path)
    path.write_bytes(archive.packed({**parts, "command.txt": b"nvcc -c candidate.cu -o candidate.o -DX\n"}))
    with pytest.raises(BundleError, match="not of one candidate"):
        cudamaster.read_bundle(path)


def zipped(*entries: tuple[zipfile.ZipInfo | str, bytes], compressed: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as opened:
        for name, content in entries:
            opened.writestr(name, content)
    return file.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    about = zipfile.ZipInfo(name)
    about.create_system, about.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return about


def overlapping() -> bytes:
    """A central directory that names the same bytes three times."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr("manifest.json", b"x" * 4096)
        for name in ("README.txt", "kernel.cu"):
            twin = zipfile.ZipInfo(name)
            twin.header_offset, twin.file_size, twin.compress_size = 0, 4096, 4096
            twin.CRC = opened.infolist()[0].CRC
            opened.filelist.append(twin)
    return file.getvalue()


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "no zip": (lambda: b"P = 300, promised", "it is no zip archive that can be read"),
    "nothing": (lambda: b"", "it is no zip archive that can be read"),
    "no manifest": (lambda: zipped(("kernel.cu", b"")), "its part manifest.json is missing"),
    "no JSON": (lambda: zipped(("manifest.json", b"[" * 100_000)), "manifest.json is no JSON"),
    "other format": (lambda: zipped(("manifest.json", b'{"format": 99, "sha256": {}}')), "has format 99"),
    "up": (lambda: zipped(("../../etc/cron.d/x", b"")), "a name that leads out of the archive"),
    "root": (lambda: zipped(("/etc/passwd", b"")), "a name that leads out of the archive"),
    "windows": (lambda: zipped(("task\\..\\x", b"")), "a name that leads out of the archive"),
    "link": (lambda: zipped((link("task/reference/x.h"), b"/etc/passwd")), "is a link or no file"),
    "bomb": (lambda: zipped(("kernel.cu", bytes(40 << 20)), compressed=True), "is compressed"),
    "overlapping": (overlapping, "its parts lie over each other"),
    "many": (lambda: zipped(*((f"task/{k}", b"") for k in range(300))), "it has 300 parts"),
    "part in a part": (
        lambda: archive.packed({"task/x": b"", "task/x/y": b""}),
        "its part task/x/y lies in another part",
    ),
    "added behind": (lambda: archive.packed({"x": b""}) + b"more", "it is not as it was written"),
    "added before": (lambda: b"#!/bin/sh\n" + archive.packed({"x": b""}), "it is not as it was written"),
    "part missing": (
        lambda: zipped(("manifest.json", b'{"format": 1, "sha256": {"kernel.cu": "0"}}')),
        "its part kernel.cu is missing",
    ),
    "unknown part": (
        lambda: zipped(("manifest.json", b'{"format": 1, "sha256": {}}'), ("x", b"")),
        "it has a part 'x', which its manifest does not name",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_only_refused(kind: str, tmp_path: Path) -> None:
    make, why = HOSTILE[kind]
    path = tmp_path / "hostile.zip"
    path.write_bytes(make())
    done = run("reproduce", path, "--trust", "--device", "cpu")
    assert done.exit_code == 6, done.output
    assert why in done.output
    assert [each.name for each in tmp_path.iterdir()] == ["hostile.zip"]


def test_a_file_of_ten_gigabytes_is_not_read(tmp_path: Path) -> None:
    with (path := tmp_path / "large.zip").open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(BundleError, match="larger than 64 MiB"):
        cudamaster.read_bundle(path)
    with pytest.raises(UsageError, match="is no file"):
        cudamaster.read_bundle("/dev/zero")
