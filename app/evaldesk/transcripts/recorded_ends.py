"""How a trial of another tool ended: by the agent itself, which is scored, or by an accident, which is an error.

The table of docs/formats.md is this one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from evaldesk.model import ErrorRecord, StopReason

BOUND_TEXTS: Mapping[StopReason, re.Pattern[str]] = {
    "max_iterations": re.compile(r"max(imum)?[_ ]?(number of )?(iterations?|turns|steps)\b|MaxIterations", re.I),
    "stuck": re.compile(r"stuck[_ ]?in[_ ]?(a[_ ]?)?loop|\bgot stuck\b", re.I),
    "context_window": re.compile(r"context[_ ]?(window|length)|maximum context|prompt is too long", re.I),
    "budget": re.compile(r"max(imum)?[_ ]budget", re.I),
    "content_filter": re.compile(r"content[_ ]?(filter|policy|management policy)", re.I),
}
"""How the text of an error names a bound that the agent itself ran into, by the stop reason."""


MESSAGE_LIMIT = 2_000
"""Characters of the message of another tool that are stored with a trial; its trace is stored whole."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The words by which a format tells how a trial ended, under `key`.

    With `is_text` it is free text: an error, unless it names a bound of the agent.
    """

    key: str
    scored_keys: tuple[str, ...] = ()
    errored: tuple[str, ...] = ()
    is_text: bool = False


ENDS: Mapping[str, tuple[Ends, ...]] = {
    "openhands": (Ends("error", is_text=True),),
    "openhands-log": (Ends("ConversationErrorEvent", is_text=True),),
    "tau-bench": (Ends("info.error", is_text=True),),
    "tau2-results": (
        Ends(
            "termination_reason",
            (
                *("agent_stop", "user_stop", "max_steps", "timeout", "too_many_errors", "agent_error"),
                "context_window_exceeded",
            ),
            ("infrastructure_error", "unexpected_error", "user_error"),
        ),
    ),
    "inspect": (
        Ends("limit.type", ("context", "time", "working", "message", "turn", "token", "cost", "custom"), ("operator",)),
        Ends("error", is_text=True),
    ),
    "promptfoo": (Ends("error", is_text=True),),
    "osmosis-results": (Ends("error", is_text=True), Ends("error_type", is_text=True)),
    "swe-agent": (
        Ends(
            "info.exit_status",
            (
                *("submitted", "exit_cost", "exit_context", "exit_format", "exit_command_timeout"),
                "exit_total_execution_time",
            ),
            ("exit_api", "exit_command", "exit_environment_error", "exit_error", "early_exit", "skipped"),
        ),
    ),
}
"""By the name of the format. The other formats of runs do not tell how a trial ended."""


def bound_of(text: str) -> StopReason | None:
    """The bound of the agent that the text of an error names; None for an accident."""
    return next((reason for reason, words in BOUND_TEXTS.items() if words.search(text)), None)


def is_accident(format_name: str, end: str) -> bool:
    """Whether a trial that ended with this word was broken off by something that is not the agent."""
    return any(end in ends.errored for ends in ENDS[format_name])


def recorded_error(message: object, trace: str = "") -> ErrorRecord:
    """The error of a trial that another tool recorded."""
    return ErrorRecord("recorded", str(message)[:MESSAGE_LIMIT], trace)
