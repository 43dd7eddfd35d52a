"""Help: there for every command, with an example that parses, and without importing what it does not show."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner
from tests.islands import of_all_tools

from evaldesk import cli as top
from evaldesk.cli import cli, respelled
from evaldesk.cli.lazy import dashed
from evaldesk.cli.runs import group as run
from evaldesk.registry import import_target

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import CommandFolder
    from tests.forked_commands import ForkedCommands

HEAVY = ("sqlalchemy", "rich", "pandas", "litellm", "starlette", "evaldesk.desk", "evaldesk.store", "evaldesk.cli.ui")


def _commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(group, click.Group):
        yield path, group
        return
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from _commands(command, (*path, name))


COMMANDS = dict(_commands(cli))
IDS = [" ".join(path) for path in COMMANDS]


@pytest.mark.parametrize("path", COMMANDS, ids=IDS)
def test_every_command_shows_an_example_of_itself(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*path, "--help"]).output

    assert re.search(rf"^ *evaldesk {' '.join(path)}(?= |$)", shown, re.MULTILINE), shown


@of_all_tools
@pytest.mark.parametrize("path", COMMANDS, ids=IDS)
def test_every_example_parses(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    text = command.help or ""
    examples = re.findall(rf"^ *evaldesk {' '.join(path)}((?: .*)?)$", text, re.MULTILINE)

    for example in examples:
        words = shlex.split(re.split(r"  +| >>? ", example.strip())[0])
        with command.make_context(path[-1], words, parent=click.Context(cli, token_normalize_func=dashed)):
            pass


@of_all_tools
@pytest.mark.parametrize("table", [top, run], ids=["evaldesk", "evaldesk run"])
def test_the_words_of_a_list_are_those_of_the_commands(table: object) -> None:
    for listed in table.COMMANDS.values():  # type: ignore[attr-defined]
        command = import_target(listed.target)
        assert isinstance(command, click.Command)
        assert listed.words == ("" if command.hidden else command.get_short_help_str(200))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["eval", "--help"]], ids=" ".join)
def test_help_imports_little(arguments: list[str]) -> None:
    source = (
        "import sys\nfrom evaldesk.cli import cli\n"
        f"cli({arguments!r}, standalone_mode=False)\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )

    said = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)

    assert said.stderr.split() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evl"], "no command named 'evl'; did you mean 'eval'? `evaldesk --help` shows how."),
        (["run", "lst"], "no command named 'lst'; did you mean 'list'? `evaldesk run --help` shows how."),
        (["run", "info"], "Missing argument 'NAME'. `evaldesk run info --help` shows how."),
        (["eval", "samples/hello_wrld", "x.json"], "no sample agent named 'hello_wrld'; did you mean 'hello_world'?"),
        (
            ["eval", "--eval-num-worker", "2"],
            "No such option '--eval-num-worker'. Did you mean '--eval-num-workers'? `evaldesk eval --help` shows how.",
        ),
        (
            ["eval", "--temperature", "1", "x", "--temperature", "2"],
            "--temperature is given twice; leave one out. `evaldesk eval --help` shows how.",
        ),
        (
            ["eval", "--recording-tools", "--no-recording-tools"],
            "--recording-tools is given twice; leave one out. `evaldesk eval --help` shows how.",
        ),
    ],
    ids=["command", "command of a group", "argument", "agent", "option", "option twice", "switch twice"],
)
def test_an_error_is_one_line_that_says_what_to_do(commands: ForkedCommands, arguments: list[str], said: str) -> None:
    done = commands.run(*arguments)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"evaldesk: {said}\n")


VALUED = [
    (path, option)
    for path, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option) and not (option.is_flag or option.multiple or option.count or option.hidden)
]


@pytest.mark.parametrize(("path", "option"), VALUED, ids=[f"{' '.join(path)} {each.name}" for path, each in VALUED])
def test_an_option_given_twice_is_refused_by_its_name(path: tuple[str, ...], option: click.Option) -> None:
    words = [f"{option.opts[0]}=1" if option.opts[0].startswith("--") else f"{option.opts[0]}1", option.opts[-1], "2"]

    result = CliRunner().invoke(cli, [*path, *words])

    assert result.exit_code == 2
    assert f"{' / '.join(option.opts)} is given twice; leave one out." in result.output


def test_every_command_with_a_workspace_takes_that_of_the_environment() -> None:
    found = [each for command in COMMANDS.values() for each in command.params if each.name == "workspace"]

    assert len(found) > 20
    assert {each.envvar for each in found} == {"EVALDESK_WORKSPACE"}


def test_an_option_that_may_be_repeated_is_taken_each_time(place: CommandFolder) -> None:
    path = place.evalset("words", {"one": "one"})
    criteria = ("--criterion", "response_match_score=0.5", "--criterion", "turn_count=3")

    assert place.run("eval", place.agent, path, *criteria, "--quiet", "--quiet").exit_code == 0


def test_a_command_without_its_streams_ends_as_it_would_with_them() -> None:
    command = shlex.join([sys.executable, "-m", "evaldesk", "completion", "bash"])

    assert subprocess.run(["/bin/sh", "-c", f"{command} <&- >&- 2>&-"], check=False).returncode == 0


def test_a_trace_is_shown_when_asked_for(commands: ForkedCommands) -> None:
    done = commands.run("eval", "samples/hello_world", "nowhere.json", "--debug")

    assert done.stderr.startswith("Traceback")
    assert "UsageError: nowhere.json is not a file" in done.stderr


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "evaldesk", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_completed(shell: str) -> None:
    script = CliRunner().invoke(cli, ["completion", shell]).output

    assert "_EVALDESK_COMPLETE" in script


def test_completion_knows_commands_and_options() -> None:
    environment = {"_EVALDESK_COMPLETE": "bash_complete", "COMP_WORDS": "evaldesk run re", "COMP_CWORD": "2"}

    said = CliRunner().invoke(cli, prog_name="evaldesk", env=environment).output

    assert sorted(said.split()) == ["plain,rescore", "plain,resume", "plain,retry"]


def test_a_folder_called_like_a_command_of_osmosis_is_an_agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert respelled(["eval", "list", "--all"]) == ["run", "list", "--all"]
    assert respelled(["eval-rubric", "-d", "x"]) == ["rubric", "-d", "x"]
    assert respelled(["eval", "cache", "ls", "--model", "x"]) == ["run", "list", "--model", "x"]
    assert respelled(["eval", "cache", "rm", "12"]) == ["run", "rm", "12"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").mkdir()
    assert respelled(["eval", "list", "x.json"]) == ["eval", "list", "x.json"]


def test_no_color_leaves_no_escape(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    place.eval(place.evalset("first", {"one": "one"}))
    arguments = ["run", "list"]

    coloured = CliRunner().invoke(cli, arguments, color=True).output
    monkeypatch.setenv("NO_COLOR", "1")
    plain = CliRunner().invoke(cli, arguments, color=True).output

    assert "\x1b" in coloured
    assert "\x1b" not in plain


@pytest.mark.parametrize(("arguments", "first"), [([], "evaldesk [OPTIONS]"), (["run"], "evaldesk run [OPTIONS]")])
def test_the_name_alone_is_answered_with_the_help(arguments: list[str], first: str) -> None:
    done = _run(*arguments)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {first}")


def test_a_mark_that_the_locale_lacks_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "latin-1", write_through=True))
    monkeypatch.setattr(sys, "argv", ["evaldesk"])
    monkeypatch.setattr(top, "cli", lambda *_, **__: click.echo("✓ für dich"))

    with pytest.raises(SystemExit) as ended:
        top.main()

    assert (ended.value.code, written.getvalue()) == (0, "\\u2713 für dich\n".encode("latin-1"))
