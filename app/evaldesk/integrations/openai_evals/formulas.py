"""Formulas of `multi` graders: + - * /, min, max, abs, floor, ceil, exp, sqrt and log over named scores."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from evaldesk.errors import MetricError

MAX_FORMULA = 2_000
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|([A-Za-z_]\w*)|([-+*/(),]))")
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}


def calculate(formula: str, scores: Mapping[str, float]) -> float:
    """The value of a formula. Raises MetricError for one that cannot be read, and for a value that is no number."""
    if len(formula) > MAX_FORMULA:
        raise MetricError(f"the formula has {len(formula):,} characters; at most {MAX_FORMULA:,}")
    try:
        value = _Reading(_tokens(formula, scores), scores).formula()
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise MetricError(f"the formula {formula!r:.80} has no value: {error}") from error
    if not math.isfinite(value):
        raise MetricError(f"the formula {formula!r:.80} has no finite value")
    return float(value)


def _tokens(formula: str, names: Iterable[str]) -> list[str]:
    """The words of a formula; a name of a score may have any letters, a hyphen say, and the longest one counts."""
    known_names = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    name_pattern = re.compile(rf"\s*({known_names})(?!\w)") if known_names else _TOKEN
    tokens, at = list[str](), 0
    while at < len(formula.rstrip()):
        match = name_pattern.match(formula, at) or _TOKEN.match(formula, at)
        if match is None:
            raise MetricError(f"the formula {formula!r:.80} has an unknown sign at character {at + 1}")
        tokens.append(match[match.lastindex or 0])
        at = match.end()
    return tokens


@dataclass(slots=True)
class _Reading:
    """Reads a formula from left to right, by precedence."""

    tokens: list[str]
    scores: Mapping[str, float]
    at: int = 0

    def formula(self) -> float:
        value = self.total()
        if self.at < len(self.tokens):
            raise MetricError(f"the formula has {self.tokens[self.at]!r:.40} where it should end")
        return value

    def total(self) -> float:
        value = self.product()
        while self.next_is("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value

    def product(self) -> float:
        value = self.factor()
        while self.next_is("*", "/"):
            value = value * self.factor() if self.take() == "*" else value / self.factor()
        return value

    def factor(self) -> float:
        word = self.take()
        if word in ("-", "+"):
            return -self.factor() if word == "-" else self.factor()
        if word == "(":
            value = self.total()
            self.expect(")")
            return value
        if word[:1].isdecimal() or word.startswith("."):
            return float(word)
        if self.next_is("(") and word in _FUNCTIONS:
            return self.call(_FUNCTIONS[word])
        if word not in self.scores:
            raise MetricError(f"the formula names {word!r:.40}, and there is no such score")
        return self.scores[word]

    def call(self, function: Callable[..., float]) -> float:
        self.expect("(")
        arguments = [self.total()]
        while self.next_is(","):
            self.take()
            arguments.append(self.total())
        self.expect(")")
        return float(function(*arguments))

    def next_is(self, *tokens: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at] in tokens

    def take(self) -> str:
        if self.at == len(self.tokens):
            raise MetricError("the formula ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise MetricError(f"the formula lacks {token!r}")
