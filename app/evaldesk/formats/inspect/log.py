"""The format "inspect": logs of Inspect, as one `.json` or as an `.eval` zip with a member for each sample.

Epochs of a sample are trials of a case. (UKGovernmentBEIS/inspect_ai log/_log.py, version 2)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.formats.import_words import counted
from evaldesk.formats.inspect.sample import InspectSample, read_sample, scorer_values
from evaldesk.model import Case, Criterion, EvalSet, TrialResult
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES, Document, Place, parse_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_mapping, read_optional_text
from evaldesk.reading.zip_members import ZipMembers
from evaldesk.transcripts.recorded import RecordedRun, file_stem, recorded_trial, trial_places

_ZIP = b"PK\x03\x04"
_HEADERS = ("header.json", "_journal/start.json", "start.json")
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
        whole = peek(data).whole
        return isinstance(whole, dict) and "eval" in whole and bool({"status", "plan", "samples"} & set(whole))

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The samples as cases and one run of their epochs. Raises FormatError."""
        if data.startswith(_ZIP):
            members = ZipMembers.open(data, source)
            header = _header(members)
            return _imported(header, _zipped(members), file_stem(source))
        document = parse_json(data, source=source, max_bytes=MAX_RECORDED_BYTES)
        return _imported(document, _listed(document), file_stem(source))


def _header(members: ZipMembers) -> Document:
    name = next((name for name in _HEADERS if name in members), None)
    if name is None:
        raise FormatError(
            f"the zip file has none of {', '.join(_HEADERS)}: it is no Inspect log", source=members.source
        )
    return _parsed(members, name)


def _zipped(members: ZipMembers) -> Iterator[tuple[Place, Any]]:
    """The samples one by one, so that only one is unpacked at a time."""
    for name in members:
        if name.startswith("samples/") and name.endswith(".json"):
            document = _parsed(members, name)
            yield Place(document), document.value


def _parsed(members: ZipMembers, name: str) -> Document:
    return parse_json(members.read(name), source=f"{members.source}!{name}", max_bytes=MAX_RECORDED_BYTES)


def _listed(document: Document) -> Iterator[tuple[Place, Any]]:
    raw = read_mapping(Place(document), document.value).get("samples")
    place = Place(document).at("samples")
    yield from () if raw is None else read_list(place, raw, lambda at, sample: (at, sample))


def _imported(header: Document, raw: Iterator[tuple[Place, Any]], stem: str) -> Imported:
    place, notes = Place(header), Notes()
    log = read_mapping(place, header.value)
    spec = read_mapping(place.at("eval"), log.get("eval", ABSENT))
    samples = _samples(raw, notes)
    planned = _planned(spec)
    present = {sample.case.id for sample in samples}
    known = [key for key in planned if key in present]
    criteria = _criteria(samples)
    places = trial_places([(sample.case.id, sample.epoch) for sample in samples], known)
    by_place = sorted(
        ((trial, sample) for trial, sample in zip(places, samples, strict=True) if trial is not None), key=itemgetter(0)
    )
    cases: dict[int, Case] = {}
    for trial, sample in by_place:
        cases.setdefault(trial[0], sample.case)
    name = read_optional_text(place.at("eval", "task"), spec.get("task")) or stem
    run = RecordedRun(
        name=name,
        agent=read_optional_text(place.at("eval", "solver"), spec.get("solver")) or name,
        cases=tuple(cases.values()),
        results=tuple(_result(sample, trial, criteria) for trial, sample in by_place),
        criteria=criteria,
        model=read_optional_text(place.at("eval", "model"), spec.get("model")),
        note=f"Inspect task {name}, {spec['created']}" if isinstance(spec.get("created"), str) else "",
    )
    understood = tuple(_understood(place, log, run, len(planned)))
    return Imported(
        "inspect", EvalSet(name, cases=run.cases), (run,) if samples else (), understood, (), notes.sentences
    )


def _samples(raw: Iterator[tuple[Place, Any]], notes: Notes) -> list[InspectSample]:
    found: dict[tuple[str, int], InspectSample] = {}
    for place, value in raw:
        sample = read_sample(place, value, notes)
        if (sample.case.id, sample.epoch) in found:
            notes.refuse("a second record of the same epoch of a sample", place)
        else:
            found[sample.case.id, sample.epoch] = sample
    return list(found.values())


def _planned(spec: dict[str, Any]) -> list[str]:
    """The ids of the samples that were to be played, in their order; empty where the log does not say."""
    dataset = spec.get("dataset")
    ids = dataset.get("sample_ids") if isinstance(dataset, dict) else None
    return list(dict.fromkeys(str(key) for key in ids if isinstance(key, int | str))) if isinstance(ids, list) else []


def _criteria(samples: Sequence[InspectSample]) -> tuple[Criterion, ...]:
    """A criterion for each score; it decides where Inspect only says correct, partly or not, or 1 and 0."""
    values: dict[str, bool] = {}
    for sample in samples:
        for name, found in scorer_values(sample.scores):
            values[name] = values.get(name, True) and found.is_verdict
    return tuple(Criterion(name, _PASSES if is_verdict else None) for name, is_verdict in values.items())


def _result(sample: InspectSample, trial: tuple[int, int], criteria: Sequence[Criterion]) -> TrialResult:
    found = dict(scorer_values(sample.scores))
    scores = [found[criterion.metric].score(criterion) for criterion in criteria if criterion.metric in found]
    return recorded_trial(
        trial,
        sample.turns,
        scores=scores,
        criteria=criteria,
        error=sample.error,
        stop_reason=sample.stop_reason,
        duration_ms=sample.duration_ms,
        usages=sample.usages,
    )


def _understood(place: Place, log: dict[str, Any], run: RecordedRun, n_planned: int) -> Iterator[str]:
    gating = [criterion.metric for criterion in run.criteria if criterion.threshold is not None]
    informing = [criterion.metric for criterion in run.criteria if criterion.threshold is None]
    if gating:
        yield f"A trial passes when {' and '.join(gating)} {'is' if len(gating) == 1 else 'are'} correct (1)."
    if informing:
        yield f"Inspect states no threshold for {', '.join(informing)}: shown, but no verdict."
    status = read_optional_text(place.at("status"), log.get("status")) or "started"
    if status != "success":
        error = read_optional_mapping(place.at("error"), log.get("error")) or {}
        message = error.get("message")
        why = f": {message[:300]}" if isinstance(message, str) else ""
        there = f"; {len(run.cases)} of {counted(n_planned, 'planned sample')} are in it" if n_planned else ""
        yield f"The log ended as {status!r}{why}{there}."
