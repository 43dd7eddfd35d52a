"""The format "adk-results": a `.evalset_result.json` of `adk eval` or `adk web`; older ones are JSON inside a string.

(google-adk 2.13 evaluation/eval_result.py, eval_metrics.py)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.adk_case import read_case, write_case
from evaldesk.formats.adk_played import read_played, write_played
from evaldesk.formats.adk_scores import criteria_of, read_scores, read_verdict, write_metrics, write_verdict
from evaldesk.formats.exchange import Holding, Imported, RecordedRun
from evaldesk.formats.json_text import to_text
from evaldesk.formats.peeking import peek
from evaldesk.formats.reading import read_list, read_mapping, read_optional_mapping, read_optional_text, read_text
from evaldesk.formats.shape import ABSENT, snake_case
from evaldesk.formats.strict_json import MAX_RECORDED_BYTES, Document, Place, parse_json
from evaldesk.model import Case, EvalSet, Transcript, TrialResult

_RESULTS = {"eval_case_results", "evalCaseResults"}


class AdkResults:
    """`{"eval_set_id", "eval_case_results": [...]}`; a case that is there twice has two trials."""

    title = "ADK eval results"
    suffixes = (".evalset_result.json",)
    writes: tuple[Holding, ...] = ("run",)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with results of cases, or a string that holds one."""
        value = peek(data).whole
        if isinstance(value, str):
            return any(f'"{key}"' in value for key in _RESULTS)
        return isinstance(value, dict) and bool(_RESULTS & set(value))

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A run with a trial for each result. Raises FormatError."""
        document = parse_json(data, source=source, max_bytes=MAX_RECORDED_BYTES)
        if isinstance(document.value, str):
            document = parse_json(
                document.value.encode("utf-8", "surrogatepass"), source=f"{source} (inside the string)"
            )
        return _read(Place(document))

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The results of a run. Raises FormatError for an eval set."""
        if isinstance(what, EvalSet):
            raise FormatError("a file of results holds a run, not an eval set; write it as adk")
        app = re.sub(r"\W+", "_", what.agent) or "agent"
        result_id = f"{app}_{what.name}_0"
        found = {
            "eval_set_result_id": result_id,
            "eval_set_result_name": result_id,
            "eval_set_id": what.name,
            "eval_case_results": [_write_result(what, result) for result in what.results],
            "creation_timestamp": 0.0,
        }
        return to_text(found, {}, what.name)


def _read(place: Place) -> Imported:
    raw = _spelled(place, place.document.value)
    set_id = read_optional_text(place.at("eval_set_id"), raw.get("eval_set_id")) or ""
    results_at = place.at("eval_case_results")
    cases: dict[str, Case] = {}
    places: dict[str, int] = {}
    results: list[TrialResult] = []
    n_trials: dict[str, int] = {}
    agent = ""
    for index, item in enumerate(read_list(results_at, raw.get("eval_case_results", ABSENT), _spelled)):
        here = results_at.at(index)
        case_id = read_text(here.at("eval_id"), item.get("eval_id", ABSENT))
        case, result, app = _read_result(here, case_id, item)
        kept = cases.setdefault(case_id, case)
        if len(case.turns) > len(kept.turns):
            cases[case_id] = case
        trial_index = n_trials.get(case_id, 0)
        n_trials[case_id] = trial_index + 1
        results.append(replace(result, case_index=places.setdefault(case_id, len(places)), trial_index=trial_index))
        agent = agent or app
    run = RecordedRun(
        name=set_id or "results",
        agent=agent or _app_of(raw, set_id),
        cases=tuple(cases.values()),
        results=tuple(results),
        criteria=criteria_of([result.scores for result in results]),
    )
    notes = ("Verdicts are ADK's own: a metric that was not evaluated does not count there.",)
    return Imported("adk-results", runs=(run,) if results else (), understood=notes if results else ("No result.",))


def _read_result(place: Place, case_id: str, raw: dict[str, Any]) -> tuple[Case, TrialResult, str]:
    turns_at = place.at("eval_metric_result_per_invocation")
    pairs = read_list(turns_at, raw.get("eval_metric_result_per_invocation") or [], _spelled)
    records = []
    expected: list[Any] = []
    scores = list(read_scores(place.at("overall_eval_metric_results"), raw.get("overall_eval_metric_results")))
    for index, pair in enumerate(pairs):
        here = turns_at.at(index)
        actual = pair.get("actual_invocation")
        expected.append(_expected(here, pair, actual))
        if actual is not None or any(later.get("actual_invocation") for later in pairs[index:]):
            records.append(read_played(here.at("actual_invocation"), actual or _unplayed(expected[-1])))
        scores += read_scores(here.at("eval_metric_results"), pair.get("eval_metric_results"), turn=index)
    session = read_optional_mapping(place.at("session_details"), raw.get("session_details")) or {}
    state = read_optional_mapping(place.at("session_details", "state"), session.get("state"))
    if records and state:
        records[-1] = replace(records[-1], state_after=state)
    app = read_optional_text(place.at("session_details", "app_name"), _first(session, "app_name", "appName")) or ""
    verdict = read_verdict(place.at("final_eval_status"), raw.get("final_eval_status"))
    result = TrialResult(
        run_id=0,
        case_index=0,
        trial_index=0,
        status="errored" if verdict == "errored" else "finished",
        verdict=verdict,
        transcript=Transcript(tuple(records)),
        scores=tuple(scores),
        usages=tuple(usage for record in records for usage in record.usages),
        duration_ms=sum((record.duration_ms for record in records), 0.0),
    )
    made: Any = {"eval_id": case_id, "conversation": expected}
    case = read_case(Place(Document(made, source=place.document.source)), made)
    return case, result, app


def _expected(place: Place, pair: dict[str, Any], actual: Any) -> Any:
    """What was expected; of a case without expectations what the user said."""
    if pair.get("expected_invocation") is not None:
        return read_mapping(place.at("expected_invocation"), pair["expected_invocation"])
    if actual is None:
        raise place.error("expected an actual_invocation or an expected_invocation, found neither")
    return {"user_content": _first(actual, "user_content", "userContent")}


def _unplayed(expected: dict[str, Any]) -> dict[str, Any]:
    """The turn that never came about."""
    return {"user_content": _first(expected, "user_content", "userContent")}


def _write_result(run: RecordedRun, result: TrialResult) -> dict[str, Any]:
    case = run.cases[result.case_index]
    conversation = write_case(case).get("conversation") or []
    by_turn: dict[int, list[Any]] = {}
    for score in result.scores:
        if score.turn is not None:
            by_turn.setdefault(score.turn, []).append(score)
    pairs = []
    records: Sequence[Any] = result.transcript.turns
    for index in range(max(len(records), len(conversation))):
        expected = conversation[index] if index < len(conversation) else None
        actual = write_played(records[index]) if index < len(records) else None
        metrics = write_metrics(by_turn.get(index, []))
        pairs.append({"actual_invocation": actual, "expected_invocation": expected, "eval_metric_results": metrics})
    return {
        "eval_set_file": run.name,
        "eval_set_id": run.name,
        "eval_id": case.id,
        "final_eval_status": write_verdict(result.verdict),
        "eval_metric_results": None,
        "overall_eval_metric_results": write_metrics([score for score in result.scores if score.turn is None]),
        "eval_metric_result_per_invocation": pairs,
        "session_id": f"evaldesk-{result.case_index}-{result.trial_index}",
        "session_details": {
            "id": f"evaldesk-{result.case_index}-{result.trial_index}",
            "app_name": run.agent,
            "user_id": "user",
            "state": dict(result.transcript.final_state),
            "events": [],
        },
        "user_id": "user",
    }


def _app_of(raw: dict[str, Any], set_id: str) -> str:
    """The app's name from `<app>_<set>_<time>`."""
    result_id = raw.get("eval_set_result_id")
    return result_id.partition(f"_{set_id}_")[0] if isinstance(result_id, str) and set_id else ""


def _spelled(place: Place, raw: Any) -> dict[str, Any]:
    return {snake_case(key): value for key, value in read_mapping(place, raw).items()}


def _first(raw: dict[str, Any], *keys: str) -> Any:
    return next((raw[key] for key in keys if key in raw), None)
