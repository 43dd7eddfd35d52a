"""`evaldesk inbox score`: conversations of running agents are scored, with an alarm below a pass rate."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from evaldesk.cli.eval.options import metrics_and_criteria
from evaldesk.cli.runs.shared import ask_trust, json_option, trust_option, workspace_option
from evaldesk.errors import UsageError
from evaldesk.model.conclusion import counted
from evaldesk.wording.writer import show, show_json

ALARM = 1
"""The exit code while the alarm rang."""


@click.command()
@click.option(
    "--criterion",
    "criteria",
    metavar="METRIC=T",
    multiple=True,
    callback=metrics_and_criteria,
    help="A metric with its threshold that needs no model. May be repeated. Default: [inbox.score] of evaldesk.toml.",
)
@click.option("--since", default="7d", show_default=True, metavar="TIME", help="Conversations since then: 7d, 12h.")
@click.option("--bar", type=float, metavar="P", help="The alarm is below this rate. Default: [inbox.score], or 0.85.")
@click.option(
    "--alpha", type=float, metavar="A", help="False alarms a scored conversation. Default: [inbox.score], or 0.0001."
)
@trust_option
@json_option
@workspace_option
def score(
    criteria: tuple[tuple[str, object], ...],
    since: str,
    bar: float | None,
    alpha: float | None,
    is_trusted: bool,
    is_json: bool,
    workspace: str | None,
) -> None:
    """Score ended conversations without a score, and show the pass rate of each release.

    The alarm rings where the pass rate fell below the bar; it may be looked at always, and begins again after it rang.
    Exit code 1 where it rang since TIME. Without --criterion the criteria of [inbox.score] score, with its judges,
    on_alarm and emit.

    \b
    evaldesk inbox score --criterion turn_count=5
    evaldesk inbox score --criterion 'tool_used={"threshold": 1, "tool": "search"}' --since 12h --bar 0.9
    """
    from evaldesk.cli.files.exchange_files import open_home
    from evaldesk.desk.criteria.criteria import criteria_of
    from evaldesk.desk.inbox.live import scoring_plan
    from evaldesk.desk.trash import open_desk
    from evaldesk.settings import InboxScoring
    from evaldesk.wording.inbox import release_change_sentence
    from evaldesk.wording.printable import in_one_line
    from evaldesk.wording.words import doubt_words, passed_words

    begin = begin_of(since)
    settings = open_home(workspace)
    scoring = settings.inbox.score
    if not criteria and scoring is None:
        raise UsageError(
            "name a criterion, such as --criterion turn_count=5, or write [inbox.score] into evaldesk.toml",
            field="criterion",
        )
    usual = scoring or InboxScoring()
    bar, alpha = usual.bar if bar is None else bar, usual.alpha if alpha is None else alpha
    own_criteria = criteria_of(dict(criteria) if criteria else usual.criteria)
    plan = scoring_plan(own_criteria, None if criteria else scoring)
    acts = not criteria and bool(plan.judged or settings.inbox.on_alarm or settings.inbox.emit)
    if acts:  # the file says to ask judges, to start a command or to send
        ask_trust(settings, is_trusted=is_trusted).check_all()
    with open_desk(settings) as desk:
        n_new = desk.live.score(plan, begin, is_sent=acts)
        rates = desk.live.rates(begin, bar, alpha)
        if acts:
            desk.live.tell_alarm(rates, begin, bar, alpha)
    if is_json:
        show_json(_as_json(n_new, rates, bar, alpha))
    else:
        show(f"{counted(n_new, 'conversation')} scored.")
        for each in rates.releases:
            name = f"release {each.release}" if each.release else "no release"
            parts = (passed_words(each.n_passed, each.n_scored), doubt_words(each.n_scored, each.interval))
            show(in_one_line(f"{name}: {'; '.join(filter(None, parts))}"))
        if change := rates.change:
            show(in_one_line(release_change_sentence(change.before, change.difference, change.interval)))
        for number, at in rates.alarms:
            show(f"Alarm: the pass rate is below {bar:g}, after conversation {number}, {at:%Y-%m-%d %H:%M} UTC.")
    if rates.alarms:
        sys.exit(ALARM)


def begin_of(since: str) -> datetime:
    """The instant of `7d` ago, or of a date. Raises UsageError."""
    from evaldesk.desk.inbox.filters import parse_filter
    from evaldesk.model.conversation_filter import TimeCondition

    terms = parse_filter(f"since:{since}").terms
    if len(terms) != 1 or not isinstance(terms[0].condition, TimeCondition):
        raise UsageError(f"--since {since[:40]!r}: write 7d, 12h or a date such as 2026-11-20", field="since")
    return terms[0].condition.instant(datetime.now(UTC))


def _as_json(n_new: int, rates: Any, bar: float, alpha: float) -> dict[str, Any]:
    change = rates.change
    return {
        "scored": n_new,
        "bar": bar,
        "alpha": alpha,
        "releases": [
            {
                "release": each.release,
                "passed": each.n_passed,
                "scored": each.n_scored,
                "interval": [each.interval.low, each.interval.high],
            }
            for each in rates.releases
        ],
        "change": change
        and {
            "before": change.before,
            "after": change.after,
            "difference": change.difference,
            "interval": [change.interval.low, change.interval.high],
        },
        "alarms": [{"conversation": number, "at": at.isoformat()} for number, at in rates.alarms],
        "evidence": rates.alarm.evidence,
    }
