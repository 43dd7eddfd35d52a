"""Trajectories whose decisive turn is known, for the procedure that looks for it."""

from __future__ import annotations

from collections import Counter
from random import Random

from evaldesk.model.decisive_turn import Answer, Count, Outcome
from evaldesk.statistics.decisive_turn import answer_from, next_forks

BUDGET = 60
N_OWN = 10
N_DRAWS = 10_000


def found_for(turn: int, n_turns: int, a: float, b: float, random: Random) -> Answer:
    """The answer for a trial whose forks pass with `a` up to before its decisive turn, and with `b` after it."""
    own = Count(sum(random.random() < a for _ in range(N_OWN)), N_OWN)
    outcomes: list[Outcome] = []
    while batches := next_forks(n_turns, own, BUDGET, outcomes):
        outcomes += [
            Outcome(each.stage, each.turn, random.random() < (a if each.turn <= turn else b))
            for each in batches
            for _ in range(each.n)
        ]
    assert len(outcomes) <= BUDGET
    return answer_from(n_turns, own, outcomes, n_draws=N_DRAWS)


def answers(a: float, b: float, n_trajectories: int, seed: int) -> Counter[str]:
    """The trajectories that are "named", "wrong" or without a turn; with equal rates every named turn is wrong."""
    random = Random(seed)
    times: Counter[str] = Counter()
    for _ in range(n_trajectories):
        n_turns = random.randint(3, 20)
        turn = random.randint(1, n_turns)
        answer = found_for(turn, n_turns, a, b, random)
        named = "named" if answer.turn == turn and a != b else "wrong"
        times[answer.finding if answer.turn is None else named] += 1
    return times
