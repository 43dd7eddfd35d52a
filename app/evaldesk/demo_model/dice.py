"""The script of the dice roller: reads the request, calls the tools to roll and check, and repeats their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
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

TOOLS = frozenset({"roll_die", "check_prime"})
MAX_ROLLS = 20

_SIDED = re.compile(r"\b(?:(\d+)\s+(?:x\s+)?)?(\d+)[\s-]*sided\b|\b(\d+)?\s*d(\d+)\b")
_SIDES = re.compile(
    r"\b(?:(\d+)\s+)?(?:dice|die|it|one)\b[^.?!]{0,100}?\b(?:with|of|has|having)\s+(\d+)\s+(?:sides|faces)"
)
_COUNT = re.compile(r"\b(\d+)\s+(?:(?:more|normal|ordinary|fair|standard|regular)\s+)?(?:dice|die|times|rolls)\b")
_ROLL = re.compile(r"\b(roll|rolls|rolled|throw|toss|dice|die|d\d+)\b")
_AGAIN = re.compile(r"\b(again|once more|another|re-?roll)\b")
_PAST = re.compile(r"\b(which|what|the) (rolls?|numbers?|results?)\b|\b(rolled|so far|i got|you got)\b")
_PRIME = re.compile(r"\bprimes?\b|\bcheck\b")
_ALL = re.compile(r"\b(rolls|all|so far|everything|every|previous|numbers|results)\b")
_DO_ROLL = re.compile(r"\b(roll|throw|toss)\b(?!s)")


@dataclass(frozen=True, slots=True)
class Wish:
    """The request in a message: the sides of each die to roll, whether to check primes, and the numbers to check."""

    sides: tuple[int, ...] = ()
    is_check: bool = False
    nums: tuple[int, ...] = ()


def answer(conversation: Conversation, slips: Slips) -> Reply:
    """The next reply: rolls first, then the check, then the words."""
    now = conversation.now
    wish = read_wish(now.text, conversation.turns[:-1])
    if not (wish.sides or wish.is_check):
        slips.pick(())
        return Reply(_small_talk(now.text))
    slip = slips.pick(_possible(wish))
    sides = _slipped_sides(wish.sides, slip, slips)
    n_rolled = len(now.results("roll_die"))
    if n_rolled < len(sides):
        return Reply(calls=tuple(("roll_die", {"sides": value}) for value in sides[n_rolled:]))
    nums = [*wish.nums, *(value for value in now.results("roll_die")[: len(wish.sides)] if isinstance(value, int))]
    if wish.is_check and not nums:
        return Reply("There is no number to check yet. Name some, or let me roll a die first.")
    if wish.is_check and slip != "forget_check" and not now.results("check_prime"):
        return Reply(calls=(("check_prime", {"nums": nums[:-1] if slip == "drop_number" else nums}),))
    return Reply(_reply_words(now, wish, nums, slip))


def read_wish(text: str, before: Sequence[SpokenTurn]) -> Wish:
    """The request in `text`, with `before` for words such as again, it and the rolls."""
    text = with_digits(text)
    is_check = bool(_PRIME.search(text))
    sides = _sides(text, before) if _wants_roll(text, is_check) else ()
    return Wish(sides, is_check, () if sides or not is_check else _nums(text, before))


def _wants_roll(text: str, is_check: bool) -> bool:
    if _DO_ROLL.search(text) or _AGAIN.search(text):
        return not (is_check and re.search(r"\b(the|my|your|last|previous) (roll|throw)\b", text))
    return bool(_ROLL.search(text)) and not (is_check or _PAST.search(text) or asks_ability(text))


def _sides(text: str, before: Sequence[SpokenTurn]) -> tuple[int, ...]:
    sides: list[int] = []
    for match in _SIDED.finditer(text):
        sides += [int(match[2] or match[4])] * min(MAX_ROLLS, int(match[1] or match[3] or 1))
    if not sides and (found_sides := _SIDES.search(text)):
        sides = [int(found_sides[2])] * min(MAX_ROLLS, int(found_sides[1] or 1))
    count = _COUNT.search(text)
    if not sides:
        past = [call.args.get("sides") for turn in before for call in turn.calls if call.name == "roll_die"]
        sides = [int(past[-1]) if past and _AGAIN.search(text) and isinstance(past[-1], int) else 6]
    if count and len(set(sides)) == 1 and len(sides) == 1:
        sides *= min(MAX_ROLLS, int(count[1]))
    return tuple(sides[:MAX_ROLLS])


def _nums(text: str, before: Sequence[SpokenTurn]) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in re.findall(r"(?<![\w-])-?\d{1,12}\b", text))
    if numbers:
        return numbers
    turns = [[value for value in turn.results("roll_die") if isinstance(value, int)] for turn in before]
    rolled = [values for values in turns if values]
    if not rolled:
        return ()
    return tuple(number for values in rolled for number in values) if _ALL.search(text) else tuple(rolled[-1])


def _possible(wish: Wish) -> list[str]:
    kinds = ["terse"]
    if wish.sides:
        kinds += ["wrong_sides", "extra_roll", "off_by_one"]
    if wish.is_check:
        kinds += ["forget_check", "forget_check"]
        if len(wish.nums) + len(wish.sides) > 1:
            kinds += ["drop_number", "drop_number"]
    return kinds


def _slipped_sides(sides: tuple[int, ...], slip: str, slips: Slips) -> tuple[int, ...]:
    if slip == "wrong_sides":
        others = [value for value in (4, 6, 8, 10, 12, 20, 100) if value != sides[-1]]
        return (*sides[:-1], slips.choose(others))
    return (*sides, sides[-1]) if slip == "extra_roll" else sides


def _reply_words(now: SpokenTurn, wish: Wish, nums: Sequence[int], slip: str) -> str:
    rolled = now.results("roll_die")[: len(wish.sides)]
    failed = next((value for value in [*rolled, *now.results("check_prime")] if _is_failure(value)), None)
    if failed:
        return f"That did not work: {failed}"
    if slip == "terse":
        return f"{list_words(rolled or nums)}."
    if slip == "off_by_one" and rolled:
        rolled = [*rolled[:-1], rolled[-1] + 1]
    sentences = [_rolled_words(wish.sides, rolled)] if rolled else []
    if wish.is_check:
        check_results = now.results("check_prime")
        words = f"I checked: {check_results[0]}" if check_results else _guess_words(nums)
        sentences.append(words if not check_results or isinstance(check_results[0], str) else f"{words}.")
    return " ".join(sentences)


def _is_failure(value: Any) -> bool:
    return isinstance(value, str) and ("Error" in value or value.startswith(("roll_die", "check_prime")))


def _rolled_words(sides: Sequence[int], rolled: Sequence[Any]) -> str:
    if len(rolled) == 1:
        return f"I rolled a {sides[0]} sided die, and got {rolled[0]}."
    if len(set(sides)) == 1:
        return f"I rolled {len(rolled)} dice with {sides[0]} sides, and got {list_words(rolled)}."
    pairs = [f"{value} on the {side} sided die" for side, value in zip(sides, rolled, strict=False)]
    return f"I rolled {len(rolled)} dice, and got {list_words(pairs)}."


def _guess_words(nums: Sequence[int]) -> str:
    odd_numbers = [number for number in nums if number % 2 and number > 1]
    return (
        f"I believe {list_words(odd_numbers)} {'is' if len(odd_numbers) == 1 else 'are'} prime."
        if odd_numbers
        else "None of that looks prime."
    )


def _small_talk(text: str) -> str:
    if asks_ability(text) and not is_greeting(text):
        return (
            "I can roll dice for you of different sizes, and I can check if the results are prime numbers. "
            "I can also remember previous rolls if you'd like to check those for primes as well. "
            "What would you like me to do?"
        )
    if is_greeting(text):
        return (
            "I am a data processing agent. I can roll dice and check if the results are prime numbers. "
            "What would you like me to do?"
        )
    if is_thanks(text):
        return "You are welcome. Shall I roll another die?"
    return (
        "I am afraid that is beyond me: I only roll dice and check whether numbers are prime. "
        'Try "Roll a 20-sided die" or "Are 7, 12 and 17 prime?"'
    )
