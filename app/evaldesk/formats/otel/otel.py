"""The formats "otel" and "openinference": traces of agents, in the GenAI conventions of OpenTelemetry or OpenInference.

Each conversation becomes a case that expects the recorded events, and a trial of a run with these events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Holding, Imported, ReadOnly
from evaldesk.formats.otel.writing import trace_parts
from evaldesk.model import EvalSet
from evaldesk.model.conclusion import counted
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.transcripts.otel.span_messages import model_of
from evaldesk.transcripts.otel.spans import is_trace, read_spans
from evaldesk.transcripts.otel.trace_turns import session_of
from evaldesk.transcripts.otel.traces import conversations
from evaldesk.transcripts.recorded import RecordedRun, file_stem
from evaldesk.transcripts.recorded_sessions import run_of_sessions

_OPENINFERENCE = (b"openinference.span.kind", b"llm.input_messages", b"llm.output_messages", b'"openinference"')


class OpenTelemetry:
    """The format "otel"."""

    title = "OpenTelemetry GenAI traces"
    suffixes = (".otel.json", ".json", ".jsonl")
    writes: tuple[Holding, ...] = ("run",)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a file of spans, and none of them is OpenInference's."""
        return _is_trace(data) and not any(mark in data for mark in _OPENINFERENCE)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A case and a trial for each conversation. Raises FormatError."""
        return read_traces("otel", data, source)

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The traces of a run as OTLP JSON. Raises FormatError."""
        if isinstance(what, EvalSet):
            raise FormatError("traces store recorded trials, and an eval set has none; export a run")
        return b"".join(trace_parts(what))

    @staticmethod
    def parts(run: RecordedRun) -> Iterator[bytes]:
        """The same, a span a part."""
        return trace_parts(run)


class OpenInference(ReadOnly):
    """The format "openinference"."""

    title = "OpenInference traces"
    suffixes = (".json", ".jsonl")
    instead = "write a run as otel, which Phoenix reads as well"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a file of spans with attributes of OpenInference."""
        return _is_trace(data) and any(mark in data for mark in _OPENINFERENCE)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A case and a trial for each conversation. Raises FormatError."""
        return read_traces("openinference", data, source)


def read_traces(format_name: str, data: bytes, source: str) -> Imported:
    """The conversations in the spans of a file. Raises FormatError, also when no span is of an agent."""
    notes = Notes()
    spans = read_spans(data, source)
    found = conversations(spans, notes)
    if not found:
        what = " ".join(notes.sentences) or "none has gen_ai.*, OpenInference or ADK attributes with messages"
        raise FormatError(
            f"none of {counted(len(spans), 'span')} describes the work of an agent: {what}", source=source
        )
    name = file_stem(source).removesuffix(".otel")
    models = Counter(model_of(step.span) for one in found for visit in one.visits for step in visit.steps if step.call)
    agents = Counter(one.agent for one in found if one.agent)
    sessions = [session_of(conversation) for conversation in found]
    run = run_of_sessions(name, _commonest(agents), _commonest(models) or None, sessions)
    understood = (
        f"Each of {counted(len(found), 'conversation')} in {counted(len(spans), 'span')} is a case that expects the "
        "calls and answers it shows; look them over before they count as right.",
    )
    return Imported(format_name, EvalSet(name, cases=run.cases), (run,), understood, refused=notes.sentences)


def _commonest(names: Counter[str]) -> str:
    return next((name for name, _ in names.most_common(1)), "")


def _is_trace(data: bytes) -> bool:
    seen = peek(data)
    return is_trace(seen.whole if seen.whole is not None else seen.line)
