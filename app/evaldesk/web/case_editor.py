"""What the pages of one case show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode

from evaldesk.desk.cases import CaseNameTakenError, FoundCase
from evaldesk.formats import case_to_json, shown_extra
from evaldesk.model import Case
from evaldesk.store.evalset_files import EvalSetFile
from evaldesk.web.case_list import CaseLine
from evaldesk.web.case_whole import OUTPUTS
from evaldesk.web.drafts import CaseDraft
from evaldesk.web.forms import Problems
from evaldesk.web.line_diff import DiffLine, diff_lines


@dataclass(frozen=True, slots=True)
class Editor:
    """What the page of a case shows. `found` is None for a new case, and for one that is gone."""

    file: EvalSetFile
    found: FoundCase | None
    draft: CaseDraft
    problems: Problems
    version: str = ""
    focus: str = ""
    taken: CaseNameTakenError | None = None
    lost: tuple[str, ...] = ()
    theirs: tuple[DiffLine, ...] | None = None
    is_gone: bool = False
    line: CaseLine | None = None

    @property
    def run_address(self) -> str:
        """Where a run of this case begins."""
        return run_address(self.file.id, self.found.case.id) if self.found else ""

    @property
    def kept_keys(self) -> list[str]:
        """What the file says of this case and the form does not show."""
        if not self.found:
            return []
        case = self.found.case
        turns = [key for turn in case.turns for key in shown_extra(turn.extra)]
        rubrics = ["rubrics"] if any(turn.rubrics for turn in case.turns) else []
        session = shown_extra(case.initial_session.extra) if case.initial_session else {}
        return sorted({*shown_extra(case.extra)} - {*OUTPUTS} | {*turns, *rubrics, *session})[:20]

    @property
    def tools(self) -> list[str]:
        """Names of tools to propose: those the set expects somewhere."""
        if not self.found:
            return []
        turns = [turn for case in self.found.evalset.cases for turn in case.turns]
        return sorted({call.name for turn in turns for call in turn.expected.tool_calls or ()})[:200]


def run_address(evalset_id: str, case_id: str, **more: str) -> str:
    """Where a person starts a run of one case, five times."""
    return "/runs/new?" + urlencode({"evalset": evalset_id, "case": case_id, "n": "5", **more})


def difference(theirs: Case, mine: Case) -> tuple[DiffLine, ...]:
    """Both cases as lines of JSON."""
    return diff_lines(case_text(theirs), case_text(mine))


def case_text(case: Case) -> str:
    """The case as it stands, or will stand, in its file."""
    return json.dumps(case_to_json(case), ensure_ascii=False, indent=2)
