"""The process whose children test_killed.py kills: each does one search against a chat server.

Imports once and forks for each line "RUN_FOLDER URL ROUNDS DEBUG_TRIES" on standard input; prints the child's process
id, and its exit code when it is gone. The child leaves its result, without what depends on the clock, in
RUN_FOLDER.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path

from search_stand_ins import PlainHttpModel, ScriptedWorkbench

from cudamaster.agents import prompts
from cudamaster.core.values import Role
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudamaster import ROLES


def search(path: Path, url: str, rounds: int, debug_tries: int) -> None:
    bench = ScriptedWorkbench(delay=lambda: time.sleep(0.003))
    models = dict.fromkeys(Role, PlainHttpModel(url))
    if path.exists():
        result = resume(path, bench, models)
    else:
        names = dict.fromkeys(ROLES, "plain-http")
        settings = Settings("cudamaster", rounds, debug_tries, "stand-in", names)
        result = optimize(path, bench, models, settings)
    outcomes = [[r.outcome.plan.idea, r.outcome.status, r.outcome.score, len(r.attempts)] for r in result.rounds]
    summary = {"best": result.best.code, "score": result.score, "rounds": outcomes}
    path.with_suffix(".json").write_text(json.dumps(summary))


def main() -> None:
    prompts.render("again.md.j2", reason="warm-up")
    for line in sys.stdin:
        path, url, rounds, debug_tries = line.split()
        child = os.fork()
        if child == 0:
            try:
                search(Path(path), url, int(rounds), int(debug_tries))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
