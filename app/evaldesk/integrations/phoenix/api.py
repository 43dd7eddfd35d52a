"""Spans of Phoenix by its API: those of a project since a time, with the annotations of people, code and models.

(https://arize.com/docs/phoenix/sdk-api-reference/rest-api; client arize-phoenix-client 3.5)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from evaldesk.formats.hosted import HostedRow, HostedTool, Row, row_place, rows_in, utc_text
from evaldesk.reading.values import text_of
from evaldesk.transcripts.otel.spans import Span, spans_in

LIMIT, IDS_AT_ONCE, ANNOTATIONS_LIMIT = 500, 50, 1000


class PhoenixApi(HostedTool):
    """A project of a server. A server without accounts needs no key."""

    title = "Phoenix"
    url_variables = ("PHOENIX_ENDPOINT", "PHOENIX_COLLECTOR_ENDPOINT", "PHOENIX_HOST")
    key_variables = ("PHOENIX_API_KEY",)
    is_key_optional = True
    default_project = "default"
    project_variables = ("PHOENIX_PROJECT", "PHOENIX_PROJECT_NAME")

    @staticmethod
    def headers(keys: Sequence[str]) -> Mapping[str, str]:
        """The header of a key; none without it."""
        return {"authorization": f"Bearer {keys[0]}"} if keys[0] else {}

    def rows(self, since: datetime) -> Iterator[HostedRow]:
        """The spans of the project that began since then."""
        yield from self._spans(start_time=utc_text(since))

    def rows_of_traces(self, trace_ids: Sequence[str]) -> Iterator[HostedRow]:
        """The spans of some traces."""
        for trace_id in trace_ids:
            yield from self._spans(trace_id=trace_id)

    @staticmethod
    def spans(rows: Sequence[Row], source: str) -> list[Span]:
        """The spans of one trace; annotations are events of its first model call, whichever span they are on."""
        annotations = [each for row in rows for each in row.get("annotations", ())]
        ordered = sorted(rows, key=lambda row: (row.get("span_kind") != "LLM", text_of(row.get("start_time"))))
        own = [{**row, "annotations": [] if at else annotations} for at, row in enumerate(ordered)]
        return [span for row in own for span in spans_in(row_place(row, source), row)]

    def _spans(self, **conditions: str) -> Iterator[HostedRow]:
        path = f"v1/projects/{quote(self.project, safe='')}"

        def ask(cursor: Any) -> Row:
            return self.api.get(f"{path}/spans", {"limit": LIMIT, "cursor": cursor, **conditions})

        for page in self.api.pages(ask, _cursor):
            rows = rows_in(page, "data")
            annotations = self._annotations(path, [_id(row, "span_id") for row in rows])
            for row in rows:
                span_id, trace_id = _id(row, "span_id"), _id(row, "trace_id")
                if span_id and trace_id:
                    own = {**row, "annotations": annotations.get(span_id, [])}
                    yield HostedRow(trace_id, span_id, own, not row.get("parent_id"))

    def _annotations(self, path: str, span_ids: Sequence[str]) -> dict[str, list[Row]]:
        """The annotations of some spans, by span."""
        by_span: dict[str, list[Row]] = {}
        for at in range(0, len(span_ids), IDS_AT_ONCE):
            names = [each for each in span_ids[at : at + IDS_AT_ONCE] if each]

            def ask(cursor: Any, names: Sequence[str] = names) -> Row:
                own = {"span_ids": [*names], "limit": ANNOTATIONS_LIMIT, "cursor": cursor}
                return self.api.get(f"{path}/span_annotations", own)

            for page in self.api.pages(ask, _cursor) if names else ():
                for row in rows_in(page, "data"):
                    by_span.setdefault(text_of(row.get("span_id")), []).append(row)
        return by_span


def _cursor(page: Row) -> Any:
    return page.get("next_cursor")


def _id(row: Row, key: str) -> str:
    context = row.get("context")
    return text_of(context.get(key)) if isinstance(context, dict) else ""
