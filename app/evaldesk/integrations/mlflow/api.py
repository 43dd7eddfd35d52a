"""Traces of MLflow by its API: the search of traces since a time, and their spans, some traces at once.

(https://mlflow.org/docs/latest/api_reference/rest-api.html; server and client MLflow 3.17)
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from evaldesk.errors import NAME_LIMIT, RemoteError
from evaldesk.formats.exported_traces import spans_of_steps
from evaldesk.formats.hosted import HostedRow, HostedTool, Row, row_place, rows_in
from evaldesk.integrations.mlflow.traces import MlflowTraces
from evaldesk.reading.values import snake_case, text_of
from evaldesk.transcripts.otel.spans import Span, whole_of

SEARCH, BATCH = "api/3.0/mlflow/traces/search", "api/3.0/mlflow/traces/batchGet"
EXPERIMENT = "api/2.0/mlflow/experiments/get-by-name"
LIMIT, AT_ONCE = 100, 10


class MlflowApi(HostedTool):
    """An experiment of a tracking server. A server without accounts needs no key."""

    title = "MLflow"
    url_variables = ("MLFLOW_TRACKING_URI",)
    key_variables = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    is_key_optional = True
    default_project = "Default"
    project_variables = ("MLFLOW_EXPERIMENT_NAME",)

    @staticmethod
    def headers(keys: Sequence[str]) -> Mapping[str, str]:
        """Basic authentication with the name and the password; none without them."""
        if not all(keys):
            return {}
        return {"authorization": f"Basic {base64.b64encode(':'.join(keys).encode()).decode()}"}

    def rows(self, since: datetime) -> Iterator[HostedRow]:
        """The traces of the experiment that began since then."""
        location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self._experiment_id()}}
        condition = f"trace.timestamp_ms >= {int(since.timestamp() * 1000)}"

        def ask(cursor: Any) -> Row:
            own = {"locations": [location], "filter": condition, "max_results": LIMIT, "page_token": cursor}
            return self.api.post(SEARCH, own)

        for page in self.api.pages(ask, lambda page: page.get("next_page_token")):
            infos = rows_in(page, "traces") if "traces" in page else []  # JSON of protocol buffers has no empty lists
            yield from self.rows_of_traces([trace_id for each in infos if (trace_id := text_of(each.get("trace_id")))])

    def rows_of_traces(self, trace_ids: Sequence[str]) -> Iterator[HostedRow]:
        """Some traces with their spans and assessments."""
        for at in range(0, len(trace_ids), AT_ONCE):
            page = self.api.get(BATCH, {"trace_ids": [*trace_ids[at : at + AT_ONCE]]})
            for trace in rows_in(page, "traces") if "traces" in page else ():
                info = trace.get("trace_info")
                trace_id = text_of(info.get("trace_id")) if isinstance(info, dict) else ""
                if trace_id:
                    yield HostedRow(trace_id, trace_id, trace, is_root=True)

    @staticmethod
    def spans(rows: Sequence[Row], source: str) -> list[Span]:
        """The spans of one trace."""
        exported = [_as_exported(row) for row in rows]
        return spans_of_steps([step for row in exported for step in MlflowTraces.steps_of(row_place(row, source), row)])

    def _experiment_id(self) -> str:
        """The id of the experiment, by its name. Raises RemoteError."""
        experiment = self.api.get(EXPERIMENT, {"experiment_name": self.project}).get("experiment")
        experiment_id = text_of(experiment.get("experiment_id")) if isinstance(experiment, dict) else ""
        if not experiment_id:
            raise RemoteError(f"MLflow has no experiment {self.project[:NAME_LIMIT]!r}")
        return experiment_id


def _as_exported(trace: Row) -> Row:
    """A trace of the API as its export has it: the attributes of a span are pairs with typed values there."""
    spans = trace.get("spans")
    rows = [
        {**span, "attributes": _attributes(span.get("attributes"))}
        for span in (spans if isinstance(spans, list) else ())
        if isinstance(span, dict)
    ]
    return {"info": trace.get("trace_info"), "data": {"spans": rows}}


def _attributes(pairs: Any) -> dict[str, Any]:
    return {
        text_of(pair.get("key")): _value(pair.get("value"))
        for pair in (pairs if isinstance(pairs, list) else ())
        if isinstance(pair, dict)
    }


def _value(typed: Any) -> Any:
    """The value of `{"string_value": ...}`, also with keys in camel case."""
    if not isinstance(typed, dict) or len(typed) != 1:
        return None
    ((kind, value),) = typed.items()
    kind = snake_case(kind)
    inner = value.get("values") if isinstance(value, dict) else None
    if kind == "kvlist_value":
        return _attributes(inner)
    if kind == "array_value":
        return [_value(each) for each in inner] if isinstance(inner, list) else []
    return whole_of(value) if kind == "int_value" else value
