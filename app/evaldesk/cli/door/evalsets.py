"""`evaldesk evalset`: the eval sets of a workspace, their cases, failures and health."""

from __future__ import annotations

import asyncio
import json
import sys

import click

from evaldesk.cli.door.set_criteria import criteria
from evaldesk.cli.door.set_versions import diff, log, restore
from evaldesk.cli.runs.shared import json_option, opened_desk, workspace_option
from evaldesk.model.conclusion import counted
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_json


@click.group(name="evalset")
def evalset() -> None:
    """List eval sets, their cases and versions, and show how their trials fail; SET is a name, a place or an id.

    \b
    evaldesk evalset list
    evaldesk evalset cases calc --filter tag:dice
    evaldesk evalset log calc
    """


for command in (log, diff, restore, criteria):
    evalset.add_command(command)


@evalset.command(name="list")
@json_option
@workspace_option
def list_evalsets(is_json: bool, workspace: str | None) -> None:
    """List the eval sets.

    \b
    evaldesk evalset list
    evaldesk evalset list --json
    """
    from evaldesk.pages.door.evalsets import evalset_items

    with opened_desk(workspace) as desk:
        answer = evalset_items(desk)
    if is_json:
        show_json(answer, indent=2)
        return
    for item in answer["items"]:
        words = f"cannot be read: {item['error']}" if item["error"] else f"{item['n_cases']:,} cases"
        show(in_one_line(f"{item['name']}  {words}  {item['place']}"))
    if not answer["items"]:
        show("No eval sets yet. `evaldesk import FILE` takes one in.")


@evalset.command()
@click.argument("name", metavar="SET")
@click.option("--filter", "text", default="", metavar="FILTER", help="Words, id:PART, tag:TAG, asserts:yes or no.")
@click.option("--cursor", type=click.IntRange(0), default=0, metavar="N", help="Begin after N matching cases.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Most cases to list.")
@json_option
@workspace_option
def cases(name: str, text: str, cursor: int, limit: int, is_json: bool, workspace: str | None) -> None:
    """List the cases of SET.

    \b
    evaldesk evalset cases calc
    evaldesk evalset cases calc --filter "tag:dice asserts:no" --json
    """
    from evaldesk.pages.door.evalsets import case_items

    with opened_desk(workspace) as desk:
        answer = case_items(desk, name, text, cursor, limit)
    if is_json:
        show_json(answer, indent=2)
        return
    for item in answer["items"]:
        show(in_one_line(f"{item['case_id']}  {item['first_message']}"))
    if answer["next_cursor"] is not None:
        show(f"--cursor {answer['next_cursor']} lists more of {answer['n_cases']:,} cases.")


@evalset.command()
@click.argument("name", metavar="SET")
@click.argument("case_id", metavar="CASE")
@json_option
@workspace_option
def case(name: str, case_id: str, is_json: bool, workspace: str | None) -> None:
    """Show CASE of SET as it is in its file; with --json also its version and its proposals.

    \b
    evaldesk evalset case calc roll_16
    evaldesk evalset case calc roll_16 --json
    """
    from evaldesk.pages.door.evalsets import case_answer

    with opened_desk(workspace) as desk:
        answer = case_answer(desk, name, case_id)
    if is_json:
        show_json(answer, indent=2)
    else:
        show(json.dumps(answer["case"], indent=2, ensure_ascii=False))


@evalset.command()
@click.argument("name", metavar="SET")
@json_option
@workspace_option
def failures(name: str, is_json: bool, workspace: str | None) -> None:
    """Show how trials of the newest run of SET fail, and the kinds of failure that people named.

    \b
    evaldesk evalset failures calc
    evaldesk evalset failures calc --json
    """
    from evaldesk.pages.door.evalsets import failure_answer

    with opened_desk(workspace) as desk:
        answer = failure_answer(desk, name)
    if is_json:
        show_json(answer, indent=2)
        return
    for each in answer["divergences"]:
        show(in_one_line(f"{each['n_trials']:,} trials in {each['n_cases']:,} cases: {each['words']}"))
    for each in answer["kinds"]:
        show(in_one_line(f"{each['name']} ({each['life']}): {each['n_trials']:,} trials. {each['definition']}"))
    if not (answer["divergences"] or answer["kinds"]):
        show("No failures." if answer["run"] else "No runs of this eval set yet.")


@evalset.command()
@click.argument("name", metavar="SET")
@click.option("--agent", default="", metavar="AGENT", help="Look at its tools and its runs; default: the newest runs.")
@click.option("--fail-on", metavar="KIND,...", help="Exit with 1 where one of these is found, such as untested_tools.")
@json_option
@workspace_option
def health(name: str, agent: str, fail_on: str | None, is_json: bool, workspace: str | None) -> None:
    """Show untested tools, twins, contradictions, leaks and cases of SET that never, always or sometimes pass.

    With --agent the agent is loaded, if its folder is trusted, and its tools are looked at.
    Exit code 0; 1 where --fail-on finds something.

    \b
    evaldesk evalset health calc
    evaldesk evalset health calc --agent calculator --json
    evaldesk evalset health calc --agent calculator --fail-on untested_tools,never
    """
    from evaldesk.pages.door.evalsets import health_answer
    from evaldesk.pages.set_health.finding import kinds_of

    kinds = kinds_of(fail_on) if fail_on is not None else ()
    with opened_desk(workspace) as desk:
        answer = asyncio.run(health_answer(desk, name, agent))
    if is_json:
        show_json(answer, indent=2)
    else:
        runs = f"{counted(answer['n_runs'], 'run')} of {counted(answer['n_agent_versions'], 'agent version')}"
        n_cases = counted(answer["n_cases"], "case")
        show(in_one_line(f"{answer['evalset']}: {answer['sentence']} ({n_cases}, {runs})"))
        for each in answer["findings"]:
            show(in_one_line(f"{each['kind']}: {each['count']:,}. {each['words']}. {each['action']}"))
        if agent and answer["agent_error"]:
            show(in_one_line(f"tools of {agent} are left out: {answer['agent_error']}"))
        if answer["missing"]:
            show(in_one_line(f"needs more runs: {answer['missing']}"))
    faults = [each for each in answer["findings"] if each["kind"] in kinds]
    if faults:
        names = ", ".join(f"{each['kind']} {each['count']:,}" for each in faults)
        show(in_one_line(f"evaldesk: --fail-on found {names}"), err=True)
        sys.exit(1)
