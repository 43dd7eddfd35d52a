"""What a trial did is accepted as what its case expects: on the page, in a shell, and in no other way."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.cli import cli
from evaldesk.desk.queues import TypedQueue, TypedVerdict
from evaldesk.pages.case_text import MAX_LINES, changed_lines

EFFECT = {"HX-Request": "true", "HX-Target": "section#effect"}


def file_of(pages: Any) -> Path:
    path: Path = pages.desk.evalsets.read(pages.evalset)[2]
    return path


def case_of(pages: Any, case_id: str) -> dict[str, Any]:
    cases = json.loads(file_of(pages).read_text())["eval_cases"]
    found: dict[str, Any] = next(case for case in cases if case["eval_id"] == case_id)
    return found


def typed(text: str) -> dict[str, Any]:
    """The form with each change in the place of what was expected."""
    return {
        "version": re.findall(r'name="version" value="([^"]+)"', text)[0],
        "change": [name for way, name in ways(text, is_checked=False) if way == "replace"],
        **dict(re.findall(r'name="(case|trial)" value="([^"]+)"', text)),
    }


def ways(text: str, *, is_checked: bool = True) -> list[tuple[str, str]]:
    """The ways of writing that are chosen on a page, or all, each with the name of its change."""
    found = re.findall(r'name="way-\d+" value="(\w+) ([^"]+)"[^>]*?( checked)?>', text)
    return [(way, html.unescape(name)) for way, name, checked in found if checked or not is_checked]


def test_the_failed_cases_of_a_run_offer_their_differences(pages: Any) -> None:
    address = pages.finish()

    page = pages.get(f"{address}/acceptance")

    judged = pages.client.post(f"{address}/acceptance/effect", data=typed(page.text), headers=EFFECT)
    assert page.status_code == 200
    assert f'href="{address}/acceptance"' in pages.get(address).text
    assert "Turn 1, roll_die" in page.text
    assert "Turn 1, answer" in page.text
    assert "nothing of the kind" in page.text
    assert page.text.count('value="leave ') == 2
    assert "No change is chosen." in page.text
    assert "Save 0 changes" in page.text
    assert 'hx-trigger="load"' in page.text
    assert "0 of 2 trials" in judged.text
    assert "2 of 2 trials" in judged.text
    assert 'hx-trigger="load"' not in judged.text


def test_nothing_is_chosen_at_first(pages: Any) -> None:
    address = f"{pages.finish()}/acceptance"
    text = pages.get(address).text

    assert [(way, name.partition(":")[2]) for way, name in ways(text)] == [("leave", "1.1"), ("leave", "1.answer")]
    assert "Nothing is chosen until you choose. 1 change would make a case expect less." in text
    assert re.findall(r"<h3[^>]*>(Turn 1, \w+) .*<small[^>]*>would expect less", text) == ["Turn 1, roll_die"]
    assert re.search(r"data-saves[^>]* disabled", text)
    before, chosen = (
        file_of(pages).read_bytes(),
        dict(re.findall(r'name="(way-\d+)" value="([^"]+)"[^>]* checked', text)),
    )
    assert pages.post(address, **typed(text) | {"change": []} | chosen).status_code == 409
    assert file_of(pages).read_bytes() == before


def test_each_way_tells_how_many_trials_would_change_while_the_others_stay_as_chosen(pages: Any) -> None:
    address = f"{pages.finish()}/acceptance"
    form = typed(pages.get(address).text)

    def told(changes: list[str]) -> list[tuple[str, str]]:
        text = pages.client.post(f"{address}/effect", data=form | {"change": changes}, headers=EFFECT).text
        found: list[tuple[str, str]] = re.findall(r'"innerHTML:#would-(\d-\w)">([^<]*)<', text)
        return found

    everything, only_first = told(form["change"]), told(form["change"][:1])

    none, both = "0 of 2 pass", "2 of 2 pass: 2 turn green"
    assert dict(everything) == {"1-r": both, "1-x": none, "2-o": both, "2-r": both, "2-x": none}
    assert dict(only_first) == {"1-r": none, "1-x": none, "2-o": both, "2-r": both, "2-x": none}
    assert re.findall(r'id="would-(\d-\w)"></small>', pages.get(address).text) == [name for name, _ in everything]


def test_only_so_many_trials_are_judged_for_the_ways(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"{pages.finish()}/acceptance"
    monkeypatch.setattr("evaldesk.desk.runs.accepting.MAX_JUDGED", 9)

    judged = pages.client.post(f"{address}/effect", data=typed(pages.get(address).text), headers=EFFECT)

    assert "turn green" not in judged.text
    assert "2 of 2 would pass instead of 0" in judged.text


def test_what_is_saved_is_expected_from_then_on_and_the_run_keeps_its_verdicts(pages: Any) -> None:
    address = pages.finish()
    fields = typed(pages.get(f"{address}/acceptance").text)

    saved = pages.post(f"{address}/acceptance", **fields)

    shown = pages.get(saved.headers["location"])
    turn = case_of(pages, "misses")["conversation"][0]
    assert saved.status_code == 303
    assert (turn["final_response"]["parts"], turn["intermediate_data"]["tool_uses"]) == ([{"text": "greet"}], [])
    for said in ("0 of 2 trials", "2 of 2 trials", "case=misses"):
        assert said in shown.text
    assert "2 of 4 passed" in pages.get(address).text
    assert "There is nothing to accept" in pages.get(f"{address}/acceptance").text
    again = pages.finish(cases="selected", case="misses")
    assert "2 of 2 passed" in pages.get(again).text


def test_only_the_ticked_changes_are_written(pages: Any) -> None:
    address = pages.finish()
    fields = typed(pages.get(f"{address}/acceptance").text)
    answer = [name for name in fields["change"] if name.endswith(".answer")]

    looked = pages.client.post(
        f"{address}/acceptance/effect",
        data={**fields, "change": answer},
        headers=EFFECT,
    )
    pages.post(f"{address}/acceptance", **{**fields, "change": answer})

    turn = case_of(pages, "misses")["conversation"][0]
    assert "Save 1 change <kbd>" in looked.text
    assert "<html" not in looked.text
    assert turn["final_response"]["parts"] == [{"text": "greet"}]
    assert turn["intermediate_data"]["tool_uses"] == [{"name": "roll_die", "args": {"sides": 20}}]


def with_way(text: str, of_answer: str, of_call: str = "leave") -> dict[str, Any]:
    """The form with a way for the answer and one for the call of the case."""
    fields = typed(text) | {"change": []}
    names = sorted({name for _, name in ways(text, is_checked=False)})
    chosen = {name: of_answer if name.endswith(".answer") else of_call for name in names}
    return fields | {f"way-{at}": f"{way} {name}" for at, (name, way) in enumerate(chosen.items())}


def test_an_answer_is_accepted_as_well_and_the_first_one_stays(pages: Any) -> None:
    address = pages.finish()
    text = pages.get(f"{address}/acceptance").text
    assert {way for way, name in ways(text, is_checked=False) if name.endswith(".answer")} == {
        "as_well",
        "replace",
        "leave",
    }

    saved = pages.post(f"{address}/acceptance", **with_way(text, "as_well", "replace"))

    case = case_of(pages, "misses")
    assert case["conversation"][0]["final_response"]["parts"] == [{"text": "nothing of the kind"}]
    assert case["also_accepted"] == [{"turn": 1, "answer": "greet"}]
    assert "2 of 2 trials" in pages.get(saved.headers["location"]).text
    assert "There is nothing to accept" in pages.get(f"{address}/acceptance").text
    again = pages.finish(cases="selected", case="misses")
    assert "2 of 2 passed" in pages.get(again).text


@pytest.mark.parametrize("way", ["within", "leave", "nonsense", "ignore"])
def test_a_way_that_a_change_does_not_have_writes_nothing(pages: Any, way: str) -> None:
    address = pages.finish()
    before = file_of(pages).read_bytes()
    text = pages.get(f"{address}/acceptance").text

    assert pages.post(f"{address}/acceptance", **with_way(text, way)).status_code == 409
    assert file_of(pages).read_bytes() == before


def test_the_verdicts_before_and_after_stand_side_by_side(pages: Any) -> None:
    address = pages.finish()
    saved = pages.post(f"{address}/acceptance", **typed(pages.get(f"{address}/acceptance").text))

    text = pages.get(saved.headers["location"]).text

    row = text[text.index("<tbody>") : text.index("</tbody>")]
    assert re.findall(r'class="square" data-status="(\w+)"', row) == ["failed", "failed", "passed", "passed"]


def test_trials_that_a_reader_passes_are_staged_from_their_queue(pages: Any) -> None:
    address = pages.finish(n="3")
    queue = pages.desk.queues.create(TypedQueue([address[6:]], ["failed"], "9", "jo"))
    item = next(each for each in pages.desk.store.queues.items(queue, "jo") if each.key[1] == 2)
    assert "There is nothing to accept" in pages.get(f"{address}/acceptance?queue={queue}").text
    pages.desk.queues.give(queue, TypedVerdict([f"{item.place}.0"], "passed", "jo"))

    text = pages.get(f"{address}/acceptance?queue={queue}").text

    assert "Actual of trial 3" in text
    assert f'name="queue" value="{queue}"' in text
    assert pages.post(f"{address}/acceptance", **typed(text), queue=str(queue)).status_code == 303


def test_a_file_that_changed_meanwhile_is_left_as_it_is(pages: Any) -> None:
    address = pages.finish()
    fields = typed(pages.get(f"{address}/acceptance").text)
    path = file_of(pages)
    theirs = path.read_text().replace('"sides": 20', '"sides": 21').replace("nothing of the kind", "greet")
    path.write_text(theirs)

    refused = pages.post(f"{address}/acceptance", **fields)

    assert refused.status_code == 409
    assert "set.evalset.json changed meanwhile. 1 of your 2 changes still fit" in refused.text
    assert path.read_text() == theirs
    assert pages.post(f"{address}/acceptance", **typed(refused.text)).status_code == 303


def test_a_case_that_was_edited_since_offers_nothing(pages: Any) -> None:
    address = pages.finish()
    path = file_of(pages)
    path.write_text(path.read_text().replace("wrongly greet", "greet rightly"))

    page = pages.get(f"{address}/acceptance")

    assert "The messages of this case were edited since the run; run it again." in page.text
    assert 'name="way-' not in page.text


@pytest.mark.parametrize("fields", [{"change": []}, {"change": ["nonsense"]}, {"change": ["a:b:c"], "version": "x"}])
def test_nonsense_writes_nothing(pages: Any, fields: dict[str, Any]) -> None:
    address = pages.finish()
    before = file_of(pages).read_bytes()
    shown = typed(pages.get(f"{address}/acceptance").text)

    answer = pages.post(f"{address}/acceptance", **{**shown, **fields})

    assert answer.status_code == 409
    assert "Nothing was written" in answer.text
    assert file_of(pages).read_bytes() == before


def test_a_trial_that_differs_leads_to_its_changes_and_one_that_does_not_has_no_button(pages: Any) -> None:
    address = pages.finish()

    passed, failed = (pages.get(f"{address}/cases/{case}/trials/1").text for case in (0, 1))

    assert "/acceptance?" not in passed
    href = re.findall(r'href="([^"]*/acceptance\?[^"]+)"', failed)[0].replace("&amp;", "&")
    page = pages.get(href).text
    assert "Actual of trial 2" in page
    assert typed(page)["trial"] == "2"
    assert pages.get(f"{address}/acceptance?case=unknown").status_code == 404
    assert pages.get(f"{address}/acceptance?case=misses&trial=9").status_code == 404


def test_nothing_leads_to_an_eval_set_that_the_desk_does_not_serve(pages: Any) -> None:
    address = pages.finish()
    queue = pages.desk.queues.create(TypedQueue([address[6:]], ["failed"], "1", "jo"))
    item = pages.desk.store.queues.items(queue, "jo")[0]
    to_read = pages.get(f"/queues/{queue}?reader=jo&blind=off").text
    pages.desk.queues.give(queue, TypedVerdict([f"{item.place}.0"], "passed", "jo"))
    shown = (address, f"{address}/cases/1/trials/0", f"/queues/{queue}?reader=jo")
    assert all("/acceptance" in text for text in (to_read, *(pages.get(each).text for each in shown)))
    file_of(pages).rename(pages.desk.settings.workspace / "elsewhere.json")

    found = [pages.get(each) for each in (*shown, f"/queues/{queue}?reader=mia&blind=off")]

    assert [each.status_code for each in found] == [200] * 4
    assert not any("/acceptance" in each.text for each in found)
    assert not any(word in each.text for each in found for word in ("Edit case", "Run again"))
    assert all("This desk does not serve the eval set" in each.text for each in found[:2])


def accept(pages: Any, *arguments: str) -> tuple[int, str]:
    command = ["accept", *arguments, "--workspace", str(pages.desk.settings.workspace)]
    result = CliRunner().invoke(cli, command)
    error = "" if isinstance(result.exception, SystemExit) else str(result.exception or "")
    return result.exit_code, result.output + error


def test_the_command_shows_the_lines_and_writes_when_it_is_told_to(pages: Any) -> None:
    number = pages.finish().rpartition("/")[2]
    before = file_of(pages).read_text()

    asked = accept(pages, number)
    untouched = file_of(pages).read_text()
    written = accept(pages, f"{number}:misses:2", "--only", "answer", "--yes")
    unasked = accept(pages, number, "--turn", "1", "--yes")
    rest = accept(pages, number, "--only", "call", "--yes")
    done = accept(pages, number, "--yes")

    assert asked[0] == 2
    assert "add --yes" in asked[1]
    assert '-                "text": "nothing of the kind"' in asked[1]
    assert "misses: 0 of 2 passed; 0 of 2 passed by the new expectations" in asked[1]
    left = "misses: left as it is: Turn 1, roll_die (name its part with --only to accept it)\n"
    assert unasked == (0, left + "Nothing is accepted.\n")
    assert "misses: 0 of 2 passed; 2 of 2 passed by the new expectations" in rest[1]
    assert untouched == before
    for said in (written[1], rest[1]):
        assert re.search(
            r"Wrote 1 change in 1 case to dice_set.evalset.json. Take it back: evaldesk trash restore [0-9a-f]{16}\n$",
            said,
        )
    assert done == (0, "There is nothing to accept.\n")


def test_the_command_chooses_no_change_by_itself(pages: Any) -> None:
    number, before = pages.finish().rpartition("/")[2], file_of(pages).read_text()

    for words in ((), ("-y",), ("--yes", "--way", "as-well")):
        status, output = accept(pages, number, *words)
        assert status == 2
        assert "name a case (RUN:CASE), a part (--only answer) or a turn (--turn 1)" in output
    assert file_of(pages).read_text() == before
    for words in ((number, "--turn", "1"), (f"{number}:misses",), (number, "--only", "answer")):
        assert accept(pages, *words, "--yes")[0] == 0
        assert file_of(pages).read_text() != before
        file_of(pages).write_text(before)


def test_a_part_that_has_no_such_way_names_those_it_has(pages: Any) -> None:
    number, before = pages.finish().rpartition("/")[2], file_of(pages).read_text()

    call = accept(pages, number, "--only", "call", "--way", "as-well", "--yes")
    absent = accept(pages, number, "--only", "state", "--way", "as-well", "--yes")
    answer = accept(pages, number, "--only", "answer", "--way", "tolerance", "--yes")

    assert call == (0, "misses: left as it is: Turn 1, roll_die (use --way replace)\nNothing is accepted.\n")
    assert absent == (0, "There is nothing to accept.\n")
    assert "misses: left as it is: Turn 1, answer (use --way replace or as-well)\n" in answer[1]
    assert file_of(pages).read_text() == before


def test_the_command_names_what_it_does_not_know(pages: Any) -> None:
    number = pages.finish().rpartition("/")[2]

    assert "'mises'" in accept(pages, f"{number}:mises")[1]
    assert "has no trial 7" in accept(pages, f"{number}:misses:7", "--yes")[1]
    assert "trials count from 1" in accept(pages, f"{number}:misses:0")[1]
    assert accept(pages, f"{number}:greets", "--yes") == (
        0,
        "greets: It expects what the trial did already.\nThere is nothing to accept.\n",
    )


LINES = st.lists(st.sampled_from("abc"), max_size=12)


@given(LINES, LINES)
def test_the_lines_that_are_shown_make_the_one_text_of_the_other(before: list[str], after: list[str]) -> None:
    lines = changed_lines("\n".join(before), "\n".join(after))

    kept = [line for line in lines if line.op not in ("+", "…")]
    for line in lines:
        assert line.old_number is None or before[line.old_number - 1] == line.text
        assert line.new_number is None or after[line.new_number - 1] == line.text
    removed = {line.old_number for line in lines if line.op == "-"}
    added = {line.new_number for line in lines if line.op == "+"}
    same = [text for at, text in enumerate(before, start=1) if at not in removed]
    assert same == [text for at, text in enumerate(after, start=1) if at not in added]
    assert [line.old_number for line in kept] == sorted({line.old_number for line in kept if line.old_number})
    assert (lines == []) == (before == after)


def test_a_change_of_a_thousand_lines_is_cut() -> None:
    assert len(changed_lines("a\n" * 1000, "b\n" * 1000)) == MAX_LINES


def restored(pages: Any, saved: Any) -> Any:
    """The answer to the undo of the page after a save."""
    page = pages.get(saved.headers["location"]).text
    (address,) = re.findall(r'action="(/trash/[0-9a-f]{16}/restoration)"', page)
    return pages.post(address)


def test_what_was_accepted_is_taken_back_on_the_page_that_follows(pages: Any) -> None:
    address = pages.finish()
    before = json.loads(file_of(pages).read_bytes())
    saved = pages.post(f"{address}/acceptance", **typed(pages.get(f"{address}/acceptance").text))
    assert case_of(pages, "misses") != before["eval_cases"][1]
    assert "misses of dice_set, before a change was accepted" in pages.get("/trash").text

    undone = restored(pages, saved)

    assert "The cases expect again what they did before." in pages.get(undone.headers["location"]).text
    assert json.loads(file_of(pages).read_bytes()) == before
    assert "/restoration" not in pages.get(saved.headers["location"]).text
    assert "The trash is empty" in pages.get("/trash").text


def test_a_case_that_was_edited_after_it_was_accepted_keeps_the_edit(pages: Any) -> None:
    address = pages.finish()
    saved = pages.post(f"{address}/acceptance", **typed(pages.get(f"{address}/acceptance").text))
    edited = file_of(pages).read_text().replace('"text": "greet"', '"text": "greet twice"')
    file_of(pages).write_text(edited)

    refused = restored(pages, saved)

    assert refused.status_code == 409
    assert "case &#39;misses&#39; was edited since; its expectations stay as they are" in refused.text
    assert file_of(pages).read_text() == edited


def test_a_command_takes_back_what_a_command_accepted(pages: Any) -> None:
    number, before = pages.finish().rpartition("/")[2], json.loads(file_of(pages).read_bytes())
    _, output = accept(pages, number, "--only", "answer", "--yes")
    token = output.split()[-1]

    result = CliRunner().invoke(cli, ["trash", "restore", token, "--workspace", str(pages.desk.settings.workspace)])

    assert result.exit_code == 0
    assert json.loads(file_of(pages).read_bytes()) == before
