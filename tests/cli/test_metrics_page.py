"""What `docs/metrics.md` shows is what happens."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.islands import of_command

from evaldesk.cli import cli
from evaldesk.demo_model import judge
from evaldesk.desk.criteria.criteria import criteria_of, read_criteria, read_user
from evaldesk.llm import ModelCall, ModelReply
from evaldesk.metrics import check_criteria, score_trial
from evaldesk.model import Case, Criterion, Event, Expected, Transcript, Turn, TurnRecord, Usage
from evaldesk.settings import CONFIG_NAME, read_settings

pytestmark = pytest.mark.usefixtures("own_imports")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text("utf-8")
FUNCTIONS = ("exact", "polite", "booked")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_criteria_file_is_read(tmp_path: Path) -> None:
    text, labelled, judge = blocks("json")
    path = tmp_path / "test_config.json"
    path.write_text(text)

    criteria = read_criteria(path)

    assert [each.metric for each in criteria] == list(json.loads(text)["criteria"])
    assert criteria[-1].options == {"function": "rewards:exact"}
    assert read_user(path) is not None
    assert [each.metric for each in criteria_of(json.loads(labelled)["criteria"])] == [
        "tool_used/search",
        "tool_used/no-refund",
        "rubric_score/tone",
    ]
    check_criteria(criteria_of(json.loads(judge)["criteria"]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_scores(tmp_path: Path, name: str) -> None:
    (source,) = blocks("python")
    (tmp_path / f"shown_{name}.py").write_text(source)
    case = Case("c", (Turn("please", Expected(reference="yes")),))
    played = Transcript((TurnRecord("please", (Event("agent_message", text="yes"),), state_after={"booked": True}),))

    (score,) = score_trial(
        played, case, [Criterion(name, 0.5, {"function": f"shown_{name}:{name}", "root": str(tmp_path)})]
    )

    assert (score.error, score.passed) == (None, True)


def test_the_settings_are_read(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / CONFIG_NAME).write_text(text)

    found = read_settings(tmp_path, (), environment={})

    assert (found.functions, found.judges) == ({"exact": "rewards:exact"}, ("openai/gpt-4o-mini",))


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=of_command(line)) for line in "".join(blocks("sh")).splitlines()]
)
def test_the_commands_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def complete(call: ModelCall) -> ModelReply:
        return ModelReply(judge.reply(call.messages, seed=call.seed, share=0.0), (), Usage(call.model))

    monkeypatch.setattr("evaldesk.metrics.judges.panel.complete", complete)
    monkeypatch.chdir(tmp_path)
    rows: list[dict[str, Any]] = [{"id": "a", "solution_str": "A polite answer."}]
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, rows)))

    result = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False)

    assert result.exit_code == 0, result.output
