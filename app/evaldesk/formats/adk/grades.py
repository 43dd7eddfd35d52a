"""The format "agents-cli-results": scores of `agents-cli eval grade`, in `artifacts/grade_results/results_*.json`.

Scores have no threshold there, so that no trial passes or fails. (agentplatform types/common.py, EvaluationResult)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.adk.dataset_case import is_dataset_case
from evaldesk.formats.adk.traces import Trace, read_trace
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.model import Case, Criterion, ErrorRecord, Event, Score, TrialResult, TurnRecord
from evaldesk.model.transcript import is_score, last_stop
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition, parse_recorded_json
from evaldesk.reading.values import (
    MAX_COUNT,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_text,
    read_recorded_score,
    snake_case,
    text_of,
)
from evaldesk.transcripts.adk import spelled
from evaldesk.transcripts.recorded import (
    RecordedRun,
    SummaryValue,
    TrialRows,
    file_stem,
    recorded_score,
    recorded_trial,
)

FORMAT = "agents-cli-results"


class AgentsCliResults(ReadOnly):
    """`{"eval_case_results": [{"eval_case_index", "response_candidate_results"}], "summary_metrics": [...]}`."""

    title = "agents-cli grade results"
    suffixes = (".grades.json", ".json")
    instead = "write the run as adk-results"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with results of response candidates."""
        return is_grade_file(peek(data).document)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A run with a trial for each graded response. Raises FormatError."""
        document = parse_recorded_json(data, source=source)
        place = JsonPosition(document)
        raw = spelled(read_mapping(place, document.value))
        traces = list(_traces(place, raw))
        rows, metrics, agents = TrialRows(), dict[str, Criterion](), set[str]()
        results_at = place.at("eval_case_results")
        for at, item in enumerate(read_list(results_at, raw.get("eval_case_results"), read_mapping)):
            here, values = results_at.at(at), spelled(item)
            index = values.get("eval_case_index")
            index = index if isinstance(index, int) and not isinstance(index, bool) and index >= 0 else at
            trace = traces[index] if index < len(traces) else Trace(Case(f"case_{index + 1}"), ())
            agents.add(trace.agent)
            spot = rows.place(index)
            rows.offer(spot, trace.case)
            candidates = values.get("response_candidate_results") or []
            for number, candidate in enumerate(
                read_list(here.at("response_candidate_results"), candidates, read_mapping)
            ):
                scores = _scores(here.at("response_candidate_results", number), spelled(candidate))
                metrics.update({score.metric: Criterion(score.metric, None) for score in scores})
                turns = trace.trials[min(number, len(trace.trials) - 1)] if trace.trials else ()
                rows.add(
                    spot, recorded_trial(turns, scores=scores, stop_reason=last_stop(turns) if turns else ""), number
                )
        if not rows.n_numbers:
            return Imported(FORMAT, understood=("No result.",))
        cases, results = rows.finish()
        name = next(iter(sorted(filter(None, agents))), "")
        run = RecordedRun(
            file_stem(source),
            name,
            cases,
            results,
            tuple(metrics.values()),
            plan=rows.plan_of(_n_cases(raw, len(cases))),
        )
        words = ("Scores have no threshold in agents-cli: they inform, and no trial passes or fails by them.",)
        return Imported(FORMAT, runs=(run,), understood=words, kept=rows.earlier_words)


def is_grade_file(value: Any) -> bool:
    """Whether the JSON value means to be a file of grades, however wrong inside."""
    values = {snake_case(key): item for key, item in value.items()} if isinstance(value, dict) else {}
    results = values.get("eval_case_results")
    if not isinstance(results, list):
        return False
    keys = {snake_case(key) for item in results if isinstance(item, dict) for key in item}
    return "response_candidate_results" in keys or (not results and "summary_metrics" in values)


def _n_cases(raw: Mapping[str, Any], n_read: int) -> int:
    """The number of graded cases: as the summary of the tool has it, or more where more are in the file."""
    summary = [spelled(item) for item in raw.get("summary_metrics") or () if isinstance(item, dict)]
    counts = [item.get("num_cases_total") for item in summary]
    return max([n_read, *(n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n <= MAX_COUNT)])


def _summary(raw: Mapping[str, Any], results: Sequence[TrialResult]) -> Iterator[SummaryValue]:
    """The means and the errors of the tool's own summary beside those of the scores."""
    for item in raw.get("summary_metrics") or ():
        values = spelled(item) if isinstance(item, dict) else {}
        name = values.get("metric_name")
        scores = [score for result in results for score in result.scores if score.metric == name]
        numbers = [score.value for score in scores if score.value is not None]
        if is_score(values.get("mean_score")) and numbers:
            yield SummaryValue(f"mean of {name}", float(values["mean_score"]), sum(numbers) / len(numbers))
        if is_score(values.get("num_cases_error")):
            yield SummaryValue(
                f"errors of {name}", float(values["num_cases_error"]), sum(score.error is not None for score in scores)
            )


def _scores(place: JsonPosition, values: Mapping[str, Any]) -> tuple[Score, ...]:
    raw = read_optional_mapping(place.at("metric_results"), values.get("metric_results")) or {}
    return tuple(_score(place.at("metric_results", name), name, item) for name, item in raw.items())


def _score(place: JsonPosition, name: str, raw: Any) -> Score:
    values = spelled(read_mapping(place, raw))
    value = read_recorded_score(place.at("score"), values.get("score"))
    error = read_optional_text(place.at("error_message"), values.get("error_message"))
    if value is None and error:
        return Score(name, error=ErrorRecord("metric", error), reason=error)
    reason = text_of(values.get("explanation")) or _verdicts(values.get("rubric_verdicts"))
    return recorded_score(Criterion(name, None), value, reason)


def _verdicts(raw: Any) -> str:
    """The reasoning of each rubric."""
    lines = []
    for item in raw if isinstance(raw, list) else ():
        values = spelled(item) if isinstance(item, dict) else {}
        sign = {True: "met", False: "not met"}.get(values.get("verdict"), "no verdict")  # type: ignore[arg-type]
        rubric = values.get("evaluated_rubric")
        rubric_id = spelled(rubric).get("rubric_id") if isinstance(rubric, dict) else None
        lines.append(f"{text_of(rubric_id) or 'rubric'}: {sign}. {text_of(values.get('reasoning'))}".strip())
    return "\n".join(lines)


def _traces(place: JsonPosition, raw: Mapping[str, Any]) -> Iterator[Trace]:
    """The cases with what the agent did: those of the dataset in the file, or of its rows as a page shows them."""
    datasets = raw.get("evaluation_dataset")
    datasets = datasets if isinstance(datasets, list) else [datasets]
    cases = [
        (place.at("evaluation_dataset", at, "eval_cases", number), case)
        for at, each in enumerate(datasets)
        if isinstance(each, dict)
        for number, case in enumerate(spelled(each).get("eval_cases") or ())
    ]
    if cases:
        yield from (read_trace(here, case) for here, case in cases)
        return
    metadata = raw.get("metadata")
    rows = metadata.get("dataset") if isinstance(metadata, dict) else None
    for at, row in enumerate(rows if isinstance(rows, list) else ()):
        yield _row_trace(place.at("metadata", "dataset", at), row, at)


def _row_trace(place: JsonPosition, raw: Any, at: int) -> Trace:
    """The trace of a row, whose contents are texts of JSON."""
    row = read_mapping(place, raw)
    case: dict[str, Any] = {"eval_case_id": row.get("eval_case_id")}
    for key, name in (("prompt_raw_json", "prompt"), ("agent_data", "agent_data")):
        value = _inner(row.get(key))
        if isinstance(value, dict):
            case[name] = value
    reference, response = _inner(row.get("reference_raw_json")), _inner(row.get("response_raw_json"))
    if isinstance(reference, dict):
        case["reference"] = {"response": reference}
    if isinstance(response, dict):
        case["responses"] = [{"response": response}]
    try:
        if is_dataset_case(case):
            trace = read_trace(place, {key: value for key, value in case.items() if value is not None})
            return Trace(_with_position_id(trace.case, at), trace.trials, trace.agent)
    except FormatError:
        pass  # a row is a copy for a page; its scores count without it
    query, answer = text_of(row.get("prompt_display_text")), text_of(row.get("response_display_text"))
    turn = TurnRecord(query, (Event("user_message", author="user", text=query), Event("agent_message", text=answer)))
    return Trace(Case(f"case_{at + 1}"), ((turn,),) if query else ())


def _with_position_id(case: Case, at: int) -> Case:
    return replace(case, id=f"case_{at + 1}") if case.id == "case_1" else case


def _inner(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) and text else text
    except (ValueError, RecursionError):
        return None
