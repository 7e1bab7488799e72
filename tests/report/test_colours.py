"""Holds the page's colours to being readable, and those of code to changing none of it."""

from __future__ import annotations

import re

import pytest
from made_up import result
from parsed_pages import Parsed

from cudamaster.core import resources
from cudamaster.report import drawing, highlighting


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb or #rgb (WCAG 2)."""
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_light_page_has_the_colours_of_the_figures_on_paper() -> None:
    sheet = (resources.package() / "view/pages" / "report.css").read_text()
    colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", sheet.split("}")[0]))
    for name in ("ink", "quiet", "line", "blue", "orange", "green", "purple", "yellow", "sky"):
        assert colour[name] == getattr(drawing, name.upper()), name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read(scheme: str) -> None:
    """Texts by WCAG's 4.5 on everything that they stand on, lines and marks by 3."""
    sheet = (resources.package() / "view/pages" / "report.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", light if scheme == "light" else dark))
    for text in ("ink", "quiet", "link", "add", "del", "warn"):
        for ground in ("page", "pane", "warn-pane"):
            assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
    for text in ("ink", "quiet", "word", "type", "number", "text", "directive"):
        for ground in ("page", "pane", "add-pane", "del-pane"):
            assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
    for mark in ("blue", "orange", "green", "purple", "yellow", "sky"):
        assert contrast(colour[mark], colour["page"]) >= 3, mark
    for bar in ("blue", "orange", "green"):  # with a number on it
        assert contrast(colour[bar], colour["page"]) >= 4.5, bar


def test_code_keeps_every_character() -> None:
    """Colours add nothing and take nothing away, in code and in differences."""
    one = result("sorting")
    assert one.best is not None
    assert one.baseline is not None
    assert Parsed(str(highlighting.code(one.best.code))).text == one.best.code
    told = str(highlighting.difference(one.diff, one.baseline.code, one.best.code)).replace("</b>", "\n</b>")
    assert Parsed(told).text.rstrip("\n") == one.diff.rstrip("\n")


def test_a_line_of_a_comment_has_its_colour_in_a_difference() -> None:
    """Though the difference shows nothing of where the comment begins."""
    before = "/* one\n two\n three\n four\n five */\nint a;\n"
    diff = "@@ -4,3 +4,3 @@\n four\n- five */\n+ fife */\n int a;"
    told = highlighting.difference(diff, before, before.replace("five", "fife"))
    assert "<i class=c> fife */</i>" in told
    assert "<b> <i class=t>int " in told


def test_a_difference_of_other_texts_is_shown_without_colours() -> None:
    told = str(highlighting.difference("@@ -1 +1 @@\n-int <a>;\n+int b;", "other", "texts"))
    assert told == '<b class="at">@@ -1 +1 @@</b><b class="del">-int &lt;a&gt;;</b><b class="add">+int b;</b>'
