"""The frames that cross between the parent and a worker: one JSON object a line.

They are msgspec structs and not dataclasses because msgspec can tell the members of a union apart only by a tag,
which dataclasses cannot carry; the values inside them are those of `evaldesk.model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias

from evaldesk.codec import msgspec
from evaldesk.engine.worker.attempt import Pause
from evaldesk.errors import BadNumberError
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Case,
    Criterion,
    ErrorRecord,
    Event,
    JsonObject,
    JsonValue,
    Limits,
    ModelOptions,
    Prompts,
    Transcript,
    TrialResult,
    TrialSpec,
    TrialStatus,
    TurnRecord,
    TurnSpec,
    trial_verdict,
)
from evaldesk.model.decisions import scripted_decisions
from evaldesk.model.evalset import DECISIONS, present_side, user_side
from evaldesk.model.media import MAX_IMAGES, without_image_texts
from evaldesk.model.options import Recording, UserConfig
from evaldesk.model.result_checks import check_result
from evaldesk.model.transcript import UNKNOWN, image_length
from evaldesk.model.user_reply import UserReply, scripted_reply, with_decisions_of
from evaldesk.reading.strict_json import brackets_in, depth_of
from evaldesk.wire import to_json

MAX_FRAME = 64 * 1024 * 1024
MAX_LOSS = 300


class SourceCopy(msgspec.Struct, frozen=True):
    """The files of the user's functions by path, each byte one character, as they were at `taken_at_ns` (Unix time).

    `inodes` are those of the folders with other modules, by path; below `roots` they are all folders that there were,
    but for those behind `links`. `metrics` are the targets of metrics that installed packages give.
    """

    sources: dict[str, str]
    taken_at_ns: int
    inodes: dict[str, int] = msgspec.field(default_factory=dict)
    roots: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    metrics: dict[str, str] = msgspec.field(default_factory=dict)


class GradeSpec(msgspec.Struct, frozen=True):
    """A trial that was played and is to be scored; of its run's `limits` that of judges holds.

    `is_first`: nobody scored it before. Judges are asked through the `recording`, where there is one. With
    `keeps_prompts` it is kept how they were asked. `copy` has the user's functions, and `variables` are those of the
    agent's `.env`, such as the key of a judge: as both were before any code of the agent ran.
    """

    result: TrialResult
    case: Case
    criteria: tuple[Criterion, ...]
    limits: Limits | None = None
    strict: bool = False
    recording: Recording = Recording()
    is_first: bool = False
    keeps_prompts: bool = False
    copy: SourceCopy | None = None
    variables: dict[str, str] = msgspec.field(default_factory=dict)


class Play(msgspec.Struct, frozen=True, tag="play"):
    """Play a trial; answered by a NextMessage for each message of its user after the `first`, and Ended.

    Where it `is_shared`, its process may play others, before it, beside it or after it.
    """

    key: int
    spec: TrialSpec
    is_shared: bool = False
    first: UserReply | None = None


class UserMessage(msgspec.Struct, frozen=True, tag="user_message"):
    """The next message of the user of a trial; the user waited `paced_s` for its own rate limit."""

    key: int
    reply: UserReply
    paced_s: float = 0.0


class Speak(msgspec.Struct, frozen=True, tag="speak"):
    """Speak as the simulated user of the scenario in `spec` after these turns; answered by Spoke.

    Questions about one `trial` are of one user. `source` is the module of the agent, or a model where the configuration
    names none.
    """

    key: int
    trial: int
    spec: TrialSpec
    source: str
    turns: tuple[TurnRecord, ...]
    state: JsonObject
    timeout_s: float


class Grade(msgspec.Struct, frozen=True, tag="grade"):
    """Grade a trial that was played; answered by Ended, without the transcript."""

    key: int
    spec: GradeSpec


class Talk(msgspec.Struct, frozen=True, tag="talk"):
    """Play one turn of a session; answered by any number of Happened and one TurnEnded."""

    key: int
    spec: TurnSpec


class Describe(msgspec.Struct, frozen=True, tag="describe"):
    """Import an agent and describe it; answered by Described or Failed; `warm` also imports the packages of turns.

    `models` are those whose price is asked for, `named_model` is one whose calls may all fail.
    """

    key: int
    agent: AgentRef
    warm: bool = False
    models: tuple[str, ...] = ()
    named_model: str = ""


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Import an agent with the packages of its turns, and be forked for other players; answered by Forks."""

    key: int
    agent: AgentRef
    model: str | None = None
    model_options: ModelOptions | None = None


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the trial or turn of that key as cancelled."""

    key: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker is up."""

    pid: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The worker's main loop is alive; `left` is (key, seconds until its deadline) of all that is under way.

    `pauses` are the reasons why trials wait at this moment.
    """

    left: tuple[tuple[int, float], ...]
    pauses: tuple[Pause, ...] = ()


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A trial's result. A tainted worker holds a trial thread that does not come back, and is to be replaced.

    `changed` are the settings of the whole process that differ from those before its first trial, in words;
    `began_changed` says that they were so when this trial began.
    """

    key: int
    result: TrialResult
    is_tainted: bool = False
    changed: tuple[str, ...] = ()
    began_changed: bool = False


class NextMessage(msgspec.Struct, frozen=True, tag="next_message"):
    """A turn of the trial has ended, or it begins; answered by UserMessage.

    The rest is for a simulated user: the new turns, the state of the session, the source of a user that the player
    offers, and the seconds until the trial's deadline.
    """

    key: int
    turns: tuple[TurnRecord, ...] = ()
    state: JsonObject = msgspec.field(default_factory=dict)
    offered_user: str = ""
    left_s: float = 0.0


class Spoke(msgspec.Struct, frozen=True, tag="spoke"):
    """What a simulated user said, how its model was asked, and the seconds that it waited for its own rate limit."""

    key: int
    reply: UserReply
    prompts: Prompts | None = None
    paced_s: float = 0.0
    is_tainted: bool = False


class Happened(msgspec.Struct, frozen=True, tag="happened"):
    """Events of a turn under way."""

    key: int
    events: tuple[Event, ...]


class TurnEnded(msgspec.Struct, frozen=True, tag="turn_ended"):
    """The whole turn, how its models were asked, and the object of one event loop that the agent was seen to hold."""

    key: int
    record: TurnRecord
    is_tainted: bool = False
    prompts: Prompts | None = None
    loop_bound: str = ""


class Described(msgspec.Struct, frozen=True, tag="described"):
    """The agent's description of itself, and those of the models asked about that have no known price.

    `model_fault` is the reason why every call of the named model would fail; empty where it may be called.
    """

    key: int
    description: AgentDescription
    unpriced: tuple[str, ...] = ()
    model_fault: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The agent cannot be described, and why."""

    key: int
    error: ErrorRecord
    is_tainted: bool = False


class Forks(msgspec.Struct, frozen=True, tag="forks"):
    """The worker is a zygote from now on; with a `reason` why it cannot be one, it is a player as before.

    A tainted one lost the thread to which the agent is bound, and is to be replaced.
    """

    key: int
    reason: str = ""
    is_tainted: bool = False


ToWorker: TypeAlias = Play | UserMessage | Speak | Grade | Talk | Describe | Fork | Stop
FromWorker: TypeAlias = Ready | Beat | Ended | NextMessage | Spoke | Happened | TurnEnded | Described | Failed | Forks

_to_worker = msgspec.json.Decoder(ToWorker)
_from_worker = msgspec.json.Decoder(FromWorker)


def frame_to_worker(line: bytes) -> ToWorker:
    """The frame a worker was sent. Raises msgspec.MsgspecError."""
    frame: ToWorker = _to_worker.decode(line)
    return frame


MAX_NESTED = 200
"""An honest worker cuts values at 64 levels; pages go down a value on the stack of Python, which ends at a thousand."""


def frame_from_worker(line: bytes) -> FromWorker:
    """The frame a worker sent. Raises msgspec.MsgspecError, and ValueError for one with a value that is too deep."""
    if line.count(b"{") + line.count(b"[") > MAX_NESTED and depth_of(brackets_in(line)) > MAX_NESTED:
        raise ValueError(f"nested deeper than {MAX_NESTED} levels")
    frame: FromWorker = _from_worker.decode(line)
    return frame


def player_spec(spec: TrialSpec) -> TrialSpec:
    """The part of a trial that its player gets before the first message, without expectations and without its user."""
    case = spec.case if spec.shows_case else present_side(spec.case)
    return replace(spec, case=case, criteria=(), strict=False, losses=(), user=UserConfig())


def play_frame(key: int, spec: TrialSpec, *, is_shared: bool = False) -> Play:
    """The frame that begins a trial: with the first message of a script, and nothing of a simulated user."""
    first = first_message_of(spec)
    return Play(key, player_spec(spec), is_shared, first)


def first_message_of(spec: TrialSpec) -> UserReply | None:
    """The first message after the pinned turns; None where a simulated user is asked for it."""
    if spec.case.scenario is None:
        return message_of(spec, spec.n_prefix_turns)
    return UserReply(spec.prefix.message) if spec.prefix and spec.prefix.message else None


def user_side_spec(spec: TrialSpec) -> TrialSpec:
    """The part of a trial that its player gets where the user is in the same process: all but expectations."""
    case = spec.case if spec.shows_case else user_side(spec.case)
    return replace(spec, case=case, criteria=(), strict=False, losses=())


def user_spec(spec: TrialSpec) -> TrialSpec:
    """The part of a trial that its simulated user gets: the scenario, without expectations."""
    return replace(spec, case=user_side(spec.case), criteria=(), strict=False, losses=(), shows_case=False, prefix=None)


def message_of(spec: TrialSpec, index: int) -> UserReply:
    """The message of a script at that place, with the decisions of its turn."""
    reply = scripted_reply(spec.case.turns, index)
    has_decisions = DECISIONS in spec.case.extra
    return with_decisions_of(reply, scripted_decisions(spec.case), index) if has_decisions else reply


def played_again(spec: TrialSpec, why: str) -> TrialSpec:
    """The next attempt at a trial that was lost, and why it was."""
    return replace(spec, attempt=spec.attempt + 1, losses=(*spec.losses, why[:MAX_LOSS]))


def sent_to_grader(
    spec: GradeSpec, copy: SourceCopy | None = None, variables: dict[str, str] | None = None
) -> GradeSpec:
    """The part of the trial that its grader gets: how its models were asked is not scored.

    `copy` and `variables` are sent to a grader that does not have them.
    """
    if spec.result.prompts is None and copy is None and not variables:
        return spec
    graded_result = replace(spec.result, prompts=None)
    return msgspec.structs.replace(spec, result=graded_result, copy=copy, variables=variables or {})


def grade_spec(spec: TrialSpec, result: TrialResult) -> GradeSpec:
    """The trial that was just played, for the grader."""
    return GradeSpec(
        result,
        spec.case,
        spec.criteria,
        spec.limits,
        spec.strict,
        spec.recording,
        is_first=True,
        keeps_prompts=spec.keeps_prompts,
    )


# A player is not believed: its scores are dropped, its numbers checked (decision 065).
def player_result(spec: TrialSpec, result: TrialResult, *, is_cancelled: bool = False) -> TrialResult:
    """The result of a player for `spec`, without anything that it has no say in; errored where it cannot be."""
    problem = _problem(spec, result) or _bad_number(result)
    n_turns = spec.n_prefix_turns + len(result.transcript.turns)
    if not problem and spec.case.scenario is None and n_turns > len(spec.case.turns):
        problem = ErrorRecord("wrong_trial", f"the player reports more turns than {spec.case.id} has")
    is_explained = result.status == "finished" or result.error or (result.status == "cancelled" and is_cancelled)
    if problem or not is_explained:
        problem = problem or ErrorRecord("wrong_trial", f"the player reports {result.status!r} without a reason")
        return unplayed(spec, "errored", problem, may_lack=True)
    transcript = _as_asked(spec, Transcript((*(spec.prefix.turns if spec.prefix else ()), *result.transcript.turns)))
    verdict = trial_verdict((), spec.criteria, result.error)
    prompts = result.prompts.of_judges(is_wanted=False) if result.prompts else None
    return replace(
        result,
        transcript=transcript,
        scores=(),
        verdict=verdict,
        usages=(*result.usages, UNKNOWN) if spec.losses else result.usages,
        losses=spec.losses,
        place="",
        changes="",
        prompts=prompts,
        shared_state=result.shared_state.bounded(),
        n_prefix_turns=spec.n_prefix_turns,
    )


def _as_asked(spec: TrialSpec, transcript: Transcript) -> Transcript:
    """The transcript with the messages that the player was given, not its own version of them: judges read them.

    The bytes of media are in the case. Simulated users, and agents that are given the case, have their own messages.
    """
    is_scripted = spec.case.scenario is None and not spec.shows_case
    turns = []
    for turn, message_turn in zip_longest(transcript.turns, spec.case.turns[: len(transcript.turns)]):
        media = tuple(item.held() for item in message_turn.media) if message_turn else ()
        turns.append(replace(turn, query=message_turn.query if is_scripted else turn.query, media=media))
    return Transcript(tuple(turns))


def grader_result(spec: GradeSpec, result: TrialResult) -> TrialResult:
    """The scores of a grader for `spec`, on the transcript that it was given; errored where they cannot be."""
    problem = _problem(spec.result, result) or _bad_number(replace(result, transcript=Transcript()))
    if problem:
        return unplayed(spec, "errored", problem)
    own_result = spec.result
    prompts = (
        result.prompts.of_judges(is_wanted=True).after(own_result.prompts) if result.prompts else own_result.prompts
    )
    return replace(
        result,
        transcript=own_result.transcript,
        losses=own_result.losses,
        place=own_result.place,
        changes=own_result.changes,
        prompts=prompts,
        shared_state=own_result.shared_state,
        n_prefix_turns=own_result.n_prefix_turns,
    )


def _problem(own_item: TrialSpec | TrialResult, result: TrialResult) -> ErrorRecord | None:
    if _key(result) == _key(own_item):
        return None
    sentence = f"the worker answered for {_words(_key(result))}; it was given {_words(_key(own_item))}"
    return ErrorRecord("wrong_trial", sentence)


def _bad_number(result: TrialResult) -> ErrorRecord | None:
    try:
        check_result(result)
    except BadNumberError as error:
        return ErrorRecord("bad_number", str(error))
    return None


def cancelled(spec: TrialSpec | GradeSpec) -> TrialResult:
    """The result of a trial that was ended, or never begun, because its run was."""
    return unplayed(spec, "cancelled", None)


def unplayed(
    spec: TrialSpec | GradeSpec, status: TrialStatus, error: ErrorRecord | None, *, may_lack: bool = False
) -> TrialResult:
    """A result without a transcript; a trial that was to be graded keeps the one it has.

    It `may_lack` calls of models that its worker made; so does a trial whose attempts before were lost.
    """
    if isinstance(spec, GradeSpec):
        verdict, usages = trial_verdict((), spec.criteria, error), spec.result.usages
        usages = (*usages, replace(UNKNOWN, role="judge")) if may_lack else usages
        return replace(spec.result, status=status, verdict=verdict, scores=(), usages=usages, error=error)
    return TrialResult(
        run_id=spec.run_id,
        case_index=spec.case_index,
        trial_index=spec.trial_index,
        status=status,
        verdict=trial_verdict((), spec.criteria, error),
        stop_reason="error" if status == "errored" else status,
        usages=(UNKNOWN,) if may_lack or spec.losses else (),
        error=error,
        attempt=spec.attempt,
        losses=spec.losses,
    )


def _key(trial: TrialSpec | TrialResult) -> tuple[int, int, int, int]:
    return trial.run_id, trial.case_index, trial.trial_index, trial.attempt


def _words(key: tuple[int, int, int, int]) -> str:
    return "run {}, case {}, trial {}, attempt {}".format(*key)


def with_images(turns: Sequence[TurnRecord]) -> tuple[tuple[TurnRecord, ...], int]:
    """The turns with the first MAX_IMAGES characters of images that results have, and the number of these."""
    records, n = [], 0
    for turn in turns:
        events = list(turn.events)
        for at, event in enumerate(events):
            length = image_length(event)
            if n + length > MAX_IMAGES:
                events[at], length = replace(event, result=without_image_texts(event.result)), 0
            n += length
        records.append(replace(turn, events=tuple(events)))
    return tuple(records), n


def cut(record: TurnRecord, limit: int) -> TurnRecord:
    """The turn with every long text cut to `limit` characters and events left out, saying so.

    For a turn too big to be kept whole; keeps at most `limit` events, the first and the last ones.
    """
    events = record.events
    if len(events) > limit:
        n_out = len(events) - limit
        note = Event("log", at_ms=events[limit // 2].at_ms, author="evaldesk", text=f"… {n_out} events left out …")
        events = (*events[: limit // 2], note, *events[-(limit - limit // 2) :])
    return replace(
        record,
        events=tuple(_cut_event(event, limit) for event in events),
        state_before=_cut_object(record.state_before, limit),
        state_after=_cut_object(record.state_after, limit),
    )


def _cut_event(event: Event, limit: int) -> Event:
    call = event.call and replace(event.call, args=_cut_object(event.call.args, limit))
    result = event.result if len(to_json(event.result)) <= limit else _cut_text(to_json(event.result).decode(), limit)
    text = _cut_text(event.text, limit)
    changes = tuple(
        replace(change, before=_cut_value(change.before, limit), after=_cut_value(change.after, limit))
        for change in event.changes
    )
    request = event.waiting and replace(
        event.waiting,
        args=_cut_object(event.waiting.args, limit),
        question=_cut_value(event.waiting.question, limit),
    )
    return replace(event, call=call, result=result, text=text, changes=changes, waiting=request, media=())


def _cut_object(value: JsonObject, limit: int) -> JsonObject:
    return {_cut_text(key, limit): _cut_value(item, limit) for key, item in list(value.items())[:limit]}


def _cut_value(value: JsonValue, limit: int) -> JsonValue:
    data = to_json(value)
    return value if len(data) <= limit else _cut_text(data.decode(), limit)


def _cut_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters were cut)"
