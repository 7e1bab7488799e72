"""Which loops nvcc unrolls, and how, read from SASS: writes results/gpu_model/loops.md.

    python benchmarks/gpu_model_loops.py --sass FOLDER [--nvdisasm PATH]

Compiles the baselines and kernels of the playbook of all tasks that the model is fitted on, with `-lineinfo`, and
microbenchmarks/loops.cu. FOLDER keeps their SASS. Loads of global memory are grouped by the source's innermost loop
around their line: how many are in each block of SASS, and how often a warp waits there, says how many passes are one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from gpu_model_data import RESULTS

from cudamaster.core import resources
from cudamaster.modelling import measured
from cudamaster.tasks import cards

ARCH = "sm_90a"
SMALL = Path(__file__).with_name("microbenchmarks") / "loops.cu"
TABLE = RESULTS / "gpu_model" / "loops.md"
_BASELINE = "baseline"
# A counter that may wrap around and goes on by what is no constant (of these, names begin with k and a capital).
_WRAPS = re.compile(
    r"(?:size_t|unsigned)[^;]*;[^;]*;[^;]*\+= (?!k[A-Z])[a-z]|int[^;]*;[^;]*;[^;]*\+= (?:block|grid)Dim"
)


@dataclass
class Instructions:
    """Those of a function, with where labels are and which line of the source's own file each is of."""

    texts: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A loop of SASS, or a straight block: so many loads of one source loop, and waits."""

    loop: bool
    loads: int
    waits: int
    stores: bool  # to global memory


def sources() -> Iterator[tuple[str, Path]]:
    """All that is compiled, by name."""
    fitted, _ = measured.split({name: cards.load(name).category for name in cards.names()})
    yield "small.small.loops", SMALL
    root = resources.bench()
    for task in sorted(fitted):
        for precision, suffix in (("fp32", ""), ("bf16", "_bf16")):
            yield f"{task}.{precision}.{_BASELINE}", root / precision / f"{task}{suffix}.cu"
            playbook = Path(resources.__file__).parent.parent / "playbook" / task / precision
            for path in sorted(playbook.glob("*.cu")):
                yield f"{task}.{precision}.{path.stem}", path


def disassembled(name: str, source: Path, folder: Path, nvdisasm: str) -> str:
    """SASS with lines of the source, made if the folder lacks it."""
    kept = folder / f"{name}.sass"
    if not kept.is_file():
        found = re.search(r"^// flags: (.*)$", source.read_text(), re.MULTILINE)
        ours = ("-arch", "-gencode", "-l")
        flags = [each for each in (found[1].split() if found else ["-O3"]) if not each.startswith(ours)]
        binary = folder / f"{name}.cubin"
        command = ["nvcc", f"-arch={ARCH}", "-lineinfo", *flags, "-cubin", "-o", str(binary), str(source)]
        subprocess.run(command, check=True, capture_output=True)
        done = subprocess.run([nvdisasm, "-c", "-gi", str(binary)], check=True, capture_output=True, text=True)
        kept.write_text(done.stdout)
    return kept.read_text()


def functions(sass: str) -> Iterator[tuple[str, Instructions]]:
    """Each function by its name."""
    for piece in re.split(r"^\.text\.(?=\S+:)", sass, flags=re.MULTILINE)[1:]:
        code, line = Instructions(), 0
        for row in piece.splitlines():
            if label := re.match(r"(\.L_\S+):", row):
                code.labels[label[1]] = len(code.texts)
            elif "//## File" in row:
                # Where a function was taken into another, the last of several lines is the kernel's own.
                line = int(row.rsplit("line ", 1)[1].split()[0])
            elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?);?\s*$", row):
                code.texts.append(found[1])
                code.lines.append(line)
        yield piece.split(":", 1)[0], code


def innermost(code: Instructions) -> list[tuple[int, int]]:
    """Loops that have no other in them, by their first and last instruction."""
    every = set()
    for at, text in enumerate(code.texts):
        jump = re.search(r"BRA\b.*`\((\.L_\S+?)\)", text)
        if jump and code.labels.get(jump[1], at) <= at - 2:
            every.add((code.labels[jump[1]], at))
    return [one for one in every if not any(two != one and one[0] <= two[0] and two[1] <= one[1] for two in every)]


def waits(texts: Sequence[str]) -> int:
    """How often a warp waits for loads: at the first use of one, all that were asked for come."""
    found, asked = 0, set[int]()
    for text in texts:
        name, _, operands = re.sub(r"^@!?U?P\w+\s+", "", text).partition(" ")
        loads, writes = name.split(".")[0] == "LDG", not name.startswith(("ST", "RED", "BRA", "BAR"))
        target, _, rest = operands.partition(",") if writes else ("", "", operands)
        used = {
            int(each) + more for each in re.findall(r"\bR(\d+)\b", rest) for more in range(_words(name, each, rest))
        }
        if used & asked:
            found, asked = found + 1, set()
        if loads and (to := re.match(r"R(\d+)", target.strip())):
            asked |= {int(to[1]) + more for more in range(4 if ".128" in name else 2 if ".64" in name else 1)}
    return found + bool(asked)


def _words(name: str, register: str, operands: str) -> int:
    if f"R{register}.64" in operands:
        return 2
    return 4 if name.startswith("ST") and ".128" in name else 2 if name.startswith("ST") and ".64" in name else 1


def header(text: Sequence[str], line: int) -> tuple[int, str] | None:
    """The source's loop around a line, by indentation."""
    if text[line - 1].startswith("LOOP("):
        return line, text[line - 1]
    indent = [len(row) - len(row.lstrip()) for row in text]
    at, least = line - 1, indent[line - 1] + (re.match(r"\s*for \(", text[line - 1]) is not None)
    for place in range(at, -1, -1):
        if not text[place].strip() or indent[place] >= least:
            continue
        if re.match(r"\s*(?:for|while) \(", text[place]):
            return place + 1, text[place].strip()
        least = indent[place]
    return None


def loops(sass: str, text: Sequence[str]) -> Iterator[tuple[str, str, list[Part]]]:
    """Function, header and parts of each of the source's loops that is a loop in SASS."""
    for function, code in functions(sass):
        inner = innermost(code)
        jumps = {at + 1 for at, each in enumerate(code.texts) if re.search(r"\b(?:BRA|EXIT|RET)\b", each)}
        starts = sorted({0, len(code.texts), *code.labels.values(), *jumps})
        found: dict[tuple[int, str], Counter[tuple[int, int]]] = defaultdict(Counter)
        for at, each in enumerate(code.texts):
            if not re.match(r"(?:@!?U?P\w+\s+)?LDG\b", each) or not 0 < code.lines[at] <= len(text):
                continue
            block = (max(s for s in starts if s <= at), min(s for s in starts if s > at) - 1)
            if head := header(text, code.lines[at]):
                found[head][next((one for one in inner if one[0] <= at <= one[1]), block)] += 1
        for (_, around), parts in found.items():
            made = []
            for place, many in parts.items():
                inside = code.texts[place[0] : place[1] + 1]
                stores = any(re.match(r"(?:@!?U?P\w+\s+)?(?:STG|RED|ATOMG)\b", each) for each in inside)
                made.append(Part(place in inner, many, waits(inside), stores))
            if any(part.loop for part in made):
                yield function, around, made


def form(parts: Sequence[Part]) -> tuple[int, str]:
    """Passes of the largest loop, and what is done with the rest of them."""
    one, most = min(p.loads for p in parts), max(p.loads for p in parts)
    if most == one:
        return 1, ""
    if most % one or most // one not in (4, 8, 16):
        return 0, ""
    small = [(p.loop, p.loads // one) for p in parts if p.loads < 4 * one]
    rest = {
        ((True, 1),): "one at a time, a loop",
        ((False, 1),) * 3: "one at a time, in a row",
        ((False, 1), (False, 2)): "one, then two together",
        ((False, 2), (False, 1)): "two together, then one",
        ((False, 1), (False, 3)): "one, then three together",
    }.get(tuple(small), "otherwise")
    return most // one, rest if small else "none"


def written(found: Sequence[tuple[str, str, list[Part]]], small: Mapping[str, str], kernels: int) -> str:
    """The page."""
    rests, wraps = Counter[str](), Counter[bool]()
    fours = defaultdict[tuple[int, bool], list[float]](list)
    for _, head, parts in found:
        passes, rest = form(parts)
        if passes > 1:
            rests[rest] += 1
            largest = max((p for p in parts if p.loop), key=lambda part: part.loads)
            one = min(parts, key=lambda part: part.loads)
            fours[passes, largest.stores].append(4 * largest.waits / passes / max(one.waits, 1))
        wraps[passes > 1] += _WRAPS.search(head) is not None
    lines = [
        "# Loops in nvcc's SASS",
        "",
        f"Written by `benchmarks/gpu_model_loops.py` with nvcc 13.0 for {ARCH}, from {kernels} baselines and kernels",
        "of the playbook, all of tasks that the model is fitted on. The rules of loops in",
        "[How work is counted](../../docs/counting.md) are from here. A loop is one of the source that has loads of",
        "global memory, and is a loop in SASS, too.",
        "",
        "## Loops of one load, by their counter",
        "",
        "Passes that are one, in the order of the SASS; {} is a loop.",
        "",
        "| loop of `microbenchmarks/loops.cu` | passes |",
        "|---|---|",
        *(f"| {name} | {passes} |" for name, passes in small.items()),
        "",
        "## Kernels",
        "",
        f"Of {wraps.total()} loops whose counter is unsigned, or an int to which a size of the launch is added, and",
        f"goes on by what is no constant, {wraps[False]} are not unrolled.",
        "",
        "How often four passes wait, one pass alone being 1:",
        "",
        "| passes of the largest loop | stores to global memory | loops | mean | at most 1.5 | at least 3 |",
        "|--:|---|--:|--:|--:|--:|",
        *(
            f"| {passes} | {'yes' if stores else ''} | {len(each)} | {mean(each):.2f} "
            f"| {sum(ratio <= 1.5 for ratio in each)} | {sum(ratio >= 3 for ratio in each)} |"
            for (passes, stores), each in sorted(fours.items())
        ),
        "",
        "| the rest of the passes | loops |",
        "|---|--:|",
        *(f"| {rest} | {number} |" for rest, number in rests.most_common()),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Compiles what FOLDER lacks, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sass", type=Path, required=True)
    parser.add_argument("--nvdisasm", default="nvdisasm")
    given = parser.parse_args()
    given.sass.mkdir(parents=True, exist_ok=True)
    every: dict[tuple[str, str, str], list[Part]] = {}
    small: dict[str, str] = {}
    kernels = 0
    for name, path in sources():
        kernels += path != SMALL
        sass = disassembled(name, path, given.sass, given.nvdisasm)
        for function, head, parts in loops(sass, path.read_text().splitlines()):
            if path == SMALL:
                short = re.sub(r"^_Z\d+([a-z_]+?)PK.*$", r"\1", function)
                small[short] = " ".join(f"{{{part.loads}}}" if part.loop else str(part.loads) for part in parts)
            else:
                # What several instances of a template have alike counts once.
                every.setdefault((name, head, str(parts)), parts)
    found = [(name, head, parts) for (name, head, _), parts in every.items()]
    TABLE.write_text(written(found, dict(reversed(small.items())), kernels))


if __name__ == "__main__":
    main()
