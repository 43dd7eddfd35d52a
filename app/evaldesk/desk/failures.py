"""Failures as people read them: findings on trials, and the codebook of modes they belong to."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from evaldesk.desk.labels import Person, checked_name, checked_note
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.diff.signature import Signature, error_signature, failure_signature
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.metrics import is_label
from evaldesk.model import Case, Criterion, Event, Transcript, TrialResult
from evaldesk.model.failures import Anchor, Finding, FindingDraft, Mode, UndoneStep
from evaldesk.model.json_text import json_line
from evaldesk.model.stored import TrialKey
from evaldesk.store import Store
from evaldesk.store.failure_steps import folded_name
from evaldesk.store.runs.facets import tells_reasons
from evaldesk.wording.words import short_title

MAX_MODE_NAME = 60
MAX_TEXT = 2_000
MAX_FINDING = 4_000
MAX_QUOTE = 500
AROUND = 200
"""Characters of an excerpt before and after what is marked."""
JUDGE = "failure_mode"
"""The metric that judges whether a trial shows a mode."""
MAX_SIGNED = 5_000
"""Failed trials whose transcripts are read for proposals."""
SIGNED_AT_ONCE = 50
MAX_OFFERED = 5
_WORD = re.compile(r"[^\W_]+")
_LINK_ADDRESS = re.compile(r"\]\([^()\s]*\)")


@dataclass(frozen=True, slots=True)
class TypedFinding:
    """The input on the page of a trial; `turn` and `event` count from 0, `mode` is an id or empty."""

    author: str = ""
    note: str = ""
    mode: str = ""
    new_mode: str = ""
    turn: str = ""
    event: str = ""
    quote: str = ""
    is_new: bool = False
    """Whether `new_mode` is to be made although its name begins that of another."""


@dataclass(frozen=True, slots=True)
class TypedMode:
    """The texts of a mode as they were typed."""

    name: str = ""
    definition: str = ""
    example_yes: str = ""
    example_no: str = ""


class AlikeNameError(UsageError):
    """A new kind of failure was typed whose name begins those of existing ones, which are `names`."""

    def __init__(self, typed: str, names: Sequence[str]) -> None:
        alike_names = ", ".join(f"{name!r}" for name in names)
        super().__init__(f"{typed!r} begins {alike_names}: use that kind, or make a new one.", field="new-mode")
        self.names = names


class FailureDesk:
    """Findings and modes of a workspace. Works on the database: from pages, call it in a thread."""

    def __init__(self, store: Store, person: Person | None = None) -> None:
        self._store = store
        self._person = person or Person(store)
        self._failures = store.failures

    def add(self, run_id: int, key: TrialKey, form: TypedFinding, transcript: Transcript) -> int:
        """Store a finding; a mode that is named and does not exist yet is created.

        Raises UsageError naming the field (AlikeNameError where the name begins that of another mode), NotFoundError,
        ConflictError when the mode was merged or retired.
        """
        author, note = self.sign(form.author), checked_note(form.note, MAX_FINDING, "finding")
        if not note and not form.mode and not form.new_mode.strip():
            raise UsageError("Write what went wrong, or choose a kind of failure.", field="finding")
        anchor = checked_anchor(form, transcript)
        new_mode = self._mode_name(form) if form.new_mode.strip() else ""
        mode_id = checked_id(form.mode, "mode") if form.mode and not new_mode else None
        played_run = played_run_id(self._store.runs, run_id)
        return self._failures.add(FindingDraft(played_run, *key, note, mode_id, anchor), author, new_mode)

    def _mode_name(self, form: TypedFinding) -> str:
        """The typed name of a mode. Raises AlikeNameError where it would make a mode beside others that begin so."""
        name = checked_texts(TypedMode(form.new_mode))["name"]
        known_names = [mode.name for mode in self._failures.modes() if mode.is_active]
        alike_names = [each for each in known_names if each.casefold().startswith(name.casefold())]
        if alike_names and not form.is_new and name.casefold() not in {each.casefold() for each in alike_names}:
            raise AlikeNameError(name, alike_names[:MAX_OFFERED])
        return name

    def modes(self) -> Sequence[Mode]:
        """All modes, those in use first."""
        return self._failures.modes()

    def trials_by_run(self, mode_id: int) -> Mapping[int, int]:
        """The number of trials of each run with the mode."""
        return self._failures.trials_by_run(mode_id)

    def propose(self, run_id: int) -> int:
        """Propose findings for trials with equal failure signatures; no model is asked.

        A trial is proposed to a mode when it fails as trials of that mode do, else when another unread one fails as it
        does. Returns the number of new ones. Raises NotFoundError.
        """
        played_run = played_run_id(self._store.runs, run_id)
        signatures = self._signatures(played_run)
        readings = {(each.case_index, each.trial_index): each for each in self._failures.readings(played_run)}
        votes: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for key, signature in signatures.items():
            if key in readings:
                votes[signature.key].update(readings[key].modes)
        alike = Counter(signature.key for key, signature in signatures.items() if key not in readings)
        active = {mode.id for mode in self._failures.modes() if mode.is_active}
        drafts = []
        for key, signature in signatures.items():
            best = [mode_id for mode_id, _ in votes[signature.key].most_common() if mode_id in active]
            if key not in readings and (best or alike[signature.key] > 1):
                mode_id = best[0] if best else None
                drafts.append(FindingDraft(played_run, *key, signature.words, mode_id, signature=signature.key))
        return self._store.proposals.propose(drafts, "signature")

    def _signatures(self, run_id: int) -> dict[TrialKey, Signature]:
        """The signature of each failed or errored trial, of the first ones where there are very many."""
        letters = enumerate(self._failures.verdicts(run_id))
        keys = [(case, at) for case, (_, strip) in letters for at, letter in enumerate(strip) if letter in "fe"]
        return self.signatures(run_id, keys[:MAX_SIGNED])

    def signatures(self, run_id: int, keys: Sequence[TrialKey]) -> dict[TrialKey, Signature]:
        """The signatures of failed and errored trials, those of a case after each other; none where nothing tells it.

        Raises NotFoundError.
        """
        runs = self._store.runs
        config = runs.summary(run_id).config
        gating = {each.metric for each in config.criteria if each.threshold is not None}
        has_reasons = tells_reasons(config)
        cases: dict[int, Case] = {}
        signatures = {}
        for first in range(0, len(keys), SIGNED_AT_ONCE):
            for key, result in runs.trials(run_id, keys[first : first + SIGNED_AT_ONCE]).items():
                if key[0] not in cases:
                    cases = {key[0]: runs.case(run_id, key[0])}
                scores = [score for score in result.scores if score.metric in gating]
                if result.error:
                    signatures[key] = error_signature(result.error)
                elif signature := failure_signature(
                    cases[key[0]], result.transcript, scores, short_title, tells_reasons=has_reasons
                ):
                    signatures[key] = signature
        return signatures

    def decide(self, finding_ids: Sequence[int], form: TypedFinding, *, is_accepted: bool) -> None:
        """Accept proposals into the mode that was typed, or reject them.

        Raises UsageError naming the field, NotFoundError, ConflictError when one was decided meanwhile.
        """
        author = self.sign(form.author)
        if not finding_ids:
            raise UsageError("Choose a proposal.", field="finding")
        if is_accepted and not form.new_mode.strip():
            raise UsageError("Name the kind of failure of this proposal.", field="new-mode")
        new_mode = self._mode_name(form) if is_accepted else ""
        self._store.proposals.decide(finding_ids, author, new_mode)

    def name(self, finding_ids: Sequence[int], form: TypedFinding) -> None:
        """Give notes without a mode the typed one.

        Raises UsageError naming the field, NotFoundError, ConflictError when one has a mode by now.
        """
        author = self.sign(form.author)
        if not finding_ids or not form.new_mode.strip():
            raise UsageError("Name the kind of failure of these notes.", field="new-mode")
        self._failures.name(finding_ids, self._mode_name(form), author)

    def remove(self, finding_id: int, author: str) -> None:
        """Take a finding away. Raises UsageError, NotFoundError."""
        self._failures.remove(finding_id, self.sign(author))

    def remove_findings_of_mode(self, run_id: int, key: TrialKey, form: TypedFinding) -> None:
        """Take away the findings of a reader on a trial that name a mode. Raises UsageError, NotFoundError."""
        author, mode_id = self.sign(form.author), checked_id(form.mode, "mode")
        for each in self.of_trial(run_id, key):
            if (each.author, each.mode_id, each.status) == (author, mode_id, "counted"):
                self._failures.remove(each.id, author)

    def clear(self, run_id: int, key: TrialKey, author: str) -> None:
        """Say that nothing is wrong in a trial. Raises UsageError, NotFoundError, ConflictError."""
        self._failures.clear(played_run_id(self._store.runs, run_id), key, self.sign(author))

    def of_trial(self, run_id: int, key: TrialKey) -> Sequence[Finding]:
        """The findings of a trial, proposals included, also of a re-scored one. Raises NotFoundError."""
        return self._failures.of_trial(played_run_id(self._store.runs, run_id), key)

    def judged_by(self, mode_id: int, criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
        """The criteria with a judge of a mode as it is worded now, in place of an earlier one. Raises NotFoundError."""
        modes = self._failures.modes()
        mode = next((each for each in modes if each.id == mode_id), None)
        if mode is None:
            raise NotFoundError(f"there is no kind of failure {mode_id}")
        others = [each for each in criteria if find_judged_mode(each, modes) != mode]
        return (*others, judge_criterion(mode, {each.metric for each in others}))

    def find_mode(self, name: str) -> Mode:
        """The mode in use with this name. Raises NotFoundError naming those there are."""
        modes = [mode for mode in self._failures.modes() if mode.is_active]
        match = next((mode for mode in modes if folded_name(mode.name) == folded_name(name)), None)
        if match is None:
            names = ", ".join(mode.name for mode in modes) or "there are none yet"
            raise NotFoundError(f"no kind of failure is named “{name}”; known: {names}")
        return match

    def create(self, form: TypedMode, author: str) -> int:
        """Create a mode. Raises UsageError naming the field."""
        return self._failures.create_mode(self.sign(author), **checked_texts(form))

    def edit(self, mode_id: int, form: TypedMode, author: str, seen_texts: str = "") -> None:
        """Rename a mode or rewrite its definition.

        Raises UsageError naming the field, NotFoundError, and ConflictError for other texts than `seen_texts`.
        """
        self._failures.edit_mode(mode_id, self.sign(author), seen_version=seen_texts, **checked_texts(form))

    def merge(self, mode_id: int, into_id: int, author: str) -> None:
        """Let the findings of a mode belong to another. Raises UsageError, NotFoundError, ConflictError."""
        self._failures.merge(mode_id, into_id, self.sign(author))

    def split(self, mode_id: int, finding_ids: Sequence[int], form: TypedMode, author: str) -> int:
        """Make a new mode of some findings of another. Raises UsageError, NotFoundError, ConflictError."""
        return self._failures.split(mode_id, finding_ids, self.sign(author), **checked_texts(form))

    def retire(self, mode_id: int, author: str) -> None:
        """Take a mode out of use. Raises NotFoundError, ConflictError."""
        self._failures.retire(mode_id, self.sign(author))

    def mark_fixed(self, mode_id: int, run_id: int, author: str) -> None:
        """Say that a mode is fixed in a run. Raises UsageError when that run or a later one shows it."""
        self._failures.mark_fixed(mode_id, played_run_id(self._store.runs, run_id), self.sign(author))

    def undo(self, author: str) -> UndoneStep:
        """Take back a person's last step. Raises NotFoundError, ConflictError."""
        return self._failures.undo(self.sign(author))

    def sign(self, name_field: str) -> str:
        """The person of a step, whose name this browser keeps. Raises UsageError."""
        name = checked_name(name_field)
        self._person.keep_typed_name(name)
        return name


def judge_criterion(mode: Mode, used_names: Collection[str] = ()) -> Criterion:
    """A judge of the mode, named like it unless `used_names` has that name, with the mode's texts as they are now."""
    label = "-".join(_WORD.findall(mode.name.lower()))[:40]
    name = f"{JUDGE}/{label}"
    if not is_label(label) or name in used_names:
        name = f"{JUDGE}/kind-{mode.id}"
    texts = {key: text for key, text in _judged_texts(mode).items() if text}
    return Criterion(name, 1.0, {**texts, "kind": mode.key})


def find_judged_mode(criterion: Criterion, modes: Sequence[Mode]) -> Mode | None:
    """The mode that a criterion judges: the one it was made of, or that took this over; else the one of its name.

    A criteria file of another workspace has only the name to go by.
    """
    if criterion.metric.partition("/")[0] != JUDGE:
        return None
    by_id = {mode.id: mode for mode in modes}
    mode_of_key = next((mode for mode in modes if mode.key == criterion.options.get("kind")), None)
    for _ in modes:
        if mode_of_key and mode_of_key.merged_into is not None:
            mode_of_key = by_id.get(mode_of_key.merged_into)
    if mode_of_key:
        return mode_of_key
    name = folded_name(str(criterion.options.get("failure", "")))
    modes_of_name = [mode for mode in modes if folded_name(mode.name) == name]
    return next((mode for mode in modes_of_name if mode.is_active), None) or next(iter(modes_of_name), None)


def is_worded_as(criterion: Criterion, mode: Mode) -> bool:
    """Whether a judge of the mode has the texts that the mode has now."""
    texts = _judged_texts(mode)
    return all(str(criterion.options.get(key, "")).split() == text.split() for key, text in texts.items())


def _judged_texts(mode: Mode) -> dict[str, str]:
    texts = (mode.name, mode.definition, mode.example_yes, mode.example_no)
    return dict(zip(("failure", "definition", "example_yes", "example_no"), texts, strict=True))


def checked_id(text: str, field: str) -> int:
    """A number that a form sent. Raises UsageError."""
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise UsageError("Choose one of the list.", field=field)
    return int(text)


def checked_anchor(form: TypedFinding, transcript: Transcript) -> Anchor:
    """The place that was marked; a quote must stand in the text of its event. Raises UsageError."""
    if not form.turn:
        return Anchor()
    turn = checked_id(form.turn, "turn")
    if turn >= len(transcript.turns):
        raise UsageError("There is no such turn in this trial.", field="turn")
    record, quote = transcript.turns[turn], form.quote.strip()[:MAX_QUOTE]
    if not form.event:
        anchors = (
            anchor for at, event in enumerate(record.events) if (anchor := _anchor_of_quote(turn, at, event, quote))
        )
        return next(anchors, None) or Anchor(turn, quote=record.query[slice(*_span(record.query, quote) or (0, 0))])
    event = checked_id(form.event, "turn")
    if event >= len(record.events):
        raise UsageError("There is no such call in this turn.", field="turn")
    return _anchor_of_quote(turn, event, record.events[event], quote) or Anchor(turn, event)


def excerpt(anchor: Anchor, transcript: Transcript) -> str:
    """The text around the mark; without a mark the query and answer of its turn, or of the last one."""
    turns = transcript.turns
    if not turns:
        return ""
    turn = turns[anchor.turn if anchor.turn is not None and anchor.turn < len(turns) else -1]
    event = turn.events[anchor.event] if anchor.event is not None and anchor.event < len(turn.events) else None
    text = (event.text or _value_text(event)) if event else f"{turn.query}\n\n{turn.answer or ''}".strip()
    at = anchor.start if anchor.start is not None else max(text.find(anchor.quote), 0)
    first, last = max(at - AROUND, 0), at + (len(anchor.quote) or AROUND) + AROUND
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


def literal_anchor(result: TrialResult, quote: str) -> Anchor | None:
    """The first place at which a trial has a quote letter by letter; None where it has it nowhere."""
    if not quote:
        return None
    for turn, record in enumerate(result.transcript.turns):
        for at, event in enumerate(record.events):
            if any(quote in text for text in (event.text, _value_text(event))):
                return _anchor_of_quote(turn, at, event, quote[:MAX_QUOTE])
        if quote in record.query:
            return Anchor(turn, quote=quote[:MAX_QUOTE])
    is_of_error = result.error is not None and quote in result.error.message
    return Anchor(quote=quote[:MAX_QUOTE]) if is_of_error else None


def _anchor_of_quote(turn: int, at: int, event: Event, quote: str) -> Anchor | None:
    """The anchor of a quote in an event; in the arguments or the result of a call without its characters."""
    if span := _span(event.text, quote):
        return Anchor(turn, at, *span, event.text[slice(*span)][:MAX_QUOTE])
    text = _value_text(event)
    span = _span(text, quote)
    return Anchor(turn, at, quote=text[slice(*span)][:MAX_QUOTE]) if span else None


def _value_text(event: Event) -> str:
    """The arguments or the result of a call as text; empty for any other event."""
    value = event.result if event.kind == "tool_result" else event.call.args if event.call else None
    return "" if value is None else value if isinstance(value, str) else json_line(value)


def _span(text: str, quote: str) -> tuple[int, int] | None:
    """The span of a quote in a text, as written or as a page shows it, without the marks of Markdown and JSON."""
    start = text.find(quote) if quote else -1
    if start >= 0:
        return start, start + len(quote)
    (letters, words), (quote_letters, _) = _letters(text), _letters(quote)
    start = letters.find(quote_letters) if quote_letters else -1
    return (_place_of(words, start), _place_of(words, start + len(quote_letters) - 1) + 1) if start >= 0 else None


def _letters(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The letters and digits of a text in one piece, and of each of its words the places there and in the text.

    The address of a link is left out. static/app.js compares texts in the same way.
    """
    words, n = list[tuple[int, int]](), 0
    text = _LINK_ADDRESS.sub(lambda address: " " * len(address[0]), text)
    for word in _WORD.finditer(text):
        words.append((n, word.start()))
        n += len(word[0])
    return "".join(_WORD.findall(text)), words


def _place_of(words: Sequence[tuple[int, int]], letter: int) -> int:
    at, place = words[bisect_right(words, letter, key=itemgetter(0)) - 1]
    return place + letter - at


def checked_texts(form: TypedMode) -> dict[str, str]:
    """The texts of a mode by their names. Raises UsageError naming the field."""
    name = " ".join(form.name.split())
    if not name or len(name) > MAX_MODE_NAME or not name.isprintable():
        raise UsageError(f"Name the kind of failure in at most {MAX_MODE_NAME} letters.", field="name")
    texts = {"definition": form.definition, "example_yes": form.example_yes, "example_no": form.example_no}
    for field, text in texts.items():
        if len(text) > MAX_TEXT:
            raise UsageError(f"The text has {len(text):,} characters; {MAX_TEXT:,} fit.", field=field)
    return {"name": name} | {field: text.strip() for field, text in texts.items()}
