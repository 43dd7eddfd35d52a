"""Reviewing in three engines: the pages on which one reads and judges choose nothing and say nothing misleading."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e import engines

from evaldesk.desk.desk import Desk
from evaldesk.formats.files import read_file
from evaldesk.model import (
    AgentRef,
    Case,
    ErrorRecord,
    Event,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Verdict,
    Waiting,
)
from evaldesk.settings import Settings
from evaldesk.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from tests.e2e.conftest import Furniture, RunningDesk

pytestmark = pytest.mark.browser

TAU = Path(__file__).parents[1] / "formats" / "exchange_samples" / "tau-bench.json"
LATE = "My order is late, and nobody answers."
PARROT = '''"""Repeats, and breaks when it is told to."""


def root_agent(message, state):
    """Raises, or repeats the message."""
    if "raise" in message:
        raise LookupError("no price list for 2026")
    return message
'''
KEYLESS = """from evaldesk import LlmAgent

root_agent = LlmAgent(name="keyless", model="openai/gpt-4o", api_key_env="KEY_THAT_NOBODY_HAS_SET")
"""
TRIP = "## Your trip\n\nThe **red** car, 2 bags."
OTHER_TRIP = "## Your trip\n\nThe **blue** car, 2 bags."
IMPORTED, NEWEST_READ = 1, 4
TRIAL = "/runs/2/cases/0/trials"
N_LONG = 20
SESSION_NAMES = ("chromium", "firefox", "webkit")
N_SHOWN = "[...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility()).length"
IS_READY = "document.readyState === 'complete'"


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """Two agents, a run whose trials differ in each way, a newer one that passed, and chats that wait for a person."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    for name, source in (("parrot", PARROT), ("keyless", KEYLESS)):
        (workspace / "agents" / name).mkdir(parents=True)
        (workspace / "agents" / name / "agent.py").write_text(source, "utf-8")
    settings = Settings(workspace=workspace, roots=(workspace / "agents",))
    settings.state_folder.mkdir()
    _bring_in(settings)
    with Store.open(settings.database) as store:
        _play(store, _differing_trials())
        _play(store, [("passed", TRIP, "book")] * 4)
        _play_long(store)
        unplayed = RunConfig(AgentRef("parrot", "parrot"), "trips")
        store.runs.set_status(store.runs.create(unplayed, [Case("later", (Turn("Hello."),))]), "stopped")
        for name in SESSION_NAMES:
            _wait_for_approval(store, name)
    return ("agents",)


def _bring_in(settings: Settings) -> None:
    """A run of another tool, whose cases have numbers for names."""
    trials = json.loads(TAU.read_text())
    for trial in trials:
        trial["traj"][1]["content"] = LATE
    desk = Desk.open(settings)
    try:
        imported = read_file(json.dumps(trials).encode(), TAU.name)
        outcome = desk.imports.take_in(imported, source=TAU.name, name="tau", again=True)
        assert outcome.run_ids == (IMPORTED,)
    finally:
        desk.store.close()


def _differing_trials() -> list[tuple[Verdict, str, str]]:
    """The verdict, answer and call of each trial: passed, failed by its answer, failed by its call, errored, passed."""
    return [
        ("passed", TRIP, "book"),
        ("failed", OTHER_TRIP, "book"),
        ("failed", TRIP, "cancel"),
        ("errored", "", "book"),
        ("passed", TRIP, "book"),
    ]


def _play(store: Store, trials: list[tuple[Verdict, str, str]]) -> None:
    case = Case(
        "trip", (Turn("Book my trip.", Expected(tool_calls=(ToolCall("book", {"seat": 4_000_000}),), reference=TRIP)),)
    )
    run_id = store.runs.create(RunConfig(AgentRef("parrot", "parrot"), "trips", n=len(trials)), [case])
    store.runs.record([_result(run_id, at, *trial) for at, trial in enumerate(trials)])
    store.runs.set_status(run_id, "finished")


def _play_long(store: Store) -> None:
    """A case of twenty trials, as a phone shows it."""
    case = Case(
        "long", (Turn("Book my trip.", Expected(tool_calls=(ToolCall("book", {"seat": 4_000_000}),), reference=TRIP)),)
    )
    run_id = store.runs.create(RunConfig(AgentRef("parrot", "parrot"), "trips", n=N_LONG), [case])
    trials: list[tuple[Verdict, str, str]] = [("passed", TRIP, "book"), ("failed", OTHER_TRIP, "book")]
    store.runs.record([_result(run_id, at, *trials[at % 2]) for at in range(N_LONG)])
    store.runs.set_status(run_id, "finished")


def _result(run_id: int, at: int, verdict: Verdict, answer: str, tool: str) -> TrialResult:
    call = ToolCall(tool, {"seat": 4_000_000})
    error = ErrorRecord("rate_limit", "429") if verdict == "errored" else None
    events = [Event("tool_call", call=call), Event("tool_result", call=call, result="done")]
    events += [] if error else [Event("agent_message", author="parrot", text=answer)]
    scores = (
        Score("tool_trajectory_avg_score", float(tool == "book"), threshold=1.0, passed=tool == "book"),
        Score("response_match_score", float(answer == TRIP), threshold=0.9, passed=answer == TRIP),
    )
    return TrialResult(
        run_id,
        0,
        at,
        status="errored" if error else "finished",
        verdict=verdict,
        stop_reason="error" if error else "answered",
        transcript=Transcript((TurnRecord("Book my trip.", tuple(events)),)),
        scores=() if error else scores,
        error=error,
    )


def _wait_for_approval(store: Store, name: str) -> None:
    session = store.sessions.create("parrot", f"refund of {name}")
    call = ToolCall("refund", {"order": 7}, "c1")
    approval = Waiting("c1", "refund", {"order": 7}, question="Refund 30 for A-17?")
    events = (Event("tool_call", call=call), Event("waiting", waiting=approval))
    store.sessions.append_turn(session.id, TurnRecord("Refund 7.", events, {}, {}, 10.0, "awaiting_approval"))


@pytest.fixture(scope="module", params=SESSION_NAMES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def window(
    engine: str, browser: Browser, desk: RunningDesk, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[engines.Window]:
    with engines.opened(engine, browser, tmp_path_factory.mktemp(engine)) as window:
        window.resize(1440, 900)
        window.goto(f"{desk.address}/?token={desk.token}")
        yield window
        errors = re.findall(rf"JavaScript error: {desk.address}.*", window.log())
        assert errors == []


def go(window: engines.Window, desk: RunningDesk, path: str) -> None:
    """Open a page of the desk, once its script listens to keys."""
    window.goto(f"{desk.address}{path}")
    window.wait_for(f"{IS_READY} && document.querySelector('main h1')")


def n_shown(window: engines.Window, selector: str) -> int:
    """How many elements of a selector can be seen."""
    return int(window.ask(N_SHOWN, selector))


def text_of(window: engines.Window, selector: str = "main") -> str:
    """The text that can be read in the first element of a selector."""
    return str(window.ask("document.querySelector(arguments[0]).innerText", selector))


def test_an_equal_answer_is_rendered_once_and_raw_by_a_key(window: engines.Window, desk: RunningDesk) -> None:
    go(window, desk, f"{TRIAL}/2")

    assert text_of(window, "table.diff").count("Your trip") == 1
    assert "same answer" in text_of(window, "table.diff")
    assert "**" not in text_of(window, "table.diff")
    window.type("body", "v")
    window.says("## Your trip", "table.diff")
    window.type("body", "v")
    window.wait_for("!document.querySelector('table.diff').innerText.includes('**')")


def test_another_answer_is_rendered_with_marks_where_it_differs(window: engines.Window, desk: RunningDesk) -> None:
    go(window, desk, f"{TRIAL}/1")

    marks = "[...document.querySelectorAll('table.diff .prose :is(del, ins)')].map((each) => each.innerText)"
    assert window.ask(marks) == ["red", "blue"]
    assert "**" not in text_of(window, "table.diff")
    window.type("body", "v")
    window.says("The **blue** car", "table.diff")
    window.type("body", "v")
    window.wait_for("!document.querySelector('table.diff').innerText.includes('**')")


def test_a_failed_trial_opens_beside_one_that_passed(window: engines.Window, desk: RunningDesk) -> None:
    for trial in (1, 2):
        go(window, desk, f"{TRIAL}/{trial}")
        window.type("body", "s")
        window.wait_for("location.pathname.endsWith('/pair')")
        window.wait_for(IS_READY)

        other = re.search(r"with=2\.0\.(\d)", window.address)
        assert other
        assert other[1] in "04"


def test_only_a_trial_that_can_mismatch_leads_to_the_next_mismatch(window: engines.Window, desk: RunningDesk) -> None:
    go(window, desk, "/runs/3/cases/0/trials/1")
    assert "mismatch" not in text_of(window)
    assert n_shown(window, "[data-key=n], [data-key=p]") == 0

    go(window, desk, f"{TRIAL}/0")
    primary = "[...document.querySelectorAll('[data-kind=primary]')].map((each) => each.innerText).join()"
    assert "mismatch" not in window.ask(primary)  # it passed: the next mismatch is there, and not the first thing to do


def test_an_imported_run_shows_first_messages_and_the_reasons_of_its_source(
    window: engines.Window, desk: RunningDesk
) -> None:
    go(window, desk, f"/runs/{IMPORTED}")
    window.says(LATE, "#cases")

    assert "too few" not in text_of(window, "#cases")
    go(window, desk, f"/runs/{IMPORTED}/divergences")
    assert "reward failed" not in text_of(window)
    assert re.search(r"reward: \w+", text_of(window))


def test_the_run_of_a_new_queue_has_something_to_read(window: engines.Window, desk: RunningDesk) -> None:
    go(window, desk, "/queues")

    assert window.ask("[...document.querySelectorAll('[name=run]:checked')].map((each) => each.value)") == [
        str(NEWEST_READ)
    ]


def test_a_new_queue_draws_each_verdict_of_a_run_with_unread_trials(
    window: engines.Window, desk: RunningDesk, engine: str
) -> None:
    ticked = "[...document.querySelectorAll(`[name=${arguments[0]}]:checked`)].map((each) => each.value)"
    go(window, desk, "/queues?run=2")

    assert window.ask(ticked, "of") == ["failed", "errored", "passed", "unscored"]
    assert window.ask("document.querySelector('[name=blind]').checked")
    assert window.ask("document.querySelector('#n').value") == "10"
    window.fill("#reader", engine)
    window.press("Start reading")
    window.says("0 of 5 read", "h1")
    window.wait_for(IS_READY)
    head = text_of(window, "#review .queuebar")
    assert not re.search(r"fail|pass|error", head, re.IGNORECASE), head
    assert n_shown(window, "#review [data-key=a]") == 0  # what can be accepted has failed

    for key, n_read in (("1", 1), ("2", 2)):
        window.type("body", key)
        window.says(f"{n_read} of 5 read", "h1")
    window.wait_for(IS_READY)
    assert "kappa" not in text_of(window)


def test_no_agreement_is_counted_where_one_verdict_is_absent(
    window: engines.Window, desk: RunningDesk, engine: str
) -> None:
    go(window, desk, "/queues?run=3&of=passed&n=2")
    window.fill("#reader", f"{engine} two")
    window.press("Start reading")
    window.says("0 of 2 read", "h1")
    window.wait_for(IS_READY)

    window.type("body", "1")
    window.says("1 of 2 read", "h1")
    window.type("body", "1")
    window.says("All 2 read")

    assert not re.search(r"kappa[^.]*0\.00|κ[^.]*0\.00", text_of(window))
    go(window, desk, "/labels?run=3")
    assert not re.search(r"kappa[^.]*0\.00|κ[^.]*0\.00", text_of(window))


def test_an_agent_without_its_key_is_not_ready_and_a_new_session_says_so(
    window: engines.Window, desk: RunningDesk
) -> None:
    go(window, desk, "/agents")
    window.says("KEY_THAT_NOBODY_HAS_SET", "article[aria-labelledby=agent-keyless]")
    badge = text_of(window, "article[aria-labelledby=agent-keyless] header")
    assert "key missing" in badge
    assert "ready" not in badge

    go(window, desk, "/sessions/new?agent=keyless")
    window.says("KEY_THAT_NOBODY_HAS_SET")
    window.says("model calls will fail")


def test_an_errored_turn_is_sent_again_or_edited(window: engines.Window, desk: RunningDesk) -> None:
    go(window, desk, "/sessions/new?agent=parrot")
    window.press("Start session")
    window.find("#turns")
    window.type("[data-enter]", "raise it")
    window.type("[data-enter]", "Enter")
    window.says("no price list for 2026", "#turns")
    window.wait_for(f"{IS_READY} && document.querySelector('#turn-1 .again[data-errored]')")
    session = window.address

    assert n_shown(window, "#turn-1 .again button") == 1
    primary = "[...document.querySelectorAll('main [data-kind=primary]')].map((each) => each.innerText.trim())"
    assert not any("Add current session" in each for each in window.ask(primary))
    window.click("#turn-1 .again a")
    window.wait_for("location.pathname.endsWith('/turns/0/message')")
    assert window.ask("document.querySelector('main textarea').value") == "raise it"

    window.goto(session)
    window.click("#turn-1 .again button")
    window.wait_for("location.href.split('#')[0] !== arguments[0].split('#')[0]", session)
    window.says("no price list for 2026", "#turns")


def test_an_approval_has_approve_first_and_a_field_only_after_deny_or_answer(
    window: engines.Window, desk: RunningDesk, engine: str
) -> None:
    with closing(sqlite3.connect(desk.workspace / ".evaldesk" / "evaldesk.db")) as connection:
        query = "SELECT id FROM session WHERE title = ?"
        (session,) = connection.execute(query, [f"refund of {engine}"]).fetchone()
    go(window, desk, f"/sessions/{session}")
    window.says("waits for your decision")
    form = "form[action$='/decisions']"

    assert "Refund 30 for A-17?" in text_of(window, form)
    assert 'question "' not in text_of(window, form)
    assert n_shown(window, f"{form} :is(textarea, input:not([type=hidden]))") == 0
    names = f'[...document.querySelectorAll("{form} :is(button, summary)")].map((each) => each.innerText.trim())'
    assert next(each for each in window.ask(names) if each in ("Approve", "Deny", "Answer")) == "Approve"
    for name in ("Deny", "Answer"):
        window.click(f"//form[contains(@action, '/decisions')]//summary[contains(., '{name}')]")
    window.wait_for(f"{N_SHOWN} === 2", f"{form} :is(textarea, input:not([type=hidden]))")


def test_the_list_of_keys_begins_with_those_of_the_page(window: engines.Window, desk: RunningDesk) -> None:
    go(window, desk, f"{TRIAL}/1")
    window.type("body", "?")
    window.wait_for("document.querySelector('#keys:popover-open')")

    assert text_of(window, "#keys h3") == "On this page"
    here = text_of(window, "[data-keys-here]")
    assert "Side by side" in here
    assert "Next mismatch" in here
    assert "criterion" not in here  # of the run form
    window.type("body", "Escape")
    window.wait_for("!document.querySelector('#keys:popover-open')")


def test_the_beginning_of_a_kind_offers_it_before_another_is_made(
    window: engines.Window, desk: RunningDesk, engine: str
) -> None:
    kinds = (f"{engine} skips the check", f"{engine} skips")
    for typed in kinds:
        go(window, desk, f"{TRIAL}/2")
        if n_shown(window, "#finder"):
            window.fill("#finder", engine)
        window.fill("#findings #new-mode", typed)
        window.press("Store the finding")
        window.wait_for(IS_READY)
        if typed == kinds[1]:
            window.says(f"Use {kinds[0]}", "#findings")
            window.says(f"Make {kinds[1]}", "#findings")
            window.press(f"Use {kinds[0]}")
            window.wait_for("!document.querySelector('#findings button[name=new-mode]')")  # the page after it
        window.says(kinds[0], "#findings .labels")
        window.wait_for(IS_READY)

    assert f"{kinds[1]}\n" not in text_of(window, "#findings .labels").replace(kinds[0], "")
    go(window, desk, "/failures?run=2")
    assert n_shown(window, "main input[type=number]") == 0  # a run is chosen in a list
    assert window.ask("document.querySelectorAll('main form select option').length") >= 2


def test_a_phone_shows_the_first_turn_on_the_first_screen(window: engines.Window, desk: RunningDesk) -> None:
    window.resize(500, 900)  # as narrow as a window of Firefox becomes
    try:
        for trial in (N_LONG - 1, N_LONG - 2):
            go(window, desk, f"/runs/4/cases/0/trials/{trial}")
            top = window.ask("document.querySelector('article.turn').getBoundingClientRect().top")
            assert 0 < top < 700, trial
            assert window.ask("document.documentElement.scrollWidth <= innerWidth")
    finally:
        window.resize(1440, 900)


WRITTEN = """(() => {
  const field = document.querySelector(".composer [data-enter]");
  field.value = arguments[0];
  field.dispatchEvent(new Event("input", { bubbles: true }));
  toast("Not stored.", "failed");
  return true;
})()"""
NOTE_IS_ABOVE = """(() => {
  const note = document.querySelector("#toasts .note[data-kind=failed]")?.getBoundingClientRect();
  const composer = document.querySelector(".composer").getBoundingClientRect();
  return Boolean(note) && composer.height > 150 && note.bottom <= composer.top + 1;
})()"""


def test_a_note_stands_above_a_long_composer(window: engines.Window, desk: RunningDesk) -> None:
    go(window, desk, "/sessions/new?agent=parrot")
    window.press("Start session")
    window.find("#turns")
    window.wait_for(f"{IS_READY} && document.querySelector('.composer [data-enter]')")

    window.ask(WRITTEN, "\n".join(map(str, range(12))))

    window.wait_for(NOTE_IS_ABOVE)


MACHINE_WORDS = re.compile(
    r"Capture:|adapter|Data of the source|reward failed|Played in processes of this machine|\bNone\b"
)


@pytest.mark.parametrize(
    "path", ["/runs/1", "/runs/2", f"{TRIAL}/1", f"{TRIAL}/0", "/gates", "/labels", "/", "/table?runs=2,3"]
)
def test_a_page_has_no_words_of_the_machine(window: engines.Window, desk: RunningDesk, path: str) -> None:
    go(window, desk, path)
    window.ask("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")

    assert MACHINE_WORDS.findall(text_of(window)) == []
