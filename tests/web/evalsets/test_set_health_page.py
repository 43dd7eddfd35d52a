"""The health of an eval set as a page, and tags and quarantine as steps over many cases."""

from __future__ import annotations

import html
import json
import re
import shlex
import threading
import time
from typing import Any, Literal

import pytest

from evaldesk.errors import UsageError
from evaldesk.formats import read_evalset
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Usage
from evaldesk.model.stored import EvalSetFile
from evaldesk.pages.set_health import room
from evaldesk.pages.set_health.finding import ci_command, kinds_of
from evaldesk.pages.set_health.health import SetHealth
from evaldesk.pages.set_health.health import read_health as read_health_of_set
from evaldesk.store.evalsets import large
from evaldesk.store.runs import set_outcomes

Pages = Any


def write_set(pages: Pages, name: str, queries: dict[str, str], tags: tuple[str, ...] = ()) -> str:
    cases = [
        {"eval_id": case_id, "tags": list(tags), "conversation": [{"user_content": {"parts": [{"text": query}]}}]}
        for case_id, query in queries.items()
    ]
    (pages.folder / f"{name}.evalset.json").write_text(json.dumps({"eval_set_id": name, "eval_cases": cases}))
    return str(next(file.id for file in pages.desk.evalsets.list() if file.name == name))


def cases_of(pages: Pages, name: str) -> dict[str, Case]:
    cases = read_evalset((pages.folder / f"{name}.evalset.json").read_bytes(), source=name).cases
    return {case.id: case for case in cases}


def test_the_page_shows_findings_with_their_cases_and_one_action(pages: Pages) -> None:
    set_id = write_set(pages, "words", {"a": "Where is my order 17?", "b": "where is my ORDER 4711?"})

    text = pages.get(f"/evalsets/{set_id}/health").text

    assert "1 pair of twins" in text
    assert "a and b" in text
    assert "2 cases that assert nothing" in text
    assert "Tools are left out: no agent was chosen" in text


def test_the_page_of_a_set_links_its_health(pages: Pages, calc: str) -> None:
    assert f'href="/evalsets/{calc}/health"' in pages.get(f"/evalsets/{calc}").text


def test_a_set_or_an_agent_that_is_not_there_is_404(pages: Pages, calc: str) -> None:
    assert pages.get("/evalsets/nothing/health").status_code == 404
    assert pages.get(f"/evalsets/{calc}/health?agent=nobody").status_code == 404


def test_texts_of_cases_are_escaped(pages: Pages) -> None:
    set_id = write_set(pages, "words", {"<b>x</b>": "one two three four", "<i>": "One two three four!"})

    text = pages.get(f"/evalsets/{set_id}/health").text

    assert "<b>x</b>" not in text
    assert "&lt;b&gt;x&lt;/b&gt; and &lt;i&gt;" in text


def test_a_large_set_is_read_in_the_background_with_progress(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    set_id = write_set(pages, "words", {f"c{n}": f"question {n}" for n in range(5)})
    has_begun, may_end = threading.Event(), threading.Event()
    real = read_health_of_set

    def read_health(*arguments: Any) -> SetHealth:
        arguments[-1](3)
        has_begun.set()
        assert may_end.wait(60)
        return real(*arguments)

    monkeypatch.setattr(room, "AT_ONCE", 2)
    monkeypatch.setattr(room, "read_health", read_health)

    pages.get(f"/evalsets/{set_id}/health")
    assert has_begun.wait(60)
    waiting = pages.get(f"/evalsets/{set_id}/health").text
    may_end.set()
    room.health_room(pages.desk)._worker.submit(int).result()  # after the work before it
    done = pages.get(f"/evalsets/{set_id}/health").text

    assert "3 of 5 cases read" in waiting
    assert "hx-get" in waiting
    assert "5 cases read; no runs yet" in done
    assert "load delay" not in done


def test_a_set_that_is_read_by_its_index_has_a_health_and_a_data_set_has_none(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {f"c{n}": " ".join("abcdefgh"[int(digit)] + "word" for digit in f"{n:o}") for n in range(60)}
    long = {case_id: f"{text} {text[:1] * 20_000}" for case_id, text in texts.items()}
    set_id = write_set(pages, "long", long | {"twin": long["c42"]})
    pages.desk.evalsets.read(set_id)
    file = wait_for_reading(pages, set_id)

    text = pages.get(f"/evalsets/{set_id}/health").text
    monkeypatch.setattr(large, "DATA_SET", file.size - 1)
    refused = refusal(pages, set_id)

    assert pages.desk.evalsets.is_indexed(file)
    assert "61 cases read; no runs yet" in text
    assert "c42 and twin" in text
    assert (
        refused == "the health of a file above 64 MiB is not computed; copy the cases that you work on to an eval set"
    )


def wait_for_reading(pages: Pages, set_id: str) -> EvalSetFile:
    file: EvalSetFile = pages.desk.evalsets.file(set_id)
    while file.is_reading:
        time.sleep(0.01)
        file = pages.desk.evalsets.file(set_id)
    return file


def refusal(pages: Pages, set_id: str) -> str:
    with pytest.raises(UsageError) as refused:
        read_health_of_set(pages.desk, pages.desk.evalsets.file(set_id), None, "")
    return str(refused.value)


def test_a_failure_of_the_rules_is_told_and_ends_the_wait(
    pages: Pages, calc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_health(*_: Any) -> SetHealth:
        raise RuntimeError("a fault")

    monkeypatch.setattr(room, "read_health", read_health)
    monkeypatch.setattr(room, "AT_ONCE", 0)
    pages.get(f"/evalsets/{calc}/health")
    room.health_room(pages.desk)._worker.submit(int).result()

    assert "could not be computed" in pages.get(f"/evalsets/{calc}/health").text


def test_ticked_cases_are_put_in_quarantine_and_back_by_one_undo(pages: Pages) -> None:
    set_id = write_set(pages, "words", {"a": "one", "b": "two", "c": "three"}, ("smoke",))
    before = (pages.folder / "words.evalset.json").read_bytes()

    answer = pages.post(f"/evalsets/{set_id}/tags", {"case": ["a", "c"], "add": "quarantine"})
    shown = pages.get(answer.headers["location"]).text

    assert {case_id: case.tags for case_id, case in cases_of(pages, "words").items()} == {
        "a": ("smoke", "quarantine"),
        "b": ("smoke",),
        "c": ("smoke", "quarantine"),
    }
    assert "Quarantine added to 2 cases." in shown
    token = answer.headers["location"].partition("changed=")[2]
    undone = pages.post(f"/evalsets/{set_id}/steps/{token}/restoration", {})
    assert "The step was undone." in pages.get(undone.headers["location"]).text
    after = read_evalset((pages.folder / "words.evalset.json").read_bytes(), source="w")
    assert after == read_evalset(before, source="w")
    assert pages.post(f"/evalsets/{set_id}/steps/{token}/restoration", {}).status_code == 404


def test_all_cases_that_match_are_tagged_also_those_of_other_pages(pages: Pages) -> None:
    set_id = write_set(pages, "words", {f"c{n}": f"{'even' if n % 2 == 0 else 'odd'} {n}" for n in range(450)})

    pages.post(f"/evalsets/{set_id}/tags", {"which": "all", "q": "EVEN ", "tags": "half, round", "step": "add"})
    pages.post(f"/evalsets/{set_id}/tags", {"which": "all", "with_tag": "half", "tags": "round", "step": "remove"})

    tags = [case.tags for case in cases_of(pages, "words").values()]
    assert tags == [("half",), ()] * 225
    assert "Select all 450 cases that match" in pages.get(f"/evalsets/{set_id}").text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"add": "quarantine"}, 422),
        ({"case": "a", "step": "add", "tags": " , "}, 422),
        ({"case": "a", "add": "x" * 65}, 422),
        ({"case": "a", "add": "a\nb"}, 422),
        ({"case": "nobody", "add": "x"}, 404),
        ({"which": "all", "q": "nothing says so", "add": "x"}, 422),
    ],
)
def test_a_step_that_cannot_be_changes_nothing(pages: Pages, fields: dict[str, str], status: int) -> None:
    set_id = write_set(pages, "words", {"a": "one"})
    before = (pages.folder / "words.evalset.json").read_bytes()

    assert pages.post(f"/evalsets/{set_id}/tags", fields).status_code == status
    assert (pages.folder / "words.evalset.json").read_bytes() == before


def test_a_step_over_a_case_that_was_edited_since_is_not_undone(pages: Pages) -> None:
    set_id = write_set(pages, "words", {"a": "one", "b": "two"})
    answer = pages.post(f"/evalsets/{set_id}/tags", {"case": ["a", "b"], "add": "x"})
    token = answer.headers["location"].partition("changed=")[2]
    pages.post(f"/evalsets/{set_id}/tags", {"case": "b", "add": "y"})

    assert pages.post(f"/evalsets/{set_id}/steps/{token}/restoration", {}).status_code == 409
    assert cases_of(pages, "words")["a"].tags == ("x",)


def test_the_command_for_ci_is_one_that_the_shell_takes(pages: Pages) -> None:
    set_id = write_set(pages, "words", {"a": "one"})

    text = html.unescape(pages.get(f"/evalsets/{set_id}/health").text)

    command = re.search(r'aria-label="Command for CI">([^<]+)</pre>', text)
    assert command is not None
    words = shlex.split(command[1])
    assert words == ["evaldesk", "evalset", "health", "words", "--fail-on", words[-1]]
    assert kinds_of(words[-1]) == ("contradictions", "wrong_way", "never_passed", "repeated_ids")


def test_a_name_of_a_set_is_one_word_of_the_command() -> None:
    assert shlex.split(ci_command("a b; rm -rf '$HOME'", "x`y"))[3:6] == ["a b; rm -rf '$HOME'", "--agent", "x`y"]


def test_information_has_a_bar_beside_the_most_informative_case(pages: Pages) -> None:
    queries = {"often": "one two three", "never": "four five six"}
    set_id = write_set(pages, "words", queries)
    cases = [*cases_of(pages, "words").values()]
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("dice", "dice:agent"), set_id, n=2, evalset_path=""), cases)
    usage = (Usage("model", cost=0.01),)
    verdicts: dict[int, tuple[Literal["passed", "failed"], ...]] = {0: ("passed", "failed"), 1: ("passed", "passed")}
    runs.record(
        [
            TrialResult(run_id, case, trial, "finished", verdict, usages=usage)
            for case, each in verdicts.items()
            for trial, verdict in enumerate(each)
        ]
    )
    runs.set_status(run_id, "finished")

    text = pages.get(f"/evalsets/{set_id}/health").text

    assert re.findall(r'data-part="bar" y="5" width="([0-9.]+)"', text) == ["100.0", "75.0"]
    assert text.count("of information a dollar") == 2


def put_run(pages: Pages, set_id: str, verdicts: str, *left_out: str) -> int:
    """A finished run of the set with a letter for each case, its trials in pairs; gives its number."""
    cases = [*cases_of(pages, "words").values()]
    config = RunConfig(AgentRef("dice", "dice:agent"), set_id, n=2, evalset_path="", left_out=left_out)
    run_id: int = pages.desk.store.runs.create(config, cases)
    names: dict[str, Literal["passed", "failed"]] = {"p": "passed", "f": "failed"}
    pages.desk.store.runs.record(
        [
            TrialResult(run_id, case, trial, "finished", names[letter])
            for case, letter in enumerate(verdicts)
            for trial in range(2)
        ]
    )
    pages.desk.store.runs.set_status(run_id, "finished")
    return run_id


def quarantine_text(pages: Pages, set_id: str) -> list[str]:
    """The lines about quarantine on the page of the set."""
    text = pages.get(f"/evalsets/{set_id}?tag=quarantine").text
    return [re.sub(r"<[^>]+>", "", line) for line in re.findall(r"In quarantine.*?</p>", text)]


def test_the_list_says_since_when_and_by_whom_a_case_is_in_quarantine_and_how_it_did_since(pages: Pages) -> None:
    set_id = write_set(pages, "words", {"a": "one", "b": "two"})
    put_run(pages, set_id, "ff")
    pages.post(f"/evalsets/{set_id}/tags", {"case": "a", "add": "quarantine"})
    before = quarantine_text(pages, set_id)
    put_run(pages, set_id, "pf", "a")
    put_run(pages, set_id, "ff", "a")

    after = quarantine_text(pages, set_id)

    assert len(before) == len(after) == 1
    assert re.fullmatch(r"In quarantine since .+; not played since", before[0])
    assert re.fullmatch(r"In quarantine since .+; 2 of 4 passed since, in 2 runs", after[0])
    assert "outside" not in after[0]


def test_the_list_says_that_a_tag_was_changed_outside_of_the_desk(pages: Pages) -> None:
    set_id = write_set(pages, "words", {"a": "one", "b": "two"}, ("quarantine",))
    put_run(pages, set_id, "pp", "a")
    put_run(pages, set_id, "pp", "b")  # a was taken out in between
    third = put_run(pages, set_id, "pf", "a", "b")

    lines = quarantine_text(pages, set_id)

    assert lines == [
        f"In quarantine since run {third}, tag changed outside; 2 of 2 passed since, in 1 run",
        f"In quarantine since run {third - 1}, tag changed outside; 2 of 4 passed since, in 2 runs",
    ]


def test_older_runs_of_a_quarantine_than_are_read_are_told(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_outcomes, "MOST_QUARANTINE_RUNS", 2)
    set_id = write_set(pages, "words", {"a": "one"}, ("quarantine",))
    run_ids = [put_run(pages, set_id, "p", "a") for _ in range(3)]

    assert f"since run {run_ids[1]} or before, tag" in quarantine_text(pages, set_id)[0]


def test_a_tag_that_the_desk_took_away_and_another_program_set_is_one_of_outside(pages: Pages) -> None:
    set_id = write_set(pages, "words", {"a": "one"})
    for step in ("add", "remove"):
        pages.post(f"/evalsets/{set_id}/tags", {"case": "a", step: "quarantine"})
    write_set(pages, "words", {"a": "one"}, ("quarantine",))

    assert quarantine_text(pages, set_id) == ["In quarantine, tag changed outside; not played since"]
