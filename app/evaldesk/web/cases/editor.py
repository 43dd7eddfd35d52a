"""The contents of the pages of one case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from evaldesk.desk.evalsets.cases import CaseNameTakenError, FoundCase
from evaldesk.model.evalset import CRITERIA, DECISIONS, TRIALS
from evaldesk.model.stored import EvalSetFile
from evaldesk.pages.case_list import CaseLine
from evaldesk.pages.case_scenario import required_actions, scenario_keys
from evaldesk.pages.case_text import Line, kept_keys
from evaldesk.pages.case_whole import OUTPUTS, accepted_keys, outcomes_keys
from evaldesk.pages.large_state import LargeState, large_state
from evaldesk.pages.typed import Problems
from evaldesk.web.cases.drafts import CaseDraft, shown_criteria, shown_decisions, shown_trials


@dataclass(frozen=True, slots=True)
class Editor:
    """The contents of the page of a case. `found_case` is None for a new or removed case."""

    file: EvalSetFile
    found_case: FoundCase | None
    draft: CaseDraft
    problems: Problems
    version: str = ""
    focus: str = ""
    name_error: CaseNameTakenError | None = None
    losses: tuple[str, ...] = ()
    conflict_lines: Sequence[Line] | None = None
    is_gone: bool = False
    line: CaseLine | None = None

    @property
    def run_address(self) -> str:
        """Where a run of this case begins."""
        return run_address(self.file.id, self.found_case.case.id) if self.found_case else ""

    @property
    def large_initial(self) -> LargeState | None:
        """The keys of an initial state that is too large for the form."""
        return large_state(self.found_case.case.initial_state) if self.found_case else None

    @property
    def large_final(self) -> LargeState | None:
        """The keys of an expected final state that is too large for the form."""
        return large_state(self.found_case.case.final_state or {}) if self.found_case else None

    @property
    def kept_keys(self) -> list[str]:
        """The keys of this case in the file that the form does not show."""
        if not self.found_case:
            return []
        case = self.found_case.case
        keys = OUTPUTS if shown_trials(case) is None else (*OUTPUTS, TRIALS)
        keys = keys if shown_criteria(case) is None else (*keys, CRITERIA)
        if case.scenario is not None:
            has_decisions = shown_decisions(case) is not None
            return kept_keys(case, (*keys, *((DECISIONS,) if has_decisions else ()), *scenario_keys(case)))
        decisions = (DECISIONS,) if shown_decisions(case) is not None else ()
        return kept_keys(case, (*keys, *decisions, *accepted_keys(case), *outcomes_keys(case)))

    @property
    def tools(self) -> list[str]:
        """Names of tools to propose: those the set expects somewhere."""
        if not self.found_case:
            return []
        cases = self.found_case.evalset.cases
        calls = [call for case in cases for turn in case.turns for call in turn.expected.tool_calls or ()]
        calls += [call for case in cases if case.scenario is not None for call in required_actions(case) or ()]
        return sorted({call.name for call in calls})[:200]


def run_address(evalset_id: str, case_id: str, **more: str) -> str:
    """Where a person starts a run of one case, five times."""
    return "/runs/new?" + urlencode({"evalset": evalset_id, "case": case_id, "n": "5", **more})
