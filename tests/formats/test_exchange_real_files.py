"""Every real file is recognised for what it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.files import read_file

FORMATS_OF = {
    "tau/gpt-4o-airline.json": "tau-bench",
    "osmosis/git-sync-example/test_data.jsonl": "osmosis-jsonl",
    "osmosis/sdk-v0.2.20/multiply.jsonl": "osmosis-jsonl",
    "openhands/v0_evaloutput.jsonl": "openhands",
    "openhands/v0_resolver_output.jsonl": "openhands",
    "agentevals_otel/eval_set_helm.json": "adk",
    "adk/adk-samples/python__agents__customer-service__eval__sessions__123.session.json": "adk-session",
    "adk/adk-docs/docs__evaluate__user-sim.md__json02.json": "adk-scenarios",
    "adk/adk-samples/agents__code-reviewer__eval__data__evalset001.evalset.json": "adk-old",
    "adk/adk-samples/python__agents__RAG__eval__data__conversation.test.json": "adk-flat",
}
UNREAD = {
    "osmosis/sdk-v0.2.17/rubric_sample_data.jsonl": "evaldesk rubric -d",
    "osmosis/sdk-main/wire_completion_success.json": "no format knows this file",
    "agentevals_otel/dice_agent_eval_set.json": "eval_cases[0].eval_id",
    "adk/adk-docs/docs__evaluate__criteria.md__json06.json": "evaldesk eval --config-file-path",
}


@pytest.mark.parametrize("name", FORMATS_OF)
def test_a_real_file_is_recognised(shared: Path, name: str) -> None:
    path = shared / "data" / name

    assert read_file(path.read_bytes(), path.name).format == FORMATS_OF[name]


@pytest.mark.parametrize("name", UNREAD)
def test_a_real_file_of_something_else_is_refused_with_a_reason(shared: Path, name: str) -> None:
    path = shared / "data" / name

    with pytest.raises(FormatError) as caught:
        read_file(path.read_bytes(), path.name)

    assert UNREAD[name] in str(caught.value)


def test_every_file_of_adk_is_read_or_called_by_its_name(shared: Path) -> None:
    found: Counter[str] = Counter()
    for path in sorted((shared / "data" / "adk").rglob("*.json")):
        try:
            found[read_file(path.read_bytes(), path.name).format] += 1
        except FormatError as error:
            assert "no format knows" not in str(error), path.name  # noqa: PT017
            found["refused"] += 1

    assert found == {"adk": 22, "adk-flat": 19, "adk-old": 3, "adk-session": 7, "adk-scenarios": 3, "refused": 29}
