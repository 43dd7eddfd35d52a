"""Review queues: drawn from the trials of runs, read one by one, labelled by key or many at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from evaldesk.desk.labels import VERDICTS, Person, checked_name, checked_note
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.errors import UsageError
from evaldesk.metrics import is_function, metric_info
from evaldesk.model import Criterion, Score
from evaldesk.model.queues import QUEUE_KINDS, VERDICT_KINDS, GivenLabel, Queue, QueueDraft, QueueKind, QueueStratum
from evaldesk.model.stored import TrialKey
from evaldesk.store import Store

MAX_RUNS = 20
MAX_OF_EACH = 200
MAX_READ = 5_000
"""Trials whose judges' votes are read to find those in which they differ."""
READ_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class TypedQueue:
    """The input of the form for a new queue; `n` is the most of each kind and run."""

    runs: Sequence[str] = ()
    kinds: Sequence[str] = ()
    n: str = ""
    reader: str = ""
    is_blind: bool = False


@dataclass(frozen=True, slots=True)
class TypedVerdict:
    """A verdict as it was pressed; each of `items` is `PLACE.SEEN`. `note` is None where none could be typed."""

    items: Sequence[str]
    verdict: str
    reader: str
    note: str | None = None
    is_blind: bool = False


class QueueDesk:
    """The review queues of a workspace. Works on the database: from pages, call it in a thread."""

    def __init__(self, store: Store, person: Person | None = None) -> None:
        self._store = store
        self._person = person or Person(store)

    def reader(self, name: str = "") -> str:
        """The reader that an address names, else the person at this desk. Raises UsageError."""
        return checked_name(name) if name else self._person.name() or "reader"

    def candidates(self, run_id: int, reader: str) -> _Candidates:
        """The trials of a run by kind. Raises NotFoundError."""
        return _Candidates(self._store, run_id, reader)

    def create(self, form: TypedQueue) -> int:
        """Draw and store a queue: of each run and kind a number of trials, each with the same chance.

        Raises UsageError naming the field, NotFoundError for an unknown run.
        """
        reader = checked_name(form.reader)
        kinds = [kind for kind in QUEUE_KINDS if kind in form.kinds]
        run_ids = list(dict.fromkeys(_number(text, "run", 10**15) for text in form.runs))
        most = _number(form.n, "n", MAX_OF_EACH)
        if not kinds:
            raise UsageError("Choose which trials to read.", field="of")
        if not 0 < len(run_ids) <= MAX_RUNS:
            raise UsageError(f"Choose one run, or at most {MAX_RUNS}.", field="run")
        strata: list[QueueStratum] = []
        drafts: dict[tuple[int, TrialKey], QueueDraft] = {}
        for run_id in run_ids:
            candidates = self.candidates(run_id, reader)
            for kind in kinds:
                keys = candidates.draw(kind)
                strata.append(QueueStratum(run_id, kind, len(keys), min(most, len(keys))))
                for key in keys[:most]:
                    drafts.setdefault((run_id, key), QueueDraft(run_id, key, candidates.labelled_run, kind))
        # Not stratum by stratum: the place of a trial would tell its verdict.
        mixed = sorted(drafts.values(), key=lambda draft: _chance(f"queue:{draft.run_id}:{draft.key}".encode()))
        self._person.keep_typed_name(reader)
        return self._store.queues.create(strata, mixed, reader, is_blind=form.is_blind)

    def give(self, queue_id: int, form: TypedVerdict) -> int:
        """Store a verdict on one trial or many. Raises UsageError, NotFoundError, ConflictError.

        Returns the number of labels.
        """
        reader = checked_name(form.reader)
        note = None if form.note is None else checked_note(form.note)
        if form.verdict not in VERDICTS:
            raise UsageError(f"A label is {', '.join(VERDICTS)}.", field="verdict")
        if not form.items:
            raise UsageError("Choose a trial.", field="item")
        labels = [_read_label(text) for text in form.items]
        self._person.keep_typed_name(reader)
        return self._store.queues.give(queue_id, labels, reader, form.verdict, note, is_blind=form.is_blind)

    def undo(self, queue_id: int, reader: str) -> tuple[Sequence[int], str]:
        """Take back a reader's last step in a queue, a verdict or a finding: the places of its trials, and in words.

        Raises UsageError, NotFoundError, ConflictError.
        """
        reader, store = checked_name(reader), self._store
        steps = store.queues.steps(queue_id, reader)
        since = steps[-1].taken_at if steps else self.get(queue_id).created_at
        places = {(each.labelled_run, *each.key): each.place for each in store.queues.items(queue_id, reader)}
        if last_finding := store.failures.last_step(reader, since, places):
            step_id, trial = last_finding
            return [places[trial]], store.failures.undo(reader, step_id).words
        undone = store.queues.undo(queue_id, reader)
        return undone, "verdict" if len(undone) == 1 else f"{len(undone):,} verdicts"

    def too_narrow(self, queue_id: int, run_id: int) -> dict[str, int]:
        """The cases of a run whose expectation a reader finds too narrow: each with the first trial of the queue that
        the reader passed and the metrics failed. Raises NotFoundError.
        """
        passed = {
            place
            for verdicts in self._store.queues.verdicts(self.get(queue_id).id).values()
            for place, verdict in verdicts.items()
            if verdict == "passed"
        }
        trials: dict[str, int] = {}
        for item in self._store.queues.items(queue_id, ""):
            if item.run_id == run_id and item.place in passed and item.trial_verdict == "failed":
                trials.setdefault(item.case_id, item.key[1])
        return trials

    def get(self, queue_id: int) -> Queue:
        """A queue. Raises NotFoundError."""
        return self._store.queues.get(queue_id)


class _Candidates:
    """The recorded trials of a run by kind, each kind in the order in which it is drawn.

    Trials that the reader labelled already are only in kinds about labels.
    """

    def __init__(self, store: Store, run_id: int, reader: str) -> None:
        self._store, self._run_id = store, run_id
        self.labelled_run = played_run_id(store.runs, run_id)
        self._summary = store.runs.summary(run_id)
        self._strips = [strip for _, strip in store.failures.verdicts(run_id)]
        self._labels = store.queues.labelled(self.labelled_run)
        self._labelled_keys = {key for key, labels in self._labels.items() if reader in labels}
        self._letters = {
            (case_index, trial_index): letter
            for case_index, strip in enumerate(self._strips)
            for trial_index, letter in enumerate(strip)
            if letter in VERDICT_KINDS
        }

    def draw(self, kind: QueueKind) -> list[TrialKey]:
        """The trials of a kind in the order in which they are drawn."""
        if kind != "flaky":
            return drawing_order(self._run_id, self.find(kind))
        cases: dict[int, list[TrialKey]] = {}
        for key in self.find(kind):
            cases.setdefault(key[0], []).append(key)
        return [key for case, _ in drawing_order(self._run_id, ((case, 0) for case in cases)) for key in cases[case]]

    def find(self, kind: QueueKind) -> Collection[TrialKey]:
        """The trials of a kind; of a flaky case a failed and a passed one."""
        keys: Iterable[TrialKey]
        if kind in VERDICT_KINDS.values():
            keys = (key for key, letter in self._letters.items() if VERDICT_KINDS[letter] == kind)
        elif kind == "flaky":
            keys = self._find_flaky()
        elif kind == "disputed":
            keys = self._find_disputed()
        elif kind == "unlabelled":
            keys = (key for key in self._letters if key not in self._labels)
        elif kind == "doubted":
            return self._find_doubted()
        else:
            return [key for key, labels in self._labels.items() if len(set(labels.values())) > 1]
        return [key for key in keys if key not in self._labelled_keys]

    def _find_flaky(self) -> Iterator[TrialKey]:
        for case_index, strip in enumerate(self._strips):
            if "p" in strip and "f" in strip:
                for wanted_letter in "fp":
                    keys = ((case_index, at) for at, letter in enumerate(strip) if letter == wanted_letter)
                    yield drawing_order(self._run_id, keys)[0]

    def _find_disputed(self) -> set[TrialKey]:
        disputed_keys = self._store.queues.disputed(self._run_id)
        if any(_has_judge(criterion) for criterion in self._summary.config.criteria):
            keys = [key for key in self._letters if key not in disputed_keys][:MAX_READ]
            for first in range(0, len(keys), READ_AT_ONCE):
                some = self._store.runs.trials(self._run_id, keys[first : first + READ_AT_ONCE])
                disputed_keys |= {key for key, result in some.items() if any(map(_has_split_votes, result.scores))}
        return disputed_keys & self._letters.keys()

    def _find_doubted(self) -> list[TrialKey]:
        opposite = {"p": "failed", "f": "passed"}
        return [
            key for key, labels in self._labels.items() if opposite.get(self._letters.get(key, "")) in labels.values()
        ]


# A queue and the failure room draw in one order: decision 154.
def drawing_order(run_id: int, keys: Iterable[TrialKey]) -> list[TrialKey]:
    """Trials in a random order that depends on the run alone, so that the first ones are a random sample of all."""
    return sorted(keys, key=lambda key: _chance(b"%d:%d:%d" % (run_id, *key)))


def _chance(parts: bytes) -> bytes:
    return blake2b(parts).digest()


def _has_judge(criterion: Criterion) -> bool:
    return not is_function(criterion) and metric_info(criterion.metric).has_judge


def _has_split_votes(score: Score) -> bool:
    """Whether judges gave different verdicts, on the whole or on one rubric or sentence."""
    details: Mapping[str, Any] = score.details
    items = [details, *(row for name in ("rubrics", "sentences") for row in details.get(name) or ())]
    votes = [item.get("votes") for item in items if isinstance(item, Mapping)]
    return any(isinstance(each, Mapping) and sum(bool(n) for n in each.values()) > 1 for each in votes)


def _read_label(text: str) -> GivenLabel:
    place, _, seen_label = text.partition(".")
    return GivenLabel(_number(place, "item", 10**9), _number(seen_label or "0", "item", 10**18, least=0))


def _number(text: str, field: str, most: int, least: int = 1) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not is_number or not least <= int(text) <= most:
        raise UsageError(f"Enter a whole number from {least} to {most:,}.", field=field)
    return int(text)
