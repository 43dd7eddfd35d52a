"""The answers of our servers on loopback validate with the types of the clients of the tools, where one is installed.

`pip install langfuse langsmith mlflow-skinny arize-phoenix-client` beside Evaldesk plays all of them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from tests.hosted_tools import Turn, hosted_tool
from tests.islands import of_tools

from evaldesk.desk.inbox.pulling import PullDesk
from evaldesk.settings import read_settings
from evaldesk.store import Store

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def answers_of(tool: str, home: Path) -> dict[str, list[Any]]:
    """The answers that a pull got, by path."""
    turns = [Turn(1, NOW - timedelta(hours=3)), Turn(2, NOW - timedelta(hours=2), feedback=0.0)]
    answers: dict[str, list[Any]] = {}
    with hosted_tool(tool, turns) as (fake, environment), Store.open(home / "e.db", clock=lambda: NOW) as store:
        desk = PullDesk(read_settings(home, (home,), environment=environment), store)
        (home / ".evaldesk").mkdir(exist_ok=True)
        desk.pull(desk.plan(tool), lambda _: None)
        for path, value in fake.answers:
            answers.setdefault(path, []).append(value)
    return answers


@of_tools("langfuse")
def test_langfuse(tmp_path: Path) -> None:
    observations = pytest.importorskip("langfuse.api.observations.types.observations_v2response")
    scores = pytest.importorskip("langfuse.api.scores.types.get_scores_v3response")
    read = pytest.importorskip("langfuse.api.core.pydantic_utilities").parse_obj_as

    answers = answers_of("langfuse", tmp_path)

    rows = [
        row
        for page in answers["/api/public/v2/observations"]
        for row in read(observations.ObservationsV2Response, page).data
    ]
    pages = answers["/api/public/v3/scores"]
    given = [row for page in pages for row in read(scores.GetScoresV3Response, page).data]
    assert len({row.id for row in rows}) == 8
    assert [(each.name, each.value) for each in given] == [("user-feedback", 0.0)]


@of_tools("langsmith")
def test_langsmith(tmp_path: Path) -> None:
    schemas = pytest.importorskip("langsmith.schemas")

    answers = answers_of("langsmith", tmp_path)

    runs = [schemas.Run(**run) for page in answers["/runs/query"] for run in page["runs"]]
    (project,) = answers["/sessions"][0]
    assert len({run.id for run in runs}) == 8
    assert {str(run.session_id) for run in runs} == {"None"}
    assert schemas.TracerSession(**project).name == "default"


@of_tools("mlflow")
def test_mlflow(tmp_path: Path) -> None:
    service = pytest.importorskip("mlflow.protos.service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    entities = pytest.importorskip("mlflow.entities")

    answers = answers_of("mlflow", tmp_path)

    for page in answers["/api/3.0/mlflow/traces/search"]:
        json_format.Parse(json.dumps(page), service.SearchTracesV3.Response())
    traces = [
        entities.Trace.from_proto(trace)
        for page in answers["/api/3.0/mlflow/traces/batchGet"]
        for trace in json_format.Parse(json.dumps(page), service.BatchGetTraces.Response()).traces
    ]
    assert [len(trace.data.spans) for trace in traces] == [4, 4]
    assert [len(trace.info.assessments) for trace in traces] == [0, 1]


@of_tools("phoenix")
def test_phoenix(tmp_path: Path) -> None:
    types = pytest.importorskip("phoenix.client.__generated__.v1")

    answers = answers_of("phoenix", tmp_path)

    for path, kind in (("spans", types.SpansResponseBody), ("span_annotations", types.SpanAnnotationsResponseBody)):
        for page in answers[f"/v1/projects/default/{path}"]:
            assert set(page) == set(get_type_hints(kind))
            msgspec.convert(page, kind)
