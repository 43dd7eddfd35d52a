"""A trip planner that talks over several turns and keeps the user's wishes in the session state.

Prices are made up, but always the same for the same cities, origin and month. It runs on a scripted stand-in for a
model. Set EVALDESK_MODEL, and the key of its provider, to run it on a real one.
"""

import os
import zlib
from typing import Any

from evaldesk import LlmAgent


def note_wishes(
    state: dict[str, Any], days: int | None = None, budget_eur: int | None = None, month: str | None = None
) -> dict[str, Any]:
    """Remember what the user wants; leave out what is not known yet.

    Args:
        days: How many days the trip takes.
        budget_eur: What the whole trip may cost, in euros.
        month: The month of the trip.
    """
    wishes = {"days": days, "budget_eur": budget_eur, "month": month}
    known = {name: value for name, value in wishes.items() if value is not None}
    state.update(known)
    return known


def search_flights(origin: str, to: list[str], month: str, state: dict[str, Any]) -> dict[str, Any]:
    """Find the cheapest return flight to each city.

    Args:
        origin: The city the user flies from.
        to: The cities to compare.
        month: The month of the trip.
    """
    state["cities"] = to
    return {city: _flight(origin, city, month) for city in to}


def daily_cost(cities: list[str]) -> dict[str, int]:
    """What a day in each city costs on average, hotel and meals included, in euros.

    Args:
        cities: The cities to look up.
    """
    return {city: 120 + _made_up(city) % 150 for city in cities}


def save_itinerary(city: str, days: list[str], state: dict[str, Any]) -> str:
    """Save the plan of the trip.

    Args:
        city: The city the trip goes to.
        days: One sentence for each day, in order.
    """
    wanted = state.get("days")
    state["itinerary"] = {"city": city, "days": days}
    missing = wanted - len(days) if isinstance(wanted, int) else 0
    return f"Saved, but {missing} days have no plan yet." if missing > 0 else f"Saved {len(days)} days in {city}."


def _flight(origin: str, city: str, month: str) -> dict[str, Any]:
    number = _made_up(f"{origin}/{city}/{month}".lower())
    return {"eur": 240 + number % 640, "hours": round(1.5 + number % 120 / 10, 1)}


def _made_up(text: str) -> int:
    return zlib.crc32(text.encode())


root_agent = LlmAgent(
    name="trip_planner",
    model=os.environ.get("EVALDESK_MODEL", "demo/trips"),
    description="Compares cities by what a trip there costs, and plans the days.",
    instruction="""You plan trips to cities. The user flies from {origin} and likes {interests}.
Ask for the cities, the number of days and the budget when you do not know them. As soon as the user names days,
budget or month, call note_wishes. Compare cities with search_flights and daily_cost, and say the total of each.
When the user decides, make a plan with one sentence for each day and save it with save_itinerary.
Known so far: {days?} days, a budget of {budget_eur?} euros.""",
    tools=[note_wishes, search_flights, daily_cost, save_itinerary],
    initial_state={"origin": "San Francisco", "interests": ["food", "shopping", "museums"]},
)
