"""The page of a review queue: one trial to read and the squares of all; its list; and the form of a new queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.failures import TypedFinding
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.diff.divergence import Divergence
from evaldesk.errors import NotFoundError
from evaldesk.model import TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.model.failures import Finding, Mode
from evaldesk.model.json_text import json_line
from evaldesk.model.queues import QUEUE_KINDS, Queue, QueueItem, QueueKind, QueueProgress
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
    queue_words,
    runs_of,
    trial_name,
)
from evaldesk.pages.runs.view import trial_href, window
from evaldesk.pages.trial import piece_of, recorded_turns
from evaldesk.pages.trial_turns import (
    EVENTS_ROOM,
    MAX_SAID,
    PAGE_ROOM,
    Gap,
    Room,
    ScoreLine,
    TurnPanel,
    pieces_of,
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
class QueueSquare:
    """One trial of the queue, as the reader labelled it."""

    number: int
    status: str
    words: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Chip:
    """A failure mode, its number of trials in the queue, and whether this trial shows it."""

    mode: Mode
    n: int
    is_here: bool


@dataclass(frozen=True, slots=True)
class StoredLine:
    """The last stored label with its trials, and now the scores of the metrics."""

    badge: str
    verdict: str
    words: str
    metrics: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expectations of a turn or a case, as text, without a comparison."""

    title: str
    calls: Sequence[str] | None
    answer: str


@dataclass(frozen=True, slots=True)
class TrialToRead:
    """The trial to read. While it `is_hidden` nothing in it shows the scores."""

    item: QueueItem
    number: int
    label_id: int
    href: str
    events_href: str
    is_hidden: bool
    is_read: bool
    summary: str
    result: TrialResult | None
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
    """All that the page shows; `trial` is None once all are read, `result` before. Neither is in an empty queue."""

    queue: Queue
    place: QueuePlace
    title: str
    words: str
    reader: str
    readers: Sequence[str]
    is_blind: bool
    n: int
    n_read: int
    squares: Sequence[QueueSquare]
    previous_href: str
    next_href: str
    trial: TrialToRead | None
    result: QueueResult | None
    others: Sequence[QueueProgress]
    draft: TypedFinding
    stored_line: StoredLine | None = None
    undone: str = ""
    problem: str = ""
    note: str | None = None


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
    at = items.index(item) if item else -1
    view_options = {"is_blind": is_blind, "is_whole": is_whole}
    trial = _trial(desk, queue, item, at + 1, runs, reader, turn, **view_options) if item else None
    return QueuePage(
        queue=queue,
        place=place,
        title=queue_title(queue, runs),
        words=queue_words(queue),
        reader=reader,
        readers=[name for name in desk.store.labels.labellers() if name != reader][:8],
        is_blind=is_blind,
        n=len(items),
        n_read=sum(each.is_read for each in items),
        squares=_squares(items, place, item),
        previous_href=place.href(items[at - 1].place) if at > 0 else "",
        next_href=place.href(items[at + 1].place) if item and at + 1 < len(items) else "",
        trial=trial,
        result=queue_result(desk, queue, items, runs, reader) if items and not item else None,
        others=[] if item else [each for each in desk.store.queues.list(reader, N_QUEUES) if each.queue.id != queue.id],
        stored_line=_stored_line(items, places_stored),
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
    """The trial without anything that it is compared with, and without scores."""

    def read(first: int, end: int) -> Sequence[PlayedTurn]:
        return [
            PlayedTurn(type(each.turn)(query=each.turn.query) if each.turn else None, each.record)
            for each in turns.read_turns(first, end)
        ]

    result = replace(turns.result, scores=()) if turns.result else None
    return replace(turns, case=replace(turns.case, final_state=None, rubrics=()), result=result, read_turns=read)


def _current(items: Sequence[QueueItem], at: int | None) -> QueueItem | None:
    if at is not None:
        return next((each for each in items if each.place == at), None) or _current(items, None)
    return next((each for each in items if not each.is_read), None)


def _squares(items: Sequence[QueueItem], place: QueuePlace, current: QueueItem | None) -> list[QueueSquare]:
    """The trials of the queue; of very many those around the current one."""
    indexes = window(items.index(current) if current else 0, len(items), MAX_SQUARES)
    return [
        QueueSquare(
            number=number + 1,
            status=BADGES[each.verdict if each.is_read else ""],
            words=f"you said {SAID[each.verdict]}" if each.is_read else "unread",
            href=place.href(each.place),
            is_current=each is current,
        )
        for number, each in zip(indexes, items[indexes.start : indexes.stop], strict=True)
    ]


def _stored_line(items: Sequence[QueueItem], places: Collection[int]) -> StoredLine | None:
    items_read = [each for each in items if each.place in places and each.is_read]
    if not items_read:
        return None
    verdict = items_read[0].verdict
    if len(items_read) > 1:
        return StoredLine(BADGES[verdict], SAID[verdict], f"{len(items_read):,} trials", "")
    return StoredLine(BADGES[verdict], SAID[verdict], trial_name(items_read[0]), _metrics_words(items_read[0]))


def _metrics_words(item: QueueItem) -> str:
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
    number: int,
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
    address = trial_href(item.run_id, item.key)
    modes = [mode for mode in store.failures.modes() if mode.is_active]
    names = {mode.id: mode.name for mode in store.failures.modes()}
    here = store.failures.of_trial(item.labelled_run, item.key)
    mine = [each for each in here if each.author == reader and each.status == "counted"]
    findings = mine if is_hidden else [each for each in here if each.status == "counted"]
    return TrialToRead(
        item=item,
        number=number,
        label_id=moment_id(item.label.labelled_at) if item.label else 0,
        href=address,
        events_href=f"/queues/{queue.id}/trials/{item.place}" if is_hidden else address,
        is_hidden=is_hidden,
        is_read=item.is_read,
        summary=_trial_words(turns),
        result=result,
        pieces=turn_pieces(_blind(turns) if is_hidden else turns, pieces, MAX_SAID, room, turn - 1) if result else (),
        expected=_expectations(turns, pieces) if is_hidden else (),
        divergence=None if is_hidden else divergence,
        scores=score_lines(result.scores, turns.summary.turn_metrics) if result and not is_hidden else (),
        accept_href="" if is_hidden else accept_href(desk, runs[item.run_id], turns, divergence),
        findings=[(each, names.get(each.mode_id or 0, "")) for each in findings],
        chips=_chips(desk, queue, modes, {each.mode_id for each in mine}, reader),
        modes=modes,
    )


def _trial_words(turns: TrialTurns) -> str:
    if turns.result is None:
        return "Nothing is recorded of this trial"
    return f"{counted(turns.summary.n_turns, 'turn')}, {counted(turns.summary.n_calls, 'call')}"


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


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A trial of a queue as one line; the scores only where they are not hidden."""

    item: QueueItem
    name: str
    href: str
    box: str
    is_read: bool
    metrics: str


@dataclass(frozen=True, slots=True)
class QueueTrials:
    """The trials of a queue as a list, to label many at once."""

    page: QueuePage
    lines: Sequence[QueueLine]


def queue_trials(
    desk: Desk, place: QueuePlace, *, places_stored: Collection[int] = (), problem: str = ""
) -> QueueTrials:
    """All trials of a queue. Raises NotFoundError."""
    page = read_queue(desk, place, places_stored=places_stored, problem=problem)
    items = desk.store.queues.items(page.queue.id, page.reader)
    return QueueTrials(page, [_line(page, item) for item in items])


def _line(page: QueuePage, item: QueueItem) -> QueueLine:
    is_read = item.is_read
    label_id = moment_id(item.label.labelled_at) if item.label else 0
    metrics = (item.trial_verdict or "") if is_read or not page.is_blind else ""
    return QueueLine(item, trial_name(item), page.place.href(item.place), f"{item.place}.{label_id}", is_read, metrics)


def places(texts: Iterable[str]) -> list[int]:
    """The places that the tick boxes of a form name, without invented ones."""
    heads = (text.partition(".")[0] for text in texts)
    return [int(head) for head in heads if head.isascii() and head.isdecimal() and len(head) < 10]


@dataclass(frozen=True, slots=True)
class KindChoice:
    """A kind of trials that a new queue can be drawn from; `n` is None where it is counted only when it is drawn."""

    kind: QueueKind
    title: str
    words: str
    n: int | None
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class NewQueuePage:
    """The form for a queue, and the queues there are."""

    runs: Sequence[tuple[RunSummary, str]]
    chosen_runs: Sequence[tuple[RunSummary, str]]
    kinds: Sequence[KindChoice]
    n: str
    reader: str
    is_blind: bool
    queues: Sequence[tuple[QueueProgress, str, str]]
    problem: str = ""
    field: str = ""


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
    """The form for a queue of these runs, of the newest one without any. Raises NotFoundError."""
    runs = desk.store.runs.list(limit=50)
    runs_chosen = [desk.store.runs.summary(run_id) for run_id in run_ids] or runs[:1]
    who = desk.queues.reader(reader)
    candidates = [desk.queues.candidates(run.id, who) for run in runs_chosen]
    counts = {
        kind: None if kind == "disputed" else sum(len(each.find(kind)) for each in candidates) for kind in QUEUE_KINDS
    }
    kinds_ticked = {kind for kind in QUEUE_KINDS if kind in kinds} or {"failed"}
    return NewQueuePage(
        runs=[(run, run_title(run)) for run in runs if run not in runs_chosen],
        chosen_runs=[(run, run_title(run)) for run in runs_chosen],
        kinds=[
            KindChoice(kind, title, words, counts[kind], kind in kinds_ticked)
            for kind, (title, words) in QUEUE_KINDS.items()
        ],
        n=n or "40",
        reader=who,
        is_blind=is_blind,
        queues=[
            (each, queue_title(each.queue, runs_of(desk, each.queue)), queue_words(each.queue))
            for each in desk.store.queues.list(who, N_QUEUES)
        ],
        problem=problem,
        field=field,
    )
