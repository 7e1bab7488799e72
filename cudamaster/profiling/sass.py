"""What the machine code of a kernel is made of: instructions by class, from cuobjdump's disassembly.

Counts are static. An instruction counts once, however often a loop runs it, and a device function that was not inlined
counts in each kernel that calls it. Opcodes are those of compute capability 7.0 to 12.x (NVIDIA's "CUDA Binary
Utilities"); what is none of them counts as other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cudamaster.devices import cuobjdump


class InstructionClass(StrEnum):
    """Classes of instructions, by the unit that does them or what they are for."""

    GLOBAL_LOAD = "global loads"  # generic ones too: their address may be any memory's
    GLOBAL_STORE = "global stores"
    SHARED_LOAD = "shared loads"
    SHARED_STORE = "shared stores"
    LOCAL_LOAD = "local loads"  # spilled registers, and arrays that are indexed by variables
    LOCAL_STORE = "local stores"
    ASYNC_COPY = "asynchronous copies"  # cp.async and TMA
    ATOMIC = "atomics"
    FP32 = "fp32"
    FP16 = "fp16 and bf16"
    FP64 = "fp64"
    TENSOR = "tensor"
    INTEGER = "integer and logic"
    SPECIAL = "special functions"
    CONVERSION = "conversions"
    WARP = "warp shuffles and votes"
    BARRIER = "barriers and fences"
    CONTROL = "control"
    MOVE = "moves and constants"
    OTHER = "other"


# What stands here with and without "U" in front is done per thread or, by the uniform datapath, per warp.
_OPCODES: Mapping[InstructionClass, str] = {
    InstructionClass.GLOBAL_LOAD: "LDG LD LDGMC TEX TLD TLD4 SULD",
    InstructionClass.GLOBAL_STORE: "STG ST SUST",
    InstructionClass.SHARED_LOAD: "LDS LDSM",
    InstructionClass.SHARED_STORE: "STS STSM STAS",
    InstructionClass.LOCAL_LOAD: "LDL",
    InstructionClass.LOCAL_STORE: "STL",
    InstructionClass.ASYNC_COPY: """
        LDGSTS UBLKCP UBLKPF UBLKRED UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH UTCCP LDTM STTM
    """,
    InstructionClass.ATOMIC: "ATOM ATOMG ATOMS RED REDG REDAS UREDGR SUATOM SURED",
    InstructionClass.FP32: "FADD FADD2 FADD32I FFMA FFMA2 FFMA32I FMUL FMUL2 FMUL32I FMNMX FMNMX3 FSEL FSET FSETP "
    "FCHK FSWZADD",
    InstructionClass.FP16: "HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2 HMUL2_32I HMNMX2 HSET2 HSETP2",
    InstructionClass.FP64: "DADD DFMA DMUL DMNMX DSETP",
    InstructionClass.TENSOR: """
        HMMA IMMA BMMA DMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA
    """,
    InstructionClass.INTEGER: """
        IADD IADD3 IADD32I IADD64 IADD_64 IMAD IMUL IMUL32I IMNMX VIADD VIADDMNMX VIMNMX VIMNMX3 VHMNMX ISETP ISCADD
        ISCADD32I IABS IDP IDP4A IDP2A LEA LOP LOP3 LOP32I SHF SHL SHR PRMT SEL POPC FLO BREV BMSK SGXT PLOP3 PSETP
        VABSDIFF VABSDIFF4
    """,
    InstructionClass.SPECIAL: "MUFU",
    InstructionClass.CONVERSION: "F2F F2I F2FP F2IP FRND I2F I2FP I2I I2IP",
    InstructionClass.WARP: "SHFL VOTE VOTEU MATCH REDUX CREDUX ELECT ENDCOLLECTIVE",
    InstructionClass.BARRIER: """
        BAR B2R R2B MEMBAR ERRBAR CGAERRBAR FENCE CCTL CCTLL CCTLT DEPBAR LDGDEPBAR SYNCS ARRIVES CGABAR_ARV
        CGABAR_WAIT CGABAR_GET CGABAR_SET UTCBAR WARPGROUP WARPGROUPSET WARPSYNC
    """,
    InstructionClass.CONTROL: """
        BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BREAK BSSY BSYNC BMOV YIELD NANOSLEEP KILL BPT RPCMOV RTT PMTRIG
        ACQBULK PREEXIT LEPC
    """,
    InstructionClass.MOVE: """
        MOV MOV32I MOVM LDC LDCU S2R S2UR CS2R R2UR UR2R R2P P2R UR2UP UP2UR GETLMEMBASE SETLMEMBASE
    """,
}
_CLASS = {opcode: kind for kind, opcodes in _OPCODES.items() for opcode in opcodes.split()}

_ARCHITECTURE = re.compile(r"\s*code for (sm_\w+)")
_FUNCTION = re.compile(r"\s*Function : (\S+)")
_INSTRUCTION = re.compile(
    r"\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>!?U?P\w+)\s+)?"
    r"(?P<opcode>[A-Z]\w*)(?P<modifiers>[\w.]*)\s*(?P<operands>.*?)\s*;"
)
_NEVER = ("!PT", "!UPT")
# Constants come into registers by arithmetic too: a product with zero, plus the constant.
_MOVED = re.compile(r"\w+, -?RZ, RZ, ")


@dataclass(frozen=True)
class NoMix:
    """Why there is no instruction mix, a clause that names the cause and, where there is one, the fix."""

    reason: str


@dataclass(frozen=True)
class InstructionMix:
    """Instructions of one kernel, by its mangled name, on one architecture; classes without any are left out."""

    symbol: str
    architecture: str
    counts: Mapping[InstructionClass, int]

    @property
    def total(self) -> int:
        """All instructions that can be executed."""
        return sum(self.counts.values())


def disassembled(program: Path) -> tuple[InstructionMix, ...] | NoMix:
    """The kernels of an object file or executable."""
    try:
        return parse(cuobjdump.listing(program))
    except cuobjdump.NotListed as error:
        return NoMix(str(error))


def parse(text: str) -> tuple[InstructionMix, ...]:
    """The kernels in what `cuobjdump -sass` printed, in its order."""
    architecture = ""
    kernels: list[tuple[str, str, Counter[InstructionClass]]] = []
    for line in text.splitlines():
        if found := _ARCHITECTURE.match(line):
            architecture = found[1]
        elif found := _FUNCTION.match(line):
            kernels.append((found[1], architecture, Counter()))
        elif kernels and (found := _INSTRUCTION.match(line)) and not _is_padding(found):
            kernels[-1][2][class_of(found["opcode"], found["modifiers"], found["operands"])] += 1
    return tuple(InstructionMix(symbol, built_for, dict(counts)) for symbol, built_for, counts in kernels)


def class_of(opcode: str, modifiers: str = "", operands: str = "") -> InstructionClass:
    """Class of an instruction, e.g. of ("IMAD", ".MOV.U32", "R1, RZ, RZ, R2")."""
    if modifiers.startswith(".MOV") or (opcode == "HFMA2" and _MOVED.match(operands)):
        return InstructionClass.MOVE
    return _CLASS.get(opcode) or _CLASS.get(opcode.removeprefix("U")) or InstructionClass.OTHER


def _is_padding(found: re.Match[str]) -> bool:
    """Whether it is never executed, or does nothing: the code's end is a branch to itself."""
    at_itself = found["opcode"] == "BRA" and found["operands"] == f"0x{found['address'].lstrip('0')}"
    return found["opcode"] == "NOP" or found["guard"] in _NEVER or at_itself
