"""Files of other tools: their contents in our values, and a report on the import."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import BinaryIO, ClassVar, Literal, NoReturn, Protocol, TypeAlias, runtime_checkable

from evaldesk.errors import FormatError
from evaldesk.formats.recorded_cases import LARGE_WORDS, repeatable_cases, repeatable_items
from evaldesk.model import Case, EvalSet
from evaldesk.reading.notes import Notes
from evaldesk.registry import Registry
from evaldesk.transcripts.recorded import ReadItems, RecordedRun

FORMATS = Registry(
    "format",
    "evaldesk.exchange_formats",
    {
        "adk": "evaldesk.formats.adk.evalset:Adk",
        "agents-cli": "evaldesk.formats.adk.dataset:Dataset",
        "agents-cli-traces": "evaldesk.formats.adk.traces:AgentsCliTraces",
        "agents-cli-results": "evaldesk.formats.adk.grades:AgentsCliResults",
        "adk-old": "evaldesk.formats.adk.old:OldList",
        "adk-flat": "evaldesk.formats.adk.old:FlatList",
        "adk-session": "evaldesk.formats.adk.session:AdkSession",
        "adk-session-db": "evaldesk.formats.adk.session_database:AdkSessionDatabase",
        "adk-results": "evaldesk.formats.adk.results:AdkResults",
        "adk-scenarios": "evaldesk.formats.adk.scenarios:AdkScenarios",
        "bfcl": "evaldesk.integrations.bfcl.cases:Bfcl",
        "osmosis-jsonl": "evaldesk.integrations.osmosis.dataset:OsmosisLines",
        "osmosis-json": "evaldesk.integrations.osmosis.dataset:OsmosisList",
        "osmosis-csv": "evaldesk.integrations.osmosis.dataset:OsmosisTable",
        "osmosis-parquet": "evaldesk.integrations.osmosis.dataset:OsmosisParquet",
        "osmosis-results": "evaldesk.integrations.osmosis.results:OsmosisResults",
        "openai-messages": "evaldesk.formats.message_lists:OpenAiMessages",
        "anthropic-messages": "evaldesk.formats.message_lists:AnthropicMessages",
        "pydantic-ai": "evaldesk.formats.message_lists:PydanticAiMessages",
        "openhands": "evaldesk.integrations.openhands.formats.rows:OpenHands",
        "openhands-log": "evaldesk.integrations.openhands.formats.log:OpenHandsLog",
        "tau-bench": "evaldesk.integrations.tau.tau_bench:TauBench",
        "tau2": "evaldesk.integrations.tau.tau2:Tau2Tasks",
        "tau2-results": "evaldesk.integrations.tau.tau2:Tau2Results",
        "inspect": "evaldesk.integrations.inspect.log:InspectLog",
        "promptfoo": "evaldesk.integrations.promptfoo.results:Promptfoo",
        "promptfoo-config": "evaldesk.integrations.promptfoo.configuration:PromptfooConfig",
        "openai-evals": "evaldesk.integrations.openai_evals.exports:OpenAiEvals",
        "atif": "evaldesk.integrations.atif.trajectory:Atif",
        "swe-agent": "evaldesk.integrations.swe_agent.trajectory:SweAgent",
        "langfuse": "evaldesk.integrations.langfuse.traces:Langfuse",
        "langsmith": "evaldesk.integrations.langsmith.runs:LangSmith",
        "mlflow": "evaldesk.integrations.mlflow.traces:MlflowTraces",
        "braintrust": "evaldesk.integrations.braintrust.logs:Braintrust",
        "otel": "evaldesk.formats.otel:OpenTelemetry",
        "openinference": "evaldesk.formats.otel:OpenInference",
    },
)
"""Formats of eval sets, data sets, runs and traces, by name.

The first that recognises a file reads it, and those of ADK's eval sets are asked last: BFCL's answers have a
`ground_truth`, as rows of Osmosis do, and a row of any tool may have a `query`, as a turn of "adk-flat" has.
"""

MARKS: Mapping[str, frozenset[str]] = {
    name: frozenset(keys.split())
    for name, keys in {
        "agents-cli": "evalcases",
        "agents-cli-traces": "evalcases",
        "agents-cli-results": "evalcaseresults",
        "adk-session": "events",
        "adk-session-db": "",
        "adk-results": "evalcaseresults",
        "adk-scenarios": "scenarios startingprompt",
        "bfcl": "question groundtruth parameters",
        "osmosis-jsonl": "userprompt groundtruth metadata",
        "osmosis-json": "userprompt groundtruth metadata",
        "osmosis-csv": ".csv",
        "osmosis-parquet": ".parquet",
        "osmosis-results": "config evalrun rowindex",
        "openai-messages": "messages role",
        "anthropic-messages": "messages role",
        "pydantic-ai": "kind",
        "openhands": "instanceid issue agentclass llm evaldesk",
        "openhands-log": "timestamp",
        "tau-bench": "taskid",
        "tau2": "userscenario",
        "tau2-results": "tasks",
        "inspect": "eval",
        "promptfoo": "promptidx results",
        "promptfoo-config": "tests scenarios",
        "openai-evals": "object item hasmore",
        "atif": "schemaversion steps",
        "swe-agent": "trajectory",
        "langfuse": "traceid observations timestamp data",
        "langsmith": "runtype runs",
        "mlflow": "info traces",
        "braintrust": "rootspanid events rows",
    }.items()
}
"""Keys of which a JSON file of the format has one at its beginning, as `first_keys` gives them, or its suffix.

A format is imported and asked about a file only where one of its marks is there; one without a row is always asked.
"""

FOLDERS: Mapping[str, str] = {
    "osmosis-results": "evaldesk.integrations.osmosis.run_folder:RunFolder",
    "openhands": "evaldesk.integrations.openhands.formats.attempts:AttemptsFolder",
    "atif": "evaldesk.integrations.atif.job_folder:JobFolder",
}
"""Formats whose results fill a folder of several files, with the reader that knows it by its parts."""

MAINS: Mapping[str, str] = {
    "index.jsonl": "osmosis-results",
    "summary.jsonl": "osmosis-results",
    "output.jsonl": "openhands",
}
"""Names of files that are read with the files beside them where a person names one alone, and their formats."""

MAX_ROW = 64 * 1024 * 1024
"""Bytes of one trial in a file that is read trial by trial."""

Holding: TypeAlias = Literal["evalset", "run"]


@dataclass(frozen=True, slots=True)
class Imported:
    """The contents of a file. `understood`, `kept` and `refused` are sentences for the importing person.

    `kept` stays as `extra` without a meaning here; `refused` was left out, each part with its place. Where several keys
    of a file could decide the verdict, `outcomes` are these and `outcome` is the chosen one. `warnings` are sentences
    that a run of the eval set repeats. `case_ids` are those ids of cases that the source has of an eval set, where the
    others name conversations; None where all are.
    """

    format: str
    evalset: EvalSet | None = None
    runs: tuple[RecordedRun, ...] = ()
    understood: tuple[str, ...] = ()
    kept: tuple[str, ...] = field(default=())
    refused: tuple[str, ...] = field(default=())
    outcomes: tuple[str, ...] = ()
    outcome: str = ""
    warnings: tuple[str, ...] = ()
    case_ids: frozenset[str] | None = None


def imported_sessions(
    format: str,  # noqa: A002
    run: RecordedRun,
    subject: str,
    notes: Notes,
    case_ids: frozenset[str] = frozenset(),
) -> Imported:
    """The run, and its cases as an eval set that expects the behaviour of its `subject`; `case_ids` as in Imported."""
    words: tuple[str, ...] = (
        f"Each of {subject} is a case that expects the calls and answers it shows; look them over before they count "
        "as right.",
    )
    if isinstance(run.cases, ReadItems):  # a large file is read trial by trial, and its cases are not held
        items = repeatable_items(run.cases)
        evalset, new_run = EvalSet(run.name, cases=items), replace(run, cases=items)
        words = (*words, LARGE_WORDS)
        return Imported(format, evalset, (new_run,), words, refused=notes.sentences, case_ids=case_ids)
    cases, sentences = repeatable_cases(run.cases, _recorded_ends(run))
    evalset, new_run = EvalSet(run.name, cases=cases), replace(run, cases=cases)
    sentences = (*words, *sentences)
    return Imported(format, evalset, (new_run,), sentences, refused=notes.sentences, case_ids=case_ids)


def _recorded_ends(run: RecordedRun) -> dict[str, float]:
    """The end of each session whose last turn states its start, by the id of its case, in seconds since 1970."""
    turns = ((run.cases[each.case_index].id, each.transcript.turns[-1:]) for each in run.results)
    return {
        case_id: turn.start_time + turn.duration_ms / 1000
        for case_id, last in turns
        for turn in last
        if turn.start_time is not None
    }


@runtime_checkable
class OutcomeFormat(Protocol):
    """A format with several keys that could decide the verdict; a person may choose one."""

    def read_by(self, data: bytes, *, source: str, outcome: str) -> Imported:
        """As `read`, with that key; the usual one where it is empty. Raises FormatError when the file has no such."""


@runtime_checkable
class StreamedFormat(Protocol):
    """A format in which a run is written trial by trial, so that they need not be in memory together."""

    def parts(self, run: RecordedRun) -> Iterator[bytes]:
        """The bytes that `write` gives, part by part; no text of a trial is cut. Raises FormatError."""


@runtime_checkable
class LargeRunFormat(Protocol):
    """A format whose runs are read trial by trial from a large file, in at most `n_readings` passes over it."""

    n_readings: int

    def read_large(self, file: BinaryIO, *, source: str, outcome: str) -> Imported:
        """As `read_by`, of an open file that may be read twice; cases and trials of its runs are ReadItems.

        Raises FormatError for the first fault, and NotStreamedError for a file that has to be read whole.
        """


class RowReader(Protocol):
    """The cases of the rows of a large eval set, each with a function that makes the error of its row."""

    def __iter__(self) -> Iterator[tuple[Case, Callable[[str], FormatError]]]:
        """The cases in the order of their rows. Raises FormatError."""

    def build_import(self, name: str, evalset: EvalSet) -> Imported:
        """The eval set with the notes on its rows, once they are read."""


@runtime_checkable
class RowFormat(Protocol):
    """A format of eval sets whose rows are read one by one from a large file."""

    def open_rows(self, file: BinaryIO, source: str) -> RowReader:
        """The rows of an open file. One that is no text in UTF-8 may raise UnicodeDecodeError when it is read."""


@runtime_checkable
class JoinedFormat(Protocol):
    """A format of several files in a folder: the rows in `main`, and `companions` that are read as one file with it."""

    main: str
    companions: tuple[str, ...]

    def join(self, parts: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
        """Name and bytes of one file with the contents of the named files. Raises FormatError for unrelated files."""


class ResultFolder(Protocol):
    """The files of a folder by their paths in it, with `/`; links and hidden folders of tools are not among them."""

    name: str
    paths: Sequence[str]

    def read(self, path: str) -> bytes:
        """The bytes of a file. Raises FormatError for one that is too large, and UsageError."""


class FolderFormat(Protocol):
    """A format of results that fill a folder."""

    parts: str

    def holds(self, paths: Sequence[str]) -> bool:
        """Whether the folder with these files is one of this format."""

    def read_folder(self, folder: ResultFolder, outcome: str) -> Imported:
        """The runs of the folder; `outcome` as in `read_by`. Raises FormatError."""


@runtime_checkable
class MainFileFormat(Protocol):
    """A format of folders in which one file, of a name in `MAINS`, has the rows, and others complete it."""

    def beside(self, main: str, paths: Sequence[str]) -> Sequence[str]:
        """Those of the paths in the folder that complete the file `main`."""


class ExportFiles(ResultFolder, Protocol):
    """The files of an export by their paths, of which some may be larger than the memory."""

    def is_large(self, path: str) -> bool:
        """Whether a file is read value by value."""

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file, open for reading. Raises FormatError and UsageError."""


@runtime_checkable
class ExportFormat(Protocol):
    """A format whose objects fill the files of an export in any order; each of the files is recognised."""

    def read_export(self, files: ExportFiles) -> Imported:
        """The contents of all files together. Raises FormatError and UsageError."""

    def join(self, parts: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
        """Name and bytes of one file of lines with the objects of the named files. Raises FormatError."""


class PackedFormat(Protocol):
    """A format whose files hold the rows of a text format in a packed form."""

    def pack(self, text: bytes) -> bytes:
        """The file of these rows. Raises FormatError."""


class Format(Protocol):
    """A form in which files hold eval sets, or trials, or both.

    `suffixes` are the ends of its files' names, the first for those we write; `writes` names the values that `write`
    takes.
    """

    title: str
    suffixes: tuple[str, ...]
    writes: tuple[Holding, ...]

    def recognises(self, data: bytes, source: str) -> bool:
        """Whether the bytes mean to be of this format, however wrong inside; `source` is the file's name.

        `peek` has parsed them already, leniently. Never raises.
        """

    def read(self, data: bytes, *, source: str) -> Imported:
        """The contents of the file. Raises FormatError with place, and nothing else."""

    def write(self, what: EvalSet | RecordedRun) -> bytes:
        """The bytes of a file. Raises FormatError naming the value that this format cannot hold."""


class ReadOnly:
    """A format that is only read; `instead` says in which one to write."""

    title: ClassVar[str]
    instead: ClassVar[str]
    writes: ClassVar[tuple[Holding, ...]] = ()

    @classmethod
    def write(cls, what: EvalSet | RecordedRun) -> NoReturn:
        """Nothing is written in this format."""
        raise FormatError(f"{cls.title}: only read; {cls.instead}")


class WritesRuns(ABC):
    """A format in which runs are written and no eval set; `no_evalset` has the reason and the next step."""

    no_evalset: ClassVar[str]
    writes: ClassVar[tuple[Holding, ...]] = ("run",)

    @staticmethod
    @abstractmethod
    def parts(run: RecordedRun) -> Iterator[bytes]:
        """The bytes of the file, part by part. Raises FormatError for a value that it cannot hold."""

    @classmethod
    def write(cls, what: EvalSet | RecordedRun) -> bytes:
        """The file of a run. Raises FormatError for an eval set, too."""
        if isinstance(what, EvalSet):
            raise FormatError(cls.no_evalset)
        return b"".join(cls.parts(what))
