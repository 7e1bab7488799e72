"""Keys of models: found in the environment by name, removed from texts, and hidden from the programs we start.

Only LiteLLM reads a key, from the environment of this process. A compiler needs few variables, and the source that it
compiles may come from a model. So programs get a fixed list of variables, instead of all except those that look like a
key.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from cudamaster.core.errors import UsageError

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)", re.I)
_SECRET_TEXT = re.compile(r"\b(?:sk|pk|gsk|xai|hf)[-_][\w*-]{6,}|(?<=Bearer )\S+")
_SHORTEST = 6  # characters; less is a switch such as "true"
_UNMISTAKABLE = 12  # characters; a shorter value may be a word such as "ollama", for a server that needs no key
_LONG_FOR_A_WORD = 20  # characters; a shorter one may be a name, such as "sk_results"
_TOOLS = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TMP|TEMP|CC|CXX|CUDACXX|SOURCE_DATE_EPOCH"
    r"|(?:\w+_)?(?:LIBRARY|INCLUDE|EXEC)_(?:PATH|PREFIX)|LIBRARY_PATH|CPATH|COMPILER_PATH"
    r"|(?:CUDA|NVCC|NVIDIA|CCACHE|NIX|CONDA)(?:_\w+)?|SYSTEMROOT"
)


def message_without_keys(text: str) -> str:
    """A message with every key of the environment, and whatever else looks like one, replaced by asterisks."""
    return _SECRET_TEXT.sub("***", _without(text, _SHORTEST))


def reply_without_keys(text: str) -> str:
    """A model's reply, which may be code, with the keys of the environment replaced where they can be nothing else."""
    return _without(text, _UNMISTAKABLE)


def names_a_secret(name: str) -> bool:
    """Whether a name is one that variables with keys have."""
    return _SECRET_NAME.search(name) is not None


def looks_like_one(text: str) -> bool:
    """Whether a text holds a word in the form of a provider's key, or the value of a key of the environment."""
    words = re.split(r"[\s=,:]+", text)
    shaped = any(len(word) >= _LONG_FOR_A_WORD and _SECRET_TEXT.fullmatch(word) for word in words)
    return shaped or _without(text, _UNMISTAKABLE) != text


def for_tools() -> dict[str, str]:
    """The environment for compilers and other tools: paths and text encoding."""
    return {
        name: value for name, value in os.environ.items() if _TOOLS.fullmatch(name) and not _SECRET_NAME.search(name)
    }


def checked_url(url: str | None) -> str | None:
    """Check the address of a user's own server, which is written to run folders and messages.

    Raises UsageError if it cannot be parsed, or if it may contain a key: it has a user part, a query or a fragment, or
    contains a key from the environment.
    """
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        readable = parts.scheme in ("http", "https") and bool(parts.hostname)
        port = parts.port  # raises ValueError where it is no number
    except ValueError:
        readable, port = False, None
    if not readable or port == 0:
        raise UsageError("The base URL is not an address.", "Give it as http://HOST:PORT/PATH or https://HOST/PATH.")
    carrying = (
        "a user name or password" if "@" in parts.netloc
        else "a query" if "?" in url
        else "a fragment" if "#" in url
        else "a key of the environment" if _without(unquote(url), _UNMISTAKABLE) != unquote(url)
        else None
    )  # fmt: skip
    if carrying is not None:
        raise UsageError(
            f"The base URL contains {carrying}, and it would be written to the run folder.",
            "Give only scheme, host, port and path, and put the key in the environment, e.g. OPENAI_API_KEY.",
        )
    return url


def _without(text: str, shortest: int) -> str:
    keys = {value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= shortest}
    for value in sorted(keys, key=len, reverse=True):  # otherwise part of a key that begins with another would remain
        text = text.replace(value, "***")
        if "\\u" in text:
            text = re.sub("".join(map(_in_json, value)), "***", text)
    return text


def _in_json(sign: str) -> str:
    """A pattern for a letter in any spelling of JSON: an escaped key is hidden until the JSON is decoded."""
    return rf"(?:{re.escape(sign)}|\\u(?i:{ord(sign):04x}))"
