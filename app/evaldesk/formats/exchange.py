"""Files of other tools: what one holds, in our values, and what was understood of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from evaldesk.model import Case, Criterion, EvalSet, TrialResult
from evaldesk.registry import Registry

EXCHANGE = Registry(
    "format",
    "evaldesk.exchange_formats",
    {
        "adk-session": "evaldesk.formats.adk_session:AdkSession",
        "adk-results": "evaldesk.formats.adk_results:AdkResults",
        "adk-scenarios": "evaldesk.formats.adk_scenarios:AdkScenarios",
        "bfcl": "evaldesk.formats.bfcl:Bfcl",
        "osmosis-jsonl": "evaldesk.formats.osmosis_dataset:OsmosisLines",
        "osmosis-json": "evaldesk.formats.osmosis_dataset:OsmosisList",
        "osmosis-csv": "evaldesk.formats.osmosis_dataset:OsmosisTable",
        "osmosis-parquet": "evaldesk.formats.osmosis_dataset:OsmosisParquet",
        "osmosis-results": "evaldesk.formats.osmosis_results:OsmosisResults",
        "openai-messages": "evaldesk.formats.message_lists:OpenAiMessages",
        "anthropic-messages": "evaldesk.formats.message_lists:AnthropicMessages",
        "openhands": "evaldesk.formats.openhands:OpenHands",
        "tau-bench": "evaldesk.formats.tau_bench:TauBench",
        "tau2": "evaldesk.formats.tau2:Tau2Tasks",
        "tau2-results": "evaldesk.formats.tau2_results:Tau2Results",
        "inspect": "evaldesk.formats.inspect_log:InspectLog",
        "promptfoo": "evaldesk.formats.promptfoo:Promptfoo",
        "atif": "evaldesk.formats.atif:Atif",
        "swe-agent": "evaldesk.formats.swe_agent:SweAgent",
        "otel": "evaldesk.formats.otel:OpenTelemetry",
        "openinference": "evaldesk.formats.otel:OpenInference",
    },
)
"""Formats of eval sets, data sets, runs and traces, by name; the formats of `FORMATS` are read there.

The first that recognises a file reads it: BFCL's answers have a `ground_truth`, as rows of Osmosis do.
"""

Holding: TypeAlias = Literal["evalset", "run"]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """Trials that another tool played. `results` name their case by its place in `cases`; their `run_id` is 0.

    `criteria` are the metrics the scores are of, whether or not Evaldesk has a metric of that name.
    """

    name: str
    agent: str
    cases: tuple[Case, ...]
    results: tuple[TrialResult, ...]
    criteria: tuple[Criterion, ...] = ()
    model: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file holds. `understood`, `kept` and `refused` are sentences for the person who imports it.

    `kept` is what stays as `extra` without a meaning here; `refused` is what was left out, each with its place.
    Where several keys of a file could say what passed, `outcomes` are these and `outcome` is the one that was taken.
    """

    format: str
    evalset: EvalSet | None = None
    runs: tuple[RecordedRun, ...] = ()
    understood: tuple[str, ...] = ()
    kept: tuple[str, ...] = field(default=())
    refused: tuple[str, ...] = field(default=())
    outcomes: tuple[str, ...] = ()
    outcome: str = ""


@runtime_checkable
class OutcomeFormat(Protocol):
    """A format of which a person may choose by which key a trial passed."""

    def read_by(self, data: bytes, *, source: str, outcome: str) -> Imported:
        """As `read`, with that key; the usual one where it is empty. Raises FormatError when the file has no such."""


class ExchangeFormat(Protocol):
    """A form in which another tool keeps eval sets, or trials, or both.

    `suffixes` are the ends of its files' names, the first for those we write; `writes` says what `write` takes.
    """

    title: str
    suffixes: tuple[str, ...]
    writes: tuple[Holding, ...]

    def recognises(self, data: bytes, source: str) -> bool:
        """Whether the bytes mean to be of this format, however wrong inside; `source` is the file's name.

        `peeking.peek` has parsed them already, leniently. Never raises.
        """

    def read(self, data: bytes, *, source: str) -> Imported:
        """What the file holds. Raises FormatError with place, and nothing else."""

    def write(self, what: EvalSet | RecordedRun) -> bytes:
        """The bytes of a file. Raises FormatError saying what this format cannot hold."""
