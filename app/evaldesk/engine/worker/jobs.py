"""The jobs of a worker process: trials, turns of a chat, and the description of an agent.

Each job is carried out in a trial thread and answered by one encoded frame.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Lock
from typing import Protocol, TypeAlias

from evaldesk.agents.agent import Agent, close_session_resources
from evaldesk.agents.env_files import take_variables
from evaldesk.agents.users.users import User, user_of
from evaldesk.engine.failures import failure
from evaldesk.engine.frames import (
    Describe,
    Described,
    Ended,
    Failed,
    Fork,
    Forks,
    FromWorker,
    Grade,
    GradeSpec,
    Happened,
    Play,
    Speak,
    Spoke,
    Talk,
    TurnEnded,
    UserMessage,
    cancelled,
    cut,
    grade_spec,
    grader_result,
    player_result,
    sent_to_grader,
    unplayed,
    user_side_spec,
    with_images,
)
from evaldesk.engine.worker.attempt import (
    CURRENT_LOG,
    FORKED_IN,
    LOAD_TIMEOUT_S,
    Attempt,
    asks_judges,
    grade,
    grading_timeout_s,
    load_functions,
    without_env_secrets,
)
from evaldesk.engine.worker.driver_user import DriverUser
from evaldesk.engine.worker.player import (
    DEMO_USER,
    default_user,
    describe_agent,
    fault_of,
    load,
    load_ready,
    next_reply,
    offered_user,
    play_trial,
    play_turn,
    timed_out,
    trial_result,
    trial_user,
)
from evaldesk.engine.worker.shared_state_watch import SharedStateWatch
from evaldesk.engine.worker.turn import OpenTurn
from evaldesk.errors import UsageError
from evaldesk.llm import price
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder
from evaldesk.llm.retry_events import CURRENT_LISTENER
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    ErrorRecord,
    Event,
    JsonValue,
    Score,
    Session,
    Transcript,
    TrialResult,
    TrialSpec,
    TurnRecord,
)
from evaldesk.model.transcript import AWAITING, waiting_of
from evaldesk.model.user_reply import MODULE_USER, UserReply
from evaldesk.process_setup import ProcessWatch
from evaldesk.secrets import StreamScrubber, known_values
from evaldesk.transcripts.prompt_writer import PromptWriter
from evaldesk.wire import plain_json, plain_object, to_json


async def run_trial(spec: TrialSpec, attempt: Attempt) -> TrialResult:
    """Play and grade in this process."""
    try:
        load_functions(spec.criteria)
    except BaseException as error:
        return unplayed(spec, "errored", failure(error, "metric_import"))
    played = await run_player(user_side_spec(spec), attempt, lambda agent: trial_user(agent, spec))
    result = player_result(spec, played, is_cancelled=attempt.stop == "cancelled")
    if result.status != "finished" or attempt.stop:
        return result
    spec_to_grade = grade_spec(spec, result)
    return grader_result(spec_to_grade, await run_grader(sent_to_grader(spec_to_grade), attempt))


async def run_player(
    spec: TrialSpec,
    attempt: Attempt,
    user_of: Callable[[Agent], User],
    on_loaded: Callable[[], None] = lambda: None,
) -> TrialResult:
    """Load and play with that user. Each phase has its own deadline, which the holder of the attempt enforces."""
    CURRENT_LOG.set(attempt.log)
    CURRENT_LISTENER.set(attempt.waits)
    attempt.begin("load", LOAD_TIMEOUT_S)
    try:
        agent = load_ready(spec.agent, spec.model, spec.model_options)
    except BaseException as error:
        return trial_result(spec, attempt, failure(error, "agent_import"))
    on_loaded()
    try:
        user = user_of(agent)
    except UsageError as error:
        return trial_result(spec, attempt, ErrorRecord("no_user", str(error)))
    return await play_trial(agent, spec, attempt=attempt, user=user)


async def run_grader(spec: GradeSpec, attempt: Attempt) -> TrialResult:
    """Grade; the output of a first scoring goes to the log of the trial."""
    CURRENT_LOG.set(attempt.log)
    CURRENT_LISTENER.set(attempt.waits)
    is_recorded = spec.recording.mode != "off"
    CURRENT_RECORDER.set(Recorder(spec.recording, spec.result.trial_index) if is_recorded else None)
    attempt.begin("grade", grading_timeout_s(spec.criteria, spec.limits))
    if spec.is_first:
        try:
            load_functions(spec.criteria)
        except BaseException as error:
            return unplayed(spec, "errored", failure(error, "metric_import"))
    try:
        result = await grade(
            spec.result,
            spec.case,
            spec.criteria,
            spec.limits,
            strict=spec.strict,
            keeps_prompts=spec.keeps_prompts,
        )
    except asyncio.CancelledError:
        if attempt.stop != "timed_out":
            raise
        return _not_graded(spec, attempt, "")
    return replace(result, logs=_join_logs(result.logs, attempt.log.text())) if spec.is_first else result


def _join_logs(player_log: str, grader_result: str) -> str:
    """The log of both; that of one process goes on where playing ended."""
    return grader_result if grader_result.startswith(player_log) else player_log + grader_result


def _not_graded(spec: GradeSpec, attempt: Attempt, place: str) -> TrialResult:
    error = ErrorRecord("grading_failed", f"not graded within {attempt.timeout_s:g} s", place)
    return unplayed(spec, "errored", error, may_lack=asks_judges(spec.criteria))


def given_up(spec: TrialSpec, attempt: Attempt, place: str) -> TrialResult:
    """The result of a trial whose thread does not come back, blocked at `place`."""
    if attempt.stop == "cancelled":
        return trial_result(spec, attempt, None)
    if attempt.phase == "play":
        return trial_result(spec, attempt, timed_out(attempt.timeout_s, place))
    return replace(trial_result(spec, attempt, _not_imported(attempt, place)), status="errored", stop_reason="error")


def _not_imported(attempt: Attempt, place: str) -> ErrorRecord:
    return ErrorRecord("agent_import", f"not imported within {attempt.timeout_s:g} s", place)


MAX_RESULT = 16 * 1024 * 1024

Send: TypeAlias = Callable[[FromWorker], None]


class Job(Protocol):
    """One job of a worker process; `attempt` says how far it is."""

    attempt: Attempt

    async def run(self) -> bytes:
        """Do it, in a trial thread; the frame that answers."""

    def given_up(self, place: str) -> bytes:
        """The frame that answers when the trial thread does not come back from `place`."""

    def broken(self, error: BaseException | None) -> bytes:
        """The frame that answers when `run` raised, or was cancelled before it began (None)."""


_frozen_imports: set[tuple[AgentRef, str]] = set()


class TrialJob:
    """Plays a trial. `watch` is that of the process; `shared_state` that of the agent, where trials share it."""

    def __init__(
        self, frame: Play, send: Send, watch: ProcessWatch, shared_state: SharedStateWatch | None = None
    ) -> None:
        self._frame = frame
        self._send = send
        self._user: DriverUser | None = None
        self._watch = watch
        self._shared_state = shared_state
        self._is_loaded = False
        self._began_changed = False
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """Play, encode."""
        frame = self._end_frame(await run_player(self._frame.spec, self.attempt, self._driver_user, self._note_load))
        self._freeze("played")
        return frame

    def given_up(self, place: str) -> bytes:
        """The turns played so far."""
        return self._end_frame(given_up(self._frame.spec, self.attempt, place), is_tainted=True)

    def broken(self, error: BaseException | None) -> bytes:
        """An errored or cancelled trial."""
        return _broken(self._frame, error)

    def take_message(self, message: UserMessage) -> None:
        """The next message of the user; without a question for one it is dropped."""
        if self._user:
            self._user.take(message.reply, message.paced_s)

    def _driver_user(self, agent: Agent) -> User:
        frame = self._frame
        is_scripted = frame.spec.case.scenario is None
        offered = None if is_scripted else partial(offered_user, agent, frame.spec)
        n_told = frame.spec.n_prefix_turns
        self._user = DriverUser(frame.key, self.attempt, self._send, frame.first, offered, n_told)
        return self._user

    def _note_load(self) -> None:
        """The agent may change the process while it is imported: all trials start from that."""
        self._began_changed = bool(self._watch.changes())
        if self._shared_state:
            self._shared_state.begin(self._frame.spec.agent)
        self._is_loaded = True
        self._freeze("loaded")

    def _freeze(self, when: str) -> None:
        """Freeze the objects of the import and the first trial for the collector: 250 ms a time for google-adk."""
        key = self._frame.spec.agent, when
        if key not in _frozen_imports:
            _frozen_imports.add(key)
            gc.freeze()

    def _end_frame(self, result: TrialResult, *, is_tainted: bool = False) -> bytes:
        change_phrases = self._watch.changes() if self._is_loaded else ()
        # a child of another trial that holds the end of a pipe keeps its reader waiting
        if self._shared_state and self._is_loaded:
            result = self._shared_state.observe(result)
        is_held = result.status == "timed_out" and bool(FORKED_IN - {self.attempt.log.number})
        change_phrases += ("a trial forked it",) if is_held else ()
        return _result_frame(self._frame.key, result, is_tainted, change_phrases, self._began_changed or is_held)


@dataclass(slots=True)
class _Speaker:
    """The simulated user of one trial, from its first message to its last."""

    user: User
    recorder: Recorder | None


MAX_SPEAKERS = 1_000
# The users of trials under way, the longest unused first.
_speakers: dict[int, _Speaker] = {}


class UserJob:
    """Speaks as the simulated user of a trial, in another process than that of its agent."""

    def __init__(self, frame: Speak) -> None:
        self._frame = frame
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """The next message."""
        frame, attempt = self._frame, self.attempt
        CURRENT_LOG.set(attempt.log)
        CURRENT_LISTENER.set(attempt.waits)
        attempt.begin("load", LOAD_TIMEOUT_S)
        try:
            speaker = self._speaker()
        except UsageError as error:
            return self._spoke(UserReply(error=ErrorRecord("no_user", str(error))))
        except BaseException as error:
            return self.broken(error)
        CURRENT_RECORDER.set(speaker.recorder)
        attempt.begin("play", frame.timeout_s)
        attempt.prompts = PromptWriter() if frame.spec.keeps_prompts else None
        end_s = attempt.deadline
        session = Session("user", state=dict(frame.state), turns=list(frame.turns), seed=frame.spec.seed)
        reply = await next_reply(speaker.user, session, attempt)
        if attempt.stop:
            return self.given_up("")
        return self._spoke(reply, attempt.deadline - end_s)

    def given_up(self, place: str) -> bytes:
        """A user that does not answer."""
        words = f"the simulated user did not answer within {self.attempt.timeout_s:g} s"
        return self._spoke(UserReply(stop="user_error", error=ErrorRecord("user_error", words, place)))

    def broken(self, error: BaseException | None) -> bytes:
        """A user whose module cannot be imported, or whose question was cancelled."""
        record = failure(error, "user_error") if error else ErrorRecord("cancelled", "the question was cancelled")
        sentence = f"the simulated user: {record.message}"
        return self._spoke(UserReply(stop="user_error", error=ErrorRecord("user_error", sentence, record.trace)))

    def _speaker(self) -> _Speaker:
        frame, spec = self._frame, self._frame.spec
        speaker = _speakers.pop(frame.trial, None)
        if speaker is None:
            is_of_module = frame.source == MODULE_USER
            if is_of_module:
                load(spec.agent)
            default = default_user(is_demo=frame.source == DEMO_USER)
            target = spec.agent.target if is_of_module else ""
            is_recorded = spec.recording.mode != "off"
            recorder = Recorder(spec.recording, spec.trial_index) if is_recorded else None
            speaker = _Speaker(user_of(spec.case, target, spec.user, default), recorder)
        _speakers[frame.trial] = speaker
        while len(_speakers) > MAX_SPEAKERS:
            del _speakers[next(iter(_speakers))]
        return speaker

    def _spoke(self, reply: UserReply, paced_s: float = 0.0) -> bytes:
        printed = self.attempt.log.text()
        if printed:
            reply = replace(reply, events=(*reply.events, Event("log", author="output", text=printed)))
        prompts = self.attempt.prompts.prompts() if self.attempt.prompts else None
        masked_reply, masked_prompts = without_env_secrets(reply), without_env_secrets(prompts) if prompts else None
        return to_json(Spoke(self._frame.key, masked_reply, masked_prompts, paced_s))


class GradeJob:
    """Grades a trial that was played before."""

    def __init__(self, frame: Grade) -> None:
        self._frame = frame
        self.attempt = Attempt()
        if frame.spec.variables:
            take_variables(frame.spec.variables)
        if frame.spec.copy:
            from evaldesk.metrics import METRICS, guard_imports, use_copy

            copy = frame.spec.copy
            guard_imports(copy.taken_at_ns, copy.inodes, copy.roots, copy.links)
            use_copy(copy.sources, copy.taken_at_ns)
            METRICS.settle(copy.metrics)

    async def run(self) -> bytes:
        """Grade, encode."""
        spec = self._frame.spec
        result = await run_grader(spec, self.attempt)
        return _result_frame(self._frame.key, replace(result, transcript=Transcript()))

    def given_up(self, place: str) -> bytes:
        """The trial as it was, without scores."""
        return _result_frame(
            self._frame.key, _without_transcript(_not_graded(self._frame.spec, self.attempt, place)), is_tainted=True
        )

    def broken(self, error: BaseException | None) -> bytes:
        """The trial as it was, without scores."""
        return _broken(self._frame, error)


def _without_transcript(result: TrialResult) -> TrialResult:
    """The result without its transcript and its prompts, which the driver has."""
    return replace(result, transcript=Transcript(), prompts=None)


def _broken(frame: Play | Grade, error: BaseException | None) -> bytes:
    spec = frame.spec
    result = unplayed(spec, "errored", failure(error, "engine")) if error else cancelled(spec)
    return _result_frame(frame.key, result if isinstance(frame, Play) else _without_transcript(result))


def _result_frame(
    key: int,
    result: TrialResult,
    is_tainted: bool = False,
    change_phrases: tuple[str, ...] = (),
    began_changed: bool = False,
) -> bytes:
    """The frame of a result, cut where it is too big, and values of user metrics made plain."""

    def framed(result: TrialResult) -> bytes:
        return to_json(Ended(key, result, is_tainted, change_phrases, began_changed))

    with suppress(Exception):  # a value that cannot be written yet is made plain below
        result = without_env_secrets(result)
    try:
        frame = framed(result)
    except Exception:
        result = without_env_secrets(replace(result, scores=tuple(_plain_score(score) for score in result.scores)))
        frame = framed(result)
    if len(frame) > MAX_RESULT and result.prompts:
        result = replace(result, prompts=None)
        frame = framed(result)
    most = MAX_RESULT
    if len(frame) > most:
        turns_with_images, n_images = with_images(result.transcript.turns)
        result, most = replace(result, transcript=Transcript(turns_with_images)), MAX_RESULT + n_images
        frame = framed(result)
    for limit in (10_000, 500):
        if len(frame) <= most:
            return frame
        most = MAX_RESULT
        turns = tuple(cut(turn, limit) for turn in result.transcript.turns)
        frame = framed(replace(result, transcript=Transcript(turns)))
    if len(frame) <= MAX_RESULT:
        return frame
    error = ErrorRecord("too_big", f"the transcript is bigger than {MAX_RESULT // 2**20} MiB even when it is cut")
    return framed(replace(_without_transcript(result), status="errored", verdict="errored", scores=(), error=error))


def _plain_score(score: Score) -> Score:
    return replace(score, reason=str(plain_json(score.reason)), details=plain_object(score.details))


MAX_SESSIONS = 200

# The memory of adapters for each session, the longest unused first; it lives as long as the process.
_memories: dict[str, dict[str, object]] = {}


class TurnJob:
    """Plays one turn of a chat session; the adapter's memory of the session lives as long as this process."""

    def __init__(self, frame: Talk, send: Send) -> None:
        self._frame = frame
        self._send = send
        self._partial: Event | None = None
        self._loop_bound = ""
        # Frameworks report events from threads; pieces of a streamed text must stay in order.
        self._telling = Lock()
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """Play the turn, telling each event as it happens."""
        CURRENT_LOG.set(self.attempt.log)
        spec = self._frame.spec
        self.attempt.begin("load", LOAD_TIMEOUT_S)
        session = self._session()
        try:
            agent = load_ready(spec.agent, spec.model, spec.model_options)
        except BaseException as error:
            return self._failed(failure(error, "agent_import"))
        watch = SharedStateWatch() if spec.observes else None
        if watch:
            watch.begin(spec.agent)
        self.attempt.begin("play", spec.timeout_s)
        self.attempt.prompts = PromptWriter() if spec.keeps_prompts else None
        open_requests = spec.resumed.open_requests if spec.resumed else ()
        record = await play_turn(
            agent,
            session,
            spec.message,
            attempt=self.attempt,
            show=self._show,
            open_record=spec.resumed,
            decided=tuple(zip(open_requests, spec.decisions, strict=True)),
        )
        self._loop_bound = watch.loop_bound((record,), record.error) if watch else ""
        return self._end_frame(replace(record, paused=_kept_paused(session, record)))

    def given_up(self, place: str) -> bytes:
        """The turn as far as it came."""
        if self.attempt.stop == "cancelled":
            turns = self.attempt.transcript().turns
            return self._end_frame(turns[-1], is_tainted=True) if turns else self._failed(None, is_tainted=True)
        timeout = timed_out(self.attempt.timeout_s, place)
        turns = self.attempt.transcript(timeout).turns
        if not turns:
            return self._failed(_not_imported(self.attempt, place), is_tainted=True)
        self._show(turns[-1].events[-1])
        return self._end_frame(turns[-1], is_tainted=True)

    def broken(self, error: BaseException | None) -> bytes:
        """A turn in which nothing happened but this."""
        return self._failed(failure(error, "engine") if error else None)

    def _session(self) -> Session:
        spec = self._frame.spec
        memory = _memories.pop(spec.session_id, {})
        _memories[spec.session_id] = memory
        while len(_memories) > MAX_SESSIONS:
            close_session_resources(_memories.pop(next(iter(_memories)), {}))
        return Session(
            id=spec.session_id,
            state=dict(spec.state),
            turns=list(spec.turns),
            app_name=spec.app_name,
            user_id=spec.user_id,
            model=spec.model,
            model_options=spec.model_options,
            limits=spec.limits,
            seed=spec.seed,
            is_streaming=True,
            memory=memory,
            paused=spec.resumed.paused if spec.resumed else None,
            media=spec.media,
        )

    def _show(self, event: Event) -> None:
        """Tell an event; of a streamed text only the part that cannot belong to a secret that is still coming."""
        with self._telling:
            if event.is_partial:
                self._partial = event
                text = self._stream.feed(event.text)
            else:
                text = self._stream.flush()
            if text and self._partial:
                self._tell(replace(self._partial, text=text))
            if not event.is_partial:
                self._tell(event)

    def _tell(self, event: Event) -> None:
        self._send(Happened(self._frame.key, (without_env_secrets(event),)))

    @cached_property
    def _stream(self) -> StreamScrubber:
        """Made when the agent has been imported, and with it the variables that it sets."""
        return StreamScrubber(known_values(os.environ))

    def _failed(self, error: ErrorRecord | None, *, is_tainted: bool = False) -> bytes:
        spec = self._frame.spec
        session = Session(id=spec.session_id, state=dict(spec.state), media=spec.media)
        start_time = round(self.attempt.wall_clock(), 3)
        turn = OpenTurn(session, spec.message, self.attempt.clock, self._show, spec.resumed, start_time=start_time)
        if error:
            turn.fail(error)
        return self._end_frame(turn.record("error" if error else "cancelled"), is_tainted=is_tainted)

    def _end_frame(self, record: TurnRecord, *, is_tainted: bool = False) -> bytes:
        printed = self.attempt.log.text()
        if printed:
            event = Event("log", at_ms=record.duration_ms, author="output", text=printed)
            self._show(event)
            record = replace(record, events=(*record.events, event))
        record = without_env_secrets(record)
        prompts = self.attempt.prompts.prompts() if self.attempt.prompts else None
        masked_prompts = without_env_secrets(prompts) if prompts else None
        frame = to_json(TurnEnded(self._frame.key, record, is_tainted, masked_prompts, self._loop_bound))
        if len(frame) > MAX_RESULT + with_images((record,))[1]:
            frame = to_json(TurnEnded(self._frame.key, cut(record, 1_000), is_tainted))
        return frame


MAX_PAUSED = 4 * 1024 * 1024


def _kept_paused(session: Session, record: TurnRecord) -> JsonValue:
    """The stored state of a turn that waits, for another process; None where it is missing or too large.

    A turn whose question the next message answers waits, too.
    """
    if session.paused is None or not (record.stop_reason == AWAITING or waiting_of(record.events)):
        return None
    paused_state = plain_json(session.paused)
    return paused_state if paused_state == session.paused and len(to_json(paused_state)) <= MAX_PAUSED else None


class ForkJob:
    """Imports an agent with the packages of its turns, for a process that is to be forked. `is_done` says that it has.

    An import that fails does so again in each player, where its trial says it.
    """

    def __init__(self, frame: Fork) -> None:
        self._frame = frame
        self.is_done = False
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """Import."""
        CURRENT_LOG.set(self.attempt.log)
        self.attempt.begin("load", LOAD_TIMEOUT_S)
        try:
            load_ready(self._frame.agent, self._frame.model, self._frame.model_options)
        except BaseException as error:
            return self.broken(error)
        self.is_done = True
        return b""

    def given_up(self, place: str) -> bytes:
        """An agent whose import does not end."""
        return to_json(Forks(self._frame.key, "its import does not end", is_tainted=True))

    def broken(self, error: BaseException | None) -> bytes:
        """An agent that cannot be imported."""
        return to_json(Forks(self._frame.key, "its import fails"))


class DescribeJob:
    """Imports an agent and asks for its description."""

    def __init__(self, frame: Describe) -> None:
        self._frame = frame
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """Describe; where a warm agent is asked for, import the packages of its turns first."""
        CURRENT_LOG.set(self.attempt.log)
        self.attempt.begin("load", LOAD_TIMEOUT_S)
        try:
            agent = (load_ready if self._frame.warm else load)(self._frame.agent)
            description = _without_secrets(describe_agent(agent, self._frame.agent))
            unpriced = tuple(model for model in self._frame.models if price(model, 1, 1) is None)
            fault = fault_of(agent, self._frame.named_model) if self._frame.named_model else ""
        except BaseException as error:
            return to_json(Failed(self._frame.key, without_env_secrets(failure(error, "agent_import"))))
        return to_json(Described(self._frame.key, description, unpriced, without_env_secrets(fault)))

    def given_up(self, place: str) -> bytes:
        """An agent whose import does not end."""
        return to_json(Failed(self._frame.key, _not_imported(self.attempt, place), is_tainted=True))

    def broken(self, error: BaseException | None) -> bytes:
        """An agent that cannot be described."""
        record = failure(error, "engine") if error else ErrorRecord("cancelled", "the description was cancelled")
        return to_json(Failed(self._frame.key, record))


def _without_secrets(description: AgentDescription) -> AgentDescription:
    """The description as it may leave this process; the names of variables are no values of them."""
    to_json(description)
    return replace(without_env_secrets(replace(description, variables=())), variables=description.variables)
