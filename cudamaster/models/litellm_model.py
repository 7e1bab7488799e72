"""Any hosted or local model, through LiteLLM. The only module that imports litellm, at the first call.

LiteLLM itself reads keys from the environment. No module here holds one, and every value that looks like one is removed
from the errors and replies that are passed on.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import platform
import random
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from cudamaster.core.errors import CudaMasterError, ModelError
from cudamaster.core.keys import checked_url
from cudamaster.models.call_errors import key_error, may_pass, model_error, retry_after_s, where, why_again
from cudamaster.models.http_replies import MOST_BYTES, Endless, bound_replies, mend_usage
from cudamaster.models.in_time import in_time
from cudamaster.models.prefix import StablePrefix
from cudamaster.models.protocol import REPLY_SECONDS, Message, Reply, Request, Sampling
from cudamaster.models.reply_reading import is_priced, read_reply

# How the variables of providers begin that answer nobody without a key; those of the second are asked all the same
# where a server of one's own stands in for them.
_KEYS = {
    "openai": ("OPENAI_",),
    "anthropic": ("ANTHROPIC_",),
    "gemini": ("GEMINI_", "GOOGLE_"),
    "deepseek": ("DEEPSEEK_",),
    "groq": ("GROQ_",),
    "mistral": ("MISTRAL_",),
    "xai": ("XAI_",),
    "openrouter": ("OPENROUTER_", "OR_"),
}
_ELSEWHERE_WITHOUT = {"deepseek", "groq", "mistral", "xai", "openrouter"}
_LONGEST_PAUSE_S = 120.0
_NO_LIMIT_S = 1e6  # of a socket: LiteLLM takes none for ten minutes, and a system's clocks do not count much further
# Where Claude is served. It keeps what a prompt marks, and nothing else; others do it by themselves, or not at all.
_MARKED_BY = {"anthropic", "bedrock", "bedrock_converse", "vertex_ai", "openrouter"}


class LiteLLMModel:
    """One model under its LiteLLM name, e.g. "openai/o4-mini" or, with `base_url`, the user's own server.

    A call gets 1 + `retries` attempts, none of which begins later than `patience_s` after the first. Between attempts
    it waits as long as the server asks, otherwise 1, 2, 4 ... seconds plus up to half as much at random, so that
    searches that hit a limit together do not hit it together again; never longer than two minutes. `before_pause` gets
    each pause and its reason, and `while_asking` is called during an attempt. Both may raise, which ends the call.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        sampling: Sampling | None = None,
        *,
        timeout_s: float | None = REPLY_SECONDS,
        retries: int = 5,
        patience_s: float = 900.0,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`timeout_s` is for the whole reply of one attempt; None for no limit. Raises as `checked_url` does."""
        self.before_pause: Callable[[float, str], None] | None = None
        self.while_asking: Callable[[], None] | None = None
        self._name = name
        self._base_url = checked_url(base_url)
        self._sampling = sampling or Sampling()
        self._timeout_s = timeout_s
        self._retries = retries
        self._patience_s = patience_s
        self._sleep = sleep
        self._chance = chance
        self._prefix = StablePrefix()
        self._options: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Name as the user gave it."""
        return self._name

    @property
    def known(self) -> bool:
        """Whether LiteLLM has a provider for the name. Does not look up which models a provider has.

        Imports LiteLLM; no server is reached.
        """
        litellm = _imported()
        provider, slash, model = self._name.partition("/")
        if slash and provider in litellm.provider_list:
            return bool(model)  # asking LiteLLM further would start the browser login of some providers
        try:
            litellm.get_llm_provider(self._name, api_base=self._base_url)
        except Exception:
            return False
        return True

    def must_have_key(self) -> None:
        """Raise ModelError if a call is certain to fail for lack of a key. Imports LiteLLM; contacts no server.

        That is if LiteLLM itself makes no call without one, and at a hosted provider's own address.
        """
        provider = self._name.partition("/")[0]
        if provider not in _KEYS and "/" not in self._name and self.known:
            provider = _imported().get_llm_provider(self._name, api_base=self._base_url)[1]
        beginnings = _KEYS.get(provider, ())
        given = [name for name, value in os.environ.items() if value and name.startswith(beginnings)]
        elsewhere = self._base_url is not None or any("BASE" in name for name in given)
        if not beginnings or (provider in _ELSEWHERE_WITHOUT and elsewhere):
            return
        if not any("KEY" in name or "TOKEN" in name for name in given):
            raise key_error(_imported(), self._name, self._base_url, "no key was given")

    def left_out(self) -> tuple[str, ...]:
        """The fields of its Sampling that were given and that this model does not take: they are not sent."""
        sent = self._sent(_imported())
        return tuple(option for option in self._given() if option not in sent)

    def ask(self, request: Request) -> Reply:
        """Answer one request.

        Raises ModelError with model, reason and fix when there is no answer: unreachable host, missing or
        refused key, unknown model, prompt too long, or a limit that outlasts the retries; and what `before_pause` and
        `while_asking` raise.
        """
        litellm = _imported()
        started = time.monotonic()
        response = self._complete(litellm, request)
        return read_reply(litellm, response, self._name, self._base_url, time.monotonic() - started)

    def _complete(self, litellm: Any, request: Request) -> Any:
        call = functools.partial(
            litellm.completion,
            model=self._name,
            messages=self._messages(litellm, request),
            base_url=self._base_url,
            timeout=min(self._timeout_s or _NO_LIMIT_S, _NO_LIMIT_S),
            num_retries=0,
            max_retries=0,
            drop_params=True,
            **self._sent(litellm),
        )
        started = time.monotonic()
        for attempt in range(self._retries + 1):
            try:
                return in_time(call, self._timeout_s, self.while_asking)
            except CudaMasterError:
                raise  # of `while_asking`
            except Endless:
                raise ModelError(
                    f"Model {self._name}{where(self._base_url)}: its reply goes on beyond {MOST_BYTES >> 20} MiB.",
                    "Check the server and the base URL, or use another model; --resume goes on.",
                ) from None
            except Exception as error:
                # LiteLLM maps many providers' errors to its own classes, but not all. Whatever it raises, there is no
                # answer.
                pause_s = self._pause_s(attempt, error)
                too_late = time.monotonic() - started + pause_s > self._patience_s
                if not may_pass(error) or attempt == self._retries or too_late:
                    raise model_error(litellm, self._name, self._base_url, error) from None
                why = why_again(self._name, self._base_url, error)
            if self.before_pause is not None:
                self.before_pause(pause_s, why)
            self._sleep(pause_s)
        raise AssertionError("unreachable")

    def _pause_s(self, attempt: int, error: Exception) -> float:
        asked_s = retry_after_s(error)
        pause_s = 2.0**attempt if asked_s is None else asked_s
        return min(pause_s * (1.0 + 0.5 * self._chance()), _LONGEST_PAUSE_S)

    def _given(self) -> dict[str, Any]:
        options = {
            "reasoning_effort": self._sampling.reasoning_effort,
            "temperature": self._sampling.temperature,
        }
        return {name: value for name, value in options.items() if value is not None}

    def _sent(self, litellm: Any) -> dict[str, Any]:
        """The given options that this model takes according to LiteLLM: all of them, otherwise one, otherwise none."""
        if self._options is None:
            given = self._given()
            choices = [given, *({name: value} for name, value in given.items() if len(given) > 1), {}]
            self._options = next(options for options in choices if _takes(litellm, self._name, options))
        return self._options

    def _messages(self, litellm: Any, request: Request) -> list[dict[str, Any]]:
        """The messages, with the stable beginning marked for a provider that caches what is marked."""
        stable = self._prefix.of(request)
        if not _is_marked(litellm, self._name):
            return [{"role": message.role, "content": message.content} for message in request.messages]
        first = next((message for message in request.messages if message.role == "user"), None)
        return [_marked(message, stable if message is first else "") for message in request.messages]

    @property
    def priced(self) -> bool:
        """Whether the price of its calls is known. Imports LiteLLM; contacts no server."""
        return is_priced(_imported(), self._name, self._base_url)


def _imported() -> Any:
    """The litellm module, quiet and offline: no price list, no .env file, no telemetry, no chatter."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    # The client of OpenAI's protocol looks up the processor's name. For that the standard library would start `uname`
    # with every key in its environment.
    vars(platform.uname()).setdefault("processor", platform.machine())
    # Its import makes 300,000 objects that stay. Looking for garbage among them takes a fifth of its time.
    collects = gc.isenabled()
    gc.disable()
    try:
        import litellm
    finally:
        if collects:
            gc.enable()
    # About a malformed reply, which then is an error, or is read all the same.
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)
    bound_replies()
    mend_usage()
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = False  # we leave out what a model does not take, and report it
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm


def _takes(litellm: Any, name: str, options: Mapping[str, Any]) -> bool:
    """Whether LiteLLM would send these options to a model; it sends options that it does not know."""
    if not options:
        return True
    try:
        model, provider, _, _ = litellm.get_llm_provider(name)
        litellm.utils.get_optional_params(model=model, custom_llm_provider=provider, drop_params=False, **options)
    except litellm.UnsupportedParamsError:
        return False
    except Exception:
        return True  # the call itself will say what is wrong
    return True


def _is_marked(litellm: Any, name: str) -> bool:
    try:
        return "claude" in name.lower() and litellm.get_llm_provider(name)[1] in _MARKED_BY
    except Exception:
        return False


def _marked(message: Message, stable: str) -> dict[str, Any]:
    """One message. The provider is to cache the system's whole text, and `stable` at the beginning of a user's."""
    if message.role == "system":
        stable = message.content
    if not stable:
        return {"role": message.role, "content": message.content}
    parts: list[dict[str, Any]] = [{"type": "text", "text": stable, "cache_control": {"type": "ephemeral"}}]
    if rest := message.content.removeprefix(stable):
        parts.append({"type": "text", "text": rest})
    return {"role": message.role, "content": parts}
