"""The format "inspect": logs of Inspect, as one `.json` or as an `.eval` zip with a member for each sample.

Epochs of a sample are trials of a case. (UKGovernmentBEIS/inspect_ai log/_log.py, version 2)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.errors import TEXT_LIMIT, FormatError
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.matching import ALSO_ACCEPTED
from evaldesk.model import (
    Case,
    Criterion,
    ErrorRecord,
    EvalSet,
    Expected,
    JsonObject,
    RecordedPlan,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.model.evalset import for_review
from evaldesk.model.run import EarlierResult, RecordedStatus
from evaldesk.model.transcript import BOUNDS, is_score
from evaldesk.reading.json_places import NUMBER_NAMES
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, JsonPosition, parse_recorded_json
from evaldesk.reading.values import (
    ABSENT,
    read_integer,
    read_key,
    read_list,
    read_mapping,
    read_optional_count,
    read_optional_mapping,
    read_optional_text,
    text_of,
    wrong_value,
)
from evaldesk.reading.zip_members import ZipMembers
from evaldesk.transcripts.messages.chat import NO_TEXT, read_chat
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import (
    RecordedRun,
    SummaryValue,
    TrialRows,
    file_stem,
    known_time,
    recorded_score,
    recorded_trial,
    recorded_usage,
)
from evaldesk.transcripts.recorded_ends import bound_of, is_accident, recorded_error
from evaldesk.transcripts.recorded_sessions import lost_words

_ZIP = b"PK\x03\x04"
_HEADERS = ("header.json", "_journal/start.json", "start.json")
_STATUSES: Mapping[str, RecordedStatus] = {
    "success": "finished",
    "cancelled": "stopped",
    "started": "unfinished",
    "error": "failed",
}
_PASSES = 1.0
"""The value of "C", correct."""


class InspectLog(ReadOnly):
    """The format "inspect"."""

    title = "Inspect log"
    suffixes = (".eval", ".json")
    instead = "write a run as otel or atif"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a log, or a zip that has the members of one."""
        if data.startswith(_ZIP):
            return any(name.encode() in data for name in _HEADERS)
        document = peek(data).document
        return isinstance(document, dict) and "eval" in document and bool({"status", "plan", "samples"} & set(document))

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The samples as cases and one run of their epochs. Raises FormatError."""
        if data.startswith(_ZIP):
            members = ZipMembers.open(data, source)
            header = _header(members)
            return _build_import(header, _zipped_samples(members), file_stem(source))
        document = parse_recorded_json(data, source=source)
        return _build_import(document, _list_samples(document), file_stem(source))


def _header(members: ZipMembers) -> Document:
    name = next((name for name in _HEADERS if name in members), None)
    if name is None:
        raise FormatError(
            f"the zip file has none of {', '.join(_HEADERS)}: it is not an Inspect log", source=members.source
        )
    return _parse_member(members, name)


def _zipped_samples(members: ZipMembers) -> Iterator[tuple[JsonPosition, Any]]:
    """The samples one by one, so that only one is unpacked at a time."""
    for name in members:
        if name.startswith("samples/") and name.endswith(".json"):
            document = _parse_member(members, name)
            yield JsonPosition(document), document.value


def _parse_member(members: ZipMembers, name: str) -> Document:
    return parse_recorded_json(members.read(name), source=f"{members.source}!{name}")


def _list_samples(document: Document) -> Iterator[tuple[JsonPosition, Any]]:
    raw = read_mapping(JsonPosition(document), document.value).get("samples")
    place = JsonPosition(document).at("samples")
    yield from () if raw is None else read_list(place, raw, lambda at, sample: (at, sample))


def _build_import(header: Document, raw: Iterator[tuple[JsonPosition, Any]], stem: str) -> Imported:
    place, notes = JsonPosition(header), Notes()
    log = read_mapping(place, header.value)
    spec = read_mapping(place.at("eval"), log.get("eval", ABSENT))
    samples = _samples(raw, notes)
    sample_places = _sample_places(spec)
    criteria = _criteria(samples)
    trials = TrialRows()
    for sample in sorted(samples, key=lambda each: (sample_places.get(each.case.id, len(sample_places)), each.epoch)):
        at = trials.place(sample.case.id)
        trials.offer(at, sample.case)
        trials.add(at, _result(sample, criteria), sample.epoch)
    cases, results = trials.finish()
    ids = {*sample_places, *(case.id for case in cases)}
    name = read_optional_text(place.at("eval", "task"), spec.get("task")) or stem
    run = RecordedRun(
        name=name,
        agent=read_optional_text(place.at("eval", "solver"), spec.get("solver")) or name,
        cases=cases,
        results=results,
        criteria=criteria,
        model=read_optional_text(place.at("eval", "model"), spec.get("model")),
        note=f"Inspect task {name}, {spec['created']}" if isinstance(spec.get("created"), str) else "",
        plan=_plan(place, log, trials.plan_of(len(ids), _n_epochs(place, spec))),
        summary=() if trials.n_replaced else tuple(_summary(log, results)),
    )
    evalset, runs = EvalSet(name, cases=run.cases), (run,) if samples else ()
    return Imported("inspect", evalset, runs, tuple(_understood_words(run)), trials.earlier_words, notes.sentences)


def _summary(log: dict[str, Any], results: Sequence[TrialResult]) -> Iterator[SummaryValue]:
    """The accuracy and mean of each scorer in the results of the log, beside those of its samples.

    The epochs of a sample are reduced to their mean, as Inspect does unless it is told otherwise.
    """
    stated = log.get("results")
    for each in stated.get("scores") or () if isinstance(stated, dict) else ():
        if not isinstance(each, dict) or each.get("reducer") not in (None, "mean"):
            continue
        values: dict[int, list[float]] = {}
        for result in results:
            for score in result.scores:
                if score.metric == each.get("name") and score.turn is None and score.value is not None:
                    values.setdefault(result.case_index, []).append(score.value)
        metrics = each.get("metrics")
        for name in ("accuracy", "mean"):
            metric = metrics.get(name) if isinstance(metrics, dict) else None
            value = metric.get("value") if isinstance(metric, dict) else None
            if values and is_score(value):
                means = [sum(own) / len(own) for own in values.values()]
                yield SummaryValue(f"{name} of {each['name']}", float(value), sum(means) / len(means))


def _n_epochs(place: JsonPosition, spec: dict[str, Any]) -> int | None:
    at = place.at("eval", "config")
    config = read_optional_mapping(at, spec.get("config")) or {}
    return read_optional_count(at.at("epochs"), config.get("epochs"))


def _plan(place: JsonPosition, log: dict[str, Any], grid: RecordedPlan) -> RecordedPlan:
    """The number of samples of all epochs, or of the results, and the end of the log."""
    results = read_optional_mapping(place.at("results"), log.get("results")) or {}
    total = read_optional_count(place.at("results", "total_samples"), results.get("total_samples")) or 0
    error = read_optional_mapping(place.at("error"), log.get("error")) or {}
    status = read_optional_text(place.at("status"), log.get("status")) or "started"
    return RecordedPlan(
        max(grid.n_planned or 0, total),
        grid.n_each,
        _STATUSES.get(status, "failed"),
        "" if status == "success" else ": ".join(filter(None, (status, text_of(error.get("message"))[:TEXT_LIMIT]))),
    )


def _samples(raw: Iterator[tuple[JsonPosition, Any]], notes: Notes) -> list[InspectSample]:
    return [read_sample(place, value, notes) for place, value in raw]


def _sample_places(spec: dict[str, Any]) -> dict[str, int]:
    """The places of the samples that were to be played, by their ids; empty where the log does not say."""
    dataset = spec.get("dataset")
    ids = dataset.get("sample_ids") if isinstance(dataset, dict) else None
    sample_ids = [str(key) for key in ids if isinstance(key, int | str)] if isinstance(ids, list) else []
    return {key: place for place, key in enumerate(dict.fromkeys(sample_ids))}


def _criteria(samples: Sequence[InspectSample]) -> tuple[Criterion, ...]:
    """A criterion for each score; it decides where Inspect only says correct, partly or not, or 1 and 0."""
    values: dict[str, bool] = {}
    for sample in samples:
        for name, value in scorer_values(sample.scores):
            values[name] = values.get(name, True) and value.is_verdict
    return tuple(Criterion(name, _PASSES if is_verdict else None) for name, is_verdict in values.items())


def _result(sample: InspectSample, criteria: Sequence[Criterion]) -> TrialResult:
    values_by_metric = dict(scorer_values(sample.scores))
    scores = [
        recorded_score(criterion, one.value, one.reason, one.details)
        for criterion in criteria
        if (one := values_by_metric.get(criterion.metric))
    ]
    if sample.stop_reason in BOUNDS:  # such a sample is not scored in Inspect, which takes it for an error
        scores += [
            recorded_score(each, 0.0) for each in criteria if each.threshold and each.metric not in values_by_metric
        ]
    result = recorded_trial(
        sample.turns,
        scores=scores,
        criteria=criteria,
        error=sample.error,
        stop_reason=sample.stop_reason,
        duration_ms=sample.duration_ms,
        usages=sample.usages,
    )
    return replace(result, earlier=sample.earlier)


def _understood_words(run: RecordedRun) -> Iterator[str]:
    gating = [criterion.metric for criterion in run.criteria if criterion.threshold is not None]
    informing = [criterion.metric for criterion in run.criteria if criterion.threshold is None]
    if gating:
        yield f"A trial passes when {' and '.join(gating)} {'is' if len(gating) == 1 else 'are'} correct (1)."
    if informing:
        yield f"Inspect states no threshold for {', '.join(informing)}: shown, but no verdict."


_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partly correct, incorrect, no answer; the numbers are those Inspect counts with."""
_ATTACHMENT = "attachment://"
_CACHE = ("input_tokens_cache_read", "input_tokens_cache_write")
_CASE_KEYS = ("choices", "metadata", "sandbox", "files", "setup")


@dataclass(frozen=True, slots=True)
class ScorerValue:
    """A scorer's value, `value` None where that is neither number nor letter; a verdict is right or wrong.

    NaN, an infinity by its name, is no verdict and makes none of the others' a measure.
    """

    value: float | str | None
    is_verdict: bool
    reason: str
    details: JsonObject


@dataclass(frozen=True, slots=True)
class InspectSample:
    """A sample as read; it holds nothing of the document, so that a log is never whole in memory."""

    case: Case
    epoch: int
    turns: tuple[TurnRecord, ...]
    scores: Mapping[str, Any]
    usages: tuple[Usage | ErrorRecord, ...]
    duration_ms: float | None
    error: ErrorRecord | None
    stop_reason: str
    earlier: tuple[EarlierResult, ...]


def read_sample(place: JsonPosition, raw: Any, notes: Notes) -> InspectSample:
    """One sample; its events are left aside, since `messages` says the same. Raises FormatError."""
    n_lost = -notes.count(NO_TEXT)
    sample = read_mapping(place, raw)
    attachments = read_optional_mapping(place.at("attachments"), sample.get("attachments")) or {}
    stop, error = _ending(sample)
    messages = read_chat(place.at("messages"), sample.get("messages") or [], notes)
    turns = turns_of([_resolve_attachments(message, attachments) for message in messages], error, tells_results=True)
    store = read_optional_mapping(place.at("store"), sample.get("store")) or {}
    if turns and store:
        turns = (*turns[:-1], replace(turns[-1], state_after=store))
    retries = sample.get("error_retries")
    seconds = known_time(place.at("total_time"), sample.get("total_time"), notes)
    case = _case(place, sample, attachments, notes)
    n_lost += notes.count(NO_TEXT)
    return InspectSample(
        case=for_review(case, lost_words(n_lost)) if n_lost else case,
        epoch=read_integer(place.at("epoch"), sample.get("epoch", 1)),
        turns=turns,
        scores=_scores(place, sample),
        usages=_usages(sample.get("model_usage")),
        duration_ms=None if seconds is None else seconds * 1000,
        error=error,
        stop_reason=stop,
        earlier=tuple(_earlier(retries)),
    )


def _ending(sample: dict[str, Any]) -> tuple[str, ErrorRecord | None]:
    """How a sample ended, and its error where that was an accident."""
    limit, error = sample.get("limit"), _error(sample.get("error"))
    kind = text_of(limit.get("type")) if isinstance(limit, dict) else ""
    if error is None and is_accident("inspect", kind):
        error = recorded_error("a person ended the sample (limit: operator)")
    if error is None:
        return (f"limit: {kind}" if isinstance(limit, dict) else "answered"), None
    bound = bound_of(error.message)
    return (bound, None) if bound else ("error", error)


def _earlier(retries: Any) -> Iterator[EarlierResult]:
    """The attempts at a sample that broke off, after which Inspect tried again."""
    for each in retries if isinstance(retries, list) else ():
        if error := _error(each):
            yield EarlierResult("errored", error.message)


def scorer_values(scores: Mapping[str, Any]) -> Iterator[tuple[str, ScorerValue]]:
    """Name and value of each score; a scorer with several values gives one for each, as `scorer.key`."""
    for name, raw in scores.items():
        fields = raw if isinstance(raw, dict) else {"value": raw}
        value = fields.get("value")
        reason = text_of(fields.get("explanation"))
        details = {key: item for key, item in fields.items() if key not in ("explanation", "history") and item}
        if isinstance(value, dict):
            for key, part in value.items():
                yield f"{name}.{key}", _scorer_value(part, reason, details)
        else:
            yield name, _scorer_value(value, reason, details)


def _scorer_value(value: Any, reason: str, details: JsonObject) -> ScorerValue:
    if isinstance(value, str) and value in _LETTERS:
        return ScorerValue(_LETTERS[value], True, reason, details)
    if isinstance(value, int | float) and abs(value) < 1e300:
        return ScorerValue(float(value), value in (0, 1), reason, details)
    if value in NUMBER_NAMES:
        return ScorerValue(str(value), True, reason, details)
    return ScorerValue(None, False, "The value is neither a number nor one of C, P, I, N.", details)


def _case(place: JsonPosition, sample: dict[str, Any], attachments: Mapping[str, Any], notes: Notes) -> Case:
    key = read_key(place.at("id"), sample.get("id", ABSENT))
    queries, extra = _queries(place.at("input"), sample.get("input", ABSENT), attachments, notes)
    target = sample.get("target")
    right = [each for each in target if isinstance(each, str) and each] if isinstance(target, list) else []
    if isinstance(target, list):
        extra["target"] = target
        target = right[0] if right else None
    extra |= {name: sample[name] for name in _CASE_KEYS if sample.get(name)}
    reference = target if isinstance(target, str) and target else None
    turns = [Turn(query) for query in queries]
    if turns:
        turns[-1] = replace(turns[-1], expected=Expected(reference=reference))
        if len(right) > 1:
            extra[ALSO_ACCEPTED] = [{"turn": len(turns), "answer": each} for each in right[1:]]
    return Case(key, tuple(turns), extra=extra)


def _queries(
    place: JsonPosition, raw: Any, attachments: Mapping[str, Any], notes: Notes
) -> tuple[list[str], dict[str, Any]]:
    """The user's messages; messages of others before or between stay in `extra`."""
    if isinstance(raw, str):
        return [_attachment_text(raw, attachments)], {}
    if not isinstance(raw, list):
        raise wrong_value(place, raw, "a string or a list of messages")
    messages = [_resolve_attachments(message, attachments) for message in read_chat(place, raw, notes)]
    has_others = any(message.speaker != "user" for message in messages)
    return [m.text for m in messages if m.speaker == "user"] or [""], {"input": raw} if has_others else {}


def _scores(place: JsonPosition, sample: dict[str, Any]) -> Mapping[str, Any]:
    scores = read_optional_mapping(place.at("scores"), sample.get("scores"))
    if scores is None and sample.get("score") is not None:
        return {"score": sample["score"]}
    return scores or {}


def _usages(raw: Any) -> tuple[Usage | ErrorRecord, ...]:
    """One entry for each model: Inspect adds up the calls of a sample."""
    rows = {model: row for model, row in raw.items() if isinstance(row, dict)} if isinstance(raw, dict) else {}
    return tuple(_usage(model, row) for model, row in rows.items())


def _usage(model: str, row: Mapping[str, Any]) -> Usage | ErrorRecord:
    """The tokens of a model; those of its cache are part of the input, or stand beside it, as the total shows."""
    tokens = [row.get(key) or 0 for key in ("input_tokens", *_CACHE, "output_tokens")]
    is_beside = all(type(n) is int for n in tokens) and row.get("total_tokens") == sum(tokens)
    return recorded_usage(
        model,
        {**row, "input_tokens": sum(tokens[:-1])} if is_beside else row,
        "input_tokens",
        "output_tokens",
        cost=row.get("total_cost"),
        tokens_cached=row.get(_CACHE[0]),
        tokens_reasoning=row.get("reasoning_tokens"),
    )


def _error(raw: Any) -> ErrorRecord | None:
    if not isinstance(raw, dict):
        return None
    return recorded_error(raw.get("message"), text_of(raw.get("traceback")))


def _resolve_attachments(message: Message, attachments: Mapping[str, Any]) -> Message:
    if not attachments:
        return message
    result = _attachment_text(message.result, attachments) if isinstance(message.result, str) else message.result
    return replace(message, text=_attachment_text(message.text, attachments), result=result)


def _attachment_text(text: str, attachments: Mapping[str, Any]) -> str:
    """The text itself; long ones stand once under `attachments`, and only their name in the message."""
    if not text.startswith(_ATTACHMENT):
        return text
    attachment = attachments.get(text.removeprefix(_ATTACHMENT))
    return attachment if isinstance(attachment, str) else text
