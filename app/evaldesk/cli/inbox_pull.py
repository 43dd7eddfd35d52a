"""`evaldesk inbox pull`: traces of hosted tools come into the inbox."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from evaldesk.cli.inbox_score import begin_of
from evaldesk.cli.runs.shared import ask_trust, json_option, trust_option, workspace_option
from evaldesk.model.conclusion import counted
from evaldesk.wording.writer import show, show_json

if TYPE_CHECKING:
    from evaldesk.desk.inbox.pulling import PullOutcome


@click.command()
@click.argument("source", metavar="SOURCE")
@click.option("--since", metavar="TIME", help="Traces since then: 7d, 12h. Default: the last pull, or 7d.")
@click.option("--where", metavar="FILTER", help="Only traces whose conversation meets this, as of `inbox list`.")
@trust_option
@json_option
@workspace_option
def pull(
    source: str, since: str | None, where: str | None, is_trusted: bool, is_json: bool, workspace: str | None
) -> None:
    """Pull traces of SOURCE into the inbox: langfuse, langsmith, mlflow, phoenix, or a table [inbox.pull.SOURCE].

    Keys and addresses are those of the environment variables of the tool, such as LANGFUSE_SECRET_KEY. A trace that was
    pulled before is replaced, also where its feedback changed.

    \b
    evaldesk inbox pull langfuse
    evaldesk inbox pull langsmith --since 7d --where 'feedback<0'
    """
    from evaldesk.cli.files.exchange_files import open_home
    from evaldesk.desk.inbox.pulling import plan_of, pull_into
    from evaldesk.wording.printable import in_one_line

    settings = open_home(workspace)
    begin = begin_of(since) if since else None
    if source in settings.inbox.pull:  # the file says where keys go
        ask_trust(settings, is_trusted=is_trusted).check_all()
    plan = plan_of(settings, source, where)
    outcome = pull_into(settings, plan, time.sleep, begin)
    changes = outcome.changes
    if is_json:
        show_json(
            {
                "source": source,
                "since": outcome.since.isoformat(),
                "new": changes.n_new,
                "changed": changes.n_changed,
                "equal": changes.n_equal,
                "filtered": outcome.n_filtered,
                "removed": outcome.changes.n_removed,
                "unreadable": outcome.n_unreadable,
                "cut": outcome.n_cut,
            }
        )
        return
    show(in_one_line(f"{plan.tool.title} since {outcome.since:%Y-%m-%d %H:%M} UTC: {_words(outcome)}."))


def _words(outcome: PullOutcome) -> str:
    changes = outcome.changes
    parts = [counted(changes.n_new, "new trace")]
    parts += [f"{changes.n_changed:,} changed"] * bool(changes.n_changed)
    parts += [f"{changes.n_equal:,} as before"] * bool(changes.n_equal)
    parts += [f"{outcome.n_filtered:,} left out by the filter"] * bool(outcome.n_filtered)
    parts += [f"{outcome.changes.n_removed:,} removed here before"] * bool(outcome.changes.n_removed)
    parts += [f"{outcome.n_unreadable:,} that cannot be read"] * bool(outcome.n_unreadable)
    parts += [f"{outcome.n_cut:,} cut at the bounds of a trace"] * bool(outcome.n_cut)
    return ", ".join(parts)
