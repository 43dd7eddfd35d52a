"""Sentences about the conversations of running agents."""

from __future__ import annotations

from collections.abc import Sequence

from evaldesk.model.conclusion import Interval, counted

SEEN_ONCE = "As in production: seen once, not a trial."
"""The words of a run of conversations as they were seen."""


def alarm_sentence(release: str, passed: str, bar: str) -> str:
    """`Below 85 %, release 1.5: 104 of 140 passed`, where the alarm rang; else `Release 1.5: 104 of 140 passed`."""
    if bar:
        return f"Below {bar}, release {release}: {passed}" if release else f"Below {bar}: {passed}"
    return f"Release {release}: {passed}" if release else f"No release: {passed}"


def release_change_sentence(release: str, difference: float, interval: Interval) -> str:
    """`18 points less than release 1.4, could be 12 to 26.`, or `... could be chance.`: a newer release against it."""
    points, way = abs(round(100 * difference)), "more" if difference > 0 else "less"
    name = f"release {release}" if release else "conversations without a release"
    if interval.low <= 0 <= interval.high:
        return f"{points} points {way} than {name}, could be chance."
    low, high = sorted(abs(round(100 * end)) for end in (interval.low, interval.high))
    return f"{points} points {way} than {name}, could be {low} to {high}."


def replay_sentences(
    n_conversations: int, n: int, agent: str, real_tools: Sequence[str], doubled_tools: Sequence[str], n_left_out: int
) -> Sequence[str]:
    """The facts of a replay before it is played: its trials, its tools, and the conversations that are left out."""
    sentences = [
        f"{counted(n_conversations, 'conversation')} x {n} = {counted(n_conversations * n, 'trial')} with {agent}."
    ]
    if real_tools:
        sentences.append(f"Tools run for real: {', '.join(real_tools)}.")
    if doubled_tools:
        sentences.append(f"Recorded results answer the tools {', '.join(doubled_tools)}; any other call is refused.")
    if n_left_out:
        sentences.append(f"Left out, without a message of a user: {counted(n_left_out, 'conversation')}.")
    return sentences
