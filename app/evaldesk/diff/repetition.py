"""Places of a proposed case whose values do not repeat: they differ in other plays, or look as if they would.

A value that differs looks like a time, a counter, an id or a random number, and each look has matchers that can stand
in its place. Of a value that was seen once, only times of the session, dates that count from its day and ids as of a
generator are suspected.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import islice, takewhile
from typing import Any, Literal, TypeAlias

from evaldesk.diff.dated_texts import DaysOfSession, WrittenDate, dated_pattern, text_of_other_days
from evaldesk.matching import (
    Allowance,
    Origins,
    allowances_after_edit,
    distance,
    json_equal,
    read_allowances,
    type_of,
    with_allowances,
)
from evaldesk.matching.json_pointer import ABSENT, part_at
from evaldesk.matching.moments import clock_seconds, is_after_start, moment_of, step_of
from evaldesk.model import Case, JsonValue, ToolCall, Transcript, TurnRecord
from evaldesk.model.json_text import json_line, short_json

Look: TypeAlias = Literal["time", "date", "counter", "id", "random", ""]
Part: TypeAlias = Literal["state", "argument", "answer", "calls"]

LOOKS: tuple[Look, ...] = ("time", "date", "counter", "id", "random")
RECORDED, NOTHING = "recorded", "nothing"
"""The ways to assert a place beside its matchers: by the recorded value, and not at all."""
DAY_S = 26 * 3600.0
"""A day and the largest offset of a zone: texts without a zone are read as UTC."""
ALIKE = 0.8
"""The likeness from which an answer passes for the reference: the threshold of ADK's `response_match_score`."""
RECENT_S = 120.0
"""The difference up to which a time that all plays agree on is that of the recording."""
MAX_PLACES = 40
MAX_PARTS = 8
"""More changing parts of one value are one place."""
MAX_PATTERN = 400
"""Characters of a text that a pattern with free dates may stand for."""
MAX_VALUES = 2_000
"""Texts and numbers of one case that are looked at without another play."""
MAX_INPUTS = 1_000_000
"""Characters of the messages and the first state in which a suspected value is looked for."""
_COUNTER_STEP = 1_000

UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_IS_UUID = re.compile(r"(?:[A-Za-z]+[-_:])?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IS_RANDOM_HEX = re.compile(r"(?:[A-Za-z]+[-_:])?(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{16,}")
_IS_ID = re.compile(r"(?=.*\d)[\w:./-]{4,}")
_IS_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[APap][Mm])?")
_CLOCK_IN_TEXT = re.compile(rf"(?<![\d:])(?:{_IS_CLOCK.pattern})(?![\d:])")


@dataclass(frozen=True, slots=True)
class ChangingPlace:
    """A place of a case whose value will hardly repeat. `matchers` can stand in its place, the proposed one first.

    `target` names the place as an entry of `also_accepted` does. `others` are the different values of other plays;
    without any, the `look` alone is the reason.
    """

    key: str
    part: Part
    words: str
    target: Allowance
    recorded_value: JsonValue
    n_plays: int = 0
    others: tuple[JsonValue, ...] = ()
    look: Look = ""
    matchers: Mapping[str, Allowance] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """`changes each time: looks like a time`."""
        look = f"looks like {'an' if self.look == 'id' else 'a'} {self.look}" if self.look else ""
        look = look.replace("a random", "random").replace("a date", "a date that counts from the day of the recording")
        if not self.others:
            return look
        n = len(self.others)
        change = "changes each time" if n == self.n_plays else f"changed in {n} of {self.n_plays} other plays"
        return f"{change}: {look}" if look else change

    # An agent that calls other tools varies itself, which a test is there to show: it stays asserted.
    @property
    def proposed_way(self) -> str:
        """The way that is chosen first."""
        if self.part == "calls":
            return RECORDED
        return next(iter(self.matchers), NOTHING)

    @property
    def recorded_words(self) -> str:
        """The recorded value on one line."""
        return f"{self.recorded_value}" if self.part == "calls" else short_json(self.recorded_value)


def changing_places(
    case: Case,
    plays: Sequence[Transcript] = (),
    *,
    recorded_at: float | None = None,
    start_time: float | None = None,
) -> tuple[ChangingPlace, ...]:
    """The places of the case that differ in `plays` of the same messages, or look as if they would not repeat.

    `recorded_at` is the end of the recording, and `start_time` its start, in seconds since 1970. A play may have fewer
    turns than the case. Places of which the case accepts other values already are none.
    """
    search = _Search(recorded_at, case, start_time)
    places: list[ChangingPlace] = []
    for index, turn in enumerate(case.turns):
        records = [play.turns[index] for play in plays if index < len(play.turns)]
        if turn.expected.tool_calls is not None:
            places += search.of_calls(index, turn.expected.tool_calls, records)
        if turn.expected.reference:
            places += _of_answer(index, turn.expected.reference, records) or search.of_dated_answer(
                index, turn.expected.reference, records
            )
    whole_plays = [play for play in plays if len(play.turns) >= len(case.turns)]
    for key, value in (case.final_state or {}).items():
        if not whole_plays and search.n_values <= 0:
            break
        others = [OtherValue(play.final_state.get(key, ABSENT), play.start_time) for play in whole_plays]
        places += search.of_value("state", f"state.{key}", f"Final state, {key}", Allowance(state=key), value, others)
    allowances = read_allowances(case)
    return tuple(place for place in places if not _is_accepted(place, allowances))[:MAX_PLACES]


def repeatable_case(
    before: Case, after: Case, places: Sequence[ChangingPlace], ways: Mapping[str, str], origins: Origins | None = None
) -> Case:
    """The case `after`, edited from `before`, with each place asserted in its way, the proposed one unless named."""
    if origins is None:
        origins = [(at, [*range(len(turn.expected.tool_calls or ()))]) for at, turn in enumerate(before.turns)]
    allowances: list[Allowance] = []
    for place in places:
        way = ways.get(place.key, place.proposed_way)
        if way == NOTHING:
            after = _without(after, place, origins)
            if place.part == "argument":
                allowances.append(replace(place.target, is_ignored=True))
        elif way in place.matchers:
            allowances.append(place.matchers[way])
    new_allowances = allowances_after_edit(allowances, before, after, origins)
    return with_allowances(after, new_allowances) if new_allowances else after


def _without(case: Case, place: ChangingPlace, origins: Origins) -> Case:
    """The case that does not assert the key of the state, the answer or the calls of the place."""
    if place.part == "state":
        if place.target.at:
            return with_allowances(case, [replace(place.target, is_ignored=True)])
        state = {key: value for key, value in (case.final_state or {}).items() if key != place.target.state}
        return replace(case, final_state=state or None)
    turns = list(case.turns)
    for at, (origin, _) in enumerate(origins):
        if origin == place.target.turn - 1 and place.part == "answer":
            turns[at] = replace(turns[at], expected=replace(turns[at].expected, reference=None))
        elif origin == place.target.turn - 1 and place.part == "calls":
            turns[at] = replace(turns[at], expected=replace(turns[at].expected, tool_calls=None))
    return replace(case, turns=tuple(turns))


@dataclass(frozen=True, slots=True)
class OtherValue:
    """The value that a play has at a place; its `start_time` is in seconds since 1970, None where it is unknown."""

    value: Any
    start_time: float | None = None


@dataclass
class _Search:
    """The look for changing values of a case."""

    recorded_at: float | None = None
    case: Case | None = None
    start_time: float | None = None
    n_values: int = MAX_VALUES

    @cached_property
    def inputs(self) -> str:
        """The text that a user and the first state gave the agent."""
        if self.case is None:
            return ""
        state = islice(self.case.initial_state.items(), MAX_VALUES)
        return "\n".join((*(turn.query for turn in self.case.turns), json_line(dict(state))))[:MAX_INPUTS]

    @cached_property
    def days(self) -> DaysOfSession | None:
        """The days of the recording; None where its time is not known."""
        return None if self.recorded_at is None else DaysOfSession(self.recorded_at, self.inputs)

    def of_dated_answer(self, index: int, reference: str, records: Sequence[TurnRecord]) -> list[ChangingPlace]:
        """The answer, where it would not pass for the reference with other dates than those of the recording."""
        dates = self._dates_of_session(reference)
        if not dates or _likeness(reference, text_of_other_days(reference, dates)) >= ALIKE:
            return []
        target = Allowance(index + 1)
        pattern = dated_pattern(reference, dates) if len(reference) <= MAX_PATTERN else ""
        matchers = {"pattern": replace(target, answer_pattern=pattern)} if pattern else {}
        key, words = f"{index + 1}.answer", f"Turn {index + 1}, answer"
        return [ChangingPlace(key, "answer", words, target, reference, len(records), (), "date", matchers)]

    def _dates_of_session(self, text: str) -> list[WrittenDate]:
        """The dates in the text that count from the day of the recording, and its time of the day."""
        if self.days is None or self.recorded_at is None:
            return []
        dates = self.days.counted_dates(text)
        clocks = [
            WrittenDate(match.start(), match.end())
            for match in _CLOCK_IN_TEXT.finditer(text[:MAX_PATTERN])
            if _is_clock_of(match.group(), self.recorded_at) and match.group() not in self.inputs
        ]
        others = (each for each in clocks if not any(day.start <= each.start < day.end for day in dates))
        return sorted([*dates, *others], key=lambda each: each.start)

    def of_calls(self, index: int, calls: Sequence[ToolCall], records: Sequence[TurnRecord]) -> Iterator[ChangingPlace]:
        """The calls of a turn where other plays call other tools; else the changing arguments."""
        names, words = [call.name for call in calls], f"Turn {index + 1}"
        names_of_others = [[call.name for call in each.tool_calls] for each in records]
        same_turns = [each for each, others in zip(records, names_of_others, strict=True) if others == names]
        if len(same_turns) < len(records):
            other_values = [_name_list(others) for others in names_of_others if others != names]
            target = Allowance(index + 1)
            yield ChangingPlace(
                f"{index + 1}.calls",
                "calls",
                f"{words}, calls",
                target,
                _name_list(names),
                len(records),
                tuple(other_values),
            )
        for at, call in enumerate(calls):
            number = names[:at].count(call.name)
            which = f"call {number + 1} of {call.name}" if names.count(call.name) > 1 else call.name
            for name, value in call.args.items():
                target = Allowance(index + 1, call.name, name, call=number)
                place_words = f"{words}, {which}, {name}"
                values_at = [
                    OtherValue(each.tool_calls[at].args.get(name, ABSENT), each.start_time) for each in same_turns
                ]
                yield from self.of_value(
                    "argument", f"{index + 1}.{at + 1}.{name}", place_words, target, value, values_at
                )

    def of_value(
        self, part: Part, key: str, words: str, target: Allowance, value: JsonValue, plays: Sequence[OtherValue]
    ) -> Iterator[ChangingPlace]:
        """The changing parts of one value; the value itself where its shape changes, or too many of its parts do."""
        others = [each.value for each in plays]
        changes = dict(_changing_parts("", value, others))
        leaves = [*islice(_leaves("", value), max(self.n_values, 0))]
        self.n_values -= len(leaves)
        suspects = {at: leaf for at, leaf in leaves if at not in changes and self._is_suspect(leaf, plays)}
        parts = sorted({*changes, *suspects})
        if len(parts) > MAX_PARTS and "" not in parts:
            parts = [""]
        for at in parts:
            recorded_value, values_at = part_at(value, at), [part_at(other, at) for other in others]
            other_values = tuple(
                None if each is ABSENT else each for each in values_at if not json_equal(each, recorded_value)
            )
            look = look_of(recorded_value, other_values, self.recorded_at)
            look = "date" if not look and not other_values and at in suspects else look
            place = replace(target, at=at)
            is_absent = any(each is ABSENT for each in values_at)
            timed = [
                OtherValue(recorded_value, self.start_time),
                *(OtherValue(each, play.start_time) for each, play in zip(values_at, plays, strict=True)),
            ]
            is_started = not is_absent and look == "time" and _are_after_start(timed)
            matchers = (
                {} if is_absent else matchers_for(place, look, recorded_value, other_values, is_started=is_started)
            )
            if look == "date" and isinstance(recorded_value, str) and self.days and not moment_of(recorded_value):
                dated_matchers = self._dated_matchers(place, recorded_value)
                matchers = dated_matchers | matchers | dated_matchers
            yield ChangingPlace(
                key + at, part, words + at, place, recorded_value, len(others), other_values, look, matchers
            )

    def _is_suspect(self, leaf: JsonValue, plays: Sequence[OtherValue]) -> bool:
        """Whether a value looks as if it would change that was seen once, or is a time that no clock changed since."""
        if isinstance(leaf, bool) or not isinstance(leaf, str | int | float):
            return False
        look = look_of(leaf, (), self.recorded_at)
        is_suspect = look == "time" and self._is_of_one_step(leaf, plays) if plays else bool(look)
        is_suspect = is_suspect or (not look and self._is_counted_date(leaf, plays))
        return is_suspect and f"{leaf}" not in self.inputs

    def _is_counted_date(self, leaf: str | int | float, plays: Sequence[OtherValue]) -> bool:
        """Whether a text has a date that counts from the day of the recording, and all plays began on one day."""
        if self.days is None or not isinstance(leaf, str) or not self.days.counted_dates(leaf):
            return False
        starts = [
            self.recorded_at if self.start_time is None else self.start_time,
            *(each.start_time for each in plays),
        ]
        known_starts = [each for each in starts if each is not None]
        return max(known_starts) - min(known_starts) < DAY_S

    def _dated_matchers(self, target: Allowance, text: str) -> dict[str, Allowance]:
        """A pattern for a text with other dates in the places of those that count from the day of the recording."""
        if self.days is None or len(text) > MAX_PATTERN:
            return {}
        return {"pattern": replace(target, pattern=dated_pattern(text, self.days.counted_dates(text)))}

    def _is_of_one_step(self, leaf: str | int | float, plays: Sequence[OtherValue]) -> bool:
        """Whether the leaf is the time of the recording, and all plays began within the step in which it is written.

        A day is one where a start is not known.
        """
        if self.recorded_at is None:
            return False
        instant = moment_of(leaf)
        starts = [self.start_time, *(play.start_time for play in plays)]
        known_starts = [each for each in starts if each is not None]
        spread = max(known_starts) - min(known_starts) if len(known_starts) == len(starts) else None
        if instant and instant.is_day:
            return spread is None or spread < step_of(leaf)
        first = (self.recorded_at if self.start_time is None else self.start_time) - RECENT_S
        is_current = instant is None or any(  # a clock that looks like a time is near the recording
            first <= instant.seconds - offset <= self.recorded_at + RECENT_S
            for offset in ((0.0,) if instant.has_zone else _zone_offsets(self.recorded_at))
        )
        return is_current and spread is not None and spread < 2 * step_of(leaf)


def look_of(value: JsonValue, others: Sequence[JsonValue] = (), recorded_at: float | None = None) -> Look:
    """The kind of value that this looks like; `others` are those of other plays."""
    values = [value, *others]
    if all(_is_time(each) for each in values) and _is_near(value, recorded_at, has_others=bool(others)):
        return "time"
    if all(isinstance(each, str) for each in values):
        texts = [str(each) for each in values]
        if all(_IS_UUID.fullmatch(text) or _IS_RANDOM_HEX.fullmatch(text) for text in texts):
            return "id"
        return "id" if others and all(map(_IS_ID.fullmatch, texts)) else ""
    if not others or any(isinstance(each, bool) or not isinstance(each, int | float) for each in values):
        return ""
    integers = [each for each in values if isinstance(each, int)]
    if len(integers) == len(values) and max(integers) - min(integers) <= _COUNTER_STEP * len(integers):
        is_steady = integers[0] in (min(integers), max(integers)) and len({*integers}) == len(integers)
        return "counter" if is_steady else "random"
    return "random"


def _are_after_start(values: Sequence[OtherValue]) -> bool:
    """Whether each value whose play has a known start is a time after it; without any known start it is not shown."""
    starts = [each for each in values if each.start_time is not None]
    return bool(starts) and all(is_after_start(each.value, each.value, each.start_time) for each in starts)


def _is_clock_of(text: str, recorded_at: float) -> bool:
    """Whether the clock showed this time about when the session was recorded, in UTC or in the zone of this machine."""
    seconds = clock_seconds(text)
    if seconds is None:
        return False
    ahead = (seconds - recorded_at - offset + RECENT_S for offset in _zone_offsets(recorded_at))
    return any(each % (24 * 3600) <= 2 * RECENT_S for each in ahead)


def _zone_offsets(seconds: float) -> tuple[float, ...]:
    """The offsets from UTC in which an agent beside this process may write a time that names no zone."""
    offset = datetime.fromtimestamp(seconds).astimezone().utcoffset()
    return (0.0, offset.total_seconds() if offset else 0.0)


def _is_time(value: JsonValue) -> bool:
    return moment_of(value) is not None or (isinstance(value, str) and _IS_CLOCK.fullmatch(value) is not None)


def _is_near(value: JsonValue, recorded_at: float | None, *, has_others: bool) -> bool:
    """Whether a time is that of the recording, or differs anyway; of an unknown recording, a time with a fraction."""
    instant = moment_of(value)
    if has_others:
        return True
    if instant is None:
        return isinstance(value, str) and recorded_at is not None and _is_clock_of(value, recorded_at)
    if recorded_at is not None:
        return abs(instant.seconds - recorded_at) <= DAY_S
    return not instant.is_day and instant.seconds % 1 != 0


def matchers_for(
    target: Allowance, look: Look, value: JsonValue, others: Sequence[JsonValue] = (), *, is_started: bool = False
) -> dict[str, Allowance]:
    """What can stand in the place of the value, by the name of its kind, the most telling first.

    `is_started` says that each play has a time after its own start there.
    """
    matchers: dict[str, Allowance] = {}
    values = [value, *others]
    types = {type_of(each) for each in values}
    is_dated = all(moment_of(each) for each in values)
    if look == "time" and is_dated and is_started:
        matchers["start"] = replace(target, is_after_start=True)
    if look in ("time", "date") and is_dated:
        matchers["later"] = replace(target, is_later=True)
    if look == "random" and (near := _noise(value, others)) is not None:
        matchers["within"] = replace(target, within=near)
    if types == {"string"} and look and not is_dated and (pattern := pattern_of([str(each) for each in values])):
        matchers["pattern"] = replace(target, pattern=pattern)
    if len(types) == 1:
        is_whole = all(isinstance(each, int) for each in values) and types == {"number"}
        matchers["type"] = replace(target, type="integer" if is_whole else types.pop())
    matchers["any"] = replace(target, type="any")
    return matchers


def _noise(value: JsonValue, others: Sequence[JsonValue]) -> float | None:
    """A tolerance for numbers that are nearly the same: ten times their largest distance, for few plays show little."""
    distances = [distance(value, each) for each in others]
    far = max((each for each in distances if each is not None), default=None)
    if far is None or None in distances or not isinstance(value, int | float):
        return None
    return 10 * far if far <= abs(value) / 100 else None


def matchers_of_values(
    target: Allowance, value: JsonValue, others: Sequence[OtherValue], looks: Collection[Look]
) -> list[Allowance]:
    """The proposed matchers of a value that had `others` in trials, one a part; none if a part has another look."""
    places = [*_Search().of_value("state", "", "", target, value, others)]
    if not places or any(place.look not in looks or not place.matchers for place in places):
        return []
    return [place.matchers[place.proposed_way] for place in places]


def pattern_of(texts: Sequence[str]) -> str:
    """A regular expression that matches texts of this kind; empty where it would be no more than any text."""
    if all(re.fullmatch(UUID, text) for text in texts):
        return UUID
    if all(_IS_CLOCK.fullmatch(text) for text in texts):
        return _IS_CLOCK.pattern
    if len(texts) == 1:
        head = re.match(r"(?:[A-Za-z]+[-_:])?", texts[0])
        start = head.group() if head else ""
    else:
        start = _common_start(texts).rstrip("0123456789")
    ends = [text[len(start) :] for text in texts]
    tail = _common_start([end[::-1] for end in ends])[::-1] if len(texts) > 1 else ""
    tail = tail.lstrip("0123456789abcdefABCDEF") if len(texts) > 1 else ""
    middles = [end[: len(end) - len(tail)] for end in ends]
    for letters in (r"\d", "[0-9a-f]", "[0-9A-Za-z]", r"[\w:./-]"):
        if all(re.fullmatch(f"{letters}+", middle, re.ASCII) for middle in middles):
            sizes = {len(middle) for middle in middles}
            times = f"{{{sizes.pop()}}}" if len(sizes) == 1 and letters != r"\d" else "+"
            return f"{_escaped(start)}{letters}{times}{_escaped(tail)}"
    return f"{_escaped(start)}.+{_escaped(tail)}" if start or tail else ""


def _common_start(texts: Sequence[str]) -> str:
    columns = takewhile(lambda letters: len({*letters}) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in columns)


def _escaped(text: str) -> str:
    """The text in a regular expression, without a backslash before spaces and hyphens."""
    return re.escape(text).replace("\\ ", " ").replace("\\-", "-")


def _of_answer(index: int, reference: str, records: Sequence[TurnRecord]) -> list[ChangingPlace]:
    answers = [record.answer for record in records]
    if not (other_values := [each for each in answers if _likeness(reference, each) < ALIKE]):
        return []
    target = Allowance(index + 1)
    pattern = sentence_pattern([reference, *(each for each in answers if each != reference)])
    matchers = {"pattern": replace(target, answer_pattern=pattern)} if pattern else {}
    key, words = f"{index + 1}.answer", f"Turn {index + 1}, answer"
    return [ChangingPlace(key, "answer", words, target, reference, len(answers), tuple(other_values), "", matchers)]


def _likeness(reference: str, answer: str) -> float:
    """The F1 of the words of both, without regard to case: about the ROUGE-1 of `response_match_score`."""
    words, others = (Counter(re.findall(r"\w+", text.lower())) for text in (reference, answer))
    n = words.total() + others.total()
    return 2 * (words & others).total() / n if n else float(reference == answer)


def _is_accepted(place: ChangingPlace, allowances: Sequence[Allowance]) -> bool:
    target = place.target
    if place.part == "answer":
        return any(each.is_of_answer and each.turn == target.turn for each in allowances)
    return any(
        (each.turn, each.tool, each.argument, each.state) == (target.turn, target.tool, target.argument, target.state)
        and each.call in (None, target.call)
        and target.at.startswith(each.at)
        and not each.is_of_answer
        for each in allowances
        if place.part != "calls"
    )


def sentence_pattern(texts: Sequence[str]) -> str:
    """The common text with free places for words with digits; empty where other words differ as well.

    White space at the ends of the texts is no part of it.
    """
    rows = [re.split(r"(\s+)", text.strip()) for text in texts]
    if len({len(row) for row in rows}) != 1:
        return ""
    pieces = []
    for words in zip(*rows, strict=True):
        if len({*words}) == 1:
            pieces.append(_escaped(words[0]))
        elif all(any(letter.isdecimal() for letter in word) for word in words):
            pieces.append(r"\S+")
        else:
            return ""
    return "".join(pieces)


def _changing_parts(at: str, value: JsonValue, others: Sequence[JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    """The innermost parts that differ, by their pointers; a part whose keys or length differ is one of them."""
    if all(json_equal(value, other) for other in others):
        return
    if isinstance(value, Mapping) and all(
        isinstance(other, Mapping) and other.keys() == value.keys() for other in others
    ):
        items: Iterable[tuple[str | int, JsonValue]] = value.items()
    elif isinstance(value, list) and all(isinstance(other, list) and len(other) == len(value) for other in others):
        items = enumerate(value)
    else:
        yield at, value
        return
    for key, item in items:
        yield from _changing_parts(_inner(at, key), item, [other[key] for other in others])  # type: ignore[index]


def _leaves(at: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """The texts and numbers inside the value with their pointers, in no order."""
    stack = [(at, value)]
    while stack:
        at, value = stack.pop()
        if isinstance(value, Mapping):
            stack += [(_inner(at, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            stack += [(_inner(at, key), item) for key, item in enumerate(value)]
        else:
            yield at, value


def _inner(at: str, key: str | int) -> str:
    return f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _name_list(names: Sequence[str]) -> str:
    return ", ".join(names) or "no call"
