"""What each instruction of a traced build does to registers and to bytes of the stack, as bits (for steering.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from cudamaster.devices.cpu import callees
from cudamaster.devices.cpu.bits import FIRST_WORD, FLAGS, REGISTERS, bits_of
from cudamaster.devices.cpu.x86 import ARGUMENTS, CALLED, MEMORY, NAMES, matching, operands_of

_Line = tuple[int, str, str]

_DIM3 = 12
_BUILT_IN = {
    "threadIdx": _DIM3,
    "blockIdx": _DIM3,
    "blockDim": _DIM3,
    "gridDim": _DIM3,
    "cudamaster_cpu_dynamic_shared": 8,
}
COMPARES = matching(r"^(?:cmp[bwlq]?|test[bwlq]?|v?u?comis[sd]|bt[wlq]?)$")
_REPLACES = matching(r"^(?:mov(?!lp|hp|lh|hl)|lea|cvt|set|popcnt|lzcnt|tzcnt|pshuf[dhl]|sqrt|pmovmskb)")
_MERGES = matching(r"^(?:cvt(?:si2s|ss2s|sd2s)|movss$|movsd$|sqrts)")
KEEPS_FLAGS = matching(r"^(?:inc|dec|bt|bs[fr]|sh|sa[lr]|ro)")  # some, or all with some values
_ZEROES = matching(r"^(?:p?xor[bwlqd]?|sub[bwlq]?|pcmpeq[bwdq]|xorp[sd])$")  # an operand with itself
_USES_FLAGS = matching(r"^(?:set|cmov|adc|sbb)")
_ARITHMETIC_NAMES = (
    r"(?:add|sub|and|or|xor|neg|inc|dec|sh[lr]|sa[lr]|sh[lr]d|ro[lr]|bt[src]|bs[fr]|imul|adc|sbb|lzcnt|tzcnt|popcnt)"
    r"[bwlq]?$"
)
_ARITHMETIC = matching("^" + _ARITHMETIC_NAMES)
_OTHERS = matching(
    r"^(?:mov\w*|lea[wlq]?|not[bwlq]?|bswap[lq]?|set\w+|cmov\w+|cvt\w+|(?:add|sub|mul|div|min|max|sqrt|and|andn|or|xor|cmp\w*"
    r"|unpck[lh]|shuf|round)[ps][sd]|p(?:xor|and|andn|or|add|sub|sl|sr|shuf|unpck|cmp|mul|madd|ack|insr|extr|min|max|movmskb|mov[sz]x)\w*)$"
)
_WIDENS = {"cltq": ("rax", "rax"), "cwtl": ("rax", "rax"), "cltd": ("rax", "rdx"), "cqto": ("rax", "rdx")}
_DIVIDES = matching(r"^(?:i?div|i?mul)[bwlq]?$")
_IDLE = matching(r"^(?:nop\w*|endbr64|ud2|hlt|pause|[lm]fence)$")
_TARGET = matching(r"^([0-9a-f]+) <([^>+]+)")
_RELATIVE = matching(r"^(-?)0x([0-9a-f]+)\(%rip\)$")
_OF_THREAD = matching(r"^%fs:(-?)0x([0-9a-f]+)$")
# These move addresses, and make no others of them.
COPIES = matching(r"^(?:mov|cmov|push|pop|punpck[lh]qdq|unpck[lh]pd|p(?:ins|ext)rq)")
# What makes another address of one; others only move or compare it.
_LOWERS = matching(r"^(?!mov|lea|set|cmov|inc|cmp[bwlq]?$|test|bt[wlq]?$|punpcklqdq|unpcklpd|p(?:ins|ext)rq)")
_SMALL = matching(r"^\$0x[0-9a-f]{1,5}$")  # a number that is more than nothing
_NARROW = matching(r"^%(?:[a-d][xlh]|[sd]il?|[bs]pl?|r\d+[wb])$")  # a part that leaves what is above it
BASES = ("%rbp", "%ebp", "%bp", "%bpl")
_REGISTER = 4  # bytes of one of a GPU's
_HALF = 4  # bytes of half an address
RETURN = 8  # bytes above where a function's stack begins; what is behind was handed to it


@dataclass(frozen=True)
class Program:
    """Of an executable: where built-in variables lie from the thread's own memory, and what nobody writes."""

    built_in: Sequence[range]
    constant: Sequence[range]


@dataclass
class Function:
    """`places` of its stack have bits by how far they are from where it begins, or from where it was aligned. Variables
    lie from `own` and `handed` on, with the lowest place whose address it takes; below are registers' places."""

    places: dict[tuple[bool, int], int] = field(default_factory=dict)
    own: float = float("inf")
    handed: float = float("inf")
    variables: int = 0  # the bits of those that are variables
    wild: bool = False  # what was loaded may be anywhere in the variables
    registers: int = 0  # bits of four bytes at each place whose address it takes
    moved: bool = False  # it makes other addresses of those
    exchanged: set[str] = field(default_factory=set)  # exchanges to which some thread brings what was loaded
    steered: bool = False
    launched: bool = False  # a launch calls it
    frame: bool = True  # what %rbp is given is where the stack pointer was, and no pointer that goes on from there
    any_kernel: bool = False  # it calls the kernel that the launch names
    calls: set[str] = field(default_factory=set)

    @property
    def known(self) -> tuple[object, ...]:
        """What was found out of the whole of it while values were followed."""
        return self.wild, self.variables, self.moved, len(self.exchanged)

    def may_hold(self, bits: int) -> bool:
        """Whether what was loaded may be in one of these variables although no instruction brought it there."""
        return self.wild and bits & self.variables != 0


@dataclass
class Frame:
    """Where the stack pointer is, and %rbp if that is the frame's: aligned, and the place."""

    aligned: bool = False
    at: int = 0
    base: tuple[bool, int] | None = None


@dataclass
class Instruction:
    """What an instruction does to the bits: of `sources`, `loads` (the bits of the address), to `target` or a `store`
    (the bits of the address)."""

    name: str
    sources: int = 0
    addresses: int = 0
    loads: int | None = None
    unknown: bool = False  # a source that others may write
    place: bool = False  # the result is a place on the stack
    indexed: bool = False  # one that is an index away from what it names
    target: int = 0
    replaces: bool = False
    stores: int | None = None
    flags: bool = False
    near: bool = False  # the result is where a built-in variable begins
    of_thread: bool = False  # what it loads lies close to where its address says in the thread's own memory
    fails: bool = False  # with some values
    spoils: int = 0  # bits of the upper half of a word of the stack whose lower half it writes: an address is lost
    low: bool = False  # it stores below an address, which may be among registers' places
    reaches: int = 0  # bits of an address that it makes a lower one of
    called: str | None = None
    own: bool = False  # what it calls is of the program, and looked at itself
    jumps: bool = False
    strange: bool = False


def program_of(executable: Path) -> Program:
    """What is to be known of an executable."""
    with executable.open("rb") as file:
        elf = ELFFile(file)
        of_thread = next((part for part in elf.iter_segments() if part["p_type"] == "PT_TLS"), None)
        end = 0
        if of_thread is not None:
            align = max(of_thread["p_align"], 1)
            end = (of_thread["p_memsz"] + align - 1) // align * align
        table = elf.get_section_by_name(".symtab")
        built_in = []
        if isinstance(table, SymbolTableSection) and of_thread is not None:
            for symbol in table.iter_symbols():
                if symbol["st_info"]["type"] != "STT_TLS":
                    continue
                # That a shared variable is there is said by what only the compiler writes.
                size = 1 if symbol.name.startswith("_ZGVZ") else _BUILT_IN.get(symbol.name, 0)
                if size:
                    built_in.append(range(symbol["st_value"] - end, symbol["st_value"] - end + size))
        constant = [
            range(part["p_vaddr"], part["p_vaddr"] + part["p_memsz"])
            for part in elf.iter_segments()
            if part["p_type"] == "PT_LOAD" and not part["p_flags"] & 2
        ]
    return Program(built_in, constant)


class Reader:
    """Reads instructions in the order of a way, with the place of the stack pointer."""

    def __init__(self, function: Function, program: Program, frame: Frame) -> None:
        self._function, self._program, self._frame = function, program, frame

    def read(self, line: _Line, behind: int) -> Instruction:
        """What one does; `behind` is where the next begins."""
        _, name, text = line
        operands = operands_of(text)
        if name.startswith("call") or (name.startswith("jmp") and not _TARGET(text)):
            target = None if text.startswith("*") else CALLED.search(text)
            if text.startswith("*%") and name.startswith("call"):
                return Instruction(name, self._register(text[1:]), called="*")
            called = target[1] if target else ""
            found = Instruction(name, called=called, jumps=name.startswith("jmp"))
            self._handed(called, found)
            return found
        if name[0] == "j":
            to = _TARGET(text)
            away = name.startswith("jmp") and to is not None and "+" not in text and ".cold" not in text
            strange = to is None or name.endswith("cxz")
            return Instruction(name, called=to[2] if away and to else None, jumps=True, strange=strange)
        if _IDLE(name) or (name == "xchg" and text == "%ax,%ax") or name == "ret":
            return Instruction(name)
        to_stack = bool(operands) and NAMES.get(operands[-1][1:]) == "rsp" and not COMPARES(name)
        if to_stack or name in ("push", "pop", "leave"):
            return self._moves_stack(name, operands, behind)
        if name in _WIDENS:
            source, target_name = _WIDENS[name]
            return Instruction(name, REGISTERS[source], target=REGISTERS[target_name], replaces=True)
        if name.startswith("stos"):
            return Instruction(name, bits_of("rax"), bits_of("rdi", "rcx"), stores=bits_of("rdi"))
        if name.startswith("movs") and "%es:" in text:
            return Instruction(
                name, 0, bits_of("rdi", "rsi", "rcx"), loads=bits_of("rsi"), stores=bits_of("rdi"), replaces=True
            )
        if (
            "%es:" in text
            or "%st" in text
            or not (_ARITHMETIC(name) or _OTHERS(name) or COMPARES(name) or _DIVIDES(name))
        ):
            return Instruction(name, strange=True)
        return self._plain(name, operands, behind)

    def _handed(self, called: str, found: Instruction) -> None:
        """What the work of a function of the executor hangs on, beside its arguments in registers."""
        if callees.BOXES(called):
            found.sources |= self._bytes(self._frame.aligned, self._frame.at, callees.BOX)
        if not (callees.MULTIPLIES(called) or callees.OF_WARPGROUP(called)):
            return
        types = callees.operands(called)
        found.strange = types is None
        for number, kind in enumerate(types or ()):
            if kind == callees.WORD:
                continue
            behind = number - len(ARGUMENTS)
            found.sources |= (
                self._bytes(self._frame.aligned, self._frame.at + 8 * behind, 8)
                if behind >= 0
                else bits_of(ARGUMENTS[number])
            )

    def _moves_stack(self, name: str, operands: Sequence[str], behind: int) -> Instruction:
        frame = self._frame
        found = Instruction(name, replaces=True)
        amount = int(operands[0][1:], 0) if operands and operands[0].startswith("$") else None
        if name == "push" and operands[0].startswith("%") and operands[0] != "%rsp":
            frame.at -= 8
            found.sources, found.target = self._register(operands[0]), self._bytes(frame.aligned, frame.at, 8)
        elif name == "push":
            self._source(operands[0], 8, found, behind)
            frame.at -= 8
            found.target = self._bytes(frame.aligned, frame.at, 8)
        elif name == "pop":
            found.sources, found.target = self._bytes(frame.aligned, frame.at, 8), self._register(operands[0])
            frame.at += 8
        elif name.startswith("sub") and amount is not None:
            frame.at -= amount
        elif name.startswith("add") and amount is not None:
            frame.at += amount
        elif name.startswith("and") and amount is not None and not frame.aligned and frame.base is not None:
            frame.aligned, frame.at = True, 0
        elif name == "leave" and frame.base is not None:
            frame.aligned, frame.at = frame.base
            found.sources, found.target = self._bytes(frame.aligned, frame.at, 8), self._register("%rbp")
            frame.at += 8
        elif name.startswith("mov") and operands == ("%rbp", "%rsp") and frame.base is not None:
            frame.aligned, frame.at = frame.base
        elif name.startswith("lea") and (slot := self._slot(operands[0])) is not None:
            frame.aligned, frame.at = slot
        else:
            found.strange = True
        return found

    def _plain(self, name: str, operands: Sequence[str], behind: int) -> Instruction:
        found = Instruction(name, flags=bool(_ARITHMETIC(name) or _DIVIDES(name) or COMPARES(name)))
        if name.startswith("lea"):
            if "(" in operands[0]:
                self._address(operands[0], found)
            else:
                self._begins_built_in(operands[0], found)
            found.target, found.replaces = self._register(operands[-1]), True
            return found
        if name.startswith("mov") and tuple(operands) == ("%rsp", "%rbp") and self._function.frame:
            self._frame.base = (self._frame.aligned, self._frame.at)
        size = _size(name, operands)
        same = len(operands) == 2 and operands[0] == operands[1]
        if same and _ZEROES(name) and not _NARROW(operands[0]):
            found.target, found.replaces = self._register(operands[1]), True
            return found
        one = len(operands) == 1
        for operand in operands if one or COMPARES(name) else operands[:-1]:
            self._source(operand, size, found, behind)
        if _USES_FLAGS(name):
            found.sources |= FLAGS
        if COMPARES(name):
            return found
        if one and _DIVIDES(name):
            found.sources |= bits_of("rax") | (bits_of("rdx") if "div" in name else 0)
            found.fails = "div" in name  # by zero
            found.target, found.replaces = bits_of("rax", "rdx"), True
            return found
        target = operands[-1]
        if one and name.startswith("set"):
            found.sources, found.loads, found.unknown, found.addresses = FLAGS, None, False, 0
        replaces = bool(_REPLACES(name))
        if _MERGES(name) and target.startswith("%xmm") and (operands[0].startswith("%") or not name.startswith("mov")):
            replaces = False
        if len(operands) == 3 and name.startswith("imul"):
            replaces = True
        if not replaces and not one:
            self._source(target, size, found, behind)
        self._to(target, size, found, whole=replaces and not _NARROW(target))
        if _LOWERS(name) and not (name.startswith("add") and _SMALL(operands[0])):
            found.reaches |= found.sources
        return found

    def _source(self, operand: str, size: int, found: Instruction, behind: int) -> None:
        if operand.startswith("$"):
            if found.name.startswith("mov"):
                self._begins_built_in(operand[1:], found)
            return
        if operand.startswith("%") and not operand.startswith("%fs:"):
            found.sources |= self._register(operand)
            if operand == "%rsp":
                found.place = True
                self._takes((self._frame.aligned, self._frame.at))
        elif (slot := self._slot(operand)) is not None and "," not in operand:
            found.sources |= self._bytes(*slot, size)
        elif slot is not None:
            self._takes(slot)
            found.unknown = True
            found.addresses |= self._index(operand)
        elif of_thread := _OF_THREAD(operand):
            place = self._place(of_thread)
            found.unknown |= place != 0 and not any(place in each for each in self._program.built_in)
        elif relative := _RELATIVE(operand):
            place = behind + int(relative[1] + relative[2], 16)
            found.unknown |= not any(place in each for each in self._program.constant)
        elif memory := MEMORY.match(operand):
            found.loads = self._parts(memory)
            found.addresses |= found.loads
            offset = memory["offset"]
            if offset.startswith("%fs:"):
                found.of_thread = offset[4:] in ("", "0x0", "0x4", "0x8", "0", "4", "8")
                found.unknown |= not found.of_thread
            found.unknown |= memory["index"] is not None
        else:
            found.strange = True

    @staticmethod
    def _place(of_thread: re.Match[str]) -> int:
        place = int(of_thread[2], 16) - (1 << 64 if len(of_thread[2]) == 16 else 0)
        return -place if of_thread[1] else place

    def _begins_built_in(self, number: str, found: Instruction) -> None:
        place = int(number, 16)
        place -= 1 << 64 if place >> 63 else 0
        found.near = any(place == each.start and len(each) == _DIM3 for each in self._program.built_in)

    def _to(self, operand: str, size: int, found: Instruction, *, whole: bool) -> None:
        if operand.startswith("%") and not operand.startswith("%fs:"):
            found.target, found.replaces = self._register(operand), whole
        elif (slot := self._slot(operand)) is not None and "," not in operand:
            found.target = self._bytes(*slot, size)
            found.replaces = whole
            if whole and size == _HALF and slot[1] % (2 * _HALF) == 0:
                found.spoils = self._bytes(slot[0], slot[1] + _HALF, _HALF)
        elif slot is not None:
            self._takes(slot)
            found.addresses |= self._index(operand)
            # It is one to the stack, whatever its address is made of.
            found.stores, found.low = REGISTERS["rsp"], True
        elif of_thread := _OF_THREAD(operand):
            # The compiler's own marks, of one byte, are written by it alone.
            place = self._place(of_thread)
            found.strange = any(place in each and len(each) > 1 for each in self._program.built_in)
            found.stores = 0
        elif _RELATIVE(operand):
            found.stores = 0
        elif memory := MEMORY.match(operand):
            found.stores = self._parts(memory)
            found.addresses |= found.stores
            found.low = self._is_low(memory)
        else:
            found.strange = True

    @staticmethod
    def _is_low(memory: re.Match[str]) -> bool:
        """Whether an address may be below the one that it is made from: an index may be less than nothing."""
        return memory["offset"].startswith("-") or memory["index"] is not None

    def _address(self, operand: str, found: Instruction) -> None:
        slot = self._slot(operand)
        if slot is not None:
            self._takes(slot)
            found.place = True
            if "," in operand:
                found.sources |= self._index(operand)
                found.reaches = REGISTERS["rsp"]
                found.indexed = True
        elif memory := MEMORY.match(operand):
            found.sources |= self._parts(memory)
            found.reaches = found.sources if self._is_low(memory) else 0

    def _takes(self, slot: tuple[bool, int]) -> None:
        aligned, place = slot
        if not aligned and place >= RETURN:
            self._function.handed = min(self._function.handed, place)
        else:
            self._function.own = min(self._function.own, place)
        self._function.registers |= self._bytes(aligned, place, _REGISTER)

    def _slot(self, operand: str) -> tuple[bool, int] | None:
        """The place of an operand on the stack, without its index."""
        memory = MEMORY.match(operand)
        if memory is None or memory["base"] not in ("%rsp", "%rbp") or memory["offset"].startswith("%"):
            return None
        offset = int(memory["offset"] or "0", 16)
        if memory["base"] == "%rsp":
            return self._frame.aligned, self._frame.at + offset
        base = self._frame.base
        return None if base is None else (base[0], base[1] + offset)

    def _index(self, operand: str) -> int:
        memory = MEMORY.match(operand)
        return self._register(memory["index"]) if memory and memory["index"] else 0

    def _parts(self, memory: re.Match[str]) -> int:
        found = 0
        for part in (memory["base"], memory["index"]):
            found |= self._register(part) if part and part != "%rip" else 0
        return found

    @staticmethod
    def _register(operand: str) -> int:
        name = operand[1:]
        return REGISTERS.get(NAMES.get(name, name), 0)

    def _bytes(self, aligned: bool, place: int, size: int) -> int:
        places = self._function.places
        found = 0
        for byte in range(place, place + size):
            found |= places.setdefault((aligned, byte), 1 << (FIRST_WORD + len(places)))
        return found


@lru_cache(maxsize=1 << 14)
def _size(name: str, operands: Sequence[str]) -> int:
    """Bytes that an instruction moves, at most; those of a store exactly."""
    if name.startswith("set"):
        return 1
    if extends := re.match(r"^mov[sz]([bwl])[wlq]$", name):
        return {"b": 1, "w": 2, "l": 4}[extends[1]]
    if re.match(r"^mov(?:[au]p[sd]|dq[au])$", name) or (
        not name.startswith(("mov", "cvt")) and name.endswith(("ps", "pd"))
    ):
        return 16
    if re.match(r"^(?:mov[lh]p[sd]|movq)$", name):
        return 8
    if name == "movd":
        return 4
    if name.startswith(("cvttsd2si", "cvtsd2si")):
        return 8
    if name.endswith(("sd", "ss")) and not name.startswith("set"):
        return 8 if name.endswith("sd") or "sd" in name else 4
    if name.startswith("p"):
        return 16
    for operand in operands:
        part = operand[1:]
        if operand.startswith("%") and NAMES.get(part) == part:
            return 8
    widest = max((_part(operand) for operand in operands), default=0)
    return widest or {"b": 1, "w": 2, "l": 4, "q": 8}.get(name[-1], 16)


def _part(operand: str) -> int:
    part = operand[1:]
    if not operand.startswith("%") or part not in NAMES:
        return 0
    if part == NAMES[part]:
        return 8
    if part.startswith("e") or part.endswith("d"):
        return 4
    return 1 if part.endswith(("l", "h", "b")) else 2
