"""The format "openhands": `output.jsonl` of an OpenHands evaluation, one EvalOutput on each line.

(OpenHands evaluation/utils/shared.py; reference/openhands_tau.md 1)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Holding, Imported, RecordedRun
from evaldesk.formats.json_lines import read_lines, write_lines
from evaldesk.formats.messages import turns_of
from evaldesk.formats.notes import Notes
from evaldesk.formats.openhands_events import read_history
from evaldesk.formats.openhands_metrics import read_usages
from evaldesk.formats.openhands_writing import row_of
from evaldesk.formats.peeking import peek
from evaldesk.formats.reading import read_mapping, read_optional_mapping, read_optional_text, wanted
from evaldesk.formats.recorded import file_stem, recorded_score, recorded_trial, trial_places
from evaldesk.formats.strict_json import Place
from evaldesk.model import Case, Criterion, ErrorRecord, EvalSet, TrialResult, Turn

_OUTCOMES = ("resolved", "success", "passed", "correct", "result", "score", "reward")


class OpenHands:
    """Lines of `{"instance_id", "instruction", "history", "test_result", "metrics", "error", "metadata"}`."""

    title = "OpenHands output"
    suffixes = (".jsonl",)
    writes: tuple[Holding, ...] = ("run",)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the first line is an EvalOutput or a result of the resolver, or the file is its `metadata.json`."""
        seen = peek(data)
        if _is_metadata(seen.whole):
            return True
        line = seen.line if seen.whole is None or source.lower().endswith(".jsonl") else None
        if not isinstance(line, dict) or "messages" in line:
            return False
        return ("instance_id" in line and bool({"history", "test_result"} & set(line))) or {"issue", "history"} <= set(
            line
        )

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A run with a trial for each line; a second line of an instance is its second trial. Raises FormatError."""
        if _is_metadata(peek(data).whole):
            reason = "this is the metadata.json of a run; import the output.jsonl beside it, whose lines say the same"
            raise FormatError(reason, source=source)
        notes = Notes()
        lines = [(Place(line), read_mapping(Place(line), line.value)) for line in read_lines(data, source)]
        if not lines:
            raise FormatError("the file holds no row", source=source)
        ids = [_instance_id(place, row) for place, row in lines]
        places = [found or (0, 0) for found in trial_places([(each, None) for each in ids])]
        cases: dict[str, Case] = {}
        results: list[TrialResult] = []
        criterion = _criterion([row for _, row in lines])
        for (place, row), case_id, key in zip(lines, ids, places, strict=True):
            cases.setdefault(case_id, _case(place, case_id, row))
            results.append(_result(place, row, key, criterion, notes))
        metadata = read_optional_mapping(lines[0][0].at("metadata"), lines[0][1].get("metadata")) or {}
        run = RecordedRun(
            name=_text(metadata.get("dataset")) or file_stem(source),
            agent=_text(metadata.get("agent_class")) or "openhands",
            cases=tuple(cases.values()),
            results=tuple(results),
            criteria=(criterion,) if criterion else (),
            model=_model(metadata),
        )
        return Imported(
            "openhands",
            runs=(run,),
            understood=(_verdict_words(criterion),),
            refused=notes.sentences,
        )

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """A line for each trial. Raises FormatError for an eval set."""
        if isinstance(what, EvalSet):
            raise FormatError("output.jsonl holds a run, not an eval set; write it as adk")
        return write_lines((row_of(what, result) for result in what.results), what.name)


def _is_metadata(value: Any) -> bool:
    return isinstance(value, dict) and {"agent_class", "llm_config"} <= set(value)


def _instance_id(place: Place, row: dict[str, Any]) -> str:
    issue = row.get("issue")
    if "instance_id" not in row and isinstance(issue, dict):
        return f"{issue.get('owner')}/{issue.get('repo')}#{issue.get('number')}"[:300]
    raw = row.get("instance_id")
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise wanted(place.at("instance_id"), raw, "a string")
    return str(raw)


def _case(place: Place, case_id: str, row: dict[str, Any]) -> Case:
    query = read_optional_text(place.at("instruction"), row.get("instruction")) or ""
    instance = read_optional_mapping(place.at("instance"), row.get("instance"))
    return Case(case_id, turns=(Turn(query),), extra={"instance": instance} if instance else {})


def _result(
    place: Place, row: dict[str, Any], key: tuple[int, int], criterion: Criterion | None, notes: Notes
) -> TrialResult:
    said = read_optional_text(place.at("error"), row.get("error"))
    is_limit = bool(said) and "maximum iteration" in str(said)
    error = ErrorRecord("max_iterations" if is_limit else "openhands", said) if said else None
    turns = turns_of(read_history(place.at("history"), row.get("history") or [], notes))
    metrics = read_optional_mapping(place.at("metrics"), row.get("metrics")) or {}
    test = row.get("test_result")
    details = {"test_result": test} if isinstance(test, dict) and test else {}
    scores = []
    if criterion:
        reason = "" if criterion.metric in _outcome(row) else "The row does not say it."
        scores = [recorded_score(criterion, _outcome(row).get(criterion.metric), reason, details)]
    found = recorded_trial(
        key,
        turns,
        scores=scores,
        criteria=(criterion,) if criterion else (),
        error=error,
        stop_reason="max_iterations" if is_limit else "",
    )
    return replace(found, usages=read_usages(place.at("metrics"), metrics))


def _criterion(rows: list[dict[str, Any]]) -> Criterion | None:
    """The first key that says in any row whether the instance was solved."""
    found = (name for name in _OUTCOMES for row in rows if name in _outcome(row))
    name = next(found, None)
    return Criterion(name, 1.0) if name else None


def _outcome(row: dict[str, Any]) -> dict[str, float]:
    """What a row says of its outcome: `report.resolved`, or such a key of the test result or of the row itself."""
    test = row.get("test_result")
    test = test if isinstance(test, dict) else {}
    report = test.get("report")
    found: dict[str, float] = {}
    for said in (row, test, report if isinstance(report, dict) else {}):
        for name in _OUTCOMES:
            value = said.get(name)
            if isinstance(value, bool) or (isinstance(value, int | float) and 0 <= value <= 1):
                found[name] = float(value)
    return found


def _verdict_words(criterion: Criterion | None) -> str:
    if criterion is None:
        return "No row says whether it was solved, so its trials are unscored; score them here."
    return f"A trial passes when its {criterion.metric} is true or 1; a row with an error is errored, not failed."


def _model(metadata: dict[str, Any]) -> str | None:
    config = metadata.get("llm_config", metadata.get("llm"))
    return _text(config.get("model")) or None if isinstance(config, dict) else None


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else ""
