"""The format "openhands": `output.jsonl` of an OpenHands evaluation, one EvalOutput on each line.

(OpenHands evaluation/utils/shared.py; reference/openhands_tau.md 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported, WritesRuns
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.integrations.openhands.formats.writing import (
    chosen_criterion,
    outcome_words,
    row_line,
    row_note,
    usual_first,
)
from evaldesk.integrations.openhands.formats.writing import outcome as row_outcome
from evaldesk.integrations.openhands.recorded_rows import row_query, row_turn
from evaldesk.model import Case, Criterion, RecordedPlan, TrialResult, Turn
from evaldesk.model.conclusion import counted
from evaldesk.reading.json_lines import read_recorded_lines, write_lines
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition, parse_json
from evaldesk.reading.values import MAX_COUNT, read_key, read_mapping, read_optional_mapping, text_of
from evaldesk.transcripts.recorded import RecordedRun, TrialRows, file_stem, recorded_score, recorded_trial
from evaldesk.transcripts.recorded_sessions import read_plan

ERRORS = "output_errors.jsonl"
"""The rows with an error, which OpenHands' benchmarks on its SDK leave out of `output.jsonl`."""
ERRORS_FOLLOW = {"evaldesk": ERRORS}
"""The line after which the rows of that file follow: each instance counts, once, that no row before it is about."""
METADATA_ALONE = (
    "this is the metadata.json of a run and contains no trial; choose the output.jsonl beside it, or both files, "
    "or on the command line the folder that holds them"
)


class OpenHands(WritesRuns):
    """Lines of `{"instance_id", "instruction", "history", "test_result", "metrics", "error", "metadata"}`."""

    title = "OpenHands output"
    suffixes = (".jsonl",)
    no_evalset = "output.jsonl holds a run, not an eval set; write it as adk"
    n_readings = 2
    main = "output.jsonl"
    companions = ("metadata.json", ERRORS)

    @staticmethod
    def join(parts: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
        """Name and bytes of `output.jsonl` with its `metadata.json` and its file of errors.

        Raises FormatError for files that do not belong together.
        """
        metadata = [part for part in parts if part[0].endswith("metadata.json")]
        rows = [part for part in parts if part not in metadata]
        errors = [part for part in rows if part[0].endswith(ERRORS)] if len(rows) > 1 else []
        rows = [part for part in rows if part not in errors]
        if len(metadata) > 1 or len(rows) != 1 or len(errors) > 1:
            raise FormatError(
                f"choose one file, or output.jsonl with its metadata.json and its {ERRORS}; other files are imported "
                "one by one",
                source=parts[0][0],
            )
        (source, data) = rows[0]
        lines = [data.rstrip()]
        for _, each in errors:
            lines += [write_lines([ERRORS_FOLLOW], source).rstrip(), each.rstrip()]
        lines += [write_lines([parse_json(each, source=name).value], source) for name, each in metadata]
        return source, b"\n".join(line for line in lines if line)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the first line is an EvalOutput or a result of the resolver, or the file is its `metadata.json`."""
        preview = peek(data)
        if _is_metadata(preview.document):
            return True
        line = preview.line if preview.document is None or source.lower().endswith(".jsonl") else None
        if not isinstance(line, dict) or "messages" in line:
            return False
        if line == ERRORS_FOLLOW:
            return True
        return ("instance_id" in line and bool({"history", "test_result"} & set(line))) or {"issue", "history"} <= set(
            line
        )

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A run with a trial for each instance; the last line of an instance counts. Raises FormatError."""
        return OpenHands.read_by(data, source=source, outcome="")

    @staticmethod
    def read_by(data: bytes, *, source: str, outcome: str) -> Imported:
        """As `read`; the key `outcome` of the rows decides the verdict, unless it is empty.

        A line that is the `metadata.json` of the run has the values that the other lines leave out.
        """
        if _is_metadata(peek(data).document):
            raise FormatError(METADATA_ALONE, source=source)
        rows = list(_rows(data, source))
        return _build_import(lambda: rows, TrialRows(), source, outcome)

    @staticmethod
    def read_large(file: BinaryIO, *, source: str, outcome: str) -> Imported:
        """As `read_by`, a line at a time, twice: the first time for the keys that could decide."""

        def rows() -> Iterator[_Row]:
            file.seek(0)
            return _rows(file, source)

        return _build_import(rows, TrialRowsOnDisk(), source, outcome)

    @staticmethod
    def parts(run: RecordedRun) -> Iterator[bytes]:
        """A line for each trial."""
        return (row_line(run, result) for result in run.results)


_Row: TypeAlias = tuple[JsonPosition, dict[str, Any]]


def _rows(data: bytes | BinaryIO, source: str) -> Iterator[_Row]:
    return (
        (JsonPosition(line), read_mapping(JsonPosition(line), line.value)) for line in read_recorded_lines(data, source)
    )


def _build_import(rows: Callable[[], Iterable[_Row]], trials: TrialRows, source: str, outcome: str) -> Imported:
    notes, metadata = Notes(), dict[str, Any]()
    first, outcome_keys = None, dict[str, None]()
    output_ids, errors_at, alone = set[str](), float("inf"), dict[str, int]()
    for number, (place, row) in enumerate(rows()):
        if number < errors_at and row == ERRORS_FOLLOW:
            errors_at = number
            continue
        if _is_metadata_alone(row):
            metadata = metadata or row
            continue
        case_id = _instance_id(place, row)
        if number < errors_at:
            output_ids.add(case_id)
        elif case_id in output_ids:
            continue
        else:
            alone[case_id] = number  # the last row about it counts
        first = first or (place, row)
        outcome_keys |= dict.fromkeys(row_outcome(row))
    if first is None:
        raise FormatError("the file contains no row", source=source)
    keys = usual_first(outcome_keys)
    criterion = chosen_criterion(keys, outcome, source)
    last, plan = set(alone.values()), None
    for number, (place, row) in enumerate(rows()):
        if (number < errors_at or number in last) and not _is_metadata_alone(row):
            case_id = _instance_id(place, row)
            at = trials.place(case_id)
            trials.offer(at, _case(place, case_id, row))
            note = row_note(row)
            trials.add(at, _result(place, row, criterion, notes), _trial_number(note))
            plan = plan or read_plan(note.get("plan"))
    place, row = first
    metadata = metadata | (read_optional_mapping(place.at("metadata"), row.get("metadata")) or {})
    cases, results = trials.finish()
    run = RecordedRun(
        name=text_of(metadata.get("dataset")) or file_stem(source),
        agent=text_of(metadata.get("agent_class")) or "openhands",
        cases=cases,
        results=results,
        criteria=(criterion,) if criterion else (),
        model=_model(metadata),
        plan=plan or _plan(metadata),
    )
    leaves_out = f"{counted(len(alone), 'instance')} of {ERRORS} which output.jsonl leaves out: counted too."
    return Imported(
        "openhands",
        runs=(run,),
        understood=(outcome_words(criterion, keys), *([leaves_out] if alone else [])),
        kept=trials.earlier_words,
        refused=notes.sentences,
        outcomes=keys,
        outcome=criterion.metric if criterion else "",
    )


def _plan(metadata: dict[str, Any]) -> RecordedPlan:
    """As many instances as the limit of the run; 0 is all of a data set, whose size the metadata does not tell."""
    limit = metadata.get("eval_limit")
    is_limited = type(limit) is int and 0 < limit <= MAX_COUNT
    return RecordedPlan(limit if is_limited else None)


def _is_metadata(value: Any) -> bool:
    """Whether this is the `EvalMetadata` of OpenHands, or the one of its benchmarks on the SDK (V1)."""
    return isinstance(value, dict) and ({"agent_class", "llm_config"} <= set(value) or {"llm", "critic"} <= set(value))


def _is_metadata_alone(row: dict[str, Any]) -> bool:
    return "instance_id" not in row and _is_metadata(row)


def _instance_id(place: JsonPosition, row: dict[str, Any]) -> str:
    issue = row.get("issue")
    if "instance_id" not in row and isinstance(issue, dict):
        return f"{issue.get('owner')}/{issue.get('repo')}#{issue.get('number')}"[:300]
    return read_key(place.at("instance_id"), row.get("instance_id"))


def _case(place: JsonPosition, case_id: str, row: dict[str, Any]) -> Case:
    instance = read_optional_mapping(place.at("instance"), row.get("instance"))
    return Case(case_id, turns=(Turn(row_query(place, row)),), extra={"instance": instance} if instance else {})


def _result(place: JsonPosition, row: dict[str, Any], criterion: Criterion | None, notes: Notes) -> TrialResult:
    turn = row_turn(place, row, place.document.text, notes)
    test = row.get("test_result")
    details = {"test_result": test} if isinstance(test, dict) and test else {}
    scores = []
    if criterion:
        value = row_outcome(row).get(criterion.metric)
        scores = [recorded_score(criterion, value, "" if value is not None else "The row does not say it.", details)]
    return recorded_trial(
        (turn,),
        scores=scores,
        criteria=(criterion,) if criterion else (),
        error=turn.error,
        stop_reason=turn.stop_reason,
    )


def _trial_number(note: dict[str, Any]) -> int:
    """The number of a trial of ours; the rows of OpenHands about one instance are of one trial."""
    number = note.get("trial")
    return number if type(number) is int and 0 <= number < MAX_COUNT else 0


def _model(metadata: dict[str, Any]) -> str | None:
    config = metadata.get("llm_config", metadata.get("llm"))
    return text_of(config.get("model")) or None if isinstance(config, dict) else None
