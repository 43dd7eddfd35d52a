"""Traces of hosted tools, pulled by their APIs into the inbox; a trace that comes again replaces its stored spans.

Keys are read from the environment, and go to one address alone. A file of the folder that names addresses and keys
needs the trust of a person. (docs/decisions/515-inbox.md)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.joining import MAX_SPANS, joined_conversations
from evaldesk.desk.inbox.masks import check_masks, read_masks
from evaldesk.desk.inbox.receiver import SpanReader, span_reader
from evaldesk.desk.inbox.upkeep import HOLD, join_now
from evaldesk.desk.trust import check_store
from evaldesk.durable_files import replace_file
from evaldesk.errors import NAME_LIMIT, REASON_LIMIT, EvaldeskError, NotFoundError, UsageError, WorkspaceError
from evaldesk.formats.hosted import HostedApi, HostedRow, HostedTool, Row, hosted_tools, load_hosted
from evaldesk.formats.large_traces import TracesOnDisk
from evaldesk.model.conversation_filter import ConversationFilter, TextCondition, TimeCondition
from evaldesk.model.inbox import Conversation, ReceivedSpan
from evaldesk.secrets import scrub
from evaldesk.settings import CONFIG_NAME, InboxPull, Settings, is_safe_address
from evaldesk.store import Store
from evaldesk.store.inbox.spans import SpanBatch, TraceChanges, TraceGroup, packed_batch

STATE_NAME = "inbox-pull.json"
PULL_HOLD = "inbox-pull"
OVERLAP = timedelta(hours=1)
"""A pull begins so long before the end of the last one: tools show traces late, and people judge them later."""
EVERY = timedelta(hours=1)
MAX_OF_TRACE = 32 * 2**20
"""Bytes of JSON of one trace; its further rows are left out."""
MOST_COMPLETED = 5_000
"""Traces that began before a pull and went on in it, which are asked for as a whole."""
AT_ONCE, BYTES_AT_ONCE = 100, 8 * 2**20
MAX_ID = 200
UNFIT = ("state", "source")
"""Conditions on things that a trace of another tool does not have."""


@dataclass(frozen=True, slots=True)
class PullPlan:
    """The pull of a source: the class of its tool, an address, a project, the headers with its key, and a filter."""

    source: str
    tool: type[HostedTool]
    url: str
    project: str
    headers: Mapping[str, str] = field(repr=False)
    where: ConversationFilter = field(default_factory=ConversationFilter)
    since: str = "7d"

    @property
    def digest(self) -> str:
        """The same text for pulls of the same traces; the key is no part of it."""
        text = "\0".join((self.tool.title, self.url, self.project, str(self.where)))
        return blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(slots=True)
class PullOutcome:
    """A pull: its begin, the new, changed and equal traces, and the numbers of filtered and unreadable ones.

    `n_cut` traces were above the bounds of one trace.
    """

    since: datetime
    changes: TraceChanges = field(default_factory=TraceChanges)
    n_filtered: int = 0
    n_unreadable: int = 0
    n_cut: int = 0


@dataclass(frozen=True, slots=True)
class PullRecord:
    """The last pull of a source: when it began, up to when its traces are here, and its error, empty for none."""

    source: str
    digest: str
    began_at: datetime
    until: datetime | None
    error: str = ""


class PullDesk:
    """Pulls traces of hosted tools into the inbox of a workspace. Works on the database and the network."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store

    @staticmethod
    def tools() -> Sequence[str]:
        """The names of the tools that traces are pulled from."""
        return hosted_tools()

    def is_of_file(self, source: str) -> bool:
        """Whether a file of the folder describes the source, which needs trust."""
        return source in self._settings.inbox.pull

    def plan(self, source: str, where: str | None = None) -> PullPlan:
        """The pull of a source of `[inbox.pull]`, or of a tool by its environment variables.

        Raises NotFoundError, and UsageError without a key, for an address without https and for a filter that a pull
        cannot have.
        """
        return plan_of(self._settings, source, where)

    def records(self) -> Sequence[PullRecord]:
        """The last pulls, by source."""
        return sorted(_read_records(self._settings).values(), key=lambda record: record.source)

    def pull(self, plan: PullPlan, wait: Callable[[float], object], since: datetime | None = None) -> PullOutcome:
        """Pull the traces since then, or since the last pull, and join them; `wait` waits some seconds.

        Raises RemoteError and FormatError for a tool that cannot be read; the traces that came before are stored.
        Raises WorkspaceError while another process pulls.
        """
        end_hold = self._store.try_hold(PULL_HOLD)
        if end_hold is None:
            raise WorkspaceError("another process pulls traces for this workspace")
        try:
            began_at = self._store.now()
            last = _read_records(self._settings).get(plan.source)
            known_until = last.until if last and last.digest == plan.digest else None
            begin = since or (known_until - OVERLAP if known_until else _begin_of(plan.since, began_at))
            try:
                outcome = self._pull(plan, wait, begin)
            except EvaldeskError as error:
                text = scrub(str(error), self._settings.environment)[:REASON_LIMIT]
                self._write(PullRecord(plan.source, plan.digest, began_at, known_until, text))
                raise
            # An old --since does not take the place of a newer end, and a late one leaves no gap behind it.
            has_gap = known_until is not None and begin > known_until
            self._write(PullRecord(plan.source, plan.digest, began_at, known_until if has_gap else began_at))
            return outcome
        finally:
            end_hold()
            self._join()

    def _pull(self, plan: PullPlan, wait: Callable[[float], object], since: datetime) -> PullOutcome:
        outcome = PullOutcome(since)
        with HostedApi(plan.tool.title, plan.url, plan.headers, wait) as api:
            traces = _TraceRows()
            tool = plan.tool(api, plan.project)
            for row in tool.rows(since):
                traces.add(row)
            traces.complete(tool)
        outcome.n_cut = len(traces.cut)
        masks = read_masks(self._settings.inbox.mask, f"{CONFIG_NAME}: [inbox] mask")
        check_masks(masks, (), f"{CONFIG_NAME}: [inbox] mask")
        reader = span_reader(masks, self._settings.environment, self._settings.state_folder)
        batches: list[SpanBatch] = []
        for trace_id, rows in traces.whole():
            try:
                spans = [reader.received(span) for span in plan.tool.spans(rows, plan.source)][:MAX_SPANS]
            except (EvaldeskError, ValueError, TypeError, RecursionError):  # no trace may stop the others
                outcome.n_unreadable += 1
                continue
            if plan.where.terms and not self._meets(plan, trace_id, spans):
                outcome.n_filtered += 1
                continue
            batches.append(_batch(plan.source, trace_id, spans, reader))
            if len(batches) >= AT_ONCE or sum(len(each.data) for each in batches) >= BYTES_AT_ONCE:
                self._store_batches(batches, outcome)
                batches = []
        self._store_batches(batches, outcome)
        return outcome

    def _store_batches(self, batches: Sequence[SpanBatch], outcome: PullOutcome) -> None:
        changes = self._store.inbox_spans.replace(batches)
        outcome.changes.n_new += changes.n_new
        outcome.changes.n_changed += changes.n_changed
        outcome.changes.n_equal += changes.n_equal
        outcome.changes.n_removed += changes.n_removed

    def _meets(self, plan: PullPlan, trace_id: str, spans: Sequence[ReceivedSpan]) -> bool:
        now = self._store.now()
        group = TraceGroup(0, plan.source, spans, {trace_id: len(spans)}, now, 0, 0)
        conversations = [each.conversation for each in joined_conversations(group)]
        return any(meets(each, plan.where, now) for each in conversations)

    def _join(self) -> None:
        """Join the new spans, unless a process that listens does it."""
        end_hold = self._store.try_hold(HOLD)
        if end_hold is not None:
            try:
                join_now(self._store, self._settings.inbox)
            finally:
                end_hold()

    def _write(self, record: PullRecord) -> None:
        records = _read_records(self._settings) | {record.source: record}
        values = {
            each.source: {
                "digest": each.digest,
                "began_at": each.began_at.isoformat(),
                "until": each.until.isoformat() if each.until else None,
                "error": each.error,
            }
            for each in records.values()
        }
        replace_file(self._settings.state_folder / STATE_NAME, json.dumps(values, indent=1).encode(), mode=0o600)

    def due(self) -> Sequence[str]:
        """The sources of `[inbox.pull]` whose last pull began an hour ago or more."""
        records, before = _read_records(self._settings), self._store.now() - EVERY
        return [name for name in self._settings.inbox.pull if name not in records or records[name].began_at <= before]


def pull_into(
    settings: Settings, plan: PullPlan, wait: Callable[[float], object], since: datetime | None = None
) -> PullOutcome:
    """Pull as `PullDesk.pull`, into a database that is made where the workspace has none."""
    check_store(settings)
    with Store.open(settings.database) as store:
        return PullDesk(settings, store).pull(plan, wait, since)


def plan_of(settings: Settings, source: str, where: str | None = None) -> PullPlan:
    """The pull of a source, as `PullDesk.plan`, without a database."""
    own = settings.inbox.pull.get(source)
    if own is None and source not in hosted_tools():
        raise NotFoundError.among("source", source, {*settings.inbox.pull, *hosted_tools()})
    return _plan(source, own or InboxPull(tool=source), settings.environment, where)


def _plan(source: str, own: InboxPull, environment: Mapping[str, str], where: str | None = None) -> PullPlan:
    tool = load_hosted(own.tool)
    variables = own.keys or tool.key_variables
    if len(variables) != len(tool.key_variables):
        usual = " and ".join(tool.key_variables)
        raise UsageError(f"[inbox.pull.{source}] keys: {tool.title} needs variables in the place of {usual}")
    keys = [environment.get(name, "").strip() for name in variables]
    missing_names = [name for name, key in zip(variables, keys, strict=True) if not key]
    if missing_names and not tool.is_key_optional:
        raise UsageError(f"{tool.title} needs a key: set {' and '.join(missing_names)}", field="source")
    if not all(key.isascii() and key.isprintable() for key in keys):
        raise UsageError(f"{' and '.join(variables)}: a key has printable ASCII letters alone", field="source")
    url = own.url or _first(environment, tool.url_variables) or tool.default_url
    if not url:
        raise UsageError(f"{tool.title} has an address of its own: set {tool.url_variables[0]}", field="source")
    if not is_safe_address(url):
        names = " or ".join(tool.url_variables)
        raise UsageError(
            f"{names}: the address of {tool.title} is https, or http of this machine (a tunnel reaches others)",
            field="source",
        )
    conditions = parse_filter(own.where if where is None else where)
    if unfit := next((each for each in conditions.terms if not _is_fit(each.condition)), None):
        raise UsageError(
            f"{unfit.condition}: traces of {tool.title} are not pulled by this; use it in `evaldesk inbox list`",
            field="where",
        )
    _begin_of(own.since, datetime.now(UTC))
    project = own.project or _first(environment, tool.project_variables) or tool.default_project
    return PullPlan(source, tool, url.rstrip("/"), project, tool.headers(keys), conditions, own.since)


def _is_fit(condition: object) -> bool:
    name = getattr(condition, "name", "")
    return not isinstance(condition, TextCondition) and name not in (*UNFIT, "no-case")


def _first(environment: Mapping[str, str], names: Iterable[str]) -> str:
    return next((value for name in names if (value := environment.get(name, "").strip())), "")


def _begin_of(since: str, now: datetime) -> datetime:
    """The instant of `7d` before now, or of a date. Raises UsageError."""
    terms = parse_filter(f"since:{since}").terms
    if len(terms) != 1 or not isinstance(terms[0].condition, TimeCondition):
        raise UsageError(f"since {since[:NAME_LIMIT]!r}: write 7d, 12h or a date such as 2026-11-20", field="since")
    return terms[0].condition.instant(now)


def _batch(source: str, trace_id: str, spans: Sequence[ReceivedSpan], reader: SpanReader) -> SpanBatch:
    return packed_batch(source, trace_id, spans, reader.scrub)


class _TraceRows:
    """The rows of traces on the disk, until all of a trace are there."""

    def __init__(self) -> None:
        self._rows = TracesOnDisk()
        self._sizes: dict[str, tuple[int, int]] = {}
        self._begun: set[str] = set()
        self.cut: set[str] = set()

    def add(self, row: HostedRow) -> None:
        """Take in a row; those above the bounds of a trace are left out."""
        if not (row.trace_id and row.trace_id.isprintable() and len(row.trace_id) <= MAX_ID):
            return
        n_rows, n_bytes = self._sizes.get(row.trace_id, (0, 0))
        n_bytes += len(json.dumps(row.row))
        if n_rows >= MAX_SPANS or n_bytes > MAX_OF_TRACE:
            self.cut.add(row.trace_id)
            return
        self._sizes[row.trace_id] = n_rows + 1, n_bytes
        if row.is_root:
            self._begun.add(row.trace_id)
        self._rows.add(row.trace_id, row.row_id, "", [row.trace_id, row.row])

    def complete(self, tool: HostedTool) -> None:
        """Ask for all rows of the traces that began before the others. Raises RemoteError and FormatError."""
        for row in tool.rows_of_traces([each for each in self._sizes if each not in self._begun][:MOST_COMPLETED]):
            self.add(row)

    def whole(self) -> Iterable[tuple[str, list[Row]]]:
        """Each trace with its rows."""
        for rows in self._rows.groups():
            yield rows[0][0], [row for _, row in rows]


def meets(conversation: Conversation, conditions: ConversationFilter, now: datetime) -> bool:
    """Whether a conversation meets the conditions before it is stored; the list of stored ones has the same rule."""
    return all(_holds(conversation, term.condition, now) is not term.is_negated for term in conditions.terms)


def _holds(conversation: Conversation, condition: Any, now: datetime) -> bool:
    if isinstance(condition, TimeCondition):
        is_later = conversation.began_at >= condition.instant(now)
        return is_later if condition.name == "since" else not is_later
    if condition.name == "error":
        return conversation.has_error
    if condition.name in ("tool", "tag"):
        return condition.value in (conversation.tools if condition.name == "tool" else conversation.tags)
    if condition.name in ("release", "agent"):
        return bool(getattr(conversation, condition.name) == condition.value)
    number = _NUMBERS[condition.name](conversation)
    return number is not None and _COMPARE[condition.comparator](number, condition.value)


_NUMBERS: Mapping[str, Callable[[Conversation], float | None]] = {
    "turns": lambda each: each.n_turns,
    "calls": lambda each: each.n_calls,
    "tokens": lambda each: each.tokens,
    "cost": lambda each: each.cost,
    "latency": lambda each: each.duration_ms / 1000,
    "feedback": lambda each: each.feedback,
}
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def _read_records(settings: Settings) -> dict[str, PullRecord]:
    """The last pulls by source; none of a file that cannot be read."""
    records: dict[str, PullRecord] = {}
    with suppress(OSError, ValueError, AttributeError):
        for source, values in json.loads((settings.state_folder / STATE_NAME).read_bytes()).items():
            with suppress(ValueError, KeyError, TypeError):
                until = _time(values["until"]) if values["until"] else None
                digest, error = str(values["digest"]), str(values["error"])
                records[source] = PullRecord(source, digest, _time(values["began_at"]), until, error)
    return records


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
