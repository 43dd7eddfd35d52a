"""Floor 5: the command line. Thin: parse, call the desk, show. Commands are imported when they are called."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from evaldesk import __version__
from evaldesk.cli.broken_pipe import EXIT_READER_LEFT, drop_output, open_closed_streams
from evaldesk.cli.lazy import LazyCommand, LazyGroup, dashed
from evaldesk.errors import DamagedDatabaseError, EvaldeskError, LostDatabaseError, UsageError
from evaldesk.process_setup import UNTIL_TRIALS, collect_seldom, end_process

COMMANDS: Mapping[str, LazyCommand] = {
    "ui": LazyCommand("evaldesk.cli.ui:ui", "Chat with the agents under DIR and evaluate them in the browser."),
    "eval": LazyCommand(
        "evaldesk.cli.eval.command:evaluate", "Run eval sets with AGENT: a folder, module:attr, or samples/NAME."
    ),
    "plan": LazyCommand(
        "evaldesk.cli.plan:plan",
        "Plan a run or an experiment: trials, cost, time, and the smallest difference it shows.",
    ),
    "run": LazyCommand(
        "evaldesk.cli.runs.group:run",
        "Submit, watch, stop and resume runs; NAME is a number, or how the name of a run begins.",
    ),
    "experiment": LazyCommand(
        "evaldesk.cli.experiments.group:experiment",
        "List, show, stop, resume and extend experiments, whose variants are runs.",
    ),
    "blame": LazyCommand(
        "evaldesk.cli.blame:blame", "Find the decisive turn of a failed trial by playing on from before its turns."
    ),
    "compare": LazyCommand(
        "evaldesk.cli.compare:compare",
        "Compare 2 to 20 runs, by number or name, or result files of `evaldesk eval -o FILE.json`.",
    ),
    "status": LazyCommand(
        "evaldesk.cli.door.status:status",
        "Show runs that are running, the newest runs, the worst cases and the next steps of a workspace.",
    ),
    "evalset": LazyCommand(
        "evaldesk.cli.door.evalsets:evalset",
        "List eval sets, their cases and versions, and show how their trials fail; SET is a name, a place or an id.",
    ),
    "search": LazyCommand(
        "evaldesk.cli.door.status:search", "Search TEXT in the messages of trials and cases, and in the notes on them."
    ),
    "propose": LazyCommand(
        "evaldesk.cli.door.proposals:propose",
        "Propose cases, edits, expectations, findings and kinds of failure; a person accepts or refuses them.",
    ),
    "proposals": LazyCommand(
        "evaldesk.cli.door.proposals:proposals", "List, show, accept and refuse the proposals of coding agents."
    ),
    "mcp": LazyCommand(
        "evaldesk.cli.door.mcp:mcp", "Serve a coding agent on standard input and output by the protocol MCP."
    ),
    "skill": LazyCommand(
        "evaldesk.cli.door.skill:skill", "Print the skill for coding agents, or install it into a project."
    ),
    "docs": LazyCommand(
        "evaldesk.cli.door.status:docs",
        "Print a page of the documentation, or its section TOPIC#SECTION; without a TOPIC the list of topics.",
    ),
    "open": LazyCommand(
        "evaldesk.cli.ui:open_run",
        "Show RUN, by its number or its name, in the browser; starts the desk if necessary.",
    ),
    "agents": LazyCommand(
        "evaldesk.cli.agents:agents",
        "List the agents with kind, model, tools, sub-agents, missing keys and load errors.",
    ),
    "doctor": LazyCommand(
        "evaldesk.cli.doctor:doctor", "Check the workspace, the agents, the models and the environment; starts no run."
    ),
    "benchmark": LazyCommand(
        "evaldesk.integrations.openhands.command.benchmark:benchmark",
        "Run the SCRIPT of an OpenHands benchmark, such as run_infer.py, unchanged.",
    ),
    "gate": LazyCommand("evaldesk.cli.gate:gate", "Compute how often the gates of a run fail or hold."),
    "fork": LazyCommand(
        "evaldesk.cli.fork:fork",
        "Play a trial on from before TURN, changed or not; the turns before it are not played again.",
    ),
    "accept": LazyCommand(
        "evaldesk.cli.accept:accept",
        "Accept actual results of RUN as the expectations of their cases, after a preview.",
    ),
    "metrics": LazyCommand("evaldesk.cli.metrics:metrics", "List the metrics, or show one with its options."),
    "rubric": LazyCommand(
        "evaldesk.integrations.osmosis.command.rubric:rubric", "Grade the conversations of a JSONL file by a rubric."
    ),
    "import": LazyCommand(
        "evaldesk.cli.files.import_:import_",
        "Import each FILE: the eval set into the folder of eval sets, the runs into the database.",
    ),
    "score": LazyCommand(
        "evaldesk.cli.score:score",
        "Score the conversations in TRACES by the criteria and expectations of an eval set; no agent is called.",
    ),
    "inbox": LazyCommand(
        "evaldesk.cli.inbox:inbox",
        "Receive, pull, list, draw, show, label, drop and replay conversations of agents, and make cases of them.",
    ),
    "export": LazyCommand(
        "evaldesk.cli.files.export:export", "Export an eval set by its name, or a run by its number."
    ),
    "report": LazyCommand(
        "evaldesk.cli.files.export:report",
        "Write RUN, or run B against run A, as one HTML file that opens without a network.",
    ),
    "convert": LazyCommand(
        "evaldesk.cli.files.export:convert", "Convert the eval set or the run of IN to OUT; `-` is the stream."
    ),
    "eval_set": LazyCommand(
        "evaldesk.integrations.adk.command.eval_set:eval_set",
        "Create eval sets of google-adk beside AGENT, and add scenarios to them, as `adk eval_set` does.",
    ),
    "adopt": LazyCommand(
        "evaldesk.cli.adopt:adopt",
        "Adopt a project of another tool: import its results, show what changes in tests, CI, dependencies.",
    ),
    "validate": LazyCommand(
        "evaldesk.cli.files.validate:validate", "Show format, cases, trials, unused keys and errors of each FILE."
    ),
    "mode": LazyCommand(
        "evaldesk.cli.mode:mode",
        "List, merge, check, export and import the kinds of failure that people found in trials.",
    ),
    "trash": LazyCommand(
        "evaldesk.cli.trash:trash", "List, restore or remove deleted eval sets, cases, chats and runs."
    ),
    "store": LazyCommand(
        "evaldesk.cli.store:store", "Copy the runs, labels and chats of a workspace into another database."
    ),
    "completion": LazyCommand("evaldesk.cli.completion:completion", "Print the completion script of SHELL."),
}

SPELLED_BY_OSMOSIS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("eval-rubric",): ("rubric",),
    ("eval", "rubric"): ("rubric",),
    ("eval", "cache", "ls"): ("run", "list"),
    ("eval", "cache", "rm"): ("run", "rm"),
    ("eval", "run"): ("run", "play"),
    ("eval", "download"): ("run", "export", "--format", "osmosis-results"),
    **{("eval", name): ("run", name) for name in ("submit", "list", "info", "logs", "stop", "retry", "resume")},
}

RENAMED: Mapping[tuple[str, ...], tuple[str, ...]] = {("set",): ("evalset",)}
"""Earlier names of commands, which scripts still have."""

DONE_OTHERWISE: Mapping[tuple[str, ...], str] = {
    ("eval", "upload"): "results stay on this machine; `evaldesk import FOLDER` takes those of others in",
    ("eval", "cache"): "`evaldesk run list` shows the stored runs, and `evaldesk run rm RUN` removes one",
    ("eval", "create"): "`evaldesk import DATA` makes an eval set of a data set",
    ("eval", "delete"): "`evaldesk run rm RUN` moves a run to the trash",
    ("eval", "status"): "`evaldesk run info RUN` shows the status",
}
"""Verbs of other tools that are no command here, with the equivalent. A folder of that name is an agent."""

EXIT_TRACE, EXIT_USAGE, EXIT_ERRORS, EXIT_INTERRUPTED = 1, 2, 3, 130
OF_THE_MACHINE = frozenset({errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOSPC})
"""Errors of a file for which nobody named a wrong one."""
DEBUG = "--debug"


class _Evaldesk(LazyGroup):
    def invoke(self, ctx: click.Context) -> Any:
        from evaldesk.wording.log_writer import write_logs

        write_logs()
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output()
            ctx.exit(EXIT_READER_LEFT)
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, respelled(args))


@click.group(
    cls=_Evaldesk,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": dashed},
)
@click.version_option(__version__, prog_name="evaldesk", message="%(prog)s %(version)s")
@click.option(DEBUG, is_flag=True, expose_value=False, help="Show the trace of an error.")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Make eval sets for your LLM agents, run them, and decide.

    \b
    evaldesk ui            chat with the agents in this folder, and evaluate them in the browser
    evaldesk eval AGENT SET.evalset.json --n 5
    evaldesk run list      the runs of this folder
    """
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        ctx.color = False


def main() -> None:
    """The console script: errors of ours are one line with the next step; the trace only with `--debug`."""
    open_closed_streams()
    collect_seldom()
    arguments = sys.argv[1:]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a mark that the locale lacks ends no command
    is_debug, others = _without_debug(arguments)
    if plays_here(others):
        from evaldesk.workers_ahead import start_ahead

        collect_seldom(UNTIL_TRIALS)
        start_ahead("player", "grader")
    try:
        code = cli(others, prog_name="evaldesk", standalone_mode=False, obj=is_debug)
        end_process(code if isinstance(code, int) else 0)
    except SystemExit as exit_request:
        if not isinstance(exit_request.code, int):
            raise
        end_process(exit_request.code)
    except (click.Abort, KeyboardInterrupt):
        _show("Stopped.")
        end_process(EXIT_INTERRUPTED)
    except Exception as error:
        if is_debug:
            _show(_trace(error))
            end_process(EXIT_TRACE)
        message, code = _in_words(error)
        if isinstance(error, OSError) and error.filename is None:
            drop_output()  # its rest would fail again at the end
        _show(f"evaldesk: {_clean_line(message)}")
        end_process(code)


def _without_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """Whether the trace is wanted, and the other arguments; behind `benchmark` they are those of its script."""
    others = [each for each in arguments if each != DEBUG]
    if others[:1] == ["benchmark"]:
        others = arguments[arguments.index("benchmark") :]
    return len(others) < len(arguments), others


PLAYED_ELSEWHERE = frozenset(("-h", "--help", "--python", "--image", "--environment", "--on"))


def plays_here(arguments: list[str]) -> bool:
    """Whether the command plays trials in workers of this interpreter, as far as its first look tells."""
    return arguments[:1] == ["eval"] and not any(each.partition("=")[0] in PLAYED_ELSEWHERE for each in arguments)


def respelled(args: list[str]) -> list[str]:
    """The arguments with the command's name here; a folder's path is an agent, also where a command has that name."""
    for other_words, own_words in {**SPELLED_BY_OSMOSIS, **RENAMED}.items():
        if tuple(args[: len(other_words)]) == other_words and not Path(other_words[-1]).is_dir():
            return [*own_words, *args[len(other_words) :]]
    verb = tuple(args[:2])
    if verb in DONE_OTHERWISE and not Path(args[1]).is_dir():
        raise UsageError(f"{' '.join(verb)} is not a command: {DONE_OTHERWISE[verb]}")
    return args


def _in_words(error: Exception) -> tuple[str, int]:
    """One line with the next step, and the exit code."""
    if isinstance(error, LostDatabaseError | DamagedDatabaseError):
        return str(error), EXIT_ERRORS
    if isinstance(error, EvaldeskError):
        return str(error), EXIT_USAGE
    if isinstance(error, click.ClickException):
        if isinstance(error, click.NoSuchOption):
            nearest = get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0)
            error = click.NoSuchOption(error.option_name, possibilities=nearest, ctx=error.ctx)
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "evaldesk"
        return f"{_sentence(error.format_message())} `{path} --help` shows how.", EXIT_USAGE
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return "the current folder is gone; go to one that exists", EXIT_USAGE
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        code = EXIT_ERRORS if error.errno in OF_THE_MACHINE else EXIT_USAGE
        return f"{os.fsdecode(error.filename)}: {error.strerror}", code
    if isinstance(error, OSError) and error.errno in OF_THE_MACHINE and error.filename is None:
        reason = f"the output could not be written: {error.strerror}"
        return f"{reason}; free space there, or write it to another place", EXIT_ERRORS
    return f"broke off: {error!r}; add {DEBUG} for the trace", EXIT_ERRORS


def _show(text: str) -> None:
    from evaldesk.wording.writer import show

    show(text, err=True)


def _trace(error: Exception) -> str:
    import traceback

    from evaldesk.secrets import scrub

    return scrub("".join(traceback.format_exception(error)).rstrip("\n"), os.environ)


def _clean_line(message: str) -> str:
    """The line without keys and terminal control characters: it may quote an agent, a file, a provider."""
    from evaldesk.secrets import scrub
    from evaldesk.wording.printable import in_one_line

    return in_one_line(scrub(message, os.environ))


def _sentence(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."
