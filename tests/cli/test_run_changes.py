"""What changed between two runs, and who changed it: a person, a coding agent's proposal, or somebody outside."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import play, tool_answer

from evaldesk.desk.client_proposals import ClientProposalDesk, draft_version
from evaldesk.desk.trash import open_desk
from evaldesk.model.client_budget import MARK
from evaldesk.model.evalset import QUARANTINE
from evaldesk.model.proposals import ProposalDraft
from evaldesk.settings import read_settings


@pytest.fixture
def played(place: CommandFolder) -> CommandFolder:
    play(place)
    return place


def changes(place: CommandFolder) -> list[tuple[str, str, str, str]]:
    """The changes between the last of the first two runs and one that is played now."""
    place.eval(place.folder / "words.evalset.json", "--n", 2)
    answer = json.loads(place.run("run", "changes", "2", "3", "--json").stdout)
    assert tool_answer(place.folder, "get_run", {"run": "3"})["data"]["changes"] == answer
    return [(each["kind"], each["name"], each["words"], each["who"]) for each in answer["items"]]


def test_an_edit_of_the_file_is_named_as_made_outside(played: CommandFolder) -> None:
    path = played.folder / "words.evalset.json"
    value: dict[str, Any] = json.loads(path.read_text())
    value["eval_cases"][1]["conversation"][0]["final_response"] = {"parts": [{"text": "hi"}]}
    del value["eval_cases"][2]
    path.write_text(json.dumps(value))

    assert changes(played) == [
        ("case", "case_2", "edited", "changed outside"),
        ("case", "case_3", "deleted", "changed outside"),
    ]
    text = played.run("run", "changes", "2", "3").stdout
    assert "case case_2: edited (by: changed outside)" in text


@pytest.mark.parametrize(("before", "now"), [(6, None), (None, 6), (6, 4)])
def test_another_number_of_trials_of_a_case_is_named(place: CommandFolder, before: int | None, now: int | None) -> None:
    path = place.evalset("words", {"hello": "hello", "hi": "hi"})

    def write(n: int | None) -> None:
        value = json.loads(path.read_text())
        value["eval_cases"][1].pop("trials", None)
        value["eval_cases"][1] |= {} if n is None else {"trials": n}
        path.write_text(json.dumps(value))

    write(before)
    place.eval(path)
    write(now)
    place.eval(path)

    answer = json.loads(place.run("run", "changes", "1", "2", "--json").stdout)
    words = f"trials {before or 'none'} to {now or 'none'}"
    assert [(each["name"], each["words"], each["who"]) for each in answer["items"]] == [
        ("case_2", words, "changed outside")
    ]
    assert answer["sentence"] == "Between run 1 and run 2 the eval set changed too: 1 case (by: changed outside)."


@pytest.mark.parametrize("after", ["[5]", "{", "[" * 100_000], ids=["a list", "cut", "deep"])
def test_a_proposal_that_another_program_wrote_breaks_no_comparison(played: CommandFolder, after: str) -> None:
    path = played.folder / "words.evalset.json"
    path.write_text(path.read_text().replace("good day", "hi"))
    settings = read_settings(played.folder, (played.folder,), environment={})
    with open_desk(settings) as desk:
        set_id = desk.evalsets.list()[0].id
        store = desk.store.client_proposals
        number, _ = store.propose(ProposalDraft("edit", after, evalset_id=set_id, case_id="case_2"), "nobody")
        store.decide(number, "accepted", "ann")

    assert changes(played) == [("case", "case_2", "edited", "changed outside")]


def test_an_accepted_proposal_and_an_edit_on_a_page_have_their_authors(played: CommandFolder) -> None:
    settings = read_settings(played.folder, (played.folder,), environment={"EVALDESK_ME": "ann"})
    with open_desk(settings) as desk:
        (file,) = desk.evalsets.list()
        proposals = ClientProposalDesk(desk)
        number = proposals.propose_expectation("Claude Code", 1, "case_2", 0, {"1.answer": "replace"}).id
        proposals.accept(number, "ben", draft_version(proposals.get(number).draft))
        found = desk.evalsets.cases.duplicate(file.id, desk.evalsets.cases.find(file.id, _key("case_1")).key)

    assert changes(played) == [
        ("case", found.case.id, "added", "ann"),
        ("case", "case_2", "edited", "coding agent Claude Code, accepted by ben"),
    ]


def test_a_version_that_comes_back_in_the_file_is_nobodys(played: CommandFolder) -> None:
    """A person accepts a proposal and takes it back; then its bytes, and later those before it, are written outside."""
    path = played.folder / "words.evalset.json"
    settings = read_settings(played.folder, (played.folder,), environment={"EVALDESK_ME": "ann"})
    first = path.read_bytes()
    with open_desk(settings) as desk:
        proposals = ClientProposalDesk(desk)
        number = proposals.propose_expectation("Claude Code", 1, "case_2", 0, {"1.answer": "replace"}).id
        proposals.accept(number, "ann", draft_version(proposals.get(number).draft))
        easier = path.read_bytes()
        proposals.undo(number, "ann")
        proposals.refuse(number, "ann")
    assert path.read_bytes() != easier

    path.write_bytes(easier)
    assert changes(played) == [("case", "case_2", "edited", "changed outside")]
    path.write_bytes(first)
    played.eval(path, "--n", 2)
    assert _items(played, 3, 4) == [("case", "case_2", "edited", "changed outside")]
    assert _items(played, 4, 3) == [("case", "case_2", "edited", "changed outside")]


def _eval_by_set(place: CommandFolder, *options: object) -> None:
    """A run that names no file of criteria."""
    assert place.run("eval", place.agent, place.folder / "words.evalset.json", "--n", 2, *options).exit_code in (0, 1)


def _items(place: CommandFolder, before: int, after: int) -> list[tuple[str, str, str, str]]:
    items = json.loads(place.run("run", "changes", str(before), str(after), "--json").stdout)["items"]
    return [(each["kind"], each["name"], each["words"], each["who"]) for each in items]


def test_a_deleted_and_an_added_case_are_no_choice_of_cases(played: CommandFolder) -> None:
    path = played.folder / "words.evalset.json"
    value: dict[str, Any] = json.loads(path.read_text())
    value["eval_cases"][2]["eval_id"] = "case_4"
    value["eval_cases"][2]["conversation"][0]["user_content"] = {"parts": [{"text": "A new question."}]}
    path.write_text(json.dumps(value))

    assert changes(played) == [
        ("case", "case_4", "added", "changed outside"),
        ("case", "case_3", "deleted", "changed outside"),
    ]


def test_chosen_cases_are_no_change_of_the_set(played: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALDESK_ME", "ann")
    played.eval(f"{played.folder / 'words.evalset.json'}:case_1", "--n", 2)

    answer = json.loads(played.run("run", "changes", "2", "3", "--json").stdout)

    assert answer["sentence"] == "Between run 2 and run 3 the choice of cases changed too: 2 chosen cases (by: ann)."


def test_criteria_of_the_set_have_the_author_of_their_change(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALDESK_ME", "ann")
    path = played.folder / "words.evalset.json"
    assert not played.run("evalset", "criteria", "words", "response_match_score=0.8").exit_code
    _eval_by_set(played)
    monkeypatch.setenv("EVALDESK_ME", "ben")
    assert not played.run("evalset", "criteria", "words", "response_match_score=0.5").exit_code
    monkeypatch.setenv("EVALDESK_ME", "ann")
    _eval_by_set(played)
    path.write_text(path.read_text().replace("0.5", "0.01"))
    _eval_by_set(played)
    _eval_by_set(played, "--criterion", "response_match_score=0.9")

    words = ["threshold 0.8 -> threshold 0.5", "threshold 0.5 -> threshold 0.01", "threshold 0.01 -> threshold 0.9"]
    for before, change, who in zip((3, 4, 5), words, ("ben", "changed outside", "ann"), strict=True):
        assert _items(played, before, before + 1) == [("criterion", "response_match_score", change, who)]


def test_criteria_of_a_file_are_nobodys_and_gates_those_of_the_starter(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALDESK_ME", "ann")
    (played.folder / "test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 0.1}}))
    played.eval(played.folder / "words.evalset.json", "--n", 2, "--min-pass-rate", "0.1")

    items = _items(played, 2, 3)
    assert ("criterion", "response_match_score", "threshold 0.8 -> threshold 0.1", "changed outside") in items
    assert [who for _, name, _, who in items if name == "min_pass_rate"] == ["ann"]


def test_a_criterion_that_follows_from_the_cases_has_their_author(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALDESK_ME", "ann")
    (played.folder / "test_config.json").unlink()
    _eval_by_set(played)
    path = played.folder / "words.evalset.json"
    value: dict[str, Any] = json.loads(path.read_text())
    value["eval_cases"][0]["final_session_state"] = {"a": 1}
    path.write_text(json.dumps(value))
    _eval_by_set(played)

    assert _items(played, 3, 4) == [
        ("case", "case_1", "edited", "changed outside"),
        ("criterion", "final_state_match", "none -> threshold 1", "changed outside"),
    ]


def test_chosen_cases_that_assert_no_state_drop_no_criterion(played: CommandFolder) -> None:
    (played.folder / "test_config.json").unlink()
    path = played.folder / "words.evalset.json"
    value: dict[str, Any] = json.loads(path.read_text())
    value["eval_cases"][0]["final_session_state"] = {"a": 1}
    path.write_text(json.dumps(value))
    _eval_by_set(played)
    assert played.run("eval", played.agent, f"{path}:case_2", "--n", 2).exit_code in (0, 1)

    assert {kind for kind, *_ in _items(played, 3, 4)} == {"selection"}


def test_a_run_of_a_coding_agent_hides_no_edit(played: CommandFolder) -> None:
    """A coding agent that edits the file and tries it: the next run of a person is compared with that of a person."""
    path = played.folder / "words.evalset.json"
    path.write_text(path.read_text().replace("good day", "hi"))
    played.eval(path, "--n", 2, "--note", MARK)
    played.eval(path, "--n", 2)

    sentence = "Between run 2 and run 4 the eval set changed too: 1 case (by: changed outside)."
    assert tool_answer(played.folder, "get_run", {"run": "4"})["data"]["changes"]["sentence"] == sentence


def test_a_comparison_names_the_changes(played: CommandFolder) -> None:
    path = played.folder / "words.evalset.json"
    path.write_text(path.read_text().replace("good day", "hi"))
    played.eval(path, "--n", 2)
    sentence = "Between run 1 and run 3 the eval set changed too: 1 case (by: changed outside)."

    assert sentence in played.run("compare", "1", "2", "3").stdout
    played.run("compare", "1", "3", "--summary", played.folder / "sum.md")
    assert "the eval set changed too: 1 case" in (played.folder / "sum.md").read_text()
    runs = json.loads(played.run("compare", "1", "2", "3", "--json").stdout)["runs"]
    assert [each["changes"]["sentence"] for each in runs] == ["", "", sentence]
    assert runs[2]["changes"]["items"] == [
        {"kind": "case", "name": "case_2", "words": "edited", "who": "changed outside"}
    ]


def _tag(place: CommandFolder, *tagged: str) -> None:
    """Write the file of the set, with some cases in quarantine."""
    path = place.folder / "words.evalset.json"
    value: dict[str, Any] = json.loads(path.read_text())
    for case in value["eval_cases"]:
        case["tags"] = [QUARANTINE] if case["eval_id"] in tagged else []
    path.write_text(json.dumps(value))


def test_a_case_that_the_file_puts_in_quarantine_is_named_as_changed_outside(played: CommandFolder) -> None:
    _tag(played, "case_2")

    assert changes(played) == [("case", "case_2", "put in quarantine", "changed outside")]


def test_a_person_who_moves_a_case_in_or_out_of_quarantine_is_named(played: CommandFolder) -> None:
    settings = read_settings(played.folder, (played.folder,), environment={"EVALDESK_ME": "ann"})
    with open_desk(settings) as desk:
        (file,) = desk.evalsets.list()
        desk.evalsets.cases.change_tags(file.id, ["case_2"], [QUARANTINE], [])

    assert changes(played) == [("case", "case_2", "put in quarantine", "ann")]
    _tag(played)
    played.eval(played.folder / "words.evalset.json", "--n", 2)
    _tag(played, "case_2")
    played.eval(played.folder / "words.evalset.json", "--n", 2)

    for numbers, words, who in (
        (("3", "4"), "out of quarantine", "changed outside"),
        (("4", "5"), "put in quarantine", "changed outside"),
        (("3", "2"), "out of quarantine", "ann"),
    ):
        items = json.loads(played.run("run", "changes", *numbers, "--json").stdout)["items"]
        assert [(each["name"], each["words"], each["who"]) for each in items] == [("case_2", words, who)]


def test_a_run_that_leaves_cases_out_of_its_gates_names_its_starter(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALDESK_ME", "ann")
    played.eval(played.folder / "words.evalset.json", "--n", 2, "--without", "tag:slow")
    played.eval(played.folder / "words.evalset.json", "--n", 2, "--rows", "0")

    items = [
        json.loads(played.run("run", "changes", *each, "--json").stdout)["items"] for each in (("2", "3"), ("2", "4"))
    ]

    assert [(each["kind"], each["name"], each["who"]) for each in items[0]] == [("gate", "without", "ann")]
    assert {(each["kind"], each["name"], each["words"], each["who"]) for each in items[1]} == {
        ("selection", "case_2", "not played now", "ann"),
        ("selection", "case_3", "not played now", "ann"),
    }


def test_without_a_change_nothing_is_named(played: CommandFolder) -> None:
    assert "Nothing changed between run 1 and run 2." in played.run("run", "changes", "1", "2").stdout


def _key(case_id: str) -> str:
    from evaldesk.model.evalset import case_key

    return case_key(case_id)
