"""The flag guard: the agent's compile command is read, never run.

Only flags that change how the candidate's own kernels are compiled are allowed. Flags that could add code, files or
programs to the build (-include, -I, -l, -rdc, -ccbin, @file) are refused because they are not listed.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from cudamaster.guards.lexer import words
from cudamaster.guards.names import KEYWORDS, RESERVED_MACRO, forbidden
from cudamaster.guards.refusal import Refusal

SOURCE = "candidate.cu"
OBJECT = "candidate.o"

LONGEST_COMMAND = 4096
_SHELL = re.compile(r"[;|&$`<>(){}!*?~^#\n\r\x00\\]")
_ODD = re.compile(r"[^\x20-\x7e\t\n\r\x00]")
_SHAPE = "Write: nvcc <flags> -c candidate.cu -o candidate.o"
_ARCH = re.compile(r"native|(?:sm|compute)_(\d{2,3})([af]?)")
_GENCODE = re.compile(r"arch=compute_(\d{2,3}[af]?),code=\[?(?:(?:sm|compute)_(\d{2,3}[af]?),?)+\]?")
_SWITCHES = words(
    """
    -O0 -O1 -O2 -O3 --use_fast_math -use_fast_math --extra-device-vectorization -extra-device-vectorization
    -lineinfo --generate-line-info -lineinfo --expt-relaxed-constexpr -expt-relaxed-constexpr --extended-lambda
    -extended-lambda --expt-extended-lambda -expt-extended-lambda --restrict -restrict -w --disable-warnings
    -Wno-deprecated-gpu-targets -Wno-deprecated-declarations -res-usage --resource-usage -m64
    """
)
_BOOLEAN = (r"true|false", "true or false")
_VALUED = {  # flags with a value, the values that are allowed, and the same in words
    "O": (r"[0-3]", "0 to 3"),
    "optimize": (r"[0-3]", "0 to 3"),
    "std": (r"c\+\+(?:14|17|20)", "c++14, c++17 or c++20"),
    "fmad": _BOOLEAN,
    "ftz": _BOOLEAN,
    "prec-div": _BOOLEAN,
    "prec-sqrt": _BOOLEAN,
    "use_fast_math": _BOOLEAN,
    "maxrregcount": (r"[1-9]\d{0,2}", "a number of registers"),
    "diag-suppress": (r"\d+(?:,\d+)*", "numbers of diagnostics"),
    "split-compile": (r"\d", "a digit"),
}
_ARCH_FLAGS = frozenset({"-arch", "--gpu-architecture"})
_CODE_FLAGS = frozenset({"-code", "--gpu-code"})
_GENCODE_FLAGS = frozenset({"-gencode", "--generate-code"})
_PASSED = {  # lists of options for one of nvcc's own steps
    "-Xptxas": "ptxas",
    "--ptxas-options": "ptxas",
    "-Xcompiler": "compiler",
    "--compiler-options": "compiler",
}
_PASSED_ALLOWED = {
    "ptxas": re.compile(
        r"-v|--verbose|-O[0-3]|-dlcm=c[agv]|-dscm=(?:cg|wb|wt|ca)|-def-load-cache=c[ag]|-def-store-cache=\w\w"
        r"|--def-load-cache=c[ag]|--allow-expensive-optimizations(?:=(?:true|false))?|--warn-on-spills|-warn-spills"
        r"|--warn-on-local-memory-usage|-warn-lmem-usage|--register-usage-level=\d+|-maxrregcount=\d+"
        r"|--disable-optimizer-constants|--fmad=(?:true|false)"
    ),
    "compiler": re.compile(
        r"-O[0-3]|-Wall|-Wextra|-Wno-[a-z-]+|-fno-strict-aliasing|-fPIC|-march=native|-mtune=native"
    ),
}
_PASSED_LIKE = {  # what is allowed of them, in words
    "ptxas": "only -v, -O0 to -O3, -dlcm=ca, --register-usage-level=N and the like are allowed",
    "compiler": "only -O0 to -O3, -Wall, -Wno-..., -march=native and the like are allowed",
}
_DEFINE = re.compile(r"([A-Za-z_]\w*)(?:=([A-Za-z_]\w*|-?\d[\w.]*))?", re.ASCII)


@dataclass(frozen=True)
class Flags:
    """The flags of a checked command, one spelling each, without nvcc, -c and -o.

    Two commands with the same arguments build the same object.
    """

    arguments: tuple[str, ...]

    @property
    def arch(self) -> str | None:
        """The GPU asked for: "sm_90", "sm_90a", "native", several joined by commas, None when the command names
        none and the device's own is to be taken."""
        asked: list[str] = []
        for argument in self.arguments:
            name, _, value = argument.partition("=")
            if name == "-arch":
                asked.append(value.replace("compute_", "sm_"))
            elif name == "-gencode":
                asked.extend(f"sm_{number}" for number in re.findall(r"(?:sm|compute)_(\w+)", value.partition(",")[2]))
        return ",".join(dict.fromkeys(asked)) or None

    @property
    def defines(self) -> tuple[str, ...]:
        """Macros of the command as NAME or NAME=VALUE, for `preprocess`."""
        return tuple(flag[2:] for flag in self.arguments if flag.startswith("-D"))

    @property
    def standard(self) -> str:
        """The language standard, c++17 where the command names none (nvcc's default)."""
        return next((flag[5:] for flag in reversed(self.arguments) if flag.startswith("-std=")), "c++17")


def parse_command(command: str) -> Flags | Refusal:
    """The flags of `nvcc <flags> -c candidate.cu -o candidate.o`, or why the command is refused. Raises nothing."""
    words = _words(command)
    if isinstance(words, Refusal):
        return words
    flags: list[str] = []
    seen = {"-c": 0, SOURCE: 0, "-o": 0}
    index = 1
    while index < len(words):
        word = words[index]
        following = words[index + 1] if index + 1 < len(words) else None
        index += 1
        if word in ("-c", "--compile"):
            seen["-c"] += 1
        elif word == SOURCE:
            seen[SOURCE] += 1
        elif word in ("-o", "--output-file"):
            if following != OBJECT:
                return _refuse(f"-o names {following or 'nothing'}, not {OBJECT}", _SHAPE)
            seen["-o"] += 1
            index += 1
        else:
            parsed, used = _flag(word, following)
            if isinstance(parsed, Refusal):
                return parsed
            flags.extend(parsed)
            index += used
    for name, count in seen.items():
        if count != 1:
            return _refuse(f"the command has {name} {count} times, not once", _SHAPE)
    return _consistent(Flags(tuple(flags)))


def _words(command: str) -> list[str] | Refusal:
    command = command.strip()
    if not command or len(command) > LONGEST_COMMAND:
        return _refuse("the command is empty or too long", _SHAPE)
    odd = _ODD.search(command)  # Python would take digits of every script for numbers
    if odd:
        return _refuse(f"the command holds {odd.group()!a}", f"Use plain ASCII only. {_SHAPE}")
    shell = _SHELL.search(command)
    if shell:
        return _refuse(f"the command holds {shell.group()!r}, which only a shell understands", _SHAPE + ", on one line")
    try:
        words = shlex.split(command)
    except ValueError as error:
        return _refuse(f"the command cannot be read: {str(error).lower()}", _SHAPE)
    if not words or words[0] != "nvcc":
        return _refuse("the command does not start with plain nvcc", _SHAPE)
    return words


def _flag(word: str, following: str | None) -> tuple[list[str] | Refusal, int]:
    """The normalised form of one flag, and how many further words it took."""
    if word in _SWITCHES:
        return [_normal(word)], 0
    if word.startswith("-D") or word.startswith("--define-macro"):
        attached = word[2:] if word.startswith("-D") else word.removeprefix("--define-macro").removeprefix("=")
        return (_define(attached), 0) if attached else (_define(following or ""), 1)
    name, equals, value = word.partition("=")
    used = 0
    if not equals:
        value, used = following or "", 1
    if name in _PASSED:
        return _passed(name, value), used
    if name in _GENCODE_FLAGS:
        return _gencode(value), used
    if name in _ARCH_FLAGS:
        found = _ARCH.fullmatch(value)
        if not found or (found[1] and int(found[1]) < 80):
            return _refuse(
                f"the architecture {value or 'nothing'} is not allowed",
                "Name sm_80 or later, as in -arch=sm_90a, or native.",
            ), 0
        return [f"-arch={value}"], used
    if name in _CODE_FLAGS:
        return _refuse(
            f"{name} needs what only -gencode says", "Use -arch=sm_90 or -gencode=arch=compute_90,code=sm_90."
        ), 0
    plain = name.lstrip("-")
    if plain in _VALUED and name in (f"-{plain}", f"--{plain}"):
        pattern, values = _VALUED[plain]
        if not re.fullmatch(pattern, value):
            return _refuse(f"the value {value or 'nothing'} of {name} is not allowed", f"It takes {values}."), 0
        return [f"-O{value}" if plain in ("O", "optimize") else f"-{plain}={value}"], used
    return _refuse(f"the flag {word} is not allowed", _advice(word)), 0


def _normal(switch: str) -> str:
    if switch == "--generate-line-info":
        return "-lineinfo"
    if switch in ("-w", "-m64") or switch.startswith(("-O", "-W")):
        return switch
    short = "-" + switch.lstrip("-")
    return {"-disable-warnings": "-w", "-expt-extended-lambda": "-extended-lambda"}.get(short, short)


def _define(text: str) -> list[str] | Refusal:
    found = _DEFINE.fullmatch(text)
    if not found:
        return _refuse(
            f"-D{text} is no simple macro",
            "Use -DNAME or -DNAME=VALUE with an identifier or a number, as in -DTILE=32.",
        )
    for name in (found[1], found[2] or ""):
        taken = name in KEYWORDS if name == found[1] else False
        reserved = name == found[1] and RESERVED_MACRO.fullmatch(name)
        if name and (taken or reserved or forbidden(name, "", "(")):
            return _refuse(f"-D{text} touches {name}, which is taken", "Use names of your own, as in -DTILE=32.")
    return [f"-D{text}"]


def _passed(name: str, value: str) -> list[str] | Refusal:
    step = _PASSED[name]
    options = [option for option in value.split(",") if option]
    for option in options:
        if not _PASSED_ALLOWED[step].fullmatch(option):
            return _refuse(
                f"the {step} option {option} is not allowed", f"Remove it from {name}: {_PASSED_LIKE[step]}."
            )
    if not options:
        return _refuse(f"{name} has no value", f"Remove it, or give it one: {_PASSED_LIKE[step]}.")
    prefix = "-Xptxas" if step == "ptxas" else "-Xcompiler"
    return [f"{prefix}={option}" for option in options]


def _gencode(value: str) -> list[str] | Refusal:
    found = _GENCODE.fullmatch(value)
    numbers = re.findall(r"_(\d+)", value)
    if not found or any(int(number) < 80 for number in numbers):
        return _refuse(
            f"the target {value or 'nothing'} is not allowed",
            "Name sm_80 or later, as in -gencode=arch=compute_90,code=sm_90.",
        )
    return [f"-gencode={value}"]


def _consistent(flags: Flags) -> Flags | Refusal:
    """A target given twice makes nvcc stop or build something else."""
    arches = [flag for flag in flags.arguments if flag.startswith("-arch=")]
    gencodes = [flag for flag in flags.arguments if flag.startswith("-gencode=")]
    if len(arches) > 1 or (arches and gencodes):
        return _refuse(
            "the command names its target more than once", "Keep one, as in -arch=sm_90, or -gencode flags alone."
        )
    return flags


def _advice(word: str) -> str:
    if word.startswith(("-l", "-L", "--library")):
        return "Remove it: the region has to do the task by itself, without libraries."
    if word.startswith(("-I", "-i", "--include", "--pre-include", "@", "--options-file", "-optf")):
        return "Remove it: the region is compiled alone with the allowed headers, whose folders are known."
    if word.startswith(("-rdc", "--relocatable", "-dc", "-dlink", "--device-link", "-dw")):
        return "Remove it: the region is one translation unit, and device linking is not allowed."
    if not word.startswith("-"):
        return _SHAPE
    some = "-O, -std, -arch, -gencode, --use_fast_math, -maxrregcount, -Xptxas, -D"
    return f"Remove it: only {some} and the like are allowed."


def _refuse(reason: str, fix: str) -> Refusal:
    return Refusal("flags", reason, None, fix)
