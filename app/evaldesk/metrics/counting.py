"""Counts in the reasons of scores, grammatical at one."""

from __future__ import annotations


def counted(count: float, noun: str) -> str:
    """`1 tool call`, `2.5 tool calls`."""
    text = f"{count:,.0f}" if count == int(count) else f"{count:,.1f}"
    return f"{text} {noun}{'' if count == 1 else 's'}"


def part_of(n: int, n_all: int, noun: str, one: str, many: str) -> str:
    """`1 of 3 rubrics is met`, `2 of 3 rubrics are met`; `one` and `many` are what is said of one and of more."""
    return f"{n:,} of {counted(n_all, noun)} {one if n == 1 else many}"
