"""The values of a session or a case that change each time: the part of the page that says so, and its choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaldesk.desk.chat.recording import Recording
from evaldesk.desk.chat.replays import Replays, seconds_of, unplayable_reason
from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.cases import case_with_key
from evaldesk.diff.repetition import (
    MAX_PLACES,
    NOTHING,
    RECORDED,
    UUID,
    ChangingPlace,
    changing_places,
    repeatable_case,
)
from evaldesk.matching import Allowance, Origins
from evaldesk.model import Case
from evaldesk.model.conclusion import counted
from evaldesk.model.json_text import short_json
from evaldesk.model.stored import RunSummary

__all__ = [
    "MAX_PLACES",
    "NOTHING",
    "RECORDED",
    "Repeats",
    "read_case_repeats",
    "read_repeats",
    "read_run_repeats",
    "take_repeats",
]
MAX_VALUES = 3
MAX_CASES = 20
"""Cases of a run whose page shows the later findings of its cases."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to assert a place, in words."""

    way: str
    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class RepeatRow:
    """One changing place of the form; `values` are some that other plays had."""

    place: ChangingPlace
    is_recorded: bool
    choices: tuple[Choice, ...]

    @property
    def values(self) -> str:
        """`5, 7, 9, …`."""
        texts = dict.fromkeys(
            short_json(value, 40) if self.place.part != "calls" else f"{value}" for value in self.place.others
        )
        return "; ".join([*texts][:MAX_VALUES]) + ("; …" if len(texts) > MAX_VALUES else "")


@dataclass(frozen=True, slots=True)
class Repeats:
    """The values of a session that change each time, the chosen way of each, and the replays that show them.

    `reason` is why the session cannot be played again. One that `starts_alone` is played by a script of the page.
    """

    places: Sequence[ChangingPlace]
    ways: Mapping[str, str]
    replays: Replays
    reason: str = ""
    starts_alone: bool = False

    @property
    def rows(self) -> list[RepeatRow]:
        """The places with their choices."""
        return [_row(place, self.ways.get(place.key, place.proposed_way)) for place in self.places]

    @property
    def is_any_taken(self) -> bool:
        """Whether a place would be asserted otherwise than as recorded."""
        return any(not row.is_recorded for row in self.rows)

    @property
    def sentence(self) -> str:
        """What was compared so far."""
        replays = self.replays
        parts = [counted(len(replays.earlier), "earlier play")] if replays.earlier else []
        parts += [counted(len(replays.new_plays), "replay")] if replays.new_plays else []
        if not parts:
            return ""
        compared = " and ".join(parts)
        if not self.places:
            return f"Compared with {compared}: everything repeats."
        return f"Compared with {compared}: the other values repeat."

    def asserted(self, before: Case, after: Case, origins: Origins) -> Case:
        """The case `after`, edited from the recorded one, with every changing place asserted in its chosen way."""
        return repeatable_case(before, after, self.places, self.ways, origins)


def read_repeats(desk: Desk, recording: Recording, agent_id: str, session_id: str, ways: Mapping[str, str]) -> Repeats:
    """The changing values of a recorded session. Reads the store."""
    case = recording.playable_case
    replays = desk.replays.look(case, agent_id, session_id)
    recorded_at = seconds_of(recording.recorded_at)
    start_time = recording.start_time
    places = [*changing_places(case, replays.plays, recorded_at=recorded_at, start_time=start_time)]
    if case.final_state is None and recording.case.final_state:
        whole_case = replace(recording.case, turns=())
        places += changing_places(whole_case, recorded_at=recorded_at, start_time=start_time)
    reason = unplayable_reason(case)
    is_left = not (replays.n or reason or desk.is_read_only)
    return Repeats(places, ways, replays, reason, starts_alone=recording.is_cheap and is_left)


def read_case_repeats(desk: Desk, evalset_id: str, key: str, case: Case) -> Repeats | None:
    """The replays of a case that was added before they ended, and what they show that it asserts; None without any."""
    of_case = desk.replays.of_case((evalset_id, key), case)
    return Repeats(of_case[1], {}, of_case[0]) if of_case else None


@dataclass(frozen=True, slots=True)
class AddedCase:
    """A case of a run that was added before its replays ended: its address, and their findings."""

    address: str
    repeats: Repeats


def read_run_repeats(desk: Desk, summary: RunSummary) -> AddedCase | None:
    """The newest case of a small run whose replays run still or show values that it asserts; None without any."""
    evalset_id = desk.evalsets.id_of_run(summary.config)
    keys = desk.replays.keys_of_set(evalset_id) if evalset_id and summary.n_cases <= MAX_CASES else []
    if not evalset_id or not keys:
        return None
    run_store = desk.runs.run_store
    case_ids = {run_store.case(summary.id, index).id for index in range(summary.n_cases)}
    evalset, _, _ = desk.evalsets.read(evalset_id)
    for key in keys:
        case = case_with_key(evalset, key)
        repeats = read_case_repeats(desk, evalset_id, key, case) if case and case.id in case_ids else None
        if repeats and (repeats.places or repeats.replays.is_running):
            return AddedCase(f"/evalsets/{evalset_id}/cases/{key}", repeats)
    return None


def take_repeats(desk: Desk, evalset_id: str, key: str) -> None:
    """Assert the changing values of a case that was added in their proposed ways. Raises as `CaseDesk.save`."""
    found_case = desk.evalsets.cases.find(evalset_id, key)
    repeats = read_case_repeats(desk, evalset_id, key, found_case.case)
    if repeats and repeats.places:
        case = repeatable_case(found_case.case, found_case.case, repeats.places, {})
        desk.evalsets.cases.save(evalset_id, key, case, found_case.version)


def _row(place: ChangingPlace, way: str) -> RepeatRow:
    labels = {name: matcher_words(replace(each, at="")) for name, each in place.matchers.items()} | {
        NOTHING: "not asserted"
    }
    chosen_way = way if way in labels else place.proposed_way if place.proposed_way in labels else NOTHING
    choices = tuple(Choice(name, label, name == chosen_way) for name, label in labels.items())
    return RepeatRow(place, way == RECORDED, choices)


def matcher_words(matcher: Allowance) -> str:
    """What the matcher accepts: `any integer`, `a later time`."""
    at = f" at {matcher.at}" if matcher.at else ""
    if matcher.is_after_start:
        return f"any time from the start of the trial on{at}"
    if matcher.is_later:
        return f"any later time{at}"
    if matcher.within is not None:
        return f"any value within {matcher.within:g}{at}"
    if pattern := matcher.pattern or matcher.answer_pattern:
        if pattern == UUID:
            return f"any UUID{at}"
        return f"any text like {pattern}"[:80] + at
    return f"any {'value' if matcher.type == 'any' else matcher.type}{at}"
