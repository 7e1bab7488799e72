"""The rows of a corpus, as JSON lines that Hugging Face `datasets` reads, and the licences of all that is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cudamaster.agents.describer import Description
from cudamaster.training.corpus.context import Found
from cudamaster.training.corpus.gathering import Entry
from cudamaster.training.corpus.licences import UNKNOWN, Licence, copyrights
from cudamaster.training.corpus.masking import masked

# The columns, as the card declares them: empty lists at the beginning of a file tell no type.
FEATURES = """\
dataset_info:
  features:
  - {name: instruction, dtype: string}
  - {name: context, dtype: string}
  - {name: code, dtype: string}
  - {name: licence, dtype: string}
  - name: provenance
    struct:
    - {name: path, dtype: string}
    - name: lines
      list: {list: int64}
    - {name: names, list: string}
    - {name: sha256, dtype: string}
    - {name: copyright, list: string}
    - {name: licence_text, dtype: string}
    - {name: secrets_masked, dtype: int64}
    - {name: model, dtype: string}
    - {name: why, dtype: string}
    - name: context
      list:
      - {name: kind, dtype: string}
      - {name: path, dtype: string}
      - {name: first, dtype: int64}
      - {name: last, dtype: int64}
      - {name: score, dtype: float64}
      - {name: licence, dtype: string}
  - {name: text, dtype: string}
"""


def row(entry: Entry, description: Description | None, found: Sequence[Found], model: str) -> dict[str, Any]:
    """One row: instruction, context, code, licence, provenance, and `text`, the three joined.

    Without a description the instruction is empty. Addresses in copyright lines are masked; NOTICE has the lines whole.
    """
    piece, licence = entry.piece, entry.licence
    instruction = description.instruction if description is not None else ""
    context = "\n\n".join(each.shown for each in found)
    return {
        "instruction": instruction,
        "context": context,
        "code": piece.code,
        "licence": licence.name,
        "provenance": {
            "path": piece.path,
            "lines": [list(each) for each in piece.lines],
            "names": list(piece.names),
            "sha256": entry.sha256,
            "copyright": [masked(line)[0] for line in licence.copyright],
            "licence_text": licence.place,
            "secrets_masked": entry.secrets,
            "model": model if description is not None else "",
            "why": description.reason if description is not None else "",
            "context": [
                {
                    "kind": each.kind,
                    "path": each.path,
                    "first": each.first,
                    "last": each.last,
                    "score": each.score,
                    "licence": each.licence.name,
                }
                for each in found
            ],
        },
        "text": joined(instruction, context, piece.code),
    }


def joined(instruction: str, context: str, code: str) -> str:
    """The three of a triplet as one text; an empty part is left out with its heading."""
    parts = [
        f"# Instruction\n\n{instruction.strip()}\n" if instruction else "",
        f"# Context\n\n{context.strip()}\n" if context else "",
        f"# Code\n\n```cuda\n{code.rstrip()}\n```\n" if instruction or context else code,
    ]
    return "\n".join(part for part in parts if part)


def notice(used: Iterable[tuple[str, Licence]]) -> str:
    """The text of NOTICE: each licence text once, with the files under it and their copyright lines.

    `used` are files and their licences.
    """
    groups: dict[tuple[str, str], dict[str, Licence]] = {}
    for path, licence in used:
        groups.setdefault((licence.name, " ".join(_plain(licence.text).split())), {})[path] = licence
    parts = [
        "The code in this data set is by many authors, under the licences below. Each row names its licence, its file\n"
        "and the lines that say whose it is. A licence that asks for it has to go with every copy of its code.\n"
    ]
    for (name, _), files in sorted(groups.items(), key=lambda group: group[0]):
        first = next(iter(files.values()))
        rights = dict.fromkeys(line for licence in files.values() for line in licence.copyright)
        parts.append("=" * 78 + f"\n{name}\n" + "=" * 78 + "\n")
        parts.append("Files:\n" + "".join(f"  {path}\n" for path in sorted(files)))
        if rights:
            parts.append("Copyright lines:\n" + "".join(f"  {line}\n" for line in rights))
        parts.append(f"{first.text.strip()}\n" if first.text.strip() else _without_text(name))
    return "\n".join(parts)


def _plain(text: str) -> str:
    """A licence's text without the lines that say whose it is, by which heads of files differ, and without marks."""
    rights = set(copyrights(text))
    lines = [line.strip(" \t/*#") for line in text.split("\n")]
    return "\n".join(line for line in lines if not rights.intersection(copyrights(line)))


def _without_text(name: str) -> str:
    if name == UNKNOWN:
        return "No licence was found.\n"
    return "The files have the name of the licence alone; its text is at https://spdx.org/licenses/.\n"
