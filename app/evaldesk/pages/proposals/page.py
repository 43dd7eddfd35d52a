"""The page of proposals: the open ones with their effect, and one of them in whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from evaldesk.desk.client_proposals import (
    ClientProposalDesk,
    ProposalEffect,
    case_of,
    content_of,
    draft_version,
    finding_texts,
    merged_case,
    mode_texts,
)
from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.cases import case_keys
from evaldesk.errors import EvaldeskError
from evaldesk.formats import case_to_json
from evaldesk.model import Case, Counts
from evaldesk.model.conclusion import counted
from evaldesk.model.failures import TRIALS
from evaldesk.model.json_text import short_json
from evaldesk.model.proposals import TITLES, Proposal
from evaldesk.model.stored import LabelFilter, RunSummary
from evaldesk.pages.case_text import Line, changed_lines
from evaldesk.pages.proposals.trace import TraceStep, steps_before
from evaldesk.pages.proposals.values import ChangedPlace, ValueRow, changed_place, value_rows
from evaldesk.pages.runs.view import trial_href

N_EFFECTS = 20
"""Open proposals in the list with their effect; each re-scores the trials of one case."""
MAX_GROUP = 50
MAX_WORDS = 6
MAX_SQUARES = 60
MAX_FILE = 2_000_000
MAX_TRIALS_READ = 20_000


@dataclass(frozen=True, slots=True)
class ProposalLine:
    """A proposal in the list: its subject, its effect in a word or two, and a line below. `way` colours the effect."""

    id: int
    name: str
    part: str
    effect: str
    words: str
    way: str = ""


@dataclass(frozen=True, slots=True)
class PersonWords:
    """Words of a person on a trial of the same case."""

    text: str
    author: str
    place: str
    href: str


@dataclass(frozen=True, slots=True)
class ProposalView:
    """One proposal in whole: its lines, its words, its effect, and the words of people on the same trials.

    `group` has the proposals that are answered with it: findings of one kind by one client.
    """

    proposal: Proposal
    title: str
    href: str
    author: str
    group: Sequence[Proposal]
    place: ChangedPlace | None = None
    query: str = ""
    lines: Sequence[Line] = ()
    lines_of: str = ""
    texts: Sequence[tuple[str, str]] = ()
    findings: Sequence[tuple[str, str, str, str]] = ()
    """Of each finding of a group its quote, its note, its trial and the address of that."""
    effect: ProposalEffect | None = None
    run: RunSummary | None = None
    values: Sequence[ValueRow] = ()
    people: Sequence[PersonWords] = ()
    steps: Sequence[TraceStep] = ()
    content: str = ""

    @property
    def ids(self) -> str:
        """The numbers of all that are answered together."""
        return ",".join(str(each.id) for each in self.group)

    @property
    def seen(self) -> str:
        """The versions of their contents, which an acceptance names."""
        return ",".join(draft_version(each.draft) for each in self.group)

    @property
    def n_changed(self) -> int:
        """The lines that would be added or removed."""
        return sum(line.op in ("+", "-") for line in self.lines)

    @property
    def is_change(self) -> bool:
        """Whether a case would change."""
        return self.proposal.draft.kind in ("edit", "expectation")

    @property
    def run_words(self) -> str:
        """`8 of 12 → 8 of 10`: the passing trials of the run, without the change and with it."""
        if self.effect is None or self.run is None:
            return ""
        effect, counts = self.effect.effect, self.run.counts
        errors_fail = effect.before.errors_are_failures
        judged = Counts.of_verdicts([each.verdict for each in self.effect.trials], errors_are_failures=errors_fail)
        sides = [
            f"{counts.passed + each.passed - judged.passed:,} of {counts.scored + each.scored - judged.scored:,}"
            for each in (effect.before, effect.after)
        ]
        return " → ".join(sides)

    @property
    def edit_words(self) -> str:
        """The sentence that the case was edited after the run and before the proposal; empty where it was not."""
        if self.effect is None or not self.effect.is_edited:
            return ""
        return "The case was edited after the run; that edit is on both sides."

    @property
    def effect_words(self) -> tuple[str, str]:
        """`8 trials would turn green because the test changes,` and `not the agent`."""
        if self.effect is None:
            return "", ""
        changes = [f"{counted(n, 'trial')} would {way}" for way, n in self.effect.effect.n_by_change.items()]
        if not changes:
            return "The same trials would pass as before", ""
        return f"{' and '.join(changes)} because the test changes,", "not the agent"

    @property
    def squares(self) -> tuple[Sequence[str], Sequence[str]]:
        """The first verdicts of the trials now and then."""
        if self.effect is None:
            return (), ()
        return self.effect.effect.verdicts_before[:MAX_SQUARES], self.effect.effect.verdicts_after[:MAX_SQUARES]


@dataclass(frozen=True, slots=True)
class ProposalPage:
    """The open proposals and the chosen one."""

    lines: Sequence[ProposalLine]
    view: ProposalView | None
    clients: str = ""
    open_proposals: Sequence[Proposal] = field(default=(), repr=False)

    @property
    def times(self) -> tuple[datetime, datetime] | None:
        """When the first and the last open proposal was made."""
        times = [each.made_at for each in self.open_proposals]
        return (min(times), max(times)) if times else None


def read_proposals(desk: Desk, proposal_id: int | None = None, ids: Sequence[int] = ()) -> ProposalPage:
    """The page of the open proposals, and of one by its number, else of the oldest.

    `ids` are those that were answered with it. Raises NotFoundError.
    """
    proposals = ClientProposalDesk(desk)
    open_proposals = proposals.list()[::-1]
    reader = _Reader(desk, proposals)
    groups = _groups(open_proposals)
    lines = [reader.line(group, with_effect=at < N_EFFECTS) for at, group in enumerate(groups)]
    clients = ", ".join(dict.fromkeys(each.client for each in open_proposals))
    if proposal_id is None and not open_proposals:
        return ProposalPage((), None)
    return ProposalPage(
        lines,
        _view(reader, groups, groups[0][0].id if proposal_id is None else proposal_id, ids),
        clients,
        open_proposals,
    )


def read_proposal(desk: Desk, proposal_id: int) -> ProposalView:
    """One proposal in whole, for the page of its object. Raises NotFoundError."""
    proposals = ClientProposalDesk(desk)
    return _view(_Reader(desk, proposals), _groups(proposals.list()[::-1]), proposal_id, ())


def _view(reader: _Reader, groups: Sequence[Sequence[Proposal]], proposal_id: int, ids: Sequence[int]) -> ProposalView:
    group = next((each for each in groups if any(one.id == proposal_id for one in each)), None)
    if group is None:
        chosen = reader.proposals.get(proposal_id)
        others = [reader.proposals.get(each) for each in ids[:MAX_GROUP] if each != proposal_id]
        group = [chosen, *(each for each in others if _group_key(each) == _group_key(chosen))]
    return reader.view(group)


def _groups(open_proposals: Sequence[Proposal]) -> Sequence[Sequence[Proposal]]:
    """The proposals in their order, findings of one kind by one client as one group."""
    groups: dict[Any, list[Proposal]] = {}
    for each in open_proposals:
        key = _group_key(each)
        if len(groups.get(key, ())) == MAX_GROUP:
            key = (key, each.id)
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def _group_key(proposal: Proposal) -> Any:
    draft = proposal.draft
    if draft.kind != "finding":
        return proposal.id
    try:
        return proposal.clients, draft.run, finding_texts(draft).kind
    except EvaldeskError:  # a row that another program wrote
        return proposal.id


class _Reader:
    """Reads eval sets and runs once for all proposals of a page."""

    def __init__(self, desk: Desk, proposals: ClientProposalDesk) -> None:
        self.desk = desk
        self.proposals = proposals
        self._effects: dict[int, ProposalEffect | None] = {}
        self._cases: dict[int, Case | None] = {}

    def effect(self, proposal: Proposal) -> ProposalEffect | None:
        if proposal.id not in self._effects:
            self._effects[proposal.id] = self.proposals.effect(proposal)
        return self._effects[proposal.id]

    def current(self, proposal: Proposal) -> Case | None:
        """The case as its eval set has it; None where it is gone."""
        if proposal.id not in self._cases:
            self._cases[proposal.id] = _or_none(lambda: self.proposals.current(proposal.draft))
        return self._cases[proposal.id]

    def place(self, proposal: Proposal) -> ChangedPlace | None:
        case = self.current(proposal)
        after = _or_none(lambda: case_of(proposal.draft))
        return changed_place(case, after) if case and after else None

    def line(self, group: Sequence[Proposal], *, with_effect: bool) -> ProposalLine:
        proposal = group[0]
        draft = proposal.draft
        if draft.kind in ("edit", "expectation"):
            place = self.place(proposal)
            effect = self.effect(proposal) if with_effect else None
            part = place.name if place and place.tool else ""
            words = _place_words(place) if place else TITLES[draft.kind]
            case = self.current(proposal) if draft.case_id.isdecimal() else None
            words += f", {short_json(case.turns[0].query, 80)}" if case and case.turns else ""
            way = "up" if effect and effect.effect.is_easier else ""
            return ProposalLine(proposal.id, draft.case_id, part, _short_effect(effect), words, way)
        if draft.kind == "case":
            case = _or_none(lambda: case_of(draft))
            first = case.turns[0].query if case and case.turns else ""
            return ProposalLine(proposal.id, draft.case_id, "", "new case", short_json(first, 80) if first else "")
        if draft.kind == "finding":
            texts = _or_none(lambda: finding_texts(draft))
            name = f"{counted(len(group), 'finding')}: {texts.kind}" if texts else draft.case_id
            trials = {(each.draft.run, each.draft.trial) for each in group}
            return ProposalLine(
                proposal.id,
                name,
                "",
                self._unread(group) if with_effect else "",
                f"quoted from {counted(len(trials), 'trial')}",
            )
        mode = _or_none(lambda: mode_texts(draft))
        return ProposalLine(proposal.id, draft.case_id, "", "new kind", mode.definition if mode else "")

    def _unread(self, group: Sequence[Proposal]) -> str:
        """`unread 9 → 5`: the failed trials of the run that no person read, now and with these findings."""
        run = self._run(group[0].draft.run)
        if run is None or run.config.n * run.n_cases > MAX_TRIALS_READ:
            return ""
        read = self.desk.store.failures.read_trials(run.id).read
        failed_trials: set[int] = set()
        after = ""
        while rows := self.desk.store.runs.case_rows(run.id, sort="file", only="failed", after=after, limit=500):
            failed_trials |= {
                row.case_index * TRIALS + at for row in rows for at, letter in enumerate(row.verdicts) if letter == "f"
            }
            after = rows[-1].cursor
        unread = failed_trials - read
        of_group = {each.draft.trial[0] * TRIALS + each.draft.trial[1] for each in group if each.draft.trial}
        return f"unread {len(unread):,} → {len(unread - of_group):,}"

    def _run(self, run_id: int | None) -> RunSummary | None:
        return None if run_id is None else _or_none(lambda: self.desk.store.runs.summary(run_id))

    def view(self, group: Sequence[Proposal]) -> ProposalView:
        proposal = group[0]
        draft = proposal.draft
        view = ProposalView(
            proposal,
            TITLES.get(draft.kind, draft.kind),
            self._href(proposal),
            self.desk.person.name(),
            group,
            content=_content(proposal),
            steps=steps_before(
                self.desk.store,
                proposal,
                is_easier=(effect := self.effect(proposal)) is not None and effect.effect.is_easier,
            ),
        )
        if draft.kind == "finding":
            return replace(view, findings=[self._finding(each) for each in group], texts=_texts(proposal))
        if draft.kind == "kind":
            return replace(view, texts=_texts(proposal))
        return self._of_case(view)

    def _finding(self, proposal: Proposal) -> tuple[str, str, str, str]:
        texts = finding_texts(proposal.draft)
        trial = proposal.draft.trial
        return texts.quote, texts.note, f"trial {trial[1] + 1}" if trial else "trial", self._href(proposal)

    def _of_case(self, view: ProposalView) -> ProposalView:
        proposal = view.proposal
        after = case_of(proposal.draft)
        before = None if proposal.draft.kind == "case" else self.current(proposal)
        if before and proposal.status == "open":
            after = _or_none(lambda: merged_case(proposal.draft, before)) or after
        place = changed_place(before, after) if before else None
        at = max(place.turn - 1, 0) if place else 0
        lines, lines_of = self._lines(proposal, before, after)
        effect = self.effect(proposal)
        return replace(
            view,
            place=place,
            query=after.turns[at].query if at < len(after.turns) else "",
            lines=lines,
            lines_of=lines_of,
            effect=effect,
            run=self._run(effect.run) if effect else None,
            values=value_rows(place, effect) if place and effect else (),
            people=self._people(effect) if effect else (),
        )

    def _lines(self, proposal: Proposal, before: Case | None, after: Case) -> tuple[Sequence[Line], str]:
        """The lines of the file, or of the case alone where the file is large or cannot be read."""
        draft = proposal.draft
        if proposal.status == "open":
            in_file: tuple[Sequence[Line], str] | None
            in_file = _or_none(lambda: self._file_lines(draft.evalset_id, before, after))
            if in_file is not None:
                return in_file
        old_text = _pretty(case_to_json(before)) if before else ""
        return changed_lines(old_text, _pretty(case_to_json(after))), "the case"

    def _file_lines(self, evalset_id: str, before: Case | None, after: Case) -> tuple[Sequence[Line], str] | None:
        evalset, _, file = self.desk.evalsets.read(evalset_id)
        if len(evalset.cases) > 2_000:
            return None
        write = self.desk.evalsets.writer(evalset_id)
        old_text = write(evalset).decode()
        if len(old_text) > MAX_FILE:
            return None
        cases = [after if before is not None and each == before else each for each in evalset.cases]
        cases += [after] if before is None else []
        return changed_lines(old_text, write(replace(evalset, cases=tuple(cases))).decode()), file.name

    def _people(self, effect: ProposalEffect) -> Sequence[PersonWords]:
        """Findings and noted labels of people on the trials of the effect."""
        store = self.desk.store
        words: list[PersonWords] = []
        names = {mode.id: mode.name for mode in store.failures.modes()}
        for finding in store.failures.list(effect.run):
            if finding.case_index == effect.case_index and (finding.anchor.quote or finding.note):
                key = (finding.case_index, finding.trial_index)
                kind = names.get(finding.mode_id or 0, "no name yet")
                words.append(
                    PersonWords(
                        finding.anchor.quote or finding.note,
                        f"{kind}, by {finding.author}",
                        f"trial {finding.trial_index + 1}",
                        trial_href(effect.run, key),
                    )
                )
        for each in store.labels.list(LabelFilter(run_id=effect.run), limit=200):
            key = each.key
            if key[0] == effect.case_index and each.label.note:
                verdict = each.label.verdict or "note"
                words.append(
                    PersonWords(
                        each.label.note,
                        f"{verdict}, by {each.label.labeller}",
                        f"trial {key[1] + 1}",
                        trial_href(effect.run, key),
                    )
                )
        return words[:MAX_WORDS]

    def _href(self, proposal: Proposal) -> str:
        draft = proposal.draft
        if draft.run is not None and draft.trial is not None and draft.kind == "finding":
            return trial_href(draft.run, draft.trial)
        if draft.kind in ("edit", "expectation"):
            case = self.current(proposal)
            if case is not None:
                return f"/evalsets/{draft.evalset_id}/cases/{case_keys([case])[0]}"
        return f"/evalsets/{draft.evalset_id}" if draft.evalset_id else "/failures"


def _short_effect(effect: ProposalEffect | None) -> str:
    """`+2 pass, 1 not counted`; `0` where no trial has another verdict."""
    if effect is None:
        return ""
    n_more = effect.effect.after.passed - effect.effect.before.passed
    n_uncounted = effect.effect.n_by_change.get("no longer count", 0)
    words = [f"{n_more:+,} pass".replace("-", "−")] if n_more else []
    words += [f"{n_uncounted:,} not counted"] if n_uncounted else []
    return ", ".join(words) or "0"


def _place_words(place: ChangedPlace) -> str:
    if not place.turn:
        return f"final state, {place.name}"
    return f"turn {place.turn}, {place.tool or place.name}"


def _texts(proposal: Proposal) -> Sequence[tuple[str, str]]:
    content: Mapping[str, Any] = content_of(proposal.draft)
    return [(name.replace("_", " "), str(text)) for name, text in content.items() if text not in (None, "")]


def _content(proposal: Proposal) -> str:
    return _pretty(content_of(proposal.draft))


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _or_none(read: Callable[[], Any]) -> Any:
    """The value; None where its eval set, run or row is gone or broken."""
    try:
        return read()
    except (EvaldeskError, ValueError):
        return None
