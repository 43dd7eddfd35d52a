"""The simulated users of a run's trials: played in processes of their own, away from the agents. (decision 506)"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from evaldesk.engine.driver.chat_players import AgentPlayer, next_key
from evaldesk.engine.driver.worker_process import Death, Tasks, WorkerStartError
from evaldesk.engine.frames import NextMessage, Speak, Spoke, message_of, unplayed, user_spec
from evaldesk.engine.launch import OWN, Launcher
from evaldesk.engine.worker.attempt import LOAD_TIMEOUT_S, Pause
from evaldesk.errors import BadNumberError
from evaldesk.model import AgentRef, ErrorRecord, Prompts, Transcript, TrialResult, TrialSpec, TurnRecord
from evaldesk.model.result_checks import check_prompts
from evaldesk.model.transcript import check_event, check_turn
from evaldesk.model.user_reply import MODULE_USER, UserReply
from evaldesk.reading.scenario import own_model
from evaldesk.wire import plain_text


@dataclass(slots=True)
class Conversation:
    """The user's side of one trial, as far as its player was sent it.

    Of a simulated user it has the turns so far, and how its models were asked; `asking` is its question under way.
    """

    spec: TrialSpec
    number: int = field(default_factory=next_key)
    turns: list[TurnRecord] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    prompts: Prompts | None = None
    source: str | None = None
    n_sent: int = 1
    """Messages of a script that were sent: the first one goes with the trial."""
    asking: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        prefix = self.spec.prefix
        if prefix:
            self.turns += prefix.turns
            self.messages += (turn.query for turn in prefix.turns)
            self.messages += [plain_text(prefix.message)] if prefix.message else []
            self.n_sent += len(prefix.turns)

    @property
    def is_simulated(self) -> bool:
        """Whether a simulated user speaks, and no script."""
        return self.spec.case.scenario is not None

    def next_of_script(self) -> UserReply:
        """The next message of the script."""
        self.n_sent += 1
        return message_of(self.spec, self.n_sent - 1)

    def of_simulated(self, result: TrialResult) -> TrialResult:
        """The result with the messages that the simulated user sent, and how its models were asked."""
        turns = result.transcript.turns
        if len(turns) > len(self.messages):
            sentence = f"the player reports {len(turns)} turns; the simulated user sent {len(self.messages)} messages"
            return unplayed(self.spec, "errored", ErrorRecord("wrong_trial", sentence), may_lack=True)
        asked_turns = tuple(replace(turn, query=query) for turn, query in zip(turns, self.messages, strict=False))
        prompts = result.prompts.after(self.prompts) if result.prompts else self.prompts
        return replace(result, transcript=Transcript(asked_turns), prompts=prompts)


class SimulatedUsers:
    """Processes of users: one on Evaldesk's own interpreter for models, one for the functions of each agent's module.

    The latter comes to be by the `launcher` of the agent, since it imports the agent's module. `variables` are those of
    the agent's `.env`, for the keys of models.
    """

    def __init__(self, environment: Mapping[str, str], launcher: Launcher) -> None:
        self.variables: Mapping[str, str] = {}
        self._environment = environment
        self._launcher = launcher
        self._players: dict[AgentRef | None, AgentPlayer] = {}
        self._tasks = Tasks()

    @property
    def pauses(self) -> list[Pause]:
        """The last known pauses of users that are asked."""
        return [pause for player in self._players.values() if not player.is_idle for pause in player.worker.pauses]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are up."""
        return [player.pid for player in self._players.values() if player.worker.is_up]

    async def reply(self, conversation: Conversation, question: NextMessage) -> tuple[UserReply, float]:
        """The user's next message, and the seconds for which its own rate limit kept it; a failure is in it."""
        try:
            for turn in question.turns:
                check_turn(turn)
            conversation.turns += question.turns
            if conversation.source is None:
                conversation.source = question.offered_user
            spoke = await self._ask(conversation, question)
            for event in spoke.reply.events:
                check_event(event)
            check_prompts(spoke.prompts)
        except WorkerStartError as error:
            return _failed("worker_start", str(error), error.output), 0.0
        except BadNumberError as error:
            return _failed("bad_number", str(error)), 0.0
        if spoke.prompts:
            conversation.prompts = spoke.prompts.of_judges(is_wanted=False).after(conversation.prompts)
        if spoke.reply.text is not None:
            conversation.messages.append(plain_text(spoke.reply.text))
        return spoke.reply, max(spoke.paced_s, 0.0)

    async def close(self) -> None:
        """End the workers."""
        players = list(self._players.values())
        self._players.clear()
        for player in players:
            await player.close()

    async def _ask(self, conversation: Conversation, question: NextMessage) -> Spoke:
        spec = conversation.spec
        # A model is asked on Evaldesk's own interpreter, also where the module of the agent has a user of its own.
        source = conversation.source or ""
        if source == MODULE_USER and own_model(spec.case.scenario):
            source = ""
        timeout_s = min(max(question.left_s, 0.0), spec.limits.trial_timeout_s)
        frame = Speak(
            next_key(),
            conversation.number,
            user_spec(spec),
            source,
            tuple(conversation.turns),
            question.state,
            timeout_s,
        )
        player = await self._player(spec.agent if source == MODULE_USER else None)
        async with aclosing(player.ask(frame, LOAD_TIMEOUT_S + timeout_s)) as answers:
            answer = await anext(answers)
        if isinstance(answer, Spoke):
            return answer
        message, output = (answer.message, answer.output) if isinstance(answer, Death) else (str(type(answer)), "")
        return Spoke(frame.key, _failed("user_error", f"the simulated user: {message}", output))

    async def _player(self, agent: AgentRef | None) -> AgentPlayer:
        player = self._players.get(agent)
        if player is None or player.is_retired:
            if player:
                self._tasks.begin(player.close())
            player = self._players[agent] = AgentPlayer("")
        await player.start_once({**self._environment, **self.variables}, self._launcher if agent else OWN)
        return player


def _failed(kind: str, message: str, output: str = "") -> UserReply:
    return UserReply(stop="user_error", error=ErrorRecord(kind, message, output))
