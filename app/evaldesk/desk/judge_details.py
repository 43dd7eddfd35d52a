"""What judges said of a turn, put together from the details of its score: votes, replies, rubrics, sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SHOWN = 2_000


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """One reply: who, its verdict with the reasons, or the raw text and why it could not be read."""

    judge: str
    verdict: str
    reasons: str
    problem: str
    raw: str


@dataclass(frozen=True, slots=True)
class JudgedItem:
    """A rubric or a sentence with its verdict; `status` is the badge, `votes` say how many agree."""

    name: str
    text: str
    verdict: str
    status: str
    votes: str
    reasons: str


@dataclass(frozen=True, slots=True)
class JudgePanel:
    """All of it; `summary` names the judges, `item` what the items are, `prompt` is the hash of the prompt."""

    summary: str
    prompt: str
    votes: str
    item: str
    items: Sequence[JudgedItem]
    replies: Sequence[JudgeReply]

    @property
    def has_reasons(self) -> bool:
        """Whether a reply says more than its verdict."""
        return any(reply.reasons or reply.problem for reply in self.replies)


def judge_panel(details: Mapping[str, Any]) -> JudgePanel | None:
    """The panel of a judged score; None for details of any other metric, whatever they hold."""
    judges = [str(name) for name in _items(details.get("judges"))]
    if not judges:
        return None
    rubrics, sentences = _items(details.get("rubrics")), _items(details.get("sentences"))
    return JudgePanel(
        summary=_summary(judges, details),
        prompt=str(details.get("prompt", "")),
        votes=_votes(details.get("votes")) or _spread(details.get("spread")),
        item="Rubric" if rubrics else "Sentence",
        items=[_rubric(row) for row in map(_mapping, rubrics)] or [_sentence(row) for row in map(_mapping, sentences)],
        replies=[_reply(row) for row in map(_mapping, _items(details.get("samples")))],
    )


def _summary(judges: Sequence[str], details: Mapping[str, Any]) -> str:
    n, n_read = details.get("n_samples"), details.get("n_read")
    words = f"Judged by {', '.join(judges)}"
    if isinstance(n, int) and isinstance(n_read, int):
        replies = "1 reply" if n == 1 else f"{n} replies"
        words += f": {replies}" + (f", {n - n_read} could not be read" if n_read < n else "")
    return words


def _rubric(row: Mapping[str, Any]) -> JudgedItem:
    return _item(row, str(row.get("id", "")), str(row.get("text", "")), "met" if row.get("value") else "not met")


def _sentence(row: Mapping[str, Any]) -> JudgedItem:
    return _item(row, "", str(row.get("sentence", "")), str(row.get("label", "")).replace("_", " "))


def _item(row: Mapping[str, Any], name: str, text: str, verdict: str) -> JudgedItem:
    value = row.get("value")
    status = "unscored" if value is None else "passed" if value else "failed"
    verdict = "no verdict" if value is None else verdict
    return JudgedItem(
        name, text[:MAX_SHOWN], verdict, status, _votes(row.get("votes")), str(row.get("rationale", ""))[:MAX_SHOWN]
    )


def _reply(row: Mapping[str, Any]) -> JudgeReply:
    judge, verdict, reasons, problem, raw = (
        str(row.get(key, "")) for key in ("judge", "verdict", "reasoning", "problem", "reply")
    )
    return JudgeReply(judge, verdict, reasons[:MAX_SHOWN], problem, raw[:MAX_SHOWN])


def _votes(votes: object) -> str:
    """`4 valid, 1 invalid`."""
    return ", ".join(f"{n} {word}" for word, n in _mapping(votes).items())


def _spread(spread: object) -> str:
    numbers = [_mapping(spread).get(key) for key in ("mean", "low", "high", "std")]
    if not all(isinstance(number, int | float) for number in numbers):
        return ""
    mean, low, high, std = (float(str(number)) for number in numbers)
    return f"mean {mean:.2f}, {low:g} to {high:g}, deviation {std:.2f}"


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
