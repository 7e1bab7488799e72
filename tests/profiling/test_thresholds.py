"""The thresholds file: what ships is complete, and what cannot be used is refused with the place."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.profiling.thresholds import DURATION, choose, load

SHIPPED = (resources.profiles() / "thresholds.yaml").read_text()


def test_shipped() -> None:
    """30 % on all three axes; the filtered names are a part of table 6's, and hold what decides the class."""
    thresholds = load()
    assert thresholds.thresholds.model_dump() == {"compute": 30, "dram": 30, "memory": 30}
    assert len(thresholds.full) == 25
    assert set(thresholds.filtered) < set(thresholds.full)
    assert len(thresholds.filtered) == len(set(thresholds.filtered)) == 14
    assert thresholds.filtered[0] == thresholds.metrics[DURATION].ncu


def test_own_thresholds(tmp_path: Path) -> None:
    """A file of one's own is read in place of the shipped one; a run records that it was, and not the paper's."""
    path = tmp_path / "mine.yaml"
    path.write_text(SHIPPED.replace("compute: 30", "compute: 42.5"))
    assert load(path).thresholds.compute == 42.5
    assert load(path).described == "compute 42.5 %, DRAM 30 %, memory 30 % (mine.yaml)"
    path.write_text(SHIPPED + "\nsource: a colleague\n")
    assert choose(str(path), "Some GPU").described.endswith("(a colleague)")
    assert load().described.endswith("(paper)")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda content: content["thresholds"].update(compute=130), "thresholds.compute"),
        (lambda content: content["thresholds"].update(l2=30), "thresholds.l2"),
        (lambda content: content["kept"].pop("compute bound"), "compute bound"),
        (lambda content: content["kept"].update({"io bound": ["Mem Busy"]}), "io bound"),
        (lambda content: content["kept"]["compute bound"].append("Speed"), "Speed"),
        (lambda content: content["metrics"].pop("Duration"), "Duration"),
        (lambda content: content["metrics"]["Mem Busy"].update(ncu="mem busy"), "metrics.Mem Busy.ncu"),
        (lambda content: content["metrics"]["Mem Busy"].update(ncu="lts__t_sector_hit_rate.pct"), "twice"),
        (lambda content: content.clear(), "thresholds"),
    ],
)
def test_refused(change, where: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Each mistake is one UsageError that names the place."""
    content = yaml.safe_load(SHIPPED)
    change(content)
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(UsageError) as raised:
        load(path)
    assert where in raised.value.reason
    assert "Compare it" in raised.value.fix


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: [", None])
def test_unreadable(content: bytes | None, tmp_path: Path) -> None:
    """A file that is no YAML, or is not there, is a UsageError too."""
    path = tmp_path / "file.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read"):
        load(path)
