"""Traces of Langfuse by its API: observations since a time with their scores.

`v2/observations` and `v3/scores` have cursors; a server without them is asked for whole traces by their ids.
(https://api.reference.langfuse.com; client langfuse 5.0)
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from evaldesk.errors import RemoteError
from evaldesk.formats.exported_traces import spans_of_steps
from evaldesk.formats.hosted import HostedRow, HostedTool, Row, row_place, rows_in, utc_text
from evaldesk.integrations.langfuse.traces import Langfuse, exported_score, snake_keys
from evaldesk.reading.values import text_of
from evaldesk.transcripts.otel.spans import Span

OBSERVATIONS, SCORES, TRACES = "api/public/v2/observations", "api/public/v3/scores", "api/public/traces"
FIELDS = "core,basic,io,metadata,model,usage,trace_context"
LIMIT, SCORE_LIMIT, TRACE_LIMIT = 500, 100, 100
IDS_AT_ONCE = 20
NOT_FOUND = 404


class LangfuseApi(HostedTool):
    """The project of a pair of keys; the keys name it."""

    title = "Langfuse"
    default_url = "https://cloud.langfuse.com"
    url_variables = ("LANGFUSE_BASE_URL", "LANGFUSE_HOST")
    key_variables = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")

    @staticmethod
    def headers(keys: Sequence[str]) -> Mapping[str, str]:
        """Basic authentication with the public and the secret key."""
        return {"authorization": f"Basic {base64.b64encode(':'.join(keys).encode()).decode()}"}

    def rows(self, since: datetime) -> Iterator[HostedRow]:
        """Observations that began since then, and scores that were given since then."""
        try:
            yield from self._observations(fromStartTime=utc_text(since))
        except RemoteError as error:
            if error.status != NOT_FOUND:
                raise
            yield from self._traces_of_old_server(since)
            return
        yield from self._scores(fromTimestamp=utc_text(since))

    def rows_of_traces(self, trace_ids: Sequence[str]) -> Iterator[HostedRow]:
        """The observations of some traces, with their scores."""
        for trace_id in trace_ids:
            yield from self._observations(traceId=trace_id)
        for at in range(0, len(trace_ids), IDS_AT_ONCE):
            names = [each for each in trace_ids[at : at + IDS_AT_ONCE] if "," not in each]
            yield from self._scores(traceId=",".join(names)) if names else ()

    @staticmethod
    def spans(rows: Sequence[Row], source: str) -> list[Span]:
        """The spans of one trace; its scores come to the first step."""
        scores = [exported_score(row) for row in rows if row.get("is_score")]
        places = [(row_place(row, source), row) for row in rows if not row.get("is_score")]
        steps = [step for place, row in places for step in Langfuse.steps_of(place, row)]
        if steps and scores:
            steps[0] = replace(steps[0], scores=(*steps[0].scores, *scores))
        return spans_of_steps(steps)

    def _observations(self, **conditions: str) -> Iterator[HostedRow]:
        def ask(cursor: Any) -> Row:
            return self.api.get(OBSERVATIONS, {"fields": FIELDS, "limit": LIMIT, "cursor": cursor, **conditions})

        for page in self.api.pages(ask, _cursor):
            for row in rows_in(page, "data"):
                trace_id, parent_id = text_of(row.get("traceId")), row.get("parentObservationId")
                if trace_id:
                    is_root = not parent_id or row.get("isRootObservation") is True
                    yield HostedRow(trace_id, text_of(row.get("id")), row, is_root)

    def _scores(self, **conditions: str) -> Iterator[HostedRow]:
        def ask(cursor: Any) -> Row:
            own = {"fields": "details,subject", "limit": SCORE_LIMIT, "cursor": cursor}
            return self.api.get(SCORES, own | conditions)

        for page in self.api.pages(ask, _cursor):
            for row in rows_in(page, "data"):
                subject = row.get("subject")
                values = subject if isinstance(subject, dict) else {}
                trace_id = text_of(values.get("traceId") or (values.get("id") if values.get("kind") == "trace" else ""))
                if trace_id and row.get("name"):
                    score = {**snake_keys(row), "is_score": True}
                    yield HostedRow(trace_id, f"score {text_of(row.get('id'))}", score)

    def _traces_of_old_server(self, since: datetime) -> Iterator[HostedRow]:
        """Whole traces of a server of version 3, whose list of traces has pages by number."""

        def ask(page: Any) -> Row:
            own = {"page": page or 1, "limit": TRACE_LIMIT, "fields": "core", "orderBy": "timestamp.asc"}
            return self.api.get(TRACES, own | {"fromTimestamp": utc_text(since)})

        def following(page: Row) -> int | None:
            meta = page.get("meta")
            number, last = (meta.get("page"), meta.get("totalPages")) if isinstance(meta, dict) else (None, None)
            return number + 1 if isinstance(number, int) and isinstance(last, int) and number < last else None

        for page in self.api.pages(ask, following):
            for row in rows_in(page, "data"):
                if trace_id := text_of(row.get("id")):
                    trace = self.api.get(f"{TRACES}/{quote(trace_id, safe='')}", {})
                    yield HostedRow(trace_id, trace_id, trace, is_root=True)


def _cursor(page: Row) -> Any:
    meta = page.get("meta")
    return meta.get("cursor") if isinstance(meta, dict) else None
