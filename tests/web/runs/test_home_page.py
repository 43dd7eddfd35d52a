"""The first steps of a newcomer on the home page: each leads on, and is ticked when it is done."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from evaldesk.model import AgentRef, Case, Event, RunConfig, TrialResult, Turn, TurnRecord, Verdict
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.model.queues import QueueDraft, QueueStratum

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages

TITLES = ("Chat with an agent", "Save it as a case", "Run it 5 times", "Open a red square")


def first_steps(pages: RunPages) -> dict[str, tuple[bool, str, str]]:
    """By title: whether the step is done, its address and its text; nothing where they are not shown."""
    text = pages.get("/").text
    section = re.search(r"data-first-steps.*?</section>", text, re.DOTALL)
    found = re.findall(r"<li([^>]*)>.*?<h3>(.*?)</h3><p>(.*?)</p></li>", section[0] if section else "")
    steps = {}
    for marks, title, said in found:
        address = re.search(r'href="([^"]+)"', title)
        name = re.sub(r"<[^>]+>", "", title).removesuffix(" done")
        steps[name] = ("data-done" in marks, html.unescape(address[1]) if address else "", html.unescape(said))
    return steps


def chat(pages: RunPages) -> str:
    """The id of a session with one turn."""
    session = pages.desk.store.sessions.create(pages.agent, "A talk")
    pages.desk.store.sessions.append_turn(session.id, TurnRecord("hello", (Event("agent_message", 1, "dice", "Hi"),)))
    return session.id


def test_a_new_workspace_begins_with_a_chat_or_a_run(pages: RunPages) -> None:
    steps = first_steps(pages)

    assert tuple(steps) == TITLES
    assert [step[:2] for step in steps.values()] == [
        (False, f"/sessions/new?agent={pages.agent}"),
        (False, ""),
        (False, f"/runs/new?evalset={pages.evalset}&n=5"),
        (False, ""),
    ]
    assert pages.get(steps["Run it 5 times"][1]).status_code == 200


def test_each_step_that_is_done_is_ticked_and_leads_to_the_next(pages: RunPages) -> None:
    session = chat(pages)
    after_chat = first_steps(pages)
    pages.desk.store.sessions.note_case(session, pages.evalset, "greets")
    after_case = first_steps(pages)
    pages.finish()
    after_run = first_steps(pages)

    assert after_chat["Chat with an agent"] == (True, "", f"{pages.agent}, 1 turn")
    assert after_chat["Save it as a case"][:2] == (False, f"/sessions/{session}/case")
    assert after_case["Save it as a case"] == (True, "", "greets in dice_set")
    assert not after_case["Run it 5 times"][0]
    assert after_run["Run it 5 times"] == (True, "", "2 of 4 passed")
    assert not after_run["Open a red square"][0]


def test_a_step_stays_ticked_when_another_chat_begins_and_when_the_chat_is_deleted(pages: RunPages) -> None:
    sessions = pages.desk.store.sessions
    silent = sessions.create(pages.agent, "Not a word yet").id
    begun = first_steps(pages)
    session = chat(pages)
    sessions.create(pages.agent, "Not a word yet")
    said = first_steps(pages)
    sessions.note_case(session, pages.evalset, "greets")
    sessions.delete(session)
    deleted = first_steps(pages)

    assert begun["Chat with an agent"] == (False, f"/sessions/{silent}", "Type a message")
    assert said["Chat with an agent"] == (True, "", f"{pages.agent}, 1 turn")
    assert said["Save it as a case"][1] == f"/sessions/{session}/case"
    assert deleted["Chat with an agent"][0]
    assert deleted["Save it as a case"][0]


def test_a_first_run_without_a_scored_trial_is_told_by_its_state(pages: RunPages) -> None:
    config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc")
    pages.desk.store.runs.create(config, [Case("a", (Turn("hi"),))])

    assert first_steps(pages)["Run it 5 times"] == (True, "", "waiting")


def test_the_last_step_leads_to_a_failure_that_says_what_it_is(pages: RunPages) -> None:
    pages.finish()

    _, address, _ = first_steps(pages)["Open a red square"]

    assert 'data-shows="failure"' in pages.get(address).text


def test_a_page_of_a_trial_that_passed_ticks_nothing(pages: RunPages) -> None:
    run = pages.finish()
    square = re.search(r'data-status="passed" href="\d+(/cases/\d+/trials/\d+)"', pages.get(run).text)

    assert square
    assert "data-shows" not in pages.get(run + square[1]).text


def test_nothing_is_said_twice_and_the_steps_end_with_the_first_runs(pages: RunPages) -> None:
    chat(pages)
    new = pages.get("/").text
    for _ in range(4):
        pages.finish()
    used = pages.get("/").text

    assert "is not in an eval set yet" not in new
    assert "data-first-steps" not in used
    assert "is not in an eval set yet" in used


def test_a_gate_that_failed_waits_until_a_later_run_holds_it(pages: RunPages) -> None:
    pages.finish(n="1", min_pass_rate="1", max_unscored_rate="1", max_error_rate="1")
    failed_text = pages.get("/").text
    pages.finish(n="1", min_pass_rate="0", max_unscored_rate="1", max_error_rate="1")
    held_text = pages.get("/").text

    assert "A gate failed: Run 1, " in failed_text
    assert "A gate failed" not in held_text


def test_a_queue_that_is_not_read_to_its_end_waits(pages: RunPages) -> None:
    pages.finish(n="2")
    drafts = [QueueDraft(1, (1, at), 1, "failed") for at in range(2)]
    pages.desk.store.queues.create([QueueStratum(1, "failed", 2, 2)], drafts, "", is_blind=False)

    text = pages.get("/").text

    assert "2 trials to read in queue 1" in text
    assert "0 of 2 read, of run 1." in text


def test_runs_that_go_on_are_shown_with_their_progress(pages: RunPages) -> None:
    config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc")
    pages.desk.store.runs.create(config, [Case("a", (Turn("hi"),))])

    text = pages.get("/").text
    part = pages.get("/", **{"HX-Request": "true", "HX-Target": "div#live"}).text

    assert 'aria-labelledby="running"' in text
    assert "0 of 1" in part
    assert "<html" not in part


def test_the_page_is_read_anew_once_a_run_that_it_shows_ended(pages: RunPages) -> None:
    runs = pages.desk.store.runs
    first, second = (
        runs.create(RunConfig(AgentRef("dice", "dice:root_agent"), "calc"), [Case("a", (Turn("hi"),))])
        for _ in range(2)
    )
    part = {"HX-Request": "true", "HX-Target": "div#live"}
    address = f"/?live={first}&live={second}"

    before = pages.get(address, **part).text
    runs.set_status(second, "finished")
    after = pages.get(address, **part).text
    later = pages.get(f"/?live={first}", **part).text
    strange = pages.get("/?live=-1&live=x&live=%D9%A1&live=9999999999999999999", **part)

    assert re.findall('name="live" value="([0-9]+)"', before) == [str(second), str(first)]
    assert 'hx-trigger="load"' not in before + later
    assert 'hx-trigger="load"' in after
    assert 'hx-target="#main"' in after
    assert strange.status_code == 200
    assert 'hx-trigger="load"' not in strange.text


def test_home_names_the_kinds_of_failure_that_are_known(pages: RunPages) -> None:
    pages.finish(n="1")
    pages.post("/runs/1/cases/0/trials/0/findings", **{"labeller": "Ana", "new-mode": "wrong <sum>", "place": ""})

    assert '<a href="/failures/1"><span>wrong &lt;sum&gt;</span>' in pages.get("/").text


def test_an_experiment_that_is_done_is_told_with_its_answer_once_all_variants_ended(pages: RunPages) -> None:
    store, variants = pages.desk.store, (Variant("old", {"model": "old"}), Variant("new", {"model": "new"}))
    config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=5)
    cases = [Case(f"c{at}", (Turn("hi"),)) for at in range(12)]
    plannings = [store.runs.planning(config, cases) for _ in variants]
    store.experiments.begin(ExperimentPlan("models", variants, 7, 4), plannings)
    verdicts: tuple[Verdict, ...] = ("failed", "passed")
    for planning, verdict in zip(plannings, verdicts, strict=True):
        assert "Experiment 1 is done" not in pages.get("/").text
        store.runs.record(
            [TrialResult(planning.run_id, case, at, "finished", verdict) for case in range(12) for at in range(5)]
        )
        store.runs.set_status(planning.run_id, "finished")

    text = pages.get("/").text

    assert "Experiment 1 is done" in text
    assert "new is better than old" in text
    assert 'href="/experiments/1"' in text
