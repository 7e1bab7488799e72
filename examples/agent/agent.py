"""The smallest agent: edits kernel.cu, has it judged, keeps what is faster. A real one asks a model for the edit."""

import json
import re
import subprocess
from pathlib import Path

kernel = Path("kernel.cu")
task = re.search(r"cudamaster evaluate (\S+)", Path("TASK.md").read_text())[1]
best, fastest = kernel.read_text(), 1.0
for threads in (128, 64, 32):
    idea = f"// {threads} threads in a block\n"
    kernel.write_text(idea + re.sub(r"threads = \d+", f"threads = {threads}", best))
    said = subprocess.run(["cudamaster", "evaluate", task, kernel, "--json"], stdout=subprocess.PIPE).stdout
    verdict = json.loads(said)
    if "error" in verdict:
        raise SystemExit(verdict["error"]["reason"])
    print(idea.strip(), verdict["status"], verdict["score"], flush=True)
    if (verdict["score"] or 0) > fastest:
        best, fastest = kernel.read_text(), verdict["score"]
kernel.write_text(best)
