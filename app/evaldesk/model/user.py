"""The simulated user, where a case has a scenario instead of turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from evaldesk.errors import UsageError
from evaldesk.model.options import ModelOptions
from evaldesk.run_options import BY_NAME

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
