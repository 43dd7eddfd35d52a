"""The turns of a trial, each with its expectation, its events and its scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from evaldesk.diff.conversation_diff import is_of_conversation, rows_of_conversation
from evaldesk.diff.divergence import accepted_state
from evaldesk.diff.state import StateRow, state_rows
from evaldesk.diff.text_diff import unified_lines
from evaldesk.diff.turn_diff import CallRow, TurnDiff, turn_diff
from evaldesk.errors import NotFoundError
from evaldesk.llm.faults import INJECTED
from evaldesk.metrics import is_higher_better
from evaldesk.model import Event, Expected, Score, Transcript, TurnRecord, turn_verdict
from evaldesk.model.decisions import UNUSED
from evaldesk.model.media import Media
from evaldesk.model.stored import TrialKey
from evaldesk.model.trial_turns import MANY_TURNS, PlayedTurn, TrialTurns
from evaldesk.pages.conversation import (
    FoldedEvents,
    PartKind,
    TurnPart,
    event_text,
    folded_parts,
    parts_of,
    rendered_part,
    with_result,
)
from evaldesk.pages.json_tree import Node, cut, read_container
from evaldesk.pages.media import MediaView, media_views
from evaldesk.pages.prose import Markdown, Prose
from evaldesk.pages.source import PatchLine, patch_lines
from evaldesk.store import RunStore
from evaldesk.wording.json_layout import laid_out
from evaldesk.wording.words import needs_words, score_words, short_title

MAX_TEXT = 4_000
MAX_SAID = 20_000
PIECE = 50
"""Turns that come at once."""
PAGE_ROOM = 30_000
"""About so many characters of turns are on a page at first; the rest comes in parts as one scrolls."""
LEAST_ROOM = 8_000
PART_ROOM = 60_000
EVENTS_ROOM = 8_000
MAX_FOLDED = 160
MAX_COMPARED = 20_000
"""An answer and its reference of so many characters are compared word by word, longer ones line by line."""
MAX_LINES = 120
MAX_ASKED = 20
MAX_INNER = 40
"""The events inside of tools that a turn shows, each with so many characters of its text:"""
MAX_INNER_TEXT = 1_000
_INNER_KINDS = frozenset({"agent_message", "tool_call", "tool_result"})
MAX_PLACES = 200
"""The calls of a turn that a list offers."""


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """One metric's score of a turn or of the whole trial; `judge` is None without judges.

    `verdict` is empty where the metric only informs, or does not apply; `why` of a trial are reasons that no turn has.
    """

    title: str
    value: str
    needs: str
    verdict: str
    why: str
    trace: str
    criterion: str
    judge: JudgePanel | None

    @property
    def explanation(self) -> Prose | None:
        """A long reason, as its scorer wrote it; None for a sentence or two."""
        return Markdown().prose(self.why) if len(self.why) > MAX_FOLDED else None


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event: its index in the turn, its time if it is known, kind, and its content, cut at MAX_TEXT characters."""

    at: int
    at_ms: float | None
    kind: str
    text: str
    is_cut: bool


@dataclass(slots=True)
class Room:
    """How many characters of turns, and of their events, a page or a part of it still takes; None is no limit."""

    characters_left: float | None = None
    events_left: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether no turn is drawn any more."""
        return self.characters_left is not None and self.characters_left <= 0

    def after_lines(self, n_turns: int) -> Room:
        """The room that is left when each of the turns takes its line."""
        n_left = None if self.characters_left is None else max(LEAST_ROOM, self.characters_left - 150 * n_turns)
        return Room(n_left, self.events_left)


@dataclass(frozen=True, slots=True)
class Shown:
    """Which of `n` pieces of a turn are drawn: from `first` up to, without, `end`."""

    first: int
    end: int
    n: int

    @property
    def n_left(self) -> int:
        """How many pieces come after them."""
        return self.n - self.end


@dataclass(frozen=True, slots=True)
class TurnPanel:
    """One turn; `record` is None when it was never played. `status` is empty where no metric judged it.

    `answer` is the text of an answer that nothing is compared with, empty elsewhere. One of JSON with a reference of
    JSON has an `answer_tree`, and a long one the first `answer_lines` that differ. `unanswered` is the reference of a
    turn without an answer. `between` are the expected and the actual messages before the answer.

    `parts` are what the agent did in a turn that expects nothing, in order: nothing stands beside it. None elsewhere;
    there `calls` are compared, and `call_events` are the indexes of the events of the calls that the agent made.
    `asked` is what a person or the case was asked to decide, where `parts` do not tell it; `unused` are decisions of
    the case that were not, `faults` those that the run injected. `shown` counts the parts or the calls that are drawn,
    `events_shown` the events. A turn for which there was no room `is_folded`: nothing of what the agent did is drawn.
    `inner` are the first messages and calls inside of tools, of `n_inner`, where the calls are compared.
    """

    number: int
    query: Prose
    status: str
    answer: Prose
    diff: TurnDiff
    expected: Expected
    record: TurnRecord | None
    parts: Sequence[TurnPart] | None
    calls: Sequence[CallRow]
    call_events: Sequence[int]
    window: Shown
    scores: Sequence[ScoreLine]
    state: Sequence[StateRow]
    state_words: str
    events: Sequence[EventLine]
    events_shown: Shown
    requests: Sequence[TurnPart] = ()
    unused: Sequence[str] = ()
    faults: Sequence[str] = ()
    is_folded: bool = False
    is_large: bool = False
    media: tuple[MediaView, ...] = ()
    answer_media: tuple[MediaView, ...] = ()
    answer_tree: Node | None = None
    answer_lines: Sequence[PatchLine] = ()
    answer_prose: tuple[Prose, Prose] | None = None
    unanswered: Prose | None = None
    between: tuple[Sequence[Prose], Sequence[Prose]] = ((), ())
    inner: Sequence[TurnPart] = ()
    n_inner: int = 0

    @property
    def call_agents(self) -> Sequence[str]:
        """The agent of each call that the turn made, where several agents acted in it; empty elsewhere."""
        events = self.record.events if self.record else ()
        agents = {event.author for event in events if event.kind in ("agent_message", "tool_call") and event.author}
        return [events[at].author for at in self.call_events] if len(agents) > 1 else ()

    def rest_query(self, kind: str = "turn", first: int = 0) -> str:
        """The query of the page with the turn, or its rest of a kind, for readers without a script."""
        if not self.is_large:
            return "all=1"
        return f"turn={self.number}" if kind == "turn" else f"turn={self.number}&{kind}={first}"

    @property
    def places(self) -> Sequence[tuple[int, str]]:
        """The first calls that a finding may be about, each by the index of its event, with its tool."""
        events = enumerate(self.record.events if self.record else ())
        calls = ((at, event.call.name) for at, event in events if event.kind == "tool_call" and event.call)
        return list(islice(calls, MAX_PLACES))

    @property
    def is_same(self) -> bool:
        """Whether the turn was played just as it was expected, and no metric says otherwise."""
        text = self.diff.text if self.parts is None and self.diff.reference is not None else None
        is_equal = self.parts is None and not self.diff.differs and (text is None or text.is_same)
        return is_equal and self.status in ("", "passed") and not self.is_folded

    @property
    def is_open(self) -> bool:
        """Whether the state is worth a look without asking."""
        return any(row.is_as_expected is False for row in self.state)


@dataclass(frozen=True, slots=True)
class Gap:
    """Turns of a long trial that a page leaves out, by their numbers; they come piece by piece on scroll."""

    first: int
    last: int


def pieces_of(n_turns: int, turn_indexes: Sequence[int] = ()) -> list[range | Gap]:
    """The turns of a page by their indexes, and the gaps between them.

    A trial of up to MANY_TURNS is whole. A longer one has its first piece and each turn of `turn_indexes` that exists,
    the first of these with the turns after it.
    """
    if n_turns <= MANY_TURNS:
        return [range(n_turns)]
    indexes_shown = {*range(PIECE), *(index for index in turn_indexes if 0 <= index < n_turns)}
    indexes_shown |= (
        {*range(turn_indexes[0], min(turn_indexes[0] + PIECE, n_turns))}
        if turn_indexes and 0 <= turn_indexes[0] < n_turns
        else set()
    )
    pieces: list[range | Gap] = []
    end = 0
    for index in sorted(indexes_shown):
        if index > end:
            pieces.append(Gap(end + 1, index))
        last = pieces[-1] if pieces else None
        if isinstance(last, range) and last.stop == index:
            pieces[-1] = range(last.start, index + 1)
        else:
            pieces.append(range(index, index + 1))
        end = index + 1
    return [*pieces, Gap(end + 1, n_turns)] if end < n_turns else pieces


def pieces_of_gap(first: int, last: int, n_turns: int) -> list[range | Gap]:
    """PIECE turns of a gap of numbers, by their indexes, and the rest of it.

    They are taken from both its ends, of which a reader meets one: what is left is then out of sight, and is not asked
    for before one scrolls on. A gap at an end of all turns is met from one side.
    """
    if last - first < PIECE:
        return [range(first - 1, last)]
    n_before = PIECE if last == n_turns else 0 if first == 1 else PIECE // 2
    begin, end = first + n_before, last - (PIECE - n_before)
    pieces: list[range | Gap] = [range(first - 1, begin - 1), Gap(begin, end), range(end, last)]
    return [each for each in pieces if isinstance(each, Gap) or each]


def turn_pieces(
    turns: TrialTurns,
    pieces: Sequence[range | Gap],
    most_said: int | None = None,
    room: Room | None = None,
    at: int = -1,
    start: tuple[int, int] = (0, 0),
) -> tuple[TurnPanel | Gap, ...]:
    """The turns of the pieces, with the gaps between them.

    A message is cut at `most_said` characters, where a page has another place for the whole of it. What `room` does not
    take is left out; the turn `at` that index is the first to have it, from the piece and the event `start` on.
    """
    n_drawn = sum(len(each) for each in pieces if isinstance(each, range))
    drawing = _Drawing(turns, most_said, room.after_lines(n_drawn) if room else Room())
    turn_by_index = {
        index: turn
        for each in pieces
        if isinstance(each, range)
        for index, turn in zip(each, turns.read_turns(each.start, each.stop), strict=True)
    }
    first = {at: drawing.panel(at, turn_by_index[at], *start)} if at in turn_by_index else {}
    panels: list[TurnPanel | Gap] = []
    for each in pieces:
        panels += (
            [each]
            if isinstance(each, Gap)
            else [first[index] if index in first else drawing.panel(index, turn_by_index[index]) for index in each]
        )
    return tuple(panels)


def drawn_turns(panels: Sequence[TurnPanel | Gap]) -> tuple[TurnPanel, ...]:
    """The panels without the gaps between them."""
    return tuple(each for each in panels if isinstance(each, TurnPanel))


def turn_part(turns: TrialTurns, index: int, first: int = 0, *, has_events: bool = False) -> TurnPanel:
    """One turn from its piece `first` on, as much as a part of a page takes; with `has_events` from that event on.

    Raises NotFoundError for a turn that is neither in the case nor played.
    """
    played_turn = turn_at(turns, index)
    drawing = _Drawing(turns, MAX_SAID, Room(PART_ROOM, PART_ROOM if has_events else EVENTS_ROOM))
    return drawing.panel(index, played_turn, *((0, first) if has_events else (first, 0)))


def recorded_turns(runs: RunStore, run_id: int, key: TrialKey) -> TrialTurns:
    """The turns of a recorded trial. Raises NotFoundError where there is none."""
    turns, _ = runs.turns(run_id, *key)
    if turns.result is None:
        raise NotFoundError(f"run {run_id}, case {key[0]}, trial {key[1]}: not played yet")
    return turns


def turn_at(turns: TrialTurns, index: int) -> PlayedTurn:
    """One turn. Raises NotFoundError for one that is neither in the case nor played."""
    if not 0 <= index < turns.n_turns:
        number = f"trial {turns.result.trial_index + 1}" if turns.result else "the trial"
        raise NotFoundError(f"{number} has no turn {index + 1}")
    return turns.read_turns(index, index + 1)[0]


def _diff(played_turn: PlayedTurn, rows: tuple[CallRow, ...] | None) -> TurnDiff:
    """The turn compared; its calls are `rows` where metrics took all turns as one."""
    diff = turn_diff(played_turn.turn.expected if played_turn.turn else None, played_turn.record, played_turn.scores)
    return diff if rows is None else replace(diff, calls=rows)


def _rows_of_conversation(turns: TrialTurns) -> Mapping[int, tuple[CallRow, ...]]:
    """The rows of each turn, where metrics took all turns as one; empty elsewhere."""
    head = turns.result
    if head is None or turns.summary.has_turn_calls or not is_of_conversation(head.scores):
        return {}
    case, result = turns.read_trial()
    return rows_of_conversation(case, result.transcript, result.scores) if result else {}


@dataclass(slots=True)
class _Drawing:
    """The turns of one page, or of a part of it."""

    turns: TrialTurns
    most_said: int | None
    room: Room
    markdown: Markdown = field(default_factory=Markdown)
    rows: Mapping[int, tuple[CallRow, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = _rows_of_conversation(self.turns)

    def panel(self, index: int, played_turn: PlayedTurn, first: int = 0, first_event: int = 0) -> TurnPanel:
        """The turn at `index` from a piece and an event on."""
        turn, record, scores = played_turn.turn, played_turn.record, played_turn.scores
        diff = _diff(played_turn, self.rows.get(index))
        verdict = turn_verdict(record, scores)
        expectations = turn.expected if turn else Expected()
        query = turn.query if turn else record.query if record else ""
        is_folded = self.room.is_full
        is_last = index == self.turns.n_turns - 1 and self.turns.summary.visibility.state != "none"
        final_state = self.turns.case.final_state if is_last else None
        state: tuple[StateRow, ...] = ()
        if record and not is_folded:
            accepted_values = accepted_state(self.turns.case, Transcript((record,))) if final_state else None
            state = state_rows(record.state_before, record.state_after, final_state, accepted_values)
        is_silent = _expects_nothing(expectations, diff)
        pieces: Sequence[TurnPart | CallRow] = _parts(record, self.most_said) if is_silent else diff.calls
        pieces_on_page, pieces_shown = self._fit(pieces, first)
        parts = [each for each in pieces_on_page if isinstance(each, TurnPart)]
        calls = [each for each in pieces_on_page if isinstance(each, CallRow)]
        inner = [] if is_folded or is_silent or not record else _inner_events(record)
        events, events_shown = self._events(None if is_folded else record, first_event)
        has_answer = not is_silent and diff.text is None and not pieces_shown.n_left
        is_whole = not (is_silent or is_folded or pieces_shown.n_left)
        answers = _answers(diff) if is_whole else None
        unanswered = diff.reference if is_whole and not diff.answer else None
        tree = self.markdown.trees.difference(*answers) if answers else None
        is_long = answers is not None and tree is None and sum(map(len, answers)) > MAX_COMPARED
        lines = list(islice(answer_lines(*answers), MAX_LINES)) if answers and is_long else []
        return TurnPanel(
            number=index + 1,
            query=Prose(query[:MAX_FOLDED]) if is_folded else self.markdown.prose(query),
            status="" if verdict == "unscored" else verdict,
            answer=self.markdown.prose(cut(diff.answer or "", self.most_said)) if has_answer else Prose(""),
            diff=diff,
            expected=expectations,
            record=record,
            parts=tuple(rendered_part(each, self.markdown) for each in parts) if is_silent else None,
            calls=calls,
            call_events=_call_events(record),
            window=pieces_shown,
            scores=[] if is_folded else [_score_line(score) for score in scores],
            state=state,
            state_words=_state_words(state),
            events=events,
            events_shown=events_shown,
            requests=[] if is_folded or is_silent else _requests(record),
            unused=[] if is_folded else _noted(record, UNUSED),
            faults=[] if is_folded else _noted(record, INJECTED),
            is_folded=is_folded,
            is_large=self.turns.is_large,
            media=media_views(turn.media if turn else record.media if record else ()),
            answer_media=media_views(_said_media(record)) if record and not is_silent else (),
            answer_tree=tree,
            answer_lines=list(patch_lines(lines)),
            answer_prose=self.markdown.difference(*answers) if answers and not tree and not lines else None,
            unanswered=self.markdown.prose(cut(unanswered, self.most_said)) if unanswered else None,
            between=self._between(expectations, record) if is_whole else ((), ()),
            inner=parts_of(inner[:MAX_INNER], self.markdown, most=MAX_INNER_TEXT, most_said=MAX_INNER_TEXT),
            n_inner=sum(event.kind in ("agent_message", "tool_call") for event in inner),
        )

    def _between(self, expected: Expected, record: TurnRecord | None) -> tuple[Sequence[Prose], Sequence[Prose]]:
        """The expected and the actual intermediate messages, each of MAX_TEXT characters at most; equal ones once."""
        sides = (expected.intermediate, record.intermediate if record else ())
        expected_texts, actual_texts = ([text for _, text in messages] for messages in sides)
        expected_prose = [self.markdown.prose(cut(text, MAX_TEXT)) for text in expected_texts]
        if actual_texts == expected_texts:
            return expected_prose, expected_prose
        return expected_prose, [self.markdown.prose(cut(text, MAX_TEXT)) for text in actual_texts]

    def _fit(self, pieces: Sequence[TurnPart | CallRow], first: int) -> tuple[list[TurnPart | CallRow], Shown]:
        """As many pieces as there is room for; the first one always, unless there is no room at all."""
        fitting: list[TurnPart | CallRow] = []
        for at in range(first, len(pieces)):
            if self.room.is_full:
                break
            piece = pieces[at]
            fitting.append(with_result(piece, MAX_TEXT) if isinstance(piece, TurnPart) else piece)
            if self.room.characters_left is not None:
                self.room.characters_left -= _size(fitting[-1])
        return fitting, Shown(first, first + len(fitting), len(pieces))

    def _events(self, record: TurnRecord | None, first: int) -> tuple[list[EventLine], Shown]:
        room, lines = self.room, list[EventLine]()
        events = record.events if record else ()
        is_timed = any(event.at_ms for event in events)
        for at in range(first, len(events)):
            if room.events_left is not None and room.events_left <= 0:
                break
            lines.append(_event_line(at, events[at], is_timed=is_timed))
            if room.events_left is not None:
                room.events_left -= 200 + len(lines[-1].text)
        return lines, Shown(first, first + len(lines), len(events))


def _size(piece: TurnPart | CallRow) -> int:
    """About how many characters a piece adds to a page: Markdown and JSON are there twice."""
    if isinstance(piece, TurnPart):
        n_media = sum(len(item.address) for item in piece.media)
        return 900 + 3 * (len(piece.text) + len(piece.result) + len(piece.line)) + n_media
    segments = [part for arg in piece.args for part in (*(arg.expected or ()), *(arg.actual or ()))]
    return 700 + sum(40 + len(part.text) for part in segments)


def _answers(diff: TurnDiff) -> tuple[str, str] | None:
    """The reference and the answer of a played turn that has both."""
    return (diff.reference, diff.answer) if diff.reference and diff.answer else None


def answer_lines(reference: str, answer: str) -> Iterator[str]:
    """The lines in which an answer differs from its reference; JSON is laid out before."""
    values = [read_container(text) for text in (reference, answer)]
    old_text, new_text = (reference, answer) if None in values else map(laid_out, values)
    return unified_lines(old_text, new_text)


def answer_diff(turns: TrialTurns, index: int) -> str:
    """All lines in which the answer of a turn differs from its reference. Raises NotFoundError without both."""
    answers = _answers(_diff(turn_at(turns, index), None))
    if answers is None:
        raise NotFoundError(f"turn {index + 1} has no answer beside a reference")
    return "\n".join(answer_lines(*answers))


def _said_media(record: TurnRecord) -> Iterator[Media]:
    """The media of the agent's own messages."""
    own = (event for event in record.events if event.kind == "agent_message" and not event.within)
    return (item for event in own for item in event.media)


def _call_events(record: TurnRecord | None) -> list[int]:
    events = record.events if record else ()
    return [at for at, event in enumerate(events) if event.kind == "tool_call" and event.call and not event.within]


def _requests(record: TurnRecord | None) -> list[TurnPart]:
    events = [event for event in record.events if event.waiting] if record else []
    return list(folded_parts(events[:MAX_ASKED]))


def _inner_events(record: TurnRecord) -> list[Event]:
    return [event for event in record.events if event.within and event.kind in _INNER_KINDS]


def _noted(record: TurnRecord | None, start: str) -> list[str]:
    """The remarks of the player on the turn that begin so."""
    logs = (
        [event.text for event in record.events if event.kind == "log" and event.author == "evaldesk"] if record else []
    )
    return [text for text in logs if text.startswith(start)][:MAX_ASKED]


def _expects_nothing(expected: Expected, diff: TurnDiff) -> bool:
    """Whether no call, message or answer of this turn has anything to be compared with."""
    is_compared = diff.is_asserted or any(row.op for row in diff.calls)
    return not (is_compared or expected.intermediate or expected.reference is not None)


def _parts(record: TurnRecord | None, most_said: int | None) -> Sequence[TurnPart]:
    """The turn as the chat shows it, without its error and its logs: both stand below it on the page.

    Logs of imported trials are not always printed by the agent: many are system prompts.
    """
    return FoldedEvents(record.events, most=MAX_TEXT, most_said=most_said, without=_BELOW) if record else ()


_BELOW: Collection[PartKind] = ("error", "log")


def _event_line(at: int, event: Event, *, is_timed: bool) -> EventLine:
    text, at_ms = event_text(event), event.at_ms if is_timed else None
    return EventLine(at, at_ms, event.kind.replace("_", " "), cut(text, MAX_TEXT), len(text) > MAX_TEXT)


def score_lines(scores: Sequence[Score], turn_metrics: Collection[str] = ()) -> list[ScoreLine]:
    """A line for each score of the whole trial; `turn_metrics` judged turns, of which `scores` may have none."""
    by_turn = {*turn_metrics, *(score.metric for score in scores if score.turn is not None)}
    return [_score_line(score, is_explained=score.metric in by_turn) for score in scores if score.turn is None]


def _score_line(score: Score, *, is_explained: bool = False) -> ScoreLine:
    is_silent = not score.is_applicable or (score.threshold is None and score.value is not None)
    return ScoreLine(
        title=short_title(score.metric),
        value=_shown_value(score),
        needs=needs_words(score.metric, score.threshold) if score.is_applicable else "",
        verdict="" if is_silent else score.verdict,
        why="" if is_explained and score.value is not None else score.reason,
        trace=score.error.trace if score.error else "",
        criterion=score.metric,
        judge=None if is_explained else judge_panel(score.details),
    )


def _shown_value(score: Score) -> str:
    """The value with two digits; one that misses its threshold never reads as if it kept to it."""
    if not score.is_applicable:
        return "n/a"
    if score.value is None:
        return "–"
    return score_words(score.value, score.threshold, is_higher_better=is_higher_better(score.metric))


def _state_words(rows: Sequence[StateRow]) -> str:
    if not rows:
        return ""
    n_changed = sum(row.is_changed for row in rows)
    n_wrong = sum(row.is_as_expected is False for row in rows)
    keys = "key" if len(rows) == 1 else "keys"
    summary = f"State: {n_changed or 'none'} of {len(rows)} {keys} changed"
    return f"{summary}, {n_wrong} not as expected" if n_wrong else summary


MAX_SHOWN = 2_000


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """One reply: the judge, its verdict with the reasons, or the raw text and why it could not be read."""

    judge: str
    verdict: str
    reasons: str
    problem: str
    raw: str


@dataclass(frozen=True, slots=True)
class JudgedItem:
    """A rubric or a sentence with its verdict; `status` is the badge, `votes` say how many agree."""

    name: str
    text: str
    verdict: str
    status: str
    votes: str
    reasons: str


@dataclass(frozen=True, slots=True)
class JudgePanel:
    """All replies; `summary` names the judges, `item` the kind of the items, `prompt` is the hash of the prompt."""

    summary: str
    prompt: str
    votes: str
    item: str
    items: Sequence[JudgedItem]
    replies: Sequence[JudgeReply]

    @property
    def has_reasons(self) -> bool:
        """Whether a reply says more than its verdict."""
        return any(reply.reasons or reply.problem for reply in self.replies)


def judge_panel(details: Mapping[str, Any]) -> JudgePanel | None:
    """The panel of a judged score; None for details of any other metric."""
    judges = [str(name) for name in _items(details.get("judges"))]
    if not judges:
        return None
    rubrics, sentences = _items(details.get("rubrics")), _items(details.get("sentences"))
    return JudgePanel(
        summary=_summary(judges, details),
        prompt=str(details.get("prompt", "")),
        votes=_votes(details.get("votes")) or _spread(details.get("spread")),
        item="Rubric" if rubrics else "Sentence",
        items=[_rubric(row) for row in map(_mapping, rubrics)] or [_sentence(row) for row in map(_mapping, sentences)],
        replies=[_reply(row) for row in map(_mapping, _items(details.get("samples")))],
    )


def _summary(judges: Sequence[str], details: Mapping[str, Any]) -> str:
    n, n_read = details.get("n_samples"), details.get("n_read")
    words = f"Judged by {', '.join(judges)}"
    if isinstance(n, int) and isinstance(n_read, int):
        replies = "1 reply" if n == 1 else f"{n} replies"
        words += f": {replies}" + (f", {n - n_read} could not be read" if n_read < n else "")
    return words


def _rubric(row: Mapping[str, Any]) -> JudgedItem:
    return _item(row, str(row.get("id", "")), str(row.get("text", "")), "met" if row.get("value") else "not met")


def _sentence(row: Mapping[str, Any]) -> JudgedItem:
    return _item(row, "", str(row.get("sentence", "")), str(row.get("label", "")).replace("_", " "))


def _item(row: Mapping[str, Any], name: str, text: str, verdict: str) -> JudgedItem:
    value = row.get("value")
    status = "unscored" if value is None else "passed" if value else "failed"
    verdict = "no verdict" if value is None else verdict
    return JudgedItem(
        name, text[:MAX_SHOWN], verdict, status, _votes(row.get("votes")), str(row.get("rationale", ""))[:MAX_SHOWN]
    )


def _reply(row: Mapping[str, Any]) -> JudgeReply:
    judge, verdict, reasons, problem, raw = (
        str(row.get(key, "")) for key in ("judge", "verdict", "reasoning", "problem", "reply")
    )
    return JudgeReply(judge, verdict, reasons[:MAX_SHOWN], problem, raw[:MAX_SHOWN])


def _votes(votes: object) -> str:
    """`4 valid, 1 invalid`."""
    return ", ".join(f"{n} {word}" for word, n in _mapping(votes).items())


def _spread(spread: object) -> str:
    numbers = [_mapping(spread).get(key) for key in ("mean", "low", "high", "std")]
    if not all(isinstance(number, int | float) for number in numbers):
        return ""
    mean, low, high, std = (float(str(number)) for number in numbers)
    return f"mean {mean:.2f}, {low:g} to {high:g}, deviation {std:.2f}"


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
