"""A run, or two compared, as one HTML file without a network: styles, icons, script and trials stand in it."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from markupsafe import Markup

from evaldesk import paths
from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import TEXT_LIMIT
from evaldesk.pages.experiment import read_experiment_page
from evaldesk.pages.reports.html import (
    Masking,
    ReportTrial,
    compared_trials,
    read_comparison,
    read_report,
    report_trials,
)
from evaldesk.pages.run_table import read_table_page
from evaldesk.pages.runs.table_query import TableQuery
from evaldesk.web.render import environment as templates

# A report travels by mail: decision 078.
MAX_TRIALS_BYTES = 2 * 1024 * 1024
"""Transcripts in one report; the other trials are squares of the table only."""
MAX_COMPARED_BYTES = 1024 * 1024
"""Transcripts in the report of a comparison, which stays below 2 MB with 1,000 cases."""
MAX_ROWS = 1_000
"""Rows of the table in a report."""
MAX_MISSES = 20
"""Trials in a row that have no room, until no further one is tried."""

_SYMBOL = re.compile(r'(?s)(?=<symbol id="([^"]+)")(<symbol.*?</symbol>)')
_USE = re.compile(r'href="/static/icons\.svg#([a-z-]+)"')
"""No text of an agent holds this: its quotes are escaped."""
_LINK = re.compile(r'(?<=<a )href="(/(?!static/)[^"]*)"')
_ADDRESS = re.compile(r' href="/(?!static/)[^"]*"')
_ICON = re.compile(r'href="#icon-([a-z-]+)"')


@dataclass(frozen=True, slots=True)
class Report:
    """The file; `masked` names the secrets that it does not hold."""

    file_name: str
    data: bytes
    masked: str


@dataclass(frozen=True, slots=True)
class TrialText:
    """A trial as HTML, and the id of its element."""

    text: Markup
    anchor: str


def run_report(
    runs: StoredRuns, run_id: int, environment: Mapping[str, str] = os.environ, now: datetime | None = None
) -> Report:
    """The report of a run as it is now. Raises NotFoundError."""
    (run, name), masking = read_report(runs, run_id), Masking(environment)
    trials = _write_trials(report_trials(runs, run_id, masking))
    body = _render("reports/run.html", run=run, trials=trials, agents=runs.agent_totals(run_id))
    return _file(name, run.title, now or datetime.now(UTC), body, masking)


def comparison_report(
    runs: StoredRuns,
    a_id: int,
    b_id: int,
    environment: Mapping[str, str] = os.environ,
    now: datetime | None = None,
) -> Report:
    """The report of run `b_id` against run `a_id`. Raises NotFoundError; UsageError for a run and itself."""
    comparison, masking = read_comparison(runs, a_id, b_id), Masking(environment)
    trials, title = (
        _write_trials(compared_trials(runs, comparison, masking), MAX_COMPARED_BYTES, is_named=True),
        f"Run {b_id} against run {a_id}",
    )
    body = _render("reports/comparison.html", title=title, comparison=comparison, trials=trials)
    body = _LINK.sub(lambda match: f'href="#{trials[match[1]].anchor}"' if match[1] in trials else "", body)
    return _file(f"run_{b_id}_against_{a_id}.html", title, now or datetime.now(UTC), body, masking)


def table_report(
    desk: Desk, query: TableQuery, environment: Mapping[str, str] = os.environ, now: datetime | None = None
) -> Report:
    """The report of a table of runs; that of two is their comparison. Raises NotFoundError."""
    if len(query.run_ids) == 2 and not query.has_filter:
        return comparison_report(desk.stored_runs, *query.run_ids, environment, now)
    view, masking = read_table_page(desk, query, most=MAX_ROWS), Masking(environment)
    body = _ADDRESS.sub("", _render("reports/table.html", view=view, table=view.table))
    name = f"runs_{'_'.join(map(str, query.run_ids))}.html"
    return _file(name[:TEXT_LIMIT], view.title, now or datetime.now(UTC), body, masking)


def experiment_report(
    desk: Desk,
    experiment_id: int,
    values: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
    now: datetime | None = None,
) -> Report:
    """The report of an experiment against the baseline that an address names. Raises NotFoundError."""
    values = {name: value for name, value in values.items() if name == "baseline"}
    view, masking = read_experiment_page(desk, experiment_id, values, most=MAX_ROWS), Masking(environment)
    view = replace(view, panel=replace(view.panel, confirmation=None))
    body = _ADDRESS.sub("", _render("reports/experiment.html", view=view, table=view.table))
    return _file(f"experiment_{experiment_id}.html", view.title, now or datetime.now(UTC), body, masking)


def _write_trials(
    trials: Iterator[ReportTrial], room: int = MAX_TRIALS_BYTES, *, is_named: bool = False
) -> dict[str, TrialText]:
    """The trials for which there is room, by the page of each."""
    macro: Any = getattr(templates().get_template("reports/trial.html").module, "trial")  # noqa: B009 - a macro
    texts_by_href: dict[str, TrialText] = {}
    n_misses = 0
    for trial in trials:
        text = macro(trial, is_named)
        size = len(text.encode())
        if size <= room:
            texts_by_href[trial.href] = TrialText(text, trial.anchor)
            room, n_misses = room - size, 0
        elif (n_misses := n_misses + 1) == MAX_MISSES:
            break
    return texts_by_href


def _file(name: str, title: str, made_at: datetime, body: str, masking: Masking) -> Report:
    static = paths.shipped("static")
    styles, script = ((static / each).read_text("utf-8") for each in ("app.css", "report.js"))
    symbols = dict(_SYMBOL.findall((static / "icons.svg").read_text("utf-8")))
    body = _USE.sub(r'href="#icon-\1"', masking.text(body))
    icon_names = sorted({"mark", *_ICON.findall(body)})
    icons = "".join(symbols[each].replace(f'id="{each}"', f'id="icon-{each}"') for each in icon_names)
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(styles)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    text = _render(
        "reports/frame.html",
        title=masking.text(title),
        made_at=made_at,
        policy=policy,
        styles=_as_markup(styles),
        script=_as_markup(f"<script>{script}</script>"),
        icons=_as_markup(icons),
        body=_as_markup(body),
        masked=masking.words,
    )
    return Report(name, text.encode(), masking.words)


def _as_markup(text: str) -> Markup:
    """A file of the package, or the result of a template that escaped its values."""
    return Markup(text)  # noqa: S704


def _render(name: str, **values: object) -> str:
    return templates().get_template(name).render(values)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
