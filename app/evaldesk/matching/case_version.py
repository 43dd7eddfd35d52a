"""The version of a case: a digest of its messages and expectations."""

from __future__ import annotations

import hashlib

from evaldesk.codec import msgspec
from evaldesk.model import Case, JsonObject, Turn

NOT_IN_A_VERSION = frozenset({"$form", "creation_timestamp", "invocation_id", "n", "quarantine", "tags"})
"""Keys of `extra` that neither ask nor assert: the form of the file, time stamps, ids of recorded turns, and how often
and in which runs a case is played."""

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
