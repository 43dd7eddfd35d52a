"""The conversations of the inbox: joined from spans, listed by conditions, labelled, scored and removed."""

from __future__ import annotations

import builtins
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, or_, select, tuple_, update

from evaldesk.errors import NotFoundError, WorkspaceError
from evaldesk.model import TrialResult
from evaldesk.model.conversation_filter import ConversationFilter, State, TextCondition, WordCondition
from evaldesk.model.inbox import (
    ABOUT,
    JUDGE_COST,
    VERDICT,
    Candidate,
    Conversation,
    ConversationPage,
    Cursor,
    InboxLabel,
    InboxScore,
    ScoredConversation,
)
from evaldesk.store.database import StorePart, execute_many
from evaldesk.store.inbox.conditions import Lookups, where
from evaldesk.store.inbox.spans import GONE, TraceGroup, count_removed, remove_traces
from evaldesk.store.search import MAX_WORDS, MOST_WORDS_ASKED, numbers_of, words_of
from evaldesk.store.tables.columns import at, pack, pieces, read_packed, replacing
from evaldesk.store.tables.inbox import (
    CONTENT,
    CONVERSATION,
    CONVERSATION_LABEL,
    CONVERSATION_SCORE,
    DRAW_ITEM,
    MARK,
    TRACE,
)
from evaldesk.store.word_index import INBOX, Seen, WordIndex

ANY = ConversationFilter()
MOST_COUNTED = 10_000
"""Conversations that a count counts; more are told as "more than"."""
MOST_WITH_TEXT = 1_000_000
"""The newest conversations with the words of a filter; a full inbox has fewer."""
MOST_NAMED = 20_000
"""Conversations with a word, a tool or a tag that are listed; of more, the newest ones are asked for it."""
FIRST_PAGE, LAST_PAGE = 2_000, 50_000
"""Conversations that are asked at once: twice as many with each page."""
LARGEST_GAP = 500
"""Ids of conversations that are nearer to one another are asked as one span."""
MOST_MARKS = 200
"""Tools and tags of one conversation that it is found by."""
MOST_REMOVED = 500
"""Conversations that one step removes."""
_C = CONVERSATION.c
_JSON = ("tools", "tags")
_FIELDS = [each.name for each in fields(Conversation)]
_COLUMNS = [_C[name] for name in _FIELDS]
_OWN = frozenset({"id", "state", "ending", "group_id"})
"""Values that a conversation keeps when spans are added to it."""


@dataclass(frozen=True, slots=True)
class JoinedConversation:
    """A conversation that spans tell of: its values, its turns, the traces it is made of, and its searched text."""

    conversation: Conversation
    result: TrialResult
    trace_ids: frozenset[str]
    text: str = ""


class InboxStore(StorePart):
    """The conversations of the inbox of a workspace."""

    @cached_property
    def _index(self) -> WordIndex:
        return self._database.dialect.word_index(self._database)

    def put(self, groups: Sequence[tuple[TraceGroup, Sequence[JoinedConversation]]]) -> None:
        """Make the conversations of each group be these.

        A known one keeps its id, its state and its labels, also under another name if it shares a trace. One without
        spans goes, unless a person has read or drawn it.
        """
        joinings = [each for _, conversations in groups for each in conversations]
        with self._database.writing() as connection:
            ids = _put(connection, groups)
        words = [sorted(set(words_of(each.text)))[:MAX_WORDS] for each in joinings]
        self._index_words([*zip(ids, words, strict=True)])
        # At last: after a kill before this they are joined once more, and their words are in the index.
        with self._database.writing() as connection:
            _end_joining(connection, groups)

    def close_quiet(self, before: datetime, limit: int = 1000) -> int:
        """Close the conversations without a span since `before`; those with a part missing are cut off."""
        quiet = select(_C.id).where(_C.ending == "open", _C.last_at <= before).order_by(_C.last_at).limit(limit)
        n = 0
        with self._database.writing() as connection:
            ids = connection.scalars(quiet).all()
            for ending, is_whole in (("closed", True), ("cut_off", False)):
                some = and_(_C.id.in_(ids), _C.is_whole.is_(is_whole))
                n += connection.execute(update(CONVERSATION).where(some).values(ending=ending)).rowcount
        return n

    def list(
        self,
        conditions: ConversationFilter = ANY,
        *,
        limit: int = 50,
        after: Cursor | None = None,
        case_twins: Collection[str] = (),
        is_eval: bool = False,
    ) -> ConversationPage:
        """The conversations that meet all conditions, newest first, behind the cursor; with `is_eval` played ones."""
        lookups = self._lookups(conditions, case_twins)
        ids = self._newest_with_texts(conditions, lookups, limit + 1, after, is_eval=is_eval)
        with self._database.reading() as connection:
            if ids is None:
                rows = _newest_first(select(*_COLUMNS), conditions, lookups, connection, after, is_eval=is_eval)
            else:
                rows = select(*_COLUMNS).where(_C.id.in_(ids)).order_by(_C.began_at.desc(), _C.id.desc())
            items = [_conversation(row) for row in connection.execute(rows.limit(limit + 1))]
        following = Cursor(items[limit - 1].began_at, items[limit - 1].id) if len(items) > limit else None
        return ConversationPage(items[:limit], following)

    def count(
        self,
        conditions: ConversationFilter = ANY,
        *,
        most: int = MOST_COUNTED,
        case_twins: Collection[str] = (),
        is_eval: bool = False,
    ) -> int:
        """The number of conversations that meet all conditions; `most` + 1 where there are more than `most`."""
        lookups = self._lookups(conditions, case_twins)
        ids = self._newest_with_texts(conditions, lookups, most + 1, None, is_eval=is_eval)
        if ids is not None:
            return len(ids)
        with self._database.reading() as connection:
            some = (
                select(_C.id)
                .where(*where(conditions, lookups, connection.dialect.name, is_eval=is_eval))
                .limit(most + 1)
                .subquery()
            )
            return connection.scalar(select(func.count()).select_from(some)) or 0

    def candidates(
        self, conditions: ConversationFilter = ANY, *, case_twins: Collection[str] = ()
    ) -> Sequence[Candidate]:
        """All conversations that meet the conditions, by id, to draw from."""
        lookups = self._lookups(conditions, case_twins, is_whole=True)
        with self._database.reading() as connection:
            rows = select(_C.id, _C.twin_group).where(
                *where(conditions, lookups, connection.dialect.name, is_eval=False)
            )
            return [Candidate(*row) for row in connection.execute(rows.order_by(_C.id))]

    def get(self, conversation_id: int) -> Conversation:
        """A conversation. Raises NotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(select(*_COLUMNS).where(_C.id == conversation_id)).first()
        if row is None:
            raise NotFoundError(
                f"the inbox has no conversation {conversation_id}; it may have been removed for its age"
            )
        return _conversation(row)

    def many(self, ids: Sequence[int]) -> dict[int, Conversation]:
        """The conversations with these ids; removed ones are missing."""
        with self._database.reading() as connection:
            rows = connection.execute(select(*_COLUMNS).where(_C.id.in_([*ids])))
            return {row.id: _conversation(row) for row in rows}

    def content(self, conversation_id: int) -> TrialResult:
        """The turns of a conversation, as a trial that nobody played. Raises NotFoundError."""
        with self._database.reading() as connection:
            of_conversation = CONTENT.c.conversation_id == conversation_id
            result = read_packed(connection, CONTENT, TrialResult, of_conversation)
        if result is None:
            raise NotFoundError(
                f"the inbox has no conversation {conversation_id}; it may have been removed for its age"
            )
        return result

    def twins(self, twin_groups: Collection[str]) -> dict[str, int]:
        """The number of conversations in each of these twin groups."""
        rows = select(_C.twin_group, func.count()).where(_C.twin_group.in_([*twin_groups])).group_by(_C.twin_group)
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(rows)}

    def set_state(self, ids: Sequence[int], state: State, *, only_from: State | None = None) -> int:
        """Give conversations a state, or only those in the state `only_from`; gives the number of changed ones."""
        changing = and_(_C.id.in_([*ids]), _C.state != state)
        if only_from:
            changing = and_(changing, _C.state == only_from)
        with self._database.writing() as connection:
            return connection.execute(update(CONVERSATION).where(changing).values(state=state)).rowcount

    def label(self, conversation_id: int, labeller: str, verdict: str, note: str) -> None:
        """Store the verdict of a person; an empty one takes it away. Raises NotFoundError."""
        key = {"conversation_id": conversation_id, "labeller": labeller}
        with self._database.writing() as connection:
            if connection.scalar(select(_C.id).where(_C.id == conversation_id)) is None:
                raise NotFoundError(f"the inbox has no conversation {conversation_id}")
            if not verdict:
                connection.execute(delete(CONVERSATION_LABEL).where(*at(CONVERSATION_LABEL, key)))
                return
            values = key | {"verdict": verdict, "note": note, "labelled_at": self._clock()}
            connection.execute(replacing(connection.dialect.name, CONVERSATION_LABEL), values)
            is_new = and_(_C.id == conversation_id, _C.state == "new")
            connection.execute(update(CONVERSATION).where(is_new).values(state="read"))

    def labels(self, ids: Sequence[int]) -> dict[int, builtins.list[InboxLabel]]:
        """The verdicts of people on some conversations, by conversation, in the order of their names."""
        columns = CONVERSATION_LABEL.c
        rows = select(CONVERSATION_LABEL).where(columns.conversation_id.in_([*ids])).order_by(columns.labeller)
        labels: dict[int, builtins.list[InboxLabel]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(rows):
                label = InboxLabel(row.labeller, row.verdict, row.note, row.labelled_at)
                labels.setdefault(row.conversation_id, []).append(label)
        return labels

    def record_scores(self, scores: Mapping[int, Sequence[InboxScore]]) -> None:
        """Store the scores of conversations, without removed ones."""
        with self._database.writing() as connection:
            there = set(connection.scalars(select(_C.id).where(_C.id.in_([*scores]))))
            rows = [
                {
                    "conversation_id": conversation_id,
                    "metric": score.metric,
                    "value": score.value,
                    "passed": score.passed,
                    "reason": score.reason,
                    "stratum": score.stratum,
                    "scored_at": self._clock(),
                }
                for conversation_id, of_conversation in scores.items()
                if conversation_id in there
                for score in of_conversation
            ]
            execute_many(connection, replacing(connection.dialect.name, CONVERSATION_SCORE), rows)

    def scores(self, ids: Sequence[int]) -> dict[int, builtins.list[InboxScore]]:
        """The scores of criteria of some conversations, by conversation."""
        columns = CONVERSATION_SCORE.c
        of_criteria = columns.conversation_id.in_([*ids]), columns.metric.not_in(ABOUT)
        rows = select(CONVERSATION_SCORE).where(*of_criteria).order_by(columns.metric)
        scores: dict[int, builtins.list[InboxScore]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(rows):
                score = InboxScore(row.metric, row.value, row.passed, row.reason, row.stratum)
                scores.setdefault(row.conversation_id, []).append(score)
        return scores

    def unscored(self, since: datetime, limit: int = 500) -> Sequence[int]:
        """The ids of ended conversations since then without a score, oldest first, without played ones."""
        columns = CONVERSATION_SCORE.c
        own_scores = select(columns.conversation_id).where(
            columns.conversation_id == _C.id, columns.metric != JUDGE_COST
        )
        rows = select(_C.id).where(
            _C.is_eval.is_(False), _C.ending != "open", _C.began_at >= since, ~own_scores.exists()
        )
        with self._database.reading() as connection:
            return connection.scalars(rows.order_by(_C.began_at, _C.id).limit(limit)).all()

    def scored_conversations(self, since: datetime, limit: int = 100_000) -> Sequence[ScoredConversation]:
        """The newest scored conversations since then, in the order of scoring, without those that have no verdict."""
        columns = CONVERSATION_SCORE.c
        rows = select(CONVERSATION_SCORE, _C.began_at, _C.release, _C.has_error).join(
            CONVERSATION, _C.id == columns.conversation_id
        )
        rows = rows.where(columns.metric == VERDICT, columns.scored_at >= since, columns.passed.is_not(None))
        newest_first = (columns.scored_at.desc(), columns.conversation_id.desc())
        with self._database.reading() as connection:
            newest = connection.execute(rows.order_by(*newest_first).limit(limit)).all()
            return [
                ScoredConversation(
                    row.conversation_id,
                    row.began_at,
                    row.scored_at,
                    row.release,
                    row.stratum,
                    passed=row.passed,
                    has_error=row.has_error,
                )
                for row in reversed(newest)
            ]

    def judge_cost(self, since: datetime, until: datetime) -> float:
        """The US dollars of the judges of conversations that were scored from `since` to before `until`."""
        columns = CONVERSATION_SCORE.c
        of_days = columns.metric == JUDGE_COST, columns.scored_at >= since, columns.scored_at < until
        with self._database.reading() as connection:
            return float(connection.scalar(select(func.sum(columns.value)).where(*of_days)) or 0)

    def counts_of_day(self, since: datetime, until: datetime) -> dict[tuple[str, bool], int]:
        """The number of ended conversations that began from `since` to before `until`, by release and error."""
        of_day = _C.is_eval.is_(False), _C.began_at >= since, _C.began_at < until, _C.ending != "open"
        rows = select(_C.release, _C.has_error, func.count()).where(*of_day).group_by(_C.release, _C.has_error)
        with self._database.reading() as connection:
            return {(row[0], bool(row[1])): row[2] for row in connection.execute(rows)}

    def size(self) -> int:
        """The bytes that all conversations take."""
        with self._database.reading() as connection:
            return int(connection.scalar(select(func.sum(_C.n_bytes))) or 0)

    def remove_old(self, keep_days: float) -> int:
        """Remove conversations without a span for `keep_days` days, but no case; gives the number of removed ones."""
        if keep_days <= 0:
            return 0
        is_old = and_(_C.state != "case", _C.last_at < self._clock() - timedelta(days=keep_days))
        return self._remove(is_old)

    def remove_to_fit(self, most_bytes: int) -> int:
        """Remove the oldest conversations until all take at most `most_bytes`; gives the number of removed ones.

        Unread ones without a label go first, then dropped ones, then read ones; cases stay.
        """
        n_over, n_removed = self.size() - most_bytes, 0
        labelled = select(CONVERSATION_LABEL.c.conversation_id)
        for state in ("new", "dropped", "read"):
            while n_over > 0:
                some = select(_C.id, _C.n_bytes).where(_C.state == state, _C.id.not_in(labelled))
                with self._database.reading() as connection:
                    rows = connection.execute(some.order_by(_C.began_at).limit(MOST_REMOVED)).all()
                ids = []
                for row in rows:
                    if n_over <= 0:
                        break
                    ids.append(row.id)
                    n_over -= row.n_bytes
                if not ids:
                    break
                n_removed += self._remove(_C.id.in_(ids))
        return n_removed

    def remove(self, ids: Sequence[int]) -> int:
        """Remove conversations with their spans; gives the number of removed ones."""
        return self._remove(_C.id.in_([*ids]))

    def _remove(self, some: Any) -> int:
        n_removed = 0
        while True:
            with self._database.writing() as connection:
                rows = connection.execute(select(_C.id, _C.group_id, _C.source).where(some).limit(MOST_REMOVED)).all()
                ids, groups = [row.id for row in rows], {row.group_id for row in rows}
                connection.execute(delete(CONVERSATION).where(_C.id.in_(ids)))
                groups -= set(connection.scalars(select(_C.group_id).where(_C.group_id.in_(groups))))
                traces = select(TRACE.c.source, TRACE.c.trace_id).where(
                    TRACE.c.group_id.in_(groups), TRACE.c.stage != GONE
                )
                keys = [(row.source, row.trace_id) for row in connection.execute(traces)]
                remove_traces(connection, keys, self._clock())
                for source, n in Counter(row.source for row in rows).items():
                    count_removed(connection, source, self._clock(), n)
            self._index_words([(number, ()) for number in ids])
            n_removed += len(ids)
            if len(ids) < MOST_REMOVED:
                return n_removed

    def _index_words(self, words: Sequence[tuple[int, Collection[str]]]) -> None:
        if words and not self._index.refusal:
            with suppress(WorkspaceError):  # it is made of stored texts: without it a filter by text finds less
                self._index.put(INBOX, Seen("inbox"), words)

    def _lookups(
        self, conditions: ConversationFilter, case_twins: Collection[str], *, is_whole: bool = False
    ) -> Lookups:
        """The values that the conditions ask for, read before the transaction of their question.

        Unless they are to be `is_whole`, a text of many conversations is left out, and such tools and tags are named.
        """
        texts = {term.condition.text for term in conditions.terms if isinstance(term.condition, TextCondition)}
        most = MOST_WITH_TEXT if is_whole else MOST_NAMED + 1
        ids_by_text = {text: self._with_text(text, most) for text in texts}
        if is_whole:
            return Lookups(self._clock(), case_twins, ids_by_text)
        rare = {text: ids for text, ids in ids_by_text.items() if len(ids) <= MOST_NAMED}
        marks = {(each.name, each.value) for each in _mark_conditions(conditions)}
        with self._database.reading() as connection:
            frequent_marks = {mark for mark in marks if _n_marks(connection, *mark, most) > MOST_NAMED}
        return Lookups(self._clock(), case_twins, rare, frequent_marks)

    def _with_text(self, text: str, most: int) -> Sequence[int]:
        words = words_of(text)[:MOST_WORDS_ASKED]
        if not words or self._index.refusal:
            return ()
        return self._index.newest_in(words, *numbers_of(INBOX), most)

    def _newest_with_texts(
        self, conditions: ConversationFilter, lookups: Lookups, most: int, after: Cursor | None, *, is_eval: bool
    ) -> builtins.list[int] | None:
        """The ids of the newest conversations that meet all conditions, where one is on a text that many have.

        None without such a condition. Then the newest conversations are asked for the text, page by page.
        """
        frequent = [
            (term.condition.text, term.is_negated)
            for term in conditions.terms
            if isinstance(term.condition, TextCondition) and term.condition.text not in lookups.with_text
        ]
        if not frequent:
            return None
        matches: builtins.list[int] = []
        n_asked = FIRST_PAGE
        while len(matches) < most:
            with self._database.reading() as connection:
                rows = _newest_first(
                    select(_C.id, _C.began_at), conditions, lookups, connection, after, is_eval=is_eval
                )
                page = connection.execute(rows.limit(n_asked)).all()
            ids = [row.id for row in page]
            for text, is_negated in frequent:
                holding = self._holding(text, ids)
                ids = [each for each in ids if (each in holding) is not is_negated]
            matches += ids
            if len(page) < n_asked:
                break
            after = Cursor(page[-1].began_at, page[-1].id)
            n_asked = min(2 * n_asked, LAST_PAGE)
        return matches[:most]

    def _holding(self, text: str, ids: Collection[int]) -> set[int]:
        """The conversations around these ids that hold all words of the text."""
        spans: builtins.list[tuple[int, int]] = []
        for number in sorted(ids):
            if spans and number - spans[-1][1] <= LARGEST_GAP:
                spans[-1] = spans[-1][0], number + 1
            else:
                spans.append((number, number + 1))
        longest = max((end - first for first, end in spans), default=0)
        words = words_of(text)[:MOST_WORDS_ASKED]
        return {number for of_span in self._index.numbers_in(words, spans, longest) for number in of_span}


def _newest_first(
    rows: Select[Any],
    conditions: ConversationFilter,
    lookups: Lookups,
    connection: Connection,
    after: Cursor | None,
    *,
    is_eval: bool,
) -> Select[Any]:
    """The rows of conversations that meet the conditions in SQL, behind the cursor."""
    rows = rows.where(*where(conditions, lookups, connection.dialect.name, is_eval=is_eval))
    if after:
        rows = rows.where(tuple_(_C.began_at, _C.id) < tuple_(after.began_at, after.id))
    return rows.order_by(_C.began_at.desc(), _C.id.desc())


def _mark_conditions(conditions: ConversationFilter) -> Iterator[WordCondition]:
    for term in conditions.terms:
        if isinstance(term.condition, WordCondition) and term.condition.name in ("tool", "tag"):
            yield term.condition


def _n_marks(connection: Connection, kind: str, value: str, most: int) -> int:
    """The number of conversations with a mark, counted up to `most`."""
    some = select(MARK.c.conversation_id).where(MARK.c.kind == kind, MARK.c.value == value).limit(most).subquery()
    return connection.scalar(select(func.count()).select_from(some)) or 0


def _put(
    connection: Connection, groups: Sequence[tuple[TraceGroup, Sequence[JoinedConversation]]]
) -> builtins.list[int]:
    """Store the conversations of groups; gives their ids, in order."""
    by_group: dict[int, dict[tuple[str, str], int]] = {group.id: {} for group, _ in groups}
    for some in pieces([*by_group]):
        rows = select(_C.id, _C.group_id, _C.service, _C.name).where(_C.group_id.in_(some)).order_by(_C.id)
        for row in connection.execute(rows):
            by_group[row.group_id][row.service, row.name] = row.id
    joinings: builtins.list[tuple[int, int, JoinedConversation]] = []  # the id, 0 for a new one, and the group
    for group, conversations in groups:
        by_name = by_group[group.id]
        ids = [by_name.pop((each.conversation.service, each.conversation.name), 0) for each in conversations]
        for index, each in enumerate(conversations):
            earlier_keys = [key for key in by_name if key[1] in each.trace_ids]
            if not ids[index] and earlier_keys:
                ids[index] = by_name.pop(earlier_keys[0])
        joinings += ((number, group.id, each) for number, each in zip(ids, conversations, strict=True))
    _remove_untouched(connection, [number for by_name in by_group.values() for number in by_name.values()])
    return _store(connection, joinings)


def _end_joining(connection: Connection, groups: Sequence[tuple[TraceGroup, Sequence[JoinedConversation]]]) -> None:
    """Note that the spans of groups are joined, but for traces that got spans meanwhile."""
    t = TRACE.c
    of_trace = (t.source == bindparam("of_source")) & (t.trace_id == bindparam("of_trace"))
    same = of_trace & (t.group_id == bindparam("of_group")) & (t.n_spans == bindparam("n"))
    for stage, is_agent in (("joined", True), ("empty", False)):
        rows = [
            {"of_source": group.source, "of_group": group.id, "of_trace": trace_id, "n": n_spans}
            for group, conversations in groups
            for trace_id, n_spans in group.n_spans.items()
            if bool(conversations) is is_agent
        ]
        execute_many(connection, update(TRACE).where(same).values(stage=stage), rows)


def _store(connection: Connection, joinings: Sequence[tuple[int, int, JoinedConversation]]) -> builtins.list[int]:
    """Store conversations with an id, 0 for a new one, and the id of their group; gives their ids."""
    dialect = connection.dialect.name
    contents = [pack(joining.result) for _, _, joining in joinings]
    rows = [
        _row(joining.conversation) | {"n_bytes": joining.conversation.n_bytes + len(data), "group_id": group_id}
        for (_, group_id, joining), (_, data) in zip(joinings, contents, strict=True)
    ]
    contents_by_id = {number: data for (number, _, _), (_, data) in zip(joinings, contents, strict=True) if number}
    _remove_outdated(connection, contents_by_id)
    own: dict[str, Any] = {name: bindparam(f"new_{name}") for name in (*_FIELDS, "ending") if name not in _OWN}
    changes = [
        {f"new_{name}": row[name] for name in own} | {"own_id": number}
        for (number, _, _), row in zip(joinings, rows, strict=True)
        if number
    ]
    execute_many(
        connection, update(CONVERSATION).where(_C.id == bindparam("own_id")).values(own | {"ending": "open"}), changes
    )
    new_rows = [
        {name: value for name, value in row.items() if name != "id"}
        for (number, _, _), row in zip(joinings, rows, strict=True)
        if not number
    ]
    inserting = insert(CONVERSATION).returning(_C.id, sort_by_parameter_order=True)
    new_ids = iter(connection.scalars(inserting, new_rows).all() if new_rows else ())
    ids = [number or next(new_ids) for number, _, _ in joinings]
    execute_many(
        connection,
        replacing(dialect, CONTENT),
        [
            {"conversation_id": number, "codec": codec, "data": data}
            for number, (codec, data) in zip(ids, contents, strict=True)
        ],
    )
    marks = [
        {"kind": kind, "value": value, "conversation_id": number}
        for number, (_, _, joining) in zip(ids, joinings, strict=True)
        for kind, value in _marks(joining.conversation)
    ]
    execute_many(connection, insert(MARK), marks)
    return ids


def _marks(conversation: Conversation) -> Sequence[tuple[str, str]]:
    """The kinds and names that a conversation is found by."""
    names = {("tool", name) for name in conversation.tools} | {("tag", tag) for tag in conversation.tags}
    return sorted(names)[:MOST_MARKS]


def _remove_outdated(connection: Connection, contents: Mapping[int, bytes]) -> None:
    """Remove the marks of conversations, and scores of those whose packed turns change: they are of fewer spans.

    The cost of the judges stays, since it is spent.
    """
    for some in pieces([*contents]):
        changed_ids = []
        for row in connection.execute(
            select(CONTENT.c.conversation_id, CONTENT.c.data).where(CONTENT.c.conversation_id.in_(some))
        ):
            if row.data != contents[row.conversation_id]:
                changed_ids.append(row.conversation_id)
        columns = CONVERSATION_SCORE.c
        is_score = columns.conversation_id.in_(changed_ids), columns.metric != JUDGE_COST
        connection.execute(delete(CONVERSATION_SCORE).where(*is_score))
        connection.execute(delete(MARK).where(MARK.c.conversation_id.in_(some)))


def _remove_untouched(connection: Connection, ids: Sequence[int]) -> None:
    """Remove conversations that nobody has read, labelled or drawn."""
    if not ids:
        return
    touched = or_(
        _C.state != "new",
        _C.id.in_(select(CONVERSATION_LABEL.c.conversation_id)),
        _C.id.in_(select(DRAW_ITEM.c.conversation_id)),
    )
    connection.execute(delete(CONVERSATION).where(_C.id.in_(ids), ~touched))


def _row(conversation: Conversation) -> dict[str, Any]:
    values = {name: getattr(conversation, name) for name in _FIELDS}
    return values | {name: json.dumps([*values[name]], ensure_ascii=False) for name in _JSON}


def _conversation(row: Any) -> Conversation:
    values = dict(row._mapping)
    return Conversation(**values | {name: tuple(json.loads(values[name])) for name in _JSON})
