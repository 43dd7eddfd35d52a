"""`evaldesk eval_set create, add_eval_case, generate_eval_cases`: `adk eval_set` of google-adk 2.13."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaldesk.cli.runs.shared import ask_trust, settings_of, trust_option, workspace_option
from evaldesk.errors import ConflictError, FormatError, UsageError
from evaldesk.secrets import scrub
from evaldesk.wording.printable import in_one_line, printable
from evaldesk.wording.writer import show

if TYPE_CHECKING:
    from evaldesk.desk.evalsets.scenarios import ScenarioRequest
    from evaldesk.model import Case, EvalSet, JsonObject, SessionInit
    from evaldesk.reading.strict_json import JsonPosition

_ID = re.compile(r"[a-zA-Z0-9_]+")
agent_argument = click.argument("agent", type=click.Path(path_type=Path))
set_argument = click.argument("eval_set_id")


@click.group(name="eval_set")
def eval_set() -> None:
    """Create eval sets of google-adk beside AGENT, and add scenarios to them, as `adk eval_set` does.

    \b
    evaldesk eval_set create my_agent booking
    evaldesk eval_set add_eval_case my_agent booking --scenarios_file s.json --session_input_file session.json
    evaldesk eval_set generate_eval_cases my_agent booking --user_simulation_config_file generation.json
    """


@eval_set.command(name="create")
@agent_argument
@set_argument
def create(agent: Path, eval_set_id: str) -> None:
    """Create the empty eval set EVAL_SET_ID in the folder AGENT.

    \b
    evaldesk eval_set create my_agent booking
    """
    _check_files(agent)
    with _ends_as_adk():
        path = _path(agent, eval_set_id)
        if path.exists():
            raise ConflictError(f"{path} is there already; choose another name")
        _write(path, _new_set(eval_set_id))
    show(f"Eval set {eval_set_id!r} created: {printable(str(path))}")


@eval_set.command(name="add_eval_case")
@agent_argument
@set_argument
@click.option("--scenarios_file", metavar="FILE", type=click.Path(path_type=Path), required=True, help="Scenarios.")
@click.option(
    "--session_input_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="A session to start from.",
)
def add_eval_case(agent: Path, eval_set_id: str, scenarios_file: Path, session_input_file: Path) -> None:
    """Add a case for each scenario of a file; one that the set has is left out.

    \b
    evaldesk eval_set add_eval_case my_agent booking --scenarios_file s.json --session_input_file session.json
    """
    from evaldesk.desk.imports.files import read_path

    _check_files(agent, scenarios_file, session_input_file)
    with _ends_as_adk():
        scenarios = read_path(scenarios_file, "adk-scenarios").evalset
        session = _session(session_input_file)
        file_scenarios = [case.scenario for case in scenarios.cases if case.scenario] if scenarios else []
        _add(_path(agent, eval_set_id), eval_set_id, file_scenarios, session, is_proposed=False, must_exist=True)


@eval_set.command(name="generate_eval_cases")
@agent_argument
@set_argument
@click.option(
    "--user_simulation_config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="count, model_name, generation_instruction and environment_context, as ADK's ConversationGenerationConfig.",
)
@click.option("--model", help="The model that proposes; default: model_name of the file.")
@trust_option
@workspace_option
def generate_eval_cases(
    agent: Path,
    eval_set_id: str,
    user_simulation_config_file: Path,
    model: str | None,
    is_trusted: bool,
    workspace: str | None,
) -> None:
    """Add scenarios that a model proposes from the agent's description; each waits for a review before it is played.

    ADK asks Google's service; this asks any model. The tag needs-review is taken away in the browser.

    \b
    evaldesk eval_set generate_eval_cases my_agent booking --user_simulation_config_file generation.json
    """
    from evaldesk.desk.imports.files import json_of
    from evaldesk.reading.strict_json import Document, JsonPosition

    _check_files(agent, user_simulation_config_file)
    config = json_of(user_simulation_config_file)
    with _ends_as_adk():
        request, model_name = _request(JsonPosition(Document(config, "", str(user_simulation_config_file))))
        model = model or model_name
        if not model:
            raise UsageError("name a model: --model, or model_name in the file")
        path = _path(agent, eval_set_id)
    scenarios = asyncio.run(_propose(agent, model, request, is_trusted=is_trusted, workspace=workspace))
    _add(path, eval_set_id, scenarios, None, is_proposed=True, must_exist=False)
    show("They wait for a review: no run plays them before the tag needs-review is taken away.")


async def _propose(
    agent: Path, model: str, request: ScenarioRequest, *, is_trusted: bool, workspace: str | None
) -> Sequence[JsonObject]:
    from evaldesk.desk.evalsets.scenarios import propose_scenarios
    from evaldesk.desk.named_agents import named_agent
    from evaldesk.engine import ChatPlayers

    settings = settings_of((str(agent.parent),), workspace, None)
    trust = ask_trust(settings, is_trusted=is_trusted)
    host = ChatPlayers(check=trust.check_agent)
    try:
        description = await host.describe(named_agent(str(agent), workspace))
        return await propose_scenarios(host, description, model, request, settings.model_options)
    finally:
        await host.close()


def _request(place: JsonPosition) -> tuple[ScenarioRequest, str]:
    from evaldesk.desk.evalsets.scenarios import ScenarioRequest
    from evaldesk.reading.values import ABSENT, read_integer, read_mapping, read_optional_text
    from evaldesk.transcripts.adk import spelled

    raw = spelled(read_mapping(place, place.document.value))
    texts = {
        key: read_optional_text(place.at(key), raw.get(key)) or ""
        for key in ("generation_instruction", "environment_context", "model_name")
    }
    count = read_integer(place.at("count"), raw.get("count", ABSENT))
    return ScenarioRequest(count, texts["generation_instruction"], texts["environment_context"]), texts["model_name"]


EXIT_REFUSED = 1
"""The exit code of `adk eval_set` for a set that is there already, an id that cannot be, and a wrong file."""


@contextmanager
def _ends_as_adk() -> Iterator[None]:
    """End with the exit code of ADK where it refuses; a missing argument, folder or file ends with 2 in both."""
    try:
        yield
    except (ConflictError, FormatError, UsageError) as error:
        context = click.get_current_context(silent=True)
        if context is not None and context.obj is True:  # --debug shows the trace
            raise
        show(in_one_line(scrub(f"evaldesk: {error}", os.environ)), err=True)
        raise SystemExit(EXIT_REFUSED) from error


def _check_files(agent: Path, *files: Path) -> None:
    """Raise UsageError for an argument that leads nowhere."""
    if not agent.is_dir():
        raise UsageError(f"{agent} is not a folder; name that of the agent")
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file} is not a file")


def _path(agent: Path, eval_set_id: str) -> Path:
    if not _ID.fullmatch(eval_set_id):
        raise UsageError(f"{eval_set_id!r} cannot be an id in ADK; use letters, digits and _ only")
    return agent / f"{eval_set_id}.evalset.json"


def _new_set(eval_set_id: str) -> EvalSet:
    from evaldesk.model import EvalSet

    return EvalSet(eval_set_id, name=eval_set_id, extra={"creation_timestamp": time.time()})


def _stamped(case: Case) -> Case:
    """The case with the time of its addition, in seconds since 1970, as ADK notes it."""
    return replace(case, extra={**case.extra, "creation_timestamp": time.time()})


def _session(path: Path) -> SessionInit | None:
    from evaldesk.desk.imports.files import json_of
    from evaldesk.formats.adk.case import SESSION
    from evaldesk.reading.fields import read_session
    from evaldesk.reading.strict_json import Document, JsonPosition

    document = Document(json_of(path), "", str(path))
    return read_session(SESSION, JsonPosition(document), document.value)


def _add(
    path: Path,
    eval_set_id: str,
    scenarios: Sequence[JsonObject],
    session: SessionInit | None,
    *,
    is_proposed: bool,
    must_exist: bool,
) -> None:
    from evaldesk.desk.evalsets.scenarios import with_scenarios
    from evaldesk.formats import load_evalset

    if must_exist and not path.is_file():
        raise UsageError(f"{path} is not there; create it first: evaldesk eval_set create {path.parent} {eval_set_id}")
    evalset = load_evalset(path) if path.is_file() else _new_set(eval_set_id)
    new_set, new_ids = with_scenarios(evalset, scenarios, session, is_proposed=is_proposed)
    new_set = replace(new_set, cases=tuple(_stamped(case) if case.id in new_ids else case for case in new_set.cases))
    if new_ids:
        _write(path, new_set)
    for case_id in new_ids:
        show(f"Eval case {case_id!r} added to eval set {eval_set_id!r}.")
    if n_there := len(scenarios) - len(new_ids):
        show(f"{n_there} of {len(scenarios)} scenarios are in the set already.")


def _write(path: Path, evalset: EvalSet) -> None:
    from evaldesk.formats import dump_evalset

    dump_evalset(evalset, path)
