"""The printed output of `evaldesk eval`: every case, its first problem, and the outcome."""

from __future__ import annotations

import os

import click

from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import AgentError
from evaldesk.model.stored import CaseRow, RunSummary
from evaldesk.pages.runs.facts import recording_sentence
from evaldesk.secrets import scrub
from evaldesk.wording.places import shared_globals_sentence
from evaldesk.wording.printable import in_one_line, printable
from evaldesk.wording.trial_text import first_words, trial_text
from evaldesk.wording.words import asserted_lines, passed_sentence
from evaldesk.wording.writer import show, style

GLYPHS = {"p": ("✓", "green"), "f": ("✗", "red"), "e": ("!", "yellow"), "u": ("–", "white"), ".": ("·", "white")}
WORDS = {"f": "failed", "e": "errored", "u": "unscored"}


def report_error(agent_id: str, error: AgentError) -> None:
    """An agent that does not load; with `--debug`, the trace of its own code."""
    context = click.get_current_context(silent=True)
    is_debug = context is not None and context.find_root().obj is True
    hint = "; add --debug for the trace" if error.trace and not is_debug else ""
    message = in_one_line(scrub(str(error), os.environ))
    show(f"evaldesk: {agent_id} cannot be loaded: {message}{hint}", err=True)
    if is_debug and error.trace:
        show(printable(scrub(error.trace, os.environ)), err=True)


def show_result(runs: StoredRuns, summary: RunSummary, *, is_quiet: bool = False) -> None:
    """Cases in the order of the file, then the answer in words; when quiet the answer alone."""
    if not is_quiet:
        for row in runs.rows(summary.id):
            _show_case(runs, summary, row)
        for group in runs.errors(summary.id):
            show(style(f"{group.n} × {group.kind}: ", fg="yellow") + in_one_line(group.example))
    show(passed_sentence(summary.counts, runs.interval(summary)), nl=False)
    asides = [
        f"{n} {word}" for n, word in ((summary.counts.errored, "errored"), (summary.counts.unscored, "unscored")) if n
    ]
    show(f" ({', '.join(asides)})" if asides else "")
    for line in asserted_lines(summary.config, summary.n_cases):
        show(line)
    if shared_state := shared_globals_sentence(summary.shared_state):
        show(printable(shared_state))
    if repeats_recorded(summary.config):
        show(recording_sentence(summary.config))
    if summary.reason:
        show(printable(summary.reason))
    show(f"Run {summary.id}. `evaldesk open {summary.id}` shows it turn by turn.")


def show_details(runs: StoredRuns, summary: RunSummary) -> None:
    """Every turn of every trial, expected beside actual."""
    for case in runs.cases(summary.id):
        for trial in case:
            show(f"{in_one_line(case.id)}, trial {trial.trial_index + 1} {trial.verdict}")
            for line in trial_text(case.case, trial, is_whole=True).splitlines():
                show(f"    {line}")


def _show_case(runs: StoredRuns, summary: RunSummary, row: CaseRow) -> None:
    squares = " ".join(style(GLYPHS[mark][0], fg=GLYPHS[mark][1]) for mark in row.verdicts)
    show(f"{squares}  {in_one_line(row.case_id)}")
    index = next((index for index, mark in enumerate(row.verdicts) if mark in WORDS), None)
    if index is None:
        return
    case = runs.case(summary.id, row, index)
    text = first_words(case.case, case[0])
    show(style(f"    trial {index + 1} {WORDS[row.verdicts[index]]}: ", dim=True) + text)
