"""The reading tools on many failures and large trials: the divergence first, and bounded answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.desk.desk import Desk
from evaldesk.desk.failures import TypedMode
from evaldesk.formats import write_evalset
from evaldesk.metrics import score_trial
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    EvalSet,
    Event,
    Expected,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.conclusion import trial_verdict
from evaldesk.pages.door.fit import fenced, fitted, material_of
from evaldesk.pages.door.tools import TOOLS, call
from evaldesk.settings import read_settings

CRITERIA = (Criterion("tool_trajectory_avg_score", 1.0), Criterion("response_match_score", 1.0))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    opened = Desk.open(read_settings(tmp_path, (tmp_path,), environment={}))
    yield opened
    asyncio.run(opened.close())


def answer(desk: Desk, name: str, **inputs: Any) -> dict[str, Any]:
    return asyncio.run(call(TOOLS[name], desk, inputs))


def stored_run(desk: Desk, cases: list[Case], results: list[TrialResult], n: int = 1) -> int:
    """A finished run of some results, whose run is not known to them."""
    config = RunConfig(AgentRef("bot", "python", "bot"), "set", n=n, criteria=CRITERIA)
    run = desk.store.runs.create(config, cases)
    desk.store.runs.record([replace(each, run_id=run) for each in results])
    desk.store.runs.set_status(run, "finished")
    return run


def scored(index: int, case: Case, turns: tuple[TurnRecord, ...]) -> TrialResult:
    """The only trial of a case, with the scores that a run gives it."""
    transcript = Transcript(turns)
    scores = score_trial(transcript, case, CRITERIA, strict=False)
    verdict = trial_verdict(scores, CRITERIA, None)
    return TrialResult(0, index, 0, "finished", verdict, transcript=transcript, scores=scores)


@pytest.mark.parametrize("seed", range(10))
def test_the_divergence_of_a_failure_is_within_the_first_1500_bytes(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    cases, results, marks = [], [], []
    for index in range(10):
        n_turns, wrong = chance.randrange(1, 12), 0
        wrong = chance.randrange(n_turns)
        mark = f"wrong{seed}x{index}"
        filler = "word " * chance.choice((1, 40, 400))
        turns, records = [], []
        for at in range(n_turns):
            is_call = chance.random() < 0.5
            before, after = ("text " * chance.choice((0, 30, 3_000)) for _ in range(2))
            args = {"city": f"{before}Paris{after}"}
            equal_calls = [
                ToolCall("search", {"city": f"Rome {number}"}) for number in range(chance.choice((0, 2, 60)))
            ]
            expected = (
                Expected(tool_calls=(*equal_calls, ToolCall("search", args)))
                if is_call
                else Expected(reference=f"{before}good day{after}")
            )
            turns.append(Turn(filler, expected))
            actual = ToolCall("search", {"city": f"{before}{mark}{after}"} if at == wrong else args)
            said = f"{before}{mark if at == wrong and not is_call else 'good day'}{after}"
            calls = [Event("tool_call", call=each) for each in (*equal_calls, actual)] if is_call else []
            events = (*calls, Event("agent_message", text=said))
            records.append(TurnRecord(filler, events))
        cases.append(Case(f"case_{index}", tuple(turns)))
        results.append(scored(index, cases[-1], tuple(records)))
        marks.append(mark)
    run = stored_run(desk, cases, results)
    assert {each.verdict for each in results} == {"failed"}

    for index, mark in enumerate(marks):
        value = answer(desk, "get_trial", run=str(run), case=f"case_{index}", trial=1, detail="turns")
        text = fenced(fitted(value, 8_000))
        assert mark in text.encode()[:1_500].decode("utf-8", "ignore"), text[:1_500]


def test_a_case_is_reached_beside_hundreds_whose_ids_contain_its_own(desk: Desk) -> None:
    cases = [Case(name, (Turn("hi"),)) for name in (*(f"roll_{at}" for at in range(230)), "roll")]
    run = stored_run(desk, cases, [scored(230, cases[-1], (TurnRecord("hi", (Event("agent_message", text="hey"),)),))])

    assert answer(desk, "get_trial", run=str(run), case="roll", trial=1)["page"] == f"/runs/{run}/cases/230/trials/0"


def test_a_long_answer_has_its_head_its_tail_its_length_and_its_digest(desk: Desk) -> None:
    said = "begin " + "x" * 10_000 + " end"
    case = Case("long", (Turn("hi", Expected(reference="good day")),))
    run = stored_run(desk, [case], [scored(0, case, (TurnRecord("hi", (Event("agent_message", text=said),)),))])

    text = answer(desk, "get_trial", run=str(run), case="long", trial=1)["text"]

    line = next(each for each in text.splitlines() if "actual answer" in each)
    assert '"begin x' in line
    assert 'x end"' in line
    assert f"10,010 characters, sha256 {hashlib.sha256(said.encode()).hexdigest()[:12]}" in line
    assert len(line) < 2_200


@pytest.mark.parametrize("detail", ["line", "turns", "full"])
@pytest.mark.parametrize("max_tokens", [500, 8_000])
def test_300_calls_and_10_megabytes_fit_the_tokens(desk: Desk, detail: str, max_tokens: int) -> None:
    calls = [ToolCall("search", {"n": number}, id=str(number)) for number in range(300)]
    events = [(Event("tool_call", call=each), Event("tool_result", call=each, result="x" * 35_000)) for each in calls]
    case = Case("big", (Turn("find it", Expected(reference="good day")),))
    record = TurnRecord("find it", (*chain(*events), Event("agent_message", text="done")))
    run = stored_run(desk, [case], [scored(0, case, (record,))])
    seen, cursor, limit = set(), 0, {"max_tokens": max_tokens}

    for _ in range(700):
        value = answer(desk, "get_trial", run=str(run), case="big", trial=1, detail=detail, cursor=cursor, **limit)
        assert "left_out" not in fitted(value, max_tokens)
        text = fenced(fitted(value, max_tokens, TOOLS["get_trial"].more, cursor))
        assert len(text.encode()) <= max_tokens * 3.5
        assert material_of(text)["verdict"] == "failed"
        seen |= set(re.findall(r"turn 1 event (\d+)", value["text"]))
        if value["next_cursor"] is None:
            break
        cursor = value["next_cursor"]

    assert value["next_cursor"] is None
    assert detail != "full" or len(seen) == 601
    assert json.dumps(value)


def test_a_search_answers_before_the_index_is_made_and_says_what_is_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.pages.door.trials.MOST_INDEXED_S", -1.0)  # after the fewest steps
    case = Case("greets", (Turn("greet", Expected(reference="good day")),))
    runs = []
    for word in ("oldest", "newer", "newest"):
        record = TurnRecord("greet", (Event("agent_message", text=f"a {word} llama"),))
        runs.append(stored_run(desk, [case], [scored(0, case, (record,))]))

    first = answer(desk, "search", text="llama")
    answers = [first, *(answer(desk, "search", text="llama") for _ in range(20))]

    assert [each["run"] for each in first["items"]] in ([], runs[2:])
    assert re.match(r"The texts of \d runs are not all searched yet; the index is made while a desk", first["behind"])
    assert [each["run"] for each in answers[-1]["items"]] == runs[::-1]
    assert answers[-1]["behind"] == ""


TEXTS = {
    "latin": "".join(f"{number:06} " for number in range(1_345)),
    "wide": "".join(chr(0x4E00 + number % 20_000) for number in range(12_435)),
    "escaped": "".join(f"\x1b##{number:04}" for number in range(2_000)),
    "short": "hi",
}


@pytest.mark.parametrize("detail", ["turns", "full"])
@pytest.mark.parametrize("max_tokens", [500, 8_000, 25_000])
@pytest.mark.parametrize("text", TEXTS)
def test_every_letter_of_a_trial_is_on_a_page(desk: Desk, text: str, max_tokens: int, detail: str) -> None:
    """The pages by next_cursor have each line, and the cursor in a long one leads to all of it."""
    turns = [TurnRecord(f"hi {at}", (Event("agent_message", text=f"{at} {TEXTS[text]}"),)) for at in range(3)]
    case = Case("long", (Turn("hi", Expected(reference="good day")),))
    run = stored_run(desk, [case], [scored(0, case, tuple(turns))])
    inputs = {"run": str(run), "case": "long", "trial": 1, "detail": detail}

    def page(cursor: int) -> dict[str, Any]:
        value = answer(desk, "get_trial", **inputs, cursor=cursor, max_tokens=max_tokens)
        assert fitted(value, max_tokens) == value
        return value

    def pages(cursor: int | None) -> Iterator[str]:
        while cursor is not None:
            value = page(cursor)
            yield value["text"]
            assert value["next_cursor"] is None or value["next_cursor"] != cursor
            cursor = value["next_cursor"]

    whole = "\n".join(pages(0))
    assert [f"turn {at} " in whole for at in (0, 1, 2, 3, 4)] == [False, True, True, True, False]
    for cursor in re.findall(r"characters, sha256 \w+, cursor (\d+) reads on", whole):
        rest = "".join(pages(int(cursor)))
        head = whole.partition(f", cursor {cursor} reads on")[0].rpartition(" […")[0].rpartition("\n")[2]
        whole = whole.replace(head, head + rest.partition("\n")[0])
    if detail == "full":
        for at in range(3):
            assert json.dumps(f"{at} {TEXTS[text]}", ensure_ascii=False)[1:-1] in whole


def test_no_part_of_a_secret_is_left_where_a_page_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("long", (Turn("hi", Expected(reference="good day")),))
    secret = "correct-horse-battery-staple"
    said = "xy " * 33 + f"{secret} " * 500
    run = stored_run(desk, [case], [scored(0, case, (TurnRecord("hi", (Event("agent_message", text=said),)),))])
    monkeypatch.setattr(desk, "settings", replace(desk.settings, environment={"DB_PASSWORD": secret}))
    texts, cursor = [], 2**20 + 1  # within the event

    while cursor is not None:
        value = answer(
            desk, "get_trial", run=str(run), case="long", trial=1, detail="full", cursor=cursor, max_tokens=500
        )
        texts.append(value["text"])
        cursor = value["next_cursor"]

    assert "[DB_PASSWORD]" in "".join(texts)
    assert not re.search("correct|horse|battery|staple", "".join(texts))


@pytest.mark.parametrize("max_tokens", [500, 2_000, 8_000])
@pytest.mark.parametrize(
    "tool", [name for name, each in TOOLS.items() if "limit" in each.inputs and "cursor" in each.inputs]
)
def test_every_item_is_on_a_page_that_is_cut_by_its_tokens(
    desk: Desk, tmp_path: Path, tool: str, max_tokens: int
) -> None:
    cases = [Case(f"case_{n:03}", (Turn("hi " * 200, Expected(reference="good day")),)) for n in range(120)]
    records = [(TurnRecord("hi", (Event("agent_message", text=f"{n} " * 100),)),) for n in range(120)]
    run = stored_run(desk, cases, [scored(n, case, records[n]) for n, case in enumerate(cases)])
    runs = [run, *(stored_run(desk, cases[:1], []) for _ in range(60))]
    (tmp_path / "calc.evalset.json").write_bytes(write_evalset(EvalSet("calc", cases=tuple(cases))))
    for n in range(30):
        (tmp_path / f"set_{n:02}.evalset.json").write_bytes(
            write_evalset(EvalSet(f"set_{n:02}", cases=tuple(cases[:1])))
        )
    for n in range(12):
        (tmp_path / f"agent_{n:02}").mkdir()
        (tmp_path / f"agent_{n:02}" / "agent.py").write_text("def root_agent(message):\n    return message\n")
    for n in range(15):
        kind = TypedMode(f"kind {n}", "It says too much. " * 20)
        ClientProposalDesk(desk).propose_kind("codex", kind)
    inputs = {"list_trials": {"run": str(run)}, "list_cases": {"set": "calc"}}.get(tool, {})
    key = {"list_trials": "case_id", "list_cases": "case_id"}.get(tool, "id")
    wanted: list[Any] = runs[::-1] if tool == "list_runs" else [case.id for case in cases]
    if key == "id" and tool != "list_runs":
        wanted = [each[key] for each in answer(desk, tool)["items"]]
        assert len(wanted) > 10
    seen: list[Any] = []
    cursor = 0

    for _ in range(200):
        value = answer(desk, tool, **inputs, cursor=cursor, limit=200)
        page = material_of(fenced(fitted(value, max_tokens, TOOLS[tool].more, cursor, TOOLS[tool].cursor_key)))
        seen += [each[key] for each in page["items"]]
        if page["next_cursor"] is None:
            break
        assert page["items"]
        cursor = page["next_cursor"]

    assert seen == wanted


def test_all_runs_are_reached_page_by_page(desk: Desk) -> None:
    case = Case("greets", (Turn("greet", Expected(reference="good day")),))
    runs = [stored_run(desk, [case], []) for _ in range(7)]
    seen, cursor = [], 0

    for _ in range(10):
        value = answer(desk, "list_runs", limit=3, cursor=cursor)
        seen += [each["id"] for each in value["items"]]
        assert (value["total_count"], value["has_more"]) == (7, value["next_cursor"] is not None)
        if value["next_cursor"] is None:
            break
        cursor = value["next_cursor"]

    assert seen == runs[::-1]
