"""The options of a run that concern models: of the agent, its recording, its simulated user; and its bounds."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from evaldesk.errors import TEXT_LIMIT, UsageError
from evaldesk.model.evalset import JsonObject
from evaldesk.run_options import BY_NAME, MODEL_CALL, check_fields

ADK_JUDGE = "gemini-2.5-flash"
"""The judge of a criterion that names none, where the settings name none either."""
USER_VARIABLE = "EVALDESK_USER_MODEL"
"""The environment variable that names the model of a simulated user where the run names none."""
LINK_LOCAL_VARIABLE = "EVALDESK_LINK_LOCAL"
"""The environment variable that allows link-local addresses when it is "1"."""
_METADATA = {"metadata", "metadata.google.internal", "instance-data", "fd00:ec2::254"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The model options of a run or a chat for the agent's own calls; None leaves each to the agent.

    `base_url` is an OpenAI-compatible endpoint; it comes from the command line or the configuration file, never from a
    browser. `api_key_env` names the environment variable that holds its key: the key itself is nowhere in these values.
    `max_turns` bounds the model calls of one turn, `n_retries` the attempts after the first of each, `rpm` and `tpm`
    the requests and tokens of each model in a minute, over all runs of this user. `faults` are the shares of the calls
    that fail in each way, on purpose. `live`: an agent of google-adk is played over a live connection, where a turn has
    `live_timeout_s`. `extra` is sent along in the body of
    each call (`top_k`, `chat_template_kwargs`), and replaces none of its `OWN_FIELDS`.
    `instruction` is that of the agent in place of its own, `instructions` those of agents of its tree by their names.
    `price_in` and `price_out`, which come together, are US dollars for a
    million tokens, for models without a known price. Raises UsageError.
    """

    base_url: str | None = None
    api_key_env: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    max_turns: int | None = None
    n_retries: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    live: bool = False
    live_timeout_s: float | None = None
    faults: tuple[tuple[str, float], ...] | None = None
    extra: JsonObject = field(default_factory=dict)
    price_in: float | None = None
    price_out: float | None = None
    instruction: str | None = None
    instructions: JsonObject = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.base_url is not None:
            check_address(self.base_url, "base_url", "http://127.0.0.1:8000/v1")
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            raise UsageError(
                "api_key_env is the name of an environment variable, such as OPENAI_API_KEY, never the key itself",
                field="api_key_env",
            )
        check_fields("model_options", self, MODEL_CALL)
        for name, reason in OWN_FIELDS.items():
            if name in self.extra:
                raise UsageError(
                    f"extra.{name} would replace what Evaldesk sends: {reason}; leave it out", field="extra"
                )
        if self.instruction is not None and not self.instruction.strip():
            raise UsageError("instruction is empty; leave it out to keep the agent's own", field="instruction")
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("say both price_in and price_out, in US dollars for a million tokens", field="price_in")

    def instruction_of(self, name: str, *, is_root: bool = False) -> str | None:
        """The instruction of the agent of that name, in place of its own; None leaves that."""
        text = self.instructions.get(name)
        if isinstance(text, str):
            return text
        return self.instruction if is_root else None

    @property
    def prices(self) -> tuple[float, float] | None:
        """`price_in` and `price_out`; None where they are not said."""
        return None if self.price_in is None or self.price_out is None else (self.price_in, self.price_out)

    def __or__(self, other: ModelOptions) -> ModelOptions:
        """These options, with those of `other` where it says something."""
        overrides = {name: value for name in _NAMES if (value := getattr(other, name)) is not None}
        mine = {name: getattr(self, name) for name in _NAMES}
        return ModelOptions(
            **{**mine, **overrides},
            extra={**self.extra, **other.extra},
            instructions={**self.instructions, **other.instructions},
        )


OWN_FIELDS = {
    "model": "the model is named by the run",
    "messages": "the messages are those of the conversation",
    "tools": "the tools are those of the agent",
    "stream": "whether a call streams is for the reader of its answer",
}
_NAMES = tuple(option.name for option in MODEL_CALL if option.kind != "object")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one trial, times in seconds; None where only the bound around it counts.

    A turn that reaches its bound ends the trial, a tool that does gives its agent an error to read, and a judge
    that does leaves its metric with an error. `memory_mib` bounds each process of the trial, `processes` how many the
    agent may have beside its own at once; both need a process for each trial.
    """

    trial_timeout_s: float = 120.0
    turn_timeout_s: float | None = None
    tool_timeout_s: float | None = None
    judge_timeout_s: float | None = None
    memory_mib: int | None = None
    processes: int | None = None


def check_address(url: str, field: str, like: str) -> SplitResult:
    """The parts of the address of a model endpoint or of an agent; `like` is an example of a good one.

    A link-local host is refused unless LINK_LOCAL_VARIABLE is "1": the credentials of a cloud machine are served there,
    and an address in a file can ask for them. Raises UsageError.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{field} {url[:TEXT_LIMIT]!r} is not an address: {error}", field=field) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"{field} must look like {like}, not {url[:TEXT_LIMIT]!r}", field=field)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            f"{field} must not carry a name, a password or a query; name the key's variable instead", field=field
        )
    if _is_link_local(parts.hostname) and os.environ.get(LINK_LOCAL_VARIABLE) != "1":
        raise UsageError(
            f"{field} {url[:TEXT_LIMIT]!r} is link-local, where cloud machines serve their credentials; "
            f"use another address, or set {LINK_LOCAL_VARIABLE}=1 where such a host is meant",
            field=field,
        )
    return parts


def _is_link_local(host: str) -> bool:
    """Whether `host` is in 169.254/16 or fe80::/10, in any spelling that a resolver takes, or a metadata service."""
    name = host.rstrip(".").lower()
    if name in _METADATA:
        return True
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        try:
            address = ip_address(socket.inet_aton(name))
        except OSError:
            return False
    ipv4_address = address.ipv4_mapped or address.sixtofour if isinstance(address, IPv6Address) else None
    return (ipv4_address or address).is_link_local


RecordingMode: TypeAlias = Literal["off", "record", "replay", "auto"]


@dataclass(frozen=True, slots=True)
class Recording:
    """`record` asks and keeps the answers, `replay` never asks, `auto` asks only for answers that are not recorded yet.

    `folder` is where the answers are; the desk fills it. `tools` says whether tool calls are recorded as well.
    """

    mode: RecordingMode = "off"
    folder: str = ""
    tools: bool = True

    @property
    def may_replay(self) -> bool:
        """Whether answers of the run may come from a recording."""
        return self.mode in {"replay", "auto"}


UserStop: TypeAlias = Literal[
    "user_satisfied", "user_gave_up", "user_out_of_scope", "user_transferred", "user_cap", "user_error"
]


@dataclass(frozen=True, slots=True)
class UserConfig:
    """The simulated user of a run. It comes from the command line or the configuration file, never from a browser.

    `is_spoken`: it would speak, which is not played yet. A case may name one of `models` for its own user.

    `model` is any LiteLLM name, reached as `options` say; empty leaves it to the desk's default. `max_turns` bounds
    the messages of the user, None without a bound. `instructions` replaces our own wording: it must hold
    `{{ conversation_plan }}` and `{{ stop_signal }}`, and may hold `{{ persona }}`. Raises UsageError.
    """

    model: str = ""
    options: ModelOptions = field(default_factory=ModelOptions)
    max_turns: int | None = 20
    stop_signal: str = "</finished>"
    instructions: str = ""
    is_spoken: bool = False
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        BY_NAME["user_max_turns"].check(self.max_turns, "max_turns of the simulated user")
        if not self.stop_signal.strip():
            raise UsageError("the stop signal of the simulated user must not be empty", field="user")
        missing_names = [name for name in ("conversation_plan", "stop_signal") if not _is_in(name, self.instructions)]
        if self.instructions and missing_names:
            raise UsageError(f"the instructions of the simulated user lack {{{{ {missing_names[0]} }}}}", field="user")


def _is_in(name: str, text: str) -> bool:
    return f"{{{{{name}}}}}" in text.replace(" ", "")
