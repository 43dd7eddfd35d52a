"""The format "openai-evals": evals, runs and output items of OpenAI's hosted Evals, as its API gives them.

Each row is a case and each run a run with a trial a row. The verdict and the scores of the graders are given ones.
(openai 2.x `openai.types.evals`)
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby, islice
from typing import Any

from evaldesk.formats.exchange import Imported
from evaldesk.integrations.openai_evals.archive import ITEM, Archive, Placed, file_content, is_object, mapping, text
from evaldesk.integrations.openai_evals.graders import Grader, read_graders
from evaldesk.integrations.openai_evals.templates import as_instruction, rendered
from evaldesk.model import (
    Case,
    Criterion,
    ErrorRecord,
    EvalSet,
    Expected,
    RecordedPlan,
    Score,
    SessionInit,
    TrialResult,
    Turn,
    Usage,
)
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import for_review
from evaldesk.model.media import Media
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.transcripts.messages.chat import read_media
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import (
    LargeResults,
    ReadItems,
    RecordedRun,
    SummaryValue,
    TrialRows,
    free_name,
    number_or_name,
    recorded_score,
    recorded_trial,
    recorded_usage,
    verdict_counts,
)
from evaldesk.transcripts.recorded_ends import recorded_error

FORMAT = "openai-evals"
PASS = Criterion("openai_evals", 1.0)
"""Whether OpenAI Evals calls the row passed, 1 or 0."""
_SPEAKERS = {"user": "user", "assistant": "agent", "system": "system", "developer": "system"}
_MEDIA = "an image, a sound or a file of a message"


@dataclass(slots=True)
class ReadEval:
    """One eval: its cases, its runs, its graders, and the model, instruction and sampling of its last run."""

    name: str
    graders: tuple[Grader, ...]
    criteria: tuple[Mapping[str, Any], ...] = ()
    cases: Sequence[Case] = ()
    runs: list[RecordedRun] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    replaced_words: list[str] = field(default_factory=list)
    model: str = ""
    instruction: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """The sampling parameters of its last run that names some."""


def read_evals(
    objects: Callable[[], Iterable[Placed]], stem: str, notes: Notes, rows: type[TrialRows] = TrialRows
) -> tuple[list[ReadEval], Archive]:
    """The evals that have rows, in three passes over the objects of an export: heads, output items, other rows.

    Cases and trials are kept in `rows`. Two evals of one name are told apart by a number. Raises FormatError.
    """
    archive, used_names = Archive(), dict[str, int]()
    for place, value in objects():
        archive.take(place, value, notes)
    evals = {
        eval_id: EvalRows(_eval_of(archive, eval_id, stem, used_names), notes, rows()) for eval_id in archive.eval_ids()
    }
    runs = {
        run_id: RunTrials(run_id, archive.runs[run_id][1] if run_id in archive.runs else {}, each, rows())
        for eval_id, each in evals.items()
        for run_id in archive.run_ids(eval_id)
    }
    for place, value in objects() if archive.items else ():
        if is_object(value) and value.get("object") == ITEM:
            runs[text(value.get("run_id"))].add(place, value)
    for place, value in objects() if archive.n_others else ():
        if not is_object(value):
            continue
        if value.get("object") == "eval.run":
            each, source = evals[text(value.get("eval_id"))], mapping(value.get("data_source"))
            for row_place, content in file_content(place, value):
                each.add_row(row_place, content, source)
        elif "item" in value:
            _add_row_without_run(place, value, [*evals.values()], notes)
    for run in runs.values():
        if run.run_id not in archive.items:
            notes.refuse("a run whose output items are not in the export", archive.runs[run.run_id][0])
        run.finish()
    all_evals = [each.finish() for each in evals.values()]
    return [each for each in all_evals if each.cases], archive


def _eval_of(archive: Archive, eval_id: str, stem: str, used_names: dict[str, int]) -> ReadEval:
    raw = archive.evals[eval_id][1] if eval_id in archive.evals else {}
    name = free_name(text(raw.get("name")) or eval_id or stem, used_names)
    return ReadEval(name, read_graders(raw.get("testing_criteria")), _objects(raw.get("testing_criteria")))


def _add_row_without_run(
    place: JsonPosition, value: Mapping[str, Any], evals: Sequence[EvalRows], notes: Notes
) -> None:
    if len(evals) == 1:
        evals[0].add_row(place, value, {})
    else:
        notes.refuse(f"a row of one of {len(evals)} evals that does not name its own", place)


def as_import(evals: Sequence[ReadEval], stem: str, archive: Archive, notes: Notes) -> Imported:
    """All evals as one eval set with their runs."""
    words = ["A trial passes when OpenAI Evals says so; the scores of its graders are given ones and inform."]
    for each in evals:
        words += [f"{each.name}: {grader.name} ({grader.kind}): {grader.words}." for grader in each.graders]
        words += each.words
    words += [f"A page is missing after {page or 'the last one'}: has_more is true." for page in archive.missing_pages]
    name = evals[0].name if len(evals) == 1 else stem
    runs = tuple(run for each in evals for run in each.runs)
    replaced_words = tuple(sentence for each in evals for sentence in each.replaced_words)
    evalset = EvalSet(name, cases=_all_cases(evals))
    return Imported(FORMAT, evalset, runs, tuple(words), replaced_words, notes.sentences)


def _all_cases(evals: Sequence[ReadEval]) -> Sequence[Case]:
    """The cases of all evals; those of one name are told apart by a number."""
    if len(evals) == 1:
        return evals[0].cases

    def read(first: int) -> Iterator[Case]:
        used_names: dict[str, int] = {}
        all_cases = (case for each in evals for case in each.cases)
        named_cases = (replace(case, id=free_name(case.id, used_names)) for case in all_cases)
        return islice(named_cases, first, None)

    is_on_disk = any(isinstance(each.cases, ReadItems) for each in evals)
    return ReadItems(sum(len(each.cases) for each in evals), read) if is_on_disk else tuple(read(0))


def _objects(raw: object) -> tuple[Mapping[str, Any], ...]:
    return tuple(each for each in raw if isinstance(each, dict)) if isinstance(raw, list) else ()


@dataclass(slots=True)
class EvalRows:
    """The cases of an eval by their rows; of each its digest and the place of its case are in memory."""

    eval: ReadEval
    notes: Notes
    rows: TrialRows
    places: dict[bytes, int] = field(default_factory=dict)
    used_names: dict[str, int] = field(default_factory=dict)

    def case(self, place: JsonPosition, item: Mapping[str, Any], row: Row) -> Case:
        """The case of a row, the same for equal rows."""
        key = blake2b(json.dumps(item, sort_keys=True).encode(), digest_size=16).digest()
        if key in self.places:
            return self.rows.case(self.places[key])
        if row.missing_fields:
            self.notes.refuse(f"no value for the field {row.missing_fields[0]} of the template", place)
        name = free_name(text(item.get("id")) or f"row_{len(self.places) + 1}", self.used_names)
        case = _case_of_row(name, item, row, self.eval.graders)
        self.places[key] = self.rows.place(name)
        self.rows.offer(self.places[key], case)
        return case

    def add_row(self, place: JsonPosition, content: Mapping[str, Any], source: Mapping[str, Any]) -> None:
        """Add a row that is in no output item; `source` is the data source of its run."""
        item = mapping(content.get("item"))
        self.case(place, item, read_row(item, source, content.get("sample"), place, self.notes))

    def finish(self) -> ReadEval:
        """The eval with its cases."""
        self.eval.cases, _ = self.rows.finish()
        return self.eval


@dataclass(slots=True)
class RunTrials:
    """The trials of a run, made of its output items one by one; `raw` is its object, empty where it is missing."""

    run_id: str
    raw: Mapping[str, Any]
    eval: EvalRows
    rows: TrialRows
    numbers: defaultdict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    item_ids: list[object] = field(default_factory=list)
    bare_ids: list[object] = field(default_factory=list)
    n_items: int = 0
    instruction: str = ""

    def add(self, place: JsonPosition, output: Mapping[str, Any]) -> None:
        """Add an output item."""
        item, source, notes = output.get("datasource_item"), mapping(self.raw.get("data_source")), self.eval.notes
        item_id = text(output.get("id")) or f"{self.n_items}"
        self.n_items += 1
        if not isinstance(item, dict):
            notes.refuse("an output item without its row", place)
            self.bare_ids.append(output.get("datasource_item_id"))
            return
        self.item_ids.append(output.get("datasource_item_id"))
        row = read_row(item, source, output.get("sample"), place, notes)
        self.instruction = _instruction(source, notes, place) or row.instruction or self.instruction
        case = self.eval.case(place, item, row)
        at = self.rows.place(case.id)
        self.rows.offer(at, case)
        number = self.numbers[at].setdefault(item_id, len(self.numbers[at]))
        self.rows.add(at, _result(place, output, row, self.eval), number)

    def finish(self) -> None:
        """Add the run to its eval, where it has a trial."""
        run_cases, results = self.rows.finish()
        each = self.eval.eval
        each.model, each.instruction = _model_of_run(self.raw) or each.model, self.instruction or each.instruction
        each.sampling = mapping(mapping(self.raw.get("data_source")).get("sampling_params")) or each.sampling
        each.replaced_words += self.rows.earlier_words
        if results:
            each.runs.append(_recorded_run(each, self.run_id, self.raw, run_cases, results))
            name = text(self.raw.get("name")) or self.run_id
            each.words += _count_words(name, self.raw, results, self.item_ids, self.bare_ids)


@dataclass(frozen=True, slots=True)
class Row:
    """The messages of a row as the model gets them, without the instruction."""

    messages: tuple[Message, ...]
    instruction: str
    missing_fields: tuple[str, ...]
    answer: str | None
    state: Mapping[str, str] = field(default_factory=dict)
    """The values in the instruction of an agent that differ from row to row, by their keys of the session state."""


def read_row(
    item: Mapping[str, Any], source: Mapping[str, Any], sample: object, place: JsonPosition, notes: Notes
) -> Row:
    """The messages and the answer of a row, by the template of its run."""
    sample_values = mapping(sample)
    values = {"item": item, "sample": sample_values}
    raw, missing_fields = _input_messages(source, item), list[str]()
    input_messages = sample_values.get("input")
    messages: list[Message] = []
    instructions: list[str] = []
    for each in input_messages if isinstance(input_messages, list) and input_messages else raw:
        if not isinstance(each, dict):
            continue
        words, media, absent_fields = _rendered_content(each.get("content"), values, place, notes)
        missing_fields += absent_fields
        speaker = _SPEAKERS.get(text(each.get("role")), "user")
        if speaker == "system":
            instructions.append(words)
        else:
            messages.append(Message("user" if speaker == "user" else "agent", words, media=media))
    output = sample_values.get("output")
    answers = (
        [_content(each.get("content"), place, notes) for each in output if isinstance(each, dict)]
        if isinstance(output, list)
        else []
    )
    answer = "\n".join(filter(None, answers)) or text(sample_values.get("output_text")) or None
    _, keys = as_instruction(_instruction(source, notes, place))
    state = {key: rendered(words, values)[0] for key, words in keys.items()}
    return Row(tuple(messages), "\n\n".join(instructions), tuple(missing_fields), answer, state)


def _instruction(source: Mapping[str, Any], notes: Notes, place: JsonPosition) -> str:
    """The system and developer messages of a template, with its fields as they stand."""
    messages = (each for each in _input_messages(source, {}) if isinstance(each, dict))
    instructions = (each for each in messages if _SPEAKERS.get(text(each.get("role"))) == "system")
    return "\n\n".join(filter(None, (_content(each.get("content"), place, notes) for each in instructions)))


def _input_messages(source: Mapping[str, Any], item: Mapping[str, Any]) -> Sequence[object]:
    """The messages of a template, or those of the item that a reference names."""
    raw = source.get("input_messages")
    if not isinstance(raw, dict):
        return ()
    if isinstance(raw.get("template"), list):
        template: Sequence[object] = raw["template"]
        return template
    value: Any = {"item": item}
    for name in text(raw.get("item_reference")).split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, list) else ()


def _rendered_content(
    raw: object, values: Mapping[str, Any], place: JsonPosition, notes: Notes
) -> tuple[str, tuple[Media, ...], list[str]]:
    """The text of a message with its fields rendered, its media, and the fields that have no value."""
    texts, media, missing_fields = list[str](), list[Media](), list[str]()
    for part in raw if isinstance(raw, list) else [raw]:
        if not isinstance(part, dict) or isinstance(part.get("text"), str):
            words, absent_fields = rendered(_content(part, place, notes), values)
            texts += [words] if words else []
            missing_fields += absent_fields
            continue
        values_of_part, absent_fields = _rendered_values(part, values)
        medium = None if absent_fields else read_media(values_of_part)
        missing_fields += absent_fields
        if medium:
            media.append(replace(medium, at=len("\n".join(texts))))
        else:
            notes.refuse(_MEDIA, place)
    return "\n".join(texts), tuple(media), missing_fields


def _rendered_values(part: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The part of a message with the fields rendered in its texts, and the fields that have no value."""
    values_by_key: dict[str, Any] = {}
    missing_fields: list[str] = []
    for key, value in part.items():
        if isinstance(value, dict):
            values_by_key[key], absent_fields = _rendered_values(value, values)
        elif isinstance(value, str) and "{{" in value[:MAX_TEMPLATE]:
            values_by_key[key], absent_fields = rendered(value, values)
        else:
            values_by_key[key], absent_fields = value, []
        missing_fields += absent_fields
    return values_by_key, missing_fields


MAX_TEMPLATE = 4_096
"""Characters of an address in which a field is looked for: one with bytes has none."""


def _content(raw: object, place: JsonPosition, notes: Notes) -> str:
    """The text of a message: a text, one part, or a list of parts."""
    if isinstance(raw, str):
        return raw
    if isinstance(raw, dict):
        if isinstance(raw.get("text"), str):
            return str(raw["text"])
        notes.refuse(_MEDIA, place)
        return ""
    if isinstance(raw, list):
        return "\n".join(filter(None, (_content(part, place, notes) for part in raw)))
    return ""


def _case_of_row(case_id: str, item: Mapping[str, Any], row: Row, graders: Sequence[Grader]) -> Case:
    """The case of a row; its reference is in the first field that a grader compares with."""
    references = [item[grader.field] for grader in graders if grader.field in item]
    reference = next((each if isinstance(each, str) else json.dumps(each) for each in references), None)
    queries = [message for message in row.messages if message.speaker == "user"]
    *before, last = queries or [Message("user")]
    turns = (
        *(Turn(message.text, media=message.media) for message in before),
        Turn(last.text, Expected(reference=reference), media=last.media),
    )
    session = SessionInit(state=dict(row.state)) if row.state else None
    case = Case(case_id, turns, initial_session=session, extra={"item": dict(item)})
    if not queries:
        return for_review(case, "its messages are not in the export")
    return for_review(case, f"no value for {row.missing_fields[0]}") if row.missing_fields else case


def _result(place: JsonPosition, output: Mapping[str, Any], row: Row, own_eval: EvalRows) -> TrialResult:
    sample = mapping(output.get("sample"))
    error = mapping(sample.get("error"))
    status = text(output.get("status"))
    failure = None
    if error.get("message") or error.get("code") or status in ("error", "errored"):
        words = text(error.get("message")) or text(error.get("code"))
        failure = recorded_error(words or "OpenAI Evals gives no reason")
    messages = (*row.messages, *([Message("agent", row.answer)] if row.answer is not None else ()))
    value = {"pass": 1.0, "passed": 1.0, "fail": 0.0, "failed": 0.0}.get(status)
    scores = (
        [] if failure else [recorded_score(PASS, value, "Given by OpenAI Evals."), *_scores(place, output, own_eval)]
    )
    usage = _usage(sample)
    return recorded_trial(
        turns_of(messages, failure),
        scores=scores,
        criteria=(PASS,),
        error=failure,
        stop_reason="error" if failure else "answered",
        usages=(usage,) if usage else (),
    )


def _scores(place: JsonPosition, output: Mapping[str, Any], own_eval: EvalRows) -> Iterator[Score]:
    """The given scores of the graders; a result names its grader by its name or its id, which begins with the name."""
    used_names: dict[str, int] = {PASS.metric: 1}
    names = _names_of_graders(own_eval.eval)
    for index, each in enumerate(_objects(output.get("results"))):
        result_name = text(each.get("name")) or f"grader_{index + 1}"
        name = free_name(names.get(result_name, result_name), used_names)
        value = number_or_name(each.get("score"))
        if value is None:
            own_eval.notes.refuse("a score that is not a number", place.at("results", index))
            continue
        is_passed = each.get("passed")
        words = f"{'Passed' if is_passed else 'Failed'}, given by OpenAI Evals." if isinstance(is_passed, bool) else ""
        yield recorded_score(Criterion(name), value, words or "Given by OpenAI Evals.")


def _names_of_graders(each: ReadEval) -> dict[str, str]:
    """The name of each grader by its id and by its name."""
    return {grader_id: grader.name for grader in each.graders for grader_id in (grader.id, grader.name)}


def _usage(sample: Mapping[str, Any]) -> Usage | ErrorRecord | None:
    counts = sample.get("usage")
    if not isinstance(counts, dict):
        return None
    tokens_cached = counts.get("cached_tokens")
    return recorded_usage(
        text(sample.get("model")), counts, "prompt_tokens", "completion_tokens", tokens_cached=tokens_cached or None
    )


def _recorded_run(
    each: ReadEval, run_id: str, raw: Mapping[str, Any], cases: Sequence[Case], results: Sequence[TrialResult]
) -> RecordedRun:
    model, n_passed = _model_of_run(raw), _passes_of_metrics(results)
    counts = mapping(raw.get("result_counts"))
    total = counts.get("total")
    n_planned = max(total, len(results)) if isinstance(total, int) and not isinstance(total, bool) else None
    is_finished = raw.get("status") == "completed"
    return RecordedRun(
        name=text(raw.get("name")) or run_id or each.name,
        agent=model or each.name,
        cases=cases if isinstance(cases, ReadItems) else tuple(cases),
        results=results if isinstance(results, LargeResults) else tuple(results),
        criteria=(PASS, *(Criterion(name) for name in n_passed if name != PASS.metric)),
        model=model or None,
        plan=RecordedPlan(n_planned, status="finished" if is_finished else "unknown"),
        summary=tuple(_summary(raw, verdict_counts(results), n_passed, _names_of_graders(each)))
        if n_planned is None or n_planned <= len(results)
        else (),
    )


def _model_of_run(raw: Mapping[str, Any]) -> str:
    return text(raw.get("model")) or text(mapping(raw.get("data_source")).get("model"))


def _passes_of_metrics(results: Sequence[TrialResult]) -> dict[str, int]:
    """The number of trials that a grader passed, by its metric; each metric of a score is there."""
    n_passed: dict[str, int] = {}
    for score in (score for result in results for score in result.scores):
        n_passed[score.metric] = n_passed.get(score.metric, 0) + score.reason.startswith("Passed")
    return n_passed


def _summary(
    raw: Mapping[str, Any], verdicts: Mapping[str, int], n_passed: Mapping[str, int], names: Mapping[str, str]
) -> Iterator[SummaryValue]:
    """The counts of the run, and those of its graders, by their id or name, beside those of its rows."""
    counts = mapping(raw.get("result_counts"))
    for key, verdict in (("passed", "passed"), ("failed", "failed"), ("errored", "errored")):
        n = counts.get(key)
        if isinstance(n, int) and not isinstance(n, bool):
            yield SummaryValue(key, n, verdicts.get(verdict, 0))
    for each in _objects(raw.get("per_testing_criteria_results")):
        name, n = text(each.get("testing_criteria")), each.get("passed")
        name = names.get(name, name)
        if name in {*n_passed, *names.values()} and isinstance(n, int) and not isinstance(n, bool):
            yield SummaryValue(f"{name} passed", n, n_passed.get(name, 0))


def _count_words(
    name: str,
    raw: Mapping[str, Any],
    results: Sequence[TrialResult],
    item_ids: Sequence[object],
    bare_ids: Sequence[object],
) -> list[str]:
    """A sentence about rows that the run counts and the export does not hold, with their ids where they are known.

    `bare_ids` are those of output items without their row.
    """
    total = mapping(raw.get("result_counts")).get("total")
    if not isinstance(total, int) or total <= len(results):
        return []
    n_absent, ids = total - len(results), _absent_ids(total, len(results), item_ids, bare_ids)
    verb = "is" if n_absent == 1 else "are"
    return [f"{name}: {counted(n_absent, 'row')} of {total} {verb} only at OpenAI{ids and f': {ids}'}."]


def _absent_ids(total: int, n_results: int, item_ids: Sequence[object], bare_ids: Sequence[object]) -> str:
    """The numbers of the rows without data, as `0, 3-13`; empty where the numbers of the others do not tell them."""
    numbers, bare_numbers = (
        {each for each in ids if isinstance(each, int) and not isinstance(each, bool)} for ids in (item_ids, bare_ids)
    )
    first = 1 if total in numbers | bare_numbers else 0
    absent_numbers = sorted(set(range(first, first + total)) - numbers) if total <= MAX_NUMBERS else []
    if len(absent_numbers) != total - n_results or len(numbers) != n_results:
        return ""
    groups = [[*group] for _, group in groupby(enumerate(absent_numbers), lambda pair: pair[1] - pair[0])]
    spans = [(group[0][1], group[-1][1]) for group in groups]
    words = [str(low) if low == high else f"{low}-{high}" for low, high in spans[:MOST_SPANS]]
    return ", ".join([*words, "…"] if len(spans) > MOST_SPANS else words)


MAX_NUMBERS, MOST_SPANS = 1_000_000, 20
"""Rows of a run whose numbers are compared, and spans of them in a sentence."""
