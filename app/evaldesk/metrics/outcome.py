"""`outcome`: a turn ends as the case expects: answered, refused by a guardrail, at a limit. (docs/tool-metrics.md)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from evaldesk.errors import NAME_LIMIT, UsageError
from evaldesk.metrics.metric import MetricInfo, mean
from evaldesk.model import Case, JsonObject, Score, Transcript, TurnRecord
from evaldesk.model.evalset import EXPECTED_OUTCOMES
from evaldesk.model.transcript import OUTCOMES

NOT_EXPECTED = "The case expects no outcome of a turn."


@dataclass(frozen=True, slots=True)
class ExpectedOutcome:
    """The end of a turn: its index, None for the last one; `guardrail` is the name of one, empty for any."""

    outcome: str
    turn: int | None = None
    guardrail: str = ""


def expected_outcomes(case: Case) -> tuple[ExpectedOutcome, ...]:
    """The expected outcomes of the case, in order. Raises UsageError that says which one cannot be read."""
    entries = case.extra.get(EXPECTED_OUTCOMES)
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise UsageError(f"{EXPECTED_OUTCOMES} must be a list of outcomes, got {type(entries).__name__}")
    return tuple(_outcome_of(raw, f"{EXPECTED_OUTCOMES}[{index}]") for index, raw in enumerate(entries))


def outcome_line(expectation: ExpectedOutcome) -> str:
    """`2: refused_by_guardrail off topic`: turn, outcome and guardrail; without a turn the last one."""
    place = "" if expectation.turn is None else f"{expectation.turn + 1}: "
    return f"{place}{expectation.outcome} {expectation.guardrail}".strip()


def outcome_entry(line: str) -> JsonObject:
    """The entry of a case for such a line. Raises UsageError that says what cannot be read."""
    turn, colon, words = line.partition(":")
    if not colon:
        turn, words = "", line
    outcome, _, guardrail = words.strip().partition(" ")
    if turn and not turn.strip().isdecimal():
        raise UsageError(
            f"{line[:NAME_LIMIT]!r}: the number of a turn stands before the colon, not {turn.strip()[:NAME_LIMIT]!r}"
        )
    entry: JsonObject = {
        **({"turn": int(turn)} if turn else {}),
        "outcome": outcome,
        **({"guardrail": guardrail.strip()} if guardrail.strip() else {}),
    }
    _outcome_of(entry, repr(line[:NAME_LIMIT]))
    return entry


def expects_outcome(case: Case) -> bool:
    """Whether the case expects an outcome, also one that cannot be read."""
    return bool(case.extra.get(EXPECTED_OUTCOMES))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Share of the expected outcomes of turns, as the case has them, with which these turns ended."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "outcome",
        "Outcome",
        "Share of the turns with an expected outcome that ended so: answered, refused by a guardrail, at a limit.",
    )

    def missing(self, case: Case) -> str | None:
        """A case must expect an outcome."""
        return None if expects_outcome(case) else NOT_EXPECTED

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for each turn with an expected outcome, and their mean for the trial."""
        by_turn: dict[int, ExpectedOutcome] = {}
        n_turns = max(len(case.turns), 1) if case.turns else max(len(transcript.turns), 1)
        for each in expected_outcomes(case):
            by_turn[n_turns - 1 if each.turn is None else each.turn] = each
        if not by_turn:
            return [Score(self.info.name, reason=NOT_EXPECTED)]
        scores = []
        for turn, expectation in sorted(by_turn.items()):
            record = transcript.turns[turn] if turn < len(transcript.turns) else None
            value = float(record is not None and _is_met(expectation, record))
            scores.append(Score(self.info.name, value, turn, reason=_reason(expectation, record)))
        n_met = sum(score.value == 1.0 for score in scores)
        reason = (
            scores[0].reason if len(scores) == 1 else f"{n_met} of {len(scores)} turns ended with the expected outcome."
        )
        return [*scores, Score(self.info.name, mean([score.value or 0.0 for score in scores]), reason=reason)]


def _is_met(expectation: ExpectedOutcome, record: TurnRecord) -> bool:
    return record.stop_reason == expectation.outcome and expectation.guardrail in ("", record.guardrail)


def _reason(expectation: ExpectedOutcome, record: TurnRecord | None) -> str:
    expected_words = _words(expectation.outcome, expectation.guardrail)
    if record is None:
        return f"Never played, expected {expected_words}."
    actual = _words(record.stop_reason, record.guardrail)
    return f"Ended {actual}." if _is_met(expectation, record) else f"Ended {actual}, expected {expected_words}."


def _words(outcome: str, guardrail: str) -> str:
    words = outcome.replace("_", " ")
    return f"{words} {guardrail}" if guardrail else words


def _outcome_of(raw: Any, place: str) -> ExpectedOutcome:
    if not isinstance(raw, Mapping):
        raise UsageError(f"{place} must be an object, got {type(raw).__name__}")
    unknown_keys = sorted(set(raw) - {"outcome", "turn", "guardrail"})
    if unknown_keys:
        raise UsageError(f"{place}: unknown key {unknown_keys[0]!r}; there are outcome, turn and guardrail")
    outcome, turn, guardrail = raw.get("outcome"), raw.get("turn"), raw.get("guardrail", "")
    if outcome not in OUTCOMES:
        raise UsageError(
            f"{place}: outcome must be one of {', '.join(sorted(OUTCOMES))}, not {str(outcome)[:NAME_LIMIT]!r}"
        )
    if turn is not None and (not isinstance(turn, int) or isinstance(turn, bool) or turn < 1):
        raise UsageError(f"{place}: turn must be 1 or more, or absent for the last, not {str(turn)[:NAME_LIMIT]!r}")
    if not isinstance(guardrail, str) or (guardrail and outcome != "refused_by_guardrail"):
        raise UsageError(f"{place}: guardrail is the name of one, with the outcome refused_by_guardrail")
    return ExpectedOutcome(str(outcome), None if turn is None else turn - 1, guardrail)
