"""The facts of a case that the health of its eval set asks for."""

from __future__ import annotations

from typing import NamedTuple


class CaseFacts(NamedTuple):
    """The facts of a case, each empty where there is none; those of a large set stand in its index.

    `line` has the words of the first message with a space between, `leak` says which answer stands in the prompt.
    `calls` are the expected calls as JSON, `[[tool, {argument: [value, ...]}], ...]` with each value as short JSON, and
    `[]` where no turn may call a tool. `state_keys` are the asserted keys of the final state, a list as JSON.
    """

    line: str = ""
    leak: str = ""
    calls: str = ""
    state_keys: str = ""
