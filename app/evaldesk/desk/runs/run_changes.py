"""The changes of eval set, criteria and gates between two runs, each with the person or coding agent behind it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import islice, pairwise
from typing import Literal, TypeAlias

from evaldesk.errors import VALUE_LIMIT, FormatError
from evaldesk.formats import case_from_text
from evaldesk.matching.case_version import case_version
from evaldesk.model import Criterion
from evaldesk.model.client_budget import MARK
from evaldesk.model.json_text import short_json
from evaldesk.model.proposals import IN_QUARANTINE, OUT_OF_QUARANTINE, CaseEdit
from evaldesk.model.run import DECISIONS_ASKED, FINAL_STATE, OUTCOME
from evaldesk.model.set_versions import SetContent, SetVersion
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store
from evaldesk.wire import plain_json
from evaldesk.wording.printable import in_one_line

ChangeKind: TypeAlias = Literal["case", "selection", "criterion", "gate"]
OUTSIDE = "changed outside"
MAX_CASES = 500
MOST_STEPS = 100
"""Versions of a set between two runs that are looked through."""
PARTS: Mapping[ChangeKind, str] = {
    "case": "eval set",
    "selection": "choice of cases",
    "criterion": "criteria",
    "gate": "gates",
}
NOUNS: Mapping[ChangeKind, str] = {
    "case": "cases",
    "selection": "chosen cases",
    "criterion": "criteria",
    "gate": "gates",
}
MOST_AUTHORS = 3
RUNS_AT_ONCE = 20
CASES_AT_ONCE = 2_000
CRITERIA_OF_CASES = (FINAL_STATE, DECISIONS_ASKED, OUTCOME)
"""Default criteria that a run has where one of its cases asserts something for them."""


@dataclass(frozen=True, slots=True)
class RunDifference:
    """One change between two runs: its subject, the change in words, and its author."""

    kind: ChangeKind
    name: str
    words: str
    who: str


def differences(store: Store, before: RunSummary, after: RunSummary) -> list[RunDifference]:
    """The changed cases, then criteria, then gates; at most MAX_CASES cases."""
    pair = _RunPair(store, before, after)
    cases = [*islice(_cases(pair), MAX_CASES)]
    return [*cases, *_criteria(pair, cases), *_gates(before, after)]


def run_before(store: Store, run: RunSummary) -> RunSummary | None:
    """The last run before of the same agent and eval set that a person started; None for the first one.

    A coding agent edits a file and tries it: against its own run a later one would show no change. Without a run of a
    person it is the last run.
    """
    newest, before = None, run.id
    while some := store.runs.list(
        agent_id=run.config.agent.id, evalset_id=run.config.evalset_id, before=before, limit=RUNS_AT_ONCE
    ):
        newest = newest or some[0]
        if by_person := next((each for each in some if each.config.note != MARK), None):
            return by_person
        before = some[-1].id
    return newest


def changes_sentence(before: RunSummary, after: RunSummary, changes: Sequence[RunDifference]) -> str:
    """`Between run 12 and run 14 the eval set changed too: 2 cases (by: ana).`; empty without a change."""
    kinds = [kind for kind in PARTS if any(each.kind == kind for each in changes)]
    if not kinds:
        return ""
    parts = " and the ".join(filter(None, (", the ".join(PARTS[each] for each in kinds[:-1]), PARTS[kinds[-1]])))
    amounts = ", ".join(_amount(kind, [each for each in changes if each.kind == kind]) for kind in kinds)
    return f"Between run {before.id} and run {after.id} the {parts} changed too: {amounts}."


def _amount(kind: ChangeKind, changes: Sequence[RunDifference]) -> str:
    noun = NOUNS[kind] if len(changes) > 1 else kind
    names = list(dict.fromkeys(in_one_line(each.who)[:VALUE_LIMIT] for each in changes))
    more = f" and {len(names) - MOST_AUTHORS:,} more" if len(names) > MOST_AUTHORS else ""
    return f"{len(changes):,} {noun} (by: {', '.join(names[:MOST_AUTHORS])}{more})"


def _cases(pair: _RunPair) -> Iterator[RunDifference]:
    before, after, store = pair.before, pair.after, pair.store
    earlier_values, now = (dict(store.runs.case_versions(run.id)) for run in (before, after))
    edited_ids = [name for name in now if earlier_values.get(name) != now[name]]
    removed_ids = [name for name in earlier_values if name not in now]
    ids = [*edited_ids, *removed_ids][:MAX_CASES]
    last_values = now if after is pair.last else earlier_values
    authors = pair.authors({name: last_values.get(name, "") for name in ids})
    for name in edited_ids:
        if name in earlier_values:
            yield RunDifference("case", name, "edited", authors.get(name, OUTSIDE))
        elif pair.is_there(before, name):
            yield RunDifference("selection", name, "played only now", _starter(after))
        else:
            yield RunDifference("case", name, "added", authors.get(name, OUTSIDE))
    for name in removed_ids:
        if pair.is_there(after, name):
            yield RunDifference("selection", name, "not played now", _starter(after))
        else:
            yield RunDifference("case", name, "deleted", authors.get(name, OUTSIDE))
    yield from _own_trials(pair, [name for name in now if earlier_values.get(name) == now[name]])
    if before.config.without == after.config.without:  # else the option is named, with the person who gave it
        yield from _quarantine(store, before, after, {name for name in now if name in earlier_values})


def _own_trials(pair: _RunPair, same_ids: Collection[str]) -> Iterator[RunDifference]:
    """The cases whose own number of trials is another, which is in no version of a case: `trials 6 to none`."""
    sides = [_trials_by_case(pair.store, run) for run in (pair.before, pair.after)]
    if sides == [{}, {}]:
        return
    earlier_numbers, numbers = sides
    ids = [name for name in same_ids if earlier_numbers.get(name) != numbers.get(name)][:MAX_CASES]
    for name in ids:
        words = f"trials {earlier_numbers.get(name, 'none')} to {numbers.get(name, 'none')}"
        yield RunDifference("case", name, words, pair.author_of_file())


def _trials_by_case(store: Store, run: RunSummary) -> Mapping[str, int]:
    """The trials of the cases that name their own number; empty where no case does, or a budget spread them."""
    if run.config.budget or run.n_trials == run.n_cases * run.config.n:
        return {}
    numbers: dict[str, int] = {}
    after = ""
    while rows := store.runs.case_rows(run.id, sort="file", after=after, limit=CASES_AT_ONCE):
        numbers |= {row.case_id: len(row.verdicts) for row in rows if len(row.verdicts) != run.config.n}
        after = rows[-1].cursor
    return numbers


def _quarantine(
    store: Store, before: RunSummary, after: RunSummary, played_ids: Collection[str]
) -> Iterator[RunDifference]:
    """The cases of both runs that are in quarantine, and so in no gate, in one of them only."""
    earlier_ids, ids = (set(run.config.left_out) for run in (before, after))
    moved_ids = sorted(name for name in earlier_ids ^ ids if name in played_ids)[:MAX_CASES]
    first, last = sorted((before, after), key=lambda run: run.id)
    newest: dict[str, CaseEdit] = {}
    for edit in store.client_proposals.edits(after.config.evalset_id, moved_ids):
        if edit.version in (IN_QUARANTINE, OUT_OF_QUARANTINE) and first.created_at <= edit.at <= last.created_at:
            newest.setdefault(edit.case_id, edit)
    for name in moved_ids:
        version = IN_QUARANTINE if name in last.config.left_out else OUT_OF_QUARANTINE
        move = newest.get(name)
        words = "put in quarantine" if name in ids else "out of quarantine"
        yield RunDifference("case", name, words, move.author if move and move.version == version else OUTSIDE)


class _RunPair:
    """Two runs of one eval set, and the versions that the set had from the first of them to the last.

    `steps` are these versions with their contents, oldest first; empty where they are not stored. Where a version comes
    back, it is noted again.
    """

    def __init__(self, store: Store, before: RunSummary, after: RunSummary) -> None:
        self.store, self.before, self.after = store, before, after
        self.first, self.last = sorted((before, after), key=lambda run: run.id)
        self.evalset_id = after.config.evalset_id
        self._versions = store.set_versions.list(self.evalset_id) if before.config.evalset_id == self.evalset_id else ()
        first, last = self._place(self.first), self._place(self.last)
        self.is_older_chosen = first is not None and last is not None and last > first  # the newest stands first
        self.steps: Sequence[tuple[SetVersion, SetContent]] = ()
        if first is not None and last is not None and 0 <= first - last <= MOST_STEPS:
            versions = reversed(self._versions[last : first + 1])
            self.steps = [(version, store.set_versions.content(version.number)) for version in versions]
        self._has_lists = bool(self.steps) and not any(content.is_cut for _, content in self.steps)
        self._ids_at_first, self._ids_at_last = (
            {case_id for case_id, _ in self.steps[place][1].cases} if self._has_lists else set() for place in (0, -1)
        )

    def _place(self, run: RunSummary) -> int | None:
        """The place of the version that a run played in the list of versions; None where it is not stored."""
        played, started_at = run.config.set_version, run.created_at
        matches = [place for place, each in enumerate(self._versions) if played and each.version == played]
        before = [place for place in matches if self._versions[place].noted_at <= started_at]
        return before[0] if before else matches[-1] if matches else None

    def is_there(self, run: RunSummary, case_id: str) -> bool:
        """Whether the eval set of a run had a case, played or not; by the numbers of cases where that is not stored."""
        other = self.after if run is self.before else self.before
        if not self._has_lists:
            is_same_set = bool(run.config.set_version) and run.config.set_version == other.config.set_version
            return is_same_set or run.n_cases >= other.n_cases
        return case_id in (self._ids_at_first if run is self.first else self._ids_at_last)

    def authors(self, versions: Mapping[str, str]) -> Mapping[str, str]:
        """The author of each case as the last run had it: the id and its version, empty for one that was gone.

        Of an accepted proposal these are its client and the person who accepted it. An edit of the file by an editor
        has none, also where it brings back the version of a known author.
        """
        if self.is_older_chosen:
            return dict.fromkeys(versions, _starter(self.last))
        authors = self._authors_by_steps(versions) if self._has_lists else self._authors_by_edits(versions)
        for proposal in self.store.client_proposals.list("accepted", evalset_id=self.evalset_id):
            draft, decided_at = proposal.accepted_draft, proposal.decided_at
            is_between = decided_at is not None and self.first.created_at <= decided_at <= self.last.created_at
            if is_between and draft.case_id in authors and draft.kind in ("case", "edit", "expectation"):
                with suppress(FormatError):  # of a row that another program wrote, which says nothing of an author
                    version = case_version(case_from_text(draft.after, "the proposal"))
                    if versions[draft.case_id] == version:
                        authors[draft.case_id] = proposal.deciders
        return authors

    def _authors_by_steps(self, versions: Mapping[str, str]) -> dict[str, str]:
        authors: dict[str, str] = {}
        open_ids = set(versions)
        for (_, earlier), (version, latest) in reversed([*pairwise(self.steps)]):
            digests, digests_before = dict(latest.cases), dict(earlier.cases)
            for case_id in [each for each in open_ids if digests.get(each) != digests_before.get(each)]:
                open_ids.discard(case_id)
                if version.origin == "desk" and version.author and digests.get(case_id, "") == versions[case_id]:
                    authors[case_id] = version.author
        return authors

    def _authors_by_edits(self, versions: Mapping[str, str]) -> dict[str, str]:
        newest: dict[str, CaseEdit] = {}
        for edit in self.store.client_proposals.edits(self.evalset_id, [*versions]):
            is_between = self.first.created_at <= edit.at <= self.last.created_at
            if is_between and edit.version not in (IN_QUARANTINE, OUT_OF_QUARANTINE):
                newest.setdefault(edit.case_id, edit)
        return {case_id: edit.author for case_id, edit in newest.items() if edit.version == versions[case_id]}

    def author_of_file(self) -> str:
        """The person who alone saved the set between the runs; `changed outside` where others did, or nobody known."""
        names = {
            version.author if version.origin == "desk" and version.author else OUTSIDE for version, _ in self.steps[1:]
        }
        return names.pop() if len(names) == 1 else OUTSIDE

    def author_of_criteria(self) -> str:
        """The author of the criteria of the set as the last run had them; empty where they are as before."""
        for (_, earlier), (version, latest) in reversed([*pairwise(self.steps)]):
            if (earlier.criteria or None) != (latest.criteria or None):
                return version.author if version.origin == "desk" and version.author else OUTSIDE
        return ""


def _criteria(pair: _RunPair, cases: Sequence[RunDifference]) -> Iterator[RunDifference]:
    """The changed criteria. Those of the set have the author of their change, default ones those of the cases.

    Those of a file that a command or a test follows have no known author; others were named by the starter of the run.
    """
    earlier_values, now = ({each.metric: each for each in run.config.criteria} for run in (pair.before, pair.after))
    names = [name for name in dict.fromkeys((*earlier_values, *now)) if earlier_values.get(name) != now.get(name)]
    who = _author_of_changed_criteria(pair) if names else ""
    case_authors = ", ".join(dict.fromkeys(each.who for each in cases[:MOST_AUTHORS]))
    is_choice = bool(cases) and all(each.kind == "selection" for each in cases)
    for name in names:
        words = f"{_criterion_words(earlier_values.get(name))} -> {_criterion_words(now.get(name))}"
        follows_cases = [earlier_values.get(name), now.get(name)].count(None) == 1 and any(
            each in CRITERIA_OF_CASES for each in (earlier_values.get(name), now.get(name))
        )
        if follows_cases and is_choice:
            continue  # the chosen cases assert something else; the set and its criteria are as before
        yield RunDifference("criterion", name, words, case_authors if follows_cases and case_authors else who)


def _author_of_changed_criteria(pair: _RunPair) -> str:
    first, last = pair.first.config, pair.last.config
    has_lost_criteria = first.is_by_set and not (pair.steps and pair.steps[-1][1].criteria)
    if (last.is_by_set or has_lost_criteria) and not pair.is_older_chosen:
        of_set = pair.author_of_criteria() if pair.steps else OUTSIDE
        if of_set:
            return of_set
    return OUTSIDE if last.is_by_file else _starter(pair.last)


def _criterion_words(criterion: Criterion | None) -> str:
    if criterion is None:
        return "none"
    threshold = "no threshold" if criterion.threshold is None else f"threshold {criterion.threshold:g}"
    options = f", {short_json(plain_json(criterion.options), 200)}" if criterion.options else ""
    return f"{threshold}{options}"


def _gates(before: RunSummary, after: RunSummary) -> Iterator[RunDifference]:
    # The most that a run of a coding agent may cost is the rest of its budget of a day, and no gate of a person.
    has_budget = MARK in (before.config.note, after.config.note)
    for each in fields(after.config.gates):
        if has_budget and each.name == "max_cost":
            continue
        earlier_values, now = (getattr(run.config.gates, each.name) for run in (before, after))
        if earlier_values != now:
            sides = ("none" if each is None else short_json(plain_json(each), 100) for each in (earlier_values, now))
            words = " -> ".join(sides)
            yield RunDifference("gate", each.name, words, _starter(after))
    if before.config.without != after.config.without:
        words = f"{before.config.without or 'none'} -> {after.config.without or 'none'}"
        yield RunDifference("gate", "without", words, _starter(after))


def _starter(run: RunSummary) -> str:
    return run.started_by or OUTSIDE
