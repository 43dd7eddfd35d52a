"""The pages of the inbox: the list of conversations, one of them to read, and drafts of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.inbox.inbox import MAX_CHOSEN, CaseChoice, CaseProposal, bad_outcome
from evaldesk.desk.inbox.listening import Listener
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model.conclusion import counted
from evaldesk.model.inbox import Conversation, Cursor, InboxLabel, InboxSource
from evaldesk.pages.conversation import TurnView, call_line, turn_views
from evaldesk.pages.inbox_rates import has_scores
from evaldesk.pages.inbox_share import ShareView, newest_share
from evaldesk.pages.prose import Markdown, Prose

PER_PAGE = 50
MOST_COUNTED = 10_000
TOOLS_SHOWN = 4
NEW_SET = "inbox"
"""The proposed name of a new eval set."""
CHIPS = (("error", "errored"), ("feedback<0", "failed"), ("no-case", ""), ("state:case", ""))
"""Filters that are often used, each with the status that colours it."""
ENDINGS = {"open": "open", "closed": "", "cut_off": "cut off"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that is often used, with the number of conversations that it finds."""

    text: str
    href: str
    n_words: str
    status: str


@dataclass(frozen=True, slots=True)
class ConversationLine:
    """A row of the list."""

    conversation: Conversation

    @property
    def href(self) -> str:
        """The address of the conversation."""
        return f"/inbox/{self.conversation.id}"

    @property
    def title(self) -> str:
        """The first words of the user, or the name of the conversation."""
        return self.conversation.first_words or self.conversation.name or "(no words)"

    @property
    def tools(self) -> str:
        """`search > book`, and the number of further calls."""
        first_tools = " › ".join(self.conversation.tools[:TOOLS_SHOWN])
        n_more = self.conversation.n_calls - min(len(self.conversation.tools), TOOLS_SHOWN)
        return f"{first_tools} +{n_more:,}" if n_more > 0 else first_tools

    @property
    def ending(self) -> str:
        """`open` or `cut off`; empty for a closed conversation."""
        return ENDINGS[self.conversation.ending]

    @property
    def opinion(self) -> str:
        """`up` or `down`; empty without feedback of the user."""
        feedback = self.conversation.feedback
        return "" if not feedback else "up" if feedback > 0 else "down"


@dataclass(frozen=True, slots=True)
class InboxPage:
    """The list of conversations. `problem` is why the filter cannot be read."""

    line: str
    rows: Sequence[ConversationLine]
    n_words: str
    chips: Sequence[Chip]
    older_href: str
    listener: Listener | None
    sources: Sequence[InboxSource]
    has_any: bool
    share: ShareView | None
    has_scores: bool
    problem: str = ""

    @property
    def draw_href(self) -> str:
        """The address of the form that draws among the listed conversations."""
        return f"/inbox/draw?{urlencode({'q': self.line})}" if self.line and not self.problem else "/inbox/draw"

    @property
    def losses(self) -> Sequence[str]:
        """Sentences on requests that were turned away, and on conversations that were removed."""
        return [
            *(
                f"{each.name}: {counted(each.n_refused, 'request')} came in a burst and were sent back."
                for each in self.sources
                if each.n_refused
            ),
            *(
                f"{each.name}: {counted(each.n_removed, 'conversation')} removed for age or room."
                for each in self.sources
                if each.n_removed
            ),
        ]


@dataclass(frozen=True, slots=True)
class ReaderPage:
    """A conversation with its turns, and the labels of people."""

    conversation: Conversation
    row: ConversationLine
    turns: Sequence[TurnView]
    labels: Sequence[InboxLabel]
    own_label: InboxLabel | None
    labeller: str
    bad_outcome: str
    draw_id: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DraftTurn:
    """A turn of a draft of a case: the words of the user, its calls, and the proposed or typed expectation."""

    place: int
    query: Prose
    calls: Sequence[str]
    answer: Prose
    expectation: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class DraftPage:
    """A conversation as a draft of a case. It is not proposed to become one where it has a twin in the set."""

    proposal: CaseProposal
    row: ConversationLine
    turns: Sequence[DraftTurn]
    case_id: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class DraftsForm:
    """The drafts as a person typed them: the name of a new set, and a choice for each conversation, ticked or not."""

    name: str
    choices: Mapping[int, CaseChoice]
    ticked_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class CasesPage:
    """Drafts of cases, and the eval sets that may get them."""

    ids: Sequence[int]
    drafts: Sequence[DraftPage]
    sets: Sequence[tuple[str, str]]
    evalset_id: str
    name: str
    agents: Sequence[str]
    problem: str = ""


def inbox_page(desk: Desk, line: str, after: str = "") -> InboxPage:
    """The conversations that the filter line finds, from a cursor on."""
    inbox, problem = desk.inbox, ""
    try:
        listing = inbox.list(line, limit=PER_PAGE, after=read_cursor(after))
        n = inbox.count(line, most=MOST_COUNTED)
    except UsageError as error:
        listing, n, problem = inbox.list("", limit=0), inbox.count("", most=MOST_COUNTED), str(error)
    older = {"q": line, "after": cursor_text(listing.following)} if listing.following else {}
    return InboxPage(
        line=line,
        rows=[ConversationLine(each) for each in listing.items],
        n_words=_count_words(n),
        chips=[
            Chip(text, f"/inbox?{urlencode({'q': text})}", _number_words(inbox.count(text, most=MOST_COUNTED)), status)
            for text, status in CHIPS
        ],
        older_href=f"/inbox?{urlencode(older)}" if older else "",
        listener=inbox.listener(),
        sources=inbox.sources(),
        has_any=bool(listing.items) or bool(inbox.count("", most=1)),
        share=newest_share(desk),
        has_scores=has_scores(desk),
        problem=problem,
    )


def reader_page(desk: Desk, conversation_id: int, problem: str = "", draw_id: int = 0) -> ReaderPage:
    """A conversation to read, as one of a draw where `draw_id` is its number. Raises NotFoundError."""
    conversation, result = desk.inbox.read(conversation_id)
    labels, labeller = desk.inbox.labels(conversation_id), desk.person.name()
    return ReaderPage(
        conversation=conversation,
        row=ConversationLine(conversation),
        turns=turn_views(result.transcript.turns, {}, conversation.agent or "agent"),
        labels=labels,
        own_label=next((each for each in labels if each.labeller == labeller), None),
        labeller=labeller,
        bad_outcome=bad_outcome(conversation, labels),
        draw_id=draw_id,
        problem=problem,
    )


def cases_page(
    desk: Desk, ids: Sequence[int], evalset_id: str = "", form: DraftsForm | None = None, problem: str = ""
) -> CasesPage:
    """Drafts of cases for some conversations, as typed in a form that was refused. Raises NotFoundError, UsageError."""
    sets = [(each.id, each.name) for each in desk.evalsets.list()]
    if evalset_id and evalset_id not in {set_id for set_id, _ in sets}:
        raise NotFoundError("this eval set is not there any more")
    proposals = desk.inbox.proposals(ids[:MAX_CHOSEN], evalset_id)
    return CasesPage(
        ids=[each.conversation.id for each in proposals],
        drafts=[_draft(each, form) for each in proposals],
        sets=sets,
        evalset_id=evalset_id,
        name=form.name if form else NEW_SET,
        agents=[each.id for each in desk.agents.list()],
        problem=problem,
    )


def _draft(proposal: CaseProposal, form: DraftsForm | None) -> DraftPage:
    markdown = Markdown()
    own = proposal.conversation
    choice_of_form = form.choices.get(own.id) if form else None
    form_turns = choice_of_form.turns if choice_of_form else None
    choices = [
        choice if form_turns is None else form_turns.get(place) or replace(choice, is_chosen=False)
        for place, choice in enumerate(proposal.turns)
    ]
    turns = [
        DraftTurn(
            place,
            markdown.prose(record.query),
            [call_line(call.name, call.args) for call in record.tool_calls],
            markdown.prose(record.answer),
            choice.expectation,
            choice.is_chosen,
        )
        for place, (record, choice) in enumerate(zip(proposal.result.transcript.turns, choices, strict=True))
    ]
    return DraftPage(
        proposal,
        ConversationLine(own),
        turns,
        case_id=choice_of_form.case_id if choice_of_form else proposal.case_id,
        is_chosen=own.id in form.ticked_ids if form else not proposal.twins,
    )


def cursor_text(cursor: Cursor) -> str:
    """The cursor in an address: microseconds since 1970 and the id."""
    return f"{(cursor.began_at - _EPOCH) // timedelta(microseconds=1)}-{cursor.id}"


def read_cursor(text: str) -> Cursor | None:
    """The cursor of an address; None for any other text, which is the first page."""
    time, _, number = text.partition("-")
    with suppress(ValueError, OverflowError):
        if time.isascii() and number.isascii() and len(text) <= 40:
            return Cursor(_EPOCH + timedelta(microseconds=int(time)), min(int(number), 2**62))
    return None


def _number_words(n: int) -> str:
    return f"{MOST_COUNTED:,}+" if n > MOST_COUNTED else f"{n:,}"


def _count_words(n: int) -> str:
    return f"more than {MOST_COUNTED:,} conversations" if n > MOST_COUNTED else counted(n, "conversation")


FORM_EXPECTATIONS: Mapping[str, str] = {"calls": "These calls", "none": "No tool", "open": "Not asserted"}
"""The expectations of a turn, as the form names them."""
