"""Hosted tools whose traces are pulled by their public HTTP APIs, and the bounded client that asks them.

A key goes to one address alone: no redirect and no link of an answer is followed, and no proxy of the environment is
asked. (docs/decisions/515-inbox.md)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any, ClassVar, TypeAlias, cast

from evaldesk.errors import NAME_LIMIT, FormatError, NotFoundError, RemoteError
from evaldesk.reading.strict_json import RECORDED_DECODER, Document, JsonPosition, parse_json
from evaldesk.registry import import_target, is_present
from evaldesk.transcripts.otel.spans import Span
from evaldesk.unpacking import Unpacker, redirect_refusal

HOSTED: Mapping[str, str] = {
    "langfuse": "evaldesk.integrations.langfuse.api:LangfuseApi",
    "langsmith": "evaldesk.integrations.langsmith.api:LangSmithApi",
    "mlflow": "evaldesk.integrations.mlflow.api:MlflowApi",
    "phoenix": "evaldesk.integrations.phoenix.api:PhoenixApi",
}
"""Tools with an API of traces, by name."""
TIMEOUT_S = 60.0
MAX_PAGE = 64 * 2**20
"""Unpacked bytes of one answer."""
MAX_TRIES = 5
MAX_WAIT_S = 60.0
MAX_PAGES = 20_000
"""Answers of one list, so that a server whose cursor never ends is left."""
_BUSY = frozenset({429, 500, 502, 503, 504})
Row: TypeAlias = dict[str, Any]
Wait: TypeAlias = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class HostedRow:
    """A row of a trace as the API of a tool gives it; `is_root` where the trace begins with it."""

    trace_id: str
    row_id: str
    row: Row
    is_root: bool = False


class HostedTool(ABC):
    """The traces of a tool behind an address. `key_variables` are environment variables, all of which it needs.

    `url_variables` name the address, `default_url` is that of the vendor, empty where each installation has its own.
    """

    title: ClassVar[str]
    default_url: ClassVar[str] = ""
    url_variables: ClassVar[tuple[str, ...]]
    key_variables: ClassVar[tuple[str, ...]]
    is_key_optional: ClassVar[bool] = False
    default_project: ClassVar[str] = ""
    project_variables: ClassVar[tuple[str, ...]] = ()

    def __init__(self, api: HostedApi, project: str) -> None:
        self.api = api
        self.project = project

    @staticmethod
    @abstractmethod
    def headers(keys: Sequence[str]) -> Mapping[str, str]:
        """The headers of a request with the values of `key_variables`."""

    @abstractmethod
    def rows(self, since: datetime) -> Iterator[HostedRow]:
        """The rows that began since then, of any trace. Raises RemoteError and FormatError."""

    @abstractmethod
    def rows_of_traces(self, trace_ids: Sequence[str]) -> Iterator[HostedRow]:
        """All rows of some traces. Raises RemoteError and FormatError."""

    @staticmethod
    @abstractmethod
    def spans(rows: Sequence[Row], source: str) -> list[Span]:
        """The spans of one trace. Raises FormatError."""


def hosted_tools() -> Sequence[str]:
    """The names of the tools that are present."""
    return [name for name, target in HOSTED.items() if is_present(target)]


def load_hosted(name: str) -> type[HostedTool]:
    """The tool of a name. Raises NotFoundError."""
    if name not in hosted_tools():
        raise NotFoundError(
            f"no traces are pulled from {name[:NAME_LIMIT]!r}; the tools are {', '.join(hosted_tools())}"
        )
    return cast("type[HostedTool]", import_target(HOSTED[name]))


class HostedApi:
    """The HTTP API at one address. `wait` waits some seconds before another try, and raises where it is stopped."""

    def __init__(self, title: str, url: str, headers: Mapping[str, str], wait: Wait) -> None:
        import httpx

        self.title = title
        self._url = url.rstrip("/")
        self._wait = wait
        self._client = httpx.Client(
            headers={"accept": "application/json", "accept-encoding": "gzip", "user-agent": "evaldesk", **headers},
            timeout=TIMEOUT_S,
            follow_redirects=False,
            trust_env=False,
        )

    def __enter__(self) -> HostedApi:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, params: Mapping[str, Any]) -> Row:
        """The JSON object at a path; parameters without a value are left out. Raises RemoteError and FormatError."""
        return _mapping(self._ask("GET", path, params=_with_values(params)), self.title, path)

    def list(self, path: str, params: Mapping[str, Any]) -> Sequence[Row]:
        """The objects of the JSON list at a path. Raises RemoteError and FormatError."""
        value = self._ask("GET", path, params=_with_values(params))
        if not isinstance(value, list):
            raise FormatError(f"{self.title} answers /{path} with {type(value).__name__}, and not with a list")
        return [each for each in value if isinstance(each, dict)]

    def post(self, path: str, body: Mapping[str, Any]) -> Row:
        """The JSON object that answers a body of JSON. Raises RemoteError and FormatError."""
        return _mapping(self._ask("POST", path, json=_with_values(body)), self.title, path)

    def pages(self, ask: Callable[[Any], Row], cursor_of: Callable[[Row], Any]) -> Iterator[Row]:
        """The answers of a list, as long as there is another cursor. Raises RemoteError for one that never ends."""
        cursor: Any = None
        for _ in range(MAX_PAGES):
            page = ask(cursor)
            yield page
            following = cursor_of(page)
            if not following:
                return
            if following == cursor:
                raise RemoteError(f"{self.title} gives the same page again and again")
            cursor = following
        raise RemoteError(f"{self.title} gives more than {MAX_PAGES:,} pages; a later --since has fewer")

    def _ask(self, method: str, path: str, **content: Any) -> Any:
        import httpx

        for attempt in range(1, MAX_TRIES + 1):
            try:
                status, headers, data = self._answer(method, path, content)
            except httpx.HTTPError as error:
                reason = f"cannot be reached ({type(error).__name__})"
                status, headers, data = 0, {}, b""
            except httpx.InvalidURL:
                raise RemoteError(f"the address of {self.title} cannot be read") from None
            else:
                reason = f"answered {status}"
            if 200 <= status < 300:
                return parse_json(
                    data, source=f"the answer of {self.title} at /{path}", max_bytes=MAX_PAGE, decoder=RECORDED_DECODER
                ).value
            if 300 <= status < 400:
                raise RemoteError(f"{self.title} {redirect_refusal(status, headers.get('location', ''))}")
            if status in (401, 403):
                raise RemoteError(f"{self.title} refuses the key (status {status})", status=status)
            if (status and status not in _BUSY) or attempt == MAX_TRIES:
                break
            self._wait(_wait_s(headers.get("retry-after", ""), attempt))
        raise RemoteError(f"{self.title} {reason} at /{path}", status=status)

    def _answer(self, method: str, path: str, content: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        with self._client.stream(method, f"{self._url}/{path}", **content) as response:
            if not 200 <= response.status_code < 300:
                return response.status_code, response.headers, b""
            unpacker = Unpacker(response.headers.get("content-encoding"), MAX_PAGE)
            # Bytes as they come: a packed answer is bounded while it is unpacked.
            parts = [unpacker.feed(part) for part in response.iter_raw()]
            return response.status_code, response.headers, b"".join(parts)


def rows_in(page: Row, key: str) -> list[Row]:
    """The objects of a list in an answer. Raises FormatError where it has no such list."""
    rows = page.get(key)
    if not isinstance(rows, list):
        raise FormatError(f"an answer without its list {key!r}")
    return [row for row in rows if isinstance(row, dict)]


def row_place(row: Row, source: str) -> JsonPosition:
    """The place of a row in messages about it."""
    return JsonPosition(Document(row, source=source))


def utc_text(time: datetime) -> str:
    """A time in UTC as ISO 8601, with milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _with_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", [])}


def _mapping(value: Any, title: str, path: str) -> Row:
    if not isinstance(value, dict):
        raise FormatError(f"{title} answers /{path} with {type(value).__name__}, and not with an object")
    return value


def _wait_s(retry_after: str, attempt: int) -> float:
    """The seconds that a server asks for, else 1, 2, 4 and 8; at most a minute."""
    seconds = float(2 ** (attempt - 1))
    with suppress(ValueError):
        seconds = max(float(retry_after), 0.0) if retry_after else seconds
    return min(seconds, MAX_WAIT_S) if isfinite(seconds) else MAX_WAIT_S
