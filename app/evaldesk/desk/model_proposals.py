"""Kinds of failure that a model proposes: each quote must occur letter by letter in its trial, and a person decides.

(reference/failure_modes.md section 5)
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING

from evaldesk.desk.failures import MAX_MODE_NAME, MAX_TEXT, literal_anchor
from evaldesk.desk.queues import drawing_order
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.errors import ConflictError, ModelError, UsageError
from evaldesk.metrics.judges.material import conversation_text
from evaldesk.metrics.judges.panel import Task, question
from evaldesk.metrics.judges.replies import Kinds, ReplyError, read_reply
from evaldesk.model import AgentRef, TrialResult, TurnRecord, TurnSpec
from evaldesk.model.failures import FindingDraft, Mode, trial_number
from evaldesk.model.stored import TrialKey
from evaldesk.model.transcript import known_sum
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.failure_steps import folded_name
from evaldesk.wire import plain_text, to_json

if TYPE_CHECKING:
    from evaldesk.desk.chat.sessions import TurnPlayer

N_TRIALS = 10
MAX_TRIAL = 8_000
"""Characters of a conversation that a model gets; the middle of a longer one is left out."""
MAX_KNOWN = 50
TIMEOUT_S = 180.0
TASK = Task(
    """
Each section TRIAL is a conversation between a user and an agent in which the agent failed, with its tool calls and \
their results. KNOWN KINDS, where it is there, lists the kinds of failure that people named already. Find what went \
wrong first in each trial, and group trials that failed for the same reason. Give each kind a short name of at most 60 \
letters and one sentence that says when a trial shows it; use the name of a known kind where it fits. For each trial \
of a kind copy, as quote, the shortest passage of one message, of one call's arguments or of one result that shows the \
failure, letter by letter. Leave out a trial in which you find no failure.
""",
    Kinds,
)


@dataclass(frozen=True, slots=True)
class ModelProposals:
    """The numbers of proposed modes and of their trials, and the refused quotes.

    `cost` is None where the price is not known.
    """

    model: str
    n_asked: int
    n_kinds: int
    n_trials: int
    refused_quotes: Sequence[str]
    tokens: int
    cost: float | None


class ModelProposalDesk:
    """Asks a model of the settings for failure modes; no proposal counts until a person accepts it."""

    def __init__(self, settings: Settings, store: Store, host: TurnPlayer) -> None:
        self._settings = settings
        self._store = store
        self._host = host
        self._going: set[int] = set()

    @property
    def models(self) -> Sequence[str]:
        """The models that may be asked, the judges first; without any nothing is proposed."""
        return tuple(dict.fromkeys((*self._settings.allowed_judges, *self._settings.models)))

    async def propose(self, run_id: int, model: str) -> ModelProposals:
        """Ask about the next unread failed trials of a run and the existing modes, and store the proposals.

        Raises UsageError for a model that the settings do not name and where nothing is left to ask about, ModelError
        for one that gives no answer that can be read, ConflictError while it is asked about this run, NotFoundError.
        """
        if model not in self.models:
            raise UsageError(f"{model} is not among the models of the settings", field="model")
        if run_id in self._going:
            raise ConflictError("a model is being asked about this run; wait for its answer")
        self._going.add(run_id)
        try:
            return await self._propose(run_id, model)
        finally:
            self._going.discard(run_id)

    async def _propose(self, run_id: int, model: str) -> ModelProposals:
        played_run = await asyncio.to_thread(played_run_id, self._store.runs, run_id)
        trials = await asyncio.to_thread(self._next_trials, played_run)
        proposals = self._store.proposals
        modes = [mode for mode in await asyncio.to_thread(self._store.failures.modes) if mode.is_active]
        if not trials:
            raise UsageError("Every failed trial was read, or a model was asked about it.", field="model")
        record = await self._ask(model, _sections(trials, modes))
        tokens = sum(usage.tokens_in + usage.tokens_out for usage in record.usages)
        cost = known_sum(usage.cost for usage in record.usages)
        await asyncio.to_thread(proposals.keep_question, played_run, model, len(trials), tokens, cost)
        reply = _read(model, record)
        drafts, refused_quotes = _drafts(played_run, trials, modes, reply)
        n_stored = await asyncio.to_thread(proposals.propose, drafts, "model")
        kinds = {draft.signature for draft in drafts}
        return ModelProposals(model, len(trials), len(kinds), n_stored, refused_quotes, tokens, cost)

    def _next_trials(self, run_id: int) -> Mapping[TrialKey, TrialResult]:
        """The next unread failed trials, else errored ones, without a model's answer yet."""
        failures = self._store.failures
        finished_numbers = failures.read_trials(run_id).read | self._store.proposals.asked_of_model(run_id)
        by_letter: dict[str, list[TrialKey]] = {"f": [], "e": []}
        for case, (_, strip) in enumerate(failures.verdicts(run_id)):
            for at, letter in enumerate(strip):
                if letter in by_letter and trial_number((case, at)) not in finished_numbers:
                    by_letter[letter].append((case, at))
        keys = [key for trial_keys in by_letter.values() for key in drawing_order(run_id, trial_keys)]
        return self._store.runs.trials(run_id, keys[:N_TRIALS])

    async def _ask(self, model: str, sections: Mapping[str, str]) -> TurnRecord:
        prompt = "\n\n".join(str(message["content"]) for message in question(TASK, sections))
        agent = AgentRef("kinds-of-failure", "", kind="litellm", declared=to_json({"model": model}).decode())
        spec = TurnSpec(
            secrets.token_hex(8), agent, prompt, model_options=self._settings.model_options, timeout_s=TIMEOUT_S
        )
        record = None
        async for item in self._host.play_turn(spec):
            record = item if isinstance(item, TurnRecord) else record
        return record or TurnRecord("", ())


def _read(model: str, record: TurnRecord) -> Kinds:
    if record.error:
        raise ModelError(record.error.message)
    try:
        return read_reply(record.answer, Kinds)
    except ReplyError as error:
        raise ModelError(f"{model} gave no answer that can be read: {error}") from None


def _sections(trials: Mapping[TrialKey, TrialResult], modes: Sequence[Mode]) -> dict[str, str]:
    mode_lines = "\n".join(f"{mode.name}: {mode.definition}" for mode in modes[:MAX_KNOWN])
    texts = {
        f"TRIAL {letter}": _trial_text(result) for letter, result in zip(ascii_uppercase, trials.values(), strict=False)
    }
    return ({"KNOWN KINDS": mode_lines} if mode_lines else {}) | texts


def _trial_text(result: TrialResult) -> str:
    text = plain_text(conversation_text(result.transcript.turns, with_steps=True))
    if result.error:
        text = f"{text}\nError: {plain_text(result.error.message)}"
    half = MAX_TRIAL // 2
    return text if len(text) <= MAX_TRIAL else f"{text[:half]}\n[…]\n{text[-half:]}"


def _drafts(
    run_id: int, trials: Mapping[TrialKey, TrialResult], modes: Sequence[Mode], reply: Kinds
) -> tuple[list[FindingDraft], list[str]]:
    """The findings to propose, at most one for a kind and a trial, and each quote that was refused."""
    by_name = {folded_name(mode.name): mode.id for mode in modes}
    by_letter = dict(zip(ascii_uppercase, trials.items(), strict=False))
    drafts: dict[tuple[str, TrialKey], FindingDraft] = {}
    refused_quotes: list[str] = []
    for name, definition, letter, quote in _findings_of(reply):
        if letter not in by_letter:
            refused_quotes.append(quote)
            continue
        key, result = by_letter[letter]
        anchor = literal_anchor(result, quote)
        if anchor is None:
            refused_quotes.append(quote)
            continue
        note, folded = f"{name}: {definition}" if definition else name, folded_name(name)
        draft = FindingDraft(run_id, *key, note, by_name.get(folded), anchor, f"model|{folded}")
        drafts.setdefault((folded, key), draft)
    return [*drafts.values()], refused_quotes


def _findings_of(reply: Kinds) -> Iterator[tuple[str, str, str, str]]:
    """Name, definition, trial and quote of each finding, without text that cannot be stored."""
    for kind in reply.kinds:
        name = " ".join(plain_text(kind.name).split())[:MAX_MODE_NAME].rstrip()
        definition = " ".join(plain_text(kind.definition).split())[:MAX_TEXT]
        for each in kind.trials:
            if name and name.isprintable():
                yield name, definition, each.trial.strip().upper().removeprefix("TRIAL").strip(), each.quote.strip()
