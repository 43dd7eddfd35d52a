"""The options of a run that concern models: of the agent, its recording, its simulated user; and its bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from evaldesk.errors import UsageError
from evaldesk.model.evalset import JsonObject
from evaldesk.run_options import BY_NAME, MODEL_CALL, check_fields

ADK_JUDGE = "gemini-2.5-flash"
"""The judge of a criterion that names none, where the settings name none either."""
USER_VARIABLE = "EVALDESK_USER_MODEL"
"""The environment variable that names the model of a simulated user where the run names none."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The model options of a run or a chat for the agent's own calls; None leaves each to the agent.

    `base_url` is an OpenAI-compatible endpoint; it comes from the command line or the configuration file, never from a
    browser. `api_key_env` names the environment variable that holds its key: the key itself is nowhere in these values.
    `max_turns` bounds the model calls of one turn, `n_retries` the attempts after the first of each. `extra` is sent
    along in the body of each call (`top_k`, `chat_template_kwargs`). `price_in` and `price_out`, which come together,
    are US dollars for a million tokens, for models without a known price. Raises UsageError.
    """

    base_url: str | None = None
    api_key_env: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_turns: int | None = None
    n_retries: int | None = None
    extra: JsonObject = field(default_factory=dict)
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if self.base_url is not None:
            _check_url(self.base_url)
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            raise UsageError(
                "api_key_env is the name of an environment variable, such as OPENAI_API_KEY, never the key itself",
                field="api_key_env",
            )
        check_fields("model_options", self, MODEL_CALL)
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("say both price_in and price_out, in US dollars for a million tokens", field="price_in")

    @property
    def prices(self) -> tuple[float, float] | None:
        """`price_in` and `price_out`; None where they are not said."""
        return None if self.price_in is None or self.price_out is None else (self.price_in, self.price_out)

    def __or__(self, other: ModelOptions) -> ModelOptions:
        """These options, with those of `other` where it says something."""
        given = {name: value for name in _NAMES if (value := getattr(other, name)) is not None}
        mine = {name: getattr(self, name) for name in _NAMES}
        return ModelOptions(**{**mine, **given}, extra={**self.extra, **other.extra})


_NAMES = tuple(option.name for option in MODEL_CALL if option.name != "extra")


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


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"base_url {url!r}: {error}", field="base_url") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"base_url must look like http://127.0.0.1:8000/v1, not {url[:200]!r}", field="base_url")
    if parts.username or parts.password or parts.query:
        raise UsageError(
            "base_url must not carry a name, a password or a query; name the key's variable instead", field="base_url"
        )


RecordingMode: TypeAlias = Literal["off", "record", "replay", "auto"]
MODES: tuple[RecordingMode, ...] = ("off", "record", "replay", "auto")


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

    `model` is any LiteLLM name, reached as `options` say; empty leaves it to the desk's default. `max_turns` bounds
    the messages of the user, None without a bound. `instructions` replaces our own wording: it must hold
    `{{ conversation_plan }}` and `{{ stop_signal }}`, and may hold `{{ persona }}`. Raises UsageError.
    """

    model: str = ""
    options: ModelOptions = field(default_factory=ModelOptions)
    max_turns: int | None = 20
    stop_signal: str = "</finished>"
    instructions: str = ""

    def __post_init__(self) -> None:
        BY_NAME["user_max_turns"].checked(self.max_turns, "max_turns of the simulated user")
        if not self.stop_signal.strip():
            raise UsageError("the stop signal of the simulated user must not be empty", field="user")
        missing = [name for name in ("conversation_plan", "stop_signal") if not _is_in(name, self.instructions)]
        if self.instructions and missing:
            raise UsageError(f"the instructions of the simulated user lack {{{{ {missing[0]} }}}}", field="user")


def _is_in(name: str, text: str) -> bool:
    return f"{{{{{name}}}}}" in text.replace(" ", "")
