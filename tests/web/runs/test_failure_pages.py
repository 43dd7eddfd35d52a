"""The failure room, the page of a kind of failure and findings on the page of a trial, without a script."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from tests.metrics.judging import scripted

from evaldesk.demo_model import judge
from evaldesk.desk.failures import TypedFinding
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Event,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    TurnSpec,
)
from evaldesk.model.failures import TRIALS, FindingDraft
from evaldesk.pages.failures.kind import NO_CALL, NO_PLACE, read_mode, read_where
from evaldesk.pages.failures.room import read_failures
from evaldesk.pages.samples import Draw

SAID = {"labeller": "Ana", "note": "It <b>invents</b> a price.", "new-mode": "invents <i>prices</i>"}


def failed_trial(pages: Any) -> str:
    """The failed trial of a finished run."""
    return f"{pages.finish(n='1')}/cases/1/trials/0"


def test_a_finding_is_written_on_the_page_of_its_trial(pages: Any) -> None:
    trial = failed_trial(pages)

    answer = pages.post(f"{trial}/findings", **SAID, place="0", quote="greet")

    assert (answer.status_code, answer.headers["location"]) == (303, f"{trial}#findings")
    text = pages.get(trial).text
    assert "It &lt;b&gt;invents&lt;/b&gt; a price." in text
    assert "invents &lt;i&gt;prices&lt;/i&gt;" in text
    assert "<mark>greet</mark>" in text
    assert "<i>prices" not in text


def test_a_trial_asks_once_for_a_name_that_is_known(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **SAID)

    page = pages.get(trial).text
    monkeypatch.setattr(type(pages.desk.person), "name", lambda person: "")
    nobody = pages.get(trial).text

    assert page.count("Your name") == 1
    assert set(re.findall(r'name="labeller"[^>]* value="([^"]*)"', page)) == {"Ana"}
    assert nobody.count("Your name") == 2


def test_a_refused_finding_and_a_refused_label_leave_the_links_of_the_trial_right(pages: Any) -> None:
    trial = failed_trial(pages)
    refused = [pages.post(f"{trial}/{place}", labeller=" ") for place in ("findings", "labels")]

    assert [answer.status_code for answer in refused] == [422, 422]
    assert '<input id="finder" name="labeller"' in refused[0].text
    for answer in refused:
        assert f'href="{trial}/timeline"' in answer.text
        assert not re.search(rf"{trial}/(findings|labels)/", answer.text)


def test_findings_leave_as_files_and_come_back_once(pages: Any) -> None:
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **SAID, place="0", quote="greet")
    room = f"/failures?run={trial.split('/')[2]}"
    links = re.findall(r'href="(/failures/file[^"]*)" download>', pages.get(room).text)

    files = [pages.get(link.replace("&amp;", "&")) for link in links]
    name = {"file": ("failures.json", files[0].content)}
    pages.post("/failures/undo", labeller="Ana")
    back, again = (pages.client.post("/failures/file", data={"labeller": "Ben"}, files=name) for _ in range(2))

    types = ["application/json", "application/x-ndjson", "text/markdown; charset=utf-8"]
    assert [each.headers["content-type"] for each in files] == types
    assert [each.headers["content-disposition"][-16:] for each in files[1:]] == [
        '"failures.jsonl"',
        'me="failures.md"',
    ]
    assert all("invents a price" in re.sub(r"\\|<[^>]*>|&lt;.*?&gt;", "", each.text) for each in files)
    assert "Imported 1 new kind of failure and 1 new finding." in back.text
    assert "Imported 0 new kinds of failure and 0 new findings." in again.text
    [(kind, link)] = set(re.findall(r'href="/failures/(\d+)\?run=\d+">(invents[^<]*)', again.text))
    assert link == "invents &lt;i&gt;prices&lt;/i&gt;"
    assert f"/failures/file?format=jsonl&amp;mode={kind}" in pages.get(f"/failures/{kind}").text
    assert (
        pages.get(f"/failures/file?format=jsonl&mode={kind}")
        .headers["content-disposition"]
        .endswith('_prices_i.jsonl"')
    )


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"data": {"labeller": "Ana"}}, "Choose a file."),
        ({"data": {"labeller": "Ana"}, "files": {"file": ("a.json", b"{}")}}, "expected a file of"),
        ({"data": {"labeller": ""}, "files": {"file": ("a.jsonl", b"run")}}, "Enter your name"),
    ],
)
def test_a_file_that_cannot_be_taken_in_is_refused_in_words(pages: Any, sent: dict[str, Any], said: str) -> None:
    pages.finish(n="1")

    answer = pages.client.post("/failures/file", **sent)

    assert (answer.status_code, said in answer.text) == (422, True)


def test_cases_are_made_of_a_kind_once(pages: Any) -> None:
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **SAID, place="0", quote="greet")

    first = pages.post("/failures/1/cases", **{"new-set": "greetings"})
    address = re.findall(r'href="(/evalsets/[^"]*)">Show greetings', first.text)[0]
    again = pages.post("/failures/1/cases", evalset=address.rpartition("/")[2])

    assert "1 case added to greetings." in first.text
    assert "0 cases added to greetings; 1 was there already." in again.text
    assert "misses_invents_i_prices_i" in pages.get(address).text
    taken = pages.post("/failures/1/cases", **{"new-set": "greetings"})
    assert (taken.status_code, "greetings" in taken.text) == (409, True)
    assert pages.post("/failures/1/cases", **{"new-set": "../x"}).status_code == 422
    assert pages.post("/failures/9/cases", **{"new-set": "x"}).status_code == 404
    assert pages.post("/failures/1/cases", evalset="gone").status_code == 404


def test_the_gate_of_a_kind_is_a_command_that_a_shell_reads_as_it_stands(pages: Any) -> None:
    name = "a'b $(touch x); `c`"
    pages.post(f"{failed_trial(pages)}/findings", labeller="Ana", **{"new-mode": name})

    text = re.findall(r"<pre[^>]*Command of the gate[^>]*>([^<]*)", pages.get("/failures/1").text)[0]

    assert shlex.split(html.unescape(text)) == ["evaldesk", "mode", "check", "1", "--max-mode", f"{name}=0.05"]


def test_shares_say_by_how_many_trials_they_are_known(pages: Any) -> None:
    run = pages.finish(n="4")
    room = f"/failures?run={run[6:]}"
    order = [*Draw(pages.desk.store, int(run[6:])).strata["f"]]

    said = []
    for trial in (order[-1], order[0]):
        pages.post(f"{run}/cases/{trial // TRIALS}/trials/{trial % TRIALS}/findings", **SAID)
        said.append(re.findall(r"<p>Share of ([^<]*)</p>", pages.get(room).text)[0])

    assert said == ["failed trials", "failed trials, by the 1 read in the order of the draw"]


def test_a_kind_or_a_format_that_does_not_exist_is_not_given_out(pages: Any) -> None:
    assert pages.get("/failures/file?mode=9").status_code == 404
    assert pages.get("/failures/file?format=exe").status_code == 404


def test_the_room_draws_the_next_trial_and_counts_what_was_read(pages: Any) -> None:
    run = pages.finish(n="1")
    room = f"/failures?run={run[6:]}"
    assert "0 of 1 failed trial read. No kind of failure named yet" in pages.get(room).text

    answer = pages.post(f"{run}/cases/1/trials/0/findings", **SAID, then="next")

    assert (answer.status_code, answer.headers["location"]) == (303, room)
    text = pages.get(room).text
    assert 'name="labeller" maxlength="80" required value="Ana"' in text
    assert "1 of 1 failed trial read. 1 kind of failure" in text
    assert "invents &lt;i&gt;prices&lt;/i&gt;" in text
    assert f'action="{run}/cases/2/trials/0/findings"' in text  # the errored trial is next
    assert 'data-key="1"' in text


@pytest.mark.parametrize(
    ("kinds", "n_left", "said"),
    [
        ("a", 9, "1 kind of failure; most kinds are probably not seen yet"),
        ("ab", 9, "2 kinds of failure; most kinds are probably not seen yet"),
        ("aa", 9, "1 kind of failure; up to 95 % of failed trials could show another"),
        ("aa-", 9, "1 kind of failure; up to 78 % of failed trials could show another"),
        ("a" * 60, 9, "1 kind of failure; up to 5 % of failed trials could show another"),
        ("bbaa" + "a" * 30, 9, "2 kinds of failure; up to 9 % of failed trials could show another"),
        ("aa?" + "a" * 10, 9, "1 kind of failure; up to 26 % of failed trials could show another"),
        ("a" * 12 + "b" * 7 + "c", 9, "3 kinds of failure; about 1 failed trial in 20 would show another"),
        ("a" * 12 + "b" * 7 + "ccccddef---", 9, "6 kinds of failure; about 2 more probably not seen yet"),
        ("abcde", 9, "5 kinds of failure; most kinds are probably not seen yet"),
        ("abcde", 0, "5 kinds of failure in this run; other runs may show about 8 more"),
        ("aa", 0, "1 kind of failure in this run"),
        ("--", 9, "No kind of failure named yet"),
    ],
)
def test_few_trials_read_rule_out_little(pages: Any, kinds: str, n_left: int, said: str) -> None:
    store, n = pages.desk.store, len(kinds) + n_left
    run_id = store.runs.create(RunConfig(AgentRef("a", "a"), "s", n=n), [Case("trip", (Turn("Book."),))])
    store.runs.record([TrialResult(run_id, 0, at, "finished", "failed") for at in range(n)])
    for number, kind in zip(Draw(store, run_id).strata["f"], kinds, strict=False):
        at = number % TRIALS
        if kind == "-":
            store.failures.clear(run_id, (0, at), "Ana")
        else:
            store.failures.add(FindingDraft(run_id, 0, at, "wrong"), "Ana", "" if kind == "?" else kind)

    room = read_failures(pages.desk, run_id)

    assert room
    assert room.sentence == said
    n_since = re.search(r"up to (.+) of", said)
    assert not n_since or f"so at most {n_since[1]} of failed trials would show one (95 %)" in room.why


def test_the_reason_of_a_trial_that_another_tool_scored_stands_where_it_is_read_next(pages: Any) -> None:
    runs = pages.desk.store.runs
    score = Score("reward", value=0.0, passed=False, threshold=1.0, reason="Not <b>said</b>: 23553.")
    config = RunConfig(AgentRef("a", "a"), "s", n=1, criteria=(Criterion("reward", 1.0),))
    run_id = runs.create(config, [Case("trip", (Turn("Book."),))])
    said = "- **Seat** 4\n- <script>x</script>\n" + "y" * 900
    transcript = Transcript((TurnRecord("Book.", (Event("agent_message", text=said),)),))
    runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", transcript, (score,))])

    room = pages.get(f"/failures?run={run_id}").text

    assert re.search(r'<dd data-said><div class="prose">\s*<ul dir="auto">\s*<li>\s*<strong>Seat</strong> 4', room)
    assert re.search(r"\(33\d more characters\)", room)
    assert "<script>x" not in room
    assert "Not &lt;b&gt;said&lt;/b&gt;: 23553.</p>" in room.split('id="next-title"')[1]


def test_the_newest_run_with_failures_is_shown_without_a_number(pages: Any) -> None:
    assert "No failed trials" in pages.get("/failures").text

    run = pages.finish(n="1")

    assert f"Failures of run {run[6:]}" in pages.get("/failures").text
    assert pages.get("/failures?run=999").status_code == 404
    assert pages.get("/failures?run=../x").status_code == 200


def test_nothing_wrong_is_stored_with_one_button(pages: Any) -> None:
    trial = failed_trial(pages)

    answer = pages.post(f"{trial}/findings", labeller="Ana", op="clear", then="next")

    assert answer.status_code == 303
    assert "nothing wrong" in pages.get(answer.headers["location"]).text


@pytest.mark.parametrize("then", ["", "next"])
def test_a_finding_that_cannot_be_comes_back_as_it_was_typed(pages: Any, then: str) -> None:
    answer = pages.post(f"{failed_trial(pages)}/findings", **(SAID | {"labeller": " "}), then=then)

    assert answer.status_code == 422
    assert "Enter your name" in answer.text
    assert "It &lt;b&gt;invents&lt;/b&gt; a price.</textarea>" in answer.text


def test_a_finding_is_removed_and_that_is_undone(pages: Any) -> None:
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **SAID)

    pages.post(f"{trial}/findings", labeller="Ana", op="remove", finding="1")
    assert "It &lt;b&gt;invents" not in pages.get(trial).text
    answer = pages.post("/failures/undo", labeller="Ana", run="1")

    assert (answer.status_code, answer.headers["location"]) == (303, "/failures?run=1")
    assert "It &lt;b&gt;invents" in pages.get(trial).text


def test_each_browser_has_the_name_that_was_typed_in_it(pages: Any) -> None:
    run = pages.finish(n="1")
    room, names = f"/failures?run={run[6:]}", {"Ana": "", "B\u00e9n; Path=/x": ""}
    key = pages.client.headers["Cookie"]

    def asked(who: str, verb: str, address: str, **fields: str) -> Any:
        cookies = f"{key}; {names[who]}"
        answer = pages.client.request(verb, address, data=fields, headers={"Cookie": cookies})
        for cookie in answer.headers.get_list("set-cookie"):
            assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000")
            names[who] = cookie.partition(";")[0]
        return answer

    for who in names:
        asked(who, "POST", f"{run}/cases/1/trials/0/findings", labeller=who, note=f"Of {who}.")
        asked(who, "POST", f"{run}/cases/2/trials/0/findings", labeller=who, op="clear")

    for who in names:
        page = asked(who, "GET", room)
        assert "set-cookie" not in page.headers
        assert set(re.findall(r'name="labeller"[^>]* value="([^"]+)"', page.text)) == {who}
        assert (
            f'id="labeller" name="labeller" maxlength="80" required value="{who}"'
            in asked(who, "GET", f"{run}/cases/1/trials/0").text
        )
        assert (
            f'name="reader" maxlength="80" required value="{who}"' in asked(who, "GET", f"/queues?run={run[6:]}").text
        )
    asked("Ana", "POST", "/failures/undo", labeller="Ana", run=run[6:])
    asked("Ana", "POST", "/failures/undo", labeller="Ana", run=run[6:])
    assert [each.note for each in pages.desk.store.failures.list()] == ["Of B\u00e9n; Path=/x."]


@pytest.mark.parametrize(
    ("cookie", "name"),
    [
        ("%00", "Ana"),
        ("a" * 81, "Ana"),
        ("%0d%0aSet-Cookie:x", "Ana"),
        ("", "Ana"),
        ("B%C3%A9n", "Bén"),
        ("%3Cb%3E", "&lt;b&gt;"),
    ],
)
def test_any_cookie_is_read_and_one_that_is_no_name_names_nobody(pages: Any, cookie: str, name: str) -> None:
    pages.post(f"{failed_trial(pages)}/findings", **SAID)

    answer = pages.get("/failures?run=1", Cookie=f"{pages.client.headers['Cookie']}; evaldesk-name={cookie}")

    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    assert f'name="labeller" maxlength="80" required value="{name}"' in answer.text


def test_a_kind_of_failure_is_defined_merged_split_fixed_and_retired(pages: Any) -> None:
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **SAID)
    pages.post(f"{trial}/findings", **(SAID | {"new-mode": "asks twice"}))
    by = {"labeller": "Ana"}

    texts = {"name": "invents prices", "definition": "<script>x</script>", "example-yes": "yes", "example-no": "no"}
    assert pages.post("/failures/1", op="edit", **texts, **by).status_code == 303
    assert "&lt;script&gt;x&lt;/script&gt;" in pages.get("/failures/1").text
    assert pages.post("/failures/2", op="merge", into="1", **by).headers["location"] == "/failures/1"
    assert 'Merged into <a href="/failures/1">invents prices</a>' in pages.get("/failures/2").text
    assert (
        pages.post("/failures/1", op="split", finding="2", name="asks twice", **by).headers["location"] == "/failures/3"
    )
    answer = pages.post("/failures/3", op="fix", run="1", **by)
    assert answer.status_code == 422
    assert "was found in run 1" in answer.text
    pages.finish(n="1")
    assert pages.post("/failures/3", op="fix", run="2", **by).status_code == 303
    assert "fixed in run 2" in pages.get("/failures/3").text
    pages.post("/runs/2/cases/1/trials/0/findings", labeller="Ana", mode="3")
    assert "reopened in run 2" in pages.get("/failures/3").text
    assert "“asks twice” was reopened" in pages.get("/").text
    assert pages.post("/failures/3", op="retire", **by).status_code == 303
    assert "was reopened" not in pages.get("/").text
    assert pages.post("/runs/2/cases/1/trials/0/findings", labeller="Ana", mode="3").status_code == 409


def test_a_kind_of_failure_is_not_fixed_in_a_re_score_of_the_run_that_shows_it(pages: Any) -> None:
    pages.post(f"{failed_trial(pages)}/findings", **SAID)
    rescored = pages.post("/runs/1/scorings", metric=["response_match_score"]).headers["location"]
    assert "event: done" in pages.get(f"{rescored}/events").text

    field = re.search(r'<select id="fixed-run".*?</select>', pages.get("/failures/1").text)
    answer = pages.post("/failures/1", op="fix", run=rescored.rpartition("/")[2], labeller="Ana")

    assert field
    assert re.findall(r'value="(\d+)"', field[0]) == ["1"]
    assert answer.status_code == 422
    assert "was found in run 1; name a later run." in answer.text


def test_a_person_is_led_back_to_the_room_from_which_they_came_to_a_kind(pages: Any) -> None:
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **SAID)
    pages.post(f"{pages.finish(n='1')}/cases/1/trials/0/findings", **SAID)
    [kind] = set(re.findall(r'<th scope="row">.*?href="(/failures/1[^"]*)"', pages.get("/failures?run=1").text))

    split = pages.post(kind, op="split", finding="1", name="asks twice", labeller="Ana").headers["location"]
    page = pages.get(split).text
    form = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.split("Undo my last step")[0]))
    undone = pages.post("/failures/undo", **form).headers["location"]
    edited = pages.post(kind, op="edit", name="invents", labeller="Ana").headers["location"]
    again = pages.post("/failures/undo", labeller="Ana", mode="1", run="1").headers["location"]

    assert (split, undone, edited, again) == ("/failures/2?run=1", "/failures?run=1", "/failures/1?run=1", edited)
    assert '<a href="/failures?run=1">Failures of run 1</a>' in page
    assert '<a href="/failures">Failures</a>' in pages.get("/failures/1").text


def test_a_name_is_asked_for_once_on_the_page_of_a_kind(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.post(f"{failed_trial(pages)}/findings", **SAID)
    names = re.compile(r'name="labeller"[^>]* value="([^"]*)"')

    page = pages.get("/failures/1").text
    named = pages.post("/failures/1", op="name", labeller="Ben")
    again = pages.get("/failures/1").text
    monkeypatch.setattr(type(pages.desk.person), "name", lambda person: "")
    nobody = pages.post("/failures/1", op="name", labeller=" ")

    assert page.count("Your name") == 1
    assert names.findall(page) == ["Ana"] * 6
    assert (named.status_code, named.headers["location"]) == (303, "/failures/1")
    assert "evaldesk-name=Ben" in named.headers["set-cookie"]
    assert names.findall(again) == ["Ben"] * 6
    assert (nobody.status_code, "Enter your name" in nobody.text) == (422, True)
    assert nobody.text.count("Your name</label>") == 5
    assert '<details class="disclosure lede" id="reader" open>' in nobody.text


def test_a_mode_that_is_not_there_and_a_verb_that_is_none(pages: Any) -> None:
    pages.post(f"{failed_trial(pages)}/findings", **SAID)

    assert pages.get("/failures/9").status_code == 404
    assert pages.post("/failures/9", op="retire", labeller="Ana").status_code == 404
    assert pages.post("/failures/1", op="shred", labeller="Ana").status_code == 422
    assert pages.post("/failures/1", op="merge", into="x", labeller="Ana").status_code == 422
    assert pages.post("/failures/undo", labeller="Nobody").status_code == 422
    assert pages.client.put("/failures/1").status_code == 405


def test_two_runs_are_compared_once_their_failed_trials_are_read(pages: Any) -> None:
    first, second = (pages.finish(n="1") for _ in range(2))
    address = f"/failures?run={second[6:]}&before={first[6:]}"
    assert "Read the 1 failed trial of run 1 that nobody read yet." in pages.get(address).text

    pages.post(f"{first}/cases/1/trials/0/findings", **SAID)
    pages.post(f"{second}/cases/1/trials/0/findings", labeller="Ana", op="clear")

    assert "gone in 1 of 1 case; 50 points less over all cases (p 1.00)" in pages.get(address).text
    compared = pages.get(f"/table?runs={first[6:]},{second[6:]}").text
    assert "gone in 1 of 1 case; 50 points less over all cases (p 1.00)" in compared.partition('id="otherwise"')[2]


def test_readers_are_compared_on_the_trials_that_both_read(pages: Any) -> None:
    trial = failed_trial(pages)

    pages.post(f"{trial}/findings", **SAID)
    pages.post(f"{trial}/findings", labeller="Ben", op="clear")

    assert "agree on 0 of 1 trial" in pages.get("/failures").text


def test_trials_that_fail_alike_are_proposed_and_count_once_accepted(pages: Any) -> None:
    run = pages.finish(n="3")
    room = f"/failures?run={run[6:]}"

    answer = pages.post("/failures/proposals", run=run[6:], op="propose")

    assert (answer.status_code, answer.headers["location"]) == (303, room)
    text = pages.get(room).text
    assert "3 unread trials</b>: roll_die missing" in text
    assert "0 of 3 failed trials read. No kind of failure named yet" in text
    accepted = {"run": run[6:], "labeller": "Ana", "op": "accept", "finding": ["1", "2", "3"]}
    refused = pages.post("/failures/proposals", **accepted, **{"new-mode": " "})
    assert refused.status_code == 422
    assert "Name the kind of failure" in refused.text
    assert pages.post("/failures/proposals", **accepted, **{"new-mode": "forgets to roll"}).status_code == 303
    assert "3 of 3 failed trials read. 1 kind of failure" in pages.get(room).text
    assert pages.post("/failures/proposals", **accepted, **{"new-mode": "again"}).status_code == 409


def test_an_unread_trial_is_proposed_to_the_kind_of_one_that_failed_alike(pages: Any) -> None:
    run = pages.finish(n="2")
    pages.post(f"{run}/cases/1/trials/0/findings", **(SAID | {"new-mode": "forgets to roll"}))

    pages.post("/failures/proposals", run=run[6:], op="propose")

    text = pages.get(f"/failures?run={run[6:]}").text
    assert "1 unread trial</b>, like “forgets to roll”: roll_die missing" in text
    assert "Signature proposes: roll_die missing" in text
    pages.post("/failures/proposals", run=run[6:], op="reject", labeller="Ana", finding="2")
    pages.post("/failures/proposals", run=run[6:], op="propose")
    assert "like “forgets to roll”" not in pages.get(f"/failures?run={run[6:]}").text


def test_notes_without_a_kind_are_shown_alike_and_named_together(pages: Any) -> None:
    trial, room = failed_trial(pages), "/failures?run=1"
    for note in ("It <b>invents</b> a price.", "It <b>invents</b> a price of a hotel.", "Something else."):
        pages.post(f"{trial}/findings", labeller="Ana", note=note)

    shown = re.findall(r'<form[^>]*"Notes named."(?s:.*?)</form>', pages.get(room).text)
    forms = [(re.findall(r'name="finding" value="(\d+)"', each), each) for each in shown]
    assert [sorted(ids) for ids, _ in forms] == [["1", "2"], ["3"]]
    assert re.search(r'name="new-mode"[^>]* value="[^"]*price[^"]*"', forms[0][1])
    assert "It <b>invents" not in pages.get(room).text
    fields = {"run": "1", "op": "name", "labeller": "Ana", "finding": ["1", "2"]}
    assert pages.post("/failures/proposals", **fields, **{"new-mode": " "}).status_code == 422
    assert pages.post("/failures/proposals", **fields, **{"new-mode": "invents prices"}).status_code == 303
    assert pages.post("/failures/proposals", **fields, **{"new-mode": "other"}).status_code == 409

    text = pages.get(room).text
    assert "1 kind of failure in this run" in text
    assert text.count('"Notes named."') == 1


@pytest.mark.parametrize("fields", [{"op": "accept", "finding": "x"}, {"op": "reject"}, {"op": "accept"}])
def test_a_proposal_that_is_none_is_refused(pages: Any, fields: dict[str, str]) -> None:
    run = pages.finish(n="1")

    answer = pages.post("/failures/proposals", run=run[6:], labeller="Ana", **fields)

    assert answer.status_code == 422
    assert "Choose" in answer.text


def test_texts_of_a_kind_that_somebody_edited_meanwhile_come_back_as_they_were_typed(pages: Any) -> None:
    pages.post(f"{failed_trial(pages)}/findings", **SAID)
    by, seen = {"labeller": "Ana"}, pages.desk.store.failures.modes()[0].texts_version
    theirs = {"name": "invents prices", "definition": "of <b>tickets</b>", "example-yes": "", "example-no": ""}
    pages.post("/failures/1", op="edit", **theirs, labeller="Ben", seen=seen)

    mine = theirs | {"definition": "my <i>long</i> text"}
    answer = pages.post("/failures/1", op="edit", **mine, **by, seen=seen)

    assert answer.status_code == 409
    assert "my &lt;i&gt;long&lt;/i&gt; text</textarea>" in answer.text
    assert "<dt>What counts</dt><dd data-text>of &lt;b&gt;tickets&lt;/b&gt;</dd>" in answer.text
    again = re.search(r'name="seen" value="(\w+)"', answer.text)
    assert again
    assert pages.post("/failures/1", op="edit", **mine, **by, seen=again[1]).status_code == 303
    assert pages.desk.store.failures.modes()[0].definition == "my <i>long</i> text"


def _offer_form(text: str) -> dict[str, list[str]]:
    """The form that offers kinds: its hidden fields, and its buttons."""
    form = re.search(
        r'<form class="actions"[^>]*>(?:\s*<input type="hidden"[^>]*>)*\s*<button[^>]*new-mode.*?</form>', text, re.S
    )
    assert form
    fields = re.findall(r'<(?:input type="hidden"|button[^>]*?) name="([^"]+)" value="([^"]*)"', form[0])
    return {name: [html.unescape(value) for key, value in fields if key == name] for name, _ in fields}


@pytest.mark.parametrize("then", ["", "next"])
@pytest.mark.parametrize("typed", ["inv", "Invents ", "invents <i>price"])
def test_the_beginning_of_a_kind_offers_it_before_another_is_made(pages: Any, then: str, typed: str) -> None:
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **SAID)
    sent = {"labeller": "Ana", "note": "a <b>long</b> note", "place": "0", "then": then}

    answer = pages.post(f"{trial}/findings", **sent, **{"new-mode": typed})

    assert answer.status_code == 422
    assert [mode.name for mode in pages.desk.failures.modes()] == [SAID["new-mode"]]
    offer = _offer_form(answer.text)
    assert offer == {
        **{name: [text] for name, text in sent.items()},
        "new-mode": [SAID["new-mode"]],
        "new-kind": [typed],
    }
    assert pages.post(f"{trial}/findings", **sent, **{"new-mode": SAID["new-mode"]}).status_code == 303
    assert pages.post(f"{trial}/findings", **sent, **{"new-kind": typed}).status_code == 303
    assert [mode.name for mode in pages.desk.failures.modes()] == [SAID["new-mode"], typed.strip()]
    assert pages.post(f"{trial}/findings", **sent, **{"new-mode": typed}).status_code == 303


def test_a_kind_is_offered_for_notes_and_proposals_too(pages: Any) -> None:
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **SAID)
    pages.post(f"{trial}/findings", labeller="Ana", note="Something else.")
    sent = {"run": trial.split("/")[2], "op": "name", "labeller": "Ana", "finding": "2"}

    answer = pages.post("/failures/proposals", **sent, **{"new-mode": "in"})

    assert answer.status_code == 422
    assert _offer_form(answer.text)["op"] == ["name"]
    assert pages.post("/failures/proposals", **sent, **{"new-mode": SAID["new-mode"]}).status_code == 303
    assert len(pages.desk.failures.modes()) == 1


@pytest.mark.parametrize("then", ["", "next"])
def test_a_finding_of_a_kind_that_was_retired_meanwhile_comes_back_as_it_was_typed(pages: Any, then: str) -> None:
    trial = failed_trial(pages)
    pages.post("/failures", name="asks twice", labeller="Ben")
    pages.post("/failures/1", op="retire", labeller="Ben")

    answer = pages.post(f"{trial}/findings", labeller="Ana", mode="1", note="a <b>long</b> note", then=then)

    assert answer.status_code == 409
    assert "“asks twice” was retired meanwhile" in answer.text
    assert "a &lt;b&gt;long&lt;/b&gt; note</textarea>" in answer.text


def test_a_kind_is_created_in_the_room_and_that_is_undone(pages: Any) -> None:
    run = pages.finish(n="1")[6:]
    assert 'method="post" action="/failures"' in pages.get(f"/failures?run={run}").text

    made = pages.post("/failures", name="asks twice", definition="more than once", labeller="Ana", run=run)
    taken = pages.post("/failures", name="ASKS  twice", definition="typed", labeller="Ana", run=run)
    undone = pages.post("/failures/undo", labeller="Ana", mode="1")

    assert made.headers["location"] == f"/failures/1?run={run}"
    assert taken.status_code == 422
    assert 'value="ASKS  twice"' in taken.text
    assert "typed</textarea>" in taken.text
    assert (undone.status_code, undone.headers["location"]) == (303, "/failures")
    assert pages.desk.store.failures.modes() == []


def test_the_room_says_what_was_taken_back_and_when_nothing_was(pages: Any) -> None:
    run = pages.finish(n="1")[6:]
    for verb in ({"name": "asks twice"}, {"name": "too dear"}):
        pages.post("/failures", **verb, labeller="Ana")
    pages.post("/failures/1", op="merge", into="2", labeller="Ana")
    pages.post("/failures/2", op="retire", labeller="Ana")
    form = {"labeller": "Ana", "run": run}
    undo = partial(pages.client.post, "/failures/undo", data=form, headers={"HX-Target": "div#room"})

    said = [re.search(r"<b>Undone:</b> (.*?)</p>", undo().text) for _ in range(4)]

    words = ["“too dear” retired", "“asks twice” merged into “too dear”", "“too dear” created", "“asks twice” created"]
    assert [each and each[1] for each in said] == words
    nothing = undo()
    assert (nothing.status_code, "nothing to undo" in nothing.text) == (422, True)


def test_a_kind_of_failure_becomes_a_judge_whose_run_is_held_against_the_findings(
    open_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.metrics.judges.panel.complete", scripted)
    pages = open_runs(judges=("demo/judge",))
    trial = failed_trial(pages)
    pages.post(f"{trial}/findings", **(SAID | {"new-mode": "says </textarea><b>hello"}))
    texts = {"name": "says </textarea><b>hello", "definition": "hello there", "example-yes": "<i>hi</i>"}
    pages.post("/failures/1", op="edit", labeller="Ana", **texts)
    pages.post("/runs/1/cases/0/trials/0/findings", labeller="Ana", op="clear")

    page = pages.get("/failures/1").text
    assert "No run was judged for it yet" in page
    form = pages.get("/runs/1/scorings/new?mode=1").text

    assert 'href="/runs/1/scorings/new?mode=1"' in page
    name = "failure_mode/says-textarea-b-hello"
    assert re.findall(r'name="metric" value="([^"]*)" checked', form)[-1] == name
    assert "says &lt;/textarea&gt;&lt;b&gt;hello" in form
    assert "&lt;i&gt;hi&lt;/i&gt;" in form
    assert "<b>hello" not in form
    judge = {"failure": "says </textarea><b>hello", "definition": "hello there", "example_yes": "<i>hi</i>"}
    options = {f"{name}.{key}": text for key, text in judge.items()}
    answer = pages.post("/runs/1/scorings", filled="1", metric=[name], **{f"{name}.threshold": "1", **options})
    assert answer.status_code == 303, answer.text
    assert "event: done" in pages.get(f"{answer.headers['location']}/events").text
    shown = pages.get("/failures/1").text
    found = r"Agrees on \d of 2 trials: finds it in \d of 1 where people found it, in \d of 1 where they did not\."
    assert re.search(found, shown)
    assert re.search(r"For ± 10 points, read \d", shown)
    assert "by an earlier definition" not in shown
    pages.post("/failures/1", op="edit", labeller="Ana", **(texts | {"definition": "hello"}))
    assert "by an earlier definition" in pages.get("/failures/1").text


@pytest.mark.parametrize(("mode", "status"), [("99", 404), ("x", 422), ("../1", 422)])
def test_a_judge_of_a_kind_that_is_not_there_is_refused(pages: Any, mode: str, status: int) -> None:
    pages.finish(n="1")

    assert pages.get(f"/runs/1/scorings/new?mode={mode}").status_code == status


def test_findings_of_a_kind_are_counted_by_tool_turn_tag_and_case(pages: Any) -> None:
    store, say = pages.desk.store, "<b>say</b>"
    call = Event("tool_call", call=ToolCall(say, {"to": "Rome"}))
    turns = tuple(TurnRecord("q", (call, Event("agent_message", text="Done."))) for _ in range(2))
    cases = [Case(f"c{at}", (Turn("q"), Turn("q")), tags=("<i>trip</i>",) if at else ()) for at in range(7)]
    run_id = store.runs.create(RunConfig(AgentRef("dice", "dice"), "trips"), cases)
    store.runs.record(
        [TrialResult(run_id, at, 0, "finished", "failed", transcript=Transcript(turns)) for at in range(7)]
    )
    for at in range(7):
        turn, event = (str(at % 2), "0" if at < 3 else "1") if at < 6 else ("", "")
        typed = TypedFinding("Ana", "late", new_mode="late", turn=turn, event=event)
        pages.desk.failures.add(run_id, (at, 0), typed, Transcript(turns))

    where = read_where(pages.desk, 1)
    page = pages.get("/failures/1/where")

    assert where
    assert dict(where.parts) == {
        "Tool": [(say, 3), (NO_CALL, 3), (NO_PLACE, 1)],
        "Turn": [("turn 1", 3), ("turn 2", 3), (NO_PLACE, 1)],
        "Tag": [("<i>trip</i>", 6)],
        "Case": [*((f"c{at}", 1) for at in range(5)), ("2 others", 2)],
    }
    assert "&lt;b&gt;say&lt;/b&gt;" in page.text
    assert "<i>trip" not in page.text
    assert 'hx-get="/failures/1/where"' in pages.get("/failures/1").text
    part = pages.client.get("/failures/1/where", headers={"HX-Target": "section#where"}).text
    assert part.strip().startswith('<section class="panel" id="where"')
    assert pages.get("/failures/99/where").status_code == 404


def test_a_kind_is_told_by_model_and_version_where_its_runs_differ_in_them(pages: Any) -> None:
    runs, said = pages.desk.store.runs, Transcript((TurnRecord("q", ()),))
    for model, n in (("small<b>", 1), ("big", 2)):
        run_id = runs.create(RunConfig(AgentRef("dice", "dice"), "trips", model=model, n=2), [Case("c", (Turn("q"),))])
        runs.record([TrialResult(run_id, 0, at, "finished", "failed", transcript=said) for at in range(2)])
        pages.desk.failures.clear(run_id, (0, 1), "Ben")
        for at in range(n):
            pages.desk.failures.add(run_id, (0, at), TypedFinding("Ana", "late", new_mode="late"), said)

    found = read_mode(pages.desk, 1)

    assert found
    assert found.agents == [("Model", [("big", 2, 2), ("small<b>", 1, 2)])]
    assert "small&lt;b&gt;" in pages.get("/failures/1").text


class JudgeHost:
    """Plays turns by the scripted judge, as the worker of a desk does."""

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[TurnRecord]:
        model = json.loads(spec.agent.declared)["model"]
        text = judge.reply([{"content": spec.message}], seed=0, share=float("mistakes" in model))
        yield TurnRecord("", (Event("agent_message", text=text),))


def test_a_model_is_asked_for_kinds_of_failure_and_a_person_decides(open_runs: Any) -> None:
    pages = open_runs(judges=("demo/judge", "demo/judge?mistakes=1"))
    pages.desk.model_proposals._host = JudgeHost()
    run = int(pages.finish(n="1").rpartition("/")[2])
    room = pages.get(f"/failures?run={run}").text
    assert "<option>demo/judge</option>" in room

    refused = pages.post("/failures/proposals", run=str(run), op="ask", model="demo/judge?mistakes=1")
    asked = pages.post("/failures/proposals", run=str(run), op="ask", model="demo/judge")

    assert (
        "proposed 0 kinds for 0 trials. 0 tokens, cost not known. 2 quotes refused: not in the trial letter by letter."
        in refused.text
    )
    told = (
        r"<b>demo/judge</b> read 2 trials and proposed 1 kind for 1 trial\. 0 tokens, cost not known\. 1 quote refused"
    )
    assert re.search(told, asked.text)
    assert "Asked about this run 2 times: 0 tokens, cost not known." in asked.text
    proposal = re.search(
        r'name="finding" value="([\d,]+)".*?name="new-mode"[^>]* value="([^"]*)"', asked.text, re.DOTALL
    )
    assert proposal
    assert "proposed by a model" in asked.text
    assert pages.desk.store.failures.modes() == []
    accept = {"finding": proposal[1], "new-mode": proposal[2], "labeller": "Ana"}
    assert pages.post("/failures/proposals", run=str(run), op="accept", **accept).status_code == 303
    (mode,) = pages.desk.store.failures.modes()
    assert (mode.name, pages.desk.store.failures.trials_by_run(mode.id)) == (
        proposal[2],
        {run: len(proposal[1].split(","))},
    )
    assert "it looked for words of failure" in mode.definition
    nobody = pages.post("/failures/proposals", run=str(run), op="ask", model="openai/gpt@http://evil.invalid")
    assert (nobody.status_code, "is not among the models of the settings" in nobody.text) == (422, True)


def test_without_a_model_in_the_settings_none_is_offer_form(open_runs: Any) -> None:
    pages = open_runs(models=(), judges=())
    run = pages.finish(n="1").rpartition("/")[2]

    assert "Ask a model" not in pages.get(f"/failures?run={run}").text


def test_a_run_is_chosen_among_the_newest_ones_and_those_of_the_address(
    pages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.pages.failures.room.N_RUNS", 1)
    cases = [Case("c", (Turn("q"),))]
    runs = [pages.desk.store.runs.create(RunConfig(AgentRef("dice", "dice"), "trips"), cases) for _ in range(3)]
    for run in runs:
        pages.desk.store.runs.record([TrialResult(run, 0, 0, "finished", "failed")])

    page = pages.get(f"/failures?run={runs[0]}&before={runs[1]}")

    options_by_field = {
        name: re.findall(r'<option value="(\d*)"( selected)?>([^<]*)', options)
        for name, options in re.findall(r'<select id="(\w+)" name="\w+">(.*?)</select>', page.text)
    }
    newest = (str(runs[2]), "", f"Run {runs[2]}, trips, 1 failed")
    assert options_by_field["run"] == [(str(runs[0]), " selected", f"Run {runs[0]}, trips, 1 failed"), newest]
    chosen = (str(runs[1]), " selected", f"Run {runs[1]}, trips, 1 failed")
    assert options_by_field["before"] == [("", "", "none"), chosen, newest]
    assert pages.get("/failures?run=99&before=").status_code == 404


def test_lists_that_are_cut_lead_to_the_rest(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.pages.failures.kind.N_FINDINGS", 2)
    monkeypatch.setattr("evaldesk.pages.failures.kind.N_ROWS", 1)
    monkeypatch.setattr("evaldesk.pages.failures.room.N_PROPOSALS", 2)
    store, said = pages.desk.store, Transcript((TurnRecord("q", ()),))
    cases = [Case(f"c{at}", (Turn("q"),)) for at in range(9)]
    runs = [store.runs.create(RunConfig(AgentRef("dice", "dice"), "trips"), cases) for _ in range(2)]
    for run in runs:
        store.runs.record([TrialResult(run, at, 0, "finished", "failed", transcript=said) for at in range(9)])
        for at in range(2):
            pages.desk.failures.add(run, (at, 0), TypedFinding("Ana", f"note {run}.{at}", new_mode="late"), said)
    alike = [FindingDraft(runs[1], 3 + at, 0, f"words {at}", signature=str(at)) for at in range(5)]
    store.proposals.propose(alike, "signature")

    def seen(start: str, link: str, pattern: str) -> list[list[str]]:
        found, href = [], start
        while href:
            page = pages.get(href).text
            found.append(re.findall(pattern, page))
            following = re.search(rf'<a href="([^"]*)">{link}</a>', page)
            href = following[1].replace("&amp;", "&") if following else ""
        return found

    assert seen("/failures/1", "Older findings", r"note (\d\.\d)") == [["2.1", "2.0"], ["1.1", "1.0"]]
    assert seen("/failures/1", "1 older run", r'<a href="/failures\?run=(\d)">Run') == [["2"], ["1"]]
    proposals = seen(f"/failures?run={runs[1]}", "next", r"</b>: (words \d)")
    assert proposals == [["words 0", "words 1"], ["words 2", "words 3"], ["words 4"]]
    assert "1 to 2 of 5 proposals" in pages.get(f"/failures?run={runs[1]}&from=99").text
