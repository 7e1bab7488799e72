"""A figure as part of a page: an SVG element whose colours and font are the page's, light or dark."""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from cudamaster.report.drawing import BLUE, GREEN, INK, LINE, ORANGE, PAPER, PURPLE, QUIET, SKY, YELLOW, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a colour is called in the page's style sheet, where a dark page has another one for it.
_NAMES = {
    INK: "ink", QUIET: "quiet", LINE: "line", PAPER: "page", BLUE: "blue", ORANGE: "orange", GREEN: "green",
    PURPLE: "purple", YELLOW: "yellow", SKY: "sky",
}  # fmt: skip
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# matplotlib's style sheet would hold for the whole page, and its metadata are about matplotlib.
_DROPPED = {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}


def inline(figure: Figure, name: str, described: str) -> Markup:
    """The figure as an SVG element. Its ids begin with `name`; `described` is what it says to those who can't see it.

    The element is built anew from what was parsed, so whatever a label says is escaped.
    """
    file = BytesIO()
    with style():
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in _DROPPED]:
            parent.remove(child)
    for element in root.iter():
        _adopt(element, name)
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib.pop("version", None)
    root.attrib.update(
        {"class": "figure", "role": "img", "aria-label": described, "width": width, "height": height,
         "preserveAspectRatio": "xMidYMin meet"}
    )  # fmt: skip
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    text = ElementTree.tostring(root, encoding="unicode")
    # HTML knows SVG without its address.
    text = (
        text.replace(f' xmlns="{_SVG}"', "").replace(f' xmlns:xlink="{_XLINK}"', "").replace(" xlink:href=", " href=")
    )
    return Markup(re.sub(r">\s+<", "><", text))


def _adopt(element: ElementTree.Element, name: str) -> None:
    for key, value in list(element.attrib.items()):
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key == f"{{{_XLINK}}}href":
            element.set(key, f"#{name}-{value.removeprefix('#')}")
        elif key in ("style", "clip-path"):
            value = value.replace("url(#", f"url(#{name}-")
            element.set(key, re.sub("#[0-9a-f]{6}", lambda found: _colour(found[0]), value))


def _colour(code: str) -> str:
    name = _NAMES.get(code)
    return code if name is None else f"var(--{name})"
