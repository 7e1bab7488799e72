"""What a response of LiteLLM's says: the text, whether it is whole, its tokens and their price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from cudamaster.core.keys import reply_without_keys
from cudamaster.models.protocol import Reply, Usage

_CUT_BY = {
    "length": "the model came to its limit of tokens (finish_reason: length)",
    "content_filter": "the provider's filter stopped it (finish_reason: content_filter)",
}
_MOST_TOKENS = 10**12  # of a call; a larger figure of a server is no number of tokens


def read_reply(litellm: Any, response: Any, name: str, base_url: str | None, seconds: float) -> Reply:
    """The reply in a response of the model `name`, which took so many seconds."""
    prompt, completion = _tokens(response)
    counted = prompt is not None and completion is not None
    return Reply(
        # A lone surrogate cannot be written to a file or hashed.
        text=reply_without_keys((_text(response) or "").encode("utf-8", "replace").decode()),
        model=name,
        usage=Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            dollars=_dollars(litellm, response, name) if counted and is_priced(litellm, name, base_url) else None,
            seconds=seconds,
            cached_tokens=_cached_tokens(response, prompt),
        ),
        cut=_cut(response),
    )


def is_priced(litellm: Any, name: str, base_url: str | None) -> bool:
    """Whether LiteLLM's list has a price for a model.

    The user's own server may use any name, so the list price of that name is not its price.
    A listed price of zero stands for "not known" as often as for "free", and is taken as unknown.
    """
    provider, _, model = name.partition("/")
    listed: Mapping[str, Any] = litellm.model_cost.get(name, {})
    if not listed and model:
        # The same name at another provider, hosted_vllm/gpt-4o for one, is another model with a price of its own.
        found = litellm.model_cost.get(model, {})
        listed = found if str(found.get("litellm_provider")).startswith(provider) else {}
    price = listed.get("input_cost_per_token") or listed.get("output_cost_per_token")
    return bool(price) and base_url is None


def _dollars(litellm: Any, response: Any, name: str) -> float | None:
    """Price of a call; cached tokens have their own price."""
    try:
        return float(litellm.completion_cost(completion_response=response, model=name)) or None
    except Exception:
        return None


def _text(response: Any) -> str | None:
    try:
        content = response.choices[0].message.content
    except (AttributeError, IndexError, TypeError):
        return None
    return content if isinstance(content, str) else None


def _cut(response: Any) -> str:
    """Why the text is not the whole reply, according to the server; empty if it says nothing of the kind."""
    try:
        return _CUT_BY.get(response.choices[0].finish_reason, "")
    except (AttributeError, IndexError, TypeError):
        return ""


def _tokens(response: Any) -> tuple[int | None, int | None]:
    # LiteLLM fills in zeros if a server reports nothing. No call has an empty prompt, and every text has tokens.
    usage = getattr(response, "usage", None)
    prompt, completion = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
    if not _is_count(prompt) or prompt == 0:
        return None, None
    return prompt, completion if _is_count(completion) and (completion or not _text(response)) else None


def _is_count(value: object) -> TypeGuard[int]:
    """Whether a server's number can be a token count: a negative one would refund a budget."""
    return isinstance(value, int) and 0 <= value < _MOST_TOKENS


def _cached_tokens(response: Any, prompt: int | None) -> int | None:
    """Prompt tokens that the provider had cached; None if it does not report them."""
    details = getattr(getattr(response, "usage", None), "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None)
    return cached if prompt is not None and _is_count(cached) and cached <= prompt else None
