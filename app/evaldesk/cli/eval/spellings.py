"""The tools whose command `evaldesk eval` may be spelled as; a row names the modules of its tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from evaldesk.cli.eval.options import OPENHANDS, OSMOSIS
from evaldesk.errors import UsageError
from evaldesk.registry import ISLANDS, import_target, is_present

if TYPE_CHECKING:
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
    """A spelling by the `package.module:attr` of its Evaluate, and of its SpelledResults where it has a schema."""

    evaluate: str
    results: str = ""


SPELLINGS: Mapping[str, Spelling] = {
    "": Spelling("evaldesk.cli.eval.adk:eval_adk"),
    OSMOSIS: Spelling(
        "evaldesk.integrations.osmosis.command.eval:eval_osmosis",
        "evaldesk.integrations.osmosis.command.results:RESULTS",
    ),
    OPENHANDS: Spelling("evaldesk.integrations.openhands.command.eval:eval_openhands"),
}
"""The spellings by the section of their options; the empty one is ours, which is that of `adk eval`."""


def load_evaluate(section: str) -> Evaluate:
    """The function that plays a request of the spelling. Raises UsageError where its tool was removed."""
    if not is_present(SPELLINGS[section].evaluate):
        raise UsageError(f"{section}: this installation has no {ISLANDS}* for it; install all of evaldesk")
    return cast("Evaluate", import_target(SPELLINGS[section].evaluate))


def spelled_results(request: EvalRequest) -> SpelledResults | None:
    """The result files of the spelling of a request; None for a spelling without a schema of its own."""
    spelling = SPELLINGS[OSMOSIS if request.module else ""]
    return cast("SpelledResults", import_target(spelling.results)) if spelling.results else None
