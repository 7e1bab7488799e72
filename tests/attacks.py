"""Candidates that no guard has seen: what one tries is put before a wrapper that also does the task rightly."""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.build.building import Builder
from cudamaster.core.values import Precision
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Ran
from cudamaster.judging import reference_process
from cudamaster.judging.report_lines import Line
from cudamaster.judging.verdicts import Judgement, judge, parse
from cudamaster.tasks.harness import baseline_region

HEADERS = """
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sched.h>
#include <string>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
static rlimit had;
template <class Own> static long owned(const Own& own) {
    for (int to = 3; to < 64; ++to)
        if (own(to) == 0) return 0;
    errno = EPERM;
    return -1;
}
static void say(const char* what, long got) {
    std::fprintf(stderr, "%s: %s\\n", what, got < 0 ? std::strerror(errno) : "DONE");
}
"""


@dataclass(frozen=True)
class Seen:
    """What became of an attack: the judgement, the report, and what was printed."""

    judgement: Judgement
    lines: list[Line]
    ran: Ran


def attack(
    builder: Builder,
    within: Path,
    body: str,
    *,
    calls: int = 0,
    limit_s: float = 2,
    judge_limit_s: float = 120,
    more: Sequence[str] = (),
    head: str = "",
    words: Sequence[str] = (),
) -> Seen:
    """Run the baseline with `body` before it as a candidate, on the verification cases; with `calls` on all.

    `head` stands before the wrapper; `words` are options of the candidate's worker, `more` of the judge.
    """
    card = builder.card
    folder = Path(tempfile.mkdtemp(dir=within))
    code = baseline_region(card, Precision.FP32)
    wrapper = re.search(r"extern \"C\" void [^{]*\{", code)
    assert wrapper is not None
    # Headers of the system first: the CPU device redefines words that they use.
    attacked = HEADERS + head + code.replace(wrapper[0], f"{wrapper[0]}\n{body}\n")
    compiled = builder.device.compile(attacked, ["-O1", "-std=c++17"], "attack", folder)
    assert compiled.object is not None, compiled.log
    linked = builder.device.link([*builder._worker_objects(False), compiled.object], folder / "worker")
    assert linked.object is not None, linked.log
    report = folder / "report.jsonl"
    request = JudgeRequest(
        judge=(str(builder.judge()),),
        baseline=(str(builder.baseline_worker()),),
        candidate=(str(linked.object), *words),
        cases="all" if calls else "verify",
        calls=calls,
        warmups=0,
        call_limit_s=limit_s,
        reference=reference_process.command(card),
        others=tuple(more),
    )
    ran = builder.device.run(request, report, judge_limit_s)
    told = parse(report.read_text())
    rows = [case for case in card.cases if calls or not case.sweep]
    return Seen(judge(told, ran, rows), told, ran)
