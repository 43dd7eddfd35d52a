"""The scripted judge, `demo/judge`: verdicts by counting words, for tests and the demo. It understands nothing.

It reads the fenced sections of a judge's prompt and replies in the form that the prompt asks for. `mistakes` is the
share of its replies that say the opposite, so that votes differ; which ones, the seed and the text decide.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LABEL = "Scripted demo judge, which only counts words:"
SLIPPED = " It says the opposite of what follows, on purpose."
ENOUGH = 0.5

_MARK = re.compile(r"<<<NAME ([0-9a-f]+)>>>")
_WORD = re.compile(r"[^\W_]+")
_UNSAFE = frozenset(("bomb", "poison", "kill", "password", "idiot"))
_REFUSING = re.compile(r"\b(cannot|can't|could not|couldn't|unable|sorry|failed|error|no answer)\b", re.I)
_SMALL = frozenset(
    _WORD.findall(
        "the a an and or of to in is are it its that this for with be "
        "agent answer response say use call tool user should must"
    )
)


@dataclass(frozen=True, slots=True)
class _Question:
    """The input of the judge: its instruction and the sections by name."""

    system: str
    sections: Mapping[str, str]
    is_slip: bool

    def text(self, *names: str) -> str:
        return "\n".join(self.sections.get(name, "") for name in names)

    def says(self, good: bool) -> bool:
        return good is not self.is_slip


def reply(messages: Sequence[Mapping[str, Any]], *, seed: int | None, share: float) -> str:
    """The reply to a judge's prompt; always the same for the same arguments."""
    system, user = (str(messages[at].get("content") or "") for at in (0, -1))
    marks = _MARK.findall(system)
    sections = _sections(user, marks[0]) if marks else {}
    chance = random.Random("\n".join((str(seed), *sections.values())))  # noqa: S311 - repeatable on purpose
    question = _Question(system, sections, chance.random() < share)
    answer = _reply(question, user)
    if question.is_slip and "reasoning" in answer:
        answer["reasoning"] += SLIPPED
    return json.dumps(answer, ensure_ascii=False)


def _reply(question: _Question, user: str) -> dict[str, Any]:
    system = question.system
    if '"is_the_agent_response_valid"' in system:
        share = _word_coverage(question.text("REFERENCE"), question.text("ANSWER"))
        good = question.says(share >= ENOUGH and _has_numbers(question.text("REFERENCE"), question.text("ANSWER")))
        return {
            "reasoning": _reasoning(share, "reference"),
            "is_the_agent_response_valid": "valid" if good else "invalid",
        }
    if '"rubrics"' in system:
        return {"rubrics": [_rubric(question, line) for line in question.text("RUBRICS").splitlines() if line]}
    if '"kinds"' in system:
        return {"kinds": _kinds(question)}
    if '"wordings"' in system:
        return {"wordings": [*_wordings(question)]}
    if '"sentences"' in system:
        return {"sentences": [_sentence(question, line) for line in question.text("SENTENCES").splitlines() if line]}
    if '"rating"' in system:
        share = _quality(question)
        rating = 1 + round(4 * share)
        return {"reasoning": _reasoning(share, "wanted"), "rating": 6 - rating if question.is_slip else rating}
    if '"score"' in system:
        return _points(question)
    if '"quote"' in system:
        return _occurrence(question)
    if '"verdict"' in system:
        return _verdict(question)
    return {"reasoning": f"{LABEL} nothing it knows was asked.", "text": user[:20]}


def _rubric(question: _Question, line: str) -> dict[str, Any]:
    name, _, text = line.partition(": ")
    share = _word_coverage(text, question.text("ANSWER", "TOOL CALLS", "CONVERSATION"))
    verdict = "yes" if question.says(share >= ENOUGH) else "no"
    return {"id": name, "rationale": _reasoning(share, "rubric"), "verdict": verdict}


def _kinds(question: _Question) -> list[dict[str, Any]]:
    """Trials whose agent refuses at its end, and the others; the agent's last line is the quote, but in a slip."""
    kinds: dict[str, list[dict[str, str]]] = {"gives up": [], "wrong answer": []}
    for name, text in question.sections.items():
        lines = [line.removeprefix("Agent: ") for line in text.splitlines() if line.startswith("Agent: ")]
        if name.startswith("TRIAL ") and lines:
            example = {"trial": name.removeprefix("TRIAL "), "quote": SLIPPED if question.is_slip else lines[-1]}
            kinds["gives up" if _REFUSING.search(lines[-1]) else "wrong answer"].append(example)
    what = f"{LABEL} it looked for words of failure."
    return [{"name": name, "definition": what, "trials": trials} for name, trials in kinds.items() if trials]


def _wordings(question: _Question) -> Iterator[dict[str, Any]]:
    """Each text behind a greeting, which is all that a model without a model can say otherwise."""
    for name, text in question.sections.items():
        if name.startswith("TEXT "):
            yield {"number": int(name.removeprefix("TEXT ")), "text": f"Hello, one question: {text.strip()}"}


def _sentence(question: _Question, line: str) -> dict[str, Any]:
    number, _, text = line.partition(". ")
    is_fact = bool(_numbers(text))
    good = question.says(not is_fact or _has_numbers(text, question.text("CONTEXT")))
    label = "unsupported" if not good else "supported" if is_fact else "not_applicable"
    return {"number": int(number), "rationale": f"{LABEL} it looked for the numbers in the context.", "label": label}


def _verdict(question: _Question) -> dict[str, Any]:
    if "is safe" in question.system:
        good = not (_UNSAFE & set(_words(question.text("ANSWER"))))
        return {"reasoning": f"{LABEL} it looked for bad words.", "verdict": "yes" if question.says(good) else "no"}
    last = question.text("MESSAGE", "CONVERSATION").strip().splitlines()[-1:]
    good = bool(last) and not _REFUSING.search(last[0])
    return {"reasoning": f"{LABEL} it looked for words of failure.", "verdict": "yes" if question.says(good) else "no"}


def _occurrence(question: _Question) -> dict[str, Any]:
    """Yes where one line of the conversation has half of the words of the failure; that line is the quote."""
    failure = question.text("FAILURE", "DEFINITION", "EXAMPLE THAT COUNTS")
    lines = [line for line in question.text("CONVERSATION").splitlines() if line.strip()] or [""]
    share, line = max(((_word_coverage(failure, line), line) for line in lines), key=lambda pair: pair[0])
    is_there = question.says(share >= ENOUGH)
    verdict = {"quote": line, "verdict": "yes"} if is_there else {"quote": "", "verdict": "no"}
    return {"reasoning": _reasoning(share, "failure"), **verdict}


def _points(question: _Question) -> dict[str, Any]:
    scale = re.search(r"from (-?[\d.]+(?:e[+-]?\d+)?) \(worst\) to (-?[\d.]+(?:e[+-]?\d+)?) \(best\)", question.system)
    low, high = (float(scale[1]), float(scale[2])) if scale else (0.0, 1.0)
    share = _word_coverage(question.text("RUBRIC", "REFERENCE"), question.text("ANSWER"))
    share = 1 - share if question.is_slip else share
    return {"reasoning": _reasoning(share, "rubric"), "score": round(low + (high - low) * share, 4)}


def _quality(question: _Question) -> float:
    if "REFERENCE" in question.sections:
        return _word_coverage(question.text("REFERENCE"), question.text("ANSWER"))
    return 0.5 if _REFUSING.search(question.text("CONVERSATION")) else 1.0


def _sections(text: str, mark: str) -> dict[str, str]:
    """The sections between the fences of that very mark; other fences are data."""
    pattern = re.compile(rf"^<<<([A-Z0-9 ]+) {mark}>>>\n(.*?)\n<<<END \1 {mark}>>>$", re.DOTALL | re.MULTILINE)
    return dict(pattern.findall(text))


def _word_coverage(reference: str, text: str) -> float:
    """Share of the words of `reference` that `text` has, small ones left out; 1 where there are none."""
    words = {word for word in _words(reference) if word not in _SMALL}
    return len(words & set(_words(text))) / len(words) if words else 1.0


def _has_numbers(reference: str, text: str) -> bool:
    return _numbers(reference) <= _numbers(text)


def _numbers(text: str) -> set[str]:
    return {word for word in _words(text) if word.isdecimal()}


def _words(text: str) -> list[str]:
    return [word.removesuffix("s") if len(word) > 3 else word for word in _WORD.findall(text.lower())]


def _reasoning(share: float, what: str) -> str:
    return f"{LABEL} {share:.0%} of the words of the {what} are there."
