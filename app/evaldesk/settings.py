"""The settings of a person: the workspace, the folders of agents, the models that may be chosen."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from evaldesk.errors import VALUE_LIMIT, UsageError
from evaldesk.model import Container, Limits, ModelOptions
from evaldesk.model.client_budget import Budget
from evaldesk.model.options import Recording, RecordingMode, UserConfig
from evaldesk.model.proposals import is_name_of_client
from evaldesk.model.run import ExecutorConfig, checked_container
from evaldesk.paths import OURS, SAMPLES_FOLDER, interpreter_path
from evaldesk.run_options import AUTO, BY_NAME, KEEP, RUN_OPTIONS, check_fields
from evaldesk.toml_text import parse_toml
from evaldesk.wire import converted

T = TypeVar("T")

CONFIG_NAME = "evaldesk.toml"
MOST_RUNS = 64
_NAME = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)
SOURCE_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)
"""The name of a source of conversations."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
KEYS = frozenset(
    {
        "models",
        "model",
        "user",
        "judges",
        "metrics",
        "agents",
        "recording",
        "prompts",
        "limits",
        "python",
        "image",
        "isolation",
        "container",
        "executors",
        "environments",
        "runs_at_once",
        "store",
        "public_url",
        "mcp",
        "inbox",
    }
)


ME_VARIABLE = "EVALDESK_ME"
MAX_NAME = 80
CLIENT_GROUPS = ("run", "propose")
"""The groups of tools that a person allows to coding agents."""
"""Letters in the name of a person."""
STORE_VARIABLE = "EVALDESK_STORE"
PUBLIC_URL_VARIABLE = "EVALDESK_PUBLIC_URL"
_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\]", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEMES = ("postgresql", "postgres")
_URL_OPTIONS = frozenset({"sslmode", "sslrootcert", "connect_timeout", "target_session_attrs"})


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A database of PostgreSQL. Its text has no password; `host` may be the folder of a socket.

    Without a password the driver asks PGPASSWORD and the file of passwords, without a user the one of this process.
    """

    host: str
    database: str
    port: int | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        place = "" if self.host.startswith("/") else self.host
        place = f"[{place}]" if ":" in place else place
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        options = ((("host", self.host),) if self.host.startswith("/") else ()) + self.options
        query = f"?{urlencode(options, safe='/')}" if options else ""
        return f"postgresql://{user}{place}{port}/{quote(self.database, safe='')}{query}"


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """The address by which browsers reach the desk through a proxy; its text has no path."""

    scheme: str
    host: str
    port: int

    @property
    def authorities(self) -> frozenset[str]:
        """The values of Host that browsers send."""
        full = f"{self.host}:{self.port}"
        return frozenset({full, self.host}) if self.port == _DEFAULT_PORTS[self.scheme] else frozenset({full})

    def __str__(self) -> str:
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


@dataclass(frozen=True, slots=True)
class Environment:
    """A place to play agents in: an interpreter of this machine, as the file writes it, or a container."""

    python: str = ""
    container: Container | None = None


@dataclass(frozen=True, slots=True)
class McpSettings:
    """Whether an open desk answers coding agents at /mcp, with which groups of tools, and their budget of a day."""

    serve: bool = False
    allow: tuple[str, ...] = ()
    budget: str = ""


@dataclass(frozen=True, slots=True)
class InboxScoring:
    """How conversations of running agents are scored, and when the alarm rings.

    Criteria without a model score all conversations, those with one a `sample` of them (0 to 1), and with `errors` each
    conversation with an error; `judge_budget` such as `2usd/day` bounds their judges. The alarm rings where the pass
    rate fell below `bar`, with at most `alpha` false alarms a scored conversation.
    """

    criteria: dict[str, object] = field(default_factory=dict)
    sample: float = 0.1
    errors: bool = False
    judge_budget: str = ""
    bar: float = 0.85
    alpha: float = 0.0001


@dataclass(frozen=True, slots=True)
class InboxPull:
    """The traces of a hosted tool that an open inbox of a trusted folder pulls each hour.

    `tool` is its name, empty where the table has it. `url` and `project` are by default those of the environment
    variables of the tool. `keys` names the environment variables of the keys, in place of the usual ones. `since` is
    where the first pull begins, such as `7d`, `where` a filter of conversations.
    """

    tool: str = ""
    url: str = ""
    project: str = ""
    keys: tuple[str, ...] = ()
    since: str = "7d"
    where: str = ""


@dataclass(frozen=True, slots=True)
class InboxSettings:
    """Whether a desk takes the spans of running agents, where, and for how long it holds their conversations.

    `mask` has names of masks and regular expressions. `keep_days` 0 is until they are deleted, `max_mb` bounds all of
    them. A conversation is closed after `quiet_min` minutes without a span. `score` says how they are scored; a new
    alarm starts the command `on_alarm`, and scores are sent to the address `emit`, both of a trusted folder alone.
    `pull` has hosted tools by the names of their sources.
    """

    listen: bool = False
    host: str = "127.0.0.1"
    port: int = 4318
    mask: tuple[str, ...] = ()
    keep_days: float = 30.0
    max_mb: int = 2000
    quiet_min: float = 10.0
    score: InboxScoring | None = None
    on_alarm: tuple[str, ...] = ()
    emit: str = ""
    pull: Mapping[str, InboxPull] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a desk works. `roots` are the folders searched for agents and eval sets.

    `workspace` holds the `.evaldesk` folder with the database, `evalset_folder` is where new eval sets are written.
    `n_workers` processes play a run, `n_warm_workers` wait for the next one; `n_runs_at_once` are played by one
    desk. `models` are the names a run form offers
    beside each agent's own; a browser can name no other. `model_options` hold for every chat and run without its own,
    `limits` bound their turns, tools and judges, `user` plays the cases that have a scenario. `judges` are the models
    that may judge, the first of them unless a criterion names another. `functions` are the user's own metrics, name by
    `module:attr`: a browser can choose these and no others. `agents` are the tables of declared agents by their names.
    `python` is the interpreter that agents are played on, where they name none of their own; empty is that of their
    project, or Evaldesk's own. `container` is where agents are played, where they name no other image; one without an
    image only bounds those of agents that do. `environments` are other interpreters and images, and `executors` other
    places where runs may be played, by name; a browser can choose these names and no others. `recording` says whether
    runs record the answers of models and tools, or answer from a recording. `store` is a database on a server, in the
    place of the SQLite file; `is_store_of_file` says that `evaldesk.toml` names it, and not this user's environment.
    `public_url` is the address of a proxy in front of the desk; `is_public_url_of_file` says the same of it. `me` is
    the name of the person who works here; empty
    is the user of the process. `mcp` says whether an open desk serves coding agents, `inbox` whether it takes spans.
    """

    workspace: Path
    roots: tuple[Path, ...]
    models: tuple[str, ...] = ()
    model_options: ModelOptions = field(default_factory=ModelOptions)
    limits: Limits = field(default_factory=Limits)
    user: UserConfig = field(default_factory=UserConfig)
    recording: Recording = field(default_factory=Recording)
    judges: tuple[str, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    python: str = ""
    container: Container = field(default_factory=Container)
    isolation: str = AUTO
    prompts: str = KEEP
    environments: Mapping[str, Environment] = field(default_factory=dict)
    executors: Mapping[str, ExecutorConfig] = field(default_factory=dict)
    n_workers: int = 2
    n_warm_workers: int = 0
    n_runs_at_once: int = 3
    is_demo: bool = False
    has_found_none: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    store: DatabaseUrl | None = None
    is_store_of_file: bool = False
    me: str = ""
    public_url: PublicUrl | None = None
    is_public_url_of_file: bool = False
    mcp: McpSettings = field(default_factory=McpSettings)
    inbox: InboxSettings = field(default_factory=InboxSettings)

    def with_user_models(self, user: UserConfig) -> UserConfig:
        """The simulated user with the models that a case may name: data chooses no others."""
        return replace(
            user, models=tuple(dict.fromkeys(filter(None, (self.user.model, *self.user.models, *self.models))))
        )

    @property
    def allowed_judges(self) -> tuple[str, ...]:
        """The models that may judge; those of the agents where no others are named."""
        return self.judges or self.models

    @property
    def state_folder(self) -> Path:
        """The folder of the database, logs and trash: `.evaldesk` in the workspace."""
        return self.workspace / ".evaldesk"

    @property
    def is_shared(self) -> bool:
        """Whether other workspaces may have the same database."""
        return self.store is not None

    @property
    def database(self) -> Path | DatabaseUrl:
        """The database of PostgreSQL, or the SQLite file."""
        return self.store or self.database_file

    @property
    def database_file(self) -> Path:
        """The SQLite file, which is not there where the database is another."""
        return self.state_folder / "evaldesk.db"

    @property
    def evalset_folder(self) -> Path:
        """Where new eval sets are written: `evalsets` in the workspace, or beside the database for the samples."""
        return self.samples_folder if self.is_demo else self.workspace / "evalsets"

    @property
    def samples_folder(self) -> Path:
        """The person's copies of the samples' eval sets, which is not there before the samples were served."""
        return self.workspace / SAMPLES_FOLDER


def read_settings(
    workspace: Path,
    roots: tuple[Path, ...],
    *,
    environment: Mapping[str, str],
    n_workers: int = 2,
) -> Settings:
    """Settings from `evaldesk.toml` in the workspace, where there is one, and the environment.

    Its keys are KEYS. `[model]`, `[user]`, `[limits]` and `[container]` have the fields of ModelOptions, UserConfig,
    Limits and Container, `[metrics]` has name = "module:attr", `[agents]` has `folders` to look in and a table for each
    declared agent, `[environments.NAME]` has `python`, or `image` with fields of Container, `[executors.NAME]` has
    `kind` and the keys of that kind, `[store]` has `url` and `me`. `EVALDESK_STORE` and `EVALDESK_ME` replace these,
    `EVALDESK_PUBLIC_URL` replaces `public_url`, `EVALDESK_RECORDING` the mode. `EVALDESK_MODELS` and `EVALDESK_JUDGES`
    add names, separated by commas. Raises UsageError naming the file and key when one is wrong.
    """
    table = _read_toml(workspace / CONFIG_NAME)
    path = workspace / CONFIG_NAME
    models = _names("models", table, path) + _split_names(environment.get("EVALDESK_MODELS", ""))
    judges = _names("judges", table, path) + _split_names(environment.get("EVALDESK_JUDGES", ""))
    folders, agents = _agents(table.get("agents", {}), path)
    return Settings(
        workspace=workspace,
        roots=tuple(dict.fromkeys((*roots, *folders))),
        agents=agents,
        models=tuple(dict.fromkeys(models)),
        model_options=_converted(table.get("model", {}), ModelOptions, path, "model"),
        limits=_limits(table.get("limits", {}), path),
        user=_converted(table.get("user", {}), UserConfig, path, "user"),
        recording=_recording(environment.get("EVALDESK_RECORDING"), table, path),
        judges=tuple(dict.fromkeys(judges)),
        functions=_functions(table.get("metrics", {}), path),
        python=_python(table.get("python", ""), path),
        container=_container(table, path),
        isolation=_choice("isolation", table, path),
        prompts=_choice("prompts", table, path),
        environments=_environments(table, path),
        executors=_executors(table.get("executors", {}), path),
        n_runs_at_once=_runs_at_once(table.get("runs_at_once", 3), path),
        n_workers=n_workers,
        environment=dict(environment),
        store=_store(environment.get(STORE_VARIABLE, ""), table.get("store", {}), path),
        me=_me(table.get("store", {}), environment, path),
        is_store_of_file=not environment.get(STORE_VARIABLE) and "url" in _table(table.get("store")),
        public_url=_public_url(environment.get(PUBLIC_URL_VARIABLE, ""), table.get("public_url", ""), path),
        is_public_url_of_file=not environment.get(PUBLIC_URL_VARIABLE) and "public_url" in table,
        mcp=_mcp(table.get("mcp", {}), path),
        inbox=_inbox(table.get("inbox", {}), path),
    )


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _mcp(value: object, path: Path) -> McpSettings:
    settings: McpSettings = _converted(value, McpSettings, path, "mcp")
    unknown = [name for name in settings.allow if name not in CLIENT_GROUPS]
    if unknown:
        raise UsageError(f"{path}: [mcp] allow may have {' and '.join(CLIENT_GROUPS)}, got {unknown[0]!r}")
    if "run" in settings.allow and not settings.budget:
        raise UsageError(f'{path}: [mcp] allow has run, which needs a budget such as budget = "5usd/day"')
    return settings


def _inbox(value: object, path: Path) -> InboxSettings:
    own = {name: each for name, each in _table(value).items() if name not in ("score", "pull")}
    settings: InboxSettings = _converted(own if isinstance(value, dict) else value, InboxSettings, path, "inbox")
    if "score" in _table(value):
        settings = replace(settings, score=_inbox_scoring(_table(value)["score"], path))
    if "pull" in _table(value):
        settings = replace(settings, pull=_inbox_pulls(_table(value)["pull"], path))
    if settings.emit and not is_safe_address(settings.emit):
        raise UsageError(f"{path}: [inbox] emit is an https address, or an http address of this machine")
    if settings.on_alarm and not settings.on_alarm[0].strip():
        raise UsageError(f'{path}: [inbox] on_alarm is a command and its arguments, such as ["notify-send", "alarm"]')
    if not 0 <= settings.port < 2**16:
        raise UsageError(f"{path}: [inbox] port is 0 to 65535, got {settings.port}")
    if not 0 <= settings.keep_days <= 36_500 or not settings.max_mb > 0 or not 0 < settings.quiet_min <= 1440:
        raise UsageError(f"{path}: [inbox] keep_days is 0 or more, max_mb above 0, quiet_min above 0 and at most 1440")
    return settings


def _inbox_pulls(value: object, path: Path) -> Mapping[str, InboxPull]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: [inbox.pull] has a table for each source, such as [inbox.pull.langfuse]")
    pulls: dict[str, InboxPull] = {}
    for name, table in value.items():
        if not SOURCE_NAME.fullmatch(name):
            raise UsageError(f"{path}: [inbox.pull.{name[:VALUE_LIMIT]}]: a source has letters, digits, - _ and .")
        pull: InboxPull = _converted(table, InboxPull, path, f"inbox.pull.{name}")
        if pull.url and not is_safe_address(pull.url):
            raise UsageError(f"{path}: [inbox.pull.{name}] url is an https address, or an http address of this machine")
        if any(not _VARIABLE.fullmatch(each) for each in pull.keys):
            raise UsageError(f"{path}: [inbox.pull.{name}] keys are names of environment variables, and no keys")
        pulls[name] = replace(pull, tool=pull.tool or name)
    return pulls


def _inbox_scoring(value: object, path: Path) -> InboxScoring:
    scoring: InboxScoring = _converted(value, InboxScoring, path, "inbox.score")
    if not scoring.criteria:
        raise UsageError(f"{path}: [inbox.score] needs criteria, such as criteria = {{ turn_count = 5 }}")
    if not 0 <= scoring.sample <= 1:
        raise UsageError(f"{path}: [inbox.score] sample is a share from 0 to 1, got {scoring.sample:g}")
    if not (0 < scoring.bar < 1 and 0 < scoring.alpha < 1):
        raise UsageError(f"{path}: [inbox.score] bar and alpha lie between 0 and 1")
    if scoring.judge_budget:
        try:
            Budget.read(scoring.judge_budget)
        except UsageError:
            raise UsageError(
                f'{path}: [inbox.score] judge_budget is the dollars of a day, such as "2usd/day"'
            ) from None
    return scoring


def is_safe_address(text: str) -> bool:
    """Whether an address is https, or http of this machine, without a user in it."""
    try:
        address = urlsplit(text)
        host, _ = address.hostname or "", address.port
    except ValueError:
        return False
    is_loopback = host in {"localhost", "::1"} or _is_loopback_number(host)
    has_scheme = address.scheme == "https" or (address.scheme == "http" and is_loopback)
    return has_scheme and bool(host) and text.isprintable() and " " not in text and "@" not in address.netloc


def _is_loopback_number(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _me(table: object, environment: Mapping[str, str], path: Path) -> str:
    """The name of the person: `EVALDESK_ME`, else `[store] me`; empty where the user of the process says it."""
    name = environment.get(ME_VARIABLE) or _table(table).get("me", "")
    if not isinstance(name, str) or len(name) > MAX_NAME or not name.isprintable():
        raise UsageError(f"{path}: [store] me is a name of at most {MAX_NAME} letters, such as anna")
    if is_name_of_client(name):
        place = ME_VARIABLE if environment.get(ME_VARIABLE) else f"{path}: [store] me"
        raise UsageError(f"{place}: {name!r} is a name of a coding agent; write that of a person")
    return " ".join(name.split())


def _store(url_text: str, table: object, path: Path) -> DatabaseUrl | None:
    """The database of the environment variable, else that of `[store]`; None for the SQLite file."""
    if url_text:
        return database_url(url_text, STORE_VARIABLE)
    if not isinstance(table, dict) or set(table) - {"url", "me"} or not isinstance(table.get("url", ""), str):
        raise UsageError(f'{path}: [store] may have the keys me and url, such as url = "postgresql://db.example/evals"')
    if not table.get("url"):
        return None
    url = database_url(table["url"], f"{path}: [store] url")
    if url.password:
        raise UsageError(
            f"{path}: [store] url holds a password; leave it out, and give it in PGPASSWORD or ~/.pgpass, or the whole "
            f"address in {STORE_VARIABLE}"
        )
    return url


def _public_url(variable: str, value: object, path: Path) -> PublicUrl | None:
    if variable:
        return public_url(variable, PUBLIC_URL_VARIABLE)
    return public_url(value, f"{path}: public_url") if value else None


def public_url(text: object, where: str) -> PublicUrl:
    """The address that a person wrote at `where`. Raises UsageError."""
    refusal = UsageError(
        f'{where} is the address that browsers open, such as "https://evals.example", got {text!r:.80}'
    )
    if not isinstance(text, str):
        raise refusal
    try:
        parts = urlsplit(text.strip())
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise refusal from None
    host = f"[{host}]" if ":" in host else host
    is_plain = parts.path in ("", "/") and not (parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in _DEFAULT_PORTS or not _HOST_NAME.fullmatch(host) or not is_plain:
        raise refusal
    return PublicUrl(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme])


def database_url(text: str, where: str) -> DatabaseUrl:
    """The address in `text`; `where` names its place in messages, which never hold the text. Raises UsageError."""
    try:
        parts = urlsplit(text)
        port, query = parts.port, parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise UsageError(f"{where} is not an address of the form {_FORM}") from error
    names = [name for name, _ in query]
    host = dict(query).get("host", "") or unquote(parts.hostname or "")
    database = unquote(parts.path.removeprefix("/"))
    is_formed = parts.scheme in _SCHEMES and database and "/" not in database and not parts.fragment
    if not is_formed or len(names) != len(set(names)) or "\0" in unquote(text):
        raise UsageError(f"{where} is not an address of the form {_FORM}")
    unknown = sorted({*names} - _URL_OPTIONS - {"host"})
    if unknown:
        raise UsageError(f"{where}: unknown option {unknown[0]!r}; known: host, {', '.join(sorted(_URL_OPTIONS))}")
    options = tuple(pair for pair in query if pair[0] != "host")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return DatabaseUrl(host, database, port, user, password, options)


_FORM = "postgresql://USER@HOST:PORT/DATABASE"


def _read_toml(path: Path) -> Mapping[str, object]:
    if not path.is_file():
        return {}
    try:
        table = parse_toml(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from error
    unknown = set(table) - KEYS
    if unknown:
        raise UsageError(f"{path}: unknown key {min(unknown)!r}; known keys: {', '.join(sorted(KEYS))}")
    return table


def _converted(value: object, kind: type[T], path: Path, name: str) -> T:
    """The table `[name]` as a value of the dataclass `kind`."""
    field_names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(value, dict) or set(value) - field_names:
        raise UsageError(f"{path}: [{name}] may have the keys {', '.join(sorted(field_names))}")
    try:
        return converted(value, kind)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{path}: [{name}]: {error}") from error


def _limits(value: object, path: Path) -> Limits:
    limits = _converted(value, Limits, path, "limits")
    try:
        check_fields("limits", limits, (option for option in RUN_OPTIONS if option.path.startswith("limits.")))
    except UsageError as error:
        raise UsageError(f"{path}: [limits]: {error}") from error
    return limits


def _recording(mode: str | None, table: Mapping[str, object], path: Path) -> Recording:
    return Recording(cast("RecordingMode", _choice("recording", {"recording": mode} if mode else table, path)))


def _choice(name: str, table: Mapping[str, object], path: Path) -> str:
    """The value of a run option that is one of a few words."""
    option = BY_NAME[name]
    value = table.get(name, option.default)
    try:
        return str(option.check(value, f"{path}: {name}"))
    except UsageError:
        raise UsageError(f"{path}: {name} is one of {', '.join(option.choices)}, not {value!r}") from None


def _runs_at_once(value: object, path: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_RUNS:
        raise UsageError(f"{path}: runs_at_once is a whole number, 1 to {MOST_RUNS}, not {value!r}")
    return value


def _executors(value: object, path: Path) -> Mapping[str, ExecutorConfig]:
    """The executors by name; their kinds check the other keys at first use."""
    if not isinstance(value, dict):
        raise UsageError(f"{path}: executors are tables such as [executors.cluster], each with a kind")
    executors = {}
    for name, table in value.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{path}: [executors.{name}]: a name has letters, digits, _ and -")
        if not isinstance(table, dict) or not isinstance(table.get("kind"), str):
            raise UsageError(f'{path}: [executors.{name}] has a kind, such as kind = "ray"')
        executors[name] = ExecutorConfig(name, table["kind"], {key: table[key] for key in table if key != "kind"})
    return executors


def _environments(table: Mapping[str, object], path: Path) -> Mapping[str, Environment]:
    """The environments by name; whether there is an interpreter is seen when one is asked for."""
    value = table.get("environments", {})
    if not isinstance(value, dict):
        raise UsageError(f"{path}: environments are tables such as [environments.shop], each with python or image")
    environments = {}
    for name, entry in value.items():
        place = f"{path}: [environments.{name}]"
        if not _NAME.fullmatch(name) or name == OURS:
            raise UsageError(f"{place}: a name has letters, digits, _ and -, and {OURS} is Evaldesk's own interpreter")
        if not isinstance(entry, dict) or ("python" in entry) == ("image" in entry):
            raise UsageError(f'{place} has one of python = "../shop/.venv" and image = "shop:7"')
        key = "python" if "python" in entry else "image"
        if not isinstance(entry[key], str) or not entry[key]:
            raise UsageError(f"{place}: {key} is a text, not {entry[key]!r}")
        if key == "image":
            bounds = {**_table(table.get("container")), **entry}
            environments[name] = Environment(container=_checked_container(bounds, path, f"environments.{name}"))
        elif len(entry) > 1:
            raise UsageError(f"{place}: beside python nothing else may be said")
        else:
            environments[name] = Environment(entry["python"])
    return environments


def _checked_container(table: Mapping[str, object], path: Path, name: str) -> Container:
    try:
        return checked_container(_converted(table, Container, path, name))
    except UsageError as error:
        raise error if str(path) in str(error) else UsageError(f"{path}: [{name}]: {error}") from error


def _python(value: object, path: Path) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{path}: python is the path of an interpreter, not {value!r}")
    try:
        return interpreter_path(value, path.parent)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _container(table: Mapping[str, object], path: Path) -> Container:
    container = _converted(table.get("container", {}), Container, path, "container")
    image = table.get("image", "")
    if container.image:
        raise UsageError(
            f"{path}: [container] bounds all containers; write image = {container.image!r} above the tables"
        )
    if not isinstance(image, str):
        raise UsageError(f"{path}: image is the name of an image, not {image!r}")
    if image and table.get("python"):
        raise UsageError(
            f"{path}: python is an interpreter of this machine, and image has one of its own; leave one out"
        )
    try:
        return checked_container(replace(container, image=image))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _names(key: str, table: Mapping[str, object], path: Path) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{path}: {key} must be a list of strings")
    return tuple(value)


def _agents(value: object, path: Path) -> tuple[list[Path], Mapping[str, Mapping[str, object]]]:
    tables = dict(value) if isinstance(value, dict) else None
    if tables is None:
        raise UsageError(f"{path}: agents is a table: [agents] with folders, and [agents.NAME] for each agent")
    folders = [(path.parent / name).resolve() for name in _names("folders", tables, path)]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{path}: [agents]: folders: {folder} is not a folder")
    tables.pop("folders", None)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{path}: [agents]: {name} is not a table; declare the agent under [agents.{name}]")
    return folders, tables


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _functions(value: object, path: Path) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise UsageError(f'{path}: [metrics] is a table of functions, such as exact = "rewards:exact"')
    for name, target in value.items():
        module, colon, attribute = target.partition(":") if isinstance(target, str) else ("", "", "")
        if not (_NAME.fullmatch(name) and module and colon and attribute):
            raise UsageError(
                f'{path}: [metrics]: {name} = {target!r} is not of the form name = "module:function", the name in '
                "letters, digits, _ and -"
            )
    return dict(value)
