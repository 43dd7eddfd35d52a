"""The format "promptfoo": results of promptfoo, as one `.json` or with a row on each line.

A run for each prompt and provider. Rows with the same variables and assertions are trials of one case: promptfoo writes
repeats as tests of their own. (promptfoo/promptfoo src/types, results version 2 and 3)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaldesk.errors import REASON_LIMIT, FormatError
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.model import (
    Case,
    Criterion,
    ErrorRecord,
    EvalSet,
    Expected,
    JsonObject,
    RecordedPlan,
    Score,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import for_review
from evaldesk.model.json_text import json_or_text
from evaldesk.reading.fields import read_documents
from evaldesk.reading.json_lines import Line
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_count,
    read_optional_mapping,
    read_optional_text,
    text_of,
)
from evaldesk.transcripts.messages.chat import NO_TEXT, read_chat, read_tool_call
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import (
    RecordedRun,
    SummaryValue,
    TrialRows,
    file_stem,
    free_name,
    known_time,
    number_or_name,
    recorded_score,
    recorded_trial,
    recorded_usage,
    verdict_counts,
)
from evaldesk.transcripts.recorded_ends import bound_of, recorded_error
from evaldesk.transcripts.recorded_sessions import lost_words

_ROW = {"promptIdx", "testIdx"}
_STATS = {"successes": "passed", "failures": "failed", "errors": "errored"}
"""The counts of promptfoo, each with the verdict that it is of."""


class Promptfoo(ReadOnly):
    """The format "promptfoo"."""

    title = "promptfoo results"
    suffixes = (".json", ".jsonl")
    instead = "write a run as otel or atif"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a promptfoo file of results, or its first line is a row of one."""
        first = peek(data).first
        if not isinstance(first, dict):
            return False
        results = first.get("results")
        return _is_row(first) or _is_summary(results) or ("evalId" in first and "results" in first)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The tests as cases and a run for each prompt and provider. Raises FormatError."""
        notes = Notes()
        runs: dict[tuple[str, str], _Run] = {}
        planned_trials = _PlannedTrials()
        for place, raw in _rows(data, source, planned_trials):
            row = read_row(place, raw, notes)
            planned_trials.n_rows += 1
            runs.setdefault((row.provider, row.prompt), _Run(row.provider, row.prompt)).rows.append(row)
        if not runs:
            raise FormatError("the file has no results", source=source)
        return _build_import(list(runs.values()), file_stem(source), notes, planned_trials)


@dataclass(slots=True)
class _Run:
    """The rows of one prompt with one provider."""

    provider: str
    prompt: str
    rows: list[Row] = field(default_factory=list)

    def recorded_run(
        self, stem: str, is_one_of_many: bool, planned_trials: _PlannedTrials
    ) -> tuple[RecordedRun, tuple[str, ...]]:
        """The run with its cases, those with the same test being trials of one, and words about earlier results."""
        names = dict.fromkeys(score.metric for row in self.rows for score in row.scores)
        criteria = (PASS, *(Criterion(name) for name in names if name != PASS.metric))
        trials, used_names, n_cases = TrialRows(), dict[str, int](), 0
        for row in self.rows:
            at = trials.place(row.test)
            if at == n_cases:
                n_cases += 1
                trials.offer(at, row.case(free_name(row.description or f"test_{n_cases}", used_names)))
            trials.add(at, _result(row, criteria), row.number)
        cases, results = trials.finish()
        run = RecordedRun(
            name=f"{stem} {self.provider}" if is_one_of_many else stem,
            agent=self.provider or stem,
            cases=cases,
            results=results,
            criteria=criteria,
            model=self.provider or None,
            note=f"Prompt: {self.prompt}"[:REASON_LIMIT] if self.prompt else "",
            plan=planned_trials.plan_of(self.rows[0].prompt_index, len(results)),
        )
        return run, trials.earlier_words


@dataclass(slots=True)
class _PlannedTrials:
    """The rows that the statistics of a file count, of each prompt with its provider and of all, and those in it."""

    by_prompt: dict[int, int] = field(default_factory=dict)
    n_rows: int = 0
    n_counted: int = 0
    stats: dict[str, int] = field(default_factory=dict)

    def add(self, place: JsonPosition, results: dict[str, Any]) -> None:
        """The statistics of one file, under `results`."""
        prompts = results.get("prompts")
        for index, prompt in enumerate(prompts if isinstance(prompts, list) else ()):
            metrics = prompt.get("metrics") if isinstance(prompt, dict) else None
            at = place.at("prompts", index).at("metrics")
            if n := _total(at, metrics, "testPassCount", "testFailCount", "testErrorCount"):
                self.by_prompt[index] = n
        self.n_counted += _total(place.at("stats"), results.get("stats"), *_STATS)
        for key in _STATS if isinstance(results.get("stats"), dict) else ():
            self.stats[key] = self.stats.get(key, 0) + _total(place.at("stats"), results["stats"], key)

    def summary(self, results: Sequence[TrialResult]) -> tuple[SummaryValue, ...]:
        """The statistics of the file beside the verdicts of all its rows; none where rows are missing."""
        if self.n_counted != len(results):
            return ()
        verdicts = verdict_counts(results)
        return tuple(SummaryValue(key, n, verdicts[_STATS[key]]) for key, n in self.stats.items())

    def plan_of(self, prompt_index: int | None, n_present: int) -> RecordedPlan:
        """The plan of the run of a prompt; rows that only the statistics count may be of any run of the file."""
        n_absent = max(self.n_counted - self.n_rows, 0)
        stated = self.by_prompt.get(-1 if prompt_index is None else prompt_index)
        if stated is None and not self.n_counted:
            return RecordedPlan()
        return RecordedPlan(max(stated or n_present + n_absent, n_present), status="finished")


def _total(place: JsonPosition, raw: Any, *keys: str) -> int:
    counts = raw if isinstance(raw, dict) else {}
    return sum(read_optional_count(place.at(key), counts.get(key)) or 0 for key in keys)


def _rows(data: bytes, source: str, planned_trials: _PlannedTrials) -> Iterator[tuple[JsonPosition, Any]]:
    for document in read_documents(data, source):
        place = JsonPosition(document)
        root = read_mapping(place, document.value)
        if isinstance(document, Line) or _is_row(root):
            yield place, root
            continue
        results, at = root.get("results", ABSENT), place.at("results")
        if isinstance(results, dict):
            planned_trials.add(at, results)
            results, at = results.get("results", ABSENT), at.at("results")
        yield from read_list(at, results, lambda inner, raw: (inner, raw))


def _build_import(runs: Sequence[_Run], stem: str, notes: Notes, planned_trials: _PlannedTrials) -> Imported:
    pairs = [run.recorded_run(stem, len(runs) > 1, planned_trials) for run in runs]
    summary = planned_trials.summary([result for run, _ in pairs for result in run.results])
    recorded_runs = tuple(replace(run, summary=() if at else summary) for at, (run, _) in enumerate(pairs))
    kept_words = tuple(words for _, own in pairs for words in own)
    rows = [row for run in runs for row in run.rows]
    understood_words = ["A trial passes when promptfoo says so; scores and assertions inform."]
    if len(runs) > 1:
        understood_words.append(
            f"{counted(len(runs), 'run')}, one for each prompt and provider; the eval set is that of the first."
        )
    n_cached = sum(row.is_cached for row in rows)
    if n_cached:
        understood_words.append(
            f"{counted(n_cached, 'answer')} came from promptfoo's cache: repeats of one answer are not independent."
        )
    evalset = EvalSet(stem, cases=recorded_runs[0].cases)
    return Imported("promptfoo", evalset, recorded_runs, tuple(understood_words), kept_words, notes.sentences)


def _result(row: Row, criteria: Sequence[Criterion]) -> TrialResult:
    return recorded_trial(
        row.turns,
        scores=row.scores,
        criteria=criteria,
        error=row.error,
        stop_reason="error" if row.error else "answered",
        duration_ms=row.duration_ms,
        usages=(row.usage,) if row.usage else (),
    )


def _is_row(raw: dict[str, Any]) -> bool:
    return raw.keys() >= _ROW


def _is_summary(raw: Any) -> bool:
    if isinstance(raw, dict):
        return "results" in raw and bool({"stats", "prompts", "table"} & set(raw))
    return isinstance(raw, list) and bool(raw) and isinstance(raw[0], dict) and "gradingResult" in raw[0]


PASS = Criterion("promptfoo", 1.0)
"""Whether promptfoo calls the row a success, 1 or 0."""

_FAILED_BY_ERROR = 2
_MAX_ASSERTIONS = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A row as read; `test` is equal for rows that repeat one test, which have a `number` each."""

    test: str
    description: str
    provider: str
    prompt: str
    queries: tuple[str, ...]
    reference: str | None
    rubrics: tuple[JsonObject, ...]
    extra: JsonObject
    turns: tuple[TurnRecord, ...]
    scores: tuple[Score, ...]
    usage: Usage | ErrorRecord | None
    duration_ms: float | None
    error: ErrorRecord | None
    is_cached: bool
    number: int | None = None
    prompt_index: int | None = None
    n_lost: int = 0

    def case(self, case_id: str) -> Case:
        """The case of the test, under that name."""
        *before, last = self.queries
        turns = (*(Turn(query) for query in before), Turn(last, Expected(reference=self.reference)))
        case = Case(case_id, turns, rubrics=self.rubrics, extra=self.extra)
        return for_review(case, lost_words(self.n_lost)) if self.n_lost else case


def read_row(place: JsonPosition, raw: Any, notes: Notes) -> Row:
    """One row. Raises FormatError."""
    row = read_mapping(place, raw)
    test = read_optional_mapping(place.at("testCase"), row.get("testCase")) or {}
    prompt = read_optional_mapping(place.at("prompt"), row.get("prompt")) or {}
    response = read_optional_mapping(place.at("response"), row.get("response")) or {}
    variables = test.get("vars") or row.get("vars") or {}
    n_lost = -notes.count(NO_TEXT)
    messages = prompt_messages(place.at("prompt", "raw"), prompt.get("raw"), notes)
    n_lost += notes.count(NO_TEXT)
    error = _error(row, response)
    assertions = test.get("assert")
    asserted = [each for each in assertions if isinstance(each, dict)] if isinstance(assertions, list) else []
    extra = {key: test[key] for key in ("assert", "metadata", "options", "threshold") if test.get(key)}
    queries = tuple(message.text for message in messages if message.speaker == "user") or ("",)
    return Row(
        test=json.dumps([variables, test.get("description"), assertions], sort_keys=True),
        description=read_optional_text(place.at("testCase", "description"), test.get("description")) or "",
        provider=_provider(row.get("provider")),
        prompt=read_optional_text(place.at("prompt", "label"), prompt.get("label")) or "",
        queries=queries,
        reference=next((each["value"] for each in asserted if _says(each, "equals")), None),
        rubrics=tuple(
            {"rubric_id": f"assert_{number}", "rubric_content": {"text_property": each["value"]}}
            for number, each in enumerate(asserted, 1)
            if _says(each, "llm-rubric")
        ),
        extra={"vars": variables, **extra} if variables else extra,
        turns=turns_of(_conversation_messages(place.at("response"), messages, response, notes), error),
        scores=() if error else tuple(_scores(place, row, notes)),
        usage=_usage(row, response),
        duration_ms=known_time(place.at("latencyMs"), row.get("latencyMs"), notes),
        error=error,
        is_cached=response.get("cached") is True,
        number=read_optional_count(place.at("testIdx"), row.get("testIdx")),
        prompt_index=read_optional_count(place.at("promptIdx"), row.get("promptIdx")),
        n_lost=n_lost,
    )


def _says(assertion: dict[str, Any], kind: str) -> bool:
    return assertion.get("type") == kind and isinstance(assertion.get("value"), str)


def prompt_messages(place: JsonPosition, raw: Any, notes: Notes) -> tuple[Message, ...]:
    """The prompt: messages as JSON, or text."""
    text = read_optional_text(place, raw) or ""
    value = json_value(text)
    if isinstance(value, list) and value and all(isinstance(item, dict) and "role" in item for item in value):
        return read_chat(place, value, notes)
    return (Message("user", text),)


def _conversation_messages(
    place: JsonPosition, messages: tuple[Message, ...], response: dict[str, Any], notes: Notes
) -> tuple[Message, ...]:
    """The conversation: the recording of a provider of conversations, or else the prompt and its answer."""
    metadata = response.get("metadata")
    raw_messages = metadata.get("messages") if isinstance(metadata, dict) else None
    if isinstance(raw_messages, list) and raw_messages:
        try:
            return read_chat(place.at("metadata", "messages"), raw_messages, notes)
        except FormatError:
            notes.refuse("the messages of a conversation, which cannot be read", place.at("metadata", "messages"))
    output = response.get("output")
    if output is None:
        return messages
    return (*messages, _answer(place.at("output"), output))


def _answer(place: JsonPosition, output: Any) -> Message:
    """The provider's result: text, tool calls as OpenAI writes them, or any JSON."""
    value = json_value(output)
    if isinstance(value, list) and value and all(isinstance(item, dict) and "function" in item for item in value):
        try:
            return Message("agent", calls=tuple(read_tool_call(place.at(n), call) for n, call in enumerate(value)))
        except FormatError:
            pass
    return Message("agent", json_or_text(output))


def _scores(place: JsonPosition, row: dict[str, Any], notes: Notes) -> Iterator[Score]:
    graded = read_optional_mapping(place.at("gradingResult"), row.get("gradingResult")) or {}
    success = row.get("success", graded.get("pass"))
    value = None if not isinstance(success, bool) else float(success)
    yield recorded_score(PASS, value, text_of(graded.get("reason")))
    yield from _informing(place.at("score"), "score", row.get("score", graded.get("score")), "", notes)
    named_scores = row.get("namedScores") or graded.get("namedScores")
    for name, part in named_scores.items() if isinstance(named_scores, dict) else ():
        yield from _informing(place.at("namedScores", name), name, part, "", notes)
    components = graded.get("componentResults")
    used_names = {PASS.metric, "score", *(named_scores if isinstance(named_scores, dict) else ())}
    for component in components[:_MAX_ASSERTIONS] if isinstance(components, list) else ():
        if isinstance(component, dict):
            at, why = place.at("gradingResult", "componentResults"), text_of(component.get("reason"))
            yield from _informing(at, _name(component, used_names), component.get("score"), why, notes)


def _name(component: dict[str, Any], used_names: set[str]) -> str:
    """The name of the assertion; the second of a type has a number."""
    assertion = component.get("assertion")
    kind = assertion.get("type") if isinstance(assertion, dict) else None
    base = kind if isinstance(kind, str) and kind else "assertion"
    number, name = 2, base
    while name in used_names:
        name, number = f"{base} {number}", number + 1
    used_names.add(name)
    return name


def _informing(place: JsonPosition, name: str, value: Any, reason: str, notes: Notes) -> Iterator[Score]:
    number = number_or_name(value)
    if number is None and value is not None:
        notes.refuse("a score that is not a number", place)
    if number is not None:
        yield recorded_score(Criterion(name), number, reason)


def _error(row: dict[str, Any], response: dict[str, Any]) -> ErrorRecord | None:
    """Why the row is an error. promptfoo writes the reason of a failed assertion under `error`, too."""
    message = response.get("error") or row.get("error")
    if not message or (row.get("failureReason") != _FAILED_BY_ERROR and not response.get("error")):
        return None
    if bound_of(str(message)):
        return None
    return recorded_error(message)


def _usage(row: dict[str, Any], response: dict[str, Any]) -> Usage | ErrorRecord | None:
    token_usage = response.get("tokenUsage") or row.get("tokenUsage")
    cost = row.get("cost", response.get("cost"))
    if not isinstance(token_usage, dict) and cost is None:
        return None
    counts = token_usage if isinstance(token_usage, dict) else {}
    return recorded_usage(_provider(row.get("provider")), counts, "prompt", "completion", cost=cost)


def _provider(raw: Any) -> str:
    if isinstance(raw, dict):
        raw = raw.get("label") or raw.get("id")
    return text_of(raw)
