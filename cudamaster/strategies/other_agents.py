"""What other agents would have said, where one agent's prompt is shown without a search."""

from cudamaster.agents.debug import Diagnosis
from cudamaster.agents.judge import Correction, Optimization
from cudamaster.core.values import Plan

PLAN = Plan("<title of the Planner's idea>", "<the Planner's scheme>")
DIAGNOSIS = Diagnosis("<what the Debug agent found>", "<what the Debug agent says to change>")
CORRECTION = Correction("<the problem that the Judge names>", "<why it matters>", "<the smallest fix>")
OPTIMIZATION = Optimization("<the bottleneck that the Judge names>", "<its method>", "<its plan>")
