"""What training a large model on measured speed would take, reckoned from parts that are measured here.

    python benchmarks/learning_scale.py measure OUT.json [--billions 1.5 7]    on a GPU; needs no weights
    python benchmarks/learning_scale.py reckon OUT.json [--judged SECONDS]     prints the table

A step of the contrastive stage writes samples, judges them, and learns from them. `measure` times writing and learning
with models of Qwen's form and random weights: what a token costs does not depend on what the weights are. `--judged` is
how long a GPU is taken by one kernel's evaluation (the mean of `check` and `timing` of a verdict and the start of its
processes), 2 s where nothing else is known.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

# Width, layers, heads, key heads and inner width of models in use, by billions of weights.
FORMS = {1.5: (1536, 28, 12, 2, 8960), 7.0: (3584, 28, 28, 4, 18944), 14.0: (5120, 48, 40, 8, 13824)}
VOCABULARY = 152064
PROMPT, COMPLETION = 4000, 2000  # tokens: the full form with two exemplars, and a reply of three parts
SAMPLES, MICRO_BATCH = 16, 1
# The CUDA-L1 paper has 250 tasks. How many samples a group has and how often a task comes, it does not say.
TASKS, GROUP, TURNS = 250, 16, 8
STEPS = TASKS * TURNS


def measure(billions: Sequence[float]) -> dict[str, Any]:
    """Seconds of writing SAMPLES completions of one prompt, and of learning from one of them, of each size."""
    try:
        import torch
    except ImportError:
        sys.exit("error: PyTorch is missing. Install the extra `train` (docs/training.md).")
    if not torch.cuda.is_available():
        sys.exit("error: there is no GPU that PyTorch can use.")
    from peft import LoraConfig, get_peft_model
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from transformers import Qwen2Config, Qwen2ForCausalLM

    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "models": {}}
    for size in billions:
        width, layers, heads, key_heads, inner = FORMS[size]
        config = Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            intermediate_size=inner,
        )
        with torch.device("cuda"):
            torch.set_default_dtype(torch.bfloat16)
            model = Qwen2ForCausalLM(config)
            torch.set_default_dtype(torch.float32)
        prompt = torch.randint(0, VOCABULARY, (1, PROMPT), device="cuda").repeat(SAMPLES, 1)

        def write(tokens: int, model: Any = model, prompt: Any = prompt) -> None:
            # As Policy.sample does; cuDNN's attention would plan anew at each token.
            attention = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
            with torch.no_grad(), sdpa_kernel(attention):
                model.generate(prompt, do_sample=True, max_new_tokens=tokens, min_new_tokens=tokens)

        write(50)
        # Small models wait for the host, which others may keep busy: the best of three.
        short, long = (
            min(_seconds(lambda write=write, tokens=tokens: write(tokens)) for _ in range(3)) for tokens in (50, 250)
        )
        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
        text = torch.randint(0, VOCABULARY, (MICRO_BATCH, PROMPT + COMPLETION), device="cuda")

        def learn(model: Any = model, text: Any = text) -> None:
            with torch.no_grad(), model.disable_adapter():  # the first weights, for the divergence
                model(input_ids=text)
            model(input_ids=text, labels=text).loss.backward()

        learn()
        found["models"][str(size)] = {
            # A long prompt is read once, however many tokens follow.
            "writing_s": short + (long - short) / 200 * (COMPLETION - 50),
            "learning_s": min(_seconds(learn) for _ in range(3)) / MICRO_BATCH,
            "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
            "weights": sum(one.numel() for one in model.parameters()),
        }
        del model
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return found


def _seconds(work: Any) -> float:
    import torch

    torch.cuda.synchronize()
    began = monotonic()
    work()
    torch.cuda.synchronize()
    return monotonic() - began


def reckon(found: dict[str, Any], judged_s: float) -> None:
    """Print GPU hours of so many steps, by what they go into."""
    samples = STEPS * GROUP
    print(f"{STEPS} steps of {GROUP} samples, {PROMPT} tokens of prompt and {COMPLETION} of reply, on {found['gpu']}:")
    print(f"{'weights':>8}  {'writing, h':>10}  {'judging, h':>10}  {'learning, h':>11}  {'memory, GiB':>11}")
    for parts in found["models"].values():
        hours = (samples / SAMPLES * parts["writing_s"], samples * judged_s, samples * parts["learning_s"])
        written, judged, learned = (seconds / 3600 for seconds in hours)
        row = f"{parts['weights'] / 1e9:7.1f}B  {written:10.1f}  {judged:10.1f}  {learned:11.1f}"
        print(f"{row}  {parts['memory_gib']:11.0f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("measure")
    one.add_argument("out", type=Path)
    one.add_argument("--billions", type=float, nargs="+", default=[1.5, 7.0], choices=sorted(FORMS))
    two = commands.add_parser("reckon")
    two.add_argument("measured", type=Path)
    two.add_argument("--judged", type=float, default=2.0)
    given = parser.parse_args()
    if given.command == "measure":
        given.out.write_text(json.dumps(measure(given.billions), indent=1) + "\n")
    elif not given.measured.exists():
        sys.exit(f"error: there is no {given.measured}.")
    else:
        reckon(json.loads(given.measured.read_text()), given.judged)


if __name__ == "__main__":
    main()
