"""The filter of conversations as SQL."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, false, not_, select, true

from evaldesk.model.conversation_filter import (
    Condition,
    ConversationFilter,
    FlagCondition,
    NumberCondition,
    TextCondition,
    TimeCondition,
)
from evaldesk.store.tables.columns import is_among
from evaldesk.store.tables.inbox import CONVERSATION, MARK

_C = CONVERSATION.c
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBERS: Mapping[str, ColumnElement[Any]] = {
    "feedback": _C.feedback,
    "turns": _C.n_turns,
    "calls": _C.n_calls,
    "tokens": _C.tokens,
    "cost": _C.cost,
    "latency": _C.duration_ms,
}


@dataclass(frozen=True, slots=True)
class Lookups:
    """Values that conditions ask for beside the rows: the time, the twin groups of all cases, and texts by words.

    `case_twins` has the twin groups of the first messages of the cases of all eval sets. `with_text` has the ids of the
    conversations that hold all words of a text; a text that many have is missing, and its conditions are left out.
    `frequent_marks` are tools and tags that many conversations have, by kind and name.
    """

    now: datetime
    case_twins: Collection[str]
    with_text: Mapping[str, Sequence[int]]
    frequent_marks: Collection[tuple[str, str]] = ()


def where(
    conditions: ConversationFilter, lookups: Lookups, dialect: str, *, is_eval: bool
) -> list[ColumnElement[bool]]:
    """The conditions on rows of conversations, of agents in use or, with `is_eval`, of agents that Evaldesk played."""
    clauses: list[ColumnElement[bool]] = [_C.is_eval.is_(is_eval)]
    for term in conditions.terms:
        if isinstance(term.condition, TextCondition) and term.condition.text not in lookups.with_text:
            continue
        clause = _clause(term.condition, lookups, dialect)
        clauses.append(not_(clause) if term.is_negated else clause)
    return clauses


def _clause(condition: Condition, lookups: Lookups, dialect: str) -> ColumnElement[bool]:
    if isinstance(condition, FlagCondition):
        if condition.name == "error":
            return _C.has_error.is_(True)
        twins = sorted(lookups.case_twins)
        return not_(is_among(_C.twin_group, twins, dialect)) if twins else true()
    if isinstance(condition, NumberCondition):
        return _number(condition)
    if isinstance(condition, TextCondition):
        ids = lookups.with_text[condition.text]
        return is_among(_C.id, ids, dialect) if ids else false()
    if isinstance(condition, TimeCondition):
        instant = condition.instant(lookups.now)
        return _C.began_at >= instant if condition.name == "since" else _C.began_at < instant
    if condition.name in ("tool", "tag"):
        of_mark = MARK.c.kind == condition.name, MARK.c.value == condition.value
        if (condition.name, condition.value) in lookups.frequent_marks:  # a list of all of them takes longer
            return select(MARK.c.conversation_id).where(*of_mark, MARK.c.conversation_id == _C.id).exists()
        return _C.id.in_(select(MARK.c.conversation_id).where(*of_mark))
    return _C[condition.name] == condition.value


def _number(condition: NumberCondition) -> ColumnElement[bool]:
    column = _NUMBERS[condition.name]
    value = condition.value * 1000 if condition.name == "latency" else condition.value
    clause: ColumnElement[bool] = _COMPARE[condition.comparator](column, value)
    # With NULL a negated condition would be neither true nor false.
    return and_(column.is_not(None), clause) if column.nullable else clause
