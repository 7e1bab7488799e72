"""Search for a faster kernel, follow the search, and compare what it found with the baseline."""

import cudamaster
from cudamaster import Candidate, Findings, Observer, Verdict


class Scores(Observer):
    """Keeps the scores of the kernels that were the best at some time."""

    def __init__(self) -> None:
        self.best: list[float] = []

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        """A kernel is the new best."""
        self.best.append(score)


scores = Scores()
run = cudamaster.optimize("rms_norm", rounds=1, debug_tries=0, model="playbook", observer=scores, progress=print)
print(f"P = {run.score:.2f} {run.verdict.mark}; best scores on the way: {scores.best}")
print(f"The kernel is in {run.path / 'best.cu'}; its command: {run.best.command}")

compared = cudamaster.compare("rms_norm", run.result.baseline, run.best)
if compared.speed is not None:
    print(f"Against the baseline: {compared.speed.speedup:.2f} {compared.second.mark}, {compared.change}")
