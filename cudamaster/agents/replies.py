"""The forms of replies: one JSON object, one fenced code block, one command line, parts under headings.

Prose, fences and a leading block of thoughts around them are accepted if the meaning is clear.
"""

from __future__ import annotations

import json
import re
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from cudamaster.agents.asking import Misfit
from cudamaster.guards.flags import LONGEST_COMMAND
from cudamaster.guards.text import check_characters
from cudamaster.models.protocol import LONGEST_PART

# If a chat template opens the thoughts, as DeepSeek's and Qwen's do, the server sends only their end.
_THOUGHTS = re.compile(r"\A(?:\s*<think(?:ing)?>)?.*?</think(?:ing)?>", re.DOTALL)
_TRIES = 1000  # braces to try as the start of an object; each costs time in proportion to the whole text
_FENCE = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})(?P<words>[^`]*)")
_HEADING = re.compile(r"[ \t]*(?:#{1,6}[ \t]*(?P<plain>\S.*)|(?P<stars>\*\*|__)(?P<bold>.+)(?P=stars):?)[ \t]*")
_HEADING_WORDS = 5  # a line of more words is a sentence


class Form(BaseModel):
    """Base of the JSON replies: exactly the named fields, each a text short enough for other prompts."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @field_validator("*")
    @classmethod
    def _usable(cls, text: str) -> str:
        must_be_short(text)
        # JSON can spell half a surrogate pair, which can neither be hashed nor written to a file.
        return text.encode("utf-8", "replace").decode()


F = TypeVar("F", bound=Form)


def must_be_short(text: str) -> None:
    """Raise Misfit for a part of a reply that is too long for later prompts."""
    if len(text) > LONGEST_PART:
        raise Misfit(f"it has {len(text):,} characters, at most {LONGEST_PART:,} are taken.")


def json_object(text: str, form: type[F]) -> F:
    """The first JSON object in a reply that fits `form`.

    Raises Misfit that names the fields that are wrong, or says that there is no object.
    """
    # strict=False: models put raw line ends into JSON strings, and their meaning is clear.
    decoder = json.JSONDecoder(strict=False)
    reason: str | None = None
    text = _without_thoughts(text)
    start, tries = text.find("{"), 0
    while start >= 0 and tries < _TRIES:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            end = start + 1
        except RecursionError:
            break  # thousands of open braces; looking at each of them would take minutes
        else:
            try:
                return form.model_validate(value)
            except ValidationError as error:
                reason = reason or "; ".join(
                    f"{'.'.join(map(str, e['loc'])) or 'the object'}: {e['msg']}" for e in error.errors()
                )
        start = text.find("{", end)
    fields = ", ".join(f'"{name}"' for name in form.model_fields)
    raise Misfit(reason or f"there is no complete JSON object with the fields {fields} in it.")


def code_block(text: str, wrapper: str) -> str:
    """The one fenced code block of a reply; of several, the only one that names `wrapper`.

    A reply that is code and nothing else needs no fence. Raises Misfit when no block, an unclosed one, or
    more than one that could be meant is found, and for code that the source guard refuses for its size or characters:
    other agents would be asked about it in vain.
    """
    text = _without_thoughts(text).replace("\r\n", "\n")
    blocks, closed = _fenced(text)
    if len(blocks) > 1:
        blocks = [block for block in blocks if re.search(rf"\b{re.escape(wrapper)}\s*\(", block)]
        if len(blocks) != 1:
            raise Misfit(f"there are several code blocks, and not exactly one of them defines {wrapper}.")
    if not blocks:
        if not closed:
            raise Misfit("the code block is not closed; the reply may have been cut off.")
        if not _is_bare_code(text, wrapper):
            raise Misfit("there is no fenced code block in it.")
        blocks = [text]
    if not blocks[0].strip():
        raise Misfit("the code block is empty.")
    code = blocks[0].strip("\n") + "\n"
    if refusal := check_characters(code):
        raise Misfit(f"the code is refused: {refusal}")
    return code


def command_line(text: str, program: str) -> str:
    """The one command of a reply that starts with `program`, continuation lines joined.

    Raises Misfit when there is none, or when several differ.
    """
    text = re.sub(r"\s*\\\r?\n\s*", " ", _without_thoughts(text))
    lines = [re.sub(r"^[$>]\s+", "", line.strip().strip("`").strip()) for line in text.splitlines()]
    found = list(dict.fromkeys(line for line in lines if line.startswith(f"{program} ")))
    if not found:
        raise Misfit(f"there is no line that starts with `{program}`.")
    if len(found) > 1:
        raise Misfit("there is more than one command line; exactly one is wanted.")
    if len(found[0]) > LONGEST_COMMAND:
        raise Misfit(f"the command has {len(found[0]):,} characters, at most {LONGEST_COMMAND:,} are taken.")
    return found[0]


def sections(text: str, *names: str) -> list[str]:
    """The text below each of the headings `names`, which follow each other in that order; what is above is left out.

    A heading is a Markdown one, or a line in bold, of a few words with the name among them: "## 2. Algorithm design"
    for "Algorithm". None is looked for in fenced blocks. Raises Misfit that names the first heading that is missing.
    """
    found: list[list[str]] = []
    fence = ""
    for line in _without_thoughts(text).split("\n"):
        mark = _FENCE.fullmatch(line)
        if not fence and not mark and len(found) < len(names) and _is_heading(line, names[len(found)]):
            found.append([])
            continue
        if mark and not fence:
            fence = mark["fence"]
        elif mark and mark["fence"] == fence and not mark["words"].strip():
            fence = ""
        if found:
            found[-1].append(line)
    if len(found) < len(names):
        raise Misfit(f'there is no part under the heading "## {names[len(found)]}" in the place where it belongs.')
    return ["\n".join(lines).strip() for lines in found]


def _is_heading(line: str, name: str) -> bool:
    heading = _HEADING.fullmatch(line)
    words = re.findall(r"[a-z]+", (heading["plain"] or heading["bold"]).lower()) if heading else []
    return name.lower() in words and len(words) <= _HEADING_WORDS


def _fenced(text: str) -> tuple[list[str], bool]:
    """The fenced blocks of a text, and whether the last one is closed."""
    blocks: list[str] = []
    opened, body = "", list[str]()
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if not opened:
            opened, body = fence["fence"] if fence else "", []
        elif fence and fence["fence"] == opened and not fence["words"].strip():
            blocks.append("".join(f"{row}\n" for row in body))
            opened = ""
        else:
            body.append(line)
    return blocks, not opened


def _without_thoughts(text: str) -> str:
    return _THOUGHTS.sub("", text)


def _is_bare_code(text: str, wrapper: str) -> bool:
    opens_like_code = re.match(r"\s*(#|//|/\*|extern\b|template\b|__global__|namespace\b|static\b|struct\b)", text)
    return bool(opens_like_code and re.search(rf"\b{re.escape(wrapper)}\s*\(", text))
