"""ADK's metric results as scores, and back. (google-adk 2.13 evaluation/eval_metrics.py)"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from evaldesk.formats.reading import read_list, read_mapping, read_text
from evaldesk.formats.shape import ABSENT, snake_case
from evaldesk.formats.strict_json import Place, kind_of
from evaldesk.model import Criterion, Score, Verdict

PASSED, FAILED, NOT_EVALUATED, INFORMATIONAL = 1, 2, 3, 4
_NAMES = {"PASSED": 1, "FAILED": 2, "NOT_EVALUATED": 3, "INFORMATIONAL": 4}
_VERDICTS: dict[int, Verdict] = {
    PASSED: "passed",
    FAILED: "failed",
    NOT_EVALUATED: "unscored",
    INFORMATIONAL: "unscored",
}


def read_verdict(place: Place, raw: Any) -> Verdict:
    """The verdict of a case. Raises FormatError."""
    return _VERDICTS[_status(place, raw)]


def write_verdict(verdict: Verdict) -> int:
    """ADK's number for a verdict; it has none for an error, which is not evaluated there."""
    return {"passed": PASSED, "failed": FAILED}.get(verdict, NOT_EVALUATED)


def read_scores(place: Place, raw: Any, turn: int | None = None) -> tuple[Score, ...]:
    """The scores in a list of metric results. Raises FormatError."""
    return read_list(place, raw or [], lambda here, item: _read_score(here, item, turn))


def criteria_of(scores: Iterable[Sequence[Score]]) -> tuple[Criterion, ...]:
    """The criteria that the scores were held against, in the order in which they come."""
    found: dict[str, Criterion] = {}
    for score in (score for each in scores for score in each):
        known = found.get(score.metric)
        if known is None or known.threshold is None:
            found[score.metric] = Criterion(score.metric, score.threshold)
    return tuple(found.values())


def write_metrics(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """The metric results of some scores."""
    return [_write_score(score) for score in scores]


def _read_score(place: Place, raw: Any, turn: int | None) -> Score:
    values = {snake_case(key): value for key, value in read_mapping(place, raw).items()}
    status = _status(place.at("eval_status"), values.get("eval_status"))
    value = _number(place.at("score"), values.get("score"))
    threshold = None if status == INFORMATIONAL else _number(place.at("threshold"), values.get("threshold"))
    passed = {PASSED: True, FAILED: False}.get(status) if value is not None and threshold is not None else None
    details = values.get("details")
    reason = _rationales(details)
    if value is None:
        reason = reason or "ADK did not evaluate this metric."
    kept = {"adk": details} if isinstance(details, dict) and any(each is not None for each in details.values()) else {}
    name = read_text(place.at("metric_name"), values.get("metric_name", ABSENT))
    return Score(name, value, turn, threshold, passed, reason, kept)


def _write_score(score: Score) -> dict[str, Any]:
    is_informing = score.threshold is None and score.value is not None
    status = INFORMATIONAL if is_informing else {True: PASSED, False: FAILED}.get(bool(score.passed), NOT_EVALUATED)
    if score.passed is None and not is_informing:
        status = NOT_EVALUATED
    return {
        "metric_name": score.metric,
        "threshold": score.threshold,
        "criterion": None if score.threshold is None else {"threshold": score.threshold},
        "custom_function_path": None,
        "score": score.value,
        "eval_status": status,
        "details": score.details.get("adk", {"rubric_scores": None}),
    }


def _rationales(details: Any) -> str:
    """What the judges said of each rubric."""
    rubrics = details.get("rubric_scores", details.get("rubricScores")) if isinstance(details, dict) else None
    if not isinstance(rubrics, list):
        return ""
    said = (each.get("rationale") for each in rubrics if isinstance(each, dict))
    return "\n".join(text for text in said if isinstance(text, str) and text)


def _status(place: Place, raw: Any) -> int:
    number = _NAMES.get(raw) if isinstance(raw, str) else raw
    if isinstance(number, bool) or not isinstance(number, int) or number not in _VERDICTS:
        raise place.error(f"expected a status of 1 to 4, got {kind_of(raw)}")
    return number


def _number(place: Place, raw: Any) -> float | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int | float) or abs(raw) > 1e100 or not math.isfinite(raw):
        raise place.error(f"expected a number, got {kind_of(raw)}")
    return float(raw)
