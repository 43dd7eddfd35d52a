"""The dice roller and prime checker of ADK's documentation.

Dice are drawn from a generator seeded by the session's `dice_seed` (7 when there is none) and by the number of rolls
so far, so that a session that was recorded once rolls the same numbers whenever it is played again.

It runs on a scripted stand-in for a model. Set EVALDESK_MODEL, and the key of its provider, to run it on a real one.
"""

import os
import random
from typing import Any

from evaldesk import LlmAgent


def roll_die(sides: int, state: dict[str, Any]) -> int:
    """Roll a die and return the rolled result.

    Args:
        sides: The number of sides the die has.
    """
    if sides < 1:
        raise ValueError(f"a die has at least one side, got {sides}")
    rolls = state.setdefault("rolls", [])
    chance = random.Random(f"{state.get('dice_seed', 7)}/{len(rolls)}")  # noqa: S311
    result = chance.randint(1, sides)
    rolls.append(result)
    return result


def check_prime(nums: list[int]) -> str:
    """Check if the given numbers are prime.

    Args:
        nums: The numbers to check.
    """
    primes = sorted({number for number in nums if is_prime(number)})
    if not primes:
        return "No prime numbers found."
    return f"{', '.join(map(str, primes))} {'is a prime number' if len(primes) == 1 else 'are prime numbers'}."


def is_prime(number: int) -> bool:
    """Whether `number` is prime, by trial division."""
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


root_agent = LlmAgent(
    name="hello_world",
    model=os.environ.get("EVALDESK_MODEL", "demo/dice"),
    description="Rolls dice of any number of sides and checks which numbers are prime.",
    instruction="""You roll dice and answer questions about the outcome of the dice rolls.
You can roll dice of different sizes, several in one reply. You may discuss previous rolls and comment on them.
When you are asked to roll a die, call roll_die with the number of sides as an integer. Never make up a result.
When you are asked about primes, call check_prime with a list of integers. Never check primes yourself.
When you are asked to roll a die and check the result, first call roll_die and wait for its result, then call
check_prime with what was rolled. Always say in your answer what was rolled.""",
    tools=[roll_die, check_prime],
)
