"""The tools whose command `evaldesk eval` may be spelled as; a row names the modules of its tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from evaldesk.registry import import_target, is_present

if TYPE_CHECKING:
    from evaldesk.cli.eval.options import ToolOptions
    from evaldesk.cli.eval.playing import Played
    from evaldesk.cli.eval.request import EvalRequest
    from evaldesk.desk.runs.stored_runs import StoredRuns
    from evaldesk.model import Conclusion


class Evaluate(Protocol):
    """Plays what a request of its spelling asks for."""

    def __call__(self, request: EvalRequest) -> int:
        """The exit code. Raises EvaldeskError."""


class SpelledResults(Protocol):
    """The result files of a spelling in the schema of its tool."""

    def folder_results(
        self, store: StoredRuns, request: EvalRequest, played_runs: Sequence[Played], folder: str
    ) -> tuple[Path, bytes]:
        """The file in the folder and its contents."""

    def as_json(self, runs: StoredRuns, played_runs: Sequence[Played], conclusion: Conclusion) -> bytes:
        """The contents of a `.json` file."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A form of the command by the `package.module:attr` of its Evaluate, its ToolOptions and its SpelledResults.

    One without options or a schema of its own names none.
    """

    evaluate: str
    options: str = ""
    results: str = ""


SPELLINGS: Mapping[str, Spelling] = {
    "adk": Spelling("evaldesk.cli.eval.adk:eval_adk"),
    "osmosis": Spelling(
        "evaldesk.integrations.osmosis.command.eval:eval_osmosis",
        "evaldesk.integrations.osmosis.command.options:OPTIONS",
        "evaldesk.integrations.osmosis.command.results:RESULTS",
    ),
    "openhands": Spelling(
        "evaldesk.integrations.openhands.command.eval:eval_openhands",
        "evaldesk.integrations.openhands.command.options:OPTIONS",
    ),
}
"""The forms of the command by their tool. Ours is that of `adk eval`; of two that are selected the last one wins."""


def load_evaluate(tool: str) -> Evaluate:
    """The function that plays a request in the form of a tool."""
    return cast("Evaluate", import_target(SPELLINGS[tool].evaluate))


def tool_options() -> dict[str, ToolOptions]:
    """The options of each tool whose folder is there."""
    return {
        tool: cast("ToolOptions", import_target(spelling.options))
        for tool, spelling in SPELLINGS.items()
        if spelling.options and is_present(spelling.options)
    }


def spelled_results(request: EvalRequest) -> SpelledResults | None:
    """The result files of the form of a request; None for a form without a schema of its own."""
    spelling = SPELLINGS[request.tool]
    return cast("SpelledResults", import_target(spelling.results)) if spelling.results else None
