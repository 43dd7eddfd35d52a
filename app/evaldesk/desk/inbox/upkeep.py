"""The upkeep of an inbox: spans are joined, quiet conversations closed, old ones removed."""

from __future__ import annotations

from datetime import timedelta

from evaldesk.desk.inbox.joining import join_new
from evaldesk.settings import InboxSettings
from evaldesk.store import Store

HOLD = "inbox"
"""The hold of the process that joins the spans of a workspace."""


KNOWN_AS_REMOVED = timedelta(days=90)
"""So long no pull brings a removed conversation back."""


def join_now(store: Store, inbox: InboxSettings) -> None:
    """Join all spans that came, and tidy up; for a process that holds the inbox."""
    while join_new(store, 0.0):
        pass
    tidy(store, inbox)


def tidy(store: Store, inbox: InboxSettings) -> int:
    """Close quiet conversations, and remove old ones and those above the room; gives the number of removed ones."""
    quiet = store.now() - timedelta(minutes=inbox.quiet_min)
    while store.inbox.close_quiet(quiet):
        pass
    while store.inbox_spans.remove_empty(quiet):
        pass
    while store.inbox_spans.forget_gone(store.now() - KNOWN_AS_REMOVED):
        pass
    return store.inbox.remove_old(inbox.keep_days) + store.inbox.remove_to_fit(inbox.max_mb * 10**6)
