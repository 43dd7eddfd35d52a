"""The version of a case, a digest of its messages and expectations, and the version of a set of cases."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from evaldesk.codec import msgspec
from evaldesk.model import Case, EvalSet, JsonObject, Turn
from evaldesk.model.evalset import CRITERIA, LargeCases

NOT_IN_A_VERSION = frozenset({"$form", "creation_timestamp", "invocation_id", "n", "quarantine", "tags", "trials"})
"""Keys of `extra` that neither ask nor assert: the form of the file, time stamps, ids of recorded turns, and how often
and in which runs a case is played."""
LABELS = frozenset({"n", "quarantine", "trials"})
"""Those of them that a person gives a case, beside its tags: steps that make no other version."""

_encoder = msgspec.json.Encoder(order="deterministic")


def case_version(case: Case) -> str:
    """The digest of a case: messages, scenario, session, expectations, rubrics, own columns.

    Its id, time stamps, tags, quarantine, number of trials, app and layout in the file are not in it, nor the order of
    keys. Fields are named one by one, so that a field that `Case` gets later leaves old versions as they are.
    (decision 455)
    """
    session = case.initial_session
    content = [
        [_turn(turn) for turn in case.turns],
        case.scenario,
        None if session is None else [session.user_id, session.state, _columns(session.extra)],
        case.final_state,
        case.rubrics,
        _columns(case.extra),
    ]
    return hashlib.sha256(_encoder.encode(content)).hexdigest()


def canonical_case(case: Case) -> Case:
    """The case with no more than a person wrote of it: without id, tags, quarantine, number of trials, time stamps."""
    return replace(
        case,
        id="",
        tags=(),
        turns=tuple(
            replace(
                turn,
                extra=_columns(turn.extra),
                expected=replace(turn.expected, extra=_columns(turn.expected.extra)),
            )
            for turn in case.turns
        ),
        extra={key: value for key, value in case.extra.items() if key == "$form" or key not in NOT_IN_A_VERSION},
    )


def labelled_case(content: Case, case_id: str, current: Case | None = None) -> Case:
    """A case of a stored content, with the tags, the quarantine and the number of trials that it has now."""
    if current is None:
        return replace(content, id=case_id)
    labels = {key: value for key, value in current.extra.items() if key in LABELS}
    return replace(content, id=case_id, tags=current.tags, extra={**content.extra, **labels})


def version_keys(evalset: EvalSet) -> list[tuple[str, str]]:
    """The id and the version of each case of a set, in order."""
    cases = evalset.cases
    if isinstance(cases, LargeCases):
        return list(cases.versions())
    return _keys(_Same(cases))[:]


def set_version(keys: Sequence[tuple[str, str]], criteria: object = None) -> str:
    """The version of a set: a digest of the ids and versions of its cases in order, and of its criteria.

    Its name, its description and the file that it is in are not in it.
    """
    return hashlib.blake2b(_encoder.encode([keys, criteria or None]), digest_size=16).hexdigest()


def version_of_set(evalset: EvalSet) -> str:
    """The `set_version` of an eval set as it was read."""
    return set_version(version_keys(evalset), evalset.extra.get(CRITERIA))


class _Same:
    """The cases of a set as a key of a cache: those that are one object are the same, and no others."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.cases is other.cases

    def __hash__(self) -> int:
        return id(self.cases)


@lru_cache(maxsize=8)
def _keys(same: _Same) -> list[tuple[str, str]]:
    """Forms and pages ask for the versions of one set again and again."""
    return [(case.id, case_version(case)) for case in same.cases]


def _turn(turn: Turn) -> list[object]:
    expected = turn.expected
    calls = expected.tool_calls
    return [
        turn.query,
        [[item.mime_type, item.digest, item.uri, item.name, item.at] for item in turn.media],
        None if calls is None else [[call.name, call.args, _columns(call.extra)] for call in calls],
        expected.intermediate,
        expected.reference,
        _columns(expected.extra),
        turn.rubrics,
        _columns(turn.extra),
    ]


def _columns(extra: JsonObject) -> JsonObject:
    return {key: value for key, value in extra.items() if key not in NOT_IN_A_VERSION}
