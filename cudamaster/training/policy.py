"""The model in training: where it comes from, how it is asked, and how it is kept."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cudamaster.core.errors import ModelError, RunFolderError, UsageError, one_line
from cudamaster.core.values import content_hash
from cudamaster.models.protocol import Message
from cudamaster.training.prompts import Form
from cudamaster.training.settings import Generation, Lora, Model

_PAD, _END = "<pad>", "<end>"
_LIKE = {"llama": "llama", "qwen": "qwen3"}  # types of transformers


class Policy:
    """A causal language model of transformers with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, about: Model, form: Form) -> None:
        """Raises UsageError for a model that cannot be asked in this form."""
        self.model = model
        self.tokenizer = tokenizer
        self.about = about
        self.form = form
        if form is Form.FULL and getattr(tokenizer, "chat_template", None) is None:
            raise UsageError(
                f"The tokenizer of {about.name or about.new} has no chat template, which the full form needs.",
                "Take a model that was trained to follow instructions, or write form: compact.",
            )

    @property
    def mixed(self) -> bool:
        """Whether products are computed in bfloat16 beside weights in float32."""
        return self.about.dtype == "bfloat16" and self.about.lora is None

    def ids(self, prompt: Sequence[Message]) -> list[int]:
        """The tokens of a prompt."""
        if self.form is Form.COMPACT:
            found = self.tokenizer("".join(message.content for message in prompt))["input_ids"]
        else:
            messages = [{"role": message.role, "content": message.content} for message in prompt]
            found = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
            found = found["input_ids"]
        return list(found)

    def fits(self, ids: Sequence[int], generation: Generation) -> bool:
        """Whether a completion has room behind a prompt."""
        return len(ids) + generation.max_tokens <= self.about.context

    def sample(self, prompts: Sequence[Sequence[int]], generation: Generation, seed: str) -> list[list[int]]:
        """A completion of each prompt, all written at once; as tokens, each with its end token if it came to one.

        The same weights, prompts, seed and machine give the same ones; other random numbers are not touched.
        """
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from transformers import GenerationConfig

        model = self.model
        device = model.device
        pad = self.tokenizer.pad_token_id
        config = GenerationConfig(
            do_sample=True, temperature=generation.temperature, top_p=generation.top_p, top_k=0,
            max_new_tokens=generation.max_tokens, eos_token_id=self.ends, pad_token_id=pad,
        )  # fmt: skip
        longest = max(map(len, prompts))
        # Completions continue at the right, so shorter prompts are padded at the left.
        asked = torch.tensor([[pad] * (longest - len(ids)) + list(ids) for ids in prompts], device=device)
        seen = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts], device=device)
        was_training = model.training
        model.eval()
        gpus = [device] if device.type == "cuda" else []
        autocast = torch.autocast(device.type, torch.bfloat16) if self.mixed else contextlib.nullcontext()
        try:
            # Not cuDNN's, which plans anew for each length, and there is a longer one at each token.
            attention = sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
            with torch.random.fork_rng(gpus), torch.no_grad(), autocast, attention:
                torch.manual_seed(int(content_hash(seed), 16) % 2**63)
                found = model.generate(input_ids=asked, attention_mask=seen, generation_config=config)
        finally:
            model.train(was_training)
        return [self._until_end(row[longest:].tolist()) for row in found]

    def text(self, completion: Sequence[int]) -> str:
        """What a completion says."""
        return str(self.tokenizer.decode(list(completion), skip_special_tokens=True))

    @property
    def ends(self) -> list[int]:
        """The tokens that end a completion."""
        named = getattr(self.model.generation_config, "eos_token_id", None)
        named = [named] if isinstance(named, int) else list(named or [])
        return list(dict.fromkeys([self.tokenizer.eos_token_id, *named]))

    def _until_end(self, tokens: list[int]) -> list[int]:
        end = next((place for place, token in enumerate(tokens) if token in self.ends), len(tokens) - 1)
        return tokens[: end + 1]

    def restore(self, checkpoint: Path) -> None:
        """Take over the weights of a checkpoint; the model stays the one that it began as (its name, its reference)."""
        from transformers import AutoModelForCausalLM

        if self.about.lora is not None:
            self.model.load_adapter(str(checkpoint), "default", is_trainable=True)
        else:
            kept = AutoModelForCausalLM.from_pretrained(str(checkpoint), dtype=self.model.dtype)
            self.model.load_state_dict(kept.state_dict())

    def save(self, folder: Path) -> None:
        """Write model and tokenizer into a folder, whole or not at all; adapters become part of the weights."""
        staged = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(staged, ignore_errors=True)
        model = self.model
        if self.about.lora is not None and hasattr(model, "merge_and_unload"):
            model = model.merge_and_unload()
        model.save_pretrained(staged)
        self.tokenizer.save_pretrained(staged)
        if folder.exists():
            shutil.rmtree(folder)
        staged.replace(folder)


def place_of(name: str) -> str:
    """What is loaded for the name of a model: of an earlier stage's folder, its result. Raises RunFolderError."""
    folder = Path(name)
    if not (folder / "manifest.json").is_file():
        return name
    if not (folder / "model").is_dir():
        raise RunFolderError(
            f"{folder} is a training run that has not ended, so it has no model yet.",
            "Run its command again, which goes on.",
        )
    return str(folder / "model")


def loaded(about: Model, form: Form, *, on_gpus: int, place: str | None = None, seed: int = 0) -> Policy:
    """The model that is meant, or the one at `place`, on the CPU or on so many GPUs; with new adapters if it has any.

    Adapters begin with random numbers, which `seed` decides. Raises ModelError for one that cannot be loaded.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = place or place_of(about.name or "")
    with_adapters = about.lora is not None and about.dtype == "bfloat16"
    spread = {"device_map": "auto"} if on_gpus > 1 else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
        model = AutoModelForCausalLM.from_pretrained(
            place, dtype=torch.bfloat16 if with_adapters else torch.float32, **spread
        )
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(
            f"The model {place} cannot be loaded: {one_line(error)}",
            "Give the name of a causal language model on Hugging Face, or a folder that has one.",
        ) from error
    longest = getattr(model.config, "max_position_embeddings", None)
    if longest is not None and about.context > longest:
        what = f"model.context is {about.context}, and {place} has positions for {longest} tokens."
        raise UsageError(what, f"Write context: {longest}, or less.")
    if on_gpus == 1:
        model = model.to("cuda")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Policy(model if about.lora is None else _adapted(model, about.lora, seed), tokenizer, about, form)


def _adapted(model: Any, lora: Lora, seed: int) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model

    targets = list(lora.targets) or "all-linear"
    config = LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets, task_type="CAUSAL_LM"
    )
    try:
        # All GPUs by number: without, PyTorch warns where there are several.
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            return get_peft_model(model, config)
    except ValueError as error:
        raise UsageError(f"No adapters can be made: {one_line(error)}", "Name other lora.targets, or none.") from error


def make_new(about: Model, texts: Iterable[str], seed: int, folder: Path) -> None:
    """Write a new model with random weights into a folder, with a tokenizer that is trained on the texts.

    The tokenizer merges bytes into up to `vocabulary` tokens (byte-pair encoding), so that any code can be written.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    tokens = Tokenizer(models.BPE())
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=about.vocabulary, special_tokens=[_PAD, _END], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    tokens.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token=_PAD, eos_token=_END, model_max_length=about.context
    )
    assert about.new is not None
    config = AutoConfig.for_model(
        _LIKE[about.new], vocab_size=len(tokenizer), hidden_size=about.width, num_hidden_layers=about.layers,
        intermediate_size=-(-about.width * 8 // 3 // 8) * 8, num_attention_heads=about.heads,
        num_key_value_heads=about.heads, head_dim=about.width // about.heads, max_position_embeddings=about.context,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    Policy(model, tokenizer, about, Form.COMPACT).save(folder)


def parameters(policy: Policy) -> tuple[int, int]:
    """How many weights the model has, and how many of them learn."""
    sizes = [(each.numel(), each.requires_grad) for each in policy.model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, learns in sizes if learns)
