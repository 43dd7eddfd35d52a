"""The agreement of people and metrics as two rows and two columns, the same on a finished queue and on the labels."""

from __future__ import annotations

import re
from typing import Any

from tests.web.runs.test_queue_pages import draw, say

from evaldesk.statistics.agreement import judge_skill


def test_rows_are_people_and_columns_are_the_metric() -> None:
    skill = judge_skill([(True, True)] * 5 + [(False, True)] * 2 + [(True, False)] * 3 + [(False, False)] * 4)

    assert skill.matrix == ((5, 2), (3, 4))
    assert sum(map(sum, skill.matrix)) == skill.n
    assert skill.matrix[0][0] + skill.matrix[1][1] == skill.n_agreed


def pictures(text: str) -> dict[str, list[int]]:
    """The four numbers of each matrix of a page, by the name of its metric."""
    found = re.findall(r'<svg class="matrix".*?aria-label="([^:]*):.*?</svg>', text, re.DOTALL)
    bodies = re.findall(r'<svg class="matrix".*?</svg>', text, re.DOTALL)
    numbers = [[int(n) for n in re.findall(r'data-part="value"[^>]*>(\d+)<', body)] for body in bodies]
    return dict(zip(found, numbers, strict=True))


def test_a_finished_queue_and_the_labels_draw_the_same_matrices(pages: Any) -> None:
    run = pages.finish(n="1")
    queue = draw(pages, run)
    for verdict in ("failed", "passed", "unsure", "failed"):
        say(pages, queue, verdict)

    of_queue = pictures(pages.get(queue).text)
    of_labels = pictures(pages.get(f"/labels?run={run[6:]}").text)

    assert "The verdict" in of_queue
    assert len(of_queue) > 1
    assert of_queue == of_labels
    assert all(len(numbers) == 4 and 0 < sum(numbers) <= 3 for numbers in of_queue.values())
