"""Any hosted or local model, through LiteLLM. The only module that imports litellm, at the first call.

LiteLLM itself reads keys from the environment. This module never holds one, and removes every value that looks like one
from the errors and replies that it passes on.
"""

from __future__ import annotations

import email.utils
import functools
import logging
import os
import platform
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from cudamaster.core.errors import CudaMasterError, ModelError
from cudamaster.core.keys import checked_url, message_without_keys, reply_without_keys
from cudamaster.models.in_time import OutOfTime, in_time
from cudamaster.models.prefix import StablePrefix
from cudamaster.models.protocol import REPLY_SECONDS, Message, Reply, Request, Sampling, Usage

_MISSING_KEY = re.compile(
    r"missing (?:\w+ )?(?:api key|credentials)|api_key client option must be set|unable to locate credentials", re.I
)

# Messages of LiteLLM and of the JSON reader for something that is not a reply.
_NO_REPLY = re.compile(
    r"Expecting value: line|invalid response from LLM endpoint|provider returned .*(?:no 'choices'|'choices' that is)"
    r"|Invalid response object|recursion depth exceeded while decoding"
)
# Messages of the HTTP client for errors on a connection that was established.
_NO_HTTP = {"RemoteProtocolError", "TooManyRedirects", "UnsupportedProtocol"}
# LiteLLM's errors that do not say the cause: of a connection, and of an error that came with status 200.
_WORDLESS = re.compile(r"(?:Exception -|Connection error\.)\s*$")

# Errors worth another attempt: the server is busy, slow, or was gone for a moment.
_UNREACHABLE = "it cannot be reached"
_FAILS = "its server fails"
_PASSING = {
    "RateLimitError": "its rate limit is reached",
    "Timeout": "it did not answer in time",
    "ServiceUnavailableError": _FAILS,
    "InternalServerError": _FAILS,
    "BadGatewayError": _FAILS,
    "APIConnectionError": "the call failed",
    "NoReply": "what came is no reply",
}
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
# Providers' words for an account without money, of which the like is said in prose of limits that pass, too, and for
# such a limit.
_NO_QUOTA, _LIMITED = "insufficient_quota", "rate_limit_exceeded"

NAME_IT = "Give it as PROVIDER/NAME, e.g. openai/o4-mini; docs.litellm.ai lists the providers."
_CUT_BY = {
    "length": "the model came to its limit of tokens (finish_reason: length)",
    "content_filter": "the provider's filter stopped it (finish_reason: content_filter)",
}
_LONGEST_PAUSE_S = 120.0
_NO_LIMIT_S = 1e6  # of a socket: LiteLLM takes none for ten minutes, and a system's clocks do not count much further
_MOST_BYTES = 128 << 20  # of a reply, hundreds of times what a model writes
_MOST_TOKENS = 10**12  # of a call; a larger figure of a server is no number of tokens
# Where Claude is served. It keeps what a prompt marks, and nothing else; others do it by themselves, or not at all.
_MARKED_BY = {"anthropic", "bedrock", "bedrock_converse", "vertex_ai", "openrouter"}


class _Endless(BaseException):
    """A reply is longer than any model writes. No `except Exception` mistakes this for a failed connection."""


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
            raise _key_error(_imported(), self._name, self._base_url, "no key was given")

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
        seconds = time.monotonic() - started
        prompt, completion = _tokens(response)
        return Reply(
            # A lone surrogate cannot be written to a file or hashed.
            text=reply_without_keys((_text(response) or "").encode("utf-8", "replace").decode()),
            model=self._name,
            usage=Usage(
                prompt_tokens=prompt,
                completion_tokens=completion,
                dollars=self._dollars(litellm, response, prompt, completion),
                seconds=seconds,
                cached_tokens=_cached_tokens(response, prompt),
            ),
            cut=_cut(response),
        )

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
            except _Endless:
                raise ModelError(
                    f"Model {self._name}{_where(self._base_url)}: its reply goes on beyond {_MOST_BYTES >> 20} MiB.",
                    "Check the server and the base URL, or use another model; --resume goes on.",
                ) from None
            except Exception as error:
                # LiteLLM maps many providers' errors to its own classes, but not all. Whatever it raises, there is no
                # answer.
                pause_s = self._pause_s(attempt, error)
                too_late = time.monotonic() - started + pause_s > self._patience_s
                if not _may_pass(error) or attempt == self._retries or too_late:
                    raise _model_error(litellm, self._name, self._base_url, error) from None
                out_of_reach = f"{self._name}{_where(self._base_url)} cannot be reached"
                what = out_of_reach if _is_unreachable(error) else _PASSING[_kind(error)]
                why = f"{what} ({_first_line(_said(error))})"
            if self.before_pause is not None:
                self.before_pause(pause_s, why)
            self._sleep(pause_s)
        raise AssertionError("unreachable")

    def _pause_s(self, attempt: int, error: Exception) -> float:
        asked_s = _retry_after_s(error)
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

    def _dollars(self, litellm: Any, response: Any, prompt: int | None, completion: int | None) -> float | None:
        """Price of a call, None if tokens or price are unknown; cached tokens have their own price.

        The user's own server may use any name, so the list price of that name is not its price.
        A listed price of zero stands for "not known" as often as for "free", and is taken as unknown.
        """
        if prompt is None or completion is None or not self._is_listed(litellm):
            return None
        try:
            return float(litellm.completion_cost(completion_response=response, model=self._name)) or None
        except Exception:
            return None

    @property
    def priced(self) -> bool:
        """Whether the price of its calls is known. Imports LiteLLM; contacts no server."""
        return self._is_listed(_imported())

    def _is_listed(self, litellm: Any) -> bool:
        provider, _, model = self._name.partition("/")
        listed: Mapping[str, Any] = litellm.model_cost.get(self._name, {})
        if not listed and model:
            # The same name at another provider, hosted_vllm/gpt-4o for one, is another model with a price of its own.
            found = litellm.model_cost.get(model, {})
            listed = found if str(found.get("litellm_provider")).startswith(provider) else {}
        price = listed.get("input_cost_per_token") or listed.get("output_cost_per_token")
        return bool(price) and self._base_url is None


def _imported() -> Any:
    """The litellm module, quiet and offline: no price list, no .env file, no telemetry, no chatter."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    # The client of OpenAI's protocol looks up the processor's name. For that the standard library would start `uname`
    # with every key in its environment.
    vars(platform.uname()).setdefault("processor", platform.machine())
    import litellm

    # About a malformed reply, which then is an error, or is read all the same.
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)
    _bound_replies()
    _mend_usage()
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = False  # we leave out what a model does not take, and report it
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm


@functools.cache
def _bound_replies() -> None:
    """Make the HTTP client, which reads whole replies into memory, end one that could fill it."""
    import httpx

    read = httpx.Response.iter_bytes

    def bounded(response: httpx.Response, chunk_size: int | None = None) -> Iterator[bytes]:
        length = 0
        for chunk in read(response, chunk_size):
            length += len(chunk)
            if length > _MOST_BYTES:
                raise _Endless
            yield chunk

    setattr(httpx.Response, "iter_bytes", bounded)  # noqa: B010


@functools.cache
def _mend_usage() -> None:
    """Make the HTTP client keep only what can be counted of a reply's `usage`.

    LiteLLM raises for a token count that is not a number. The text beside it was paid for, and would be paid for again.
    """
    import httpx

    read = httpx.Response.json

    def mended(response: httpx.Response, **options: Any) -> Any:
        reply = read(response, **options)
        if isinstance(reply, dict) and reply.get("usage") is not None:
            reply["usage"] = _countable(reply["usage"])
        return reply

    setattr(httpx.Response, "json", mended)  # noqa: B010


def _countable(usage: object) -> dict[str, object]:
    """A `usage` with None for each token count that is not a whole number; empty if it is not an object at all."""
    if not isinstance(usage, dict):
        return {}
    return {
        name: _whole(value) if name.endswith("_tokens") else _countable(value) if isinstance(value, dict) else value
        for name, value in usage.items()
    }


def _whole(value: Any) -> int | None:
    try:
        return int(value) if float(value).is_integer() else None
    except (TypeError, ValueError, OverflowError):
        return None


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


def _retry_after_s(error: Exception) -> float | None:
    """Seconds that the server asks to wait, given as a number or a date; None if it asks for none.

    Also None for zero or less, as a date gives if a clock is wrong: all attempts would be over in a moment.
    """
    headers = getattr(error, "litellm_response_headers", None) or getattr(
        getattr(error, "response", None), "headers", None
    )
    header = {str(name).lower(): str(value) for name, value in dict(headers or {}).items()}.get("retry-after", "")
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return seconds if 0 < seconds < float("inf") else None


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


def _model_error(litellm: Any, name: str, base_url: str | None, error: Exception) -> ModelError:
    kind = _kind(error)
    said = _said(error)
    if _is_missing_key(error) or kind == "AuthenticationError":
        why = "no key was given" if _is_missing_key(error) else "the key was refused"
        return _key_error(litellm, name, base_url, f"{why} ({_first_line(said)})")
    if kind == "PermissionDeniedError":
        why = "the key has no access there"
        fix = f"Name a model that it may use, or set another in {_key_names(litellm, name)}."
    elif _is_without_quota(error):
        why, fix = "the account's quota is used up", "Add credit there, or use another model; --resume goes on."
    elif kind == "RateLimitError":
        why, fix = "the rate limit outlasted all retries", "Wait, or use another model; --resume goes on."
    elif kind == "Timeout":
        why = "it did not answer in time"
        fix = "Check the server, or give it longer with --model-timeout, and go on with --resume."
    elif kind == "NotFoundError" or "LLM Provider NOT provided" in said:
        why = "no such model is known there"
        fix = NAME_IT
    elif kind == "ContextWindowExceededError":
        why, fix = "the prompt is too long for it", "Use a model with a larger context."
    elif _is_unreachable(error):
        why, fix = _UNREACHABLE, f"Check network and base URL{_by_proxy(base_url)}, then go on with --resume."
    elif kind == "APIConnectionError":
        why, fix = "the call failed", "See the reason; docs.litellm.ai says what this provider needs."
    elif kind == "NoReply":
        why, fix = "what came is no reply", "Check that the base URL is that of an API, and go on with --resume."
    elif _may_pass(error):
        why, fix = "the server keeps failing", "Try again later with --resume, or use another model."
    else:
        why, fix = f"the request was refused ({kind})", "Check the model's name and what it accepts."
    return ModelError(f"Model {name}{_where(base_url)}: {why} ({_first_line(said)}).", fix)


def _key_error(litellm: Any, name: str, base_url: str | None, why: str) -> ModelError:
    fix = f"Set the provider's key in the environment: {_key_names(litellm, name)}."
    if base_url:
        fix += " A server that asks for no key takes any value."
    return ModelError(f"Model {name}{_where(base_url)}: {why}.", fix)


def _where(base_url: str | None) -> str:
    return f" at {base_url}" if base_url else ""


def _by_proxy(base_url: str | None) -> str:
    """The environment's proxies, one of which a call uses; empty if it uses none.

    A provider's own address is reached by https. A proxy's address may contain a password, so it is not shown.
    """
    import urllib.parse
    import urllib.request  # imports sockets, which a replay never needs

    address = urllib.parse.urlsplit(base_url or "https://")
    proxies = urllib.request.getproxies_environment()
    by = next((name for name in (address.scheme, "all") if name in proxies), None)
    host = address.netloc.rpartition("@")[2]
    if by is None or (host and urllib.request.proxy_bypass(host, proxies)):
        return ""
    return f", and the proxy that the environment sets in {by.upper()}_PROXY (NO_PROXY names hosts to reach without)"


def _may_pass(error: Exception) -> bool:
    """Whether another attempt may help. LiteLLM has no class for some of a server's failures.

    Examples are 529 (overloaded) and the 5xx of some providers, which are recognised by their number alone.
    """
    return _kind(error) in _PASSING and not _is_missing_key(error) and not _is_without_quota(error)


def _kind(error: Exception) -> str:
    """LiteLLM's name for what went wrong."""
    kind, status = type(error).__name__, getattr(error, "status_code", None)
    if isinstance(error, OutOfTime):
        return "Timeout"
    if kind in ("APIError", "InternalServerError") and (status == 200 or _NO_REPLY.search(str(error))):
        return "NoReply"  # a proxy's page, say
    if any(type(each).__name__ in _NO_HTTP for each in _chain(error)):
        return "NoReply"
    if kind == "APIError" and status == _LIMITED:
        return "RateLimitError"
    if kind == "APIError" and status == 403:
        return "PermissionDeniedError"
    if kind == "APIError" and isinstance(status, int) and status >= 500:
        return "InternalServerError"
    return kind


def _is_without_quota(error: Exception) -> bool:
    """Whether an account is out of money. Some providers answer 402, OpenAI a rate limit with a code of its own."""
    status = getattr(error, "status_code", None)  # the code of an error that came with status 200
    return status in (402, _NO_QUOTA) or _NO_QUOTA in f"{error} {getattr(error, 'body', None)}"


def _key_names(litellm: Any, name: str) -> str:
    """The environment variables that LiteLLM wants for a model and does not find."""
    try:
        missing = litellm.validate_environment(model=name)["missing_keys"]
        return ", ".join(missing) or f"{litellm.get_llm_provider(name)[1].upper()}_API_KEY"
    except Exception:
        return "docs.litellm.ai says its name"


def _is_missing_key(error: Exception) -> bool:
    return bool(_MISSING_KEY.search(str(error)))


def _is_unreachable(error: Exception) -> bool:
    if _kind(error) == "NoReply":
        return False
    if any(isinstance(each, ConnectionError) or type(each).__name__ == "ConnectError" for each in _chain(error)):
        return True
    return "Connection error" in str(error) or "Cannot connect" in str(error)


def _chain(error: Exception) -> Iterator[BaseException]:
    """An error and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _said(error: Exception) -> str:
    """An error's message, without keys; its cause's message if LiteLLM's does not say the cause."""
    said = str(error)
    if _WORDLESS.search(said):
        messages = [str(getattr(each, "message", None) or each).strip() for each in _chain(error)]
        said = next((text for text in reversed(messages) if text), said)
    return message_without_keys(said)


def _first_line(text: str) -> str:
    line = re.sub(
        r"^litellm\.\w+: (?:\w+Error: )?(?:\w+Exception - )?",
        "",
        text.strip().splitlines()[0] if text.strip() else "no reason given",
    )
    # A reply that is not in OpenAI's form: LiteLLM's message is followed by its own traceback or objects.
    line = line.removesuffix(" Traceback (most recent call last):").partition(", Received response - <")[0]
    return line if len(line) <= 300 else f"{line[:300]}..."
