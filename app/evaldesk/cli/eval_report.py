"""What `evaldesk eval` prints: progress for a person, then every case, what went wrong first, and the answer."""

from __future__ import annotations

import os
import sys

import click

from evaldesk.errors import AgentError
from evaldesk.report import first_divergence, passed_sentence, rate_interval
from evaldesk.secrets import scrub
from evaldesk.store import CaseRow, RunSummary, Store

GLYPHS = {"p": ("✓", "green"), "f": ("✗", "red"), "e": ("!", "yellow"), "u": ("–", "white"), ".": ("·", "white")}
WORDS = {"f": "failed", "e": "errored", "u": "unscored"}


def show_progress(summary: RunSummary) -> None:
    """One line that moves, where a person watches."""
    if not sys.stderr.isatty():
        return
    text = f"\r{summary.n_done} of {summary.n_trials} trials done, {summary.n_passed} passed"
    click.echo(text + (f", {summary.n_errored} errored" if summary.n_errored else ""), err=True, nl=False)
    if summary.n_done == summary.n_trials:
        click.echo("", err=True)


def report_error(agent_id: str, error: AgentError) -> None:
    """An agent that does not load, with the trace of its own code."""
    click.echo(f"evaldesk: {agent_id} cannot be loaded: {_visible(scrub(str(error), os.environ))}", err=True)
    trace = getattr(error, "trace", "")
    if trace:
        click.echo(_visible(scrub(trace, os.environ)), err=True)


def show_result(store: Store, summary: RunSummary) -> None:
    """Cases in the order of the file, then the answer in words."""
    after = ""
    while rows := store.runs.case_rows(summary.id, sort="file", after=after, limit=200):
        for row in rows:
            _show_case(store, summary, row)
        after = rows[-1].cursor
    for group in store.runs.error_groups(summary.id):
        click.echo(click.style(f"{group.n} × {group.kind}: ", fg="yellow") + _visible(group.example))
    interval = rate_interval(store.runs.outcome_counts(summary.id))
    click.echo(passed_sentence(summary.n_passed, summary.n_scored, interval), nl=False)
    asides = [f"{n} {word}" for n, word in ((summary.n_errored, "errored"), (summary.n_unscored, "unscored")) if n]
    click.echo(f" ({', '.join(asides)})" if asides else "")
    if summary.reason:
        click.echo(_visible(summary.reason))
    click.echo(f"Run {summary.id}. `evaldesk ui` shows it turn by turn.")


def _show_case(store: Store, summary: RunSummary, row: CaseRow) -> None:
    squares = " ".join(click.style(GLYPHS[mark][0], fg=GLYPHS[mark][1]) for mark in row.strip)
    click.echo(f"{squares}  {_visible(row.case_id)}")
    index = next((index for index, mark in enumerate(row.strip) if mark in WORDS), None)
    if index is None:
        return
    trial = store.runs.trial(summary.id, row.case_index, index)
    case = store.runs.case(summary.id, row.case_index)
    divergence = first_divergence(case, trial.transcript, trial.scores)
    why = trial.error.message if trial.error else str(divergence or "")
    reasons = [score.reason for score in trial.scores if score.turn is None and score.passed is not True]
    text = _visible(why or next(iter(reasons), ""))
    click.echo(click.style(f"    trial {index + 1} {WORDS[row.strip[index]]}: ", dim=True) + text)


def _visible(text: str) -> str:
    """Text of an agent without what would steer the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)
