"""The share of failures of a draw in words, on the page of the inbox and on that of the draw."""

from __future__ import annotations

from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.desk.inbox.drawing import DrawnShare, share_of
from evaldesk.model.conclusion import counted
from evaldesk.model.inbox import Draw
from evaldesk.wording.words import interval_words, share_words


@dataclass(frozen=True, slots=True)
class ShareView:
    """The share of failures of a draw as a sentence with its doubt, and how it was weighted."""

    draw_id: int
    drawn: DrawnShare
    sentence: str
    doubt: str
    reason: str

    @property
    def is_read(self) -> bool:
        """Whether every drawn conversation has a label."""
        return self.drawn.n_read >= self.drawn.n_drawn


def newest_share(desk: Desk) -> ShareView | None:
    """The share of failures of the newest draw; None without any."""
    draw = desk.draws.newest()
    return share_view(draw) if draw else None


def share_view(draw: Draw) -> ShareView:
    """The share of failures of a draw in words."""
    drawn = share_of(draw)
    if drawn.share is None:
        unread = [stratum.name for stratum in drawn.strata if stratum.size and not stratum.n_read]
        sentence = f"{drawn.n_read:,} of {drawn.n_drawn:,} read"
        doubt = f"the share of failures is known once {' and '.join(unread)} has a label" if unread else ""
        return ShareView(draw.id, drawn, sentence, doubt, "")
    terms = [
        f"{stratum.size:,} × {stratum.n_failed:,}/{stratum.n_read:,}" for stratum in drawn.strata if stratum.n_read
    ]
    reason = f"Each stratum counts by its size: ({' + '.join(terms)}) / {drawn.size:,}."
    if any(weight > 1 for stratum in draw.strata for weight in stratum.weights):
        reason += " A conversation that was drawn of a group of twins counts as all of the group."
    if drawn.n_read:
        reason += f" Without weights it would be {share_words(drawn.n_failed / drawn.n_read)}."
    return ShareView(
        draw.id,
        drawn,
        f"{share_words(drawn.share.share)} of {counted(drawn.size, 'conversation')} fail",
        f"could be {interval_words(drawn.share.interval)}",
        reason,
    )
