"""Runs of LangSmith by its API: those of a project since a time, with the averages of their feedback.

(https://docs.langchain.com/langsmith/smith-api; client langsmith 0.15)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from evaldesk.errors import NAME_LIMIT, RemoteError
from evaldesk.formats.exported_traces import spans_of_steps
from evaldesk.formats.hosted import HostedRow, HostedTool, Row, row_place, rows_in, utc_text
from evaldesk.integrations.langsmith.runs import LangSmith
from evaldesk.reading.values import text_of
from evaldesk.transcripts.otel.spans import Span

LIMIT = 100
SELECT = (
    *("id", "name", "run_type", "start_time", "end_time", "inputs", "outputs", "error", "extra", "tags", "trace_id"),
    *("parent_run_id", "dotted_order", "feedback_stats", "prompt_tokens", "completion_tokens", "total_cost"),
)


class LangSmithApi(HostedTool):
    """A project of the workspace of a key."""

    title = "LangSmith"
    default_url = "https://api.smith.langchain.com"
    url_variables = ("LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT")
    key_variables = ("LANGSMITH_API_KEY",)
    default_project = "default"
    project_variables = ("LANGSMITH_PROJECT", "LANGCHAIN_PROJECT")

    @staticmethod
    def headers(keys: Sequence[str]) -> Mapping[str, str]:
        """The header of a key."""
        return {"x-api-key": keys[0]}

    def rows(self, since: datetime) -> Iterator[HostedRow]:
        """The runs of the project that began since then."""
        yield from self._runs(start_time=utc_text(since))

    def rows_of_traces(self, trace_ids: Sequence[str]) -> Iterator[HostedRow]:
        """The runs of some traces."""
        for trace_id in trace_ids:
            yield from self._runs(trace=trace_id)

    @staticmethod
    def spans(rows: Sequence[Row], source: str) -> list[Span]:
        """The spans of one trace."""
        return spans_of_steps([step for row in rows for step in LangSmith.steps_of(row_place(row, source), row)])

    def _runs(self, **conditions: str) -> Iterator[HostedRow]:
        project_id = self._project_id()

        def ask(cursor: Any) -> Row:
            own = {"session": [project_id], "select": [*SELECT], "limit": LIMIT, "cursor": cursor}
            return self.api.post("runs/query", own | conditions)

        for page in self.api.pages(ask, _cursor):
            for row in rows_in(page, "runs"):
                run_id = text_of(row.get("id"))
                yield HostedRow(text_of(row.get("trace_id")) or run_id, run_id, row, not row.get("parent_run_id"))

    def _project_id(self) -> str:
        """The id of the project, by its name. Raises RemoteError."""
        projects = self.api.list("sessions", {"name": self.project, "limit": 1})
        project_id = next((text_of(each.get("id")) for each in projects if each.get("name") == self.project), "")
        if not project_id:
            raise RemoteError(f"LangSmith has no project {self.project[:NAME_LIMIT]!r}")
        return project_id


def _cursor(page: Row) -> Any:
    cursors = page.get("cursors")
    return cursors.get("next") if isinstance(cursors, dict) else None
