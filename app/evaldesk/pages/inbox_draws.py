"""The pages of draws: conversations of the inbox to read, and the share of failures that their labels tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.errors import UsageError
from evaldesk.model.conclusion import counted
from evaldesk.model.inbox import Draw
from evaldesk.pages.inbox import ConversationLine
from evaldesk.pages.inbox_share import ShareView, share_view

USUAL_STRATA = (("error", "all"), ("feedback<0", "30"), ("rest", "100"))
"""The proposed strata of a draw: a filter and the number to draw."""
N_ROWS = 5
"""Strata that the form has room for."""
ROWS_SHOWN = 500


@dataclass(frozen=True, slots=True)
class StratumRow:
    """A stratum as typed, and the number of its conversations; None where it is empty or cannot be read."""

    filter: str
    number: str
    size: int | None

    @property
    def drawn_share(self) -> float:
        """The share of its conversations that would be drawn, 0 to 100."""
        if not self.size:
            return 0.0
        n = self.size if self.number.strip() == "all" else int(self.number) if self.number.strip().isdecimal() else 0
        return 100 * min(n / self.size, 1)


@dataclass(frozen=True, slots=True)
class DrawForm:
    """A draw as typed: a filter of all its conversations, its strata in order, and a seed."""

    line: str = ""
    strata: tuple[tuple[str, str], ...] = USUAL_STRATA
    seed: str = ""
    is_one_per_twin_group: bool = True

    @property
    def texts(self) -> list[str]:
        """The strata as a command has them, such as `error:all`."""
        return [f"{line}:{number}" for line, number in self.strata if line.strip()]


@dataclass(frozen=True, slots=True)
class DrawFormPage:
    """The form of a draw, with the sizes of its strata."""

    form: DrawForm
    rows: Sequence[StratumRow]
    n_words: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A drawn conversation with the verdict of this person on it."""

    row: ConversationLine
    stratum: str
    verdict: str


@dataclass(frozen=True, slots=True)
class DrawPage:
    """A draw: its conversations in the order of reading, and the share of failures so far."""

    draw: Draw
    lines: Sequence[DrawnLine]
    n_more: int
    share: ShareView
    next_href: str


def draw_form_page(desk: Desk, form: DrawForm, problem: str = "") -> DrawFormPage:
    """The form of a draw with the sizes of its strata, where these can be read."""
    sizes: tuple[int | None, ...] = (None,) * len(form.strata)
    places = [place for place, (line, _) in enumerate(form.strata) if line.strip()]
    try:
        own_sizes = dict(zip(places, desk.draws.sizes(form.texts, line=form.line), strict=True))
        sizes = tuple(own_sizes.get(place) for place in range(len(form.strata)))
    except UsageError as error:
        problem = problem or str(error)
    rows = [StratumRow(line, number, size) for (line, number), size in zip(form.strata, sizes, strict=True)]
    rows += [StratumRow("", "", None)] * (min(len(rows) + 1, N_ROWS) - len(rows))
    n = sum(size or 0 for size in sizes)
    return DrawFormPage(form, rows, counted(n, "conversation"), problem)


def draw_page(desk: Desk, draw_id: int) -> DrawPage:
    """A draw to read. Raises NotFoundError."""
    draw = desk.draws.get(draw_id)
    items = draw.items[:ROWS_SHOWN]
    conversations = desk.inbox.many([item.conversation_id for item in items])
    lines = [
        DrawnLine(ConversationLine(conversations[item.conversation_id]), item.stratum, item.verdict)
        for item in items
        if item.conversation_id in conversations
    ]
    return DrawPage(draw, lines, len(draw.items) - len(items), share_view(draw), next_href(draw))


def next_href(draw: Draw) -> str:
    """The address of the next conversation of a draw without a label; empty where all have one."""
    unread = next((item.conversation_id for item in draw.items if not item.verdict), None)
    return f"/inbox/{unread}?draw={draw.id}" if unread is not None else ""
