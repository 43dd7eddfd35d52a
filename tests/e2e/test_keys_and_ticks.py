"""Keys and ticks as fast as a person is: labels, the choice of a comparison, and line breaks as they were typed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, Route, expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visit, Visitor

pytestmark = pytest.mark.browser

N = 7
MS_BETWEEN_KEYS = 10
AGENT = "def root_agent(message, state):\n    return 'first line\\n\\n    indented line'\n"


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent that fails every trial, so that `n` leads from each to the next."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "wrong").mkdir(parents=True)
    (workspace / "agents" / "wrong" / "agent.py").write_text(AGENT, "utf-8")
    turn = {
        "user_content": {"role": "user", "parts": [{"text": "one\ntwo\n\n  three"}]},
        "final_response": {"role": "model", "parts": [{"text": "first line\n\nlast line"}]},
        "intermediate_data": {"tool_uses": [{"name": "never_called", "args": {}}]},
    }
    cases = [{"eval_id": "wrong", "conversation": [turn]}]
    (workspace / "evalsets").mkdir()
    path = workspace / "evalsets" / "wrong.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "wrong", "eval_cases": cases}), "utf-8")
    return "agents", "evalsets"


@pytest.fixture
def trials(resident: Visitor) -> str:
    """The address of the trials of a finished run, all of them failed."""
    run = resident.run("wrong", resident.evalset("wrong"), {"tool_trajectory_avg_score": "1"}, n=str(N))
    resident.goto(run)
    expect(resident.page.get_by_role("button", name="Stop…")).to_have_count(0)
    return f"{run}/cases/0/trials"


def test_every_label_set_by_key_is_stored_when_the_next_key_follows_at_once(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"{trials}/0")

    for index in range(N):
        page.keyboard.press("2")
        page.wait_for_timeout(MS_BETWEEN_KEYS)
        if index < N - 1:
            page.keyboard.press("n")
            page.wait_for_url(f"**{trials}/{index + 1}")
    expect(page.locator("ul.labels li")).to_have_count(1)

    assert _labels(someone, trials) == ["failed"] * N


def test_keys_pressed_while_the_next_page_loads_are_never_taken_for_this_one(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"{trials}/0")

    for key in ("2", "n", "1"):
        page.keyboard.press(key)
        page.wait_for_timeout(MS_BETWEEN_KEYS)
    page.wait_for_url(f"**{trials}/1")
    page.wait_for_load_state()

    assert _labels(someone, trials)[0] == "failed"


def test_labels_set_by_key_are_stored_on_the_way_back_too(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"{trials}/{N - 1}")

    for index in range(N - 1, 0, -1):
        page.keyboard.press("1")
        page.keyboard.press("p")
        page.wait_for_url(f"**{trials}/{index - 1}")
    page.keyboard.press("3")
    page.go_back()
    page.wait_for_url(f"**{trials}/1")
    someone.goto(f"{trials}/0")
    page.wait_for_function("async () => (await (await fetch(location.href)).text()).includes('data-plain>unsure<')")

    assert _labels(someone, trials) == ["unsure", *["passed"] * (N - 1)]


def test_a_label_set_by_key_is_counted_in_the_outline_and_leaves_the_current_turn(
    someone: Visitor, trials: str
) -> None:
    page = someone.page
    someone.goto(f"{trials}/0")
    outline = page.get_by_role("navigation", name="Turns").get_by_role("link", name=re.compile("^Labels"))
    expect(outline).to_contain_text("none yet")

    for key in ("j", "2", "k", "j"):
        page.keyboard.press(key)

    expect(page.locator("ul.labels li")).to_contain_text("failed")
    expect(outline).to_contain_text("1")
    expect(page.locator("article.turn[data-current]")).to_have_count(1)
    page.get_by_role("button", name=re.compile("Remove the label")).click()
    expect(outline).to_contain_text("none yet")


def test_a_window_replaces_no_label_that_it_does_not_show(visit: Visit, trials: str) -> None:
    first, second = visit(), visit()
    for each in (first, second):
        each.goto(f"{trials}/0")

    first.page.keyboard.press("1")
    expect(first.page.locator("ul.labels li")).to_contain_text("passed")
    second.page.keyboard.press("2")
    expect(second.page.locator("ul.labels li")).to_contain_text("passed")
    expect(second.page.locator("#note-error")).to_be_visible()
    second.page.keyboard.press("2")

    expect(second.page.locator("ul.labels li")).to_contain_text("failed")
    expect(second.page.locator("ul.labels li")).to_have_count(1)
    assert _labels(first, trials)[0] == "failed"


def test_a_label_set_without_a_connection_says_so_and_can_be_set_again(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"{trials}/0")
    page.context.set_offline(True)

    page.keyboard.press("2")
    page.keyboard.press("n")

    expect(page.get_by_role("alert")).to_contain_text("The label was not stored")
    assert page.url.endswith(f"{trials}/0")
    page.context.set_offline(False)
    page.keyboard.press("2")
    expect(page.locator("ul.labels li")).to_contain_text("failed")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert all("ERR_INTERNET_DISCONNECTED" in each or "htmx:error" in each for each in someone.complaints)
    someone.complaints.clear()


def test_a_label_that_could_not_be_stored_says_so_and_the_page_stays(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"{trials}/0")
    page.route("**/labels", lambda route: route.abort())

    page.keyboard.press("1")
    page.keyboard.press("n")

    expect(page.get_by_role("alert")).to_contain_text("The label was not stored")
    assert page.url.endswith(f"{trials}/0")
    assert _labels(someone, trials)[0] == ""
    page.unroute("**/labels")
    page.keyboard.press("1")
    expect(page.locator("ul.labels li")).to_contain_text("passed")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert all("ERR_FAILED" in each or "htmx:error" in each for each in someone.complaints)
    someone.complaints.clear()  # the browser may tell them late


def test_an_error_of_the_desk_is_told_beside_the_buttons(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"{trials}/0")

    def refuse(route: Route) -> None:
        route.fulfill(status=404, body="<h1>No such page</h1>", content_type="text/html")

    page.route("**/labels", refuse)

    page.keyboard.press("3")

    expect(page.get_by_role("alert")).to_contain_text("The label was not stored")
    expect(page.get_by_role("heading", name="No such page")).to_have_count(0)


def test_a_label_is_posted_by_its_form_where_there_are_no_scripts(visit: Visit, trials: str) -> None:
    someone = visit(has_scripts=False)
    someone.goto(f"{trials}/3")

    someone.page.get_by_role("button", name="Unsure").click()

    expect(someone.page.locator("ul.labels li")).to_contain_text("unsure")
    assert someone.page.url.endswith(f"{trials}/3#labels")


def test_line_breaks_of_messages_and_answers_are_shown(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"{trials}/0")

    assert _shown_lines(page, "article.turn blockquote") == 4
    answers = page.locator("table.diff td > p")
    assert "\n\n" in answers.first.inner_text()
    assert re.search(r"first line\n\n    indented line", answers.last.inner_text())


def test_line_breaks_of_a_chat_are_shown(someone: Visitor) -> None:
    someone.goto(someone.chat("wrong", "{}", "one\ntwo\n\n  three"))

    assert _shown_lines(someone.page, ".message[data-author=user] > p") == 4
    assert _shown_lines(someone.page, ".message:not([data-author=user]) > p") == 3


def test_the_enter_that_ends_a_composition_sends_nothing(someone: Visitor) -> None:
    page = someone.page
    someone.goto(someone.chat("wrong", "{}"))
    page.get_by_label("Message").fill("\u3053")
    pressed = """(area, code) => !area.dispatchEvent(
        new KeyboardEvent("keydown", {key: "Enter", keyCode: code, bubbles: true, cancelable: true}))"""
    area = page.locator("#message")

    assert area.evaluate(pressed, 229) is False
    assert area.input_value() == "\u3053"

    assert area.evaluate(pressed, 13) is True
    expect(page.locator(".message[data-author=user]")).to_have_count(1)


def test_fields_grow_in_a_browser_that_does_not_size_them_itself(someone: Visitor) -> None:
    page = someone.page
    page.add_init_script("CSS.supports = () => false")
    page.route("**/app.css*", _without_field_sizing)
    someone.goto(someone.chat("wrong", "{}"))
    area = page.locator("#message")
    before = area.evaluate("area => area.offsetHeight")

    area.fill("one\ntwo\nthree\nfour")

    assert area.evaluate("area => area.offsetHeight") > 2 * before
    assert area.evaluate("area => area.scrollHeight <= area.clientHeight + 2")


def _without_field_sizing(route: Route) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, body=answer.text().replace("field-sizing", "x-sizing"))


def test_ticked_runs_open_in_one_table_by_a_key(someone: Visitor, trials: str) -> None:
    page = someone.page
    for _ in range(2):
        someone.run("wrong", someone.evalset("wrong"), {"tool_trajectory_avg_score": "1"}, n="1")
    someone.goto("/runs")
    boxes = page.get_by_role("checkbox", name=re.compile("Select run"))

    for index in range(3):
        boxes.nth(index).check()
    page.keyboard.press("c")

    page.wait_for_url("**/table?runs=*")
    expect(page.locator("[data-group]")).to_have_count(3)


def test_ticks_that_follow_each_other_at_once_all_bring_their_options(someone: Visitor) -> None:
    page = someone.page
    names = ("tool_f1", "tool_exact", "tool_precision", "tool_recall")
    someone.goto(f"/runs/new?evalset={someone.evalset('wrong')}")

    page.get_by_text("Add criterion").click()
    expect(page.locator("#addable label").first).to_be_visible()
    # By script: options that come between two clicks move the boxes below them away from the pointer.
    page.evaluate(
        "names => names.forEach(name => document.querySelector(`input[name=metric][value=${name}]`).click())", names
    )

    for name in names:
        expect(page.locator(f'[name="{name}.threshold"]')).to_be_visible()
        expect(page.locator(f"input[name=metric][value={name}]")).to_be_checked()
    page.locator('[name="tool_f1.threshold"]').fill("0.33")
    page.locator("input[name=metric][value=tool_f1]").uncheck()
    expect(page.locator('[name="tool_f1.threshold"]')).to_be_hidden()
    page.locator("input[name=metric][value=tool_f1]").check()
    expect(page.locator('[name="tool_f1.threshold"]')).to_have_value("0.33")


def test_a_criterion_is_found_by_typing_and_added_by_keys_alone(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"/runs/new?evalset={someone.evalset('wrong')}")
    field = page.get_by_label("Search criteria")

    page.keyboard.press("a")
    expect(field).to_be_focused()
    page.keyboard.type("f1")
    expect(page.locator("#addable label:visible")).to_have_count(1)
    page.keyboard.press("Enter")

    expect(page.locator('.metric [name="tool_f1.threshold"]')).to_be_visible()
    expect(page.locator("#addable input[value=tool_f1]")).to_have_count(0)
    expect(field).to_have_value("")
    expect(field).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#addable input").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(field).to_be_hidden()


def test_the_run_form_fits_one_screen_with_its_start_in_sight(someone: Visitor) -> None:
    page = someone.page
    page.set_viewport_size({"width": 1440, "height": 900})
    someone.goto(f"/runs/new?evalset={someone.evalset('wrong')}")

    assert page.evaluate("document.documentElement.scrollHeight") <= 900
    expect(page.get_by_role("button", name=re.compile("^Start [0-9]"))).to_be_in_viewport()


def test_options_of_a_metric_are_reached_without_scripts(visit: Visit) -> None:
    someone = visit(has_scripts=False)
    page = someone.page
    someone.goto(f"/runs/new?evalset={someone.evalset('wrong')}")

    page.get_by_text("Add criterion").click()
    page.get_by_role("button", name="Show the metrics").click()
    page.locator("input[name=metric][value=tool_f1]").check()
    page.get_by_role("button", name="Add the ticked metrics").click()

    expect(page.locator("input[name=metric][value=tool_f1]")).to_be_checked()
    page.locator(".metric", has=page.locator("[value=tool_f1]")).get_by_text("Options", exact=True).click()
    page.locator('[name="tool_f1.args"]').select_option("ignore")
    page.get_by_role("button", name=re.compile("^Start [0-9]")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run")


def _shown_lines(page: Page, selector: str) -> int:
    """How many lines high the text is."""
    lines = """box => {
      const text = document.createRange();
      text.selectNodeContents(box);
      return Math.round(text.getBoundingClientRect().height / parseFloat(getComputedStyle(box).lineHeight));
    }"""
    return int(page.locator(selector).first.evaluate(lines))


def _labels(someone: Visitor, trials: str) -> list[str]:
    """What the labels say, trial by trial; empty where there is none."""
    ask = someone.page.context.request
    pages = [ask.get(f"{someone.desk.address}{trials}/{index}").text() for index in range(N)]
    found = [re.search(r'<ul class="labels">.*?data-plain>(\w+)<', text, re.DOTALL) for text in pages]
    return [each[1] if each else "" for each in found]


def test_every_failure_that_is_named_by_key_is_stored_when_the_next_key_follows_at_once(
    someone: Visitor, trials: str
) -> None:
    page, room = someone.page, f"/failures?run={trials.split('/')[2]}"
    someone.goto(room)
    expect(page.get_by_text(f"0 of {N} failed trials read.")).to_be_visible()

    page.locator("#reader").fill("jo")
    page.keyboard.press("Escape")
    page.keyboard.press("i")
    page.keyboard.type("It never calls the tool.")
    expect(page.locator("#finding")).to_have_value("It never calls the tool.")
    page.get_by_label("Kind of failure m", exact=True).fill("no call")
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"1 of {N} failed trials read.")).to_be_visible()
    for _ in range(N - 2):
        page.keyboard.press("1")
        page.wait_for_timeout(MS_BETWEEN_KEYS)
    page.keyboard.press("0")

    expect(page.get_by_text(f"{N} of {N} failed trials read. 1 kind of failure")).to_be_visible()
    kinds = page.get_by_role("region", name="Kinds of failure", exact=True)
    expect(kinds.get_by_role("row", name="no call")).to_contain_text(f"{N - 1}")
    expect(page.get_by_role("row", name="nothing wrong")).to_contain_text("1")
    page.keyboard.press("z")
    expect(page.get_by_text(f"{N - 1} of {N} failed trials read.")).to_be_visible()


def test_a_note_that_is_being_typed_outlives_what_is_done_beside_it(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"/failures?run={trials.split('/')[2]}")
    page.locator("#finding").fill("It never calls")

    with page.expect_response("**/failures/proposals"):
        page.get_by_role("button", name="Propose by signature").click()
    expect(page.locator("#next")).to_be_focused()

    expect(page.locator("#finding")).to_have_value("It never calls")


def test_a_second_click_on_a_proposal_is_no_second_request(someone: Visitor, trials: str) -> None:
    page, sent = someone.page, list[str]()
    someone.goto(f"/failures?run={trials.split('/')[2]}")
    page.get_by_role("button", name="Propose by signature").click()
    accept = page.locator(".proposals").get_by_role("button", name="Accept")
    expect(accept).to_have_count(1)
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)

    accept.evaluate("button => { button.click(); button.click(); }")

    expect(page.get_by_text(f"{N} of {N} failed trials read. 1 kind of failure")).to_be_visible()
    page.keyboard.press("z")
    expect(page.get_by_text(f"0 of {N} failed trials read.")).to_be_visible()
    assert [url.rpartition("/")[2] for url in sent] == ["proposals", "undo"]
    expect(page.locator("#toasts")).not_to_contain_text("Not stored")


def test_a_refusal_of_which_the_page_says_nothing_is_not_said_to_be_on_it(someone: Visitor, trials: str) -> None:
    page, silent = someone.page, '<div id="room"><p role="alert" hidden>The finding was not stored.</p></div>'
    someone.goto(f"/failures?run={trials.split('/')[2]}")
    page.route("**/failures/proposals", lambda route: route.fulfill(status=409, body=silent, content_type="text/html"))

    page.get_by_role("button", name="Propose by signature").click()

    expect(page.locator("#toasts")).to_contain_text("Not stored. Load the page again, and look at what it says.")


def test_marked_text_is_where_the_finding_is(someone: Visitor, trials: str) -> None:
    page = someone.page
    someone.goto(f"{trials}/0")

    page.locator("#turn-1 ins", has_text="indented").first.dblclick()
    expect(page.locator("[data-quoted]")).to_contain_text("indented")
    page.keyboard.press("m")
    page.keyboard.type("wrong text")
    page.keyboard.press("Enter")

    expect(page.locator("#findings mark")).to_have_text("indented")
    expect(page.locator("#findings").get_by_role("link", name="turn 1")).to_be_visible()


@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "no scripts"])
def test_enter_in_the_name_of_a_preset_never_starts_a_run(resident: Visitor, visit: Visit, has_scripts: bool) -> None:
    visitor = visit(has_scripts=has_scripts)
    page, form = visitor.page, f"/runs/new?agent=wrong&evalset={resident.evalset('wrong')}"

    def runs() -> set[str]:
        return set(re.findall(r'href="(/runs/\d+)"', page.context.request.get(f"{resident.desk.address}/runs").text()))

    before = runs()
    visitor.goto(form)
    page.locator("#presets > summary").click()

    page.locator("#preset-name").fill("nightly")
    page.locator("#preset-name").press("Enter")

    if has_scripts:
        expect(page.get_by_text("Preset stored.")).to_be_visible()
        visitor.goto(form)
        expect(page.locator("#preset option", has_text="nightly")).to_have_count(1)
    else:
        page.wait_for_load_state()
        visitor.goto(form)
    assert runs() == before
