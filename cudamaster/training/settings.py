"""Settings of the stages: the keys of their configuration files are the fields here (configuration.py reads them)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cudamaster.core.values import Precision
from cudamaster.training.prompts import Form
from cudamaster.training.reward import Rule

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeast0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Above1 = Annotated[float, Field(gt=1, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Lora(_Strict):
    """Low-rank adapters in place of whole weights; without `targets` they are on all linear layers."""

    r: Positive = 16
    alpha: Positive = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: tuple[str, ...] = ()


class Model(_Strict):
    """The model to start from: a name on Hugging Face, a folder, the folder of an earlier stage, or a new one.

    A `new` one has the architecture of that family with random weights; the stage `sft` trains its tokenizer on the
    set. `context` is the most tokens of prompt and completion together. `device` is cpu, cuda (the first GPU), cuda:N,
    several as cuda:0,1, over which a large model's layers are spread, or auto: a GPU if PyTorch sees one. With
    bfloat16, adapters learn beside weights of that type; whole weights stay float32, and only products are bfloat16.
    """

    name: str | None = None
    new: Literal["llama", "qwen"] | None = None
    layers: Positive = 4
    width: Positive = 256
    heads: Positive = 4
    vocabulary: Annotated[int, Field(ge=300)] = 2048
    context: Positive = 2048
    lora: Lora | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+(,\d+)*)?)$")

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if (self.name is None) == (self.new is None):
            raise ValueError("give either name (a model's name or folder) or new (llama or qwen)")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(f"width {self.width} does not give each of {self.heads} heads an even share")
        if self.new is not None and self.lora is not None:
            raise ValueError("a new model has nothing that adapters could keep: leave lora out")
        return self


class Optimization(_Strict):
    """AdamW. `clip` is the largest norm of a step's gradient; `schedule` is that of the rate after `warmup` steps.

    With `recompute` activations are computed again for the gradients: less memory, and a third more time.
    """

    learning_rate: Above0 = 1e-4
    weight_decay: AtLeast0 = 0.0
    warmup: Count = 0
    clip: Above0 = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    recompute: bool = False


class Generation(_Strict):
    """How completions are sampled: `batch` at once, of one prompt or more; they are judged while others are written."""

    temperature: Above0 = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Positive = 1024
    batch: Positive = 8


class Judge(_Strict):
    """Where samples are judged, and on what.

    `device` is auto, cuda or cpu; `ray` the address of a cluster (auto: the one that this machine is part of).
    `workers` is how many samples are judged at once, by default four for each GPU, or one for each core but one.
    `verdicts` is the file that keeps the verdicts, by default one in the run's folder; several runs may share one.
    `tasks` are names, or paths of cards. Only the timed cases that `cases` names by their labels (all, if it names
    none) count in the reward; an evaluation is scored on the others.
    """

    device: Literal["auto", "cuda", "cpu"] = "auto"
    ray: str | None = None
    workers: Positive | None = None
    verdicts: Path | None = None
    tasks: tuple[str, ...] = Field(min_length=1)
    precisions: tuple[Precision, ...] = (Precision.FP32,)
    cases: tuple[str, ...] = ()


class Evaluation(_Strict):
    """What the model is tried on every so many steps, and before the first: by default the tasks of the judge.

    A task that only stands here is held out: nothing is trained on it, and no sample of it becomes an exemplar.
    """

    tasks: tuple[str, ...] = ()
    samples: Positive = 8


class Budget(_Strict):
    """Where the stage ends, if it has not ended before. `steps` are those of the stage: updates, rounds or groups.

    `evaluations` are kernels built and run, `minutes` those of all sessions together. Neither is exceeded by
    evaluations that a step would still begin: a step that could not end within them does not begin. A step that is
    under way when the minutes are over is finished.
    """

    steps: Count | None = None
    evaluations: Count | None = None
    minutes: AtLeast0 | None = None


class Every(_Strict):
    """After how many steps each happens; 0 is never, except for the checkpoint at the end."""

    checkpoint: Count = 10
    evaluation: Count = 0
    canaries: Count = 0


class Stage(_Strict):
    """What all stages have. `data` is a folder that `cudamaster export` wrote, `out` the folder of the training run.

    `reward` are the constants by which speedups are told from verdicts (training/reward.py).
    """

    stage: ClassVar[str]
    # What may differ when a run goes on: it changes how far, where or how fast, and not what is computed. Of the data
    # the content has to be the same (state.py).
    free: ClassVar[tuple[str, ...]] = ("out", "data", "budget", "judge.workers", "judge.ray", "judge.verdicts")

    model: Model
    data: Path
    out: Path | None = None
    form: Form = Form.COMPACT
    seed: Count = 0
    optimization: Optimization = Optimization()
    generation: Generation = Generation()
    budget: Budget = Budget()
    every: Every = Every()
    evaluation: Evaluation = Evaluation()
    reward: Rule = Rule()


class Exemplars(_Strict):
    """How earlier kernels get into a prompt (strategies/exemplars.py).

    `bucket` draws `number` of distinct buckets of score, `island` does so in one island in turn, `random` draws evenly
    among all. `none` shows the baseline alone: GRPO without contrast.
    """

    method: Literal["bucket", "island", "random", "none"] = "bucket"
    number: Positive = 2
    temperature: Above0 = 1.0
    bucket_ratio: Above1 = 1.1
    islands: Positive = 4
    interval: Positive = 10


def _method(value: object) -> object:
    return {"method": value} if isinstance(value, str) else value


Shown = Annotated[Exemplars, BeforeValidator(_method)]


class Supervised(Stage):
    """What the stages that learn pairs have: `batch` pairs make a step, `micro_batch` of them are computed at once."""

    epochs: Above0 = 1.0
    batch: Positive = 16
    micro_batch: Positive = 8

    @model_validator(mode="after")
    def _of_pairs(self) -> Self:
        if self.batch % self.micro_batch:
            raise ValueError(f"batch {self.batch} is no multiple of micro_batch {self.micro_batch}")
        if self.every.canaries:
            raise ValueError("canaries earn a reward, and this stage has none: leave every.canaries out")
        return self


class Sft(Supervised):
    """Supervised fine-tuning on pairs.

    Without `budget.steps` there are `epochs` over the set. With `exemplars` each pair is also there `copies` times with
    exemplars in its prompt (training/contrasts.py), as the contrastive stage will show them. Without
    `completion_only_loss` the tokens of prompts are learned too, as in continued pretraining: a new model learns sooner
    to copy from them.
    """

    stage = "sft"
    judge: Judge | None = None
    exemplars: Shown = Exemplars(method="none")
    copies: Positive = 4
    completion_only_loss: bool = True

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.every.evaluation and self.judge is None:
            raise ValueError("an evaluation needs the section judge")
        return self


class Selftaught(Supervised):
    """Self-supervised rounds: `samples` of each task, of which the right ones are trained on for `epochs`."""

    stage = "selftaught"
    judge: Judge
    rounds: Positive = 4
    samples: Positive = 16

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.model.new is not None:
            raise ValueError("a model that is new writes no kernel that is right: begin with the stage sft")
        return self


class Grpo(_Strict):
    """A step has `prompts` groups of `group` samples each, on which `iterations` updates are made.

    `epsilon` is the clipping of the ratio and `beta` the weight of the divergence in equation 5 of the CUDA-L1 paper,
    which gives neither; `micro_batch` samples are computed at once.
    """

    prompts: Positive = 1
    group: Annotated[int, Field(ge=2)] = 8
    iterations: Positive = 1
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.2
    beta: AtLeast0 = 0.04
    micro_batch: Positive = 4

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.prompts * self.group % self.micro_batch:
            raise ValueError(
                f"prompts times group is {self.prompts * self.group}, no multiple of micro_batch {self.micro_batch}"
            )
        return self


class Contrastive(Stage):
    """Contrastive reinforcement learning (section 2.4).

    `equation` says whether a reward is the speedup by CUDA-L1's protocol, or CUDA-L2's equation 3. `reviewer` is a
    model that looks at leaps in the reward, and `tricks` the file in which what it refuses is kept
    (training/tricks.py). Of each task `canaries` dishonest kernels are scored at a time, as often as `every.canaries`
    says; they have to earn nothing.
    """

    stage = "contrastive"
    judge: Judge
    exemplars: Shown = Exemplars()
    grpo: Grpo = Grpo()
    equation: Literal["cuda-l1", "cuda-l2"] = "cuda-l1"
    reviewer: str | None = None
    tricks: Path | None = None
    canaries: Positive = 4

    @model_validator(mode="after")
    def _begun(self) -> Self:
        if self.model.new is not None:
            raise ValueError("a model that is new writes no kernel that is right: begin with the stage sft")
        if self.budget.steps is None:
            raise ValueError("budget.steps is missing: this stage has no other end")
        return self
