"""The failure of a model call, in one sentence with the next step, and whether a retry may help.

The classes and their meaning: stack.md section 3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from evaldesk.backports import UTC
from evaldesk.errors import NO_DOUBLE, NOT_RECORDED, PREFIX_DIVERGED, ModelError
from evaldesk.secrets import KEYS, provider_of, scrub

MAX_MESSAGE = 300
MAX_CHAIN = 10
CLIENT_SETUP = "client_setup"
_CLIENTS = ("openai", "litellm", "google.genai", "anthropic", "httpx", "aiohttp")

_PROVIDER_OF_CLIENT = {
    "openai": "openai",
    "anthropic": "anthropic",
    "groq": "groq",
    "google.genai": "gemini",
    "litellm": "openai",
}
_ABOUT_MODEL = re.compile(r"\bmodels?\b", re.I)
_NO_KEY = re.compile(
    r"missing credentials|missing key inputs|api_key must be set|api_key client option|no api key"
    r"|api key (?:is )?(?:missing|required)",
    re.I,
)
_NO_MODEL = re.compile(r"LLM Provider NOT provided|model_not_found|unknown model", re.I)
_NO_MONEY = re.compile(r"insufficient_quota|credit balance is too low|payment required", re.I)
_NO_NETWORK = re.compile(r"connect|disconnect|timed? ?out|connection (?:reset|aborted|closed)|name or service", re.I)
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context (?:length|limit)|longer than the (?:model's )?(?:maximum )?context"
    r"|exceed(?:s|ed)? (?:the )?(?:available |model's )?context",
    re.I,
)
_CONTENT_POLICY = re.compile(r"content_policy_violation|content_filter|content management policy", re.I)
_RETRY_DELAY = re.compile(r"""['"]retryDelay['"]:\s*['"](\d+(?:\.\d+)?)s['"]""")  # Google's, in the body of a 429
_LOCAL_CAUSES: Mapping[str, str] = {
    "ImportError": "a package of its client is missing beside the agent",
    "UnsupportedProtocol": "its address is not a valid URL",
    "InvalidURL": "its address is not a valid URL",
    "LocalProtocolError": "its request cannot be sent, as a key or header has characters that HTTP refuses",
    "SSLCertVerificationError": "the certificate of its address is not trusted on this machine",
}
"""Causes on this side of the connection that no retry removes, which clients report as a connection error."""
_OWN_KINDS = frozenset({"redirect", NO_DOUBLE, NOT_RECORDED, PREFIX_DIVERGED})
_LATE = frozenset({"Timeout", "TimeoutError", "TimeoutException", "APITimeoutError"})
_LOCAL_FAULT = re.compile(r"no module named|unexpected keyword|object has no attribute", re.I)


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A failed attempt. `is_fatal`: every trial will fail; `is_passing`: transient, a retry may help."""

    kind: str
    sentence: str
    is_fatal: bool = False
    is_passing: bool = False
    retry_after_s: float | None = None


def model_error(error: BaseException, model: str) -> ModelError | None:
    """The ModelError for the first exception of a provider's client in the chain of `error`; None without one."""
    for cause in _chain(error):
        if isinstance(cause, ModelError):
            return cause
        if type(cause).__module__.startswith(_CLIENTS) or _NO_KEY.search(str(cause)):
            failure = failure_of(cause, model)
            return ModelError(failure.sentence, kind=failure.kind, is_fatal=failure.is_fatal)
    return None


def refusal(error: BaseException) -> ModelFailure | None:
    """The failure of an agent's own provider client, if it is fatal for every trial; else None.

    Inside of an error of a framework only a client that can send no request is so.
    """
    for each in _chain(error):
        client = next((name for name in _PROVIDER_OF_CLIENT if type(each).__module__.startswith(name)), "")
        if not client:
            continue
        model = getattr(each, "model", None)
        failure = failure_of(each, model if isinstance(model, str) else f"{_PROVIDER_OF_CLIENT[client]}/…")
        # and not about a file, say, that is not there
        is_about_model = failure.kind != "unknown_model" or _ABOUT_MODEL.search(str(each))
        is_refused = failure.is_fatal and is_about_model and (each is error or failure.kind == CLIENT_SETUP)
        return failure if is_refused else None
    return None


def failure_of(error: BaseException, model: str) -> ModelFailure:
    """The ModelFailure for an exception of LiteLLM or a provider's client."""
    own_refusal = _own_refusal(error)
    if own_refusal:
        return ModelFailure(own_refusal.kind, f"{model}: {own_refusal}", is_fatal=own_refusal.is_fatal)
    local_cause = _local_cause(error)
    if local_cause:
        return local_cause(model)
    names = {kind.__name__ for kind in type(error).__mro__}
    status = _status(error)
    text = f"{getattr(error, 'body', None) or ''} {error}"
    message = _shown_message(error)
    fatal = _fatal(names, status, text, message, model, getattr(error, "key_name", ""))
    if fatal:
        return fatal
    passing = _transient_kind(names, status, text)
    if passing:
        should_not = _header(error, "x-should-retry") == "false"
        return ModelFailure(
            passing, f"{model}: {message}", is_passing=not should_not, retry_after_s=_retry_after_s(error)
        )
    if "ContextWindowExceededError" in names or _TOO_LONG.search(text):
        return ModelFailure("context_window", f"{model}: the conversation is longer than the model can read: {message}")
    if "ContentPolicyViolationError" in names or _CONTENT_POLICY.search(text):
        return ModelFailure("content_policy", f"{model}: the provider refuses this conversation: {message}")
    return ModelFailure("bad_request" if 400 <= status < 500 else "model", f"{model}: {message}")


def _local_cause(error: BaseException) -> Callable[[str], ModelFailure] | None:
    """The failure behind an error of a client that no request can avoid; None for other causes.

    A cause is followed as the client names it. What was handled when the error came is followed only from a client's
    own error: a call inside of `except ImportError` fails for a reason of its own.
    """
    each: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if each is None or _status(each):
            return None
        is_client = type(each).__module__.startswith(_CLIENTS)
        names = [kind.__name__ for kind in type(each).__mro__]
        words = next((_LOCAL_CAUSES[name] for name in names if name in _LOCAL_CAUSES), "")
        if words:
            message = scrub((str(each).strip().splitlines() or [type(each).__name__])[0], os.environ)[:MAX_MESSAGE]
            return lambda model: ModelFailure(CLIENT_SETUP, f"{model}: {words}: {message}", is_fatal=True)
        each = each.__cause__ or (each.__context__ if is_client else None)
    return None


def _fatal(names: set[str], status: int, text: str, message: str, model: str, key_name: str) -> ModelFailure | None:
    if _NO_MONEY.search(text) or status == 402:
        return ModelFailure("quota", f"{model}: the account has nothing left to spend: {message}", is_fatal=True)
    if status == 403 or "PermissionDeniedError" in names:
        sentence = f"{model}: the key is valid but may not use this model or address: {message}"
        return ModelFailure("permission", sentence, is_fatal=True)
    if "AuthenticationError" in names or status == 401 or _NO_KEY.search(text):
        sentence = f"{model}: no valid key; set {key_name or _key_names(model)} where Evaldesk is started: {message}"
        return ModelFailure("authentication", sentence, is_fatal=True)
    if "NotFoundError" in names or status == 404 or _NO_MODEL.search(text):
        sentence = f"{model}: no such model; name it as provider/model, openai/gpt-4o-mini or demo/dice say: {message}"
        return ModelFailure("unknown_model", sentence, is_fatal=True)
    return None


def _status(error: BaseException) -> int:
    """The HTTP status; Google's client calls it `code`."""
    statuses = (getattr(error, name, None) for name in ("status_code", "code"))
    return next((status for status in statuses if isinstance(status, int)), 0)


def _transient_kind(names: set[str], status: int, text: str) -> str | None:
    if names & _LATE or status == 408:
        return "timeout"
    if status == 429:
        return "rate_limit"
    if status == 200:  # an answer that says all is well and cannot be read: a gateway's page, a cut body
        return "broken_answer"
    if _LOCAL_FAULT.search(text) and "EndpointError" not in names:
        return None
    if "TransportError" in names or (_NO_NETWORK.search(text) and (status >= 500 or not status)):
        return "connection"
    if status >= 500 and "APIConnectionError" not in names:
        return "server_error"
    return None


def _shown_message(error: BaseException) -> str:
    """The provider's message, as one line without LiteLLM's own names and without secrets."""
    text = _unreachable(error) or _message(error) or str(error).strip() or type(error).__name__
    text = re.sub(r"^(?:litellm\.)?\w+(?:Error|Timeout)?: (?=\S)", "", text.splitlines()[0])
    text = re.sub(r"^\w*(?:Error|Exception):? (?:- )?", "", text)
    text = scrub(text, os.environ)
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"


def _message(error: BaseException) -> str:
    """The message in the body of the provider's answer, as parsed by OpenAI's client; empty without one."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, Mapping) else None
    return message.strip() if isinstance(message, str) else ""


def _unreachable(error: BaseException) -> str:
    """`cannot connect to 127.0.0.1:8000: Connection refused`, from the chain of the error; else empty."""
    for each in _chain(error):
        cause = getattr(each, "os_error", None)  # of aiohttp
        if isinstance(cause, OSError):
            message = os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror
            return f"cannot connect to {getattr(each, 'host', '')}:{getattr(each, 'port', '')}: {message}"
    return ""


def _own_refusal(error: BaseException) -> ModelError | None:
    """Our own ModelError (redirect, replay or double) behind a client's exception; None for other causes."""
    return next((e for e in _chain(error) if isinstance(e, ModelError) and e.kind in _OWN_KINDS), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, nearest first."""
    current: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _key_names(model: str) -> str:
    """The environment variables with the model's API key."""
    names = KEYS.get(provider_of(model))
    if names:
        return " or ".join(names)
    from evaldesk.llm.client import open_litellm

    with suppress(Exception):  # it knows nothing of some providers
        missing_keys = open_litellm().validate_environment(model=model)["missing_keys"]
        if missing_keys:
            return " or ".join(missing_keys)
    provider = model.partition("/")[0].upper() if "/" in model else "OPENAI"
    return f"{re.sub(r'[^A-Z0-9]+', '_', provider)}_API_KEY"


def _retry_after_s(error: BaseException) -> float | None:
    with suppress(TypeError, ValueError):
        return max(0.0, float(_header(error, "retry-after-ms") or "") / 1000)
    value = _header(error, "retry-after")
    with suppress(TypeError, ValueError):
        return max(0.0, float(value))
    with suppress(TypeError, ValueError):
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    delay = _RETRY_DELAY.search(str(error))
    return float(delay[1]) if delay else None


def _header(error: BaseException, name: str) -> str:
    """A header of the provider's answer; empty without it. LiteLLM stores headers on one of two attributes."""
    response: Any = getattr(error, "response", None)
    header_sources = (getattr(error, "litellm_response_headers", None), getattr(response, "headers", None))
    for headers in (*header_sources, getattr(error, "headers", None)):
        if isinstance(headers, Mapping) and headers.get(name):
            return str(headers[name])
    return ""
