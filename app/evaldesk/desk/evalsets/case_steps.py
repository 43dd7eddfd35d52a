"""Steps over many cases: copied or moved to another set, duplicated in other words; each is undone by one token.

A step is one save of each set, so one version of it. The set that gets cases is saved first: a step that breaks off
between two saves has lost nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaldesk.desk.criteria.criteria import bars_of_text, criteria_of, criteria_of_text, text_of_criteria
from evaldesk.desk.evalsets.case_trash import added_cases
from evaldesk.desk.evalsets.cases import CaseChangedError, CaseDesk, CaseIds, check_id_is_free, numbers_of, places_of
from evaldesk.desk.evalsets.names import free_name
from evaldesk.errors import ConflictError, EvaldeskError, UsageError
from evaldesk.model import Case, EvalSet, JsonValue
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import CRITERIA, PROVENANCE, case_key, own_bars, splice_cases
from evaldesk.model.stored import EvalSetFile
from evaldesk.reading.scenario import PLAN

MOST_REWORDED = 50
MAX_MESSAGE = 100_000
"""Characters of a new wording."""


class CaseSteps:
    """The steps over many cases of the sets of a workspace; `trash` is the folder of their undo."""

    def __init__(
        self,
        cases: CaseDesk,
        evalset: Callable[[str], EvalSet],
        file: Callable[[str], EvalSetFile],
        trash: Path,
    ) -> None:
        self._cases = cases
        self._evalset = evalset
        self._file = file
        self.added = added_cases(trash)

    def copy(self, evalset_id: str, ids: Collection[str], target_id: str) -> str:
        """Copy cases to the end of another set; a name that is taken there gets a number. Gives the token."""
        return self._add(evalset_id, ids, target_id, "copied")

    def move(self, evalset_id: str, ids: Collection[str], target_id: str) -> str:
        """Move cases to the end of another set. Gives the token."""
        self._cases.check_small(evalset_id)
        token = self._add(evalset_id, ids, target_id, "moved")
        try:
            self._cases.delete_ids(evalset_id, ids, token, f"moved to {self._file(target_id).name}")
        except EvaldeskError:
            self._take_out(token)
            raise
        return token

    def add(self, evalset_id: str, case: Case, note: str) -> str:
        """Put a case at the end of a set, in one step with that note. Gives the token. Raises CaseNameTakenError."""
        token = secrets.token_hex(8)

        def change(evalset: EvalSet) -> EvalSet:
            check_id_is_free(evalset.cases, case.id)
            n = len(evalset.cases)
            self.added.write(token, evalset_id, [case])
            return replace(evalset, cases=splice_cases(evalset.cases, n, n, (case,)))

        self._cases.replace_all(evalset_id, change, note)
        return token

    def reword(self, evalset_id: str, wordings: Sequence[tuple[str, str]]) -> str:
        """Put a copy of each case behind it that begins with other words; ids with texts. Gives the token.

        Raises UsageError for a text that is empty or that of the case, for too many and for a data set.
        """
        self._cases.check_small(evalset_id)
        texts = {case_id: text.replace("\r\n", "\n").strip() for case_id, text in wordings}
        if not texts:
            raise UsageError("accept at least one wording", field="case")
        if len(texts) > MOST_REWORDED:
            raise UsageError(f"at most {MOST_REWORDED} cases are reworded at once, not {len(texts):,}", field="case")
        token = secrets.token_hex(8)

        def change(evalset: EvalSet) -> EvalSet:
            originals = _cases_with(evalset, texts.keys())
            copies: list[Case] = []
            result = evalset
            for case in originals:
                text = texts[case.id]
                if not text or len(text) > MAX_MESSAGE or text == first_message(case).strip():
                    raise UsageError(
                        f"write other words for {case.id!r}, at most {MAX_MESSAGE:,} characters", field="case"
                    )
                copy = with_message(case, text, free_name(f"{case.id}_reworded", CaseIds(result.cases)))
                place = numbers_of(result.cases, case_key(case.id))[0] + 1
                result = replace(result, cases=splice_cases(result.cases, place, place, (copy,)))
                copies.append(copy)
            self.added.write(token, evalset_id, copies)
            return result

        self._cases.replace_all(evalset_id, change, f"{counted(len(texts), 'case')} reworded")
        return token

    def set_criteria(self, evalset_id: str, text: str, seen_text: str | None = None) -> None:
        """Give the set the criteria of `text`, a line each; without any line its runs have those beside it again.

        `seen_text` are the criteria on the page of the person. Raises UsageError, FormatError, and ConflictError where
        the set has others by now.
        """
        self._cases.check_small(evalset_id)
        criteria = criteria_of_text(text)
        if criteria and all(each.threshold is None for each in criteria_of(criteria)):
            raise UsageError("give at least one metric a threshold; without one every trial is unscored")

        def change(evalset: EvalSet) -> EvalSet:
            now = text_of_criteria(evalset.extra.get(CRITERIA))
            if seen_text is not None and now not in (seen_text, text_of_criteria(criteria)):
                raise ConflictError("the criteria of the set were changed meanwhile; open the page again")
            extra = {key: value for key, value in evalset.extra.items() if key != CRITERIA}
            return replace(evalset, extra={**extra, CRITERIA: criteria} if criteria else extra)

        self._cases.replace_all(evalset_id, change, "criteria of the set")

    def narrow(self, evalset_id: str, ids: Collection[str], text: str) -> str:
        """Have these cases judged by the criteria of `text` alone; empty for all of the run. Gives the token.

        Raises UsageError for a metric that there is not, for too many cases, for one with another column of that name
        and for a data set; NotFoundError for an unknown case.
        """
        bars = bars_of_text(text)
        value: JsonValue = {**bars} if any(bar is not None for bar in bars.values()) else [*bars]
        note = f"criteria of {counted(len(set(ids)), 'case')}"
        return self._cases.change_many(evalset_id, ids, lambda case: _with_criteria(case, value), note)

    def words(self, evalset_id: str, token: str) -> str:
        """`2 cases copied to trips`, or the words of a step of tags; empty for an unknown token."""
        added = self.added.find(token)
        if added is None:
            return self._cases.tag_step_words(evalset_id, token)
        cases = counted(len(added.rows), "case")
        if added.evalset_id == evalset_id:
            source = added.rows[0].extra.get(PROVENANCE) if len(added.rows) == 1 else None
            run_id = source.get("run") if isinstance(source, Mapping) else None
            return f"{cases} added, from run {run_id}" if run_id else f"{cases} added in other words"
        verb = "moved" if token in self._cases.deleted else "copied"
        return f"{cases} {verb} to {self._file(added.evalset_id).name}"

    def undo(self, evalset_id: str, token: str) -> None:
        """Take a step back: the cases that it added go, and those that it took come back.

        Raises NotFoundError for a token that is unknown or used up, CaseChangedError where an added case was edited.
        """
        if token not in self.added:
            self._cases.take_back(evalset_id, token)
            return
        self._take_out(token)
        if self._cases.deleted.rows(token, evalset_id):
            self._cases.restore(evalset_id, token)

    def _add(self, evalset_id: str, ids: Collection[str], target_id: str, verb: str) -> str:
        if evalset_id == target_id:
            raise UsageError("choose another eval set", field="target")
        self._cases.check_small(target_id)
        cases = _cases_with(self._evalset(evalset_id), ids)
        token = secrets.token_hex(8)

        def change(target: EvalSet) -> EvalSet:
            taken_ids, copies, n = CaseIds(target.cases), list[Case](), len(target.cases)
            new_ids: set[str] = set()
            for case in cases:
                is_taken = case.id in taken_ids or case.id in new_ids
                new_id = free_name(case.id, _Union(taken_ids, new_ids)) if is_taken else case.id
                new_ids.add(new_id)
                copies.append(replace(case, id=new_id))
            self.added.write(token, target_id, copies)
            return replace(target, cases=splice_cases(target.cases, n, n, copies))

        self._cases.replace_all(target_id, change, f"{verb} from {self._file(evalset_id).name}")
        return token

    def _take_out(self, token: str) -> None:
        """Take the cases out again that a step added."""
        added = self.added.find(token)
        if added is None:
            return

        def change(evalset: EvalSet) -> EvalSet:
            for case in added.rows:
                numbers = numbers_of(evalset.cases, case_key(case.id))
                if not numbers:  # an undo that was killed after the save, or a case that a person deleted
                    continue
                if evalset.cases[numbers[0]] != case:
                    raise CaseChangedError(f"case {case.id!r} was edited since, so the step is not undone")
                evalset = replace(evalset, cases=splice_cases(evalset.cases, numbers[0], numbers[0] + 1, ()))
            return evalset

        self._cases.replace_all(added.evalset_id, change, "undone")
        self.added.discard(token)


class _Union(Collection[str]):
    """Names of two collections, to look for a free one."""

    def __init__(self, first: CaseIds, second: set[str]) -> None:
        self._first, self._second = first, second

    def __contains__(self, name: object) -> bool:
        return name in self._first or name in self._second

    def __iter__(self) -> Any:
        return iter(self._second)

    def __len__(self) -> int:
        return len(self._second)


def first_message(case: Case) -> str:
    """The words that a duplicate says otherwise: the first message, or the plan of a scenario without one."""
    if case.scenario is None:
        return case.turns[0].query if case.turns else ""
    return str(case.scenario.get("starting_prompt") or case.scenario.get(PLAN) or "")


def with_message(case: Case, text: str, new_id: str) -> Case:
    """The case under another id that begins with `text`."""
    if case.scenario is None:
        turns = (replace(case.turns[0], query=text), *case.turns[1:]) if case.turns else ()
        return replace(case, id=new_id, turns=turns)
    key = "starting_prompt" if case.scenario.get("starting_prompt") else PLAN
    scenario: Mapping[str, Any] = {**case.scenario, key: text}
    return replace(case, id=new_id, scenario=scenario)


def _with_criteria(case: Case, value: JsonValue) -> Case:
    if case.extra.get(CRITERIA) and not own_bars(case):
        raise UsageError(f"case {case.id!r} has another column named criteria; change it in its JSON", field="criteria")
    extra = {key: each for key, each in case.extra.items() if key != CRITERIA}
    return replace(case, extra={**extra, CRITERIA: value} if value else extra)


def _cases_with(evalset: EvalSet, ids: Collection[str]) -> list[Case]:
    """The cases with these ids, in the order of the set. Raises UsageError, NotFoundError."""
    return [evalset.cases[number] for number in places_of(evalset.cases, ids)]
