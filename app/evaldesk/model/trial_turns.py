"""The turns of a trial beside those of its case, read in part for a page, and the totals over all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from evaldesk.errors import NotFoundError
from evaldesk.model.agent_tree import AgentActions, agent_tree
from evaldesk.model.conclusion import Score
from evaldesk.model.evalset import Case, JsonObject, ToolCall, Turn
from evaldesk.model.run import TrialResult
from evaldesk.model.transcript import (
    MAX_NUMBER,
    Capture,
    Event,
    Transcript,
    TurnRecord,
    Usage,
    known_sum,
    reported_values,
)
from evaldesk.model.visibility import Visibility

MANY_CALLS = 2_000
"""The most calls of a trial whose turns one page may have whole."""
MANY_TURNS = 200
"""The most turns of a trial, a case or a chat that come at once. Longer ones come in pieces."""


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """The totals over all turns of a trial, for a page. `total_ms` is from the first turn to the last.

    `n_inner_calls` are the tool calls inside of a tool, which are not among `n_calls`; `n_sub_agents` are those of both
    in which a model was asked. `n_replayed` of the model calls
    were answered from a recording, `n_retries` were tried again. `turn_metrics` are the metrics that judged turns.
    `has_turn_calls` says whether metrics compared the calls turn by turn. `agents` are those that acted, each above
    those that it called.
    """

    n_turns: int = 0
    n_calls: int = 0
    n_inner_calls: int = 0
    n_model_calls: int = 0
    n_replayed: int = 0
    n_retries: int = 0
    n_agent_calls: int = 0
    n_sub_agents: int = 0
    n_waits: int = 0
    total_ms: float = 0.0
    captures: tuple[Capture, ...] = ()
    visibility: Visibility = field(default_factory=Visibility)
    reported: JsonObject = field(default_factory=dict)
    turn_metrics: tuple[str, ...] = ()
    has_turn_calls: bool = False
    is_least: bool = False
    is_interrupted: bool = False
    is_cut: bool = False
    is_waiting: bool = False
    agents: tuple[AgentActions, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnBlock:
    """Where some turns begin: the index of the first, and its start in milliseconds from that of the trial.

    `digest` is of all that `compared_content` gives of them, empty where it is not known.
    """

    first: int
    start_ms: float
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn of a case, the record of it, and its scores; `turn` or `record` is None where only the other one is."""

    turn: Turn | None
    record: TurnRecord | None
    scores: Sequence[Score] = ()


@dataclass(frozen=True, slots=True)
class TrialTurns:
    """A trial whose turns are read when they are wanted; `result` is None before anything was recorded.

    `case` and `result` have neither turns nor the scores of turns, and the usages are sums. `read_turns` gives the
    turns from an index up to another, `read_trial` the case and the trial, `read_usages` every model call. `blocks`
    are the turns that are read at once, in order; none where all are.
    """

    case: Case
    result: TrialResult | None
    summary: TrialSummary
    n_turns: int
    read_turns: Callable[[int, int], Sequence[PlayedTurn]]
    read_trial: Callable[[], tuple[Case, TrialResult | None]]
    read_usages: Callable[[], Sequence[Usage]]
    blocks: tuple[TurnBlock, ...] = ()

    @property
    def recorded_result(self) -> TrialResult:
        """The result. Raises NotFoundError before anything was recorded."""
        if self.result is None:
            raise NotFoundError("this trial was not played yet")
        return self.result

    @property
    def is_long(self) -> bool:
        """Whether it comes in pieces."""
        return self.n_turns > MANY_TURNS

    @property
    def is_large(self) -> bool:
        """Whether it is never whole on a page: of many turns, or of many calls in a turn."""
        return (
            self.is_long
            or sum((self.summary.n_calls, self.summary.n_inner_calls, self.summary.n_model_calls)) > MANY_CALLS
        )


def is_in_blocks(result: TrialResult) -> bool:
    """Whether a trial is stored so: one of many turns, or of many calls, which is large in whatever turns they are."""
    turns = result.transcript.turns
    return len(turns) > MANY_TURNS or sum(len(turn.events) for turn in turns) > MANY_CALLS


def turns_in_memory(case: Case, result: TrialResult | None) -> TrialTurns:
    """The turns of values that are read already."""
    records = result.transcript.turns if result else ()
    by_turn: defaultdict[int | None, list[Score]] = defaultdict(list)
    for score in result.scores if result else ():
        by_turn[score.turn].append(score)

    def read(first: int, end: int) -> Sequence[PlayedTurn]:
        return [
            PlayedTurn(
                case.turns[at] if at < len(case.turns) else None,
                records[at] if at < len(records) else None,
                by_turn.get(at, ()),
            )
            for at in range(first, end)
        ]

    return TrialTurns(
        case=bare_case(case),
        result=bare_result(result) if result else None,
        summary=summary_of(result) if result else TrialSummary(),
        n_turns=max(len(case.turns), len(records)),
        read_turns=read,
        read_trial=lambda: (case, result),
        read_usages=lambda: result.usages if result else (),
    )


def bare_case(case: Case) -> Case:
    """The case without its turns."""
    return replace(case, turns=())


def bare_result(result: TrialResult) -> TrialResult:
    """The result without its turns and their scores, with the sums of its usages."""
    scores = tuple(score for score in result.scores if score.turn is None)
    return replace(result, transcript=Transcript(), scores=scores, usages=_sums(result.usages))


def _sums(usages: Sequence[Usage]) -> tuple[Usage, ...]:
    """One usage for those of one model and kind, by which the sums of all stay what they are."""
    kinds: dict[tuple[object, ...], list[Usage]] = {}
    for usage in usages:
        kind = (usage.model, usage.role, usage.cost is None, usage.is_least, usage.is_replayed)
        kinds.setdefault(kind, []).append(usage)
    sums = [
        (group, sum(usage.tokens_in for usage in group), sum(usage.tokens_out for usage in group))
        for group in kinds.values()
    ]
    if any(max(tokens) > MAX_NUMBER for _, *tokens in sums):
        return tuple(usages)
    return tuple(
        Usage(
            model=group[0].model,
            role=group[0].role,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost=known_sum(usage.cost for usage in group),
            is_least=group[0].is_least,
            is_replayed=group[0].is_replayed,
        )
        for group, tokens_in, tokens_out in sums
    )


def summary_of(result: TrialResult) -> TrialSummary:
    """The summary of a whole result."""
    turns, usages = result.transcript.turns, result.usages
    of_turns = [score for score in result.scores if score.turn is not None]
    n_calls = n_inner_calls = n_agent_calls = n_waits = 0
    is_cut, is_waiting = False, False
    for turn in turns:
        for event in turn.events:
            if event.kind == "tool_call":
                n_calls += not event.within
                n_inner_calls += bool(event.within)
            elif event.usage:
                n_agent_calls += event.usage.role == "agent"
                is_cut |= event.usage.is_cut and event.usage.role == "agent"
            is_waiting |= event.kind == "waiting"
            n_waits += is_pause(event)
    return TrialSummary(
        n_turns=len(turns),
        n_calls=n_calls,
        n_inner_calls=n_inner_calls,
        n_model_calls=len(usages),
        n_replayed=sum(usage.is_replayed for usage in usages),
        n_retries=sum(max(usage.n_attempts - 1, 0) for usage in usages),
        n_agent_calls=n_agent_calls,
        n_sub_agents=sum(map(n_sub_agents, turns)),
        n_waits=n_waits,
        total_ms=sum(map(turn_ms, turns)),
        captures=result.transcript.captures,
        visibility=result.visibility,
        reported=reported_values(result.transcript),
        turn_metrics=tuple(dict.fromkeys(score.metric for score in of_turns)),
        has_turn_calls=any(judges_calls(score) for score in of_turns),
        is_least=result.is_least,
        is_interrupted=any(turn.stop_reason == "interrupted" for turn in turns),
        is_cut=is_cut,
        is_waiting=is_waiting,
        agents=agent_tree(turns),
    )


_OF_AGENT = frozenset({"agent_message", "tool_call", "usage"})


def turn_ms(turn: TurnRecord) -> float:
    """The time of a turn with that of its simulated user; it ends no earlier than its last event."""
    asking_ms, end_ms, is_asking = 0.0, turn.duration_ms, True
    for event in turn.events:
        if event.is_partial:
            continue
        user_ms = event.usage.duration_ms if event.usage and event.usage.role == "user" else None
        if user_ms is not None and is_asking:
            asking_ms += user_ms
            continue
        is_asking &= event.kind not in _OF_AGENT or user_ms is not None
        if event.kind in _TIMED or user_ms is not None:
            end_ms = max(end_ms, event.at_ms + (user_ms or 0.0))
        elif is_pause(event):
            end_ms = max(end_ms, event.at_ms + (event.duration_ms or 0.0))
    return asking_ms + end_ms


_TIMED = frozenset({"usage", "tool_call", "tool_result"})


def n_sub_agents(turn: TurnRecord) -> int:
    """The tool calls of a turn in which a model was asked."""
    if not any(event.within and event.usage for event in turn.events):
        return 0
    open_calls: list[tuple[int, ToolCall]] = []
    agents = set[int]()
    for at, event in enumerate(turn.events):
        call = event.call
        if event.is_partial or (event.usage and event.usage.role == "user"):
            continue
        if event.usage and event.usage.role == "agent":
            around = [index for index, each in open_calls if each.name == event.within]
            agents |= {*around[-1:]} if event.within else set()
        elif event.kind == "tool_call" and call:
            open_calls.append((at, call))
        elif event.kind == "tool_result" and call:
            ended_index = next((index for index, each in open_calls if is_same_call(each, call)), None)
            open_calls = [each for each in open_calls if each[0] != ended_index]
    return len(agents)


def is_same_call(call: ToolCall, other: ToolCall) -> bool:
    """Whether a result of one is that of the other: of the same id, else of the same name."""
    return call.id == other.id if call.id and other.id else call.name == other.name


def agent_text(turn: TurnRecord) -> str:
    """All messages of the agent in a turn, in order."""
    return "\n\n".join([*(text for _, text in turn.intermediate), turn.answer]).strip()


def compared_content(turn: TurnRecord) -> tuple[object, ...]:
    """All by which a turn differs from one beside it."""
    return turn.query, [(call.name, call.args) for call in turn.tool_calls], agent_text(turn)


def is_pause(event: Event) -> bool:
    """Whether the event says that the player waited, as before a retry."""
    return event.kind == "log" and bool(event.duration_ms) and event.author == "evaldesk"


def judges_calls(score: Score) -> bool:
    """Whether the score is of a tool metric with an alignment."""
    return score.metric.startswith("tool_") and "n_expected" in score.details
