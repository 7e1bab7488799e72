"""Why a call through LiteLLM failed, in words; whether to make it again, and when."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Iterator
from typing import Any

from cudamaster.core.errors import ModelError
from cudamaster.core.keys import message_without_keys
from cudamaster.models.in_time import OutOfTime

NAME_IT = "Give it as PROVIDER/NAME, e.g. openai/o4-mini; docs.litellm.ai lists the providers."
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
# Providers' codes for an account without money and for a limit that passes. Their prose is much the same for both.
_NO_QUOTA, _LIMITED = "insufficient_quota", "rate_limit_exceeded"


def why_again(name: str, base_url: str | None, error: Exception) -> str:
    """Why a call is made again, where another attempt may help."""
    what = f"{name}{where(base_url)} cannot be reached" if _is_unreachable(error) else _PASSING[_kind(error)]
    return f"{what} ({_first_line(_said(error))})"


def model_error(litellm: Any, name: str, base_url: str | None, error: Exception) -> ModelError:
    """The error for a user when a call is not made again: model, reason and fix."""
    kind, said = _kind(error), _said(error)
    if _is_missing_key(error) or kind == "AuthenticationError":
        why = "no key was given" if _is_missing_key(error) else "the key was refused"
        return key_error(litellm, name, base_url, f"{why} ({_first_line(said)})")
    if kind == "PermissionDeniedError":
        why = "the key has no access there"
        fix = f"Name a model that it may use, or set another in {_key_names(litellm, name)}."
    elif _is_without_quota(error):
        why, fix = "the account's quota is used up", "Add credit there, or use another model; --resume goes on."
    elif kind == "RateLimitError":
        why, fix = "the rate limit outlasted all retries", "Wait, or use another model; --resume goes on."
    elif kind == "Timeout":
        why = _PASSING[kind]
        fix = "Check the server, or give it longer with --model-timeout, and go on with --resume."
    elif kind == "NotFoundError" or "LLM Provider NOT provided" in said:
        why, fix = "no such model is known there", NAME_IT
    elif kind == "ContextWindowExceededError":
        why, fix = "the prompt is too long for it", "Use a model with a larger context."
    elif _is_unreachable(error):
        why, fix = "it cannot be reached", f"Check network and base URL{_by_proxy(base_url)}, then go on with --resume."
    elif kind == "APIConnectionError":
        why, fix = _PASSING[kind], "See the reason; docs.litellm.ai says what this provider needs."
    elif kind == "NoReply":
        why, fix = _PASSING[kind], "Check that the base URL is that of an API, and go on with --resume."
    elif may_pass(error):
        why, fix = "the server keeps failing", "Try again later with --resume, or use another model."
    else:
        why, fix = f"the request was refused ({kind})", "Check the model's name and what it accepts."
    return ModelError(f"Model {name}{where(base_url)}: {why} ({_first_line(said)}).", fix)


def key_error(litellm: Any, name: str, base_url: str | None, why: str) -> ModelError:
    """The error for a key that is missing or refused, with the variables that may hold one."""
    fix = f"Set the provider's key in the environment: {_key_names(litellm, name)}."
    if base_url:
        fix += " A server that asks for no key takes any value."
    return ModelError(f"Model {name}{where(base_url)}: {why}.", fix)


def where(base_url: str | None) -> str:
    """What follows a model's name: the address of the user's own server, if there is one."""
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


def may_pass(error: Exception) -> bool:
    """Whether another attempt may help."""
    return _kind(error) in _PASSING and not _is_missing_key(error) and not _is_without_quota(error)


def _kind(error: Exception) -> str:
    """LiteLLM's name for what went wrong, or ours.

    LiteLLM has no class for some of a server's failures, such as 529 (overloaded) and the 5xx of some providers: they
    are recognised by their number alone.
    """
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
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    line = re.sub(r"^litellm\.\w+: (?:\w+Error: )?(?:\w+Exception - )?", "", line)
    # A reply that is not in OpenAI's form: LiteLLM's message is followed by its own traceback or objects.
    line = line.removesuffix(" Traceback (most recent call last):").partition(", Received response - <")[0]
    return line if len(line) <= 300 else f"{line[:300]}..."


def retry_after_s(error: Exception) -> float | None:
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
