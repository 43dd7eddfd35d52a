"""The inbox of a workspace: conversations of running agents are listed, read, labelled and made into cases."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from evaldesk.desk.evalsets.cases import CaseIds
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.evalsets.masking import masked_words, without_secrets
from evaldesk.desk.evalsets.names import candidates, slug
from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.joining import twin_group_of
from evaldesk.desk.inbox.listening import Listener, listener_of
from evaldesk.desk.labels import Person
from evaldesk.errors import ConflictError, EvaldeskError, UsageError
from evaldesk.model import Case, EvalSet, Expected, SessionInit, TrialResult, Turn
from evaldesk.model.conclusion import counted
from evaldesk.model.conversation_filter import ConversationFilter, FlagCondition
from evaldesk.model.evalset import PROVENANCE, JsonValue, splice_cases
from evaldesk.model.inbox import Candidate, Conversation, ConversationPage, Cursor, InboxLabel, InboxSource
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.inbox.conversations import MOST_COUNTED
from evaldesk.transcripts.conversation_case import turn_expecting

Expectation: TypeAlias = Literal["calls", "none", "open"]
"""The expectation of a turn: its calls as they were, no tool, or nothing asserted."""
VERDICTS = ("passed", "failed")
MAX_CHOSEN = 100
"""Conversations that become cases at once."""
TAG = "inbox"
MAX_NOTE = 2_000


@dataclass(frozen=True, slots=True)
class TurnChoice:
    """A turn of a draft: whether the case has it, and its expectation."""

    is_chosen: bool = True
    expectation: Expectation = "open"


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """A conversation that becomes a case: its id in the set, and its turns; without `turns` the proposed ones."""

    conversation_id: int
    case_id: str = ""
    turns: Mapping[int, TurnChoice] | None = None


@dataclass(frozen=True, slots=True)
class CaseProposal:
    """A conversation as the case that is proposed. `had_bad_outcome` is why nothing is expected of its calls.

    `twins` are cases of the set with the same first message.
    """

    conversation: Conversation
    result: TrialResult
    case_id: str
    turns: tuple[TurnChoice, ...]
    had_bad_outcome: str
    twins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddedCases:
    """The cases that were added to an eval set, with a note on masked secrets."""

    evalset_id: str
    name: str
    ids: tuple[str, ...]
    masking_note: str = ""

    @property
    def words(self) -> str:
        """`2 cases added to trips.`"""
        return f"{counted(len(self.ids), 'case')} added to {self.name}. {self.masking_note}".rstrip()


class InboxDesk:
    """The conversations of a workspace. Works on the database: from pages, call it in a thread."""

    def __init__(self, settings: Settings, store: Store, evalsets: EvalSetDesk, person: Person) -> None:
        self._settings = settings
        self._store = store
        self._evalsets = evalsets
        self._person = person

    def list(
        self, line: str = "", *, limit: int = 50, after: Cursor | None = None, is_eval: bool = False
    ) -> ConversationPage:
        """The conversations that the filter line finds, newest first. Raises UsageError for a wrong line."""
        conditions = parse_filter(line)
        twins = self._case_twins(conditions)
        return self._store.inbox.list(conditions, limit=limit, after=after, case_twins=twins, is_eval=is_eval)

    def count(self, line: str = "", *, most: int = MOST_COUNTED, is_eval: bool = False) -> int:
        """The number that the filter line finds, `most` + 1 for more. Raises UsageError for a wrong line."""
        conditions = parse_filter(line)
        return self._store.inbox.count(conditions, most=most, case_twins=self._case_twins(conditions), is_eval=is_eval)

    def candidates(self, conditions: ConversationFilter) -> Sequence[Candidate]:
        """All conversations that meet the conditions, by id, to draw from."""
        return self._store.inbox.candidates(conditions, case_twins=self._case_twins(conditions))

    def read(self, conversation_id: int) -> tuple[Conversation, TrialResult]:
        """A conversation with its turns. Raises NotFoundError."""
        return self._store.inbox.get(conversation_id), self._store.inbox.content(conversation_id)

    def many(self, ids: Sequence[int]) -> dict[int, Conversation]:
        """The conversations with these ids; removed ones are missing."""
        return self._store.inbox.many(ids)

    def mark_read(self, conversation_id: int) -> None:
        """Make a new conversation a read one. Raises NotFoundError."""
        self._store.inbox.set_state([self._store.inbox.get(conversation_id).id], "read", only_from="new")

    def drop(self, ids: Sequence[int]) -> int:
        """Drop conversations, which stay in the list; gives the number of changed ones. Cases stay cases."""
        droppable = [each.id for each in self._store.inbox.many(ids).values() if each.state != "case"]
        return self._store.inbox.set_state(droppable, "dropped")

    def take_back(self, ids: Sequence[int]) -> int:
        """Make dropped conversations read ones; gives the number of changed ones."""
        return self._store.inbox.set_state(ids, "read", only_from="dropped")

    def remove(self, ids: Sequence[int]) -> int:
        """Remove conversations for good, with their spans; gives the number of removed ones."""
        return self._store.inbox.remove(ids)

    def label(self, conversation_id: int, verdict: str, note: str = "", labeller: str = "") -> None:
        """Store a person's verdict, an empty one takes it away. Raises UsageError and NotFoundError."""
        if verdict and verdict not in VERDICTS:
            raise UsageError(f"a verdict is {' or '.join(VERDICTS)}, got {verdict[:40]!r}", field="verdict")
        if len(note) > MAX_NOTE:
            raise UsageError(f"a note has at most {MAX_NOTE:,} characters", field="note")
        name = " ".join(labeller.split()) or self._person.name()
        self._store.inbox.label(conversation_id, name, verdict, note.strip())

    def labels(self, conversation_id: int) -> Sequence[InboxLabel]:
        """The verdicts of people on a conversation."""
        return self._store.inbox.labels([conversation_id]).get(conversation_id, [])

    def sources(self) -> Sequence[InboxSource]:
        """The senders of spans."""
        return self._store.inbox_spans.sources()

    def listener(self) -> Listener | None:
        """The process that takes spans for this workspace; None where none does."""
        return listener_of(self._settings, self._store)

    def size(self) -> int:
        """The bytes that all conversations take."""
        return self._store.inbox.size()

    def proposals(self, ids: Sequence[int], evalset_id: str = "") -> Sequence[CaseProposal]:
        """The cases that are proposed for some conversations. Raises UsageError and NotFoundError."""
        if not ids:
            raise UsageError("choose at least one conversation", field="conversation")
        if len(ids) > MAX_CHOSEN:
            raise UsageError(f"at most {MAX_CHOSEN} conversations become cases at once", field="conversation")
        evalset = self._evalsets.evalset(evalset_id) if evalset_id else EvalSet("", cases=())
        labels = self._store.inbox.labels(ids)
        names: set[str] = set()
        set_ids = CaseIds(evalset.cases)
        twins: dict[str, list[str]] = {}
        for case in evalset.cases:
            if case.turns and (group := twin_group_of(case.turns[0].query)):
                twins.setdefault(group, []).append(case.id)
        proposals = []
        for conversation_id in dict.fromkeys(ids):
            conversation = self._store.inbox.get(conversation_id)
            result = self._store.inbox.content(conversation_id)
            title = _short_name(conversation.first_words) or f"conversation_{conversation_id}"
            case_id = next(each for each in candidates(title) if each not in set_ids and each not in names)
            names.add(case_id)
            bad = bad_outcome(conversation, labels.get(conversation_id, ()))
            turns = tuple(
                TurnChoice(expectation="open" if bad or not turn.tool_calls else "calls")
                for turn in result.transcript.turns
            )
            same = tuple(twins.get(conversation.twin_group, ()))
            proposals.append(CaseProposal(conversation, result, case_id, turns, bad, same))
        return proposals

    def add_cases(self, choices: Sequence[CaseChoice], evalset_id: str = "", new_set: str = "") -> AddedCases:
        """Add conversations to an eval set as cases, or to a new one of that name.

        Raises UsageError for a case without turns or with a name of another, NotFoundError, and ConflictError when the
        file changes meanwhile.
        """
        proposals = self.proposals([each.conversation_id for each in choices], evalset_id)
        own_choices = {each.conversation_id: each for each in choices}
        cases = [case_of(each, own_choices[each.conversation.id]) for each in proposals]
        names = Counter(case.id for case in cases)
        if same_id := next((case.id for case in cases if names[case.id] > 1), ""):
            raise UsageError(f"two of the cases are named {same_id!r}; give one another name", field="case_id")
        evalset_id = evalset_id or self._evalsets.create(new_set)
        evalset, version, _ = self._evalsets.read(evalset_id)
        set_ids = CaseIds(evalset.cases)
        if same_id := next((case.id for case in cases if case.id in set_ids), ""):
            raise UsageError(f"the set has a case {same_id!r} already; give it another name", field="case_id")
        n_masked = Counter[str]()
        cases = [*without_secrets(cases, self._settings.environment, n_masked)]
        n = len(evalset.cases)
        new_evalset = replace(evalset, cases=splice_cases(evalset.cases, n, n, cases))
        self._evalsets.save(evalset_id, new_evalset, version)
        self._evalsets.note_edit(evalset_id, evalset, new_evalset, "from the inbox")
        self._store.inbox.set_state([each.conversation.id for each in proposals], "case")
        note = masked_words(n_masked, {}) if n_masked else ""
        title = self._evalsets.file(evalset_id).name
        return AddedCases(evalset_id, title, tuple(case.id for case in cases), note)

    def _case_twins(self, conditions: ConversationFilter) -> frozenset[str]:
        """The twin groups of the first messages of all cases, where the filter asks for them."""
        if not any(term.condition == FlagCondition("no-case") for term in conditions.terms):
            return frozenset()
        twins: set[str] = set()
        for file in self._evalsets.list():
            with suppress(EvaldeskError, ConflictError):  # a broken set has no cases
                cases = self._evalsets.evalset(file.id).cases
                twins.update(twin_group_of(case.turns[0].query) for case in cases if case.turns)
        return frozenset(twins - {""})


def _short_name(words: str) -> str:
    """A name of whole words where they fit into 40 characters."""
    name = slug(words)
    whole_words = name[:41].rpartition("_")[0] if len(name) > 40 else name
    return (whole_words or name[:40]).strip("_-")


def bad_outcome(conversation: Conversation, labels: Sequence[InboxLabel]) -> str:
    """Why the calls of a conversation are not its expectation; empty where nothing speaks against them."""
    if any(each.verdict == "failed" for each in labels):
        return "a person labelled it failed"
    if conversation.has_error:
        return "it had an error"
    if conversation.feedback is not None and conversation.feedback < 0:
        return "its user gave bad feedback"
    return "it was cut off" if conversation.ending == "cut_off" else ""


def case_of(proposal: CaseProposal, choice: CaseChoice) -> Case:
    """The case of a conversation, with its provenance. Raises UsageError for one without turns."""
    chosen_turns: list[Turn] = []
    for place, record in enumerate(proposal.result.transcript.turns):
        own = (choice.turns or {}).get(place) or (proposal.turns[place] if choice.turns is None else TurnChoice(False))
        if not own.is_chosen:
            continue
        turn = turn_expecting(record, keeps_ids=False)
        if own.expectation == "calls":
            chosen_turns.append(turn if not proposal.had_bad_outcome else replace(turn, expected=_calls_of(turn)))
        else:
            tools = () if own.expectation == "none" else None
            chosen_turns.append(replace(turn, expected=Expected(tool_calls=tools)))
    if not chosen_turns:
        raise UsageError(f"{proposal.case_id}: a case needs at least one turn", field="turn")
    conversation = proposal.conversation
    case_id = unicodedata.normalize("NFC", choice.case_id.strip()) or proposal.case_id
    provenance: dict[str, JsonValue] = {
        "source": conversation.source,
        "conversation": conversation.name,
        "began_at": conversation.began_at.isoformat(),
        **({"service": conversation.service} if conversation.service else {}),
        **({"release": conversation.release} if conversation.release else {}),
    }
    state = proposal.result.transcript.turns[0].state_before
    session = SessionInit(conversation.agent or "agent", "user", state) if state else None
    return Case(case_id, tuple(chosen_turns), initial_session=session, tags=(TAG,), extra={PROVENANCE: provenance})


def _calls_of(turn: Turn) -> Expected:
    """The calls alone: the answer of a conversation with a bad outcome is no reference."""
    return Expected(tool_calls=turn.expected.tool_calls)
