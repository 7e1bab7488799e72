"""Any hosted or local model, by way of LiteLLM. The only module that imports litellm, at the first call.

Keys are read from the environment by LiteLLM itself; this module never holds one, and takes every value that
looks like one out of the errors that it passes on.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from cudamaster.errors import ModelError, UsageError
from cudamaster.models.protocol import Reply, Request, Usage

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.I)
_SECRET_TEXT = re.compile(r"\b(?:sk|pk|gsk|xai|hf)[-_][\w*-]{6,}|(?<=Bearer )\S+")
_MISSING_KEY = re.compile(
    r"missing (?:\w+ )?(?:api key|credentials)|api_key client option must be set|unable to locate credentials", re.I
)

# What is worth another try: the server is busy, slow, or was gone for a moment.
_PASSING = ("RateLimitError", "Timeout", "ServiceUnavailableError", "InternalServerError", "BadGatewayError",
            "APIConnectionError")  # fmt: skip


class LiteLLMModel:
    """One model under its LiteLLM name, e.g. "openai/o4-mini" or, with `base_url`, a server of one's own.

    A call is tried 1 + `retries` times, with pauses of 1, 2, 4 ... seconds between.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        *,
        timeout_s: float = 600.0,
        retries: int = 3,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if base_url is not None and "@" in urlsplit(base_url).netloc:
            raise UsageError(
                "The base URL has a user name or password in it.",
                "Take it out, and give the key in the environment, e.g. OPENAI_API_KEY.",
            )
        self._name = name
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._retries = retries
        self._sleep = sleep

    @property
    def name(self) -> str:
        """Name as the user gave it."""
        return self._name

    def ask(self, request: Request) -> Reply:
        """Answer one request.

        Raises ModelError with model, reason and fix when there is no answer: unreachable host, missing or
        refused key, unknown model, prompt too long, or a limit that outlasts the retries.
        """
        litellm = _imported()
        started = time.monotonic()
        response = self._complete(litellm, request)
        seconds = time.monotonic() - started
        prompt, completion = _tokens(response)
        return Reply(
            # A lone surrogate cannot be written to a file or hashed.
            text=(_text(response) or "").encode("utf-8", "replace").decode(),
            model=self._name,
            usage=Usage(prompt, completion, self._dollars(litellm, response, prompt, completion), seconds),
        )

    def _complete(self, litellm: Any, request: Request) -> Any:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        for attempt in range(self._retries + 1):
            try:
                return litellm.completion(
                    model=self._name,
                    messages=messages,
                    base_url=self._base_url,
                    timeout=self._timeout_s,
                    num_retries=0,
                    max_retries=0,
                )
            except Exception as error:
                # LiteLLM maps providers' errors to classes of its own, but not all of them: anything that it
                # raises is an answer that cannot be had.
                kind = type(error).__name__
                if kind not in _PASSING or attempt == self._retries or _is_missing_key(error):
                    raise _model_error(litellm, self._name, self._base_url, kind, error) from None
            self._sleep(2.0**attempt)
        raise AssertionError("unreachable")

    def _dollars(self, litellm: Any, response: Any, prompt: int | None, completion: int | None) -> float | None:
        """Price of a call, None where tokens or price are unknown.

        A server at an address of one's own may use any name, so the list price of that name is not its price.
        A listed price of zero stands for "not known" as often as for "free", and is taken as unknown.
        """
        if prompt is None or completion is None or self._base_url is not None:
            return None
        listed: Mapping[str, Any] = {}
        for known in (self._name, self._name.split("/", 1)[-1]):
            listed = listed or litellm.model_cost.get(known, {})
        if not (listed.get("input_cost_per_token") or listed.get("output_cost_per_token")):
            return None
        try:
            return float(litellm.completion_cost(completion_response=response, model=self._name)) or None
        except Exception:
            return None


def _imported() -> Any:
    """The litellm module, quiet and offline: no price list, no .env file, no telemetry, no chatter."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = True
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm


def _text(response: Any) -> str | None:
    try:
        content = response.choices[0].message.content
    except (AttributeError, IndexError, TypeError):
        return None
    return content if isinstance(content, str) else None


def _tokens(response: Any) -> tuple[int | None, int | None]:
    # LiteLLM fills in zeros where a server tells nothing; no call has an empty prompt.
    usage = getattr(response, "usage", None)
    prompt = getattr(usage, "prompt_tokens", None) or None
    completion = getattr(usage, "completion_tokens", None)
    return (prompt, completion) if prompt is not None else (None, None)


def _model_error(litellm: Any, name: str, base_url: str | None, kind: str, error: Exception) -> ModelError:
    where = f" at {base_url}" if base_url else ""
    said = _without_secrets(str(error))
    if _is_missing_key(error) or kind in ("AuthenticationError", "PermissionDeniedError"):
        why = "no key was given" if _is_missing_key(error) else "the key was refused"
        fix = f"Set the provider's key in the environment: {_key_names(litellm, name)}."
        if base_url:
            fix += " A server that asks for no key takes any value."
    elif kind == "RateLimitError":
        why, fix = "the rate limit outlasted all retries", "Wait, or use another model; --resume goes on."
    elif kind == "Timeout":
        why, fix = "it did not answer in time", "Check the server, then go on with --resume."
    elif kind == "NotFoundError" or "LLM Provider NOT provided" in said:
        why = "no such model is known there"
        fix = "Give it as PROVIDER/NAME, e.g. openai/o4-mini; docs.litellm.ai lists the providers."
    elif kind == "ContextWindowExceededError":
        why, fix = "the prompt is too long for it", "Use a model with a larger context."
    elif _is_unreachable(error, said):
        why, fix = "it cannot be reached", "Check network and base URL, then go on with --resume."
    elif kind == "APIConnectionError":
        why, fix = "the call failed", "See the reason; docs.litellm.ai says what this provider needs."
    elif kind in _PASSING:
        why, fix = "the server keeps failing", "Try again later with --resume, or use another model."
    else:
        why, fix = f"the request was refused ({kind})", "Check the model's name and what it accepts."
    return ModelError(f"Model {name}{where}: {why} ({_first_line(said)}).", fix)


def _key_names(litellm: Any, name: str) -> str:
    """The environment variables that LiteLLM wants for a model and does not find."""
    try:
        missing = litellm.validate_environment(model=name)["missing_keys"]
        return ", ".join(missing) or f"{litellm.get_llm_provider(name)[1].upper()}_API_KEY"
    except Exception:
        return "docs.litellm.ai says its name"


def _is_missing_key(error: Exception) -> bool:
    return bool(_MISSING_KEY.search(str(error)))


def _is_unreachable(error: Exception, said: str) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionError) or type(seen).__name__ == "ConnectError":
            return True
        seen = seen.__cause__ or seen.__context__
    return "Connection error" in said or "Cannot connect" in said


def _without_secrets(text: str) -> str:
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= 6:
            text = text.replace(value, "***")
    return _SECRET_TEXT.sub("***", text)


def _first_line(text: str) -> str:
    line = re.sub(
        r"^litellm\.\w+: (?:\w+Error: )?", "", text.strip().splitlines()[0] if text.strip() else "no reason given"
    )
    return line if len(line) <= 300 else f"{line[:300]}..."
