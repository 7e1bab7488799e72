"""Secrets and addresses of people in a source, replaced by a word that says what stood there; lines stay lines."""

from __future__ import annotations

import re

_EMAIL = re.compile(r"[A-Za-z0-9_.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b")
_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_IN_URL = re.compile(r"(?<=://)[^\s/:@\"']+:[^\s/@\"']+(?=@)")
# Keys whose form tells whose they are.
_SHAPED = re.compile(
    r"""
    \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                       # Amazon
  | \bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}   # GitHub
  | \bglpat-[\w-]{20,}                                  # GitLab
  | \b(?:sk|xai)-(?=[\w-]*\d)[\w-]{20,}               # models' providers
  | \b(?:hf|gsk|npm)_[A-Za-z0-9]{30,}                  # Hugging Face, Groq, npm
  | \b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{16,}      # Stripe
  | \bxox[abprs]-[\w-]{10,}                             # Slack
  | \bAIza[\w-]{30,}                                    # Google
  | \beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}              # JSON web tokens
    """,
    re.VERBOSE,
)
# A text that is given to something named as a secret.
_NAMED = re.compile(
    r"""((?:api[_-]?key|secret|passw(?:or)?d|passphrase|auth[_-]?token|access[_-]?token|private[_-]?key)\w*['"\]]*
        \s*(?:=|:|,|\()\s*)(["'])([^"'\n]{6,})\2""",
    re.IGNORECASE | re.VERBOSE,
)


def masked(text: str) -> tuple[str, int]:
    """The text without secrets and e-mail addresses, and how many there were."""
    text, blocks = _BLOCK.subn(lambda found: "<PRIVATE KEY>" + "\n" * found[0].count("\n"), text)
    text, in_urls = _IN_URL.subn("<SECRET>", text)
    text, shaped = _SHAPED.subn("<SECRET>", text)
    text, named = _NAMED.subn(r"\1\2<SECRET>\2", text)
    text, emails = _EMAIL.subn("<EMAIL>", text)
    return text, blocks + in_urls + shaped + named + emails
