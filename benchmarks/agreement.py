"""Which kernels the tables of a folder disagree on, written beside them.

    python benchmarks/agreement.py [results/h200]

tests/report/test_agreement.py checks that each disagreement in the committed tables is named there. How far two times
may be apart, and why, is in cudamaster/report/agreement.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cudamaster.report.agreement import of_folder, to_markdown

FOLDER = Path(__file__).resolve().parent.parent / "results" / "h200"
NAME = "disagreeing.md"


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder = parser.parse_args().folder
    found = of_folder(folder)
    (folder / NAME).write_text(to_markdown(found), encoding="utf-8")
    print(f"{folder / NAME}: {len(found)} kernels")


if __name__ == "__main__":
    main()
