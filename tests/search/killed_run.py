"""The process that test_killed.py kills: one search against a chat server, fresh or resumed.

    python killed_run.py RUN_FOLDER URL ROUNDS DEBUG_TRIES

Prints the result as JSON, without what depends on the clock.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from search_stand_ins import PlainHttpModel, ScriptedWorkbench

from cudamaster.optimization import optimize, resume
from cudamaster.runfolder import Settings
from cudamaster.values import Role


def main() -> None:
    path, url = Path(sys.argv[1]), sys.argv[2]
    judged = path.with_suffix(".judged")
    bench = ScriptedWorkbench(delay=lambda: time.sleep(0.005))
    models = dict.fromkeys(Role, PlainHttpModel(url))
    if path.exists():
        result = resume(path, bench, models)
    else:
        names = dict.fromkeys(Role, "plain-http")
        settings = Settings("cudamaster", int(sys.argv[3]), int(sys.argv[4]), "stand-in", names)
        result = optimize(path, bench, models, settings)
    with judged.open("a") as file:
        file.write("".join(f"{candidate}\n" for candidate in bench.evaluated))
    outcomes = [[r.outcome.plan.idea, r.outcome.status, r.outcome.score, len(r.attempts)] for r in result.rounds]
    print(json.dumps({"best": result.best.code, "score": result.score, "rounds": outcomes}))


if __name__ == "__main__":
    main()
