"""The changes of eval set, criteria and gates between two runs, each with the person or coding agent behind it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import islice
from typing import Literal, TypeAlias

from evaldesk.errors import VALUE_LIMIT, FormatError
from evaldesk.formats import case_from_text
from evaldesk.matching.case_version import case_version
from evaldesk.model import Criterion
from evaldesk.model.json_text import short_json
from evaldesk.model.proposals import IN_QUARANTINE, OUT_OF_QUARANTINE, CaseEdit
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store
from evaldesk.wire import plain_json
from evaldesk.wording.printable import in_one_line

ChangeKind: TypeAlias = Literal["case", "criterion", "gate"]
OUTSIDE = "changed outside"
MAX_CASES = 500
PARTS: Mapping[ChangeKind, str] = {"case": "eval set", "criterion": "criteria", "gate": "gates"}
NOUNS: Mapping[ChangeKind, str] = {"case": "cases", "criterion": "criteria", "gate": "gates"}
MOST_AUTHORS = 3


@dataclass(frozen=True, slots=True)
class RunDifference:
    """One change between two runs: its subject, the change in words, and its author."""

    kind: ChangeKind
    name: str
    words: str
    who: str


def differences(store: Store, before: RunSummary, after: RunSummary) -> list[RunDifference]:
    """The changed cases, then criteria, then gates; at most MAX_CASES cases."""
    return [
        *islice(_cases(store, before, after), MAX_CASES),
        *_criteria(before, after),
        *_gates(before, after),
    ]


def run_before(store: Store, run: RunSummary) -> RunSummary | None:
    """The run before of the same agent and eval set; None for the first one."""
    agent_id, evalset_id = run.config.agent.id, run.config.evalset_id
    return next(iter(store.runs.list(agent_id=agent_id, evalset_id=evalset_id, before=run.id, limit=1)), None)


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


def _cases(store: Store, before: RunSummary, after: RunSummary) -> Iterator[RunDifference]:
    earlier_values, now = (dict(store.runs.case_versions(run.id)) for run in (before, after))
    edited_ids = [name for name in now if earlier_values.get(name) != now[name]]
    removed_ids = [name for name in earlier_values if name not in now]
    ids = [*edited_ids, *removed_ids][:MAX_CASES]
    authors = _authors(store, after.config.evalset_id, ids)
    # Of one version of the whole set other cases are played by choice: the person who started the run chose them.
    is_same_set = bool(after.config.set_version) and before.config.set_version == after.config.set_version
    chooser = _starter(after) if is_same_set else OUTSIDE
    for name in edited_ids:
        words = "edited" if name in earlier_values else "added" if before.n_cases < after.n_cases else "played only now"
        yield RunDifference("case", name, words, authors.get((name, now[name]), chooser))
    for name in removed_ids:
        who = authors.get((name, ""))
        yield RunDifference("case", name, "deleted" if who else "not in the later run", who or chooser)
    if before.config.without == after.config.without:  # else the option is named, with the person who gave it
        yield from _quarantine(store, before, after, {name for name in now if name in earlier_values})


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


def _authors(store: Store, evalset_id: str, case_ids: Sequence[str]) -> Mapping[tuple[str, str], str]:
    """The author of each version of some cases; of an accepted proposal its client, and the person who accepted it."""
    proposals = store.client_proposals
    authors: dict[tuple[str, str], str] = {}
    for edit in proposals.edits(evalset_id, case_ids):
        authors.setdefault((edit.case_id, edit.version), edit.author)
    names = set(case_ids)
    for proposal in proposals.list("accepted", evalset_id=evalset_id):
        draft = proposal.accepted_draft
        if draft.case_id in names and draft.kind in ("case", "edit", "expectation"):
            with suppress(FormatError):  # of a row that another program wrote, which says nothing of an author
                version = case_version(case_from_text(draft.after, "the proposal"))
                authors[draft.case_id, version] = proposal.deciders
    return authors


def _criteria(before: RunSummary, after: RunSummary) -> Iterator[RunDifference]:
    earlier_values, now = ({each.metric: each for each in run.config.criteria} for run in (before, after))
    for name in dict.fromkeys((*earlier_values, *now)):
        if earlier_values.get(name) != now.get(name):
            words = f"{_criterion_words(earlier_values.get(name))} -> {_criterion_words(now.get(name))}"
            yield RunDifference("criterion", name, words, _starter(after))


def _criterion_words(criterion: Criterion | None) -> str:
    if criterion is None:
        return "none"
    threshold = "no threshold" if criterion.threshold is None else f"threshold {criterion.threshold:g}"
    options = f", {short_json(plain_json(criterion.options), 200)}" if criterion.options else ""
    return f"{threshold}{options}"


def _gates(before: RunSummary, after: RunSummary) -> Iterator[RunDifference]:
    for each in fields(after.config.gates):
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
