"""The strip of live scoring: the share passed a day, the evidence of a pass rate below the bar, and the alarm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from evaldesk.desk.desk import Desk
from evaldesk.desk.inbox.live import WINDOW, LiveRates
from evaldesk.desk.inbox.scoring import LiveDay
from evaldesk.settings import InboxScoring
from evaldesk.wording.inbox import alarm_sentence, release_change_sentence
from evaldesk.wording.words import interval_words, passed_words, share_words

"""The days of the strip."""
LEFT, RIGHT, TOP, BOTTOM = 30.0, 770.0, 8.0, 128.0
E_LEFT, E_RIGHT, E_LIMIT, E_TOP = 44.0, 510.0, 32.0, 8.0
MOST_POINTS = 400
MOST_LABELS = 6


@dataclass(frozen=True, slots=True)
class DayMark:
    """A day of a release in the picture: its place, its whisker from low to high, and its words."""

    x: float
    y: float
    y_low: float
    y_high: float
    is_newest: bool
    words: str


@dataclass(frozen=True, slots=True)
class RatesView:
    """The strip: a sentence with its doubt, the days, the evidence, and what the alarm means."""

    sentence: str
    doubt: str
    is_alarmed: bool
    bar_words: str
    y_bar: float
    grid: Sequence[tuple[float, str]]
    marks: Sequence[DayMark]
    labels: Sequence[tuple[float, str]]
    words: str
    lines: Sequence[str]
    rings: Sequence[tuple[float, str]]
    starts: Sequence[tuple[float, str]]
    limit_words: str
    change: str
    reason: str


def has_scores(desk: Desk) -> bool:
    """Whether a conversation of the last days has a verdict."""
    return desk.live.has_scores(desk.now() - WINDOW)


def rates_view(desk: Desk) -> RatesView | None:
    """The strip of the last days; None without a scored conversation."""
    scoring = desk.settings.inbox.score or InboxScoring()
    rates = desk.live.rates(desk.now() - WINDOW, scoring.bar, scoring.alpha)
    if not rates.releases:
        return None
    newest = rates.releases[-1]
    sentence = alarm_sentence(
        newest.release,
        passed_words(newest.n_passed, newest.n_scored),
        share_words(scoring.bar) if rates.alarms else "",
    )
    days = [day for day in rates.days if day.share is not None and day.interval]
    least = 0.5 if all(day.interval.low >= 0.5 for day in days if day.interval) and scoring.bar >= 0.5 else 0.0
    lines, rings = _evidence(rates)
    n_a_false_alarm = f"{round(1 / scoring.alpha):,}"
    return RatesView(
        sentence=sentence,
        doubt=f"could be {interval_words(newest.interval)}",
        is_alarmed=bool(rates.alarms),
        bar_words=share_words(scoring.bar),
        y_bar=_y(scoring.bar, least),
        grid=[(_y(share, least), f"{100 * share:.0f}") for share in (least, (1 + least) / 2, 1.0)],
        marks=_marks(days, newest.release, least),
        labels=_labels(days),
        words=", ".join(
            f"{each.release or 'no release'} {passed_words(each.n_passed, each.n_scored)}" for each in rates.releases
        ),
        lines=lines,
        rings=rings,
        starts=[
            (_x_of(place, len(rates.alarm.curve)), release or "no release")
            for release, place in rates.release_starts[1:]
        ][-1:],
        limit_words=n_a_false_alarm,
        change=_change_words(rates),
        reason=(
            "The alarm sums, over every start, how much better a lower rate explains the scores since then than "
            f"{share_words(scoring.bar)} does; at {n_a_false_alarm} it rings and begins again. It may be looked at "
            f"after each conversation: one false alarm in {n_a_false_alarm} scored. Conversations that Evaldesk "
            "played are not in it."
        ),
    )


def _change_words(rates: LiveRates) -> str:
    if rates.change is None:
        return ""
    return release_change_sentence(rates.change.before, rates.change.difference, rates.change.interval)


def _y(share: float, least: float) -> float:
    return TOP + (1 - max(share, least)) / (1 - least) * (BOTTOM - TOP)


def _x(day: date, days: Sequence[LiveDay]) -> float:
    first, last = days[0].day, days[-1].day
    span = max((last - first).days, 1)
    return LEFT + 26 + (day - first).days / span * (RIGHT - LEFT - 52)


def _marks(days: Sequence[LiveDay], newest: str, least: float) -> list[DayMark]:
    releases = {day: [each.release for each in days if each.day == day] for day in {each.day for each in days}}
    marks = []
    for each in days:
        if each.interval is None or each.share is None:
            continue
        beside = releases[each.day]
        x = _x(each.day, days) + 14 * (beside.index(each.release) - (len(beside) - 1) / 2)
        name = f"release {each.release}" if each.release else "no release"
        words = f"{each.day:%d %b}, {name}: {passed_words(each.n_passed, each.n_scored)}"
        low, high = _y(each.interval.low, least), _y(each.interval.high, least)
        marks.append(DayMark(x, _y(each.share, least), low, high, each.release == newest, words))
    return marks


def _labels(days: Sequence[LiveDay]) -> list[tuple[float, str]]:
    own = sorted({each.day for each in days})
    step = max(1, -(-len(own) // MOST_LABELS))
    return [(_x(day, days), f"{day.day} {day:%b}") for day in own[::step]]


def _x_of(place: int, n: int) -> float:
    return E_LEFT + place / max(n, 1) * (E_RIGHT - E_LEFT)


def _evidence(rates: LiveRates) -> tuple[list[str], list[tuple[float, str]]]:
    """The paths of the evidence, one after each alarm, and the alarms with their times."""
    curve, n = rates.alarm.curve, len(rates.alarm.curve)
    step = max(1, -(-n // MOST_POINTS))
    ends = {place: at for place, (_, at) in zip(rates.alarm.rings, rates.alarms, strict=True)}
    lines: list[str] = []
    rings: list[tuple[float, str]] = []
    points: list[tuple[float, float]] = []
    highest = 0.0
    for place, evidence in enumerate(curve, start=1):
        highest = max(highest, evidence)
        if place % step and place not in ends and place != n:
            continue
        y = max(E_TOP, BOTTOM - highest * (BOTTOM - E_LIMIT))
        points.append((_x_of(place, n), y))
        highest = 0.0
        if place in ends:
            rings.append((points[-1][0], f"{ends[place]:%d %b %H:%M} UTC"))
            lines.append(_path(points))
            points = []
    if points:
        lines.append(_path(points))
    return lines, rings


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
