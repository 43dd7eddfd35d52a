"""The script of the trip planner: gathers the wishes, compares cities by the tools' numbers, saves a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk.demo_model.conversation import (
    Conversation,
    Reply,
    SpokenTurn,
    asks_ability,
    is_greeting,
    is_thanks,
    list_words,
    with_digits,
)
from evaldesk.demo_model.mistakes import Slips

TOOLS = frozenset({"note_wishes", "search_flights", "daily_cost", "save_itinerary"})
KNOWN = tuple(
    (  # noqa: SIM905
        "Amsterdam,Athens,Barcelona,Berlin,Bologna,Copenhagen,Dublin,Istanbul,Kyoto,Lisbon,London,Lyon,Madrid,Naples,"
        "New York,Oslo,Paris,Porto,Prague,Rome,Seoul,Stockholm,Tokyo,Venice,Vienna,Zurich"
    ).split(",")
)
MONTHS = tuple(
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
SEASONS = {"spring": "april", "summer": "july", "autumn": "october", "fall": "october", "winter": "january"}
SIGHTS = {
    "food": "a morning at the market and dinner at a small restaurant",
    "shopping": "the shopping streets and the flea market",
    "museums": "the great museum, with tickets bought ahead",
    "music": "an evening concert",
    "nature": "the gardens and a walk along the water",
    "architecture": "a walk past the famous houses",
}

_DAYS = re.compile(r"\b(\d+)[\s-]*(days?|nights?|weeks?)\b")
_BUDGET = re.compile(
    r"(?:€|eur|\$|£)\s*(\d[\d.,]{0,20})|\b(\d[\d.,]{0,20})\s{0,9}(?:€|eur\b|euros?\b|dollars?\b|usd\b|pounds?\b)"
)
_FROM = re.compile(r"fl(?:y|ies) from (.{1,100}?) and like", re.IGNORECASE)
_LIKES = re.compile(r"and likes? (.{1,200}?)\.(?:\s|$)", re.IGNORECASE)
_SAVE = re.compile(r"\b(save|plan|book|itinerary|schedule|take it|go with|let's do|decide)\b")
_COMPARE = re.compile(r"\b(flights?|fly|cost|costs|price|prices|compare|cheap|cheaper|cheapest|expensive|how much)\b")


@dataclass(frozen=True, slots=True)
class Wishes:
    """The user's wishes so far; None for those not known yet."""

    cities: tuple[str, ...]
    days: int | None
    budget: int | None
    month: str | None


def answer(conversation: Conversation, slips: Slips) -> Reply:
    """The next reply: wishes are noted, then flights and costs looked up, then compared; a plan is saved on request."""
    now = conversation.now
    wishes = read_wishes(conversation.texts)
    new_wishes = read_wishes([now.text])
    text = with_digits(now.text)
    if _SAVE.search(text) and not (new_wishes.days or new_wishes.budget) and wishes.cities and wishes.days:
        return _save(conversation, wishes, slips)
    if (
        (new_wishes.days or new_wishes.budget or new_wishes.month or _COMPARE.search(text))
        and wishes.cities
        and wishes.days
    ):
        return _compare(conversation, wishes, slips)
    slips.pick(())
    return Reply(_ask(conversation, wishes))


def read_wishes(texts: Sequence[str]) -> Wishes:
    """The wishes in `texts`; a later one replaces an earlier one. Cities are those of the last text that names any."""
    cities: tuple[str, ...] = ()
    days = budget = None
    month = None
    for text in texts:
        cities = _cities(text) or cities
        lower = with_digits(text)
        if match := _DAYS.search(lower):
            days = int(match[1]) * (7 if match[2].startswith("week") else 1)
        if match := _BUDGET.search(lower):
            budget = int(re.sub(r"\D", "", match[1] or match[2]) or 0) or budget
        month = next((name for name in (*MONTHS, *SEASONS) if re.search(rf"\b{name}\b", lower)), month)
    return Wishes(cities, days, budget, SEASONS.get(month or "", month))


def _cities(text: str) -> tuple[str, ...]:
    places = {city: match.start() for city in KNOWN if (match := re.search(rf"\b{city}\b", text, re.IGNORECASE))}
    return tuple(sorted(places, key=places.__getitem__))


def _compare(conversation: Conversation, wishes: Wishes, slips: Slips) -> Reply:
    now = conversation.now
    several = ["drop_city", "wrong_winner"] if len(wishes.cities) > 1 else []
    slip = slips.pick(["forget_cost", "wrong_month", "forget_note", "terse", *several])
    call_names = {call.name for call in now.calls}
    if "note_wishes" not in call_names and slip != "forget_note":
        noted = {"days": wishes.days, "budget_eur": wishes.budget, "month": wishes.month}
        return Reply(calls=(("note_wishes", {name: value for name, value in noted.items() if value is not None}),))
    if "search_flights" not in call_names:
        return Reply(calls=_searches(conversation, wishes, slip, slips))
    flights = _only_object(now, "search_flights")
    costs = _only_object(now, "daily_cost")
    if not flights:
        return Reply(f"The search failed: {now.results('search_flights')[0]}")
    return Reply(_comparison(wishes, _totals(flights, costs, wishes.days or 1), flights, costs, slip))


def _searches(
    conversation: Conversation, wishes: Wishes, slip: str, slips: Slips
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    cities = list(wishes.cities[:-1] if slip == "drop_city" else wishes.cities)
    month = MONTHS[slips.choose(range(12))] if slip == "wrong_month" else wishes.month or "october"
    search = ("search_flights", {"origin": _origin(conversation), "to": cities, "month": month})
    return (search,) if slip == "forget_cost" else (search, ("daily_cost", {"cities": cities}))


def _totals(flights: Mapping[str, Any], costs: Mapping[str, Any], days: int) -> dict[str, int]:
    return {city: flight["eur"] + costs.get(city, 0) * days for city, flight in flights.items()}


def _comparison(
    wishes: Wishes, totals: Mapping[str, int], flights: Mapping[str, Any], costs: Mapping[str, Any], slip: str
) -> str:
    ranked = sorted(totals, key=totals.__getitem__, reverse=slip == "wrong_winner")
    best, *others = ranked
    if slip == "terse":
        return f"{best}, {totals[best]:,} euros."
    budget = wishes.budget
    verdict = "is the cheapest" if others else "it is"
    if budget:
        verdict = "fits" if totals[best] <= budget else "is over your budget"
    daily = f" and about {costs[best]} a day" if best in costs else ""
    sentences = [
        f"{best} {verdict}: {flights[best]['eur']:,} euros for the flight{daily} come to "
        f"{totals[best]:,} euros for {wishes.days} days."
    ]
    for city in others:
        over = f", {_margin(totals[city], budget)}" if budget else ""
        sentences.append(f"{city} would be {totals[city]:,}{over}.")
    return " ".join([*sentences, f"Shall I plan the days in {best}?"])


def _margin(total: int, budget: int) -> str:
    if total > budget:
        return f"which is {total - budget:,} over your budget"
    return f"which leaves {budget - total:,} for surprises"


def _save(conversation: Conversation, wishes: Wishes, slips: Slips) -> Reply:
    now = conversation.now
    slip = slips.pick(["short_plan", "forget_save", "terse", "wrong_city"])
    city = _choose_city(conversation, wishes)
    if slip == "wrong_city":
        city = KNOWN[slips.choose(range(len(KNOWN)))]
    days = _day_plans(wishes.days or 1, _likes(conversation))
    if slip == "short_plan":
        days = days[: max(1, len(days) // 2)]
    if not now.results("save_itinerary") and slip != "forget_save":
        return Reply(calls=(("save_itinerary", {"city": city, "days": days}),))
    if slip == "terse":
        return Reply("Saved.")
    listed_days = " ".join(f"Day {number}: {plan}." for number, plan in enumerate(days, start=1))
    return Reply(f"Your plan for {len(days)} days in {city} is saved. {listed_days}")


def _choose_city(conversation: Conversation, wishes: Wishes) -> str:
    """The city named in this message, else the cheapest of the last comparison."""
    named_cities = _cities(conversation.now.text)
    if named_cities:
        return named_cities[0]
    for turn in reversed(conversation.turns):
        flights = _only_object(turn, "search_flights")
        if flights:
            totals = _totals(flights, _only_object(turn, "daily_cost"), wishes.days or 1)
            return min(totals, key=totals.__getitem__)
    return wishes.cities[0]


def _day_plans(n: int, likes: Sequence[str]) -> list[str]:
    plans = [SIGHTS.get(like.lower(), f"something for {like}") for like in likes] or ["a walk through the old town"]
    first, last = "arrival and a walk through the old town", "a late breakfast and the way home"
    if n <= 2:
        return [first, last][:n]
    return [first, *(plans[index % len(plans)] for index in range(min(n, 30) - 2)), last]


def _ask(conversation: Conversation, wishes: Wishes) -> str:
    text = conversation.now.text
    if is_thanks(text) and len(conversation.turns) > 1 and not _cities(text):
        return "You are welcome. Have a good trip!"
    facts = f"I know you fly from {_origin(conversation)} and like {list_words(_likes(conversation))}."
    if asks_ability(text) and not wishes.cities:
        return f"I compare flights and costs of cities and plan the days there. {facts} Which cities do you think of?"
    if wishes.cities and wishes.days:
        return f"{facts} I can compare {list_words(wishes.cities)} again, or plan the days. Which shall it be?"
    if wishes.cities:
        return f"{facts} Tell me how many days you have and what you would like to spend, and I will " + (
            "compare the two." if len(wishes.cities) == 2 else f"look at {list_words(wishes.cities)}."
        )
    if is_greeting(text) or wishes.days or wishes.budget or re.search(r"\b(trip|travel|visit|city|holiday)\b", text):
        return f"{facts} Which cities do you think of? I know {list_words(KNOWN[:6])}, and some more."
    return f"I am afraid that is beyond me: I only plan trips to cities. {facts} Which cities do you think of?"


def _origin(conversation: Conversation) -> str:
    match = _FROM.search(conversation.system)
    return match[1].strip() if match else "home"


def _likes(conversation: Conversation) -> list[str]:
    match = _LIKES.search(conversation.system)
    return [like.strip() for like in re.split(r",| and ", match[1]) if like.strip()] if match else []


def _only_object(turn: SpokenTurn, tool: str) -> Mapping[str, Any]:
    return next((result for result in reversed(turn.results(tool)) if isinstance(result, dict)), {})
