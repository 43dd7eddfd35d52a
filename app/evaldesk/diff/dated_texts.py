"""Dates in texts, and whether they count from the day of a recording: `tomorrow` is another date on each day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property

from evaldesk.backports import UTC

NEAR_DAYS = 31
"""Days before and after a recording of which a date is suspected to count from it."""
FAR_DAYS = 400
"""The same where the user names a day by its distance, as `tomorrow` or `next month` do."""
MAX_TEXT = 4_000
"""Characters of a text in which dates are looked for."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"\b(?:(?P<iso>\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}})(?:[T ]\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?"
    rf"(?:Z|[+-]\d{{2}}:?\d{{2}})?)?"
    rf"|(?P<numbers>\d{{1,2}}[/.]\d{{1,2}}[/.]\d{{4}})"
    rf"|(?P<words>(?:{_WEEKDAY},? )?(?:{_MONTH} {_DAY}|{_DAY}(?: of)? {_MONTH})(?:,? \d{{4}})?)"
    rf"|(?P<weekday>{_WEEKDAY}))(?!\w)",
    re.IGNORECASE,
)
_NAMED_DAY = re.compile(r"\b(\d{1,2})[/.-](\d{1,2})\b")
_DISTANCE = re.compile(
    rf"\b(?:to(?:day|night|morrow)|yesterday|weekend|{_WEEKDAY}s?"
    r"|(?:next|this|last|coming|following|past|upcoming) (?:week|month|quarter|year|few days)"
    r"|(?:in|within|after) (?:an?|the next|\d+|two|three|four|five|six|seven|ten) (?:day|night|week|month|year)s?"
    r"|(?:day|week|month|year)s? (?:ago|from|later|before|after)"
    r"|heute|morgen|gestern|übermorgen|aujourd.hui|demain|hier|hoy|mañana|ayer|oggi|domani|ieri|hoje|amanhã|ontem)\b"
    "|今日|明日|昨日|今天|明天|昨天|오늘|내일|어제",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class WrittenDate:
    """A date in a text: the days that it may mean; none for the name of a weekday, and for a time of the day."""

    start: int
    end: int
    days: tuple[date, ...] = ()
    has_year: bool = True


@dataclass(frozen=True)
class DaysOfSession:
    """The time of a recording, in seconds since 1970, and the words of the user and of the first state."""

    recorded_at: float
    inputs: str

    @cached_property
    def has_distances(self) -> bool:
        """Whether the words name a day by its distance from today."""
        return _DISTANCE.search(self.inputs) is not None

    @cached_property
    def named_days(self) -> frozenset[tuple[int, int]]:
        """Month and day of each date in the words, in either order where both are numbers."""
        today = self.today
        days = {(day.month, day.day) for each in written_dates(self.inputs, today) for day in each.days}
        pairs = {(int(one), int(other)) for one, other in _NAMED_DAY.findall(self.inputs)}
        return frozenset(days | pairs | {(other, one) for one, other in pairs})

    @property
    def today(self) -> date:
        """The day of the recording in UTC."""
        return datetime.fromtimestamp(self.recorded_at, UTC).date()

    def is_counted(self, written: WrittenDate, text: str) -> bool:
        """Whether a date counts from the day of the recording, as far as the words tell."""
        if not written.days:
            return self.has_distances and text[written.start : written.end].lower() not in self.inputs.lower()
        if not (self.has_distances or written.has_year):
            return False
        bound = timedelta(FAR_DAYS if self.has_distances else NEAR_DAYS)
        return any(abs(day - self.today) <= bound for day in written.days) and not any(
            (day.month, day.day) in self.named_days for day in written.days
        )

    def counted_dates(self, text: str) -> list[WrittenDate]:
        """The dates in the text that count from the day of the recording."""
        return [each for each in written_dates(text, self.today) if self.is_counted(each, text)]


def written_dates(text: str, today: date) -> Iterator[WrittenDate]:
    """The dates in a text; one without a year is of the year that brings it nearest to today."""
    for match in _DATE.finditer(text[:MAX_TEXT]):
        kind = match.lastgroup or ""
        days = _days_of(kind, match.group(), today)
        if days or kind == "weekday":
            has_year = re.search(r"\d{4}", match.group()) is not None
            yield WrittenDate(match.start(), match.end(), days, has_year)


def dated_pattern(text: str, dates: list[WrittenDate]) -> str:
    """A regular expression that matches the text with other dates in these places."""
    pieces, at = list[str](), 0
    for each in dates:
        pieces += [_escaped(text[at : each.start]), _pattern_of_form(text[each.start : each.end])]
        at = each.end
    return "".join([*pieces, _escaped(text[at:])])


def text_of_other_days(text: str, dates: list[WrittenDate]) -> str:
    """The text with words in place of the dates that it does not have otherwise."""
    pieces, at = list[str](), 0
    for index, each in enumerate(dates):
        n_words = len(re.findall(r"\w+", text[each.start : each.end]))
        pieces += [text[at : each.start], " ".join(f"day{index}x{word}" for word in range(n_words))]
        at = each.end
    return "".join([*pieces, text[at:]])


def _pattern_of_form(text: str) -> str:
    """A regular expression of other numbers and names between the same signs."""
    parts = re.split(r"(\d+|[^\W\d]+)", text)
    return "".join(_escaped(part) if index % 2 == 0 else _kind_of(part) for index, part in enumerate(parts))


def _kind_of(part: str) -> str:
    return r"\d+" if part.isdecimal() else part if part in ("T", "Z") else r"[A-Za-z]+"


def _escaped(text: str) -> str:
    return re.escape(text).replace("\\ ", " ").replace("\\-", "-")


def _days_of(kind: str, text: str, today: date) -> tuple[date, ...]:
    numbers = [int(each) for each in re.findall(r"\d+", text)]
    if kind == "iso":
        return _days([(numbers[0], numbers[1], numbers[2])])
    if kind == "numbers":
        one, other, year = numbers
        return _days([(year, one, other), (year, other, one)])
    if kind != "words":
        return ()
    name = re.search(_MONTH, re.sub(_WEEKDAY, "", text, flags=re.IGNORECASE), re.IGNORECASE)
    if name is None or not numbers:
        return ()
    month = _MONTHS.index(name.group()[:3].lower()) + 1
    years = numbers[1:] or [today.year - 1, today.year, today.year + 1]
    return tuple(sorted(_days([(year, month, numbers[0]) for year in years]), key=lambda day: abs(day - today))[:1])


def _days(parts: list[tuple[int, int, int]]) -> tuple[date, ...]:
    days = []
    for year, month, day in parts:
        if 2001 <= year <= 2103 and 1 <= month <= 12 and 1 <= day <= 31:
            try:
                days.append(date(year, month, day))
            except ValueError:
                continue
    return tuple(days)
