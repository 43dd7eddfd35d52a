"""Sentences about the decisive turn of a failed trial."""

from __future__ import annotations

from evaldesk.model.blame import Blame, BlamePlan, Side, Verification
from evaldesk.model.conclusion import counted
from evaldesk.model.decisive_turn import Answer, Count
from evaldesk.model.experiment import FEWEST_SHARED_CASES
from evaldesk.statistics.intervals import newcombe
from evaldesk.wording.words import cost_words


def answer_words(answer: Answer) -> tuple[str, str]:
    """Both halves of the answer, such as "Turn 3 decides: before it 18 of 20 pass" and "after it 2 of 20"."""
    if answer.finding == "located":
        before = f"Turn {answer.turn} decides: before it {answer.before.words} continuations pass"
        return before, f"after it {answer.after.words}" if answer.after else "and it is the last one"
    if answer.finding == "bad luck":
        return (
            "Bad luck: the agent recovers from any point",
            f"before the last turn {answer.before.words} continuations pass",
        )
    if answer.finding == "already lost at the start":
        return "Already lost at the start", "the case fails whatever happens in its turns"
    return "Not located", "no turn is the decisive one beyond chance"


def answer_sentence(answer: Answer) -> str:
    """Both halves in one line."""
    return (
        ", ".join(filter(None, answer_words(answer)))
        if answer.finding == "located"
        else "; ".join(answer_words(answer))
    )


def repair_words(name: str, repaired: Count, after: Count) -> str:
    """The effect of a repair: "With trial 4 in its place 16 of 20 pass, after it 2 of 20: 70 points more; 40 to 84"."""
    if not repaired.n:
        return f"With {name} in its place: no continuation has a verdict yet"
    words = f"With {name} in its place {repaired.words} continuations pass"
    if not after.n:
        return words
    points = round(100 * (repaired.rate - after.rate))
    interval = newcombe(repaired.passes, repaired.n, after.passes, after.n)
    more = f"{points} points more" if points >= 0 else f"{-points} points less"
    return f"{words}, {more}; could be {round(100 * interval.low)} to {round(100 * interval.high)}"


def verification_words(verification: Verification) -> str:
    """The effect of a fix in one sentence: from the decisive turns and from the start, paired by case."""
    n = verification.n_cases
    there, start = (_side_words(side) for side in (verification.from_turn, verification.from_start))
    return f"From the decisive turns {there}; from the start {start}; over {n:,} {'case' if n == 1 else 'cases'}"


def fix_plan_words(n_trials: int, cost_each: float | None, n: int | None = None) -> str:
    """`2 failed trials, each 5 times from its decisive turn and 5 times from the start of its case; about $0.20.`

    Without `n` the number is still open, and the cost is that of one continuation from each place.
    """
    trials = counted(n_trials, "failed trial")
    if n is None:
        money = "cost unknown" if cost_each is None else f"about {cost_words(cost_each)} for one of both"
        return f"{trials}, each so often from its decisive turn and from the start of its case; {money}."
    times = counted(n, "time")
    money = "cost unknown" if cost_each is None else f"about {cost_words(cost_each * n)}"
    return f"{trials}, each {times} from its decisive turn and {times} from the start of its case; {money}."


def _side_words(side: Side) -> str:
    words = f"{side.after.words} pass, before {side.before.words}"
    interval = side.comparison.interval if side.comparison else None
    if side.comparison is None or interval is None or side.comparison.n_cases < FEWEST_SHARED_CASES:
        return words
    points, low, high = (round(100 * each) for each in (side.comparison.difference, interval.low, interval.high))
    return f"{words} ({points:+d} points by case, 95 % CI {low:+d} to {high:+d})"


def method_words(answer: Answer, plan: BlamePlan) -> str:
    """The way to the answer, with its chances."""
    if answer.confirmation:
        each = answer.confirmation
        after = "the recorded failure" if each.turn == plan.n_turns else f"{each.after.words} after it"
        chance = answer.posterior[each.turn - 1]
        return (
            f"A search proposed turn {each.turn} with a chance of {chance:.3g}; it assumed that {plan.own.words} "
            f"trials of the case pass. Fresh forks, {each.before.words} before the turn and {after}, give "
            f"p = {each.p:.2g} by Fisher's one-sided test. Above 0.05 the answer is: not located."
        )
    largest = max(answer.drops, key=lambda drop: drop.p_largest, default=None)
    if largest is None:
        return ""
    return (
        f"Before each turn the agent played on from the recorded turns, unchanged; before turn 1 the case's own "
        f"{plan.own.n} trials count too. Chance that the drop of turn {largest.turn} is the largest: "
        f"{largest.p_largest:.4g}, of 400,000 draws. One-sided Fisher {largest.p:.2g}, {largest.holm_p:.2g} after Holm "
        f"over {len(answer.drops)} drops. Without at least 0.8 and at most 0.05 the answer is: not located."
    )


def plan_words(plan: BlamePlan) -> str:
    """What is to be played: "8 turns, at most 60 forks by search, about $0.90"."""
    how = "a search with a confirmation" if plan.method == "search" else "a profile of each turn"
    cost = plan.most_cost
    money = "cost unknown" if cost is None else f"about {cost_words(cost)}"
    turns = "1 turn" if plan.n_turns == 1 else f"{plan.n_turns:,} turns"
    return f"{turns}, {how}, at most {plan.n_forks:,} forks, {money}"


def state_words(blame: Blame, n_forks: int) -> str:
    """The state of a search that has no answer yet, or was ended early."""
    words = {
        "planned": "Waits for its turn",
        "running": f"Looking for the decisive turn: {n_forks:,} of at most {blame.plan.n_forks:,} forks",
        "stopped": "Stopped",
        "failed": "Ended by an error",
        "finished": "",
    }[blame.status]
    return ". ".join(filter(None, (words, blame.reason)))
