"""A trial whose arguments differ from the expected ones and are accepted: the page says so, and why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

LOOSE = {
    "eval_set_id": "loose",
    "eval_cases": [
        {
            "eval_id": "rolls",
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": "roll it"}]},
                    "intermediate_data": {"tool_uses": [{"name": "roll_die", "args": {"sides": 20}}]},
                }
            ],
            "session_input": {"app_name": "dice", "user_id": "u", "state": {}},
        }
    ],
}


def trial(pages: Any, tmp_path: Path, **options: str) -> str:
    (tmp_path / "evalsets" / "loose.evalset.json").write_text(json.dumps(LOOSE))
    evalset = next(file.id for file in pages.desk.evalsets.list() if file.name == "loose")
    run = pages.finish(evalset=evalset, n="1", metric=["tool_exact"], **{"tool_exact.threshold": "1", **options})
    return str(pages.get(f"{run}/cases/0/trials/0").text)


def test_the_page_marks_accepted_arguments_and_says_why(pages: Any, tmp_path: Path) -> None:
    page = trial(pages, tmp_path, **{"tool_exact.tolerances": "sides = 14"})

    assert re.search(r'<tr data-op="=">.*?</b> accepted</th>.*?Accepted: sides is within 14</p>', page, re.DOTALL)
    assert 'id="divergence"' not in page


def test_without_tolerance_the_same_call_differs(pages: Any, tmp_path: Path) -> None:
    page = trial(pages, tmp_path)

    assert re.search(r'<tr data-op="~">.*?</b> arguments</th>', page, re.DOTALL)
    assert "Accepted:" not in page
