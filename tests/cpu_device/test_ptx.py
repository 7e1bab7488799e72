"""Inline PTX: known answers on memory and among threads, kernels that wait too little, and what the parser says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cpu_device.run_text import run_text
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cpu.ptx import PtxError, translated
from cudamaster.devices.cpu.ptx.emit import names_of_tags
from cudamaster.faults.cpu_checker import reports

KERNELS = Path(__file__).parent / "kernels"
CHECKS = ["memory", "atomics", "warps", "tiles", "barriers", "copies", "exits", "cluster"]
STREAMS = ["stream", "polling", "turns", "halves", "state", "arrivals-of-copies", "issuer-fences", "incomplete"]
TAGS = toolchain.INCLUDE / "cudamaster_cpu" / "ptx" / "tags.def"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_known_answers(build, check, reversed_threads):
    """Loads, stores, atomics, collectives, numbered barriers, tiles and copies, in both orders of threads."""
    ran = build("ptx").run(check, reversed_threads=reversed_threads)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_known_answers_under_the_sanitizer(build, check):
    """The same where each shared variable is an allocation of its own."""
    ran = build("ptx", debug=True).run(check)
    assert ran.exit_code == 0, ran.stderr
    assert "AddressSanitizer" not in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
def test_all_shared_variables_of_a_program_have_addresses(build, debug):
    """Those of kernels that do not run take room as well: they do not reach into the dynamic arrays."""
    ran = build("ptx_window", debug=debug).run()
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.parametrize("check", CHECKS)
def test_honest_ptx_raises_nothing(build_checked, check):
    """The checker sees each access of inline PTX, and nothing wrong with these."""
    assert build_checked("ptx").found(check) == (set(), "")


WORDS = """
#include <cstdlib>
#include <cuda_runtime.h>

__device__ ulonglong2 word;
__device__ int torn;

// One block stores pairs of equal numbers, the other loads them.
__global__ void pairs(int times) {
    if (blockIdx.x % 2 == 0) {
        for (unsigned long long i = 0; i < times; ++i)
            asm volatile("{.reg .b128 w; mov.b128 w, {%1, %1}; st.relaxed.gpu.global.b128 [%0], w;}" ::"l"(&word),
                         "l"(i)
                         : "memory");
        return;
    }
    for (int i = 0; i < times; ++i) {
        ulonglong2 pair;
        asm volatile("{.reg .b128 w; ld.relaxed.gpu.global.b128 w, [%2]; mov.b128 {%0, %1}, w;}"
                     : "=l"(pair.x), "=l"(pair.y)
                     : "l"(&word)
                     : "memory");
        if (pair.x != pair.y)
            torn = 1;
    }
}
int main(int, char** words) {
    int times = std::atoi(words[1]), found = 0;
    void* arguments[] = {&times};
    cudaLaunchCooperativeKernel((void*)pairs, dim3(4), dim3(32), arguments);
    cudaMemcpyFromSymbol(&found, torn, sizeof found);
    return cudaDeviceSynchronize() != cudaSuccess || found != 0;
}
"""


def test_nobody_sees_half_of_a_strong_access_of_16_bytes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A value and what says how old it is may come in one word, as PTX allows."""
    ran = run_text(WORDS, (2_000_000,), tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stream", "own", "halves"])
def test_enough_waiting_raises_nothing(build, build_checked, name):
    """Two stages of copies, a thread's own copy, and two halves of a block that take turns."""
    assert build("ptx_waits").run(name).exit_code == 0
    assert build_checked("ptx_waits").found(name) == (set(), "")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("no-wait", "early"),
        ("one-group-too-few", "early"),
        ("no-barrier", "early"),
        ("no-second-barrier", "early"),
        ("own-no-wait", "early"),
        ("halves-not-free", "race"),
        ("halves-not-full", "race"),
    ],
)
def test_too_little_waiting_is_found(build_checked, name, kind):
    """Each wait that is left out is named by the checker."""
    kinds, said = build_checked("ptx_waits").found(name)
    assert kind in kinds, said


@pytest.mark.parametrize("name", ["no-wait", "one-group-too-few", "own-no-wait", "source"])
def test_copies_are_late(build, name):
    """A kernel that reads before its wait gets what was there; one that overwrites the source copies what it wrote."""
    assert build("ptx_waits").run(name).exit_code == 3


@pytest.mark.parametrize("name", ["stream", "polling", "turns", "halves", "state", "arrivals-of-copies", "incomplete"])
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_streams_in_bulk(build, name, reversed_threads):
    """Copies in bulk in and out, with waits of all kinds, are right in both orders of threads."""
    ran = build("ptx_bulk").run(name, reversed_threads=reversed_threads)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.parametrize("name", STREAMS)
def test_honest_streams_raise_nothing(build_checked, name):
    """The checker has nothing to say of them."""
    assert build_checked("ptx_bulk").found(name) == (set(), "")


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_honest_streams_under_the_sanitizer(build, name):
    """Neither has the sanitizer."""
    assert build("ptx_bulk", debug=True).run(name).exit_code == 0


@pytest.mark.parametrize(
    "name",
    [
        "no-wait",
        "one-try",
        "same-parity",
        "no-expect",
        "half-the-bytes",
        "not-empty",
        "too-many-arrivals",
        "no-wait-for-read",
    ],
)
def test_a_stream_that_waits_too_little_is_found(build_checked, name):
    """A wait, an announcement of bytes or a barrier's count that is left out or off is named by the checker."""
    kinds, said = build_checked("ptx_bulk").found(name)
    assert "early" in kinds, said


@pytest.mark.parametrize("name", ["no-fence", "no-fence-of-inits"])
def test_a_stream_without_its_fence_is_found(build_checked, name):
    """What threads wrote, or a barrier they initialised, that a copy uses without a fence of proxies since."""
    assert build_checked("ptx_bulk").found(name)[0] == {"unfenced"}


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (0, "barrier.cluster.wait without barrier.cluster.arrive"),
        (1, "barrier.cluster.arrive twice without barrier.cluster.wait"),
        (3, "waits in barrier.cluster.wait for 1 of 64 threads that never arrive"),
    ],
)
def test_the_barrier_of_a_cluster_has_rules(build, mistake, words):
    """Each thread comes once and then waits; a thread that never comes is a deadlock."""
    ran = build("ptx").run(f"cluster-mistake-{mistake}", limit_s=20)
    assert words in ran.stderr


def test_reading_without_the_wait_of_a_cluster_is_a_race(build_checked):
    assert "race" in build_checked("ptx").found("cluster-mistake-2")[0]


def test_a_missing_fence_is_told_with_both_lines(build_checked):
    """The write that is not fenced, and the copy that reads it."""
    code, checked = (KERNELS / "ptx_bulk.cu").read_text(), build_checked("ptx_bulk")
    _, said = checked.found("no-fence")
    told = [one for report in reports(said, checked.executable, code) for one in report.findings]
    assert len(told) == 1
    assert told[0].what.startswith("Asynchronous read of the shared variable result without fence.proxy.async since")
    lines = code.splitlines()
    assert "result[t] = " in lines[told[0].other_line - 1]
    # The copy is a statement of several lines.
    assert "cp.async.bulk.global.shared::cta" in "".join(lines[told[0].line - 2 : told[0].line + 2])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("too-many-bytes", "0 arrivals and 16 bytes are missing"),
        ("more-than-expected", "-16 bytes are missing: more came than were expected"),
        ("polled-forever", "0 arrivals and 16 bytes are missing"),
        ("no-wait-for-group", "ends before its copy in bulk has read shared memory"),
        ("no-init", "an mbarrier that was not initialised"),
        ("incomplete-completes", "mbarrier.arrive.noComplete that completes a phase"),
        ("same-parity", "more arrivals at an mbarrier than its phase expects"),
    ],
)
def test_a_stream_that_cannot_go_on_says_why(build, name, words):
    """Waits that nobody will ever satisfy, and barriers that are used against their rules, end the block."""
    ran = build("ptx_bulk").run(name, limit_s=20)
    assert ran.exit_code == 9
    assert words in ran.stderr


@pytest.mark.parametrize(("name", "words"), [("too-many-bytes", "try_wait"), ("same-parity", "mbarrier.arrive")])
def test_a_fault_names_its_line(build, name, words):
    """The instruction that a block ends at, or that a thread waits in where nobody can go on, by its line."""
    said = build("ptx_bulk").run(name, limit_s=20).stderr
    found = re.search(r"cuda device fault: kernel .*, thread \(\d+,0,0\), line (\d+): ", said)
    assert found is not None, said
    assert words in (KERNELS / "ptx_bulk.cu").read_text().splitlines()[int(found[1]) - 1]


@pytest.mark.parametrize(
    "statement",
    [
        'asm("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(y));',
        'asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(x) : "r"(y));',
        'asm("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(x) : "r"(y));',
    ],
    ids=lambda statement: statement.partition('"')[2].partition(".")[0],
)
def test_an_instruction_that_waits_for_lanes_says_its_line(statement):
    """A deadlock there names it."""
    assert "cm_here.at(1);" in translated(statement)


@pytest.mark.parametrize(("name", "exit_code"), [("no-expect", 9), ("half-the-bytes", 9), ("no-wait-for-read", 3)])
def test_copies_in_bulk_are_late(build, name, exit_code):
    """Memory that is read before a wait for its bytes has its old content; a block does not end before they come."""
    ran = build("ptx_bulk").run(name)
    assert ran.exit_code == exit_code
    assert ("ends before a copy in bulk into its shared memory has come" in ran.stderr) == (exit_code == 9)


@pytest.mark.parametrize(
    ("statement", "message", "line"),
    [
        ('asm("add.u32 %0, %0" : "+r"(x));', "expected ';'", 1),
        ('asm("mov.u32 %0, 1;"\n"add.u32 %0, y, 1;" : "+r"(x));', "Unknown symbol 'y'", 2),
        ('asm("{ add.u32 %0, %0, 1;" : "+r"(x));', "'}' is missing", 1),
        ('asm("add.u32 %0, %0;" : "+r"(x));', "instruction 'add.u32': operands: 3 due, 2 given", 1),
        (
            'asm("add.u64 %0, %0, %0;" : "+r"(x));',
            "instruction 'add.u64': %0 is a register of 32 bits, where a register of 64 bits is due",
            1,
        ),
        ('asm("ld.v4.u32 {%0, %0}, [%1];" : "=r"(x) : "l"(y));', "registers of an operand: 4 due, 2 given", 1),
        ('asm("mov.u32 %0, %1;" : "=r"(x));', "names the operand %1", 1),
        ('asm("mov.u32 %0, %[one];" : "=r"(x) : [two] "r"(y));', "names the operand %[one]", 1),
        ('asm("bra away;");', "Unknown symbol 'away'", 1),
        ('asm("mov.u32 %0, 1;" : "r"(x));', "does not fit an output", 1),
        ('asm("mov.u32 %0, 1;" : "=a"(x));', "constraint letter 'a'", 1),
        ('asm(R"(\n\n  mov.u32 %0 1;\n)" : "=r"(x));', "expected ';'", 3),
    ],
)
def test_mistakes_are_named_with_their_line(statement, message, line):
    """What nvcc and ptxas refuse is refused here."""
    with pytest.raises(PtxError) as caught:
        translated(statement)
    assert message in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        'void f() { asm volatile("mov.u32 %0,\\n\\t"\n  "1;"\n  : "=r"(x) // out\n  : /* in */);\n}\n',
        '#define ONE(x) \\\n  asm("mov.u32 %0, 1;" \\\n : "=r"(x))\nvoid f() { ONE(y); }\n',
    ],
)
def test_lines_stay(text):
    """A statement becomes as many lines, in a macro spliced ones."""
    made = translated(text)
    assert made.count("\n") == text.count("\n")
    assert made.count("\\\n") == (2 if text.startswith("#") else 0)
    assert "asm" not in made


def test_operands_of_other_types_are_refused(tmp_path):
    """A constraint has to have its type and size, as nvcc demands it."""
    text = '__device__ void f(double x, int& y) {\n  asm("mov.b32 %0, %1;" : "=r"(y) : "r"(x));\n}\n'
    compiled = CpuDevice().compile(text, [], "candidate", tmp_path)
    assert compiled.object is None
    assert compiled.unsupported is None
    assert "does not match that of its constraint" in compiled.log
    assert "candidate.cu:2" in compiled.log


def test_every_modifier_has_its_tag():
    """The C++ knows each modifier that a form may have."""
    named = {line[2:-1] for line in TAGS.read_text().splitlines() if line.startswith("X(")}
    assert set(names_of_tags()) <= named


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", ["ptx", "ptx_waits", "ptx_bulk"])
def test_the_programs_are_ptx(tmp_path, name):
    """nvcc and ptxas take the same programs."""
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, "-cubin", "-o", str(tmp_path / "x"), str(KERNELS / f"{name}.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
