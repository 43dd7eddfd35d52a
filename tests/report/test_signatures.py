"""Signatures: trials that fail alike share one, whatever their values; other causes have another."""

from __future__ import annotations

from random import Random

import pytest

from evaldesk.diff.signature import error_signature, failure_signature, group_notes
from evaldesk.model import (
    Case,
    ErrorRecord,
    Event,
    Expected,
    JsonObject,
    Score,
    ToolCall,
    Transcript,
    Turn,
    TurnRecord,
)
from evaldesk.wording.words import short_title

FAILED = (Score("tool_trajectory_avg_score", 0.0, None, 1.0, False),)


def signed(expected: JsonObject, actual: JsonObject | None, tool: str = "search", made: str = "") -> tuple[str, str]:
    """The signature of a trial that made one call, or none, where one was expected."""
    case = Case("c", (Turn("Go.", Expected(tool_calls=(ToolCall(tool, expected),))),))
    calls = () if actual is None else (Event("tool_call", call=ToolCall(made or tool, actual)),)
    found = failure_signature(case, Transcript((TurnRecord("Go.", calls),)), FAILED, short_title)
    assert found
    return found.key, found.words


def test_the_same_slip_has_one_signature_whatever_its_values() -> None:
    found = {
        signed({"depart": "2026-11-27", "to": "LIS"}, {"depart": "2026-12-04", "to": "LIS"}),
        signed({"depart": "2026-01-01", "to": "BER"}, {"depart": "2026-01-02", "to": "BER"}),
        signed({"to": "VIE", "depart": "2027-05-01"}, {"to": "VIE", "depart": "2028-05-01"}),
    }

    ((key, words),) = found
    assert words == "search: depart later than expected"
    assert "2026" not in key
    assert "LIS" not in key


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        ({"d": "2026-11-27"}, {"d": "2026-11-20"}, "search: d earlier than expected"),
        ({"d": "a"}, {"d": "b"}, "search: d other text"),
        ({"n": 1}, {"n": 2}, "search: n higher than expected"),
        ({"n": 2}, {"n": 1.5}, "search: n lower than expected"),
        ({"n": 1}, {"n": "1"}, "search: n other type"),
        ({"n": True}, {"n": False}, "search: n other value"),
        ({"n": [1, 2]}, {"n": [1]}, "search: n shorter than expected"),
        ({"n": [1]}, {"n": [1, 2]}, "search: n longer than expected"),
        ({"n": [1]}, {"n": [2]}, "search: n other items"),
        ({"a/b": 1, "c~": {"d": 1}}, {"c~": {"d": 2}}, "search: /a~1b missing, /c~0/d higher than expected"),
        ({}, {"x": 1}, "search: x not expected"),
        ({"x": 1}, None, "search missing"),
    ],
)
def test_each_cause_has_its_own_words(expected: JsonObject, actual: JsonObject | None, words: str) -> None:
    assert signed(expected, actual)[1] == words


def test_errors_are_alike_but_for_numbers_quotes_paths_and_addresses() -> None:
    messages = (
        'GET http://127.0.0.1:8000/a failed after 3 tries: "no route" in /tmp/x/y.py',
        'GET https://example.org/b failed after 12 tries: "timed out" in /srv/other/z.py',
    )

    found = {error_signature(ErrorRecord("model", message)).key for message in messages}

    assert found == {"error|model|GET # failed after # tries: # in #"}


def test_three_causes_under_one_preamble_are_three() -> None:
    messages = ("the agent failed: no key", "the agent failed: refused", "the agent failed: too long")

    assert len({error_signature(ErrorRecord("agent", message)).key for message in messages}) == 3


def test_other_failures_are_told_by_their_kind() -> None:
    played = Transcript((TurnRecord("Go.", (Event("agent_message", text="No."),), {}, {"n": 1}),))
    scores = (Score("response_match_score", 0.1, 0, 0.8, False, reason="far off"), *FAILED)

    def words(case: Case, said: Transcript, found: tuple[Score, ...] = FAILED) -> str:
        signature = failure_signature(case, said, found, short_title)
        return signature.words if signature else ""

    assert words(Case("c", (Turn("Go."), Turn("On."))), played) == "a turn was never played"
    assert words(Case("c", (Turn("Go."),)), played, scores) == "Response match failed on a turn"
    assert words(Case("c", (Turn("Go."),), final_state={"n": 2}), played) == "the final state of n differs"
    assert words(Case("c", (Turn("Go."),)), played) == "Tool trajectory failed"
    assert words(Case("c", (Turn("Go."),)), played, ()) == ""


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Timed out after 30 s.", "reward: Timed out after # s"),
        ("", "the score “reward” is that of a failure"),
    ],
)
@pytest.mark.parametrize("turns", [(Turn("Go."),), (Turn("Go."), Turn("On."))], ids=["whole", "without its last turn"])
def test_an_imported_failure_has_the_reason_of_its_source_also_where_turns_are_missing(
    turns: tuple[Turn, ...], reason: str, words: str
) -> None:
    played = Transcript((TurnRecord("Go.", (Event("agent_message", text="No."),)),))
    scores = (Score("reward", 0.0, None, 0.5, False, reason=reason),)

    signature = failure_signature(Case("c", turns), played, scores, short_title, tells_reasons=True)

    assert signature is not None
    assert signature.words == words


CAUSES = (
    ("It books the wrong date.", "The wrong date is booked.", "wrong date, booked a week late"),
    ("It invents a price.", "Some price that it invents."),
    ("It asks twice for the budget.", "The budget is asked for twice."),
    ("It gives up.",),
)


def grouped(notes: list[str]) -> dict[frozenset[str], str]:
    return {frozenset(notes[at] for at in places): name for name, places in group_notes(notes)}


def test_one_cause_in_three_phrasings_is_one_group_whatever_the_order_of_the_notes() -> None:
    notes = [note for notes in CAUSES for note in notes]
    first = grouped(notes)

    assert set(first) == {frozenset(notes) for notes in CAUSES}
    assert {len(group) for group, name in first.items() if not name} == {1}
    assert first[frozenset(CAUSES[0])] == "wrong date, booked, books"
    for seed in range(100):
        shuffled = Random(seed).sample(notes, len(notes))
        assert grouped(shuffled) == first


def test_three_causes_under_one_preamble_are_three_groups_of_notes() -> None:
    preamble = "The agent did not finish the task as it was asked to: "
    notes = [preamble + cause for cause in ("no key", "refused by the tool", "answer too long")]

    assert len(group_notes(notes)) == 3


def test_any_notes_are_grouped() -> None:
    assert group_notes([]) == []
    assert group_notes(["same", "same"]) == [("same", [0, 1])]
    assert sorted(places for _, places in group_notes(["", "!", "<b>", "a\0", "\ud800", "x" * 4000])) == [
        [at] for at in range(6)
    ]
