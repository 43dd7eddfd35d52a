"""The labels of trials: the panel on the page of a trial, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evaldesk.desk.process_owner import AT_BROWSER, user_name
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.errors import UsageError
from evaldesk.model.proposals import is_name_of_client
from evaldesk.model.stored import Label, TrialKey
from evaldesk.settings import MAX_NAME
from evaldesk.store import Store

VERDICTS = ("passed", "failed", "unsure")
MAX_NOTE = 2_000


@dataclass(frozen=True, slots=True)
class TypedLabel:
    """The input on the page of a trial; `turn` is empty for the whole trial, else it counts from 0.

    `seen_times` is that of the panel that was shown; empty writes over any label.
    """

    labeller: str = ""
    verdict: str = ""
    note: str = ""
    turn: str = ""
    op: str = ""
    seen_times: str = ""


@dataclass(frozen=True, slots=True)
class LabelPanel:
    """The labels of a trial and the form for another; `where` says which run they are kept with when it is not this."""

    labels: Sequence[Label]
    form: TypedLabel
    where: int | None
    problem: str = ""
    field: str = ""

    @property
    def seen_times(self) -> str:
        """The times of the labels that are shown, so that no label is replaced unseen."""
        return " ".join(["shown", *(label.labelled_at.isoformat() for label in self.labels)])


class Person:
    """The reviewer's name with which forms begin, until another is typed; each browser has its own.

    The settings may name the person. On the database of a server others write as well, so their names are not taken;
    that of a folder has one desk, and the last name in it is the person's.
    """

    def __init__(self, store: Store, *, is_alone: bool = True, name: str = "") -> None:
        self._store = store
        self._is_alone = is_alone
        self._name = name

    def keep_typed_name(self, name: str) -> None:
        """Keep the name that was typed, for the next forms of this browser."""
        self._name = name
        AT_BROWSER.get([])[:] = [name]

    def name(self) -> str:
        """The last name typed at this browser, or at any; else the last in a database of its own, or the user here."""
        if at_browser := AT_BROWSER.get([]):
            return at_browser[0]
        if not self._name and self._is_alone:
            self._name = self._store.failures.last_author() or next(iter(self._store.labels.labellers()), "")
        return self._name or user_name()


class LabelDesk:
    """The labels of the trials of a workspace. Works on the database: from pages, call it in a thread."""

    def __init__(self, store: Store, person: Person | None = None) -> None:
        self._store = store
        self._person = person or Person(store)

    def panel(
        self, run_id: int, key: TrialKey, form: TypedLabel | None = None, error: UsageError | None = None
    ) -> LabelPanel:
        """The labels of a trial, also of a re-scored one: they judge the agent's work. Raises NotFoundError."""
        played_run = played_run_id(self._store.runs, run_id)
        return LabelPanel(
            labels=self._store.labels.of_trial(played_run, key),
            form=form or TypedLabel(labeller=self._person.name()),
            where=None if played_run == run_id else played_run,
            problem=str(error or ""),
            field=(error.field or "") if error else "",
        )

    def put(self, run_id: int, key: TrialKey, form: TypedLabel, n_turns: int) -> None:
        """Write a label over the labeller's earlier one, or take that away.

        Raises UsageError naming the field, and ConflictError for a label that was not seen.

        A verdict without a note keeps the note that was there, and a note without a verdict the verdict.
        """
        labeller, note = checked_name(form.labeller, "labeller"), checked_note(form.note)
        if form.verdict and form.verdict not in VERDICTS:
            raise UsageError(f"A label is {', '.join(VERDICTS)}, or nothing.", field="verdict")
        if not form.verdict and not note and form.op != "remove":
            raise UsageError("Choose a verdict, or write a note.", field="note")
        turn = _turn(form.turn, n_turns)
        self._person.keep_typed_name(labeller)
        played_run = played_run_id(self._store.runs, run_id)
        if form.op == "remove":
            self._store.labels.remove(played_run, key, turn, labeller, seen_times=_times(form.seen_times))
        else:
            verdict = form.verdict or None
            self._store.labels.put(played_run, key, turn, labeller, verdict, note, seen_times=_times(form.seen_times))


def checked_name(text: str, field: str = "author") -> str:
    """The name of a person. Raises UsageError."""
    name = " ".join(text.split())
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise UsageError(f"Enter your name, at most {MAX_NAME} letters.", field=field)
    if is_name_of_client(name):
        raise UsageError(f"{name!r} is a name of a coding agent; enter that of a person.", field=field)
    return name


def checked_note(text: str, most: int = MAX_NOTE, field: str = "note") -> str:
    """The note without blanks around it. Raises UsageError."""
    note = text.strip()
    if len(note) > most:
        raise UsageError(f"The note has {len(note):,} characters; {most:,} fit.", field=field)
    return note


def _times(words: str) -> list[datetime] | None:
    """The times in the `seen_times` of a panel; None for a form without one. Raises UsageError."""
    if not words:
        return None
    try:
        return [datetime.fromisoformat(word) for word in words.split()[1:]]
    except ValueError as error:
        raise UsageError("The form is not one of this page; load the page again.", field="note") from error


def _turn(text: str, n_turns: int) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 6 or int(text) >= n_turns:
        raise UsageError("There is no such turn in this trial.", field="turn")
    return int(text)
