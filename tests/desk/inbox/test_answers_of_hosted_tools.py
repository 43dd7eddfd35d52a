"""The answers of our servers on loopback validate with the types of the clients of the tools.

EVALDESK_REAL_PACKAGES=1 downloads these; langsmith is there with the adapters.
"""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.hosted_tools import Turn, hosted_tool
from tests.islands import of_tools
from tests.real_environments import python_with

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


def validated(answers: dict[str, list[Any]], tmp_path: Path, script: str, *packages: str) -> Any:
    """The value that a script prints about the answers, in an environment with these packages."""
    python = python_with(*packages)
    file = tmp_path / "answers.json"
    file.write_text(json.dumps(answers))
    command = [python, "-c", f"import json, sys\nanswers = json.load(open(sys.argv[1]))\n{script}", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LANGFUSE = """
from langfuse.api.core.pydantic_utilities import parse_obj_as as read
from langfuse.api.observations.types.observations_v2response import ObservationsV2Response
from langfuse.api.scores.types.get_scores_v3response import GetScoresV3Response

rows = [row for page in answers["/api/public/v2/observations"] for row in read(ObservationsV2Response, page).data]
given = [row for page in answers["/api/public/v3/scores"] for row in read(GetScoresV3Response, page).data]
print(json.dumps([len({row.id for row in rows}), [[each.name, each.value] for each in given]]))
"""


@of_tools("langfuse")
def test_langfuse(tmp_path: Path) -> None:
    answers = answers_of("langfuse", tmp_path)

    assert validated(answers, tmp_path, LANGFUSE, "langfuse==5.0.4") == [8, [["user-feedback", 0.0]]]


@of_tools("langsmith")
def test_langsmith(tmp_path: Path) -> None:
    schemas = pytest.importorskip("langsmith.schemas")

    answers = answers_of("langsmith", tmp_path)

    runs = [schemas.Run(**run) for page in answers["/runs/query"] for run in page["runs"]]
    (project,) = answers["/sessions"][0]
    assert len({run.id for run in runs}) == 8
    assert {str(run.session_id) for run in runs} == {"None"}
    assert schemas.TracerSession(**project).name == "default"


MLFLOW = """
from google.protobuf import json_format
from mlflow.entities import Trace
from mlflow.protos import service_pb2 as service

for page in answers["/api/3.0/mlflow/traces/search"]:
    json_format.Parse(json.dumps(page), service.SearchTracesV3.Response())
traces = [
    Trace.from_proto(trace)
    for page in answers["/api/3.0/mlflow/traces/batchGet"]
    for trace in json_format.Parse(json.dumps(page), service.BatchGetTraces.Response()).traces
]
print(json.dumps([[len(trace.data.spans) for trace in traces], [len(trace.info.assessments) for trace in traces]]))
"""


@of_tools("mlflow")
def test_mlflow(tmp_path: Path) -> None:
    answers = answers_of("mlflow", tmp_path)

    assert validated(answers, tmp_path, MLFLOW, "mlflow-skinny==3.17.2") == [[4, 4], [0, 1]]


PHOENIX = """
from typing import get_type_hints
import msgspec
from phoenix.client.__generated__ import v1

n = 0
for path, kind in (("spans", v1.SpansResponseBody), ("span_annotations", v1.SpanAnnotationsResponseBody)):
    for page in answers["/v1/projects/default/" + path]:
        assert set(page) == set(get_type_hints(kind))
        msgspec.convert(page, kind)
        n += 1
print(n)
"""


@of_tools("phoenix")
def test_phoenix(tmp_path: Path) -> None:
    answers = answers_of("phoenix", tmp_path)

    assert validated(answers, tmp_path, PHOENIX, "arize-phoenix-client==3.5.0", "msgspec") >= 2
