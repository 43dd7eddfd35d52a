"""Cases made of trials with a failure mode: the conversation up to the failure, as a test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.cases import CaseIds
from evaldesk.desk.evalsets.masking import masked_words, places_of, without_secrets
from evaldesk.desk.evalsets.names import candidates, slug
from evaldesk.desk.failures import SIGNED_AT_ONCE
from evaldesk.errors import UsageError
from evaldesk.matching import renumber_allowances
from evaldesk.model import Case, Expected, JsonObject, SessionInit, Transcript, Turn
from evaldesk.model.conclusion import counted
from evaldesk.model.decisions import scripted_decisions, with_decisions
from evaldesk.model.evalset import splice_cases
from evaldesk.model.failures import Finding, Mode
from evaldesk.model.stored import TrialKey
from evaldesk.secrets import known_values
from evaldesk.wire import to_json

MAX_MADE = 500
"""Cases that are made at once."""


@dataclass(frozen=True, slots=True)
class MadeCases:
    """The cases that were added to an eval set; `n_known` were in it, `masking_note` names the masked secrets."""

    evalset_id: str
    name: str
    ids: Sequence[str]
    n_known: int
    n_rubrics: int
    masking_note: str

    @property
    def words(self) -> str:
        """`3 cases added to late; 1 was there already.`, and their expectations."""
        duplicates = (
            f"; {self.n_known:,} {'was' if self.n_known == 1 else 'were'} there already" if self.n_known else ""
        )
        rubric = f" {counted(self.n_rubrics, 'case')} without expectations got a rubric." if self.n_rubrics else ""
        return (
            f"{counted(len(self.ids), 'case')} added to {self.name}{duplicates}.{rubric} {self.masking_note}".rstrip()
        )


def make_cases(desk: Desk, mode: Mode, evalset_id: str = "", name: str = "", run_id: int | None = None) -> MadeCases:
    """Add a case for each conversation in which a mode was found, of one run or all; to a new set without an id.

    Raises UsageError without findings, SetNameTakenError, ConflictError when the file changes meanwhile, LossError.
    """
    cases_of_mode = [*_cases(desk, mode, run_id)]
    if not cases_of_mode:
        raise UsageError("No trial of this kind of failure has a turn to make a case of.", field="evalset")
    evalset_id = evalset_id or desk.evalsets.create(name)
    evalset, version, _ = desk.evalsets.read(evalset_id)
    n_masked, secret_values = Counter[str](), known_values(desk.settings.environment)
    before, set_ids, new_cases = (
        {_conversation_key(case) for case in evalset.cases},
        CaseIds(evalset.cases),
        list[Case](),
    )
    different = {
        _conversation_key(case): case for case in without_secrets(cases_of_mode, desk.settings.environment, n_masked)
    }
    for case in (case for conversation, case in different.items() if conversation not in before):
        names = {each.id for each in new_cases}
        free_ids = candidates(f"{case.id}_{slug(mode.name)}")
        new_cases.append(replace(case, id=next(each for each in free_ids if each not in set_ids and each not in names)))
    if new_cases:
        n = len(evalset.cases)
        new_set = replace(evalset, cases=splice_cases(evalset.cases, n, n, new_cases))
        desk.evalsets.save(evalset_id, new_set, version)
        desk.evalsets.note_edit(evalset_id, evalset, new_set, f"from {mode.name}")
    words = (
        masked_words(n_masked, places_of(secret_values, ((case.id, case) for case in cases_of_mode)))
        if n_masked
        else ""
    )
    title, n_rubrics = desk.evalsets.file(evalset_id).name, sum(case.rubrics == (_rubric(mode),) for case in new_cases)
    return MadeCases(
        evalset_id, title, [case.id for case in new_cases], len(different) - len(new_cases), n_rubrics, words
    )


def _cases(desk: Desk, mode: Mode, run_id: int | None) -> Iterator[Case]:
    """A case for each finding, newest first, its turns up to the marked one, else to where its trial first failed."""
    runs = desk.store.runs
    findings = desk.store.failures.of_mode(mode.id, run_id, MAX_MADE)
    for first in range(0, len(findings), SIGNED_AT_ONCE):
        some = findings[first : first + SIGNED_AT_ONCE]
        for each_run in dict.fromkeys(each.run_id for each in some):
            agent = runs.summary(each_run).config.agent.id
            last: dict[TrialKey, int | None] = {}
            for each in sorted(some, key=_late_first):
                if each.run_id == each_run:
                    last[each.case_index, each.trial_index] = each.anchor.turn
            keys = sorted(last)
            signatures = desk.failures.signatures(each_run, [key for key in keys if last[key] is None])
            for key, result in runs.trials(each_run, keys).items():
                at, signature = last[key], signatures.get(key)
                n = at + 1 if at is not None else signature.turn if signature else 0
                turns = result.transcript.turns[: n or None]
                if turns:
                    yield _until(runs.case(each_run, key[0]), Transcript(turns), agent, mode)


def _late_first(finding: Finding) -> tuple[bool, int]:
    return finding.anchor.turn is not None, -(finding.anchor.turn or 0)


def _until(case: Case, transcript: Transcript, agent_id: str, mode: Mode) -> Case:
    """The case with the played turns alone; without any expectation it gets the failure as a rubric."""
    n, queries = len(transcript.turns), [record.query for record in transcript.turns]
    is_scripted = not case.scenario and [turn.query for turn in case.turns[:n]] == queries
    turns = case.turns[:n] if is_scripted else tuple(Turn(each.query, media=each.media) for each in transcript.turns)
    session = case.initial_session or SessionInit(agent_id, "user", transcript.turns[0].state_before)
    is_whole = is_scripted and n == len(case.turns)
    shortened_case = replace(
        case,
        turns=turns,
        scenario=None,
        initial_session=session,
        final_state=case.final_state if is_whole else None,
        tags=tuple(dict.fromkeys((*case.tags, slug(mode.name)))),
    )
    with suppress(UsageError):  # decisions that cannot be read end its trials, as those of the case did
        shortened_case = with_decisions(
            shortened_case, [each for each in scripted_decisions(case) if each.turn is None or each.turn < n]
        )
    shortened_case = renumber_allowances(
        case, shortened_case, [(at, [*range(len(turn.expected.tool_calls or ()))]) for at, turn in enumerate(turns)]
    )
    expects = (
        any(turn.expected != Expected() or turn.rubrics for turn in turns)
        or shortened_case.rubrics
        or shortened_case.final_state
    )
    return shortened_case if expects else replace(shortened_case, rubrics=(_rubric(mode),))


def _rubric(mode: Mode) -> JsonObject:
    text = f"The agent does not show this failure: {mode.name}. {mode.definition}".strip()
    return {"rubric_id": slug(mode.name), "rubric_content": {"text_property": text}}


def _conversation_key(case: Case) -> bytes:
    """The identity of a conversation: the user's messages and the initial state."""
    return to_json([[(turn.query, turn.media) for turn in case.turns], dict(case.initial_state)])
