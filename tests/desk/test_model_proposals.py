"""Kinds of failure that a model proposes: quoted letter by letter, counted nowhere before a person accepts them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from evaldesk.desk.failures import FailureDesk, TypedFinding, TypedMode, literal_anchor
from evaldesk.desk.model_proposals import MAX_TRIAL, N_TRIALS, ModelProposalDesk
from evaldesk.errors import ConflictError, ModelError, UsageError
from evaldesk.model import (
    AgentRef,
    Case,
    ErrorRecord,
    Event,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    TurnSpec,
    Usage,
)
from evaldesk.model.failures import Anchor, Asked
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = pytest.mark.anyio

CALL = ToolCall("book", {"day": "2026-12-04", "to": "Rome"})


def said(answer: str) -> Transcript:
    events = (
        Event("tool_call", call=CALL),
        Event("tool_result", call=CALL, result={"price": 120}),
        Event("agent_message", text=answer),
    )
    return Transcript((TurnRecord("Book next Friday.", events),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evaldesk.db") as opened:
        yield opened


def failed_run(store: Store, n: int, letters: str = "") -> int:
    run_id = store.runs.create(RunConfig(AgentRef("a", "a"), "s"), [Case(f"c{at}", (Turn("q"),)) for at in range(n)])
    verdicts: dict[str, Any] = {"p": "passed", "f": "failed"}
    results = [
        TrialResult(run_id, at, 0, "finished", verdicts[letter], transcript=said(f"Booked {at}."))
        for at, letter in enumerate(letters or "f" * n)
    ]
    store.runs.record(results)
    return run_id


class Model:
    """A host whose agent answers each question with what `reply` makes of its sections."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.asked: list[TurnSpec] = []
        self.usages: list[Usage] = []

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        self.asked.append(spec)
        found = self.reply(spec.message)
        if asyncio.iscoroutine(found):
            found = await found
        text = found if isinstance(found, str) else json.dumps({"kinds": found})
        used = (Event("usage", usage=each) for each in self.usages)
        yield TurnRecord("", (*used, Event("agent_message", text=text)))

    async def stop_turn(self, session_id: str) -> None:
        """Nothing runs."""


def desk(store: Store, tmp_path: Path, reply: Any, *models: str) -> tuple[ModelProposalDesk, Model]:
    model = Model(reply)
    settings = Settings(tmp_path, (tmp_path,), judges=models or ("small",))
    return ModelProposalDesk(settings, store, model), model


def quoting(*quotes: str, name: str = "wrong day", definition: str = "Books another day.") -> list[dict[str, Any]]:
    trials = [{"trial": letter, "quote": quote} for letter, quote in zip("ABCDEFGHIJ", quotes, strict=False)]
    return [{"name": name, "definition": definition, "trials": trials}]


@pytest.mark.parametrize(
    ("quote", "place"),
    [
        ("Booked 0.", Anchor(0, 2, 0, 9, "Booked 0.")),
        ('"day": "2026-12-04"', Anchor(0, 0, quote='"day": "2026-12-04"')),
        ('{"price": 120}', Anchor(0, 1, quote='{"price": 120}')),
        ("next Friday", Anchor(0, quote="next Friday")),
        ("HTTP 500", Anchor(quote="HTTP 500")),
        ("booked 0.", None),
        ("Booked 0. {", None),
        ("Booked  0.", None),
        ("", None),
    ],
)
def test_a_quote_is_found_only_letter_by_letter(quote: str, place: Anchor | None) -> None:
    error = ErrorRecord("model", "HTTP 500: no answer")
    result = TrialResult(1, 0, 0, "errored", "errored", transcript=said("Booked 0."), error=error)

    assert literal_anchor(result, quote) == place


async def test_what_a_model_proposes_waits_with_its_quote_and_counts_nowhere(store: Store, tmp_path: Path) -> None:
    run = failed_run(store, 3)
    asking, model = desk(store, tmp_path, lambda _: quoting("Booked 0.", "never said", "2026-12-04"))
    failures = FailureDesk(store)

    found = await asking.propose(run, "small")

    by_order = {each.anchor.quote for each in store.failures.list(run, status="proposed")}
    assert (found.n_asked, found.n_kinds, "never said" in found.refused_quotes) == (3, 1, True)
    assert found.n_trials == len(by_order) == 3 - len(found.refused_quotes)
    assert store.failures.read_trials(run).read == frozenset()
    assert store.failures.modes() == []
    (group,) = store.proposals.proposed(run)
    assert (group.source, group.note) == ("model", "wrong day: Books another day.")
    failures.decide(
        [finding for finding, _ in group.findings], TypedFinding("Ana", new_mode="Wrong day"), is_accepted=True
    )
    (mode,) = store.failures.modes()
    assert (mode.name, mode.definition) == ("Wrong day", "Books another day.")
    assert store.failures.trials_by_run(mode.id) == {run: len(group.findings)}
    assert "CONVERSATION" not in model.asked[0].message
    assert "<<<TRIAL A " in model.asked[0].message


async def test_a_trial_that_is_read_or_was_proposed_is_not_asked_again(store: Store, tmp_path: Path) -> None:
    run = failed_run(store, N_TRIALS + 3, "f" * (N_TRIALS + 2) + "p")
    asking, model = desk(store, tmp_path, lambda text: quoting(*["2026-12-04"] * text.count("<<<TRIAL ")))
    FailureDesk(store).clear(run, (0, 0), "Ana")

    first = await asking.propose(run, "small")
    second = await asking.propose(run, "small")

    assert (first.n_asked, first.n_trials, second.n_asked, second.n_trials) == (N_TRIALS, N_TRIALS, 1, 1)
    with pytest.raises(UsageError, match="Every failed trial was read"):
        await asking.propose(run, "small")
    assert len(model.asked) == 2


async def test_a_kind_that_people_named_is_offered_and_used(store: Store, tmp_path: Path) -> None:
    run, failures = failed_run(store, 1), FailureDesk(store)
    mode = failures.create(TypedMode("Wrong day", "of people"), "Ana")
    asking, model = desk(store, tmp_path, lambda _: quoting("Booked 0.", name=" WRONG  day "))

    await asking.propose(run, "small")

    (group,) = store.proposals.proposed(run)
    assert group.mode_id == mode
    assert "Wrong day: of people" in model.asked[0].message


@pytest.mark.parametrize(
    "reply",
    ["", "no", "{}", '{"kinds": 3}', '{"kinds": [{"name": "x", "trials": [{"trial": "A"}]}]}', '{"kinds": [' * 10_000],
)
async def test_an_answer_in_another_form_is_an_error_and_stores_nothing(
    reply: str, store: Store, tmp_path: Path
) -> None:
    run = failed_run(store, 1)
    asking, _ = desk(store, tmp_path, lambda _: reply)

    with pytest.raises(ModelError, match="no answer that can be read"):
        await asking.propose(run, "small")

    assert store.proposals.proposed(run) == []


async def test_what_each_question_cost_is_kept_also_where_its_answer_cannot_be_read(
    store: Store, tmp_path: Path
) -> None:
    run = failed_run(store, 1)
    asking, model = desk(store, tmp_path, lambda _: "no")
    assert store.proposals.model_use(run) == Asked(0, 0, 0.0)

    model.usages = [Usage("m", tokens_in=100, tokens_out=20, cost=0.25), Usage("m", tokens_in=3, cost=0.5)]
    with pytest.raises(ModelError):
        await asking.propose(run, "small")
    model.reply = lambda _: quoting("Booked 0.")
    told = await asking.propose(run, "small")

    assert (told.tokens, told.cost) == (123, 0.75)
    assert store.proposals.model_use(run) == Asked(2, 246, 1.5)
    store.proposals.keep_question(run, "small", 1, 4, None)
    assert store.proposals.model_use(run) == Asked(3, 250, None)
    store.runs.delete(run)
    assert store.proposals.model_use(run) == Asked(0, 0, 0.0)


@pytest.mark.parametrize("name", ["", " ", "a\u202eb", "x" * 500, "<script>", "\ud800"])
async def test_names_and_letters_of_any_kind_never_break_the_room(name: str, store: Store, tmp_path: Path) -> None:
    run = failed_run(store, 1)
    found = [
        {
            "name": name,
            "definition": name * 30,
            "trials": [{"trial": each, "quote": "Booked"} for each in ("A", "Q", name)],
        }
    ]
    asking, _ = desk(store, tmp_path, lambda _: found)

    try:
        told = await asking.propose(run, "small")
    except ModelError:
        return

    assert told.n_trials == len(store.failures.list(run, status="proposed"))
    assert all(len(each.note) < 4_000 for each in store.failures.list(run, status="proposed"))


async def test_only_a_model_of_the_settings_is_asked_and_one_at_a_time(store: Store, tmp_path: Path) -> None:
    run, going = failed_run(store, 1), asyncio.Event()

    async def slow() -> list[dict[str, Any]]:
        await going.wait()
        return []

    asking, model = desk(store, tmp_path, lambda _: slow())
    with pytest.raises(UsageError, match="not among the models"):
        await asking.propose(run, "openai/gpt@http://evil.invalid")
    first = asyncio.create_task(asking.propose(run, "small"))
    await asyncio.sleep(0)
    with pytest.raises(ConflictError, match="being asked"):
        await asking.propose(run, "small")
    going.set()
    assert (await first).n_kinds == 0
    assert len(model.asked) == 1


async def test_a_model_that_fails_says_why(store: Store, tmp_path: Path) -> None:
    run = failed_run(store, 1)
    asking, model = desk(store, tmp_path, lambda _: "")
    error = ErrorRecord("model", "HTTP 401: wrong key")

    async def broken(spec: TurnSpec) -> AsyncIterator[TurnRecord]:
        yield TurnRecord("", (Event("error", error=error),), stop_reason="error")

    model.play_turn = broken  # type: ignore[method-assign]

    with pytest.raises(ModelError, match="wrong key"):
        await asking.propose(run, "small")


async def test_a_long_conversation_is_cut_in_its_middle(store: Store, tmp_path: Path) -> None:
    run = store.runs.create(RunConfig(AgentRef("a", "a"), "s"), [Case("c", (Turn("q"),))])
    text = f"begin {'x' * 3 * MAX_TRIAL} end"
    store.runs.record([TrialResult(run, 0, 0, "finished", "failed", transcript=said(text))])
    asking, model = desk(store, tmp_path, lambda _: [])

    await asking.propose(run, "small")

    assert MAX_TRIAL < len(model.asked[0].message) < 2 * MAX_TRIAL
    assert " end" in model.asked[0].message
