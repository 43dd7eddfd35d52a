"""A run as one HTML file that needs no desk and no network: styles, icons, script and trials stand in it."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from markupsafe import Markup

from evaldesk import paths
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.pages.reports.html import Masking, ReportTrial, RunReport, read_report, report_trials
from evaldesk.web.render import environment as templates

MAX_TRIALS_BYTES = 2 * 1024 * 1024
"""Transcripts in one report; the other trials are squares of the table only."""
MAX_MISSES = 20
"""Trials in a row that have no room, until no further one is tried."""

_SYMBOL = re.compile(r'(?s)(?=<symbol id="([^"]+)")(<symbol.*?</symbol>)')
_USE = re.compile(r'href="/static/icons\.svg#([a-z-]+)"')
"""No text of an agent holds this: its quotes are escaped."""
_USED = re.compile(r'href="#icon-([a-z-]+)"')


@dataclass(frozen=True, slots=True)
class Report:
    """The file; `masked` names the secrets that it does not hold."""

    file_name: str
    data: bytes
    masked: str


def run_report(
    runs: StoredRuns, run_id: int, environment: Mapping[str, str] = os.environ, now: datetime | None = None
) -> Report:
    """The report of a run as it is now. Raises NotFoundError."""
    report, masking = read_report(runs, run_id, now or datetime.now(UTC)), Masking(environment)
    trials = _written(report_trials(runs, run_id, masking))
    body = _rendered("reports/run.html", report=report, run=report.run, trials=trials)
    data = _file(masking.text(body), masking, report)
    return Report(report.file_name, data, masking.words)


def _written(trials: Iterator[ReportTrial]) -> dict[str, Markup]:
    """The trials for which there is room, by the link of the run's page to each."""
    macro: Any = getattr(templates().get_template("reports/trial.html").module, "trial")  # noqa: B009 - a macro
    written: dict[str, Markup] = {}
    room, n_misses = MAX_TRIALS_BYTES, 0
    for trial in trials:
        text = macro(trial)
        size = len(text.encode())
        if size <= room:
            written[trial.href] = text
            room, n_misses = room - size, 0
        elif (n_misses := n_misses + 1) == MAX_MISSES:
            break
    return written


def _file(body: str, masking: Masking, report: RunReport) -> bytes:
    static = paths.shipped("static")
    styles, script = ((static / name).read_text("utf-8") for name in ("app.css", "report.js"))
    symbols = dict(_SYMBOL.findall((static / "icons.svg").read_text("utf-8")))
    body = _USE.sub(r'href="#icon-\1"', body)
    used = sorted({"mark", *_USED.findall(body)})
    icons = "".join(symbols[name].replace(f'id="{name}"', f'id="icon-{name}"') for name in used)
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(styles)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _rendered(
        "reports/frame.html",
        title=masking.text(report.run.title),
        made_at=report.made_at,
        policy=policy,
        styles=_ours(styles),
        script=_ours(f"<script>{script}</script>"),
        icons=_ours(icons),
        body=_ours(body),
        masked=masking.words,
    ).encode()


def _ours(text: str) -> Markup:
    """A file of the package, or the result of a template that escaped what it was given."""
    return Markup(text)  # noqa: S704


def _rendered(name: str, **values: object) -> str:
    return templates().get_template(name).render(values)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
