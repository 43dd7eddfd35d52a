"""Grading records by a rubric, as Osmosis takes both: each as often as asked, and the numbers over all of them.

Records are JSON lines; rubrics are those of `rubric_configs.yaml`. (reference/osmosis.md 2.2)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evaldesk.errors import FormatError, ModelError, NotFoundError, UsageError
from evaldesk.formats import parse_json
from evaldesk.metrics.judges.options import JudgeOptions
from evaldesk.metrics.judges.panel import Panel, question
from evaldesk.metrics.judges.rubrics.score import check_scale, points_task
from evaldesk.metrics.judges.voting import spread
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.reading.yaml_text import read_yaml

MAX_RECORDS = 100_000


@dataclass(frozen=True, slots=True)
class RubricRecord:
    """One line: the agent's answer, and the context it is judged in. `index` counts records from 1.

    `low` and `high` are the record's own scale, None where it has none; `row` is the line as it stood.
    """

    index: int
    label: str
    answer: str
    rubric_id: str = ""
    sections: Mapping[str, str] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    row: Mapping[str, Any] = field(default_factory=dict)


def read_records(data: bytes, source: str) -> list[RubricRecord]:
    """The records of a JSONL file; blank lines are passed over. Raises FormatError naming the line."""
    records: list[RubricRecord] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            records.append(_record(line, source, number, len(records) + 1))
    if not records:
        raise FormatError(f"No JSON records found in {source!r}.", source=source)
    if len(records) > MAX_RECORDS:
        raise FormatError(f"{len(records):,} records; at most {MAX_RECORDS:,} are read", source=source)
    return records


def _record(line: bytes, source: str, number: int, index: int) -> RubricRecord:
    try:
        row: Any = parse_json(line, source=source).value
    except FormatError as error:
        message = f"Invalid JSON on line {number} of {source!r}: {error.reason}"
        raise FormatError(message, source=source, line=number, column=error.column) from error
    if not isinstance(row, dict):
        raise FormatError(f"Expected JSON object on line {number}", source=source, line=number)
    label = str(row.get("conversation_id") or row.get("id") or f"record {index}")
    answer, before = _answer(row)
    if not answer.strip():
        requirement = "a non-empty 'solution_str' string, or 'messages' with an answer of the assistant"
        raise FormatError(f"Record {label!r} must include {requirement}.", source=source, line=number)
    return RubricRecord(
        index=index,
        label=label,
        answer=answer,
        rubric_id=str(row.get("rubric_id") or ""),
        sections=_sections(row, before),
        low=_number(row, "score_min", source, number),
        high=_number(row, "score_max", source, number),
        row=row,
    )


def _answer(row: Mapping[str, Any]) -> tuple[str, str]:
    """The agent's last message, and the conversation before it."""
    solution = row.get("solution_str")
    if isinstance(solution, str):
        return solution, ""
    messages = [message for message in row.get("messages") or () if isinstance(message, dict)]
    last = next((at for at in reversed(range(len(messages))) if messages[at].get("role") == "assistant"), None)
    if last is None:
        return "", ""
    before = "\n".join(f"{message.get('role', '')}: {_text(message)}" for message in messages[:last])
    return _text(messages[last]), before


def _text(message: Mapping[str, Any]) -> str:
    """The content of a message; parts of text one a line, calls of tools as they are."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "\n".join(part for part in parts if isinstance(part, str))
    calls = message.get("tool_calls")
    return "\n".join(filter(None, [str(content or ""), json.dumps(calls, ensure_ascii=False) if calls else ""]))


def _sections(row: Mapping[str, Any], before: str) -> dict[str, str]:
    info = row.get("extra_info")
    query = row.get("original_input") or (info.get("original_input") if isinstance(info, dict) else None)
    metadata = row.get("metadata")
    sections = {
        "QUESTION": query if isinstance(query, str) else "",
        "EARLIER CONVERSATION": before,
        "REFERENCE": row.get("ground_truth") if isinstance(row.get("ground_truth"), str) else "",
        "METADATA": json.dumps(metadata, ensure_ascii=False) if isinstance(metadata, dict) and metadata else "",
    }
    return {name: str(text) for name, text in sections.items() if text}


def _number(row: Mapping[str, Any], key: str, source: str, line: int) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{key} must be a number", source=source, line=line)
    return float(value)


NAME = "rubric_configs.yaml"
MAX_BYTES = 1024 * 1024
PROVIDERS = {"google": "gemini"}
"""Providers that LiteLLM calls otherwise."""


@dataclass(frozen=True, slots=True)
class RubricConfig:
    """A rubric and how it is judged; `question` and `reference` stand in where a record has none."""

    id: str
    text: str
    options: JudgeOptions
    low: float = 0.0
    high: float = 1.0
    instructions: str = ""
    question: str = ""
    reference: str = ""

    def but(self, changes: Mapping[str, Any]) -> RubricConfig:
        """This rubric with the `model`, `timeout_s`, `score_min` and `score_max` that a caller gives, where not None.

        Another judge is asked with the key of its own provider.
        """
        options, scale = self.options, {"low": changes["score_min"], "high": changes["score_max"]}
        if changes["model"]:
            options = replace(options, judge_model=changes["model"], api_key_env=None)
        if changes["timeout_s"]:
            options = replace(options, timeout_s=changes["timeout_s"])
        return replace(self, options=options, **{end: value for end, value in scale.items() if value is not None})


def given_rubric(arguments: Mapping[str, Any], text: str) -> RubricConfig:
    """The rubric `text` with the `model`, `timeout_s`, `score_min` and `score_max` that a caller gives."""
    options = JudgeOptions(judge_model=arguments["model"], timeout_s=arguments["timeout_s"] or 60.0)
    low, high = arguments["score_min"] or 0.0, 1.0 if arguments["score_max"] is None else arguments["score_max"]
    return RubricConfig(arguments["rubric"], text, options, low, high)


def find_rubric_config(data: Path, folder: Path) -> Path | None:
    """The config beside the data, in `folder`, or in its `examples`; None when there is none."""
    places = (data.parent / NAME, folder / NAME, folder / "examples" / NAME)
    return next((path for path in places if path.is_file()), None)


def read_rubric_config(path: Path, rubric_id: str) -> RubricConfig:
    """The rubric of that id in the file. Raises UsageError, FormatError, and NotFoundError naming the nearest id."""
    configs: dict[str, RubricConfig] = {}
    for document in _documents(path):
        for number, entry in enumerate(document.get("rubrics") or ()):
            config = _config(path, document, entry, number)
            configs[config.id.lower()] = config
    if rubric_id.lower() not in configs:
        raise NotFoundError.among(f"rubric in {path}", rubric_id, [config.id for config in configs.values()])
    return configs[rubric_id.lower()]


def _documents(path: Path) -> list[Mapping[str, Any]]:
    found_documents = read_yaml(read_regular_file(path, MAX_BYTES), str(path), takes_aliases=True)
    documents = [document for document in found_documents if document is not None]
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise FormatError("expected an object with version and rubrics", source=str(path))
    return documents


def _config(path: Path, document: Mapping[str, Any], entry: Any, number: int) -> RubricConfig:
    place = f"rubrics[{number}]"

    def error(message: str) -> FormatError:
        return FormatError(message, source=str(path), path=place)

    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("id", "rubric")):
        raise error("expected an object with the texts id and rubric")
    if "extra_info" in entry:
        raise error("extra_info belongs into the records, not into a rubric")
    info: Any = entry.get("model_info") or document.get("default_model_info")
    if not isinstance(info, dict) or not isinstance(info.get("model"), str):
        raise error("expected model_info with provider and model")
    if info.get("api_key"):
        raise error("a key does not belong into a file; name its variable under api_key_env")

    def setting(key: str, default: Any = None) -> Any:
        places = (entry.get(key), info.get(key), document.get(f"default_{key}"))
        return next((value for value in places if value is not None), default)

    try:
        low, high = float(setting("score_min", 0.0)), float(setting("score_max", 1.0))
        options = JudgeOptions(
            judge_model=_model(info),
            timeout_s=float(info.get("timeout") or 60.0),
            api_key_env=info.get("api_key_env"),
        )
    except (TypeError, ValueError, UsageError) as wrong:
        raise error(str(wrong)) from wrong
    texts = (str(setting(key, "")) for key in ("system_prompt", "original_input", "ground_truth"))
    return RubricConfig(entry["id"], entry["rubric"], options, low, high, *texts)


def _model(info: Mapping[str, Any]) -> str:
    provider = str(info.get("provider") or "")
    return f"{PROVIDERS.get(provider, provider)}/{info['model']}" if provider else str(info["model"])


Clock = Callable[[], datetime]
N_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """One grade of one record; `score` is None where there is none, and `error` says why."""

    score: float | None
    explanation: str
    error: str
    raw: str
    started_at: datetime
    completed: datetime

    @property
    def duration_s(self) -> float:
        """Seconds the judge took, waits and further attempts included."""
        return round((self.completed - self.started_at).total_seconds(), 3)


@dataclass(frozen=True, slots=True)
class JudgedRecord:
    """A record with its grades, in the order they were asked for."""

    record: RubricRecord
    runs: tuple[JudgedRun, ...]

    @property
    def scores(self) -> list[float]:
        """The grades that there are."""
        return [run.score for run in self.runs if run.score is not None]

    @property
    def errors(self) -> list[str]:
        """Why the others are missing."""
        return [run.error for run in self.runs if run.error]


async def judge_records(
    records: Sequence[RubricRecord], config: RubricConfig, number: int, *, clock: Clock
) -> list[JudgedRecord]:
    """Grade each record `number` times by `config`; a failure is an error of that grade. Raises UsageError."""
    room = asyncio.Semaphore(N_AT_ONCE)
    for record in records:
        _scale(record, config)

    async def one(record: RubricRecord) -> JudgedRecord:
        runs = await asyncio.gather(*(_judge_record(room, config, record, at, clock) for at in range(number)))
        return JudgedRecord(record, tuple(runs))

    return list(await asyncio.gather(*map(one, records)))


def statistics(scores: Sequence[float]) -> dict[str, Any]:
    """Mean, variance and deviation of the population, least and greatest; None for each without any score."""
    if not scores:
        return dict.fromkeys(("average", "variance", "stdev", "min", "max"))
    summary = spread(scores)
    return {
        "average": summary.mean,
        "variance": summary.std**2,
        "stdev": summary.std,
        "min": summary.low,
        "max": summary.high,
    }


async def _judge_record(
    room: asyncio.Semaphore, config: RubricConfig, record: RubricRecord, number: int, clock: Clock
) -> JudgedRun:
    low, high = _scale(record, config)
    task = points_task(low, high, config.instructions)
    spare = {"QUESTION": config.question, "REFERENCE": config.reference}
    sections = {name: text for name, text in spare.items() if text} | dict(record.sections)
    messages = question(task, {**sections, "ANSWER": record.answer, "RUBRIC": config.text})
    async with room:
        started_at = clock()
        try:
            judge = config.options.models[0]
            sample = await Panel.of(config.options, 1).sample(task, messages, judge, number)
        except ModelError as error:
            return JudgedRun(None, "", str(error), "", started_at, clock())
    answer = sample.answer
    if answer is None:
        return JudgedRun(None, "", sample.problem, sample.text, started_at, clock())
    return JudgedRun(answer.score, answer.reasoning, "", sample.text, started_at, clock())


def _scale(record: RubricRecord, config: RubricConfig) -> tuple[float, float]:
    low = config.low if record.low is None else record.low
    high = config.high if record.high is None else record.high
    try:
        check_scale(low, high)
    except UsageError as error:
        raise UsageError(f"{record.label}: {error}") from error
    return low, high
