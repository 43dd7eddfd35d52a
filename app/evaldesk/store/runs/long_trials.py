"""Trials and cases of many turns: stored in blocks, and read by turns. (docs/decisions/089-long-trials.md)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, zip_longest
from typing import Any, TypeVar

from msgspec import ValidationError
from sqlalchemy import ColumnElement, Connection, Table, func, select

from evaldesk.diff.conversation_diff import is_of_conversation
from evaldesk.diff.divergence import Divergence, first_divergence
from evaldesk.errors import NotFoundError
from evaldesk.model import Case, RunConfig, Score, Transcript, TrialResult, Turn, TurnRecord, Usage
from evaldesk.model.stored import TrialKey
from evaldesk.model.trial_turns import (
    PlayedTurn,
    TrialSummary,
    TrialTurns,
    TurnBlock,
    bare_case,
    bare_result,
    compared_content,
    summary_of,
    turn_ms,
    turns_in_memory,
)
from evaldesk.store.pinned_turns import of_cases
from evaldesk.store.tables.blocks import BEGINNING, BLOCKS, Blocks, Piece
from evaldesk.store.tables.columns import pack_pieces, unpack
from evaldesk.store.tables.runs import CASE_SNAPSHOT, TRANSCRIPT
from evaldesk.wire import to_json

T = TypeVar("T")

OF_BLOCK = 200
"""Turns of a block: smaller ones are read sooner and take more bytes, 50 about half as many again."""
SCORES_OF_BLOCK = 800


@dataclass(frozen=True, slots=True)
class LongCase:
    """The head of a case in blocks."""

    case: Case
    n_turns: int


@dataclass(frozen=True, slots=True)
class LongTrial:
    """The head of a trial in blocks. `divergence` is the first one where it `is_compared` with its case.

    `blocks` say when the turns of each block begin; those of earlier versions do not.
    """

    result: TrialResult
    summary: TrialSummary
    divergence: Divergence | None = None
    is_compared: bool = False
    blocks: tuple[TurnBlock, ...] = ()


def packed_case(case: Case) -> tuple[int, bytes]:
    """The codec and the bytes of a case of many turns without media."""
    case_without_turns = bare_case(case)
    before, mark, after = to_json(case_without_turns).partition(b'"turns":[')
    pieces = [Piece(before + mark), *_pieces("turns", case.turns), Piece(after)]
    return pack_pieces(pieces, LongCase(case_without_turns, len(case.turns)))


def packed_trial(result: TrialResult, compare: Callable[[TrialResult], Divergence | None] | None) -> tuple[int, bytes]:
    """The codec and the bytes of a trial of many turns or calls.

    `compare` gives its first divergence, and raises NotFoundError where it cannot be compared.
    """
    head = LongTrial(bare_result(result), summary_of(result), blocks=tuple(_turn_blocks(result.transcript.turns)))
    if compare:
        with suppress(NotFoundError, ValidationError):  # the page compares it
            head = replace(head, divergence=compare(result), is_compared=True)
    trial_json = to_json(replace(result, transcript=Transcript(), scores=(), usages=()))
    before, mark, after = trial_json.partition(b'"transcript":{"turns":[')
    pieces = [
        Piece(before + mark),
        *_pieces("turns", result.transcript.turns),
        Piece(b']},"scores":['),
        *_pieces("scores", result.scores, SCORES_OF_BLOCK, _turns_of),
        Piece(b'],"usages":['),
        *_pieces("usages", result.usages, len(result.usages) or 1),
        Piece(after.removeprefix(b']},"scores":[],"usages":[')),
    ]
    return pack_pieces(pieces, head)


def _turn_blocks(turns: Sequence[TurnRecord]) -> Iterator[TurnBlock]:
    start_ms = 0.0
    for first in range(0, len(turns), OF_BLOCK):
        some = turns[first : first + OF_BLOCK]
        contents = to_json([compared_content(turn) for turn in some])
        yield TurnBlock(first, start_ms, blake2b(contents, digest_size=16).hexdigest())
        start_ms += sum(map(turn_ms, some))


def _pieces(
    name: str,
    items: Sequence[Any],
    size: int = OF_BLOCK,
    turns_of: Callable[[Sequence[Any]], tuple[int, int]] | None = None,
) -> list[Piece]:
    """The items as blocks of so many, each named by the turns from the first up to the one after the last."""
    pieces = []
    for at in range(0, len(items), size):
        some = items[at : at + size]
        first, end = turns_of(some) if turns_of else (at, at + len(some))
        pieces.append(Piece(b"," * bool(at) + to_json(some)[1:-1], name, first, end))
    return pieces


def _turns_of(scores: Sequence[Score]) -> tuple[int, int]:
    turns = [score.turn for score in scores if score.turn is not None]
    return (min(turns), max(turns) + 1) if turns else (0, 0)


def divergence_of(case: Case, result: TrialResult, config: RunConfig) -> Divergence | None:
    """The first place where a trial and its case differ for a metric that decides."""
    return first_divergence(case, result.transcript, gating_scores(result, config))


def stored_divergence(codec: int, data: bytes, result: TrialResult, config: RunConfig) -> Divergence | None:
    """The same by a stored case; one in blocks is read block by block, up to the divergence."""
    gating = gating_scores(result, config)
    if codec != BLOCKS or is_of_conversation(gating):
        return first_divergence(unpack(codec, data, Case), result.transcript, gating)
    blocks = Blocks(lambda start, n: data[start : start + n])
    turns = chain.from_iterable(blocks.each("turns", tuple[Turn, ...]))
    return first_divergence(blocks.head(LongCase).case, result.transcript, gating, turns)


def gating_scores(result: TrialResult, config: RunConfig) -> list[Score]:
    """The scores of the metrics that decide."""
    gating = {criterion.metric for criterion in config.criteria if criterion.threshold is not None}
    return [score for score in result.scores if score.metric in gating]


Opened = Callable[[], AbstractContextManager[Connection]]


class StoredTurns:
    """The turns of one stored trial and its case, from the database by blocks where they are stored so.

    `case` and `trial` read the whole values.
    """

    def __init__(
        self, reading: Opened, run_id: int, key: TrialKey, case: Callable[[], Case], trial: Callable[[], TrialResult]
    ) -> None:
        of_case = (CASE_SNAPSHOT.c.run_id == run_id, CASE_SNAPSHOT.c.case_index == key[0])
        columns = TRANSCRIPT.c
        of_trial = (columns.run_id == run_id, columns.case_index == key[0], columns.trial_index == key[1])
        self._run_id, self._key, self._reading = run_id, key, reading
        self._read_case, self._read_trial = case, trial
        with reading() as connection:
            newest = connection.scalar(select(func.max(columns.attempt)).where(*of_trial))
            self._case = _blocks(reading, connection, CASE_SNAPSHOT, *of_case)
            self._trial = _blocks(reading, connection, TRANSCRIPT, *of_trial, columns.attempt == newest)
        self._has_trial = newest is not None

    def turns(self, config: RunConfig) -> tuple[TrialTurns, Divergence | None]:
        """The turns, and the first divergence of a recorded trial by the metrics of the configuration that decide."""
        if not self._case and not self._trial:
            case, result = self._read_whole()
            return turns_in_memory(case, result), divergence_of(case, result, config) if result else None
        case, n_expected, expected = self._of_case()
        head, records, scores = self._of_trial()

        def read(first: int, end: int) -> Sequence[PlayedTurn]:
            by_turn: dict[int | None, list[Score]] = {}
            for score in scores(first, end):
                by_turn.setdefault(score.turn, []).append(score)
            both = zip_longest(expected(first, end), records(first, end))
            return [PlayedTurn(*each, by_turn.get(at, ())) for at, each in enumerate(both, first)]

        summary = head.summary if head else TrialSummary()
        n_turns = max(n_expected, summary.n_turns)
        blocks = head.blocks if head else ()
        result, usages = head.result if head else None, self._usages
        turns = TrialTurns(case, result, summary, n_turns, read, self._read_whole, usages, blocks)
        if head is None or head.is_compared:
            return turns, head.divergence if head else None
        whole_case, result = self._read_whole()
        return turns, divergence_of(whole_case, result, config) if result else None

    def _usages(self) -> Sequence[Usage]:
        if self._trial is None:
            return self._read_trial().usages if self._has_trial else ()
        return [each for _, some in self._trial.items("usages", tuple[Usage, ...]) for each in some]

    def _read_whole(self) -> tuple[Case, TrialResult | None]:
        return self._read_case(), self._read_trial() if self._has_trial else None

    def _of_case(self) -> tuple[Case, int, Callable[[int, int], Sequence[Turn]]]:
        blocks = self._case
        if blocks is None:
            case = self._read_case()
            return bare_case(case), len(case.turns), lambda first, end: case.turns[first:end]
        head = blocks.head(LongCase)
        return head.case, head.n_turns, lambda first, end: _items(blocks, Turn, first, end)

    def _of_trial(
        self,
    ) -> tuple[LongTrial | None, Callable[[int, int], Sequence[TurnRecord]], Callable[[int, int], Sequence[Score]]]:
        blocks = self._trial
        if blocks is None:
            result = self._read_trial() if self._has_trial else None
            turns, scores = (result.transcript.turns, result.scores) if result else ((), ())
            long_trial = LongTrial(bare_result(result), summary_of(result)) if result else None
            return long_trial, lambda first, end: turns[first:end], lambda _, __: scores
        head, (case_index, trial_index) = blocks.head(LongTrial), self._key
        own = replace(head.result, run_id=self._run_id, case_index=case_index, trial_index=trial_index)

        def scores_of(first: int, end: int) -> Sequence[Score]:
            return [each for _, some in blocks.items("scores", tuple[Score, ...], first, end) for each in some]

        # Where it is counts, not where it says that it is.
        return replace(head, result=own), partial(self._records, blocks, own.n_prefix_turns), scores_of

    def _records(self, blocks: Blocks, n_pinned: int, first: int, end: int) -> Sequence[TurnRecord]:
        """The turns from `first` up to `end`, with those that are pinned."""
        records = _items(blocks, TurnRecord, first, end)
        if first >= n_pinned:
            return records
        with self._reading() as connection:
            pinned = of_cases(connection, self._run_id, [self._key[0]]).get(self._key[0], ())
        return [*pinned[first:end], *records[len(pinned[first:end]) :]]


def _items(blocks: Blocks, kind: type[T], first: int, end: int) -> Sequence[T]:
    """The turns from `first` up to `end`."""
    turns: list[T] = []
    for block, some in blocks.items("turns", tuple[kind, ...], first, end):  # type: ignore[valid-type]
        turns += some[max(first - block.first, 0) : end - block.first]
    return turns


def _blocks(reading: Opened, connection: Connection, table: Table, *where: ColumnElement[bool]) -> Blocks | None:
    """The value of a row in blocks; None for a row of another codec, and for none."""
    if connection.scalar(select(table.c.codec).where(*where)) != BLOCKS:
        return None
    beginning = connection.scalar(select(func.substr(table.c.data, 1, BEGINNING)).where(*where))

    def read(start: int, n: int) -> bytes:
        if start + n <= BEGINNING:
            return bytes(beginning or b"")[start : start + n]
        with reading() as later_connection:
            data = later_connection.scalar(select(func.substr(table.c.data, start + 1, n)).where(*where))
        if data is None:
            raise NotFoundError("the trial was removed meanwhile; reload the page")
        return bytes(data)

    return Blocks(read)
