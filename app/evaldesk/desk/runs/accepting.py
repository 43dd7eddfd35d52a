"""Accept behaviour of trials as expectations of cases: staged over the current eval set file, and saved once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

from evaldesk.desk.criteria.criteria import is_plain
from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.cases import case_keys
from evaldesk.desk.other_tools import as_tool_judges
from evaldesk.diff.acceptance import AcceptableChange, Way, Ways, accept_changes, offered_changes
from evaldesk.errors import FormatError, NotFoundError, UsageError
from evaldesk.matching.case_version import case_version
from evaldesk.metrics import score_trial
from evaldesk.model import Case, Counts, EvalSet, RunConfig, Score, Transcript, TrialResult
from evaldesk.model.conclusion import trial_verdict
from evaldesk.model.stored import CaseRow, RunSummary

MAX_JUDGED = 2_000
"""Trials that are judged to tell what each way of each change would do."""
MAX_CASES = 50
"""Cases that are staged at once; the next ones come when these are saved or left."""


Keys = Mapping[str, Ways]
"""For each case, by its key, the wanted changes and how each is written."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The passing trials of a case: by the case as it is, and by the changed one."""

    before: Counts
    after: Counts
    verdicts_before: tuple[str, ...] = ()
    verdicts_after: tuple[str, ...] = ()

    @property
    def n_changed(self) -> int:
        """The number of trials with another verdict."""
        return sum(a != b for a, b in zip(self.verdicts_before, self.verdicts_after, strict=True))

    @property
    def is_worse(self) -> bool:
        """Whether fewer trials would pass."""
        return self.after.passed < self.before.passed

    @property
    def is_easier(self) -> bool:
        """Whether more trials would pass, or fewer count as failed: without an expectation nothing fails."""
        n_failing_before, n_failing_after = (each.scored - each.passed for each in (self.before, self.after))
        return self.after.passed > self.before.passed or n_failing_after < n_failing_before

    @property
    def n_by_change(self) -> Mapping[str, int]:
        """The trials with another verdict, by the words for it; a trial that is not scored counts neither way."""
        numbers = {"turn green": 0, "no longer count": 0, "no longer pass": 0, "count as failed": 0}
        for before, after in zip(self.verdicts_before, self.verdicts_after, strict=True):
            if after == "passed" != before:
                numbers["turn green"] += 1
            elif self.is_scored(before) and not self.is_scored(after):
                numbers["no longer count"] += 1
            elif before == "passed" != after:
                numbers["no longer pass"] += 1
            elif self.is_scored(after) and not self.is_scored(before):
                numbers["count as failed"] += 1
        return {words: n for words, n in numbers.items() if n}

    def is_scored(self, verdict: str) -> bool:
        """Whether a trial with this verdict counts."""
        return verdict in ("passed", "failed") or (verdict == "errored" and self.before.errors_are_failures)


@dataclass(frozen=True, slots=True)
class StagedCase:
    """A case of the eval set, one of its trials, and the differences that the case could take over.

    `trials` are all of the run, and `case` is as the file has it now. `verdicts` are those of the trials by it; empty
    where it is the case that was played.
    """

    key: str
    case: Case
    trial: TrialResult
    offered: tuple[AcceptableChange, ...]
    trials: tuple[TrialResult, ...]
    verdicts: tuple[str, ...] = ()

    def effect(self, ways: Ways, config: RunConfig) -> Effect:
        """The effect of these changes alone: an edit of the file since the run is on both sides."""
        return effect_of(self.trials, self.with_changes(ways), config, self.verdicts)

    def with_changes(self, ways: Ways) -> Case:
        """The case with these changes. Raises UsageError where two values would replace the same one."""
        others = _others(self.trial, self.trials)
        return accept_changes(self.case, self.trial.transcript, ways, self.trial.scores, others)

    @property
    def n_judged(self) -> int:
        """The number of judged trials to try each way of each change, and to leave it."""
        return len(self.trials) * sum(len(change.ways) + 1 for change in self.offered)

    @property
    def unasked(self) -> tuple[AcceptableChange, ...]:
        """The changes that a command writes unless one is named: none after which the case would expect less.

        Of a turn in which a call is missing the calls beyond the expected ones are left with it.
        """
        lacking = {change.turn for change in self.offered if change.part == "call" and change.is_less}
        others = (each for each in self.offered if each.part != "call" or each.turn not in lacking)
        return tuple(each for each in others if not each.is_less)


@dataclass(frozen=True, slots=True)
class Staged:
    """The changes that a run offers to its eval set. `refusals` says for a case why it offers none.

    `n_more` cases stand behind the staged ones.
    """

    run: RunSummary
    evalset_id: str
    file_name: str
    version: str
    evalset: EvalSet
    cases: tuple[StagedCase, ...]
    refusals: Mapping[str, str]
    n_more: int = 0

    def with_changes(self, keys: Keys) -> EvalSet:
        """The eval set with these changes."""
        new_cases = {each.case.id: each.with_changes(keys.get(each.key, {})) for each in self.cases}
        return replace(self.evalset, cases=tuple(new_cases.get(case.id, case) for case in self.evalset.cases))

    def effects(self, keys: Keys) -> dict[str, Effect]:
        """By the key of each case that would change, its trials judged before and after.

        Nothing is played and no model is asked: judges and functions of the user keep the scores they gave.
        """
        return {each.key: each.effect(keys[each.key], self.run.config) for each in self.cases if keys.get(each.key)}

    def effects_of_ways(self, keys: Keys) -> dict[tuple[str, str, Way | None], Effect]:
        """The effect of each way of a change, and of leaving it, while all others stay.

        Named by the case, the change and the way. Only for the first cases with at most MAX_JUDGED judged trials.
        """
        effects: dict[tuple[str, str, Way | None], Effect] = {}
        budget = MAX_JUDGED
        for each in self.cases:
            budget -= each.n_judged
            if budget < 0:
                break
            effects_of_case: dict[frozenset[tuple[str, Way]], Effect] = {}
            for change in each.offered:
                for way in (*change.ways, None):
                    ways = {key: chosen_way for key, chosen_way in keys.get(each.key, {}).items() if key != change.key}
                    ways |= {} if way is None else {change.key: way}
                    name = frozenset(ways.items())
                    if name not in effects_of_case:
                        with suppress(UsageError):  # another value replaces this one already
                            effects_of_case[name] = each.effect(ways, self.run.config)
                    if name in effects_of_case:
                        effects[each.key, change.key, way] = effects_of_case[name]
        return effects


def stage(
    desk: Desk,
    run: RunSummary,
    case_id: str | None = None,
    trial_index: int | None = None,
    *,
    of_cases: Mapping[str, int] | None = None,
) -> Staged:
    """The changes that the eval set of a run could accept: of one case or all failed ones, from one trial of each.

    `of_cases` names other cases, each with its trial. Without a trial it is the first one that failed. Raises
    NotFoundError for an unknown case or trial, and UsageError where the eval set is not in this workspace.
    """
    evalset_id, evalset, version, file_name = _evalset_of(desk, run)
    rows = [row for row in desk.stored_runs.rows(run.id) if _is_meant(row, case_id, of_cases)]
    if not rows and case_id is not None:
        raise NotFoundError.among("case", case_id, desk.stored_runs.case_ids(run.id))
    cases: list[StagedCase] = []
    refusals: dict[str, str] = {}
    keys = dict(zip([case.id for case in evalset.cases], case_keys(evalset.cases), strict=True))
    now = {case.id: case for case in evalset.cases}
    n_more = 0
    for row in rows:
        played_case = desk.store.runs.case(run.id, row.case_index)
        reason = _unlike(played_case, now.get(row.case_id))
        if reason:
            refusals[row.case_id] = reason
            continue
        if len(cases) == MAX_CASES:
            n_more += 1
            continue
        at = trial_index if of_cases is None else of_cases[row.case_id]
        if staged_case := _staged_case(desk, run, row, keys[row.case_id], (played_case, now[row.case_id]), at):
            cases.append(staged_case)
        elif case_id is not None:
            refusals[row.case_id] = "It expects what the trial did already."
    return Staged(run, evalset_id, file_name, version, evalset, tuple(cases), refusals, n_more)


def verdicts_now(desk: Desk, run: RunSummary, case_ids: Collection[str]) -> dict[str, Effect]:
    """By case id, the trials of a run as they were judged, and by the eval set as it is now."""
    _, evalset, _, _ = _evalset_of(desk, run)
    now = {case.id: case for case in evalset.cases}
    return {
        row.case_id: effect_of(trials_of(desk, run, row), now[row.case_id], run.config)
        for row in desk.stored_runs.rows(run.id)
        if row.case_id in case_ids and row.case_id in now
    }


def save(desk: Desk, staged: Staged, keys: Keys) -> str:
    """Write these changes to the file, if it is still as it was staged; gives the token that takes them back.

    Raises ConflictError when the file changed meanwhile, UsageError without a change, LossError, DiskError.
    """
    evalset = staged.with_changes(keys)
    edits = [
        (each.case, new_case)
        for each in staged.cases
        if (new_case := each.with_changes(keys.get(each.key, {}))) != each.case
    ]
    if not edits:
        raise UsageError("choose a change")
    token = desk.evalsets.cases.store_edits(staged.evalset_id, edits)
    try:
        desk.evalsets.save(staged.evalset_id, evalset, staged.version)
    except BaseException:
        desk.evalsets.cases.edits.discard(token)
        raise
    desk.evalsets.note_edit(staged.evalset_id, staged.evalset, evalset)
    return token


class StagedFile:
    """The text of the file as it is, and as it would be with some changes.

    A file that somebody laid out in another way has the layout in which it would be saved. Raises NotFoundError.
    """

    def __init__(self, desk: Desk, staged: Staged) -> None:
        self._staged = staged
        self._write = desk.evalsets.writer(staged.evalset_id)

    @cached_property
    def before(self) -> str:
        """The file as it is. Raises LossError."""
        return self._write(self._staged.evalset).decode()

    def after(self, keys: Keys) -> str:
        """The file with these changes. Raises LossError as `save` does."""
        return self._write(self._staged.with_changes(keys)).decode()


def _evalset_of(desk: Desk, run: RunSummary) -> tuple[str, EvalSet, str, str]:
    """Id, content, version and file name."""
    evalset_id, path = desk.evalsets.id_of_run(run.config), run.config.evalset_path
    try:
        evalset, version, file = desk.evalsets.read(evalset_id)
    except NotFoundError as error:
        raise UsageError(f"the eval set of run {run.id} is not in this workspace ({path or 'no file'})") from error
    except FormatError as error:
        raise UsageError(f"the eval set of run {run.id} cannot be read now: {error}") from error
    return evalset_id, evalset, version, file.name


def _is_meant(row: CaseRow, case_id: str | None, of_cases: Mapping[str, int] | None) -> bool:
    if of_cases is not None:
        return row.case_id in of_cases
    return row.counts.failed > 0 if case_id is None else row.case_id == case_id


def _unlike(before: Case, now: Case | None) -> str:
    """The reason why the trials do not apply to the current case; empty where they do."""
    if now is None:
        return "The eval set has no such case any more."
    if [turn.query for turn in before.turns] != [turn.query for turn in now.turns] or before.scenario != now.scenario:
        return "The messages of this case were edited since the run; run it again."
    return ""


def _staged_case(
    desk: Desk, run: RunSummary, row: CaseRow, key: str, cases: tuple[Case, Case], trial_index: int | None
) -> StagedCase | None:
    """The case, whose first one of `cases` was played and whose second one the file has now; None without a change."""
    played_case, case = cases
    trials = trials_of(desk, run, row)
    if trial_index is not None:
        trial = next((each for each in trials if each.trial_index == trial_index), None)
        if trial is None:
            raise NotFoundError(f"case {row.case_id!r} of run {run.id} has no trial {trial_index + 1}")
    else:
        failed = [each for each in trials if each.verdict == "failed"]
        trial = next(iter(failed or trials), None)
    if trial is None:
        return None
    offered = offered_changes(case, trial.transcript, trial.scores, _others(trial, trials))
    return (
        StagedCase(key, case, trial, offered, trials, verdicts_by(trials, case, run.config, played_case))
        if offered
        else None
    )


def _others(trial: TrialResult, trials: Collection[TrialResult]) -> list[tuple[Transcript, Collection[Score]]]:
    """The other trials that failed: from them further values are offered."""
    return [(each.transcript, each.scores) for each in trials if each is not trial and each.verdict == "failed"]


def trials_of(desk: Desk, run: RunSummary, row: CaseRow) -> tuple[TrialResult, ...]:
    """The stored trials of a case of a run."""
    trial_keys = [(row.case_index, index) for index in range(len(row.verdicts))]
    trials = desk.store.runs.trials(run.id, trial_keys)
    return tuple(trials[key] for key in trial_keys if key in trials)


def effect_of(trials: Sequence[TrialResult], case: Case, config: RunConfig, before: Sequence[str] = ()) -> Effect:
    """The verdicts of some trials before, without those as they were judged, and by another case; nothing is played."""
    before = tuple(before or (each.verdict for each in trials))
    after = tuple(_verdict(case, each, config) for each in trials)
    counts = partial(Counts.of_verdicts, errors_are_failures=config.errors_are_failures)
    return Effect(counts(before), counts(after), before, after)


def verdicts_by(trials: Sequence[TrialResult], case: Case, config: RunConfig, played_case: Case) -> tuple[str, ...]:
    """The verdicts of trials by a case; empty where it is the one that was played, and so as they were judged."""
    if case_version(case) == case_version(played_case):
        return ()
    return tuple(_verdict(case, each, config) for each in trials)


def _verdict(case: Case, trial: TrialResult, config: RunConfig) -> str:
    if trial.error:
        return trial.verdict
    own_criteria = [criterion for criterion in config.criteria if is_plain(criterion)]
    names = {criterion.metric for criterion in own_criteria}
    other_scores = [score for score in trial.scores if score.metric not in names]
    scores = (*other_scores, *score_trial(trial.transcript, case, own_criteria, strict=config.is_strict))
    rescored = replace(trial, scores=scores, verdict=trial_verdict(scores, config.criteria, None))
    return as_tool_judges(config.compat, case, rescored, config.criteria).verdict


def one_of(cases: Sequence[StagedCase], parts: Sequence[str], turn: int | None, way: str) -> dict[str, dict[str, Way]]:
    """The changes of these parts, of one turn (from 1) or all; without a part the initial choice.

    A change that cannot be written in this way is none of them: in place of what is expected, it could make a trial
    fail that passed.
    """
    return {
        each.key: {
            change.key: each_way
            for change in (each.offered if parts else each.unasked)
            if (not parts or change.part in parts) and (turn is None or change.turn == turn)
            if way != "replace" or change.is_of_trial
            for each_way in change.ways
            if each_way == way
        }
        for each in cases
    }


def left_out(
    cases: Sequence[StagedCase], keys: Keys, parts: Sequence[str], turn: int | None
) -> list[tuple[str, str, set[Way]]]:
    """By case id, the changes of these parts, of that turn or all, that are not wanted, and the ways they have."""
    entries = []
    for each in cases:
        changes = [
            change
            for change in each.offered
            if change.key not in keys[each.key]
            and change.is_of_trial
            and (not parts or change.part in parts)
            and (turn is None or change.turn == turn)
        ]
        ways = {way for change in changes for way in change.ways}
        entries += [(each.case.id, ", ".join(change.place for change in changes), ways)] if changes else []
    return entries
