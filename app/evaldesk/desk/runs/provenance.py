"""Whether a stored run may be played here without a question: by the writer of its row, and by its parts.

A row of a database that other people write is a claim. It is played where this person started or accepted it, or where
this workspace itself finds or declares everything that it would run; any other waits for a person.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from evaldesk.desk.agents import found_refs
from evaldesk.desk.criteria.criteria import judges_of, more_judges, sends_keys
from evaldesk.desk.runs.plan import recordings_folder
from evaldesk.desk.trust import Trust
from evaldesk.durable_files import make_folder, replace_file
from evaldesk.engine.launch import in_environment
from evaldesk.errors import EvaldeskError, TrustError
from evaldesk.metrics import FUNCTION_OPTION, function_options, is_function
from evaldesk.model import AgentRef, Criterion, ModelOptions, RunConfig
from evaldesk.model.options import ADK_JUDGE, UserConfig
from evaldesk.model.run import EACH_IMAGE, ExecutorConfig
from evaldesk.model.stored import RunSummary
from evaldesk.paths import OURS, make_private_folder
from evaldesk.run_options import ISOLATIONS
from evaldesk.settings import Settings
from evaldesk.store.runs.run_store import imported_agent, is_imported
from evaldesk.wire import to_json

LOOK_S = 5.0
"""The agents of the workspace are looked for at most so often, for all rows together."""
MOST_CONSENTS = 2_000
"""Consents for runs of one database that are stored; the oldest go."""

_NOT_IN_DIGEST = frozenset({"note", "experiment", "evalset_id", "evalset_path", "evalset_version", "n_asserted"})
"""Names of data, which change after the start, as when an eval set is moved."""
_DATA = frozenset(
    {
        *_NOT_IN_DIGEST,
        *("n", "budget", "allocate", "pass_threshold", "concurrency", "limits", "agent_version", "functions_version"),
        *("agent_model", "seed", "errors_are_failures", "evaldesk_version", "source_run_id", "strict", "compat"),
        *("n_partly_asserted", "n_partly_planned", "allocated_from", "gates", "prompts", "shows_case"),
        "interpreter",
        "fork",
    }
)
"""Fields that name no code, no address, no path and no model; a field that is in no list here is taken as none."""
_DATA_OF_MODEL = frozenset(
    {"temperature", "top_p", "max_tokens", "reasoning_effort", "max_turns", "n_retries", "rpm", "tpm", "faults"}
    | {"price_in", "price_out", "instruction", "instructions"}
)
_DATA_OF_EXTRA = frozenset(
    {"top_k", "top_a", "min_p", "typical_p", "repetition_penalty", "frequency_penalty", "presence_penalty"}
    | {"length_penalty", "no_repeat_ngram_size", "seed", "stop", "min_tokens", "max_completion_tokens", "ignore_eos"}
    | {"skip_special_tokens", "logit_bias", "chat_template_kwargs", "reasoning", "reasoning_effort", "thinking"}
    | {"enable_thinking", "think", "verbosity", "parallel_tool_calls"}
)
"""Fields of a model call that say how a model samples and thinks; another may name a place, a tool or a model."""
_DATA_OF_USER = frozenset({"max_turns", "stop_signal", "instructions"})


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """A stored run that waits for a person.

    `differences` are the parts that this workspace neither finds nor declares: name, stored value, value here.
    `parts` are all names and values of the run, and `digest` is over them. Where nobody is named as its starter
    it `is_refused`.
    """

    run_id: int
    started_by: str
    differences: Sequence[tuple[str, str, str]]
    parts: Sequence[tuple[str, str]]
    digest: str

    @property
    def is_refused(self) -> bool:
        """Whether nobody may play it: its row names nobody as its starter."""
        return not self.started_by

    @property
    def sentence(self) -> str:
        """The reason why it waits."""
        if self.is_refused:
            return f"Run {self.run_id} names nobody who started it, so it is played nowhere."
        names = ", ".join(name for name, _, _ in self.differences)
        return (
            f"Run {self.run_id} was started by {self.started_by}. This workspace neither finds nor declares what it "
            f"would run ({names})."
        )


class Provenance:
    """The answers to the question whether stored runs may be played in this workspace."""

    def __init__(self, settings: Settings, trust: Trust) -> None:
        self._settings = settings
        self._trust = trust
        self._accepted_runs: set[tuple[int, str]] = set()
        self._refs: Mapping[str, AgentRef] = {}
        self._looked_at = -LOOK_S
        place = f"{settings.database if settings.store else settings.state_folder.resolve()}"
        self._consents = Consents(trust.state_home, place)

    def add(self, run_id: int, config: RunConfig) -> None:
        """Note that this person started the run, or accepted it as it is."""
        digest = run_digest(config)
        self._accepted_runs.add((run_id, digest))
        if not self._trust.is_database_ours:
            self._consents.add(run_id, digest)

    def take_word(self, run_id: int, digest: str) -> None:
        """Let this process play the run while it has this digest; the starting process had the consent."""
        self._accepted_runs.add((run_id, digest))

    def accept(self, run: RunSummary, digest: str) -> None:
        """Store a person's consent to the run. Raises TrustError where the run has changed since it was shown."""
        foreign_run = self.foreign(run)
        if foreign_run is None:
            return
        if foreign_run.is_refused:
            raise TrustError(f"{foreign_run.sentence} Start a run of your own of the same eval set instead.")
        if digest != foreign_run.digest:
            raise TrustError(
                f"run {run.id} has changed since it was shown: it was {digest[:12]}, and is {foreign_run.digest[:12]}; "
                "read it again"
            )
        self.add(run.id, run.config)

    def foreign(self, run: RunSummary) -> ForeignRun | None:
        """The parts of the run that wait for a person; None where it may be played."""
        if self._trust.is_database_ours:
            return None
        differences = () if self._has_consent(run) else tuple(self._differences(run.config))
        if run.started_by and not differences:
            return None
        parts = tuple(flat_parts(run.config).items())
        return ForeignRun(run.id, run.started_by, differences, parts, run_digest(run.config))

    def is_allowed(self, run: RunSummary) -> bool:
        """Whether the run may be played."""
        try:
            self.check(run)
        except TrustError:
            return False
        return True

    def check(self, run: RunSummary) -> None:
        """Raise TrustError for a run that somebody else may have written, and that waits for a person."""
        foreign_run = self.foreign(run)
        if foreign_run is None and self._has_consent(run):
            return
        self._trust.check_runs()
        if foreign_run is None:
            return
        if foreign_run.is_refused:
            raise TrustError(f"{foreign_run.sentence} Start a run of your own of the same eval set instead.")
        raise TrustError(
            f"{foreign_run.sentence} Read it on its page, which has a button, or "
            f"`evaldesk run resume {run.id}` in a terminal, or add --accept {foreign_run.digest}"
        )

    def own_part(self, run: RunSummary) -> RunConfig:
        """The configuration of the run without the parts that would wait for a person.

        Another run may be like it: all copied parts are of this workspace.
        """
        return run.config if self.foreign(run) is None else self._resolve(run.config)

    def _has_consent(self, run: RunSummary) -> bool:
        """Whether this person started or accepted the run as it is now."""
        if self._trust.is_database_ours:
            return True
        digest = run_digest(run.config)
        return (run.id, digest) in self._accepted_runs or self._consents.has(run.id, digest)

    def _differences(self, config: RunConfig) -> Iterator[tuple[str, str, str]]:
        """The parts of a stored run that differ from this workspace's own ones under the same names."""
        stored_parts, here = flat_parts(config), flat_parts(self._resolve(config))
        for name in dict.fromkeys((*stored_parts, *here)):
            if stored_parts.get(name, "") != here.get(name, ""):
                yield name, stored_parts.get(name, ""), here.get(name, "")
        if config.agent.commands and config.agent.commands.image == EACH_IMAGE:
            yield "agent.commands.image", "the images that the cases name", ""

    def _resolve(self, config: RunConfig) -> RunConfig:
        """The run as this workspace has its agent, models, functions and places by their names."""
        settings = self._settings
        start = RunConfig(config.agent, config.evalset_id)
        data: dict[str, Any] = {name: getattr(config, name) for name in _DATA}
        agent = self._agent(config)
        models = ("", *settings.models)
        return replace(
            start,
            **data,
            agent=agent,
            isolation=_own_isolation(config.isolation, agent.isolation or settings.isolation),
            environment=config.environment if config.environment in (OURS, *settings.environments) else "",
            model=config.model if (config.model or "") in models else None,
            model_options=_own_options(config.model_options, settings.model_options),
            user=_own_user(config.user, settings),
            recording=replace(config.recording, folder=str(recordings_folder(settings))),
            executor=settings.executors.get(config.executor.name, ExecutorConfig()),
            criteria=tuple(filter(None, (self._criterion(each, config) for each in config.criteria))),
        )

    def _agent(self, config: RunConfig) -> AgentRef:
        """The agent of that id as this workspace finds it; without a place where it finds none.

        A re-score plays none, so that its name is enough.
        """
        stored_ref = config.agent
        nowhere = imported_agent(stored_ref.id) if is_imported(config) else AgentRef(stored_ref.id, "")
        if config.source_run_id is not None and stored_ref == nowhere:
            return nowhere
        ref = self._find_refs().get(stored_ref.id)
        if ref is None or not self._trust.allows(ref):
            return nowhere
        try:
            return in_environment(ref, self._settings, config.environment) if config.environment else ref
        except EvaldeskError:
            return nowhere

    def _find_refs(self) -> Mapping[str, AgentRef]:
        if time.monotonic() - self._looked_at >= LOOK_S:
            self._refs = {ref.id: ref for ref in found_refs(self._settings)}
            self._looked_at = time.monotonic()
        return self._refs

    def _criterion(self, criterion: Criterion, config: RunConfig) -> Criterion | None:
        """The criterion as the settings have it by its name; None for a function that they have not."""
        settings = self._settings
        if is_function(criterion):
            target = settings.functions.get(criterion.metric)
            if target is None or "source" in criterion.options:
                return None
            place = str(criterion.options.get("root", ""))
            own = {"", str(settings.workspace), self._agent(config).root}
            options = {**criterion.options, **function_options(target), FUNCTION_OPTION: target}
            return replace(criterion, options=options | ({"root": place if place in own else ""} if place else {}))
        judges = {"", ADK_JUDGE, *settings.allowed_judges}
        judge_names = [*judges_of(criterion), *more_judges(criterion)]
        is_own = all(judge in judges for judge in judge_names) and not sends_keys(criterion.options)
        return criterion if is_own else replace(criterion, options={})


def _own_isolation(isolation: str, own: str) -> str:
    """The stored isolation where its walls are at least those of this workspace."""
    return isolation if isolation in ISOLATIONS[ISOLATIONS.index(own) :] else own


def _own_options(options: ModelOptions, own: ModelOptions) -> ModelOptions:
    """The options, with the address and the variable of the key together from the settings."""
    data = {name: getattr(options, name) for name in _DATA_OF_MODEL}
    pairs = ((None, None), (own.base_url, own.api_key_env))
    pair = (options.base_url, options.api_key_env)
    base_url, api_key_env = pair if pair in pairs else pairs[0]
    is_data = options.extra.keys() <= _DATA_OF_EXTRA and not _names_place(options.extra)
    extra = options.extra if is_data or options.extra == own.extra else {}
    return ModelOptions(**data, base_url=base_url, api_key_env=api_key_env, extra=extra)


def _own_user(user: UserConfig, settings: Settings) -> UserConfig:
    own = settings.user
    data: dict[str, Any] = {name: getattr(user, name) for name in _DATA_OF_USER}
    model = user.model if user.model in ("", own.model, *settings.models) else own.model
    return settings.with_user_models(UserConfig(**data, model=model, options=_own_options(user.options, own.options)))


def _names_place(value: object) -> bool:
    """Whether a value that is sent along with model calls holds an address or a key."""
    if isinstance(value, Mapping):
        return any(_names_key(str(key)) or _names_place(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return any(map(_names_place, value))
    return isinstance(value, str) and "://" in value


def _names_key(name: str) -> bool:
    return any(part in name.lower() for part in ("key", "base", "url", "host", "endpoint", "header"))


def run_digest(config: RunConfig) -> str:
    """The digest of everything that a run would do. A moved, renamed or noted run keeps it."""
    return hashlib.sha256(to_json(_as_json(config))).hexdigest()[:32]


def flat_parts(config: RunConfig) -> dict[str, str]:
    """The names and values of everything that a run would do, without usual ones: `agent.target`."""
    return {name: value for name, value in _flat("", _as_json(config)) if value}


def _as_json(value: Any) -> Any:
    """The value as JSON without defaults, so that a field of a later version changes no digest."""
    if isinstance(value, RunConfig):
        value = replace(value, recording=replace(value.recording, folder=""))
    if not is_dataclass(value) or isinstance(value, type):
        return [_as_json(each) for each in value] if isinstance(value, tuple | list) else value
    values = ((each.name, getattr(value, each.name), each) for each in fields(value))
    omitted_names = _NOT_IN_DIGEST if isinstance(value, RunConfig) else frozenset()
    return {
        name: _as_json(content)
        for name, content, each in values
        if name not in omitted_names and content != _default(each)
    }


def _default(field: Field[Any]) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), each)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value, 1):
            yield from _flat(f"{name}.{number}", each)
    else:
        yield name, value if isinstance(value, str) else to_json(value).decode()


class Consents:
    """The runs of one database that this person started or accepted, each with its digest, in the state of the person.

    Nothing is stored where there is no home: the consent then holds for its process.
    """

    def __init__(self, home: Path | None, database: str) -> None:
        name = hashlib.sha256(database.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._folder = home / "runs" / name if home else None

    def has(self, run_id: int, digest: str) -> bool:
        """Whether the run was started or accepted as it is."""
        try:
            return bool(self._folder) and digest in self._path(run_id).read_text("ascii").split()
        except (OSError, UnicodeDecodeError):
            return False

    def add(self, run_id: int, digest: str) -> None:
        """Store the consent for one run; another one for the same run is replaced."""
        if self._folder is None:
            return
        with suppress(OSError):
            make_private_folder(self._folder.parents[1])
            make_folder(self._folder.parent)
            make_folder(self._folder)
            replace_file(self._path(run_id), f"{digest}\n".encode(), mode=0o600)
            self._prune(run_id)

    def _path(self, run_id: int) -> Path:
        return (self._folder or Path(os.devnull)) / str(run_id)

    def _prune(self, run_id: int) -> None:
        if run_id % 100 or self._folder is None:
            return
        entries = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(self._folder))
        for _, path in entries[:-MOST_CONSENTS]:
            os.unlink(path)
