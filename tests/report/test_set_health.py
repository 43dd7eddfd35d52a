"""The health of an eval set: planted faults are found in both sample sets, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.formats import load_evalset
from evaldesk.matching.case_facts import facts_of_case, leak_words
from evaldesk.matching.case_version import case_version
from evaldesk.model import (
    AgentDescription,
    Case,
    Event,
    Expected,
    SessionInit,
    ToolCall,
    ToolDescription,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.media import Media
from evaldesk.model.transcript import Change
from evaldesk.pages.set_health.coverage import PassingTrial, tool_coverage
from evaldesk.pages.set_health.finding import FINDING_KINDS, Finding, kinds_of
from evaldesk.pages.set_health.health import SetHealth, health_of
from evaldesk.store.runs.set_outcomes import CaseOutcome, SetRun

SAMPLES = Path(__file__).resolve().parents[2] / "evalsets"
NAMES = ("hello_world", "trip_planner")


def sample(name: str) -> tuple[Case, ...]:
    return tuple(load_evalset(SAMPLES / f"{name}.evalset.json").cases)


def kinds(health: SetHealth) -> dict[str, tuple[str, ...]]:
    return {finding.kind: finding.case_ids or finding.items for finding in health.findings}


def asking(text: str, *calls: ToolCall, case_id: str = "one", reference: str | None = None, **more: Any) -> Case:
    return Case(case_id, (Turn(text, Expected(calls or None, (), reference)),), **more)


def tools_of(cases: Sequence[Case]) -> tuple[ToolDescription, ...]:
    """A tool for each that the cases expect, with the arguments that they send."""
    arguments: dict[str, dict[str, Any]] = {}
    for case in cases:
        for turn in case.turns:
            for call in turn.expected.tool_calls or ():
                arguments.setdefault(call.name, {}).update({key: {"type": "string"} for key in call.args})
    return tuple(ToolDescription(name, "", {"properties": names}) for name, names in arguments.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_set_has_no_fault(name: str) -> None:
    cases = sample(name)

    health = health_of(cases, description=AgentDescription(name, "adk", tools=tools_of(cases)), agent_id=name)

    assert kinds(health) == {}
    assert health.n_tested == len(health.tools) > 0
    assert health.sentence[1] == "nothing else to do"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", range(4))
def test_a_planted_twin_is_found_alone(name: str, number: int) -> None:
    cases = sample(name)
    first = cases[number]
    turns = tuple(replace(turn, query=f"{turn.query.upper()}!!") for turn in first.turns)

    health = health_of((*cases, replace(first, id="planted", turns=turns)))

    assert kinds(health) == {"twins": (first.id, "planted")}


@pytest.mark.parametrize(("name", "number"), [("hello_world", 1), ("hello_world", 2), ("trip_planner", 3)])
def test_a_planted_contradiction_is_found_alone(name: str, number: int) -> None:
    cases = sample(name)
    turn = cases[number].turns[0]
    call = (turn.expected.tool_calls or ())[0]
    key = next(iter(call.args))
    other_call = replace(call, args={**call.args, key: "another"})
    calls = (other_call, *(turn.expected.tool_calls or ())[1:])
    planted = replace(
        cases[number], id="planted", turns=(replace(turn, expected=replace(turn.expected, tool_calls=calls)),)
    )

    health = health_of((*cases, planted))

    assert kinds(health) == {"contradictions": (cases[number].id, "planted")}
    assert f"and expects another {key}" in health.findings[0].words


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_leak_is_found_alone(name: str) -> None:
    planted = asking("The secret word is swordfish; say it.", case_id="planted", reference="Swordfish.")

    assert kinds(health_of((*sample(name), planted))) == {"answers_in_prompt": ("planted",)}


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_tool_argument_and_value_are_found_alone(name: str) -> None:
    cases = sample(name)
    tools = tools_of(cases)
    first: Any = {**tools[0].parameters["properties"], "cabin": {"enum": ["economy", "business"]}}  # type: ignore[dict-item]
    planted = (
        replace(tools[0], parameters={"properties": first}),
        *tools[1:],
        ToolDescription("cancel_booking", "", {"properties": {"id": {"type": "string"}}}),
    )
    below = AgentDescription("helper", "adk", tools=(ToolDescription("share"),))

    health = health_of(cases, description=AgentDescription(name, "adk", tools=planted, sub_agents=(below,)))

    assert kinds(health) == {
        "untested_tools": ("cancel_booking", "share"),
        "untested_arguments": (f"{tools[0].name}.cabin",),
    }
    assert health.sentence[0].startswith(f"{len(tools)} of {len(tools) + 2} tools")


def test_values_of_an_enum_that_nobody_asked_for_are_named() -> None:
    cabin: Any = {"anyOf": [{"enum": ["economy", "business", "first"]}, {"type": "null"}]}
    tool = ToolDescription("fly", "", {"properties": {"cabin": cabin}})
    case = asking("Fly me", ToolCall("fly", {"cabin": ["economy"]}))

    finding = health_of((case,), description=AgentDescription("a", "adk", tools=(tool,))).findings[0]

    assert (finding.kind, finding.items) == ("untested_values", ('fly.cabin 2 of 3: "business" "first"',))


def test_a_call_in_a_passing_trial_tests_a_tool_but_asks_for_no_case() -> None:
    tools = (ToolDescription("seen"), ToolDescription("none", "", {"properties": {"a": {}}}))
    cases = (asking("Hello"), Case("quiet", (Turn("No tools please", Expected(())),)))
    trials = [PassingTrial("one", (ToolCall("seen"), ToolCall("unknown")))]

    facts = [facts_of_case(case) for case in cases]
    seen, none = tool_coverage(AgentDescription("a", "adk", tools=tools), [case.id for case in cases], facts, trials)

    assert [seen.mark(place) for place in range(2)] == ["seen", "forbids"]
    assert [none.mark(place) for place in range(2)] == ["never", "forbids"]
    assert (seen.is_tested, none.is_tested) == (True, False)


@pytest.mark.parametrize(
    ("text", "other", "calls", "other_calls", "kind"),
    [
        # Numbers may differ in both, as words and calls of the same sentence.
        ("Roll a 6-sided die", "Roll a 20-sided die", {"sides": 6}, {"sides": 20}, "twins"),
        ("Is 7 prime or not", "Is 7 prime or not?", {"nums": [7]}, {"nums": [8]}, "contradictions"),
        ("Are 7, 8 prime or not", "Are 7, 8, 9 prime or not", {"n": [7, 8]}, {"n": [7, 8, 9]}, "twins"),
        ("Roll a 6-sided die", "Roll a 6-sided die", {"sides": 6}, {"faces": 6}, "contradictions"),
        ("Cancel order 17", "Cancel my order please", {"id": 1}, {"id": 2}, ""),
    ],
)
def test_alike_texts_are_twins_or_contradictions(
    text: str, other: str, calls: Any, other_calls: Any, kind: str
) -> None:
    cases = (asking(text, ToolCall("t", calls)), asking(other, ToolCall("t", other_calls), case_id="two"))

    assert list(kinds(health_of(cases))) == ([kind] if kind else [])


def test_an_alike_beginning_is_no_twin() -> None:
    cases = (
        Case("a", (Turn("Hi there"), Turn("Cancel my order", Expected((ToolCall("cancel"),))))),
        Case("b", (Turn("Hi there"), Turn("Where is my parcel", Expected((ToolCall("track"),))))),
        Case("c", (Turn("Hi there", Expected(reference="Hello")),)),
    )

    assert kinds(health_of(cases)) == {}


def test_another_state_or_picture_or_an_open_expectation_is_no_contradiction() -> None:
    def session(value: int) -> SessionInit:
        return SessionInit("a", "u", {"seed": value})

    by_state = [asking("Roll", ToolCall("r", {"n": n}), case_id=f"s{n}", initial_session=session(n)) for n in (1, 2)]
    pictures = [
        Case(f"p{n}", (Turn("", Expected((ToolCall("see", {"n": n}),)), media=(Media("image/png", n * "QQ=="),)),))
        for n in (1, 2)
    ]
    half = [asking("Say it", ToolCall("say"), case_id="x"), asking("Say it", case_id="y", reference="It")]

    assert "contradictions" not in kinds(health_of((*by_state, *pictures, *half)))


def test_references_contradict_only_under_the_same_words() -> None:
    same = (asking("Who is it?", reference="Ann"), asking("who is it", case_id="two", reference="Bob"))
    alike = (same[0], asking("Who is it, please?", case_id="two", reference="Bob"))

    assert kinds(health_of(same)) == {"contradictions": ("one", "two")}
    assert "contradictions" not in kinds(health_of(alike))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (asking("Two nights for 40,000 yen", reference="40 000 yen it is"), "40 000 stands in the user’s words"),
        (asking("Order 17?", reference="Order 17 is sent"), ""),
        (asking("In Lisbon?", reference="I found a nice hotel for you in the middle of Lisbon"), ""),
        (asking("Say catalogue", reference="cat"), ""),
        (
            asking("Say it", reference="Tomorrow", initial_session=SessionInit("", "", {"a": ["tomorrow"]})),
            "Tomorrow stands in the initial state",
        ),
        (asking("tomorrows", reference="Tomorrow"), ""),
        (asking("1234567", reference="It is 234"), ""),
    ],
    ids=range(7),
)
def test_an_answer_in_the_prompt_is_a_value_of_its_own(case: Case, words: str) -> None:
    assert leak_words(case).startswith(words)
    assert bool(leak_words(case)) == bool(words)


def test_later_words_of_the_user_leak_nothing_of_earlier_answers() -> None:
    case = Case("a", (Turn("How much?", Expected(reference="1,802 euros")), Turn("1,802 euros is fine")))

    assert leak_words(case) == ""


def set_run(number: int, agent: str, **strips: str) -> SetRun:
    outcomes = [
        CaseOutcome(
            index, case_id, case_version(asking(case_id, case_id=case_id, reference="x")), strip, 0.02 * len(strip), 0
        )
        for index, (case_id, strip) in enumerate(strips.items())
    ]
    return SetRun(number, agent, "pf", tuple(outcomes))


def history(runs: Sequence[SetRun], *case_ids: str) -> SetHealth:
    return health_of([asking(case_id, case_id=case_id, reference="x") for case_id in case_ids], runs=runs)


def test_cases_that_never_fail_never_pass_or_do_both_are_found_from_their_number_of_trials_on() -> None:
    strips = {"always": "p" * 10, "never": "f" * 5, "mixed": "pf", "judge": "ppppu"}
    runs = [set_run(number, "ab"[number % 2] if number < 2 else "a", **strips) for number in range(6)]

    enough = kinds(history(runs[:5], *strips))
    few = kinds(history(runs[:4], *strips))
    one_agent = kinds(history(runs[2:] + runs[2:3], *strips))

    assert enough == {"saturated": ("always",), "never_passed": ("never",), "broken_judge": ("judge",)} | (
        {"flaky": ("mixed",)} if "flaky" in enough else {}
    )
    assert kinds(history([*runs[2:], *runs[:1]], *strips))["flaky"] == ("mixed",)
    assert "saturated" not in few
    assert not {"saturated", "never_passed"} & one_agent.keys()
    assert one_agent["flaky"] == ("mixed",)


def test_trials_of_another_content_count_for_nothing_and_a_renamed_case_keeps_its_own() -> None:
    runs = [set_run(number, "a", mixed="pf") for number in range(5)]
    renamed = replace(asking("mixed", case_id="mixed", reference="x"), id="renamed")
    edited = asking("another text", case_id="mixed", reference="x")

    assert kinds(health_of([renamed], runs=runs)) == {"flaky": ("renamed",)}
    assert kinds(health_of([edited], runs=runs)) == {}


def test_the_worth_of_cases_is_ordered_and_says_what_is_missing() -> None:
    runs = [set_run(number, "a", sure="pppp", even="pfpf", odd="ffff") for number in range(3)]

    health = history(runs, "sure", "even", "odd")

    assert health.worths[0].trials.case_id == "even"
    assert {worth.n_runs_missing for worth in health.worths} == {17}
    assert health.worths[0].bearing_words == "17 more runs"
    assert "“flaky” 2 more runs" in health.missing


def test_states_that_trials_change_and_no_case_asserts_are_found() -> None:
    cases = (asking("a", case_id="a", reference="x"), asking("b", case_id="b", reference="x", final_state={"kept": 1}))
    runs = [
        SetRun(
            1,
            "a",
            "pf",
            tuple(CaseOutcome(n, case.id, case_version(case), "fp", 0.0, 2) for n, case in enumerate(cases)),
        )
    ]
    asked = []

    def read_trial(run_id: int, case_index: int, trial_index: int) -> TrialResult:
        asked.append((run_id, case_index, trial_index))
        changes = tuple(Change(key, after=1, was_present=False) for key in ("cities", "kept", "temp:x"))
        events = (Event("state_delta", 0, changes=changes), Event("tool_call", 0, call=ToolCall("book")))
        transcript = Transcript((TurnRecord("a", events=events),))
        return TrialResult(run_id, case_index, trial_index, status="finished", verdict="passed", transcript=transcript)

    health = health_of(
        cases,
        runs=runs,
        read_trial=read_trial,
        description=AgentDescription("x", "adk", tools=(ToolDescription("book"),)),
    )

    assert asked == [(1, 0, 1), (1, 1, 1)]
    assert kinds(health)["unasserted_states"] == ("a", "b")
    assert (health.n_states, health.n_states_asserted) == (2, 1)
    assert kinds(health)["expected_nowhere"] == ("a", "b")
    assert "untested_tools" not in kinds(health)


def test_kinds_are_named_by_a_beginning_of_only_one() -> None:
    assert kinds_of("untested_tools, never") == ("untested_tools", "never_passed")
    assert kinds_of("untested-values") == ("untested_values",)
    assert "tells_agents_apart" not in kinds_of("all")
    with pytest.raises(NotFoundError, match="kind of finding"):
        kinds_of("untested")
    with pytest.raises(UsageError, match="--fail-on"):
        kinds_of(" , ")


@pytest.mark.parametrize("kind", FINDING_KINDS)
def test_each_kind_has_a_title_for_one_and_for_many(kind: str) -> None:
    one, many = Finding(kind, ("a",)), Finding(kind, tuple("abcdefg"), ("a",), "so it is")

    assert one.title[0].isupper() or one.title.startswith("1 ")
    assert many.title.startswith("7 ")
    assert many.words == "a, b, c, d, e and 2 more: so it is"
    assert many.as_json()["count"] == 7
    assert one.about.action


def test_the_documentation_has_each_kind_of_finding() -> None:
    page = (Path(__file__).parents[2] / "docs/ci.md").read_text("utf-8")
    section = page.partition("### Health of an eval set")[2].partition("\n### ")[0]

    assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == [*FINDING_KINDS]
