"""What `docs/tool-metrics.md` shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evaldesk.desk.criteria.criteria import read_criteria
from evaldesk.metrics import METRICS, build_metric, check_criteria, metric_info

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tool-metrics.md").read_text("utf-8")


@pytest.mark.parametrize("text", re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_the_criteria_on_the_page_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "test_config.json"
    path.write_text(text)

    criteria = read_criteria(path)

    check_criteria(criteria)
    for criterion in criteria:
        metric = build_metric(criterion)
        assert {name: getattr(metric, name) for name in criterion.options} == criterion.options


def test_every_metric_of_tool_calls_is_on_the_page() -> None:
    names = [name for name in METRICS if metric_info(name).needs == "tool_calls"]

    assert [name for name in names if f"`{name}`" not in PAGE] == []
