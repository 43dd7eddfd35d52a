"""Proposals of coding agents: stored beside, decided by a person, taken back; and the skill that says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import play, tool_answer

from evaldesk.desk.client_proposals import ClientProposalDesk, draft_version
from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.cases import case_keys
from evaldesk.desk.failures import TypedFinding, TypedMode
from evaldesk.desk.runs.accepting import stage
from evaldesk.desk.trash import open_desk, restore_item
from evaldesk.errors import BrokenRowError, ConflictError, EvaldeskError, FormatError, NotFoundError, UsageError
from evaldesk.formats import case_to_json
from evaldesk.matching.case_version import case_version
from evaldesk.model.evalset import case_key
from evaldesk.model.proposals import Proposal, is_name_of_client
from evaldesk.pages.door.proposals import proposal_answer
from evaldesk.pages.proposals.page import read_proposals
from evaldesk.settings import read_settings
from evaldesk.store.client_proposals import MAX_OPEN
from evaldesk.store.tables.proposals import PROPOSAL

CLIENT = "Claude Code"
KEY = "sk-ant-api03-" + "Ab1" * 30


def new_case(name: str = "new_case", text: str = "two dice") -> dict[str, Any]:
    return {"eval_id": name, "conversation": [{"user_content": {"parts": [{"text": text}]}}]}


@pytest.fixture
def desk(place: CommandFolder) -> Iterator[Desk]:
    play(place)
    with open_desk(read_settings(place.folder, (place.folder,), environment={})) as opened:
        yield opened


@pytest.fixture
def words(desk: Desk) -> str:
    """The id of the eval set."""
    return desk.evalsets.list()[0].id


def answered(desk: Desk, evalset_id: str, text: str) -> dict[str, Any]:
    """A patch that expects another answer of case_2."""
    case = case_to_json(next(each for each in desk.evalsets.evalset(evalset_id).cases if each.id == "case_2"))
    turn = case["conversation"][0] | {"final_response": {"parts": [{"text": text}]}}
    return {"conversation": [turn]}


def made(desk: Desk, evalset_id: str, kind: str) -> int:
    proposals = ClientProposalDesk(desk)
    if kind == "case":
        return proposals.propose_case(CLIENT, evalset_id, new_case(), "none asks for two").id
    if kind == "edit":
        return proposals.propose_edit(CLIENT, evalset_id, "case_2", answered(desk, evalset_id, "hi"), "as it says").id
    if kind == "expectation":
        return proposals.propose_expectation(CLIENT, 1, "case_2", 0, {"1.answer": "replace"}, "as it says").id
    if kind == "finding":
        form = TypedFinding(note="it repeats", new_mode="echo", quote="hi")
        return proposals.propose_finding(CLIENT, 1, "case_2", (1, 0), 0, form).id
    return proposals.propose_kind(CLIENT, TypedMode("wrong greeting", "The greeting is another one.")).id


def accepted(desk: Desk, number: int, author: str = "ann") -> Proposal:
    """The proposal, accepted as it is stored now."""
    proposals = ClientProposalDesk(desk)
    return proposals.accept(number, author, draft_version(proposals.get(number).draft))


KINDS = ("case", "edit", "expectation", "finding", "kind")


def state_of(desk: Desk) -> tuple[Any, ...]:
    """Everything that a proposal could change."""
    file = desk.evalsets.list()[0]
    findings = [(each.note, each.author) for each in desk.store.failures.list(1)]
    modes = [mode.name for mode in desk.store.failures.modes() if mode.is_active]
    return file.path.read_bytes(), findings, modes


def test_no_proposal_puts_a_case_in_quarantine(desk: Desk, words: str) -> None:
    proposals = ClientProposalDesk(desk)

    with pytest.raises(UsageError, match="a person sets it on the page of its eval set"):
        proposals.propose_edit(CLIENT, words, "case_2", {"tags": ["quarantine"]}, "it is flaky")
    with pytest.raises(UsageError, match="a person sets it on the page of its eval set"):
        proposals.propose_case(CLIENT, words, new_case() | {"tags": ["quarantine"]}, "it is flaky")

    assert not proposals.list()


def test_a_proposal_from_before_puts_no_case_back_in_quarantine(desk: Desk, words: str) -> None:
    """A proposal has the tags of its time; one of an older desk does not tell which of them it changes."""
    desk.evalsets.cases.change_tags(words, ["case_2"], ["quarantine"], [])
    number = made(desk, words, "edit")
    case = desk.evalsets.cases.find(words, case_key("case_2")).case
    desk.evalsets.cases.change_tags(words, ["case_2"], [], ["quarantine"])
    before, row = state_of(desk), ClientProposalDesk(desk).get(number).draft.before

    overwrite(desk, number, before=case_version(case))
    with pytest.raises(ConflictError, match="was taken out of quarantine since it was proposed"):
        accepted(desk, number)
    assert state_of(desk) == before
    overwrite(desk, number, before=row)
    accepted(desk, number)

    after = desk.evalsets.cases.find(words, case_key("case_2")).case
    assert (after.tags, after.turns[0].expected.reference) == ((), "hi")


@pytest.mark.parametrize("kind", ["edit", "expectation", "case"])
def test_a_proposal_follows_an_eval_set_that_another_program_renamed(desk: Desk, words: str, kind: str) -> None:
    number = made(desk, words, kind)
    proposals = ClientProposalDesk(desk)
    path = desk.evalsets.file(words).path

    path.rename(path.with_name("phrases.evalset.json"))
    proposal = proposals.get(number)
    accepted = proposals.accept(number, "Ana", draft_version(proposal.draft))

    assert accepted.status == "accepted"
    assert [each.path.name for each in desk.evalsets.list()] == ["phrases.evalset.json"]
    assert accepted.draft.evalset_id == desk.evalsets.list()[0].id != words

    path.with_name("phrases.evalset.json").rename(path.with_name("terms.evalset.json"))
    if kind == "case":
        assert proposals.undo(number, "Ana").status == "open"
    else:  # the trash has the edit under the name of then
        with pytest.raises(ConflictError, match="edit the case on its page"):
            proposals.undo(number, "Ana")
    assert proposals.get(number).draft.evalset_id == desk.evalsets.list()[0].id


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_changes_nothing_until_a_person_accepts_it_and_can_be_taken_back(
    desk: Desk, words: str, kind: str
) -> None:
    before = state_of(desk)

    number = made(desk, words, kind)
    assert state_of(desk) == before

    proposal = accepted(desk, number)
    assert (proposal.status, proposal.decided_by) == ("accepted", "ann")
    assert state_of(desk) != before

    ClientProposalDesk(desk).undo(number, "ann")
    _, findings, modes = state_of(desk)
    assert (findings, "wrong greeting" in modes) == (before[1], False)
    assert [case.id for case in desk.evalsets.evalset(words).cases] == ["case_1", "case_2", "case_3"]
    assert json.loads(state_of(desk)[0])["eval_cases"] == json.loads(before[0])["eval_cases"]
    assert ClientProposalDesk(desk).get(number).status == "open"


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_proposal_changes_nothing(desk: Desk, words: str, kind: str) -> None:
    before = state_of(desk)
    number = made(desk, words, kind)

    ClientProposalDesk(desk).refuse(number, "ann")

    assert state_of(desk) == before
    with pytest.raises(ConflictError):
        accepted(desk, number)


def test_an_accepted_edit_tells_its_effect_before(desk: Desk, words: str) -> None:
    proposal = ClientProposalDesk(desk).get(made(desk, words, "edit"))

    effect = ClientProposalDesk(desk).effect(proposal)

    assert effect is not None
    assert (effect.run, effect.effect.before.passed, effect.effect.after.passed) == (2, 0, 2)


@pytest.mark.parametrize("kind", ["edit", "expectation"])
def test_an_edit_of_the_file_after_the_run_is_no_effect_of_a_proposal(desk: Desk, words: str, kind: str) -> None:
    """The trials of case_2 say "hi": by hand the case expects that, and the proposal changes nothing of it."""
    cases = desk.evalsets.cases
    found_case = cases.find(words, case_key("case_2"))
    turn = found_case.case.turns[0]
    by_hand = replace(found_case.case, turns=(replace(turn, expected=replace(turn.expected, reference="hi")),))
    cases.save(words, found_case.key, by_hand, found_case.version)
    patch: Any = {"tags": ["short"]} if kind == "edit" else answered(desk, words, "good day")
    number = ClientProposalDesk(desk).propose_edit(CLIENT, words, "case_2", patch, "a reason").id

    effect = ClientProposalDesk(desk).effect(ClientProposalDesk(desk).get(number))

    assert effect is not None
    assert effect.is_edited
    assert effect.effect.before.passed == 2
    assert effect.effect.after.passed == (2 if kind == "edit" else 0)
    shown = proposal_answer(desk, number)["effect"]
    assert (shown["passed_before"], shown["is_edited_since"], shown["is_easier"]) == (2, True, False)
    view = read_proposals(desk, number).view
    assert view is not None
    assert view.edit_words == "The case was edited after the run; that edit is on both sides."
    assert view.run_words.startswith(f"{view.run.counts.passed + 2} of ")  # type: ignore[union-attr]


def test_an_edit_of_the_file_after_the_run_is_no_effect_of_an_acceptance(desk: Desk, words: str) -> None:
    """One of the two trials of case_3 passed; by the file of now, none does."""
    run = desk.store.runs.summary(1)
    assert stage(desk, run, "case_3").cases[0].verdicts == ()
    cases = desk.evalsets.cases
    found_case = cases.find(words, case_key("case_3"))
    turn = found_case.case.turns[0]
    by_hand = replace(found_case.case, turns=(replace(turn, expected=replace(turn.expected, reference="another")),))
    cases.save(words, found_case.key, by_hand, found_case.version)

    staged = stage(desk, run, "case_3")

    (staged_case,) = staged.cases
    assert sorted(each.verdict for each in staged_case.trials) == ["failed", "passed"]
    (effect,) = staged.effects({staged_case.key: {"1.answer": "replace"}}).values()
    assert (effect.before.passed, effect.after.passed) == (0, 1)
    left = staged.effects_of_ways({})[staged_case.key, "1.answer", None]
    assert left.n_changed == 0


def test_without_an_edit_after_the_run_the_effect_begins_with_the_stored_verdicts(desk: Desk, words: str) -> None:
    number = made(desk, words, "edit")

    effect = ClientProposalDesk(desk).effect(ClientProposalDesk(desk).get(number))

    assert effect is not None
    assert (effect.is_edited, effect.effect.before.passed, effect.effect.after.passed) == (False, 0, 2)


def test_a_client_reads_what_a_person_answered(desk: Desk, words: str, place: CommandFolder) -> None:
    numbers = {kind: made(desk, words, kind) for kind in KINDS}
    proposals = ClientProposalDesk(desk)
    for number in numbers.values():
        proposals.reply(number, "ann", "not this week")
    proposals.refuse(numbers["case"], "ann")
    accepted(desk, numbers["kind"])

    for kind, number in numbers.items():
        answer = tool_answer(place.folder, "get_proposal", {"proposal": number})
        status = {"case": "refused", "kind": "accepted"}.get(kind, "open")
        assert (answer["kind"], answer["status"], answer["reply"]) == (kind, status, "ann: not this week")
        assert "answered: ann: not this week" in place.run("proposals", "show", number).stdout
    listed = tool_answer(place.folder, "list_proposals", {"status": "all", "limit": 2})
    rest = tool_answer(place.folder, "list_proposals", {"status": "all", "cursor": listed["next_cursor"]})
    assert [each["id"] for each in (*listed["items"], *rest["items"])] == sorted(numbers.values(), reverse=True)
    assert rest["next_cursor"] is None
    assert listed["total_count"] == 5
    shown = place.run("proposals", "list", "--status", "all", "--limit", "2")
    assert "--cursor 2 lists more." in shown.stdout


def test_a_finding_is_shown_with_its_trial(desk: Desk, words: str, place: CommandFolder) -> None:
    number = made(desk, words, "finding")

    assert "finding of case_2, run 1, trial 1, open" in place.run("proposals", "show", number).stdout


def test_an_edit_without_a_reason_is_refused(desk: Desk, words: str, place: CommandFolder) -> None:
    (place.folder / "patch.json").write_text('{"tags": ["short"]}')
    with pytest.raises(UsageError, match="why: give the reason in one sentence"):
        tool_answer(
            place.folder, "propose_edit", {"set": "words", "case": "case_2", "patch": {"tags": ["a"]}, "why": " "}
        )
    result = place.run("propose", "edit", "words", "case_2", place.folder / "patch.json", "--why", "")

    assert "why: give the reason in one sentence" in str(result.exception)
    assert not ClientProposalDesk(desk).list()


def test_a_case_that_changed_since_is_not_written_over(desk: Desk, words: str) -> None:
    number = made(desk, words, "edit")
    other = ClientProposalDesk(desk).propose_edit(CLIENT, words, "case_2", answered(desk, words, "hey"), "better").id
    accepted(desk, other)
    before = state_of(desk)

    with pytest.raises(ConflictError, match="changed since it was proposed"):
        accepted(desk, number)

    assert state_of(desk) == before
    with pytest.raises(ConflictError, match="was accepted by ann already"):
        accepted(desk, other)


def test_nobody_accepts_without_a_name(desk: Desk, words: str) -> None:
    number = made(desk, words, "case")

    with pytest.raises(UsageError):
        accepted(desk, number, " ")

    assert ClientProposalDesk(desk).get(number).status == "open"


@pytest.mark.parametrize(
    ("patch", "words_of_error"),
    [
        ([], "must be a JSON object"),
        ({}, "must be a JSON object"),
        ("x", "must be a JSON object"),
        ({"eval_id": "other"}, "keeps the id of the case"),
        ({"evalId": "other"}, "evalId"),
        ({"trust": True}, "unknown key 'trust'"),
        ({"conversation": [{"user_content": {"parts": [{"text": "hi"}]}, "skip": 1}]}, "unknown key 'skip'"),
        ({"conversation": []}, "no message of a user left"),
        ({"conversation": "x"}, "conversation"),
        ({"conversation": [{"user_content": 7}]}, "user_content"),
        ({"eval_id": "case_2"}, "nothing would change"),
        (json.loads('{"a":' * 60 + "1" + "}" * 60), "objects within one another"),
    ],
)
def test_a_bad_patch_is_refused_with_the_place(desk: Desk, words: str, patch: Any, words_of_error: str) -> None:
    with pytest.raises(EvaldeskError, match=words_of_error):
        ClientProposalDesk(desk).propose_edit(CLIENT, words, "case_2", patch, "because")

    assert ClientProposalDesk(desk).list() == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("session_input", {"app_name": "words", "bogus": 1}),
        ("conversation[0].user_content", {"parts": [{"text": "hi"}], "bogus": 1}),
        ("conversation[0].user_content.parts[0]", {"text": "hi", "bogus": 1}),
        ("conversation[0].final_response", {"parts": [{"text": "hi"}], "bogus": 1}),
        ("conversation[0].final_response.parts[0]", {"text": "hi", "bogus": 1}),
        ("conversation[0].intermediate_data", {"tool_uses": [], "bogus": 1}),
        ("conversation[0].intermediate_data.tool_uses[0]", {"name": "search", "args": {"any": 1}, "bogus": 1}),
        ("conversation[0].intermediate_data.invocation_events[0]", {"author": "words", "bogus": 1}),
        ("rubrics[0]", {"rubric_id": "short", "rubric_content": {"text_property": "It is short."}, "bogus": 1}),
        ("conversation[0].rubrics[0]", {"rubric_id": "a", "rubric_content": {"text_property": "b"}, "bogus": 1}),
        ("conversation[0].rubrics[0].rubric_content", {"text_property": "It is short.", "bogus": 1}),
    ],
)
def test_an_unknown_key_is_refused_with_its_place(desk: Desk, words: str, where: str, value: Any) -> None:
    case: dict[str, Any] = case_to_json(
        next(each for each in desk.evalsets.evalset(words).cases if each.id == "case_2")
    )
    case["eval_id"] = "new_case"
    keys = [part.partition("[") for part in where.split(".")]
    at: Any = case
    for name, is_list, _ in keys[:-1]:
        at.setdefault(name, [{}] if is_list else {})
        at = at[name][0] if is_list else at[name]
    name, is_list, _ = keys[-1]
    at[name] = [value] if is_list else value

    with pytest.raises(UsageError, match=re.escape(f"unknown key 'bogus' in {where}; ")):
        ClientProposalDesk(desk).propose_case(CLIENT, words, case)
    del value["bogus"]
    assert ClientProposalDesk(desk).propose_case(CLIENT, words, case).id == 1


def test_an_unknown_key_of_the_file_stands_in_no_ones_way(desk: Desk, words: str) -> None:
    file = desk.evalsets.list()[0].path
    content = json.loads(file.read_text())
    content["eval_cases"][1]["conversation"][0]["user_content"]["parts"][0]["own"] = 1
    file.write_text(json.dumps(content))

    assert ClientProposalDesk(desk).propose_edit(CLIENT, words, "case_2", {"tags": ["short"]}, "it is short").id == 1


def test_equal_proposals_are_one_and_many_are_refused(desk: Desk, words: str) -> None:
    first = ClientProposalDesk(desk).propose_case(CLIENT, words, new_case())
    assert ClientProposalDesk(desk).propose_case("Codex", words, new_case(), "another reason").id == first.id
    assert ClientProposalDesk(desk).propose_case("Codex", words, new_case()).is_joined
    proposal = ClientProposalDesk(desk).get(first.id)
    assert (proposal.n_times, proposal.clients) == (3, ("coding agent Claude Code", "coding agent Codex"))
    assert read_proposals(desk, first.id).clients == "coding agent Claude Code, coding agent Codex"

    for number in range(MAX_OPEN - 1):
        ClientProposalDesk(desk).propose_case(CLIENT, words, new_case(f"case_{number + 10}"))
    with pytest.raises(ConflictError, match="wait for a person"):
        ClientProposalDesk(desk).propose_case(CLIENT, words, new_case("one_more"))
    ClientProposalDesk(desk).refuse(first.id, "ann")
    ClientProposalDesk(desk).propose_case(CLIENT, words, new_case("one_more"))


def test_lists_have_the_proposals_of_all_sets_and_kinds(desk: Desk, words: str, place: CommandFolder) -> None:
    proposals = ClientProposalDesk(desk)
    for at in range(MAX_OPEN):
        proposals.propose_kind(CLIENT, TypedMode(f"kind {at}", "It is one."))
    first = made(desk, words, "case")
    numbers = {each.id for each in proposals.list()}

    answer = tool_answer(place.folder, "list_proposals", {"cursor": MAX_OPEN, "limit": 50})

    assert (len(numbers), first in numbers) == (MAX_OPEN + 1, True)
    assert (answer["total_count"], answer["n_open"], len(answer["items"])) == (MAX_OPEN + 1, MAX_OPEN + 1, 1)


def test_large_proposals_are_refused_once_they_are_too_much_together(
    desk: Desk, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.store.client_proposals.MAX_CHARACTERS", 5_000)
    proposals = ClientProposalDesk(desk)
    first = proposals.propose_case(CLIENT, words, new_case("a", "x" * 3_000)).id

    with pytest.raises(ConflictError, match="at most 5,000 wait together"):
        proposals.propose_case(CLIENT, words, new_case("b", "y" * 3_000))
    proposals.refuse(first, "ann")

    assert proposals.propose_case(CLIENT, words, new_case("b", "y" * 3_000)).id > first


def test_a_secret_is_masked_and_said(desk: Desk, words: str) -> None:
    result = ClientProposalDesk(desk).propose_case(CLIENT, words, new_case(text=f"use {KEY}"), f"for {KEY}")

    proposal = ClientProposalDesk(desk).get(result.id)
    assert result.is_masked
    assert KEY not in proposal.draft.after + proposal.draft.why


@pytest.mark.parametrize(
    ("quote", "turn"),
    [("Hi", 0), ("hi there", 0), ("", 0), ("hi", 5), (" ", 0), ("\t\n", None)],
    ids=["case", "more", "empty", "other turn", "blank", "blanks"],
)
def test_a_quote_must_stand_in_its_trial_letter_by_letter(desk: Desk, quote: str, turn: int) -> None:
    with pytest.raises(UsageError, match="quote: "):
        ClientProposalDesk(desk).propose_finding(
            CLIENT, 1, "case_2", (1, 0), turn, TypedFinding(new_mode="echo", quote=quote)
        )


def test_what_a_trial_does_not_offer_is_no_expectation(desk: Desk) -> None:
    with pytest.raises(UsageError, match=r"9\.answer is not offered; offered are 1\.answer: "):
        ClientProposalDesk(desk).propose_expectation(CLIENT, 1, "case_2", 0, {"9.answer": "replace"})
    with pytest.raises(UsageError, match=r"parts: name at least one; offered are 1\.answer: "):
        ClientProposalDesk(desk).propose_expectation(CLIENT, 1, "case_2", 0, {})
    with pytest.raises(NotFoundError):
        ClientProposalDesk(desk).propose_expectation(CLIENT, 1, "case_9", 0, {})


def test_a_name_of_a_client_is_one_short_printable_line(desk: Desk, words: str) -> None:
    number = ClientProposalDesk(desk).propose_case("\x1b[2J" + "x\n" * 100, words, new_case()).id

    client = ClientProposalDesk(desk).get(number).client
    assert client.isprintable()
    assert len(client) <= 80


def test_a_broken_case_is_refused(desk: Desk, words: str) -> None:
    values: tuple[Any, ...] = ([], "x", {"eval_id": 1}, {"conversation": []})
    for value in values:
        with pytest.raises(FormatError):
            ClientProposalDesk(desk).propose_case(CLIENT, words, value)
    with pytest.raises(ConflictError, match="has a case 'case_1' already"):
        ClientProposalDesk(desk).propose_case(CLIENT, words, new_case("case_1"))


def test_commands_propose_and_only_a_person_at_a_terminal_decides(
    place: CommandFolder, desk: Desk, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder / "case.json").write_text(json.dumps(new_case()))
    result = place.run("propose", "case", "words", place.folder / "case.json", "--why", "none asks", "--json")
    number = json.loads(result.stdout)["proposal"]

    for verb in ("accept", "refuse", "undo"):
        answer = place.run("proposals", verb, str(number))
        assert answer.exit_code != 0
        assert "for a person at a terminal" in str(answer.exception)
    assert ClientProposalDesk(desk).get(number).status == "open"

    with at_terminal(monkeypatch):
        assert "Accepted." in place.run("proposals", "accept", str(number), "--by", "ann").output
    assert [case.id for case in desk.evalsets.evalset(words).cases][-1] == "new_case"
    with at_terminal(monkeypatch):
        place.run("proposals", "undo", str(number), "--by", "ann")
        assert "Refused." in place.run("proposals", "refuse", str(number), "--by", "ann").output
    shown = json.loads(place.run("proposals", "show", str(number), "--json").stdout)
    assert (shown["status"], shown["decided_by"], shown["content"]["eval_id"]) == ("refused", "ann", "new_case")


@contextmanager
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A person at a terminal, who says yes."""
    with monkeypatch.context() as patch:
        patch.setattr("evaldesk.cli.door.proposals._has_terminal", lambda: True)
        patch.setattr("evaldesk.cli.door.proposals.confirm", lambda *_, **__: True)
        yield


def test_the_skill_is_shown_and_installed_beside_other_parts(place: CommandFolder) -> None:
    text = place.run("skill", "show").stdout
    assert len(text.splitlines()) <= 150
    assert "Never" in text

    agents = place.folder / "AGENTS.md"
    agents.write_text("# Ours\n\nBe brief.\n")
    assert place.run("skill", "install", "--for", "agents.md").exit_code != 0
    assert agents.read_text() == "# Ours\n\nBe brief.\n"
    shown = place.run("skill", "install", "--for", "agents.md", "--yes").stdout
    assert "+# Evaldesk" in shown
    assert agents.read_text().startswith("# Ours\n\nBe brief.\n\n<!-- evaldesk: begin -->")
    assert "has the skill already" in place.run("skill", "install", "--for", "agents.md", "--yes").stdout
    for client, folder in (("claude", ".claude"), ("codex", ".codex"), ("cursor", ".cursor")):
        place.run("skill", "install", "--for", client, "--yes")
        assert (place.folder / folder / "skills/evaldesk/SKILL.md").read_text().rstrip() == text.rstrip()


def test_a_long_file_beside_the_skill_loses_nothing(place: CommandFolder) -> None:
    agents = place.folder / "AGENTS.md"
    agents.write_text("a line of ours\n" * 70_000)
    before = agents.read_bytes()

    result = place.run("skill", "install", "--for", "agents.md", "--yes")

    assert "it is left as it is" in str(result.exception)
    assert agents.read_bytes() == before


def test_the_skill_follows_no_link_out_of_the_project(place: CommandFolder, tmp_path_factory: Any) -> None:
    outside: Path = tmp_path_factory.mktemp("outside")
    (place.folder / ".claude").symlink_to(outside)

    result = place.run("skill", "install", "--yes")

    assert "leads out of the project" in str(result.exception)
    assert list(outside.iterdir()) == []


def test_every_command_of_the_skill_is_there() -> None:
    import re
    import shlex

    import click

    from evaldesk.cli import cli

    text = (Path(__file__).resolve().parents[2] / "app/evaldesk/cli/door/SKILL.md").read_text("utf-8")
    for line in re.findall(r"`evaldesk ([^`]+)`", text):
        command: click.Command = cli
        words = shlex.split(line)
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        flags = {flag for param in command.params for flag in param.opts}
        assert {word for word in words if word.startswith("--")} <= flags, line


def test_a_proposal_names_its_client(desk: Desk, words: str) -> None:
    made(desk, words, "case")

    (proposal,) = ClientProposalDesk(desk).list()
    assert isinstance(proposal, Proposal)
    assert proposal.client == f"coding agent {CLIENT}"


@pytest.mark.parametrize("name", ["ann", "a coding agent", "Coding Agent x", "coding  agent", ""])
def test_no_client_has_the_name_of_a_person(desk: Desk, words: str, name: str) -> None:
    number = ClientProposalDesk(desk).propose_case(name, words, new_case()).id

    proposal = ClientProposalDesk(desk).get(number)
    assert is_name_of_client(proposal.client)
    with pytest.raises(UsageError, match="a name of a coding agent"):
        accepted(desk, number, proposal.client)
    assert accepted(desk, number).decided_by == "ann"


@pytest.mark.parametrize("change", ["tags", "number", "both"])
def test_an_accepted_edit_keeps_the_changes_of_people_to_other_parts(desk: Desk, words: str, change: str) -> None:
    """The version of a case tells neither its tags nor its number of trials."""
    number = made(desk, words, "edit")
    if change in ("tags", "both"):
        desk.evalsets.cases.change_tags(words, ["case_2"], ["smoke"], [])
    if change in ("number", "both"):
        case = desk.evalsets.cases.find(words, case_key("case_2")).case
        desk.evalsets.cases.save(words, case_key("case_2"), replace(case, extra={**case.extra, "n": 7}), None)
    case = desk.evalsets.cases.find(words, case_key("case_2")).case
    view = read_proposals(desk, number).view
    assert view is not None
    assert not any("smoke" in line.text for line in view.lines if line.op == "-")

    accepted(desk, number)

    after = desk.evalsets.cases.find(words, case_key("case_2")).case
    assert (after.tags, after.extra.get("n")) == (case.tags, case.extra.get("n"))
    assert after.turns[0].expected.reference == "hi"
    ClientProposalDesk(desk).undo(number, "ann")
    assert desk.evalsets.cases.find(words, case_key("case_2")).case == case


def test_an_edit_of_tags_that_a_person_changed_meanwhile_is_a_conflict(desk: Desk, words: str) -> None:
    number = ClientProposalDesk(desk).propose_edit(CLIENT, words, "case_2", {"tags": ["slow"]}, "it is slow").id
    desk.evalsets.cases.change_tags(words, ["case_2"], ["smoke"], [])
    before = state_of(desk)

    with pytest.raises(ConflictError, match="changed since it was proposed"):
        accepted(desk, number)

    assert state_of(desk) == before


class KilledError(Exception):
    """The process ends here."""


STEPS = {
    "before the change": ("take_back", False),
    "before the note": ("note_edit", False),
    "after the change": ("take_back", True),
    "after the undo is used up": ("reopen", False),
    "after all": ("reopen", True),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_undo_that_was_killed_between_two_steps_ends_when_it_is_asked_again(
    desk: Desk, words: str, kind: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, number = state_of(desk), made(desk, words, kind)
    accepted(desk, number)
    proposals = ClientProposalDesk(desk)
    name, is_after = STEPS[step]
    owner: Any = {"take_back": proposals, "reopen": proposals._store, "note_edit": desk.evalsets.cases}[name]
    method = {"take_back": "_take_back", "reopen": "reopen", "note_edit": "_note_edit"}[name]
    whole_step = getattr(owner, method)

    def killed(*arguments: Any) -> None:
        if is_after:
            whole_step(*arguments)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, killed)
        if not (name == "note_edit" and kind in ("finding", "kind")):  # they change no eval set
            with pytest.raises(KilledError):
                proposals.undo(number, "ann")
    again = ClientProposalDesk(desk)
    if again.get(number).status != "open":
        again.undo(number, "ann")

    assert again.get(number).status == "open"
    content, findings, modes = state_of(desk)
    assert (json.loads(content)["eval_cases"], findings) == (json.loads(before[0])["eval_cases"], before[1])
    assert kind == "finding" or modes == before[2]
    accepted(desk, number)
    assert again.get(number).status == "accepted"


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_that_a_person_took_back_elsewhere_is_open_again(desk: Desk, words: str, kind: str) -> None:
    number = made(desk, words, kind)
    token = accepted(desk, number).undo.partition(" ")[2]
    if kind == "case":
        desk.evalsets.cases.delete(words, [token])
    elif kind == "finding":
        desk.failures.remove(int(token), "bea")
    elif kind == "kind":
        desk.failures.retire(int(token), "bea")
    else:
        restore_item(desk, token)

    assert ClientProposalDesk(desk).undo(number, "ann").status == "open"


def test_an_edit_whose_undo_is_gone_stays_accepted_while_it_stands(desk: Desk, words: str) -> None:
    number = made(desk, words, "edit")
    token = accepted(desk, number).undo.partition(" ")[2]
    desk.evalsets.cases.edits.discard(token)

    with pytest.raises(ConflictError, match="no longer in the trash"):
        ClientProposalDesk(desk).undo(number, "ann")

    assert ClientProposalDesk(desk).get(number).status == "accepted"


def test_proposals_of_a_folder_without_trust_are_refused_by_both_doors(
    place: CommandFolder, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder / "case.json").write_text(json.dumps(new_case()))
    (place.folder / "patch.json").write_text(json.dumps({"tags": ["short"]}))
    monkeypatch.setattr("evaldesk.desk.desk.Desk.is_restricted", property(lambda _: True))

    for words_of_command in (
        ("case", "words", place.folder / "case.json"),
        ("edit", "words", "case_2", place.folder / "patch.json", "--why", "short"),
        ("expectation", "1", "case_2", "1", "1.answer=replace"),
        ("finding", "1", "case_2", "1", "--kind", "echo", "--quote", "hi"),
        ("kind", "echo", "--definition", "It repeats."),
    ):
        result = place.run("propose", *words_of_command)
        assert result.exit_code != 0
        assert f"propose {words_of_command[0]}: a person has not trusted this workspace" in str(result.exception)
    assert ClientProposalDesk(desk).list() == []


def overwrite(desk: Desk, proposal_id: int, **values: Any) -> None:
    """Write into the row of a proposal as another program with a role in the database can."""
    with desk.store.client_proposals._database.writing() as connection:
        connection.execute(PROPOSAL.update().where(PROPOSAL.c.id == proposal_id).values(values))


@pytest.mark.parametrize(
    "after",
    ["[5]", '{"a":', '"x"', "[" * 100_000, '{"kind": 1, "name": 1, "eval_id": 1}', '{"name": []}'],
    ids=["a list", "cut off", "a text", "deep", "numbers", "a list as name"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_content_that_nobody_proposes_is_named_and_never_accepted(
    desk: Desk, words: str, kind: str, after: str
) -> None:
    before, number = state_of(desk), made(desk, words, kind)
    overwrite(desk, number, after=after)

    for step in (lambda: read_proposals(desk, number), lambda: accepted(desk, number)):
        with pytest.raises(BrokenRowError, match="table proposal"):
            step()
    assert state_of(desk) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_in_the_database_takes_back_nothing_but_the_change_of_its_proposal(
    desk: Desk, words: str, kind: str
) -> None:
    proposals, number = ClientProposalDesk(desk), made(desk, words, kind)
    other_mode = desk.failures.create(TypedMode("another", "A trial shows another."), "bea")
    form = TypedFinding("bea", "mine", str(other_mode))
    finding = desk.failures.add(1, (1, 0), form, desk.store.runs.trial(1, 1, 0).transcript)
    cases = desk.evalsets.evalset(words).cases
    token = desk.evalsets.cases.store_edits(words, [(cases[0], cases[0])])
    before = state_of(desk)

    for undo in (
        f"case {case_keys(cases)[0]}",
        f"edit {token}",
        f"finding {finding}",
        f"kind {other_mode}",
        "kind x",
        "finding ",
        "gone",
    ):
        overwrite(desk, number, status="accepted", decided_by="bea", undo=undo)
        with pytest.raises(EvaldeskError):
            proposals.undo(number, "ann")

    assert state_of(desk) == before


@pytest.mark.parametrize("is_named", [True, False], ids=["an earlier version", "no version"])
def test_a_proposal_that_changed_since_it_was_read_is_not_accepted(desk: Desk, words: str, is_named: bool) -> None:
    before, number = state_of(desk), made(desk, words, "case")
    view = read_proposals(desk, number).view
    assert view is not None
    seen = view.seen if is_named else ""
    overwrite(desk, number, after=json.dumps(new_case(text="another text")))

    with pytest.raises(ConflictError, match="look at it again"):
        ClientProposalDesk(desk).accept(number, "ann", seen)

    assert state_of(desk) == before


@pytest.mark.parametrize("kind", KINDS)
def test_an_acceptance_that_was_killed_after_its_change_is_made_once(
    desk: Desk, words: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = made(desk, words, kind)
    with monkeypatch.context() as patch:
        patch.setattr(desk.store.client_proposals, "decide", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            accepted(desk, number)
    after = state_of(desk)

    accepted(desk, number)

    assert state_of(desk) == after
    assert len(desk.store.failures.list(1)) == (kind == "finding")


def test_a_finding_is_accepted_whose_kind_begins_the_name_of_another(desk: Desk, words: str) -> None:
    desk.failures.create(TypedMode("echo of the user", "It says the same."), "bea")

    accepted(desk, made(desk, words, "finding"))

    assert desk.failures.find_mode("echo").name == "echo"
