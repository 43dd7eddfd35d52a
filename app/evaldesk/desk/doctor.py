"""The obstacles to a run: the workspace, the agents, the models, the environment."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, TypeAlias

from evaldesk import __version__
from evaldesk.agents import AGENTS, named_ref
from evaldesk.agents.containers import CLIENTS
from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.desk.agents import AgentDesk, FoundAgent
from evaldesk.desk.repair import Fault, database_faults, file_faults
from evaldesk.desk.runs.driver import trial_spec
from evaldesk.desk.runs.plan import with_executor
from evaldesk.desk.runs.runs import TAKEN_OVER, WAITING
from evaldesk.desk.runs.stored_runs import is_held
from evaldesk.desk.trust import NEXT_STEP, Trust, check_store
from evaldesk.engine import ChatPlayers, LocalExecutor
from evaldesk.engine.driver.worker_process import WorkerStartError
from evaldesk.engine.executors import MAX_LOCAL, Node, check_executor, kind_of, open_executor
from evaldesk.engine.launch import launcher_of, sandbox_problem
from evaldesk.engine.sandbox import has_bubblewrap
from evaldesk.errors import EvaldeskError, ModelError, UsageError
from evaldesk.llm import ModelCall, RetryPolicy, complete, missing_keys
from evaldesk.model import (
    AgentRef,
    Case,
    Interpreter,
    ModelOptions,
    RunConfig,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    TurnSpec,
)
from evaldesk.model.conclusion import counted
from evaldesk.model.json_text import short_json
from evaldesk.model.run import ExecutorConfig, Place, PlaceState
from evaldesk.model.stored import RunSummary, host_of
from evaldesk.model.visibility import Visibility
from evaldesk.settings import CONFIG_NAME, Settings
from evaldesk.store import Store, hold_workspace
from evaldesk.store.backups import LATEST, backup_named, backups_of
from evaldesk.store.network_disk import disk_refusal
from evaldesk.store.store import EngineFacts, is_made, repair_marker
from evaldesk.wire import value_scrubber
from evaldesk.wording.places import again_sentence, place_words
from evaldesk.wording.words import duration_words, least_words

State: TypeAlias = Literal["good", "untried", "warning", "bad"]
CALL_S = 30.0
MESSAGE = "Hello"
MAX_SAID = 100
MOST_SKEW_S = 5.0
"""Leases go by the clock of the database alone; times that people see are of each machine."""
SAMPLE = "samples/hello_world"
PLAY_S = 120.0
MAX_RUNS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: good, untried, a warning, or bad."""

    about: str
    state: State
    sentence: str


def look_at_environment() -> list[Finding]:
    """Versions, and which frameworks of agents are installed."""
    installed = [f"{name} {version}" for name in _packages() if (version := _version(name))]
    parts = f"Evaldesk {__version__}, Python {platform.python_version()}, LiteLLM {_version('litellm')}"
    frameworks = ", ".join(installed) or "none; pip install 'evaldesk[adk]' for google-adk, for example"
    return [
        Finding("environment", "good", f"{parts}, SQLite {sqlite3.sqlite_version}"),
        Finding("frameworks", "good", frameworks),
        look_at_isolation(),
    ]


def look_at_isolation() -> Finding:
    """The kinds of isolation of trials that this machine can give."""
    client = next(filter(shutil.which, CLIENTS), "")
    why = sandbox_problem()
    sandbox = "sandbox" if not why else "sandbox by bubblewrap" if has_bubblewrap() else ""
    possible = ", ".join(filter(None, ("shared, process", sandbox, client and f"container by {client}")))
    return Finding("isolation", "good", possible if sandbox else f"{possible}; no sandbox: {why}")


def look_at_workspace(settings: Settings) -> list[Finding]:
    """The folder, its configuration file, and its database; no database is made."""
    home = settings.workspace
    has_config = (home / CONFIG_NAME).is_file()
    findings = [Finding("workspace", "good", f"{home}{f', with {CONFIG_NAME}' if has_config else ''}")]
    if not os.access(home, os.W_OK):
        findings = [Finding("workspace", "bad", f"{home} cannot be written; name another with --workspace")]
    if not settings.store and (refusal := disk_refusal(home)):
        findings.append(Finding("disk", "bad", refusal))
    file = settings.database_file
    findings += look_at_lost_databases(file)
    try:
        check_store(settings)
        if not is_made(settings.database) and not repair_marker(file).exists():
            return [*findings, Finding("database", "good", "none yet; the first run or chat makes it")]
        with Store.open(settings.database, must_exist=True) as store:
            store.check()
            n_runs = sum(store.runs.counts_by_status().values())
            engine = _engine(store.engine())
            runs = look_at_runs(store)
    except EvaldeskError as error:
        return [*findings, Finding("database", "bad", str(error))]
    words = f"{settings.database}, {n_runs} run{'s' if n_runs != 1 else ''}"
    return [*findings, Finding("database", "good", words), engine, *_backups(file), *runs]


def _backups(file: Path) -> list[Finding]:
    if not (backups := backups_of(file, datetime.now(UTC))):
        return []
    words = f"{counted(len(backups), 'backup')}, {backups[-1].name} to {backups[0].name}"
    return [Finding("backups", "good", f"{words}; evaldesk doctor --restore {LATEST} puts one in place")]


def look_at_runs(store: Store) -> list[Finding]:
    """The running runs: their places, the machines they were taken over from, and their losses."""
    return [_run_finding(store, run) for run in store.runs.unfinished_runs()[:MAX_RUNS]]


def _run_finding(store: Store, run: RunSummary) -> Finding:
    about, host = f"run {run.id}", host_of(run.driver)
    if run.driver == WAITING:
        return Finding(about, "untried", "waits for an open desk, or for its own process")
    if not is_held(store.runs, run):
        way = f"an open desk goes on with it, or `evaldesk run resume {run.id}`"
        return Finding(about, "warning", f"its process on {host or 'an unknown machine'} is gone; {way}")
    places = [f"{place.name}: {place_words(place)}" for place in run.places if place.state == "lost" or place.note]
    takeover = run.reason if run.reason.startswith(TAKEN_OVER) else ""
    notes = [note.rstrip(".") for note in (takeover, *places, again_sentence(run.n_played_again)) if note]
    words = f"played on {host}, {run.counts.done:,} of {run.n_trials:,} trials done"
    return Finding(about, "warning" if notes else "good", "; ".join((words, *notes)))


def _engine(facts: EngineFacts) -> Finding:
    """The engine, and a clock that differs so much that times of different people cannot be compared."""
    words = f"{facts.name}, tables of revision {facts.revision}"
    if abs(facts.ahead_s) < MOST_SKEW_S:
        return Finding("engine", "good", words)
    order = "ahead of" if facts.ahead_s > 0 else "behind"
    skew = f"its clock is {abs(facts.ahead_s):,.0f} s {order} this machine's"
    return Finding(
        "engine", "warning", f"{words}; {skew}, so times of this machine differ from those of others; set it"
    )


def look_at_lost_databases(path: Path) -> list[Finding]:
    """The processes whose database was deleted or replaced while they had it open; known where there is a /proc."""
    real = Path(os.path.realpath(path.parent), path.name)
    what = "replaced" if real.exists() else "deleted"
    findings = []
    for process, files in _open_files():
        log = files.get(f"{real}-wal")
        if (log or f"{real} (deleted)" in files) and (handle := _lost_file(real, files)):
            keep = f"cp {handle} kept.db" + (f"; cp {log} kept.db-wal" if log else "")
            sentence = (
                f"process {process} goes on with a database that was {what}; nobody can open it when the process ends"
            )
            findings.append(Finding("database", "bad", f"{sentence}. Keep it first: {keep}"))
    return findings


def _open_files() -> Iterator[tuple[str, Mapping[str, Path]]]:
    """The other processes of this user, each with its open files by their present names."""
    for folder in Path("/proc").glob("[0-9]*"):
        if folder.name != str(os.getpid()):
            with suppress(OSError):  # of another user, or over
                yield folder.name, {_name_of(handle): handle for handle in (folder / "fd").iterdir()}


def _name_of(handle: Path) -> str:
    """The name of an open file; that of a deleted log is the one it had."""
    name = str(handle.readlink())
    return name.removesuffix(" (deleted)") if name.endswith("-wal (deleted)") else name


def _lost_file(path: Path, files: Mapping[str, Path]) -> Path | None:
    """The database of a process that is not the file at `path`; None while it has that one."""
    with suppress(OSError):
        if path.exists() and any(handle.samefile(path) for handle in files.values()):
            return None
        deleted_file = files.get(f"{path} (deleted)")
        return deleted_file or next((handle for handle in files.values() if _is_database(handle)), None)
    return None


def _is_database(handle: Path) -> bool:
    if not handle.is_file():
        return False
    with handle.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def look_at_files(settings: Settings) -> list[Finding]:
    """The broken files of the workspace, and the repair of each."""
    return [
        Finding("files", "bad", f"{fault.fault}; evaldesk doctor --repair {fault.plan}")
        for fault in file_faults(settings)
    ]


def repair_files(settings: Settings) -> list[Finding]:
    """Repair a damaged database and each broken file. Raises WorkspaceError while a desk is open on it."""
    faults = [("database", fault) for fault in database_faults(settings)]
    faults += [("files", fault) for fault in file_faults(settings)]
    if not faults:
        return []
    with hold_workspace(settings.state_folder, url=""):
        return [_mend_fault(about, fault) for about, fault in faults]


def restore_backup(settings: Settings, trust: Trust, name: str) -> Finding:
    """Put a backup in the place of the database, whose rows count as those of others from then on.

    Raises WorkspaceError while a desk is open, and NotFoundError.
    """
    from evaldesk.store.recovery import restore

    if settings.store:
        raise UsageError(f"{settings.store} is on a server, which has backups of its own")
    backup = backup_named(settings.database_file, name, datetime.now(UTC))
    # A file of that name may have come with a repository: nothing in it was submitted by this user.
    trust.disown_rows()
    with hold_workspace(settings.state_folder, url=""):
        return Finding("database", "good", restore(settings.database_file, backup))


def _mend_fault(about: str, fault: Fault) -> Finding:
    try:
        return Finding(about, "good", fault.mend())
    except (EvaldeskError, OSError) as error:
        return Finding(about, "bad", f"{fault.fault}; it could not be repaired: {error}")


def look_at_trust(trust: Trust) -> list[Finding]:
    """Whether the folder holds something that nobody has trusted."""
    return [Finding("trust", "warning", f"this folder is not trusted; {NEXT_STEP}")] if trust.is_restricted else []


def look_at_agents(agents: Sequence[FoundAgent], *, is_played: bool = False) -> list[Finding]:
    """Whether each agent loads and has the keys it needs; silent on faults that only a turn shows."""
    findings = []
    for agent in agents:
        about = f"agent {agent.id}"
        if agent.state == "untrusted":
            findings.append(Finding(about, "warning", f"{agent.ref.folder or CONFIG_NAME} is not trusted; {NEXT_STEP}"))
        elif agent.error or agent.description is None:
            message = agent.error.message if agent.error else "it did not describe itself in time"
            is_named = not agent.ref.python or agent.ref.python in message
            message += "" if is_named else f"; it is played on {agent.ref.python}"
            findings.append(Finding(about, "bad", message))
        elif agent.description.missing:
            names = ", ".join(agent.description.missing)
            findings.append(Finding(about, "warning", f"{names} not set; its model calls will be refused"))
        elif _is_untried(agent.ref):
            if not is_played:
                findings.append(Finding(about, "untried", "not asked; `evaldesk doctor --play` plays one turn"))
        else:
            words = agent.description.model or "loads; it names no model"
            findings.append(Finding(about, "good", f"{words}{_played_on(agent.description.interpreter)}"))
        findings += [] if is_played or agent.description is None else _sight(agent.id, agent.visibility)
    return findings


async def play_agents(agents: Sequence[FoundAgent], trust: Trust, settings: Settings) -> list[Finding]:
    """The result of one turn of each described agent, and the reason why its players are not forked."""
    host = ChatPlayers(check=trust.check_agent)
    findings = []
    try:
        for agent in agents:
            if agent.description and not agent.error:
                findings += [*await _fork_findings(host, agent), *await _play_turn(host, agent, settings)]
    finally:
        await host.close()
    return findings


async def _fork_findings(host: ChatPlayers, agent: FoundAgent) -> list[Finding]:
    if not launcher_of(agent.ref).can_fork:
        return []
    with suppress(WorkerStartError):  # which its turn tells
        await host.try_to_fork(agent.ref)
    return [Finding(f"players {agent.id}", "good", agent.no_fork_reason)] if agent.no_fork_reason else []


async def _play_turn(host: ChatPlayers, agent: FoundAgent, settings: Settings) -> list[Finding]:
    initial = agent.description.initial_state if agent.description else {}
    spec = TurnSpec(
        "doctor",
        agent.ref,
        MESSAGE,
        state=dict(initial),
        model_options=settings.model_options,
        limits=settings.limits,
        observes=True,
    )
    record = None
    scrubbed = value_scrubber(settings.environment)  # what a worker sends is searched by its reader
    async for item in host.play_turn(spec):
        record = scrubbed(item) if isinstance(item, TurnRecord) else record
    about = f"turn {agent.id}"
    isolation = _isolation_findings(agent.id, host.loop_bound.get(agent.ref, ""))
    if record is None or record.error:
        return [
            Finding(about, "bad", record.error.message if record and record.error else "no answer"),
            *isolation,
        ]
    calls = ", ".join(call.name for call in record.tool_calls)
    n_tokens = sum(usage.tokens_in + usage.tokens_out for usage in record.usages)
    tokens = least_words(f"{n_tokens:,} tokens", any(usage.is_least for usage in record.usages))
    facts = [
        f"asked {MESSAGE!r}, it said {short_json(record.answer, MAX_SAID)}" if record.answer else "it said nothing",
        f"called {calls}" if calls else "",
        tokens if record.usages else "",
        duration_words(record.duration_ms),
    ]
    finding = Finding(about, "good" if record.answer else "warning", ", ".join(filter(None, facts)))
    return [finding, *_sight(agent.id, Transcript((record,)).visibility), *isolation]


def _isolation_findings(agent_id: str, loop_bound: str) -> list[Finding]:
    """Why an agent plays one trial a process with `isolation = "auto"`."""
    words = f"with isolation = 'auto' each trial has a process of its own: {loop_bound}"
    return [Finding(f"isolation {agent_id}", "good", words)] if loop_bound else []


def _sight(agent_id: str, visibility: Visibility) -> list[Finding]:
    """The parts of an agent that cannot be seen, and how to make them seen."""
    words = ". ".join((visibility.words, *visibility.steps))
    return [Finding(f"seen of {agent_id}", "warning", words)] if visibility.steps else []


def _is_untried(ref: AgentRef) -> bool:
    """Whether an agent describes itself without anything being asked where it is."""
    kind = AGENTS.find(ref.kind)
    return kind is not None and kind.is_remote and not kind.is_asked


def _played_on(interpreter: Interpreter) -> str:
    """The interpreter with its versions, where it is not the one of the first line."""
    return f"; played on {interpreter.path}: {interpreter.versions}" if interpreter.path else ""


async def play_on(settings: Settings, name: str) -> list[Finding]:
    """The machines of an executor, and the result of one trial of the sample agent there. Raises UsageError.

    Where its machines cannot be looked at, no trial is sent.
    """
    ref = named_ref(SAMPLE, {}, settings.workspace)
    plain_config = RunConfig(ref, "", criteria=(), concurrency=MAX_LOCAL, executor=ExecutorConfig(name))
    config = with_executor(plain_config, settings.executors)
    check_executor(config)
    where, kind = f"executor {name}", kind_of(config.executor)
    findings = [Finding(where, "good", kind.words(config.executor))]
    if kind.look:
        try:
            async with asyncio.timeout(PLAY_S):
                findings += _machines(where, *await kind.look(config))
        except (EvaldeskError, TimeoutError) as error:
            return [*findings, Finding(where, "bad", str(error) or f"no answer within {PLAY_S:g} s")]
    executor = open_executor(config, lambda each: LocalExecutor(1, each.concurrency), os.environ)
    case = Case("doctor", (Turn(MESSAGE),))
    try:
        async with asyncio.timeout(PLAY_S):
            await executor.submit(trial_spec(config, 0, case, 0, 0))
            result = await anext(executor.results())
        findings += [_place(place) for place in executor.places]
        findings.append(_trial_finding(f"trial on {name}", result, executor.end_reason))
    except TimeoutError:
        notes = [f"{place.name}: {place_words(place)}" for place in executor.places]
        findings.append(Finding(where, "bad", f"no answer within {PLAY_S:g} s; {'; '.join(notes)}"))
    except EvaldeskError as error:
        findings.append(Finding(where, "bad", str(error)))
    finally:
        await executor.close()
    return findings


def _machines(where: str, words: str, nodes: Sequence[Node]) -> Iterator[Finding]:
    yield Finding(where, "good" if nodes else "bad", words)
    for node in nodes:
        trouble = f"; {node.trouble}, so no trial is played there" if node.trouble else ""
        yield Finding(f"node {node.name}", "warning" if trouble else "good", node.words + trouble)


def _place(place: Place) -> Finding:
    states: Mapping[PlaceState, State] = {"up": "good", "starting": "untried", "lost": "warning"}
    return Finding(f"place {place.name}", states[place.state], place_words(place))


def _trial_finding(about: str, result: TrialResult, end_reason: str) -> Finding:
    if result.status != "finished":
        return Finding(about, "bad", result.error.message if result.error else end_reason or result.status)
    answer = " ".join(turn.answer for turn in result.transcript.turns)
    where = f" on {result.place}" if result.place else ""
    return Finding(about, "good", f"asked {MESSAGE!r}, the sample agent said {short_json(answer, MAX_SAID)}{where}")


def look_at_limits(settings: Settings, agents: Sequence[FoundAgent]) -> list[Finding]:
    """Which agents the time limit of a tool does not hold for, where one is set."""
    limit = settings.limits.tool_timeout_s
    unseen = [agent.id for agent in agents if agent.description and not _sees_tools(agent.description.kind)]
    if limit is None or not unseen:
        return []
    message = f"tool_timeout_s = {limit:g} does not hold for {', '.join(unseen)}, whose own calls of tools are not seen"
    return [Finding("limits", "warning", f"{message}; turn_timeout_s holds for all")]


def models_of(settings: Settings, agents: Iterable[FoundAgent]) -> list[str]:
    """The models that a run may ask: the agents' own, those of the settings, the judges, the simulated user."""
    own = [agent.description.model for agent in agents if agent.description and not agent.is_demo]
    model_names = [*own, *settings.models, *settings.allowed_judges, settings.user.model]
    return list(dict.fromkeys(name for name in model_names if name))


def look_at_keys(models: Iterable[str]) -> list[Finding]:
    """Whether the environment has the variables of each model's provider; never the value."""
    findings = []
    for model in models:
        missing_variables = missing_keys(model, os.environ)
        words = f"{', '.join(missing_variables)} not set" if missing_variables else "its key is set, or none is needed"
        findings.append(Finding(f"model {model}", "warning" if missing_variables else "good", words))
    return findings


async def call_models(models: Iterable[str], options: ModelOptions) -> list[Finding]:
    """The answer of each model to one small call."""
    findings = []
    for model in models:
        call = ModelCall(
            model,
            [{"role": "user", "content": "Say: ready"}],
            max_tokens=16,
            api_base=None if model.startswith(DEMO_PREFIX) else options.base_url,
            api_key_env=options.api_key_env,
            timeout_s=CALL_S,
            prices=options.prices,
        )
        try:
            reply = await complete(call, retry_policy=RetryPolicy(n_attempts=1))
        except ModelError as error:
            findings.append(Finding(f"call {model}", "bad", str(error)))
        else:
            cost = "at an unknown price" if reply.usage.cost is None else f"for ${reply.usage.cost:.6f}"
            words = f"answers in {duration_words(reply.usage.duration_ms)} {cost}"
            findings.append(Finding(f"call {model}", "good", words))
    return findings


def _packages() -> list[str]:
    """The packages of the frameworks that agents are written in."""
    return [kind.package for kind in AGENTS.builtin if kind.package]


def _sees_tools(kind: str) -> bool:
    agent_kind = AGENTS.find(kind)
    return agent_kind is not None and agent_kind.sees_tools


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


async def ask_agents(settings: Settings, trust: Trust) -> Sequence[FoundAgent]:
    """The agents, each described, failed or not trusted, in the order of their ids."""
    host = ChatPlayers(check=trust.check_agent)
    desk = AgentDesk(settings, host, trust)
    try:
        await desk.look_again()
        await desk.wait_until_ready()
        return desk.list()
    finally:
        await desk.close()
        await host.close()
