"""What is said of a run in words: the same on its page and in the shell, and with doubt that suits who watches."""

from __future__ import annotations

import dataclasses
import html
import re
import threading
from typing import Any

import pytest

from evaldesk.cli.run_info import info
from evaldesk.report import passed_sentence, rate_interval


def test_the_command_line_and_the_page_say_the_same(pages: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = pages.finish(n="3")
    summary = pages.desk.store.runs.summary(int(run[6:]))
    interval = rate_interval(pages.desk.store.runs.outcome_counts(summary.id))
    sentence = passed_sentence(summary.n_passed, summary.n_scored, interval)

    info.main([str(summary.id), "--workspace", str(pages.desk.settings.workspace)], standalone_mode=False)

    assert sentence in capsys.readouterr().out
    text = html.unescape(re.sub(r"<[^>]+>", "", pages.get(run).text))
    assert sentence in re.sub(r"\s+", " ", text)


def test_a_run_that_is_watched_has_doubt_that_stays_valid(open_runs: Any) -> None:
    gate = threading.Event()
    gate.set()
    pages = open_runs(gate=gate)
    earlier = pages.finish(n="1")
    gate.clear()
    run = pages.start(n="1")
    store, run_id = pages.desk.store, int(run[6:])
    played = [store.runs.trial(int(earlier[6:]), case_index, 0) for case_index in (0, 1)]
    store.runs.record([dataclasses.replace(each, run_id=run_id) for each in played])

    text = pages.get(run).text

    assert f"That is the rate of run {earlier[6:]}." in text
    assert "Too close to 50 % to stop; could be" in text
    gate.set()
