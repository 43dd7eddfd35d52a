"""The page of one trial, put together from stored values, and its verdicts in other scorings."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from evaldesk.desk.desk import Desk
from evaldesk.desk.other_tools import CALLED, difference, tools_beside
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.diff.conversation_diff import conversation_rows, has_conversation_rows
from evaldesk.diff.divergence import Divergence
from evaldesk.diff.turn_diff import CallRow
from evaldesk.errors import NotFoundError
from evaldesk.model import Case, Role, RunConfig, Transcript, TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.model.stored import RunSummary, TrialKey
from evaldesk.model.transcript import known_sum
from evaldesk.model.trial_turns import TrialTurns
from evaldesk.pages.conversation import whole_text
from evaldesk.pages.json_tree import cut
from evaldesk.pages.large_state import ValuePart, text_part
from evaldesk.pages.pair import other_trial, pair_href
from evaldesk.pages.runs.view import STATUS_OF, Square, scorings, trial_href, window
from evaldesk.pages.source import Source, has_reference_actions, source_of, source_texts
from evaldesk.pages.steps import Walk, walk_of
from evaldesk.pages.timeline import Strip, strip_of
from evaldesk.pages.trial_turns import (
    EVENTS_ROOM,
    MAX_SAID,
    PAGE_ROOM,
    PART_ROOM,
    Gap,
    Room,
    ScoreLine,
    TurnPanel,
    answer_diff,
    drawn_turns,
    pieces_of,
    pieces_of_gap,
    recorded_turns,
    score_lines,
    turn_at,
    turn_part,
    turn_pieces,
)
from evaldesk.process_setup import gc_paused
from evaldesk.store import RunStore
from evaldesk.wording.places import changes_sentence, losses_sentence
from evaldesk.wording.recorded import earlier_sentence
from evaldesk.wording.words import ending_sentence, passed_words

MAX_SQUARES = 100
MAX_WHY = 300
ACCOUNTS: Mapping[Role, str] = {"agent": "agent", "user": "simulated user", "judge": "judges"}


@dataclass(frozen=True, slots=True)
class Account:
    """The cost of one part of a trial; `cost` is None as soon as one price is unknown, tokens may be `is_least`."""

    who: str
    tokens: int
    cost: float | None
    is_least: bool


@dataclass(frozen=True, slots=True)
class TrialPage:
    """All that the page of a trial shows. `result` is None while nothing was recorded; numbers count from 1.

    `played` are its turns; neither `case` nor `result` has them. `conversation` are the calls as one list, where some
    metrics compared them so and others turn by turn. The steps, that list and the verdict of `other_tools` take all
    turns: of a trial in pieces they come when they are asked for.
    """

    summary: RunSummary
    trial_turns: TrialTurns
    case_index: int
    number: int
    status: str
    is_again: bool
    squares: Sequence[Square]
    verdict_words: str
    divergence: Divergence | None
    pieces: Sequence[TurnPanel | Gap]
    conversation: Sequence[CallRow]
    source: Source
    scores: Sequence[ScoreLine]
    adk_sentence: str
    other_tools: str
    previous_trial: str
    next_trial: str
    previous_mismatch: str
    next_mismatch: str
    pair_href: str
    strip: Strip | None
    walk: Walk | None

    @property
    def case(self) -> Case:
        """The case, without its turns."""
        return self.trial_turns.case

    @property
    def result(self) -> TrialResult | None:
        """The result, without its turns and their scores."""
        return self.trial_turns.result

    @property
    def n_turns(self) -> int:
        """The turns of the case or the played ones; the longer list counts."""
        return self.trial_turns.n_turns

    @property
    def turns(self) -> Sequence[TurnPanel]:
        """The turns that are drawn."""
        return drawn_turns(self.pieces)

    @property
    def n_pinned(self) -> int:
        """The first turns that were not played: pinned by a fork or by the case."""
        return self.result.n_prefix_turns if self.result else 0

    @property
    def pinned_pieces(self) -> Sequence[TurnPanel | Gap]:
        """The pieces that hold pinned turns alone."""
        return [each for each in self.pieces if _last_number(each) <= self.n_pinned]

    @property
    def pinned_queries(self) -> Sequence[str]:
        """The messages of the pinned turns that are drawn."""
        return [each.query.text for each in drawn_turns(self.pinned_pieces)]

    @property
    def played_pieces(self) -> Sequence[TurnPanel | Gap]:
        """The other pieces."""
        return [each for each in self.pieces if _last_number(each) > self.n_pinned]

    @property
    def key(self) -> TrialKey:
        """The case and the trial, counted from 0."""
        return self.case_index, self.number - 1

    @property
    def href(self) -> str:
        """The address of the page, also where it answers a form."""
        return trial_href(self.summary.id, self.key)

    @property
    def run_title(self) -> str:
        """The name of the run."""
        return run_title(self.summary)

    @property
    def accounts(self) -> Sequence[Account]:
        """The cost of each part, where more than the agent has any."""
        usages = self.result.usages if self.result else ()
        cost_accounts = [
            Account(
                words,
                sum(each.tokens_in + each.tokens_out for each in mine),
                known_sum(each.cost for each in mine),
                any(each.is_least for each in mine),
            )
            for role, words in ACCOUNTS.items()
            if (mine := [usage for usage in usages if usage.role == role])
        ]
        return cost_accounts if {usage.role for usage in usages} - {"agent"} else ()

    @property
    def has_comparison(self) -> bool:
        """Whether any played turn has something that it is compared with."""
        return self.result is not None and any(turn.parts is None for turn in self.turns)

    @property
    def ending(self) -> str:
        """How a simulated conversation ended, the repeated requests, and the recorded or cached answers."""
        return ending_sentence(self.result, self.trial_turns.summary)

    @property
    def changes_sentence(self) -> str:
        """The changes of the trial to its process."""
        return changes_sentence(self.result) if self.result else ""

    @property
    def losses_sentence(self) -> str:
        """Why earlier attempts were lost."""
        return losses_sentence(self.result) if self.result else ""

    @property
    def earlier(self) -> tuple[str, ...]:
        """Earlier results of the trial in an imported file, a sentence each."""
        return tuple(map(earlier_sentence, self.result.earlier)) if self.result else ()

    @property
    def answer(self) -> tuple[str, str] | None:
        """The outcome of a trial without a first difference, as title and sentences; None where its verdict says it."""
        if self.result is None or self.result.error or self.divergence:
            return None
        if self.status == "unscored":
            summary = self.trial_turns.summary
            count_words = f"{counted(summary.n_calls, 'tool call')} in {counted(summary.n_turns, 'turn')}."
            return "No verdict: no metric decided this trial", _join_sentences(
                self.source.summary, count_words, self.ending
            )
        failed_score = next((score for score in self.scores if self.status == score.verdict == "failed"), None)
        if failed_score:
            title = f"Failed: {failed_score.title} is {failed_score.value} and must be {failed_score.needs}"
            return title, _join_sentences(cut(failed_score.why, MAX_WHY), self.source.summary)
        return ("Passed", self.source.summary) if self.status == "passed" and self.source.summary else None

    @property
    def is_flawless(self) -> bool:
        """Whether a divergence, if there is one, did not keep the trial from passing."""
        return self.status == "passed"


async def trial_page(
    runs: RunDesk,
    run_id: int,
    key: TrialKey,
    *,
    is_whole: bool = False,
    more: str = "",
    turn: int = 0,
    start: tuple[int, int] = (0, 0),
) -> TrialPage:
    """The page of a trial at this moment, `is_whole` with all of its turns; else long ones come in parts.

    `more` are the steps of a code agent that are asked for, by default the decisive ones, or OTHER_TOOLS; `turn` is the
    number of the one that the address names, which begins with the piece and the event `start`.

    Raises NotFoundError when the run never planned it.
    """
    room, in_flight = Room() if is_whole else Room(PAGE_ROOM, EVENTS_ROOM), runs.in_flight(run_id)
    return await asyncio.to_thread(read_trial, runs.run_store, run_id, key, in_flight, room, more, turn, start)


OTHER_TOOLS = "tools"
"""Asks for the verdict of other tools on a trial in pieces."""


@gc_paused()  # a turn of thousands of calls is so many objects that the collector takes longer than the page
def read_trial(
    runs: RunStore,
    run_id: int,
    key: TrialKey,
    in_flight: Collection[TrialKey] = frozenset(),
    room: Room | None = None,
    more: str = "",
    turn: int = 0,
    start: tuple[int, int] = (0, 0),
) -> TrialPage:
    """Everything on the page of a trial that `room` takes. Raises NotFoundError when the run never planned it.

    A trial of many turns or calls is never whole on a page, and is not read whole for one.
    """
    case_index, trial_index = key
    summary, neighbours = runs.summary(run_id), runs.neighbours(run_id, *key)
    row = runs.case_row(run_id, case_index)
    turns, divergence = runs.turns(run_id, *key)
    result, is_long = turns.result, turns.is_long
    letters = ["r" if (case_index, at) in in_flight else letter for at, letter in enumerate(row.verdicts)]
    status = STATUS_OF[letters[trial_index]]
    is_done = row.verdicts[trial_index] != "."
    source = trial_source(turns)
    broken = [divergence.turn - 1] if divergence else []
    room = Room(PAGE_ROOM, EVENTS_ROOM) if turns.is_large and (room is None or room.characters_left is None) else room
    turn_indexes = [turn - 1, *broken] if turn else [0, *broken]
    pieces = pieces_of(turns.n_turns, turn_indexes) if is_long else [range(turns.n_turns)]
    is_compared = is_done and (not turns.is_large or more == OTHER_TOOLS)
    is_walked = result is not None and (not turns.is_large or more not in ("", OTHER_TOOLS))
    is_aligned = result is not None and not is_long and has_conversation_rows(result.scores, turns.summary)
    is_whole = not turns.is_large or is_compared or is_walked or is_aligned
    case, full_result = turns.read_trial() if is_whole else (turns.case, None)
    return TrialPage(
        summary=summary,
        trial_turns=turns,
        case_index=case_index,
        number=trial_index + 1,
        status=status,
        is_again=result is not None and not is_done,
        squares=_squares(run_id, case_index, letters, trial_index),
        verdict_words=_verdict_words(
            row.counts.passed, row.counts.passed + row.counts.failed, trial_index, len(letters)
        ),
        divergence=divergence,
        pieces=turn_pieces(turns, pieces, MAX_SAID, room, turn - 1, start),
        conversation=conversation_rows(case, full_result.transcript, full_result.scores)
        if full_result and is_aligned
        else (),
        source=source,
        scores=score_lines(result.scores, turns.summary.turn_metrics) if result else [],
        adk_sentence=_elsewhere(case, full_result, summary.config) if is_compared else "",
        other_tools="" if is_compared or not is_done else _tool_names(summary.config),
        previous_trial=_href(run_id, neighbours.previous_trial),
        next_trial=_href(run_id, neighbours.next_trial),
        previous_mismatch=_href(run_id, neighbours.previous_mismatch),
        next_mismatch=_href(run_id, neighbours.next_mismatch),
        pair_href=_pair_href(runs, run_id, key) if result else "",
        strip=strip_of(turns) if result else None,
        walk=walk_of(case, full_result, source.hunks, more) if full_result and is_walked else None,
    )


def trial_source(turns: TrialTurns) -> Source:
    """What is known beside a trial; of a large one by its last turn, unless calls are looked for in all."""
    if not turns.is_large or has_reference_actions(turns.case):
        return source_of(*turns.read_trial())
    last = turns.read_turns(turns.summary.n_turns - 1, turns.summary.n_turns) if turns.result else ()
    records = tuple(each.record for each in last if each.record)
    result = replace(turns.result, transcript=Transcript(records)) if turns.result else None
    return source_of(turns.case, result, turns.summary.reported)


def _tool_names(config: RunConfig) -> str:
    return " and ".join(CALLED[tool].strip("`") for tool in tools_beside(config))


def read_turn(
    runs: RunStore, run_id: int, key: TrialKey, turn: int, first: int = 0, *, has_events: bool = False
) -> tuple[TrialTurns, TurnPanel]:
    """A recorded turn from the piece `first` on; with `has_events` from the event `first` on. See `turn_part`.

    Raises NotFoundError where there is none.
    """
    turns = recorded_turns(runs, run_id, key)
    return turns, turn_part(turns, turn, first, has_events=has_events)


def read_piece(runs: RunStore, run_id: int, key: TrialKey, first: int, last: int) -> Sequence[TurnPanel | Gap]:
    """Some turns of the gap from the number `first` to `last`, and the rest of it. Raises NotFoundError without any."""
    return piece_of(recorded_turns(runs, run_id, key), first, last)


def piece_of(turns: TrialTurns, first: int, last: int) -> Sequence[TurnPanel | Gap]:
    """The same of turns. Raises NotFoundError where there is none."""
    last = min(last, turns.n_turns)
    if not 1 <= first <= last:
        raise NotFoundError(f"the trial has no turn {first}")
    return turn_pieces(turns, pieces_of_gap(first, last, turns.n_turns), MAX_SAID, Room(PART_ROOM, EVENTS_ROOM))


def event_part(runs: RunStore, run_id: int, key: TrialKey, place: tuple[int, int], start: int) -> ValuePart:
    """A part of the text of one event of a recorded trial. Raises NotFoundError where there is none."""
    turn, at = place
    turns = recorded_turns(runs, run_id, key)
    record = turn_at(turns, turn).record if turn < turns.summary.n_turns else None
    if record is None or at >= len(record.events):
        raise NotFoundError(f"trial {key[1] + 1} has no event {at + 1} in turn {turn + 1}")
    event = record.events[at]
    return text_part(f"turn {turn + 1}, {event.kind.replace('_', ' ')}", whole_text(event), start)


def answer_part(runs: RunStore, run_id: int, key: TrialKey, turn: int, start: int) -> ValuePart:
    """A part of the diff of an answer and its reference. Raises NotFoundError where one is missing."""
    text = answer_diff(recorded_turns(runs, run_id, key), turn)
    return text_part(f"turn {turn + 1}, answer against its reference", text, start)


def source_part(runs: RunStore, run_id: int, key: TrialKey, at: int, start: int) -> ValuePart:
    """A part of a long text that the source of a trial gave. Raises NotFoundError where there is none."""
    texts = source_texts(runs.case(run_id, key[0]), runs.trial(run_id, *key))
    if at >= len(texts):
        raise NotFoundError(f"the source of trial {key[1] + 1} has no text {at + 1}")
    return text_part(*texts[at], start)


def _last_number(piece: TurnPanel | Gap) -> int:
    return piece.last if isinstance(piece, Gap) else piece.number


def _pair_href(runs: RunStore, run_id: int, key: TrialKey) -> str:
    """Where the trial stands beside another one of its case; empty when it is alone."""
    other = other_trial(runs, run_id, key)
    return pair_href((run_id, key), other) if other else ""


def _join_sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _squares(run_id: int, case_index: int, letters: Sequence[str], current: int) -> list[Square]:
    """The trials of the case; of very many those around the current one."""
    return [
        Square(at + 1, STATUS_OF[letters[at]], trial_href(run_id, (case_index, at)))
        for at in window(current, len(letters), MAX_SQUARES)
    ]


def _verdict_words(n_passed: int, n_scored: int, trial_index: int, n: int) -> str:
    place = f"Trial {trial_index + 1} of {n}"
    if not n_scored or n == 1:
        return place
    flaky = " (flaky)" if 0 < n_passed < n_scored else ""
    return f"{place}; {passed_words(n_passed, n_scored)}{flaky}"


def _elsewhere(case: Case, result: TrialResult | None, config: RunConfig) -> str:
    """The answers of other tools on the trial, where they differ."""
    if result is None:
        return ""
    sentences = (difference(tool, case, result, config.criteria) for tool in tools_beside(config))
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)


def _href(run_id: int, key: TrialKey | None) -> str:
    return trial_href(run_id, key) if key else ""


MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class OtherScoring:
    """The same trial in another run that scores it."""

    run: RunSummary
    result: TrialResult
    scores: Sequence[ScoreLine]


def read_other_scorings(desk: Desk, run_id: int, key: TrialKey) -> list[OtherScoring]:
    """The other scorings of a trial, the one it was played with first; none where it was scored once."""
    return list(_other_scorings(desk.store.runs, run_id, key))


def _other_scorings(runs: RunStore, run_id: int, key: TrialKey) -> Iterator[OtherScoring]:
    others = [each.run for each in scorings(runs, runs.summary(run_id)) if each.run.id != run_id]
    for other in others[:MAX_SHOWN]:
        try:
            turns = recorded_turns(runs, other.id, key)
        except NotFoundError:
            continue
        if (result := turns.result) is None:
            continue
        yield OtherScoring(other, result, score_lines(result.scores, turns.summary.turn_metrics))
