"""The page of a review queue: one trial to read and the squares of all; its list; and the form of a new queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.failures import TypedFinding
from evaldesk.diff.divergence import Divergence
from evaldesk.errors import NotFoundError
from evaldesk.model import TurnRecord
from evaldesk.model.failures import Finding, Mode
from evaldesk.model.json_text import json_line
from evaldesk.model.queues import QUEUE_KINDS, VERDICT_KINDS, Queue, QueueItem, QueueKind, QueueProgress
from evaldesk.model.stored import RunSummary
from evaldesk.model.trial_turns import PlayedTurn, TrialTurns
from evaldesk.pages.accepting import accept_href
from evaldesk.pages.case_whole import outputs_text, rubrics_text
from evaldesk.pages.json_tree import cut
from evaldesk.pages.queues.result import (
    DECIDED,
    SAID,
    QueueResult,
    queue_result,
    queue_title,
    runs_of,
)
from evaldesk.pages.runs.view import trial_href, window
from evaldesk.pages.trial import piece_of
from evaldesk.pages.trial_turns import (
    EVENTS_ROOM,
    MAX_SAID,
    PAGE_ROOM,
    Gap,
    Room,
    ScoreLine,
    TurnPanel,
    pieces_of,
    recorded_turns,
    score_lines,
    turn_part,
    turn_pieces,
)
from evaldesk.store.queues import moment_id

MAX_SQUARES = 100
N_CHIPS = 12
N_QUEUES = 10
BADGES: Mapping[str, str] = {"passed": "passed", "failed": "failed", "unsure": "unscored", "": "queued"}


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The place of a reader in a queue, as in its addresses. `at` is the place of a trial, None for the next unread.

    `is_open` shows verdicts and scores before a label is given.
    """

    queue_id: int
    at: int | None = None
    reader: str = ""
    is_open: bool | None = None

    def href(self, at: int | None = None, *, is_open: bool | None = None) -> str:
        """The address of a trial of the queue, or of the next unread one."""
        is_verdict_open = self.is_open if is_open is None else is_open
        parts = {
            "at": at,
            "reader": self.reader,
            "blind": None if is_verdict_open is None else "off" if is_verdict_open else "on",
        }
        query = urlencode({name: value for name, value in parts.items() if value})
        return f"/queues/{self.queue_id}" + (f"?{query}" if query else "")

    def turn_href(self, at: int) -> str:
        """The address of a trial of the queue, to which the number of a turn is added."""
        href = self.href(at)
        return f"{href}{'&' if '?' in href else '?'}turn="


@dataclass(frozen=True, slots=True)
class Chip:
    """A failure mode, its number of trials in the queue, and whether this trial shows it."""

    mode: Mode
    n: int
    is_here: bool


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expectations of a turn or a case, as text, without a comparison."""

    title: str
    calls: Sequence[str] | None
    answer: str


@dataclass(frozen=True, slots=True)
class TrialToRead:
    """The trial to read. While it `is_hidden` nothing in `pieces`, `divergence` and `scores` shows the scores."""

    item: QueueItem
    turns: TrialTurns
    is_hidden: bool
    events_href: str
    pieces: Sequence[TurnPanel | Gap]
    expected: Sequence[Expectation]
    divergence: Divergence | None
    scores: Sequence[ScoreLine]
    accept_href: str
    findings: Sequence[tuple[Finding, str]]
    chips: Sequence[Chip]
    modes: Sequence[Mode]


@dataclass(frozen=True, slots=True)
class QueuePage:
    """All that the pages of a queue show; `trial` is None once all are read, `result` before. An empty queue has none.

    `just_stored` are the trials whose labels were stored by the last request.
    """

    queue: Queue
    place: QueuePlace
    title: str
    reader: str
    readers: Sequence[str]
    is_blind: bool
    items: Sequence[QueueItem]
    trial: TrialToRead | None
    result: QueueResult | None
    others: Sequence[QueueProgress]
    draft: TypedFinding
    just_stored: Sequence[QueueItem] = ()
    undone: str = ""
    problem: str = ""
    note: str | None = None

    @property
    def n_read(self) -> int:
        """The trials that the reader labelled."""
        return sum(each.is_read for each in self.items)

    @property
    def index(self) -> int:
        """The index of the trial to read; 0 where there is none."""
        return self.items.index(self.trial.item) if self.trial else 0

    @property
    def strip(self) -> Sequence[tuple[int, QueueItem]]:
        """The trials by their numbers; of very many those around the current one."""
        indexes = window(self.index, len(self.items), MAX_SQUARES)
        return [(at + 1, self.items[at]) for at in indexes]

    @property
    def previous(self) -> QueueItem | None:
        """The trial before the one to read."""
        return self.items[self.index - 1] if self.index else None

    @property
    def following(self) -> QueueItem | None:
        """The trial after the one to read."""
        return self.items[self.index + 1] if self.trial and self.index + 1 < len(self.items) else None


def read_queue(
    desk: Desk,
    place: QueuePlace,
    *,
    places_stored: Collection[int] = (),
    problem: str = "",
    note: str | None = None,
    draft: TypedFinding | None = None,
    is_whole: bool = False,
    turn: int = 0,
    undone: str = "",
) -> QueuePage:
    """A queue at a place; `places_stored` are the trials labelled just now, `undone` names the undone step.

    `turn` is the number of the turn that the address names.

    Raises NotFoundError.
    """
    queue = desk.queues.get(place.queue_id)
    reader = desk.queues.reader(place.reader)
    items = desk.store.queues.items(queue.id, reader)
    is_blind = queue.is_blind if place.is_open is None else not place.is_open
    item = _current(items, place.at)
    runs = runs_of(desk, queue)
    view_options = {"is_blind": is_blind, "is_whole": is_whole}
    trial = _trial(desk, queue, item, runs, reader, turn, **view_options) if item else None
    return QueuePage(
        queue=queue,
        place=place,
        title=queue_title(queue, runs),
        reader=reader,
        readers=[name for name in desk.store.labels.labellers() if name != reader][:8],
        is_blind=is_blind,
        items=items,
        trial=trial,
        result=queue_result(desk, queue, items, runs, reader) if items and not item else None,
        others=[] if item else [each for each in desk.store.queues.list(reader, N_QUEUES) if each.queue.id != queue.id],
        just_stored=[each for each in items if each.place in places_stored and each.is_read],
        undone=undone,
        problem=problem,
        note=note,
        draft=draft or TypedFinding(reader),
    )


def is_hidden(desk: Desk, place: QueuePlace) -> tuple[QueueItem, bool]:
    """A trial of the queue, and whether its scores are hidden from the reader. Raises NotFoundError."""
    queue = desk.queues.get(place.queue_id)
    items = desk.store.queues.items(queue.id, desk.queues.reader(place.reader))
    item = next((each for each in items if each.place == place.at), None)
    if item is None:
        raise NotFoundError(f"review queue {queue.id} has no trial {place.at}")
    return item, (queue.is_blind if place.is_open is None else not place.is_open) and not item.is_read


def next_unread(desk: Desk, place: QueuePlace, after: int) -> int | None:
    """The place of the next trial without a verdict, from the start again after the last; None when all are read."""
    queue = desk.queues.get(place.queue_id)
    items = desk.store.queues.items(queue.id, desk.queues.reader(place.reader))
    unread = [each.place for each in items if not each.is_read]
    return next((at for at in unread if at > after), next(iter(unread), None))


def blind_turn(
    desk: Desk, item: QueueItem, turn: int, first: int = 0, *, has_events: bool = False
) -> tuple[TrialTurns, TurnPanel]:
    """A turn without the verdict. Raises NotFoundError."""
    turns = _blind(recorded_turns(desk.store.runs, item.run_id, item.key))
    return turns, turn_part(turns, turn, first, has_events=has_events)


def blind_piece(desk: Desk, item: QueueItem, first: int, last: int) -> Sequence[TurnPanel | Gap]:
    """The turns of a gap as the same reader sees them. Raises NotFoundError where there is none."""
    return piece_of(_blind(recorded_turns(desk.store.runs, item.run_id, item.key)), first, last)


def _blind(turns: TrialTurns) -> TrialTurns:
    """The trial without anything that it is compared with, without scores, and without errors, which are verdicts."""

    def read(first: int, end: int) -> Sequence[PlayedTurn]:
        return [
            PlayedTurn(
                type(each.turn)(query=each.turn.query) if each.turn else None,
                _without_errors(each.record) if each.record else None,
            )
            for each in turns.read_turns(first, end)
        ]

    result = replace(turns.result, scores=()) if turns.result else None
    return replace(turns, case=replace(turns.case, final_state=None, rubrics=()), result=result, read_turns=read)


def _without_errors(record: TurnRecord) -> TurnRecord:
    return replace(record, events=tuple(each for each in record.events if each.kind != "error"))


def _current(items: Sequence[QueueItem], at: int | None) -> QueueItem | None:
    if at is not None:
        return next((each for each in items if each.place == at), None) or _current(items, None)
    return next((each for each in items if not each.is_read), None)


def label_badge(item: QueueItem) -> str:
    """The status whose colour shows the reader's label."""
    return BADGES[item.verdict if item.is_read else ""]


def label_word(item: QueueItem) -> str:
    """`pass`, `fail` or `unsure`: the reader's label."""
    return SAID[item.verdict]


def box_value(item: QueueItem) -> str:
    """The value of the item's box in a form: its place, and the time of the label that the reader saw."""
    return f"{item.place}.{moment_id(item.label.labelled_at) if item.label else 0}"


def metrics_words(item: QueueItem) -> str:
    """The verdict of the metrics, after a label, compared with it."""
    if item.trial_verdict not in DECIDED:
        return f"The trial is {item.trial_verdict}." if item.trial_verdict else ""
    words = f"The metrics said {item.trial_verdict}"
    if item.verdict not in DECIDED:
        return f"{words}."
    return f"{words}, too." if item.verdict == item.trial_verdict else f"{words}: you disagree."


def _trial(
    desk: Desk,
    queue: Queue,
    item: QueueItem,
    runs: Mapping[int, RunSummary],
    reader: str,
    turn: int,
    *,
    is_blind: bool,
    is_whole: bool,
) -> TrialToRead:
    store = desk.store
    turns, divergence = store.runs.turns(item.run_id, *item.key)
    result = turns.result
    is_hidden = is_blind and not item.is_read
    room = Room() if is_whole and not turns.is_large else Room(PAGE_ROOM, EVENTS_ROOM)
    broken = [divergence.turn - 1] if divergence and not is_hidden else []
    pieces = pieces_of(turns.n_turns, [turn - 1, *broken] if turn else [0, *broken])
    modes = [mode for mode in store.failures.modes() if mode.is_active]
    names = {mode.id: mode.name for mode in store.failures.modes()}
    here = store.failures.of_trial(item.labelled_run, item.key)
    mine = [each for each in here if each.author == reader and each.status == "counted"]
    findings = mine if is_hidden else [each for each in here if each.status == "counted"]
    return TrialToRead(
        item=item,
        turns=turns,
        is_hidden=is_hidden,
        events_href=f"/queues/{queue.id}/trials/{item.place}" if is_hidden else trial_href(item.run_id, item.key),
        pieces=turn_pieces(_blind(turns) if is_hidden else turns, pieces, MAX_SAID, room, turn - 1) if result else (),
        expected=_expectations(turns, pieces) if is_hidden else (),
        divergence=None if is_hidden else divergence,
        scores=score_lines(result.scores, turns.summary.turn_metrics) if result and not is_hidden else (),
        accept_href="" if is_hidden else accept_href(desk, runs[item.run_id], turns, divergence),
        findings=[(each, names.get(each.mode_id or 0, "")) for each in findings],
        chips=_chips(desk, queue, modes, {each.mode_id for each in mine}, reader),
        modes=modes,
    )


def _expectations(turns: TrialTurns, pieces: Sequence[range | Gap]) -> list[Expectation]:
    """The expectations of the turns that are drawn, and of the whole conversation."""
    expectations, case = [], turns.case
    played_pieces = (
        zip(each, turns.read_turns(each.start, each.stop), strict=True) for each in pieces if isinstance(each, range)
    )
    for index, turn in (
        (index, played_turn.turn) for some in played_pieces for index, played_turn in some if played_turn.turn
    ):
        calls, answer = turn.expected.tool_calls, turn.expected.reference or ""
        if calls is not None or answer:
            lines = None if calls is None else [f"{call.name} {json_line(call.args)}" for call in calls]
            expectations.append(Expectation(f"Turn {index + 1}", lines, answer))
    state = "" if case.final_state is None else json_line(case.final_state)
    texts_by_title = {"Final state": state, "Required texts": outputs_text(case), "Rubrics": rubrics_text(case)}
    return expectations + [
        Expectation(title, None, cut(text, MAX_SAID)) for title, text in texts_by_title.items() if text
    ]


def _chips(desk: Desk, queue: Queue, modes: Sequence[Mode], here: Collection[int | None], reader: str) -> list[Chip]:
    """The kinds of failure that are most frequent in the queue, those of this trial among them."""
    places_by_mode = desk.store.queues.findings(queue.id, reader)
    chips = [Chip(mode, len(places_by_mode.get(mode.id, ())), mode.id in here) for mode in modes]
    return sorted(chips, key=lambda chip: (not chip.is_here, -chip.n, chip.mode.id))[:N_CHIPS]


def places(texts: Iterable[str]) -> list[int]:
    """The places that the tick boxes of a form name, without invented ones."""
    heads = (text.partition(".")[0] for text in texts)
    return [int(head) for head in heads if head.isascii() and head.isdecimal() and len(head) < 10]


@dataclass(frozen=True, slots=True)
class NewQueuePage:
    """The form for a queue, and the queues there are.

    `counts` are the trials of each kind, None where they are counted only when the queue is drawn. `queue_runs` are the
    runs of the queues.
    """

    runs: Sequence[RunSummary]
    chosen_runs: Sequence[RunSummary]
    counts: Mapping[QueueKind, int | None]
    chosen_kinds: Collection[QueueKind]
    n: str
    reader: str
    is_blind: bool
    queues: Sequence[QueueProgress]
    queue_runs: Mapping[int, RunSummary]
    problem: str = ""
    field: str = ""

    @property
    def kinds(self) -> Mapping[QueueKind, tuple[str, str]]:
        """Title and words of every kind."""
        return QUEUE_KINDS


def _first_to_read(desk: Desk, runs: Sequence[RunSummary], reader: str) -> Sequence[RunSummary]:
    """The newest of the runs with a trial that the reader has not labelled, else the newest one."""
    for run in runs:
        candidates = desk.queues.candidates(run.id, reader)
        if any(candidates.find(kind) for kind in VERDICT_KINDS.values()):
            return [run]
    return runs[:1]


def new_queue_page(
    desk: Desk,
    run_ids: Sequence[int],
    kinds: Collection[str],
    n: str = "",
    *,
    reader: str = "",
    is_blind: bool = True,
    problem: str = "",
    field: str = "",
) -> NewQueuePage:
    """The form for a queue of these runs; without any of the newest one in which the reader has trials to read.

    Unless kinds are chosen it draws 10 of each verdict. Raises NotFoundError.
    """
    runs = desk.store.runs.list(limit=50)
    who = desk.queues.reader(reader)
    runs_chosen = [desk.store.runs.summary(run_id) for run_id in run_ids] or _first_to_read(desk, runs, who)
    candidates = [desk.queues.candidates(run.id, who) for run in runs_chosen]
    is_drawn_evenly = not any(kind in kinds for kind in QUEUE_KINDS)
    counts = {
        kind: None if kind == "disputed" else sum(len(each.find(kind)) for each in candidates) for kind in QUEUE_KINDS
    }
    queues = desk.store.queues.list(who, N_QUEUES)
    return NewQueuePage(
        runs=[run for run in runs if run not in runs_chosen],
        chosen_runs=runs_chosen,
        counts=counts,
        chosen_kinds={kind for kind in QUEUE_KINDS if kind in (VERDICT_KINDS.values() if is_drawn_evenly else kinds)},
        n=n or ("10" if is_drawn_evenly else "40"),
        reader=who,
        is_blind=is_blind,
        queues=queues,
        queue_runs={number: run for each in queues for number, run in runs_of(desk, each.queue).items()},
        problem=problem,
        field=field,
    )
