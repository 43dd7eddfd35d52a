"""Review queues without a script: drawn, read one by one, labelled, taken back, finished."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.web.runs.conftest import case

from evaldesk.desk.client_proposals import ClientProposalDesk, draft_version

KINDS = ("failed", "errored", "passed", "unscored")


def draw(pages: Any, run: str, *kinds: str, n: str = "10", reader: str = "jo", blind: str = "on") -> str:
    """The address of a new queue of a run."""
    answer = pages.post("/queues", run=run[6:], of=kinds or KINDS, n=n, reader=reader, blind=blind)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def form_of(text: str, action: str) -> dict[str, str]:
    """The hidden fields of the form that goes to `action`."""
    form = re.search(rf'<form [^>]*action="{re.escape(action)}".*?</form>', text, re.DOTALL)
    assert form, text
    return dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form[0]))


def say(pages: Any, queue: str, verdict: str, note: str = "", at: str = "") -> Any:
    """Press a verdict on the next trial, or on the one `at` a place; what the server answers."""
    text = pages.get(queue + at).text
    return pages.post(f"{queue}/labels", **form_of(text, f"{queue}/labels"), verdict=verdict, note=note)


def heading(text: str) -> str:
    found = re.search(r'id="trial-title"[^>]*>([^<]*)', text)
    assert found, text
    return found[1].strip()


def test_a_queue_is_read_to_its_end_with_its_verdict_keys(pages: Any) -> None:
    run = pages.finish(n="1")
    queue = draw(pages, run)
    first = pages.get(queue).text
    assert "0 of 4 read" in first
    assert 'value="passed" data-key="1"' in first
    assert first.count('class="square" data-status="queued"') == 4

    said = [say(pages, queue, verdict, note) for verdict, note in (("failed", "why"), ("passed", ""), ("unsure", ""))]

    assert [answer.status_code for answer in said] == [303] * 3
    text = pages.get(said[2].headers["location"]).text
    assert "3 of 4 read" in text
    assert re.search(r'id="stored" role="status">.*?unsure</span><p><b>Stored</b> \w+, trial 1</p>', text, re.DOTALL)
    say(pages, queue, "failed")
    done = pages.get(queue).text
    assert "All 4 read: 2 fail, 1 pass, 1 unsure" in done
    assert "Read by jo" in done
    assert "blind" in done
    assert pages.get(f"/labels?run={run[6:]}").text.count("<td>jo</td>") == 4


def test_a_queue_goes_on_where_its_reader_stopped(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"))
    names = [heading(pages.get(queue).text)]
    say(pages, queue, "failed")

    names.append(heading(pages.get(queue).text))

    assert names[0] != names[1]
    assert heading(pages.get(f"{queue}?reader=sam").text) == names[0]
    assert "0 of 4 read" in pages.get(f"{queue}?reader=sam").text


def test_the_last_verdict_is_taken_back_and_its_trial_is_shown(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"))
    first = heading(pages.get(queue).text)
    say(pages, queue, "failed", "a slip")

    undone = pages.post(f"{queue}/undo", reader="jo")

    text = pages.get(undone.headers["location"]).text
    assert (heading(text), "0 of 4 read" in text, "a slip" in text) == (first, True, False)
    assert "Nothing to undo in this queue." in pages.post(f"{queue}/undo", reader="jo").text


def test_findings_and_verdicts_are_taken_back_one_by_one_the_last_one_first(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"))
    first = heading(pages.get(queue).text)
    find = f"{queue}/findings"
    pages.post(find, **form_of(pages.get(queue).text, find), **{"new-mode": "too <b>long</b>"})
    say(pages, queue, "failed")
    second = heading(pages.get(queue).text)
    pages.post(find, **form_of(pages.get(queue).text, find), **{"new-mode": "too short"})
    pages.post("/failures", name="made elsewhere", labeller="jo")

    def undo() -> tuple[str, int, list[str]]:
        text = pages.client.post(f"{queue}/undo", data={"reader": "jo"}, headers={"HX-Target": "div#review"}).text
        n_labels = sum(each.is_read for each in pages.desk.store.queues.items(1, "jo"))
        assert "<b>Undone</b>" in text
        return heading(text), n_labels, sorted(mode.name for mode in pages.desk.store.failures.modes())

    assert [undo() for _ in range(3)] == [
        (second, 1, ["made elsewhere", "too <b>long</b>"]),
        (first, 0, ["made elsewhere", "too <b>long</b>"]),
        (first, 0, ["made elsewhere"]),
    ]
    assert "Nothing to undo in this queue." in pages.post(f"{queue}/undo", reader="jo").text


def test_a_finding_of_another_reader_or_of_another_trial_is_not_taken_back(pages: Any) -> None:
    run = pages.finish(n="1")
    queue = draw(pages, run, "failed")
    pages.post(f"{run}/cases/0/trials/0/findings", labeller="jo", note="not in the queue")
    pages.post(f"{run}/cases/1/trials/0/findings", labeller="sam", note="of another reader")

    answer = pages.post(f"{queue}/undo", reader="jo")

    assert "Nothing to undo in this queue." in answer.text
    assert len(pages.desk.store.failures.list()) == 2


def test_undo_brings_back_the_label_that_was_there_before(pages: Any) -> None:
    run = pages.finish(n="1")
    queue = draw(pages, run)
    say(pages, queue, "failed", "first thought")
    first = pages.desk.store.queues.items(1, "jo")[0]
    at = f"?at={first.place}"
    say(pages, queue, "passed", "second thought", at)

    pages.post(f"{queue}/undo", reader="jo")

    found = pages.desk.store.queues.items(1, "jo")[0].label
    assert (found.verdict, found.note) == ("failed", "first thought")
    assert found == first.label


def test_blind_mode_keeps_all_that_the_metrics_said_out_of_the_page(pages: Any) -> None:
    run = pages.finish(n="2")
    queue = draw(pages, run, "failed")
    hidden, shown = pages.get(queue).text, pages.get(f"{queue}?blind=off").text

    reading = hidden[hidden.index('id="reading"') : hidden.index('class="judging"')]
    for words in ("failed", "Response match", 'class="diff"', "verdicts", "divergence", "/acceptance"):
        assert words not in reading
    assert "hidden until you label it" in hidden
    assert "nothing of the kind" in reading  # what the case expects
    assert 'class="diff"' in shown
    assert 'data-status="failed">failed</span>' in shown
    assert "/acceptance?case=misses" in shown
    assert 'data-key="b"' in hidden
    say(pages, queue, "failed")
    place = pages.desk.store.queues.items(1, "jo")[0].place
    assert 'class="diff"' in pages.get(f"{queue}?at={place}").text  # once it is labelled


def test_an_error_is_a_verdict_that_a_blind_reader_does_not_see(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"), "errored")

    hidden, shown = pages.get(queue).text, pages.get(f"{queue}?blind=off").text

    assert "no such thing as" in shown
    assert "hidden until you label it" in hidden
    for words in ("no such thing as", "This turn errored", 'data-status="errored"'):
        assert words not in hidden[hidden.index('id="reading"') : hidden.index('class="judging"')]


def test_a_blind_reader_sees_what_the_case_expects_as_a_whole(pages: Any, tmp_path: Path) -> None:
    whole = {
        "final_session_state": {"rolls": [4, 4]},
        "required_outputs": ["one die", "<b>two</b> dice"],
        "rubrics": [{"rubric_id": "brief", "rubric_content": {"text_property": "Says no more than it has to."}}],
    }
    path = tmp_path / "evalsets" / "whole.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "whole", "eval_cases": [case("rolls", "roll it", None, None) | whole]}))
    evalset = next(file.id for file in pages.desk.evalsets.list() if file.name == "whole")

    text = pages.get(draw(pages, pages.finish(evalset=evalset, n="1"))).text

    expected = re.findall(r"<dt>([^<]*)</dt><dd><p data-text>(.*?)</p></dd>", text, re.DOTALL)
    assert "hidden until you label it" in text
    assert [(title, html.unescape(said)) for title, said in expected] == [
        ("Final state", '{"rolls": [4, 4]}'),
        ("Required texts", "one die\n<b>two</b> dice"),
        ("Rubrics", "brief: Says no more than it has to."),
    ]


def test_a_blind_turn_that_comes_later_tells_no_more(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"), "failed")

    part = pages.get(f"{queue}/trials/1/turns/0", **{"HX-Request": "true"}).text
    assert "wrongly greet" in part
    assert 'class="diff"' not in part
    assert "Response match" not in part
    assert pages.get(f"{queue}/trials/1/turns/7", **{"HX-Request": "true"}).status_code == 404
    assert pages.get(f"{queue}/trials/1/turns/0").headers["location"] == f"{queue}?at=1&all=1#turn-1"
    assert pages.get(f"{queue}/trials/9/turns/0").status_code == 404
    assert pages.get(f"{queue}/trials/1/turns/0/events/0").headers["location"].endswith("/turns/0/events/0")


def test_nobody_overwrites_the_label_of_another_window_silently(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"))
    stale = form_of(pages.get(queue).text, f"{queue}/labels")
    pages.post(f"{queue}/labels", **stale, verdict="failed", note="mine")

    refused = pages.post(f"{queue}/labels", **stale, verdict="passed", note="no, mine")

    assert refused.status_code == 422
    assert "it says failed now; nothing was stored" in refused.text
    assert "no, mine</textarea>" in refused.text
    assert pages.desk.store.queues.items(1, "jo")[0].verdict == "failed"
    again = form_of(refused.text, f"{queue}/labels")
    assert pages.post(f"{queue}/labels", **again, verdict="passed", note="").status_code == 303
    assert pages.desk.store.queues.items(1, "jo")[0].verdict == "passed"


def test_the_same_verdict_sent_twice_is_one_label(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"))
    form = form_of(pages.get(queue).text, f"{queue}/labels")

    answers = [pages.post(f"{queue}/labels", **form, verdict="failed", note="") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [303, 303]
    assert len(pages.desk.store.queues.steps(1, "jo")) == 1


def test_readers_label_beside_each_other(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"))
    say(pages, queue, "failed")
    sam = pages.get(f"{queue}?reader=sam").text
    answer = pages.post(f"{queue}/labels", **form_of(sam, f"{queue}/labels"), verdict="passed", note="")

    assert "reader=sam" in answer.headers["location"]
    assert {who: set(found.values()) for who, found in pages.desk.store.queues.verdicts(1).items()} == {
        "jo": {"failed"},
        "sam": {"passed"},
    }


def test_kinds_of_failure_are_named_and_taken_away_again(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"), "failed")
    form = form_of(pages.get(queue).text, f"{queue}/labels")
    here = {name: form[name] for name in ("reader", "at")}

    pages.post(f"{queue}/findings", **here, **{"new-mode": "made up a <b>price</b>", "quote": "greet", "place": "0"})

    text = pages.get(queue).text
    assert "made up a &lt;b&gt;price&lt;/b&gt; <small>1</small>" in text
    assert "<mark>greet</mark>" in text
    mode = re.search(r'name="mode" value="(\d+)"><input type="hidden" name="op" value="remove"', text)
    assert mode
    refusal = pages.post(f"{queue}/findings", **here, **{"new-mode": "made", "quote": "greet"})
    assert (refusal.status_code, refusal.text.count('name="new-kind" value="made"')) == (422, 1)
    pages.post(f"{queue}/findings", **here, mode=mode[1], op="remove")
    assert "<small>1</small>" not in pages.get(queue).text
    assert pages.post(f"{queue}/findings", **here).status_code == 422


def test_many_trials_are_labelled_at_once_and_taken_back_at_once(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="3"), n="50")
    text = pages.get(f"{queue}/trials").text
    boxes = re.findall(r'name="item" value="([^"]+)"', text)
    assert len(boxes) == 12
    assert "hidden</span>" in text
    form = form_of(text, f"{queue}/labels")

    answer = pages.post(f"{queue}/labels", **form, item=boxes[:10], verdict="unsure")

    after = pages.get(answer.headers["location"]).text
    assert "10 of 12 read" in after
    pages.post(f"{queue}/undo", reader="jo", then="list")
    assert "0 of 12 read" in pages.get(f"{queue}/trials").text
    refused = pages.post(f"{queue}/labels", **form, verdict="unsure")
    assert (refused.status_code, "Choose a trial." in refused.text) == (422, True)


def test_a_bulk_label_is_stored_whole_or_not_at_all(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="3"), n="50")
    text = pages.get(f"{queue}/trials").text
    boxes, form = re.findall(r'name="item" value="([^"]+)"', text), form_of(text, f"{queue}/labels")
    say(pages, queue, "passed", at="?at=12")

    answer = pages.post(f"{queue}/labels", **form, item=boxes, verdict="failed")

    assert answer.status_code == 422
    assert list(pages.desk.store.queues.verdicts(1)["jo"].values()) == ["passed"]


def test_a_second_queue_draws_what_was_not_labelled_yet(pages: Any) -> None:
    run = pages.finish(n="3")
    queue = draw(pages, run, "failed", n="2")
    say(pages, queue, "failed")
    say(pages, queue, "failed")
    assert "2 of 3 failed" in pages.get(f"{queue}/trials").text

    other = draw(pages, run, "failed", n="2")

    assert "0 of 1 read" in pages.get(other).text
    say(pages, other, "failed")
    assert "1 of 1 failed" in pages.get(f"{other}/trials").text


def test_a_blind_reader_does_not_read_in_the_head_which_verdicts_were_drawn(pages: Any) -> None:
    run = pages.finish(n="3")
    queue = draw(pages, run, "failed", n="2")

    unread = [pages.get(path).text for path in (queue, f"{queue}/trials")]
    unread.append(pages.get("/queues").text.partition('<h2 id="list-title">')[2])

    assert not any(re.search(r"\d of \d (failed|passed)", text) for text in unread)
    assert all("drawn at random" in text for text in unread)


def test_the_form_of_a_queue_draws_ten_of_each_verdict_from_a_run_with_unread_trials(pages: Any) -> None:
    older = pages.finish(n="3").rpartition("/")[2]
    newest = pages.finish(n="3")
    assert chosen_in(pages.get("/queues").text) == (
        newest.rpartition("/")[2],
        ["failed", "errored", "passed", "unscored"],
        "10",
    )
    queue = draw(pages, newest, n="50")
    while "<h1>Queue" not in (text := pages.get(queue).text):
        assert " read <span>" in text
        say(pages, queue, "failed")

    assert chosen_in(pages.get("/queues").text)[0] == older


def chosen_in(text: str) -> tuple[str, list[str], str]:
    """The run, the kinds and the number that the form of a queue proposes."""
    (run,) = re.findall(r'name="run" value="(\d+)" checked', text)
    return (
        run,
        re.findall(r'name="of" value="(\w+)" checked', text),
        re.findall(r'name="n"[^>]* value="(\d+)"', text)[0],
    )


def test_what_people_and_metrics_or_two_readers_say_otherwise_is_read_again(pages: Any) -> None:
    run = pages.finish(n="1")
    queue = draw(pages, run, "failed")
    say(pages, queue, "passed")
    text = pages.get(f"{queue}?reader=sam").text
    pages.post(f"{queue}/labels", **form_of(text, f"{queue}/labels"), verdict="failed", note="")

    for kind in ("doubted", "readers"):
        again = draw(pages, run, kind)
        assert "0 of 1 read" in pages.get(again).text
        say(pages, again, "passed")
        assert "All 1 read: 1 pass" in pages.get(again).text


def test_a_step_after_a_queue_counts_the_trials_that_its_button_draws(pages: Any) -> None:
    run = pages.finish(n="2")
    queue = draw(pages, run, "failed", "passed")
    for _ in range(4):  # in all four against the metrics
        say(pages, queue, "passed" if "wrongly" in pages.get(queue).text else "failed")

    text = pages.get(queue).text

    title, form = re.findall(r"<h3>(Look again at [^<]*)</h3>.*?(<form .*?</form>)", text, re.DOTALL)[0]
    fields = re.findall(r'name="([^"]+)" value="([^"]*)"', form)
    again = pages.post("/queues", **{name: [value for key, value in fields if key == name] for name, _ in fields})
    assert title == "Look again at 4 trials where people and metrics disagree"
    assert "0 of 4 read" in pages.get(again.headers["location"]).text


def test_the_end_of_a_queue_compares_its_reader_with_each_other_one(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="3"), "failed")
    for reader, verdicts in {"jo": "ppf", "sam": "ppf", "kim": "fff"}.items():
        for letter in verdicts:
            form = form_of(pages.get(f"{queue}?reader={reader}").text, f"{queue}/labels")
            pages.post(f"{queue}/labels", **form, verdict={"p": "passed", "f": "failed"}[letter], note="")

    text = pages.get(f"{queue}?reader=jo").text

    assert re.findall(r"<p>You agree with (\w+) on ([^;]*); kappa", text) == [("kim", "1 of 3"), ("sam", "3 of 3")]
    assert "<h3>Read 2 trials where readers disagree</h3>" in text


def test_readers_who_agree_on_all_are_not_sent_to_read_nothing(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"), "failed")
    say(pages, queue, "failed")
    text = pages.get(f"{queue}?reader=sam").text
    pages.post(f"{queue}/labels", **form_of(text, f"{queue}/labels"), verdict="failed", note="")

    text = pages.get(f"{queue}?reader=jo").text

    assert "You agree with sam on 1 of 1; kappa is not measurable" in text
    assert "where readers disagree" not in text
    assert "<h3>Read 10 more of each verdict, drawn at random</h3>" in text


def test_the_end_of_a_queue_says_what_to_do_next(pages: Any) -> None:
    run = pages.finish(n="1")
    queue = draw(pages, run, *KINDS)
    for _ in range(4):
        say(pages, queue, "passed" if "wrongly" in pages.get(queue).text else "failed")

    text = pages.get(queue).text

    assert "Accept what 1 trial of run 1 did" in text
    assert "Look again at 2 trials where people and metrics disagree" in text
    assert re.search(r"Of all 4 trials of run 1 you would fail 75 % \([^)]*\); the metrics failed 25 %\.", text)


def test_an_empty_queue_says_why_and_offers_the_next(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"), "flaky")

    text = pages.get(queue).text

    assert "Nothing to read" in text
    assert "Read 10 of each verdict" in text


def test_a_flaky_case_gives_a_trial_of_each_verdict(pages: Any) -> None:
    from evaldesk.desk.queues import QueueDesk

    run = int(pages.finish(n="3")[6:])
    strips = [("a", "ppfp"), ("b", "pppp"), ("c", "f.ef")]
    store = pages.desk.store
    found = QueueDesk(store).candidates(run, "jo")
    found._strips = [strip for _, strip in strips]

    keys = found.draw("flaky")

    assert sorted(strips[case][1][trial] for case, trial in keys) == ["f", "p"]
    assert {case for case, _ in keys} == {0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"of": []}, "Choose which trials to read"),
        ({"run": []}, "Choose one run"),
        ({"n": "0"}, "whole number from 1"),
        ({"n": "1e9"}, "whole number from 1"),
        ({"reader": " "}, "Enter your name"),
        ({"of": ["__class__"]}, "Choose which trials to read"),
        ({"run": ["1"] * 3 + ["x"]}, "whole number from 1"),
    ],
)
def test_what_cannot_be_drawn_comes_back_as_it_was_typed(pages: Any, changes: dict[str, Any], words: str) -> None:
    pages.finish(n="1")

    answer = pages.post("/queues", **({"run": "1", "of": "failed", "n": "7", "reader": "jo"} | changes))

    assert (answer.status_code, words in answer.text) == (422, True), answer.text


def test_queues_need_their_run_and_their_trial(pages: Any) -> None:
    run = pages.finish(n="1")
    queue = draw(pages, run, "failed")

    assert pages.get("/queues/99").status_code == 404
    assert pages.post("/queues", run="99", of="failed", n="1", reader="jo").status_code == 404
    assert pages.post(f"{queue}/labels", item="9.0", verdict="failed", reader="jo", note="").status_code == 404
    assert pages.post(f"{queue}/labels", item="1.0", verdict="maybe", reader="jo", note="").status_code == 422
    assert pages.post(f"{queue}/labels", item="1.0", verdict="failed", reader="", note="").status_code == 422
    assert pages.get(f"/queues?run={run[6:]}&of=flaky&n=9999999").status_code == 200
    assert pages.get("/queues?run=99").status_code == 404
    pages.post(f"{run}/deletion")
    assert "Nothing to read" in pages.get(queue).text


def test_queues_are_reached_from_a_run_from_a_selection_of_runs_and_from_the_labels(pages: Any) -> None:
    run = pages.finish(n="1")

    assert f'href="/queues?run={run[6:]}"' in pages.get(run).text
    assert 'formaction="/queues"' in pages.get("/runs").text
    assert 'href="/queues"' in pages.get("/labels").text
    assert "Run 1" in pages.get("/queues").text


def test_a_script_gets_the_next_trial_and_what_was_stored(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"))
    form = form_of(pages.get(queue).text, f"{queue}/labels")

    answer = pages.client.post(
        f"{queue}/labels", data=form | {"verdict": "failed", "note": ""}, headers={"HX-Target": "div#review"}
    )

    assert answer.status_code == 200
    assert answer.text.lstrip().startswith('<div id="review"')
    assert "1 of 4 read" in answer.text
    assert 'hx-swap-oob="innerHTML:#stored">' in answer.text
    assert answer.headers["HX-Replace-Url"].startswith(f"{queue}?at=")
    assert "hx-swap-oob" not in pages.get(queue).text


def test_an_answer_typed_in_a_queue_is_a_proposed_expectation(pages: Any) -> None:
    queue = draw(pages, pages.finish(n="1"), "failed")
    form = form_of(pages.get(queue).text, f"{queue}/answers")
    here = {name: form[name] for name in ("reader", "at", "turn")}
    run = pages.desk.store.runs.list(limit=1)[0]
    evalset_id = pages.desk.evalsets.id_of_run(run.config)
    before = pages.desk.evalsets.evalset(evalset_id).cases

    answer = pages.post(f"{queue}/answers", **here, answer=" A <b>right</b> answer. ")

    (proposal,) = ClientProposalDesk(pages.desk).list()
    assert f'href="/proposals/{proposal.id}"' in answer.text
    assert (proposal.draft.kind, proposal.client, proposal.draft.run) == ("expectation", here["reader"], run.id)
    assert "A &lt;b&gt;right&lt;/b&gt; answer." in pages.get(f"/proposals/{proposal.id}").text
    assert pages.desk.evalsets.evalset(evalset_id).cases == before
    ClientProposalDesk(pages.desk).accept(proposal.id, "Ana", draft_version(proposal.draft))
    cases = {case.id: case for case in pages.desk.evalsets.evalset(evalset_id).cases}
    case = cases.pop(proposal.draft.case_id)
    assert case.turns[int(here["turn"]) - 1].expected.reference == "A <b>right</b> answer."
    assert [*cases.values()] == [each for each in before if each.id != case.id]
    wrong_fields: list[dict[str, str]] = [{"answer": " "}, {"turn": "9"}, {"turn": "x"}, {"reader": ""}]
    for wrong in wrong_fields:
        assert pages.post(f"{queue}/answers", **(here | {"answer": "x"} | wrong)).status_code == 422
    assert pages.post("/queues/99/answers", **here, answer="x").status_code == 404
