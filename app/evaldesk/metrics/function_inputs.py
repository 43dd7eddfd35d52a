"""What a function of the user is called with, by keyword as Osmosis does. (reference/osmosis.md 1.3, 2)"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from evaldesk.metrics.function_loading import Function, Mode
from evaldesk.model import Case, Transcript
from evaldesk.model.chat import chat_messages

OWN_MARK = "$"
"""Keys of `extra` that start so are what a format keeps for itself."""


def arguments_of(
    mode: Mode, function: Function, transcript: Transcript, case: Case, *, is_osmosis: bool
) -> dict[str, Any]:
    """The arguments by name; those that the function does not take are left out, unless Osmosis would pass them."""
    row = row_of(case)
    truth = row["ground_truth"]
    messages = messages_of(transcript, row)
    if mode == "trial":
        own = {"transcript": transcript, "case": case, "state": deepcopy(dict(transcript.final_state))}
        return _taken(function, {**own, "messages": messages, "ground_truth": truth, "extra_info": row})
    if mode == "messages":
        found = {"messages": messages, "ground_truth": truth, "metadata": row}
    else:
        said = stale_solution(messages) if is_osmosis else solution(transcript)
        found = {"solution_str": said, "ground_truth": truth, "extra_info": row}
    return found if is_osmosis else _taken(function, found)


def row_of(case: Case) -> dict[str, Any]:
    """The row of an Osmosis data set that the case is: prompts, ground truth and every other column.

    What the case does not say is taken from its turns: the first query, and the last reference answer.
    """
    columns = {key: deepcopy(value) for key, value in case.extra.items() if not key.startswith(OWN_MARK)}
    references = [turn.expected.reference for turn in case.turns if turn.expected.reference is not None]
    said = {
        "system_prompt": "",
        "user_prompt": case.turns[0].query if case.turns else "",
        "ground_truth": references[-1] if references else "",
    }
    return {**said, **columns}


def messages_of(transcript: Transcript, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation as chat messages in OpenAI's shape, with the row's system prompt first where it has one."""
    system = [{"role": "system", "content": row["system_prompt"]}] if row["system_prompt"] else []
    return [*system, *(dict(message) for message in chat_messages(transcript.turns))]


def solution(transcript: Transcript) -> str:
    """The agent's answer in its last turn; empty when that turn has none."""
    return transcript.turns[-1].answer if transcript.turns else ""


def stale_solution(messages: list[dict[str, Any]]) -> str:
    """The last text of the agent wherever it stands, which is what Osmosis scores when a turn broke off."""
    texts = [message.get("content") for message in messages if message["role"] == "assistant"]
    return next((str(text) for text in reversed(texts) if text is not None), "")


def _taken(function: Function, arguments: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
