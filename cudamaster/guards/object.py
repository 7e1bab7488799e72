"""The object guard checks what the compiler made of the candidate, and prepares it for linking.

It does not depend on the source guard having understood everything. It sees every call out of the candidate, every
constructor, and every variable that outlives a call. It does not see what code does with pointers.
"""

from __future__ import annotations

import re
import subprocess
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from cudamaster.core import keys
from cudamaster.core.errors import DeviceError
from cudamaster.guards.names import HARNESS_KERNELS
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.symbols import CONSTRUCTOR_ONLY

_SECTIONS = re.compile(
    r"|\.(?:rela?\.)?(?:text|data|bss|rodata|tdata|tbss|init_array|gcc_except_table|eh_frame|debug_\w+|sframe)(?:\..*)?"
    r"|\.(?:rela)?\.?(?:nv_fatbin|nvFatBinSegment|nv_module_id|__nv_module_id)|\.(?:symtab|strtab|shstrtab|comment|group)"
    r"|(?:\.rela)?(?:\.nv_fatbin|\.nvFatBinSegment|__nv_module_id|__nv_relfatbin)|\.symtab_shndx"
    r"|\.note\.(?:GNU-stack|gnu\.property)|\.(?:rela)?\.eh_frame|\.llvm_addrsig|\.rela\.debug_\w+|asan_globals"
)
_CONSTRUCTING = re.compile(r"\.(?:init_array|fini_array|preinit_array|ctors|dtors|init|fini)(?:\..*)?")
_RESERVED = re.compile(
    r"main|_start|_init|_fini|_*mskb.*|_Z(?:n[wa]m|d[la]Pvm?)(?:RKSt9nothrow_t|St11align_val_t)*|__wrap_.*|__libc_.*"
)
_SHF_WRITE, _SHF_EXEC, _SHF_TLS = 0x1, 0x4, 0x400
_ST_INFO, _STB_WEAK, _STB_GNU_UNIQUE = 4, 2, 10  # of a 64-bit symbol table
_OBJECT_KINDS = ("STT_OBJECT", "STT_TLS", "STT_NOTYPE")


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: str
    binding: str
    visibility: str
    section: int | str
    value: int
    size: int


def check_object(
    path: Path,
    wrapper: str,
    allowed: Iterable[str],
    *,
    constructors: Iterable[str] = (),
    state: Iterable[str] | None = None,
    device: frozenset[str] = frozenset(),
) -> Refusal | None:
    """None when the object may be linked to the harness, else the first thing that forbids it.

    `allowed`, `constructors` and `state` are regular expressions, full match, of undefined symbols, of functions
    that run before main, and of writable variables. `device` (`device_names` of the source guard) distinguishes the
    shadows that nvcc makes of device variables from the host's own. Without `state` writable variables are not judged.
    """
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            if elf["e_type"] != "ET_REL":
                return _refuse("the compiler's output is no object file", "Compile with -c alone.")
            symbols = _symbols(elf)
            return (
                _check_kernels(file)
                or _check_sections(elf)
                or _check_wrapper(elf, symbols, wrapper)
                or _check_names(symbols, wrapper, _full(allowed))
                or _check_constructors(elf, symbols, _full(constructors))
                or (_check_state(elf, symbols, _full(state), device) if state is not None else None)
            )
    except (ELFError, OSError, ValueError) as error:
        return _refuse(f"the object cannot be read: {error}", "Compile the candidate again.")


def localise(path: Path, wrapper: str, out: Path, redirected: Mapping[str, str] | None = None) -> None:
    """Write to `out` an object of which only `wrapper` is visible; functions that it calls are `redirected` to others.

    Groups are dissolved first, so that none of the candidate's inline functions can stand in for the harness's,
    and nvcc's launch stubs, which are global, do not meet their namesakes. DeviceError when binutils is missing.
    """
    plain, whole = out.with_name(out.name + ".plain"), out.with_name(out.name + ".whole")
    renames = [f"--redefine-sym={name}={other}" for name, other in (redirected or {}).items()]
    try:
        plain.write_bytes(_without_unique(path))
        for command in (
            ["ld", "-r", "--force-group-allocation", "-o", str(whole), str(plain)],
            ["objcopy", f"--keep-global-symbol={wrapper}", *renames, str(whole), str(out)],
        ):
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False, env=keys.for_tools()
            )
            if done.returncode != 0:
                raise DeviceError(
                    f"{command[0]} cannot prepare the candidate's object: {done.stderr.strip()[:300]}.",
                    "Install GNU binutils 2.30 or later.",
                )
    except FileNotFoundError as error:
        raise DeviceError(f"{error.filename} is missing.", "Compile the candidate; install GNU binutils.") from error
    finally:
        plain.unlink(missing_ok=True)
        whole.unlink(missing_ok=True)


def _without_unique(path: Path) -> bytes:
    """The object with its unique symbols made weak: objcopy leaves unique ones visible, and then a static of an
    inline function would be one with the harness's of that name."""
    content = bytearray(path.read_bytes())
    with path.open("rb") as file:
        for table in ELFFile(file).iter_sections():
            if isinstance(table, SymbolTableSection):
                size = table["sh_entsize"]
                for index in range(table.num_symbols()):
                    at = table["sh_offset"] + index * size + _ST_INFO
                    if content[at] >> 4 == _STB_GNU_UNIQUE:
                        content[at] = _STB_WEAK << 4 | content[at] & 0xF
    return bytes(content)


def _symbols(elf: Any) -> list[_Symbol]:
    tables = [section for section in elf.iter_sections() if isinstance(section, SymbolTableSection)]
    return [
        _Symbol(
            symbol.name,
            symbol["st_info"]["type"],
            symbol["st_info"]["bind"],
            symbol["st_other"]["visibility"],
            symbol["st_shndx"],
            symbol["st_value"],
            symbol["st_size"],
        )
        for table in tables
        for symbol in table.iter_symbols()
    ]


def _check_kernels(file: BinaryIO) -> Refusal | None:
    """The runtime gets each kernel's mangled name, by which tools recognise the harness's own kernels."""
    file.seek(0)
    if HARNESS_KERNELS.encode() in file.read():
        return _refuse(
            "the object holds a name like those of the harness's kernels", "Choose names without mskb in them."
        )
    return None


def _check_sections(elf: Any) -> Refusal | None:
    for section in elf.iter_sections():
        name, flags = section.name, section["sh_flags"]
        if name == ".note.GNU-stack" and flags & _SHF_EXEC:
            return _refuse(
                "the object asks for an executable stack",
                "Remove the nested function or the assembly that asks for it.",
            )
        if flags & _SHF_WRITE and flags & _SHF_EXEC:
            return _refuse(
                f"the section {name} is writable and executable",
                "Remove what puts code there: functions lie where the compiler puts them.",
            )
        if not _SECTIONS.fullmatch(name) and not _CONSTRUCTING.fullmatch(name.removeprefix(".rela")):
            return _refuse(
                f"the section {name} is not one of the compiler's own",
                "Remove the section attribute or the assembly that makes it.",
            )
    return None


def _check_wrapper(elf: Any, symbols: list[_Symbol], wrapper: str) -> Refusal | None:
    found = [symbol for symbol in symbols if symbol.name == wrapper]
    if not found or found[0].section == "SHN_UNDEF":
        return _refuse(f"{wrapper} is not defined", 'Define it as extern "C".')
    symbol = found[0]
    plain = (symbol.kind, symbol.binding, symbol.visibility) == ("STT_FUNC", "STB_GLOBAL", "STV_DEFAULT")
    if not plain or not isinstance(symbol.section, int):
        return _refuse(f"{wrapper} is no plain global function", "Drop inline, static and attributes from it.")
    if not elf.get_section(symbol.section)["sh_flags"] & _SHF_EXEC:
        return _refuse(f"{wrapper} does not lie in code", 'Define it as an extern "C" function.')
    return None


def _check_names(symbols: list[_Symbol], wrapper: str, allowed: re.Pattern[str]) -> Refusal | None:
    for symbol in symbols:
        if not symbol.name:
            continue
        outside = symbol.binding in ("STB_GLOBAL", "STB_WEAK", "STB_LOOS")
        if symbol.kind in ("STT_GNU_IFUNC", "STT_LOOS"):
            return _refuse(
                f"{symbol.name} is chosen at load time (ifunc)", "Define a plain function without the attribute."
            )
        if symbol.section == "SHN_COMMON":
            return _refuse(
                f"{symbol.name} is a common symbol", "Use a local variable, a __device__ buffer, or constexpr."
            )
        if symbol.section == "SHN_UNDEF":
            if not allowed.fullmatch(symbol.name):
                return _refuse(
                    f"the object calls {symbol.name}",
                    "The host side may call only the CUDA runtime, memory and math functions.",
                )
        elif symbol.section == "SHN_ABS" and symbol.kind != "STT_FILE":
            return _refuse(f"{symbol.name} is an absolute symbol", "Remove the assembly that gives it an address.")
        elif outside and symbol.name != wrapper and _RESERVED.fullmatch(symbol.name):
            return _refuse(
                f"the object defines {symbol.name}",
                "Choose a name of your own, or remove it: it belongs to the harness.",
            )
    return None


def _check_constructors(elf: Any, symbols: list[_Symbol], constructors: re.Pattern[str]) -> Refusal | None:
    """Whatever runs before or after main, found through the relocations that fill the arrays."""
    constructing: list[_Symbol] = []
    for section in elf.iter_sections():
        if _CONSTRUCTING.fullmatch(section.name) and section["sh_size"]:
            relocations = _relocations(elf, section.name)
            if section.name.startswith((".init.", ".fini.")) or section.name in (".init", ".fini"):
                return _refuse(
                    f"the object has code in {section.name}",
                    "Move it into the wrapper: nothing runs before or after a call.",
                )
            if len(relocations) * 8 != section["sh_size"]:
                return _refuse(
                    f"{section.name} holds addresses made by hand",
                    "Move it into the wrapper: nothing runs before or after a call.",
                )
            for relocation in relocations:
                target = _target(elf, symbols, relocation)
                name = target.name if target else "an unknown address"
                if target is None or not section.name.startswith(".init_array") or not constructors.fullmatch(name):
                    return _refuse(
                        f"{name} runs outside the wrapper ({section.name})",
                        "Use no constructor attribute and no global objects; make constants constexpr.",
                    )
                constructing.append(target)
    return _check_confined(elf, symbols, CONSTRUCTOR_ONLY, constructing)


def _check_confined(
    elf: Any, symbols: list[_Symbol], names: frozenset[str], within: Iterable[_Symbol]
) -> Refusal | None:
    """Only the functions `within` may refer to `names`."""
    ranges = [(symbol.section, symbol.value, symbol.value + symbol.size) for symbol in within]
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection):
            continue
        for relocation in section.iter_relocations():
            name = symbols[relocation["r_info_sym"]].name
            offset = relocation["r_offset"]
            inside = any(at == section["sh_info"] and low <= offset < high for at, low, high in ranges)
            if name in names and not inside:
                return _refuse(
                    f"the object calls {name}", "Move it into the wrapper: nothing runs before or after a call."
                )
    return None


def _check_state(elf: Any, symbols: list[_Symbol], state: re.Pattern[str], variables: Iterable[str]) -> Refusal | None:
    """Variables in writable memory, less the relocated constants, which are read-only once linked."""
    shadows = [
        re.compile(rf"{re.escape(name)}|_Z.*(?<!\d){len(name)}{re.escape(name)}(?:[^a-z].*)?|{re.escape(name)}\.\d+")
        for name in variables
    ]
    for symbol in symbols:
        if not isinstance(symbol.section, int) or symbol.kind not in _OBJECT_KINDS or not symbol.name:
            continue
        section = elf.get_section(symbol.section)
        writable = section["sh_flags"] & (_SHF_WRITE | _SHF_TLS)
        if not writable or section.name.startswith(".data.rel.ro") or _CONSTRUCTING.fullmatch(section.name):
            continue
        if not state.fullmatch(symbol.name) and not any(shadow.fullmatch(symbol.name) for shadow in shadows):
            return _refuse(
                f"the host side keeps {symbol.name} between calls",
                "Use a local variable, a __device__ buffer, or constexpr.",
            )
    return None


def _relocations(elf: Any, name: str) -> list[Any]:
    section = elf.get_section_by_name(f".rela{name}")
    return list(section.iter_relocations()) if isinstance(section, RelocationSection) else []


def _target(elf: Any, symbols: list[_Symbol], relocation: Any) -> _Symbol | None:
    """The function that a relocation points at, through section symbols too."""
    symbol: _Symbol = symbols[relocation["r_info_sym"]]
    if symbol.kind != "STT_SECTION":
        return symbol
    offset = symbol.value + relocation["r_addend"]
    inside = sorted((s for s in symbols if s.kind == "STT_FUNC" and s.section == symbol.section), key=lambda s: s.value)
    index = bisect_right([s.value for s in inside], offset) - 1
    return inside[index] if index >= 0 and inside[index].value == offset else None


def _full(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")


def _refuse(reason: str, fix: str) -> Refusal:
    return Refusal("object", reason, None, fix)
