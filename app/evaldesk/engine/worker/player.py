"""Loads an agent and plays it: one turn of a session, or all turns of a case with their user.

A failure of the agent becomes a value.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from evaldesk.agents.agent import (
    AGENTS,
    ModelCaller,
    ModelChecker,
    Resumable,
    SessionResource,
    close_session_resources,
    own_python,
)
from evaldesk.agents.refusals import outcome_of
from evaldesk.agents.shared_loop import EventStream
from evaldesk.agents.spans import OPEN_SPANS
from evaldesk.agents.tools.doubles import CURRENT_DOUBLES, read_doubles
from evaldesk.agents.tools.doubles import KEY as DOUBLES
from evaldesk.agents.trial_context import CURRENT_TRIAL, TrialContext
from evaldesk.agents.users.users import BegunUser, User, offers_user, user_of
from evaldesk.engine.failures import case_problem, failure
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.first_calls import import_first_calls
from evaldesk.engine.worker.prompts import CallsAside
from evaldesk.engine.worker.turn import OpenTurn, Show
from evaldesk.errors import AgentError, EvaldeskError, ModelError, UsageError
from evaldesk.llm import needs_litellm, set_variables
from evaldesk.llm.context import context_value
from evaldesk.llm.http_calls import watch_requests
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder, replay_only
from evaldesk.llm.retry_events import PLAYED_TURN, turn_context
from evaldesk.llm.third_party_clients import wrap_clients
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    AskedBy,
    ErrorRecord,
    Event,
    Interpreter,
    ModelOptions,
    Session,
    StopReason,
    Transcript,
    TrialResult,
    TrialSpec,
    TrialStatus,
    TurnRecord,
    trial_verdict,
)
from evaldesk.model.decisions import UNUSED, Decided, Script, decision_words, scripted_decisions
from evaldesk.model.fork import trial_place
from evaldesk.model.options import USER_VARIABLE
from evaldesk.model.transcript import AWAITING, BOUNDS, UNANSWERED, UNKNOWN, last_stop, told_captures
from evaldesk.model.user_reply import MODULE_USER, UserReply, with_decisions_of, with_last_cost
from evaldesk.process_setup import gc_paused
from evaldesk.transcripts.prompt_writer import CallPlace, PromptWriter
from evaldesk.wire import plain_text

if TYPE_CHECKING:
    from evaldesk.agents import Agent


MAX_DECIDED = 100
"""How often a script decides in one turn; an agent may ask again for ever."""


async def play_trial(
    agent: Agent, spec: TrialSpec, *, attempt: Attempt | None = None, user: User | None = None
) -> TrialResult:
    """Play the case in a fresh session with its user, or with `user` in its place. There are no scores yet."""
    attempt = attempt or Attempt(clock=time.monotonic)
    attempt.prompts = PromptWriter() if spec.keeps_prompts else None
    attempt.begin("play", spec.limits.trial_timeout_s)
    problem = case_problem(spec.case) or set_up(spec)
    if problem:
        return trial_result(spec, attempt, problem)
    attempt.is_told = _is_told(agent, spec)
    try:
        user = user or trial_user(agent, spec)
    except UsageError as error:
        return trial_result(spec, attempt, ErrorRecord("no_user", str(error)))
    session = _session_of(spec)
    scripted = scripted_decisions(spec.case)

    recorder = CURRENT_RECORDER.get()

    async def play_message(reply: UserReply) -> TurnRecord:
        session.media = reply.media
        if recorder:
            recorder.begin_turn(len(session.turns))
        text = plain_text(reply.text or "")
        decisions = with_decisions_of(reply, scripted, len(session.turns)).decisions
        script = Script(decisions) if decisions else None
        with turn_bound(attempt, spec.limits.turn_timeout_s):
            return await play_turn(agent, session, text, attempt=attempt, before=reply.events, script=script)

    try:
        with replay_only(recorder) if recorder else nullcontext():
            end = await converse(user, session, attempt, play_message, is_scripted=spec.case.scenario is None)
    finally:
        close_session_resources(session.memory)
    result = trial_result(spec, attempt, end.error)
    result = replace(result, stop_reason=end.stop) if end.stop else result  # of a user who ended the conversation
    has_missed = any(isinstance(value, SessionResource) and value.has_late_calls for value in session.memory.values())
    return replace(result, usages=(*result.usages, UNKNOWN)) if has_missed else result


def _is_told(agent: Agent, spec: TrialSpec) -> bool:
    """Whether an agent that tells no usage called no model: its calls are seen, or it promised to tell each of them.

    The calls of a function in Python are noticed in its process, but not those by gRPC or by processes that it starts:
    where a limit of cost is to hold, its silence is no promise.
    """
    kind, description = AGENTS.find(spec.agent.kind), None
    if spec.needs_cost and kind is None:  # of an object that is imported
        description = _description(agent)
        kind = AGENTS.find(description.kind) if description else None
    if kind is None or (kind.sees_calls(spec.agent) and not (spec.needs_cost and kind.reports_cost)):
        return True
    description = description or _description(agent)
    return description is not None and description.tells_cost


async def play_turn(
    agent: Agent,
    session: Session,
    query: str,
    *,
    attempt: Attempt,
    show: Show | None = None,
    before: tuple[Event, ...] = (),
    script: Script | None = None,
    open_record: TurnRecord | None = None,
    decided: Sequence[Decided] = (),
) -> TurnRecord:
    """Play one turn and add it to the session and the attempt; never raises for a failure of the agent.

    `before` is the cost of finding the query. The bytes of its media stay in the session, for the turns to come. What
    waits for a person is decided by the `script`, where it has decisions. `open_record` is a turn that waited, which
    goes on by what a person `decided`.
    """
    start_time = session.turns[0].start_time if session.turns else round(attempt.wall_clock(), 3)
    turn = OpenTurn(session, query, attempt.clock, show, open_record, attempt.prompts, script, start_time)
    turn.keep(before)
    attempt.turn = turn
    watch_requests()
    wrap_clients()
    OPEN_SPANS.set(turn.open_spans)
    with turn_context(turn):
        reason = await _stop_reason(_conversed(agent, session, query, turn, script, decided), turn, attempt)
    record = turn.record(reason)
    attempt.tells_calls = attempt.tells_calls or turn.tells_calls
    session.turns.append(replace(record, media=session.media) if session.media else record)
    attempt.turns.append(record)
    attempt.turn = None
    return record


def trial_result(spec: TrialSpec, attempt: Attempt, error: ErrorRecord | None) -> TrialResult:
    """The result of the trial as far as the attempt came; `error` overrides the last turn's own."""
    asked_by: AskedBy = "scripted" if spec.case.scenario is None else "simulated"
    turns = attempt.transcript(error).turns
    if attempt.tells_calls:
        turns = tuple(replace(turn, captures=told_captures(turn.captures)) for turn in turns)
    transcript = Transcript(tuple(replace(turn, asked_by=asked_by) for turn in turns))
    last = transcript.turns[-1] if transcript.turns else None
    error = error or (last.error if last else None)
    if attempt.stop == "timed_out" and not error:
        error = timed_out(attempt.timeout_s)
    ending = last.stop_reason if last and last.error == error else "error"
    stop_reason = attempt.stop or (last_stop(transcript.turns) if ending == "answered" else ending)
    status: TrialStatus = attempt.stop or ("errored" if error else "finished")
    usages = tuple(usage for turn in transcript.turns for usage in turn.usages)
    return TrialResult(
        run_id=spec.run_id,
        case_index=spec.case_index,
        trial_index=spec.trial_index,
        status=status,
        verdict=trial_verdict((), spec.criteria, error),
        stop_reason=stop_reason,
        transcript=transcript,
        usages=(*usages, UNKNOWN) if _may_lack(attempt, transcript.turns) else usages,
        duration_ms=attempt.duration_ms,
        start_ms=attempt.start_ms,
        error=error,
        logs=attempt.log.text(),
        attempt=spec.attempt,
        prompts=attempt.prompts.prompts() if attempt.prompts else None,
    )


def _may_lack(attempt: Attempt, turns: Sequence[TurnRecord]) -> bool:
    """Whether the agent may have called a model and told nothing of it: in the last turn, if that broke off."""
    if attempt.is_told or not turns:
        return False
    answered_turns = turns[-1:] if turns[-1].error else turns
    return attempt.stop is not None or not any(
        usage.role == "agent" for turn in answered_turns for usage in turn.usages
    )


def timed_out(timeout_s: float, trace: str = "") -> ErrorRecord:
    """The error of a trial or turn that took longer than it may."""
    return ErrorRecord("timed_out", f"not finished within {timeout_s:g} s", trace)


async def _stop_reason(conversed: Coroutine[Any, Any, StopReason], turn: OpenTurn, attempt: Attempt) -> StopReason:
    reason: StopReason = "error"
    trace = ""
    try:
        reason = await conversed
        turn.close()
    except BaseException as error:
        unanswered = _unanswered_call(turn)
        ending = None if unanswered else outcome_of(error)
        error_record = failure(unanswered or error)
        trace = error_record.trace
        if ending and ending.error and not attempt.stop:
            turn.take(replace(ending, kind="log", text=ending.error.message, error=None))
            reason = cast("StopReason", ending.error.kind)
        with suppress(AgentError):  # a state that is no object any more stays as it was seen last
            turn.close()
        if not attempt.stop and not ending:
            turn.fail(error_record)
    if attempt.stop == "timed_out":
        turn.fail(timed_out(attempt.timeout_s, trace))
    return attempt.stop or reason


async def _conversed(
    agent: Agent, session: Session, query: str, turn: OpenTurn, script: Script | None, decided: Sequence[Decided]
) -> StopReason:
    """Hear the agent until it answers, or waits for a decision that nobody scripted."""
    index = len(session.turns)
    if decided:
        turn.note_decisions(decided, "user")
        reason = await _collect_events(_going_on(agent, session, query, decided), turn)
    else:
        session.paused = None
        reason = await _collect_events(agent.reply(session, query), turn)
    for _ in range(MAX_DECIDED):
        scripted = (
            script.take_decisions(index, turn.open_requests) if script and reason in (AWAITING, "answered") else None
        )
        if not scripted:
            break
        turn.note_decisions(scripted, "case")
        reason = await _collect_events(_going_on(agent, session, query, scripted), turn)
    for decision in script.unused_decisions(index) if script else ():
        note = f"{UNUSED}{decision_words(decision)}"
        turn.take(Event("log", author="evaldesk", text=note))
    return reason


def _going_on(agent: Agent, session: Session, query: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
    if isinstance(agent, Resumable):
        return agent.resume(session, query, decided)
    raise AgentError(f"this agent waits for a person and cannot go on after a decision: {type(agent).__name__}")


async def _collect_events(reply: AsyncIterator[Event], turn: OpenTurn) -> StopReason:
    if not hasattr(reply, "__aiter__"):
        if asyncio.iscoroutine(reply):
            reply.close()
        raise AgentError(f"reply must be an async generator of events, got {type(reply).__name__}")
    reasons: list[StopReason] = []

    def take(event: Event) -> bool:
        if isinstance(event, Event) and event.error and event.error.kind in UNANSWERED:
            if not turn.open_requests:  # which says more
                turn.take(replace(event, kind="log", text=event.error.message, error=None))
            reasons.append(cast("StopReason", event.error.kind))
        elif turn.take(event).error:
            reasons.append("error")
        return bool(reasons)

    if isinstance(reply, EventStream):
        await reply.consume(take)
    else:
        await _take_events(reply, take)
    if reasons:
        return reasons[0]
    unanswered = _unanswered_call(turn)
    if unanswered:
        raise unanswered
    return "answered" if all(each.takes_message for each in turn.open_requests) else AWAITING


async def _take_events(reply: AsyncIterator[Event], take: Callable[[Event], bool]) -> None:
    try:
        async for event in reply:
            if take(event):
                return
    finally:
        if hasattr(reply, "aclose"):
            await reply.aclose()


def _unanswered_call(turn: OpenTurn) -> Exception | None:
    """The failure of a call that a replay or a double did not answer.

    An agent may catch it, or raise an error of its own.
    """
    recorder, answers = CURRENT_RECORDER.get(), turn.call_answers
    lost = (recorder.replay_error or recorder.prefix_error) if recorder else None
    return lost or (answers.failure if answers else None)


def _session_of(spec: TrialSpec) -> Session:
    start, prefix = spec.case.initial_session, spec.prefix
    return Session(
        id=f"run{spec.run_id}-case{spec.case_index}-trial{spec.trial_index}-{spec.attempt}",
        state=deepcopy(dict(prefix.state if prefix else spec.case.initial_state)),
        turns=list(prefix.turns) if prefix else [],
        app_name=start.app_name if start else "",
        user_id=(start.user_id if start else "") or "user",
        model=spec.model,
        model_options=spec.model_options,
        limits=spec.limits,
        seed=spec.seed,
    )


def set_up(spec: TrialSpec) -> ErrorRecord | None:
    """Set the stage in the current context; why it cannot be, or None."""
    CURRENT_RECORDER.set(_recorder_of(spec))
    CURRENT_TRIAL.set(TrialContext(spec.case, spec.case_index, spec.trial_index))
    try:
        has_doubles = DOUBLES in spec.case.extra
        CURRENT_DOUBLES.set(read_doubles(spec.case, spec.agent.target) if has_doubles else None)
    except EvaldeskError as error:
        return ErrorRecord("bad_case", str(error))
    return None


def _recorder_of(spec: TrialSpec) -> Recorder | None:
    prefix = spec.prefix
    if prefix and prefix.n_calls:
        recording = replace(spec.recording, mode="auto")
        return Recorder(recording, prefix.trial_index, n_prefix_calls=prefix.n_calls, place=prefix.place)
    place = trial_place(spec.run_id, spec.case_index, spec.trial_index) if spec.keeps_prompts else ""
    return Recorder(spec.recording, spec.trial_index, place=place) if spec.recording.mode != "off" else None


GRACE_S = 1.0


@contextmanager
def turn_bound(attempt: Attempt, timeout_s: float | None) -> Iterator[None]:
    """Bound the time of the block to `timeout_s`: then the attempt is stopped and its task cancelled.

    An agent that blocks its loop is given up GRACE_S later by the watcher of the attempt's deadline.
    """
    task = asyncio.current_task()
    if timeout_s is None or task is None or timeout_s >= attempt.seconds_left:
        yield
        return
    outer_bound = attempt.deadline, attempt.timeout_s

    def stop() -> None:
        attempt.stop = attempt.stop or "timed_out"
        task.cancel()

    attempt.deadline, attempt.timeout_s = attempt.clock() + timeout_s + GRACE_S, timeout_s
    timer = asyncio.get_running_loop().call_later(timeout_s, stop)
    try:
        yield
    finally:
        timer.cancel()
        attempt.deadline = outer_bound[0]
        if not attempt.stop:
            attempt.timeout_s = outer_bound[1]


DEMO_USER = "demo/user"

PlayMessage: TypeAlias = Callable[[UserReply], Awaitable[TurnRecord]]


def trial_user(agent: Agent, spec: TrialSpec) -> User:
    """The player of the user. Raises UsageError when there is none."""
    is_demo = spec.case.scenario is not None and _is_demo(agent)
    user = user_of(spec.case, spec.agent.target, spec.user, default_user(is_demo=is_demo))
    has_begun = spec.case.scenario is not None and spec.prefix and spec.prefix.message
    return BegunUser(user, spec.prefix.message, spec.n_prefix_turns) if spec.prefix and has_begun else user


def offered_user(agent: Agent, spec: TrialSpec) -> str:
    """The source of a simulated user that only the process of the agent knows: its module, or a demo agent's script."""
    if offers_user(spec.agent.target):
        return MODULE_USER
    return DEMO_USER if _is_demo(agent) else ""


def default_user(*, is_demo: bool) -> str:
    """The model that plays the user where a run names none; a demo agent has a scripted one."""
    return os.environ.get(USER_VARIABLE, "") or (DEMO_USER if is_demo else "")


async def converse(
    user: User, session: Session, attempt: Attempt, play_message: PlayMessage, *, is_scripted: bool
) -> UserReply:
    """Hold the conversation; the user's last word says how it ended, and is empty where the agent or a limit did.

    An agent that reached its bound in a turn is asked nothing more: there is no answer to go on from. Where it waits
    for a person, a script goes on with its next message, as a person may in a chat, and a simulated user does not.
    """
    while True:
        reply = await next_reply(user, session, attempt)
        if attempt.stop:
            return UserReply()
        if reply.text is None:
            attempt.turns[:] = with_last_cost(attempt.turns, reply.events)
            return reply
        record = await play_message(reply)
        is_over = record.stop_reason in (BOUNDS if is_scripted else UNANSWERED)
        if record.error or attempt.stop or is_over:
            return UserReply()


async def next_reply(user: User, session: Session, attempt: Attempt) -> UserReply:
    """The next message of the user; a failure of its own becomes the error of the reply."""
    place = CallPlace(len(session.turns))
    listener = CallsAside("user", attempt.prompts, lambda: place) if attempt.prompts else None
    try:
        with context_value(PLAYED_TURN, listener):
            return await user.next(session)
    except BaseException as error:
        if attempt.stop:
            return UserReply()
        error_record = failure(error, "user_error")
        is_fatal = isinstance(error, ModelError) and error.is_fatal
        record = ErrorRecord(
            error_record.kind if is_fatal else "user_error",
            f"the simulated user: {error_record.message}",
            error_record.trace,
        )
        return UserReply(stop="user_error", error=record)


def _is_demo(agent: Agent) -> bool:
    description = _description(agent)
    return description is not None and description.is_demo


def _description(agent: Agent) -> AgentDescription | None:
    """The agent's description of itself; an agent without one may still answer."""
    try:
        description: object = agent.describe()
    except Exception:
        return None
    return description if isinstance(description, AgentDescription) else None


# An agent is imported once, also when several trial threads begin with it.
_lock = Lock()
# One thread warms the clients of a model; imports go on under their own lock.
_model_lock = Lock()
_ready: set[tuple[AgentRef, str | None, str | None]] = set()
_agents: dict[AgentRef, Agent | BaseException] = {}
watch_import: Callable[[AgentRef], AbstractContextManager[object]] = nullcontext
"""Entered while an agent is imported: by the watch of a process that may be forked."""


def load(ref: AgentRef) -> Agent:
    """The agent that `ref` names. Raises the exception of its import, the same again every time."""
    from evaldesk.agents.loading import load_agent

    agent = _agents.get(ref)
    if agent is None:
        with _lock:
            agent = _agents.get(ref)
            if agent is None:
                try:
                    with gc_paused(), watch_import(ref):
                        agent = load_agent(ref)
                except BaseException as error:
                    agent = error
                _agents[ref] = agent
    if isinstance(agent, BaseException):
        raise agent
    return agent


def describe_agent(agent: Agent, ref: AgentRef) -> AgentDescription:
    """The agent's description of itself, and the beside facts of its module and this process. Raises AgentError."""
    description: object = agent.describe()
    if not isinstance(description, AgentDescription):
        raise AgentError(f"describe must return an AgentDescription, got {type(description).__name__}")
    return replace(
        description,
        variables=set_variables(os.environ),
        offers_user=offers_user(ref.target),
        interpreter=Interpreter() if AGENTS.is_remote(ref.kind) else this_interpreter(),
    )


def fault_of(agent: Agent, model: str) -> str:
    """The reason why every call of a model would fail; empty where the agent does not know."""
    return agent.model_fault(model) if isinstance(agent, ModelChecker) else ""


MADE_OF = ("litellm", "openai", "anthropic", "google-genai", "langchain-core", "mcp", "pydantic")
"""Packages beside the frameworks whose versions change the way an agent works."""


def this_interpreter() -> Interpreter:
    """The interpreter of this process with the versions that are installed, told by the names of their folders."""
    path, installed = own_python(), _installed()
    names = (*(kind.package for kind in AGENTS.builtin if kind.package), *MADE_OF)
    digest = hashlib.sha256(json.dumps(sorted(installed.items())).encode()).hexdigest()[:12] if path else ""
    packages = {name: installed[name] for name in names if name in installed}
    return Interpreter(path, platform.python_version(), packages, digest)


def _installed() -> dict[str, str]:
    versions: dict[str, str] = {}
    for entry in reversed(sys.path):  # the first entry that has a package wins
        with suppress(OSError):
            for name in os.listdir(entry or "."):
                stem, _, ending = name.rpartition(".")
                package, _, version = stem.partition("-")
                if ending in ("dist-info", "egg-info") and version:
                    versions[package.lower().replace("_", "-")] = version.partition("-py")[0]
    return versions


def adopt(ref: AgentRef, agent_object: object) -> Agent:
    """Let `ref` name an object that this process has already. Raises AgentError when no adapter knows it."""
    from evaldesk.agents.loading import adapt_object

    agent = adapt_object(agent_object, ref)
    _agents[ref] = agent
    return agent


def disown(ref: AgentRef) -> None:
    """Forget the object given to `adopt`."""
    _agents.pop(ref, None)
    for entry in [entry for entry in _ready if entry[0] == ref]:
        _ready.discard(entry)


def load_ready(ref: AgentRef, model: str | None = None, options: ModelOptions | None = None) -> Agent:
    """As `load`, with the packages for the calls of the agent's model: that takes seconds no turn should pay."""
    agent = load(ref)
    options = options or ModelOptions()
    ready_key = ref, model, options.base_url
    if ready_key not in _ready:
        with _model_lock:
            _warm(agent, Session("warm", model=model, model_options=options))
            import_first_calls()
        _ready.add(ready_key)
    return agent


def _warm(agent: Agent, session: Session) -> None:
    """Import the packages for the calls of the agent's model, if it has one."""
    if isinstance(agent, ModelCaller):
        agent.warm(session)
    elif _needs_litellm(agent, session):
        from evaldesk.llm.client import open_litellm

        open_litellm()


def _needs_litellm(agent: Agent, session: Session) -> bool:
    model = session.model or getattr(_description(agent), "model", None)
    return model is not None and needs_litellm(model) and find_spec("litellm") is not None
