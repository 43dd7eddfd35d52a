"""Recorded conversations matched to the cases of an eval set: by the named case, else by the messages of the user."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from evaldesk.errors import UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.model import Case, EvalSet, RecordedPlan, TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.transcripts.recorded import RecordedRun, digest_of

Messages: TypeAlias = tuple[str, ...]

MESSAGE_WIDTH = 60
"""Characters of a first message beside the name of its conversation."""

NO_CASE = "no case has these messages"
NO_MESSAGE = "it has no message of a user"
OF_OTHER_CASE = "it names the case {case_id!r}, which the set does not have, and no case has its messages"


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A conversation without a case; `message` is the first of its user, `reason` a part of a sentence."""

    id: str
    message: str
    reason: str


@dataclass(frozen=True, slots=True)
class Matching:
    """Conversations as trials of the cases of a set, in its order: a case without one has a planned trial, not played.

    `missing_ids` are the ids of these cases.
    """

    run: RecordedRun
    unmatched: tuple[Unmatched, ...]
    missing_ids: tuple[str, ...]


def match_conversations(files: Sequence[Imported], evalset: EvalSet, case_ids: Sequence[str] | None = None) -> Matching:
    """The trials in the runs of `files`, each as one of a case of `evalset`, without verdicts and scores.

    With `case_ids` only those of these cases; conversations of the others are neither scored nor unmatched.

    A source that names cases is followed; any other conversation is of the one case with the same messages of the user,
    compared without differences of Unicode forms and white space. It is unmatched where no case or several have them:
    none is guessed. Raises UsageError where nothing is matched, and for files with the same conversations.
    """
    index = _CaseIndex(evalset)
    results: dict[int, list[TrialResult]] = {}
    unmatched: list[Unmatched] = []
    runs = [(file, run) for file in files for run in file.runs]
    if not runs:
        raise UsageError("there is no recorded conversation: the files hold eval sets only")
    digests = {digest_of(replace(run, name="")) for _, run in runs}
    if len(digests) < len(runs):
        raise UsageError("two of the files hold the same conversations, which count once; name each file once")
    for file, run in runs:
        ids = [case.id for case in run.cases]
        for result in run.results:
            recorded_id = ids[result.case_index]
            names_case = file.case_ids is None or recorded_id in file.case_ids
            place = index.find(recorded_id if names_case else "", result)
            if isinstance(place, str):
                unmatched.append(Unmatched(recorded_id, next(iter(_messages_of(result)), ""), place))
            else:
                results.setdefault(place, []).append(_unscored(result))
    if case_ids is not None:
        results = {place: trials for place, trials in results.items() if evalset.cases[place].id in case_ids}
    if not results:
        raise UsageError(_nothing_words(unmatched))
    places = [place for place, case in enumerate(evalset.cases) if case_ids is None or case.id in case_ids]
    trials = tuple(
        replace(result, case_index=case_index, trial_index=trial_index)
        for case_index, place in enumerate(places)
        for trial_index, result in enumerate(results.get(place, ()))
    )
    cases = tuple(evalset.cases[place] for place in places)
    run = replace(runs[0][1], cases=cases, results=trials, criteria=(), plan=RecordedPlan(), summary=())
    missing_ids = tuple(evalset.cases[place].id for place in places if place not in results)
    return Matching(run, tuple(unmatched), missing_ids)


def _unscored(result: TrialResult) -> TrialResult:
    """The trial without verdict and scores of its source; an errored one stays so."""
    return replace(result, scores=(), verdict="errored" if result.status == "errored" else "unscored", earlier=())


def _nothing_words(unmatched: Sequence[Unmatched]) -> str:
    if not unmatched:
        return "no conversation of the files is a trial of the chosen cases"
    first = unmatched[0]
    message = f" {first.message[:MESSAGE_WIDTH]!r}" if first.message else ""
    n = counted(len(unmatched), "conversation")
    return f"of {n} none is a trial of a case of the set; the first, {first.id}{message}: {first.reason}"


class _CaseIndex:
    """The places of the cases of a set by id and by the messages of their users."""

    def __init__(self, evalset: EvalSet) -> None:
        self._ids: dict[str, list[int]] = {}
        self._messages: dict[Messages, list[int]] = {}
        for place, case in enumerate(evalset.cases):
            self._ids.setdefault(case.id, []).append(place)
            if messages := _expected_messages(case):
                self._messages.setdefault(messages, []).append(place)
        self._cases = evalset.cases

    def find(self, case_id: str, result: TrialResult) -> int | str:
        """The place of the case that a trial is of, or the reason why there is none; `case_id` is the one it names."""
        messages = _messages_of(result)
        by_messages = self._messages.get(tuple(map(_comparable, messages)), []) if messages else []
        if case_id:
            named_places = self._ids.get(case_id, [])
            both = [place for place in named_places if place in by_messages]
            if len(named_places) == 1 or len(both) == 1:
                return (both or named_places)[0]
        if len(by_messages) == 1:
            return by_messages[0]
        if by_messages:
            names = ", ".join(self._cases[place].id for place in by_messages[:3])
            more = f" and {len(by_messages) - 3:,} more" if len(by_messages) > 3 else ""
            return f"several cases have these messages: {names}{more}"
        if case_id:
            return OF_OTHER_CASE.format(case_id=case_id)
        return NO_CASE if messages else NO_MESSAGE


def _expected_messages(case: Case) -> Messages:
    """The messages of a scripted case, comparable; empty for a scenario, whose user is simulated."""
    return tuple(_comparable(turn.query) for turn in case.turns)


def _messages_of(result: TrialResult) -> Messages:
    return tuple(turn.query for turn in result.transcript.turns)


def _comparable(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())
