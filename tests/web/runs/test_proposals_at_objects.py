"""Proposals at the case, trial, eval set and failure room that they would change, answered from there."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.desk.failures import TypedFinding, TypedMode
from evaldesk.desk.runs.accepting import Effect
from evaldesk.formats import case_to_json
from evaldesk.model import Counts
from evaldesk.model.client_budget import MARK
from evaldesk.model.evalset import case_key
from evaldesk.pages.door.proposals import proposal_answer
from evaldesk.pages.door.trials import VERDICTS
from evaldesk.pages.proposals.page import read_proposals
from evaldesk.store import Store
from evaldesk.store.database import Starter

CLIENT = "Claude Code"
MISSES = (1, 0)


@pytest.fixture
def desk(pages: Any) -> Any:
    """The proposals of a desk with one run of two trials for each case."""
    pages.finish(n="2", metric=["response_match_score"])
    return ClientProposalDesk(pages.desk)


def reference_of(pages: Any) -> str | None:
    case = next(each for each in pages.desk.evalsets.evalset(pages.evalset).cases if each.id == "misses")
    reference: str | None = case.turns[0].expected.reference
    return reference


def expectation(desk: ClientProposalDesk) -> int:
    return desk.propose_expectation(CLIENT, 1, "misses", 0, {"1.answer": "replace"}, "both are right").id


def finding(desk: ClientProposalDesk, trial: int = 0) -> int:
    form = TypedFinding(note="it repeats", new_mode="echo", quote="greet")
    return desk.propose_finding(CLIENT, 1, "misses", (1, trial), None, form).id


def fields_of(text: str) -> dict[str, str]:
    """The hidden fields of the first form with an answer."""
    form = next(each for each in re.findall(r"(?s)<form.*?</form>", text) if 'name="seen"' in each)
    pairs = re.findall(r'name="(ids|seen|back|labeller)" (?:maxlength="80" required )?value="([^"]*)"', form)
    return {name: html.unescape(value) for name, value in pairs}


def answer_form(pages: Any, number: int) -> dict[str, str]:
    """The fields of the form of a proposal, with a name."""
    return fields_of(pages.get(f"/proposals/{number}").text) | {"labeller": "ann"}


def addresses(pages: Any) -> dict[str, str]:
    return {
        "case": f"/evalsets/{pages.evalset}/cases/{case_key('misses')}",
        "json": f"/evalsets/{pages.evalset}/cases/{case_key('misses')}/json",
        "trial": "/runs/1/cases/1/trials/0",
        "set": f"/evalsets/{pages.evalset}",
        "failures": "/failures?run=1",
    }


def test_each_object_names_its_proposals_and_no_others(pages: Any, desk: ClientProposalDesk) -> None:
    numbers = {"expectation": expectation(desk), "finding": finding(desk)}
    numbers["kind"] = desk.propose_kind(CLIENT, TypedMode("wrong day", "It is another day.")).id
    case: Any = {"eval_id": "two", "conversation": [{"user_content": {"parts": [{"text": "hi"}]}}]}
    numbers["case"] = desk.propose_case(CLIENT, pages.evalset, case).id

    shown = {
        name: {int(number) for number in re.findall(r'href="/proposals/(\d+)"', pages.get(address).text)}
        for name, address in (*addresses(pages).items(), ("other trial", "/runs/1/cases/1/trials/1"))
    }

    of = {name: {numbers[each] for each in kinds} for name, kinds in {
        "case": ("expectation", "finding"),
        "json": ("expectation", "finding"),
        "trial": ("expectation", "finding"),
        "set": ("expectation", "case"),
        "failures": ("finding", "kind"),
        "other trial": (),
    }.items()}  # fmt: skip
    assert shown == of


@pytest.mark.parametrize("place", ["case", "json", "trial", "set"])
def test_a_person_accepts_from_the_object_and_stays_there(pages: Any, desk: ClientProposalDesk, place: str) -> None:
    number = expectation(desk)
    address = addresses(pages)[place]
    part_address = html.unescape(re.search(r'hx-get="(/proposals/[^"]*)"', pages.get(address).text)[1])  # type: ignore[index]

    part = pages.get(part_address, **{"HX-Request": "true", "HX-Target": f"div#proposal-{number}"}).text
    assert "both are right" in part
    assert "2 trials would turn green because the test changes," in part
    assert "<main" not in part
    fields = fields_of(part)
    assert fields["back"] == address
    answer = pages.post(f"/proposals/{number}", **fields | {"labeller": "ann", "answer": "accept"})

    assert (answer.status_code, answer.headers["location"], reference_of(pages)) == (303, address, "greet")
    assert f"/proposals/{number}" not in pages.get(address).text


@pytest.mark.parametrize(
    "back", ["https://evil.example/", "//evil.example", "/\\evil.example", "/runs/\r\nX: y", "javascript:alert(1)"]
)
def test_an_answer_leads_to_no_other_site(pages: Any, desk: ClientProposalDesk, back: str) -> None:
    number = expectation(desk)

    answer = pages.post(f"/proposals/{number}", labeller="ann", answer="refuse", back=back)

    assert (answer.status_code, answer.headers["location"]) == (303, f"/proposals/{number}")


def test_the_part_alone_is_the_page_of_its_proposal(pages: Any, desk: ClientProposalDesk) -> None:
    number = expectation(desk)

    assert pages.get(f"/proposals/{number}/part").headers["location"] == f"/proposals/{number}"
    assert pages.get("/proposals/99/part").status_code == 404


def test_the_page_tells_the_values_of_the_trials_and_the_lines_of_the_file(
    pages: Any, desk: ClientProposalDesk
) -> None:
    view = read_proposals(pages.desk, expectation(desk)).view

    assert view is not None
    assert view.place is not None
    assert (view.place.turn, view.place.tool, view.place.name) == (1, "", "answer")
    assert [(row.value, row.n, row.n_before, row.n_after) for row in view.values] == [('"greet"', 2, 0, 2)]
    assert view.lines_of.endswith(".json")
    assert all(line.new_number for line in view.lines if line.op == "+")
    assert any("greet" in line.text for line in view.lines if line.op == "+")
    page = pages.get("/proposals").text
    assert "+2 pass" in page
    assert 'data-key="q"' in page


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("pff", "ppf", "1 trial would turn green because the test changes,"),
        ("ppf", "fff", "2 trials would no longer pass because the test changes,"),
        ("ppf", "ffp", "1 trial would turn green and 2 trials would no longer pass because the test changes,"),
        ("pf", "fp", "1 trial would turn green and 1 trial would no longer pass because the test changes,"),
        ("pfe", "pfe", "The same trials would pass as before"),
        ("pff", "puu", "2 trials would no longer count because the test changes,"),
        ("ppf", "uuf", "2 trials would no longer count because the test changes,"),
        ("pu", "pf", "1 trial would count as failed because the test changes,"),
    ],
    ids=["more", "fewer", "both", "as many", "none", "red ones unscored", "green ones unscored", "scored"],
)
def test_the_effect_tells_the_trials_of_both_ways(
    pages: Any, desk: ClientProposalDesk, before: str, after: str, words: str
) -> None:
    view = read_proposals(pages.desk, expectation(desk)).view
    assert view is not None
    assert view.effect is not None
    verdicts = [tuple(VERDICTS[letter] for letter in letters) for letters in (before, after)]
    counts = [Counts.of_verdicts(each, errors_are_failures=False) for each in verdicts]
    effect = Effect(counts[0], counts[1], verdicts[0], verdicts[1])

    assert replace(view, effect=replace(view.effect, effect=effect)).effect_words[0] == words


@pytest.mark.parametrize(
    ("before", "after", "is_easier"),
    [("pff", "puu", True), ("pff", "ppf", True), ("ppf", "uuf", False), ("pf", "fp", False), ("pu", "pf", False)],
)
def test_a_change_is_easier_where_more_pass_or_fewer_fail(before: str, after: str, is_easier: bool) -> None:
    verdicts = [tuple(VERDICTS[letter] for letter in letters) for letters in (before, after)]
    counts = [Counts.of_verdicts(each, errors_are_failures=False) for each in verdicts]

    assert Effect(counts[0], counts[1], verdicts[0], verdicts[1]).is_easier is is_easier


def test_an_edit_that_takes_failed_trials_out_of_the_rate_is_loud(pages: Any, desk: ClientProposalDesk) -> None:
    with Store.open(pages.desk.settings.database, starter=Starter(CLIENT, "laptop")) as store:
        config = replace(pages.desk.store.runs.summary(1).config, note=MARK)
        store.runs.create(config, store.runs.cases(1))
    case: Any = case_to_json(
        next(each for each in pages.desk.evalsets.evalset(pages.evalset).cases if each.id == "misses")
    )
    turns: Any = [{key: turn[key] for key in turn if key != "final_response"} for turn in case["conversation"]]
    number = desk.propose_edit(CLIENT, pages.evalset, "misses", {"conversation": turns}, "no expectation is right").id
    counts = pages.desk.store.runs.summary(1).counts
    proposal = desk.get(number)
    shown = f"Run 1</a>: {counts.passed} of {counts.scored} → {counts.passed} of {counts.scored - 2}."

    page = pages.get(f"/proposals/{number}").text

    assert "2 trials would no longer count because the test changes, <span>not the agent" in page
    assert '<span class="plus" data-way="up">2 not counted</span>' in page
    assert shown in page
    assert "not scored" in page
    assert "proposed this: no agent change stands behind it</span>" in page
    effect = proposal_answer(pages.desk, proposal.id)["effect"]
    assert (effect["passed_before"], effect["scored"], effect["passed_after"], effect["scored_after"]) == (0, 2, 0, 0)
    assert effect["is_easier"]


def test_findings_of_one_kind_are_answered_and_taken_back_together(pages: Any, desk: ClientProposalDesk) -> None:
    numbers = [finding(desk), finding(desk, 1)]
    page = pages.get(f"/proposals/{numbers[0]}").text
    assert "2 findings: echo" in page
    assert "Accept all 2" in page
    assert re.search(r"unread \d+ → \d+", page)

    form = fields_of(page) | {"labeller": "ann"}
    answer = pages.post(f"/proposals/{numbers[0]}", **form, answer="accept")
    findings = pages.desk.store.failures.list(1)
    assert sorted((each.case_index, each.trial_index, each.author) for each in findings) == [
        (1, 0, "ann"),
        (1, 1, "ann"),
    ]
    after = pages.get(answer.headers["location"]).text
    assert "Accepted by ann" in after
    pages.post(f"/proposals/{numbers[0]}", **fields_of(after) | {"labeller": "ann"}, answer="undo")

    assert pages.desk.store.failures.list(1) == []
    assert {each.id for each in desk.list()} == set(numbers)


def test_a_group_that_is_answered_in_part_says_how_many_are(pages: Any, desk: ClientProposalDesk) -> None:
    numbers = [finding(desk), finding(desk, 1)]
    form = answer_form(pages, numbers[0]) | {"answer": "accept"}
    desk.refuse(numbers[1], "bob")

    answer = pages.post(f"/proposals/{numbers[0]}", **form)

    assert answer.status_code == 409
    assert "<h2>1 of 2 proposals answered</h2>" in answer.text
    assert f"proposal {numbers[1]} was refused by bob already" in answer.text
    assert [desk.get(each).decided_by for each in numbers] == ["ann", "bob"]
    again = pages.post(f"/proposals/{numbers[0]}", **form)
    assert "<h2>Nothing was changed</h2>" in again.text


def test_a_person_edits_before_accepting_and_the_ledger_says_so(pages: Any, desk: ClientProposalDesk) -> None:
    number = expectation(desk)
    view = read_proposals(pages.desk, number).view
    assert view is not None
    edited = view.content.replace('"greet"', '"greet, edited"')

    answer = pages.post(
        f"/proposals/{number}", ids=view.ids, seen=view.seen, labeller="ann", answer="edit", edited=edited
    )
    assert (answer.status_code, reference_of(pages)) == (303, "greet, edited")
    assert desk.get(number).deciders == "coding agent Claude Code, edited and accepted by ann"
    pages.finish(n="1")
    block = pages.get("/table?runs=1,2").text.partition("Changed between these runs")[2].partition("</section>")[0]
    assert "Claude Code, edited and accepted by ann" in block

    pages.post(f"/proposals/{number}", labeller="ann", answer="undo")
    assert (reference_of(pages), desk.get(number).edited) == ("nothing of the kind", "")


@pytest.mark.parametrize("edited", ["", "{", "[]", '{"eval_id": "another"}', "{}"])
def test_an_edit_that_is_no_such_case_changes_nothing_and_keeps_its_text(
    pages: Any, desk: ClientProposalDesk, edited: str
) -> None:
    number = expectation(desk)
    form = answer_form(pages, number)

    answer = pages.post(f"/proposals/{number}", **form, answer="edit", edited=edited)

    assert (answer.status_code, reference_of(pages), desk.get(number).status) == (422, "nothing of the kind", "open")
    assert edited in html.unescape(answer.text)


def test_both_readings_become_cases(pages: Any, desk: ClientProposalDesk) -> None:
    number = expectation(desk)
    ids = [case.id for case in pages.desk.evalsets.evalset(pages.evalset).cases]

    pages.post(f"/proposals/{number}", **answer_form(pages, number), answer="beside")
    cases = {case.id: case for case in pages.desk.evalsets.evalset(pages.evalset).cases}
    (new_id,) = set(cases) - set(ids)
    assert (reference_of(pages), cases[new_id].turns[0].expected.reference) == ("nothing of the kind", "greet")
    pages.post(f"/proposals/{number}", labeller="ann", answer="undo")

    assert [case.id for case in pages.desk.evalsets.evalset(pages.evalset).cases] == ids
    kind = desk.propose_kind(CLIENT, TypedMode("wrong day", "It is another day.")).id
    assert pages.post(f"/proposals/{kind}", **answer_form(pages, kind), answer="beside").status_code == 422


def test_a_reply_decides_nothing_and_is_read_with_the_case(pages: Any, desk: ClientProposalDesk) -> None:
    from evaldesk.pages.door.evalsets import case_answer

    number = expectation(desk)
    assert pages.post(f"/proposals/{number}", labeller="ann", answer="reply", reply=" ").status_code == 422

    answer = pages.post(f"/proposals/{number}", labeller="ann", answer="reply", reply="Ask <i>which</i> Friday.")

    assert (answer.status_code, desk.get(number).status) == (303, "open")
    name = pages.desk.evalsets.file(pages.evalset).name
    (shown,) = case_answer(pages.desk, name, "misses")["proposals"]
    assert shown["reply"] == "ann: Ask <i>which</i> Friday."
    assert "&lt;i&gt;which" in pages.get(f"/proposals/{number}").text
    desk.refuse(number, "ann")
    assert [each["status"] for each in case_answer(pages.desk, name, "misses")["proposals"]] == ["refused"]


def test_the_page_tells_the_runs_of_the_client_before_the_proposal(pages: Any, desk: ClientProposalDesk) -> None:
    with Store.open(pages.desk.settings.database, starter=Starter(CLIENT, "laptop")) as store:
        config = replace(pages.desk.store.runs.summary(1).config, note=MARK)
        run_id = store.runs.create(config, store.runs.cases(1))
    number = expectation(desk)

    page = pages.get(f"/proposals/{number}").text

    view = read_proposals(pages.desk, number).view
    assert view is not None
    assert [(step.words, step.href, step.is_loud) for step in view.steps] == [
        ("played 4 cases 2 times: pending", f"/runs/{run_id}", False),
        ("proposed this: no agent change stands behind it", "", True),
    ]
    assert "<span data-loud>proposed this: no agent change stands behind it</span>" in page


def test_a_narrow_page_has_the_effect_and_the_way_to_the_change_before_the_answer(
    pages: Any, desk: ClientProposalDesk
) -> None:
    number = expectation(desk)

    head = pages.get(f"/proposals/{number}").text.partition("<main")[2].partition('id="answer"')[0]

    assert "2 trials would turn green because the test changes, not the agent: 0 of 2 → 2 of 2" in head
    assert re.search(rf'<a href="#change-{number}">\d+ lines</a>', head)


def test_no_answer_of_a_coding_agent_names_a_case_that_is_gone(pages: Any, desk: ClientProposalDesk) -> None:
    number = expectation(desk)
    pages.desk.evalsets.cases.delete(pages.evalset, [case_key("misses")])

    form = answer_form(pages, number)
    assert pages.post(f"/proposals/{number}", **form, answer="accept").status_code == 422
    assert json.loads(pages.desk.evalsets.file(pages.evalset).path.read_text())["eval_cases"]
