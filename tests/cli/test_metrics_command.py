"""`evaldesk metrics`: the table of metrics, for people and for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaldesk.cli import cli
from evaldesk.errors import NotFoundError
from evaldesk.metrics import METRICS, metric_info


def run(*words: str) -> str:
    result = CliRunner().invoke(cli, ["metrics", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_every_metric_is_listed_with_what_it_needs() -> None:
    text = run()

    lines = {line.split()[0]: line for line in text.splitlines() if line and not line.startswith(" ")}
    assert set(METRICS) <= set(lines)
    assert f"{len(list(METRICS))} metrics." in text
    assert "0 to 1, more is better; needs a reference answer and a judge" in text
    assert "from 0 up, less is better" in text


def test_one_metric_is_shown_with_its_options() -> None:
    text = run("final_response_match_v2")

    assert "Range:     0 to 1, more is better" in text
    assert "Needs:     a reference answer" in text
    assert "num_samples  How often each judge is asked" in text
    assert "judge_model_options" in text


def test_programs_read_json() -> None:
    rows = {row["name"]: row for row in json.loads(run("--json"))}

    assert list(rows) == list(METRICS)
    assert rows["token_usage_v1"]["high"] is None
    for name, row in rows.items():
        assert row["has_judge"] is metric_info(name).has_judge
        assert set(row["required"]) <= {option["name"] for option in row["options"]}
    assert [row["name"] for row in json.loads(run("tool_f1", "--json"))] == ["tool_f1"]


def test_functions_of_the_settings_are_metrics_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evaldesk.toml").write_text('[metrics]\nexact = "rewards:exact"\n')

    assert re.search(r"^exact +Your function rewards:exact\.\n +any number, more is better$", run(), re.MULTILINE)
    assert json.loads(run("exact", "--json"))[0]["summary"] == "Your function rewards:exact."


def test_an_unknown_metric_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'tool_f1'"):
        run("tool_f2")
