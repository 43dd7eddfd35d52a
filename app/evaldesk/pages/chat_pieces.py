"""The turns of a long chat that are on its page: the last ones, those from the address on, and the gaps between."""

from __future__ import annotations

from collections.abc import Sequence

from evaldesk.desk.chat.sessions import RECENT_TURNS, SessionDesk
from evaldesk.errors import NotFoundError
from evaldesk.model.stored import StoredSession
from evaldesk.pages.conversation import TurnView, turn_views
from evaldesk.pages.trial_turns import Gap, pieces_of_gap


def chat_pieces(
    sessions: SessionDesk, session: StoredSession, views: Sequence[TurnView], agent: str, turn: int = 0
) -> Sequence[TurnView | Gap]:
    """The `views` of the last turns, before them those from the number `turn` on, and a gap for the others."""
    n_before = session.first + 1 if session.first else 0
    if not n_before:
        return views
    if not 1 <= turn <= n_before:
        return [Gap(1, n_before), *views]
    end = min(turn + RECENT_TURNS - 1, n_before)
    before = [Gap(1, turn - 1)] if turn > 1 else []
    after = [Gap(end + 1, n_before)] if end < n_before else []
    return [*before, *_views(sessions, session, agent, turn, end), *after, *views]


def chat_piece(
    sessions: SessionDesk, session: StoredSession, agent: str, first: int, last: int
) -> Sequence[TurnView | Gap]:
    """Some turns of a gap of numbers, and the rest of it. Raises NotFoundError where there is none."""
    last = min(last, session.n_turns)
    if not 1 <= first <= last:
        raise NotFoundError(f"the chat has no turns {first} to {last}")
    pieces: list[TurnView | Gap] = []
    for each in pieces_of_gap(first, last, session.n_turns):
        pieces += [each] if isinstance(each, Gap) else _views(sessions, session, agent, each.start + 1, each.stop)
    return pieces


def _views(sessions: SessionDesk, session: StoredSession, agent: str, first: int, last: int) -> Sequence[TurnView]:
    """The turns from a number up to another, with the one before them, after which the first began."""
    index = max(first - 2, 0)
    views = turn_views(sessions.turns(session.id, index, last), session.initial_state, agent, index)
    return [view for view in views if view.number >= first]
