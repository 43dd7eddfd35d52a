"""`evaldesk score`: recorded conversations are judged as the trials that they are of; none is guessed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evaldesk.desk.imports.matching import Matching, match_conversations
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import FormatError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.model import Case, EvalSet, Event, Expected, Score, Transcript, TrialResult, Turn, TurnRecord
from evaldesk.transcripts.recorded import RecordedRun

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

ANSWERS = {"hello": "hello", "flaky": "flaky", "bye now": "see you"}


def exported(place: CommandFolder, *, names_cases: bool) -> Path:
    """The traces of run 1; without names of cases as an agent outside of Evaldesk writes them."""
    path = place.folder / "seen.otel.json"
    assert place.run("export", 1, "--format", "otel", "-o", path, "--workspace", place.folder).exit_code == 0
    if not names_cases:
        trace = json.loads(path.read_text())
        for number, span in enumerate(trace["resourceSpans"][0]["scopeSpans"][0]["spans"]):
            span["attributes"] = [each for each in span["attributes"] if not each["key"].startswith("evaldesk.")]
            for each in span["attributes"]:
                if each["key"] == "gen_ai.conversation.id":
                    each["value"]["stringValue"] = f"conversation of {span['traceId']}"
            span["events"] = []
            assert number < 100
        path.write_text(json.dumps(trace))
    return path


def scores_of(place: CommandFolder, run_id: int) -> list[Any]:
    """Case, trial, verdict and scores of a stored run."""
    runs = place.store().runs
    cases = runs.cases(run_id)
    keys = [(at, number) for at, strip in enumerate(runs.strips(run_id)) for number in range(len(strip))]
    return sorted(
        (cases[at].id, number, trial.verdict, [(score.metric, score.turn, score.value) for score in trial.scores])
        for (at, number), trial in runs.trials(run_id, keys).items()
    )


@pytest.mark.parametrize("names_cases", [True, False], ids=["cases named", "messages alone"])
def test_traces_have_the_scores_of_the_run_they_came_from(place: CommandFolder, *, names_cases: bool) -> None:
    evalset = place.evalset("answers", ANSWERS)
    played = place.eval(evalset, "--n", 2, "--junit", "played.xml")
    traces = exported(place, names_cases=names_cases)

    done = place.run("score", traces, "--evalset", evalset, "--junit", "seen.xml", "--json")

    assert (played.exit_code, done.exit_code) == (1, 1)
    assert "Run 2: the conversations as seen. Run 3: their scores." in done.stderr
    assert scores_of(place, 3) == scores_of(place, 1)
    result = json.loads(done.stdout)
    assert (result["counts"]["n_passed"], result["counts"]["n_planned"]) == (3, 6)
    seen, played_names = (
        [line.split(" time=")[0] for line in Path(name).read_text().splitlines() if "<testcase" in line]
        for name in ("seen.xml", "played.xml")
    )
    assert seen == played_names
    runs = place.store().runs
    seen_run, scored = runs.summary(2), runs.summary(3)
    assert (seen_run.config.evalset_id, scored.config.source_run_id) == (runs.summary(1).config.evalset_id, 2)
    assert seen_run.reason == "Seen in seen.otel.json, not played; scored by a run of its own."


def test_the_same_traces_are_stored_once(place: CommandFolder) -> None:
    evalset = place.evalset("answers", {"hello": "hello"})
    place.eval(evalset)
    traces = exported(place, names_cases=False)
    place.run("score", traces, "--evalset", evalset)

    done = place.run("score", traces, "--evalset", evalset, "--min-pass-rate", 1)

    assert done.exit_code == 0
    assert "Run 2: the conversations as seen. Run 4: their scores." in done.stderr


def test_conversations_and_cases_without_each_other_are_named(place: CommandFolder) -> None:
    played = place.evalset("played", {"hello": "hello", "what?": "what?"})
    place.eval(played)
    traces = exported(place, names_cases=False)
    other = place.evalset("other", {"hello": "hello", "unseen": "unseen"})

    done = place.run("score", traces, "--evalset", other)

    assert done.exit_code == 3
    assert "1 conversation is not scored:" in done.stderr
    assert "'what?': no case has these messages" in done.stderr
    assert "1 case has no conversation: case_2. SET:CASE,CASE scores only the cases that it names." in done.stderr
    runs = StoredRuns(place.store().runs)
    assert runs.conclusion(runs.summary(3)).outcome == "undecided"  # on its page, too
    assert place.run("score", traces, "--evalset", f"{other}:case_1").exit_code == 0


def test_a_case_in_quarantine_is_in_no_gate(place: CommandFolder) -> None:
    evalset = place.evalset("answers", {"hello": "hello", "bye now": "see you"})
    place.eval(evalset)
    traces = exported(place, names_cases=True)
    assert place.run("score", traces, "--evalset", evalset).exit_code == 1
    document = json.loads(evalset.read_text())
    document["eval_cases"][1]["tags"] = ["quarantine"]
    evalset.write_text(json.dumps(document))

    assert place.run("score", traces, "--evalset", evalset).exit_code == 0


def test_a_case_that_nobody_reviewed_is_not_scored(place: CommandFolder) -> None:
    evalset = place.evalset("answers", {"hello": "hello"})
    place.eval(evalset)
    traces = exported(place, names_cases=True)
    document = json.loads(evalset.read_text())
    document["eval_cases"][0]["tags"] = ["needs-review"]
    evalset.write_text(json.dumps(document))

    done = place.run("score", traces, "--evalset", evalset)

    assert "take away its tag" in str(done.exception)
    assert len(place.store().runs.list()) == 1


def test_two_sets_with_the_same_cases_have_a_run_each(place: CommandFolder) -> None:
    first, second = (place.evalset(name, {"hello": "hello"}) for name in ("first", "second"))
    place.eval(first)
    traces = exported(place, names_cases=False)

    for evalset in (first, second):
        assert place.run("score", traces, "--evalset", evalset).exit_code == 0

    runs = place.store().runs
    assert [runs.summary(run_id).config.evalset_name for run_id in (3, 5)] == ["first", "second"]


def test_the_same_conversations_count_once(place: CommandFolder) -> None:
    evalset = place.evalset("answers", {"hello": "hello"})
    place.eval(evalset)
    traces = exported(place, names_cases=False)
    copy = place.folder / "copy.otel.json"
    copy.write_bytes(traces.read_bytes())

    done = place.run("score", traces, copy, "--evalset", evalset)

    assert "two of the files hold the same conversations" in str(done.exception)


def test_chosen_cases_alone_are_scored(place: CommandFolder) -> None:
    evalset = place.evalset("answers", {"hello": "hello", "bye now": "see you"})
    place.eval(evalset)
    traces = exported(place, names_cases=True)

    done = place.run("score", traces, "--evalset", f"{evalset}:case_1")

    assert done.exit_code == 0
    assert "not scored" not in done.stderr
    assert [case_id for case_id, *_ in scores_of(place, 3)] == ["case_1"]


def test_a_state_that_the_traces_do_not_tell_is_not_judged(place: CommandFolder) -> None:
    evalset = place.evalset("answers", {"hello": "hello"})
    document = json.loads(evalset.read_text())
    document["eval_cases"][0]["final_session_state"] = {"count": 1}
    evalset.write_text(json.dumps(document))
    place.eval(evalset)
    traces = exported(place, names_cases=True)

    done = place.run("score", traces, "--evalset", evalset, "--criterion", "final_state_match=1", "--json")

    assert done.exit_code == 3
    assert json.loads(done.stdout)["counts"]["n_unscored"] == 1


@pytest.mark.parametrize(
    ("traces", "words"),
    [
        ("[]", "there is no recorded conversation"),
        ('{"eval_set_id": "x", "eval_cases": []}', "there is no recorded conversation"),
        ("{", "this is not JSON"),
    ],
)
def test_a_file_without_conversations_is_refused_before_anything_is_stored(
    place: CommandFolder, traces: str, words: str
) -> None:
    evalset = place.evalset("answers", {"hello": "hello"})
    Path("traces.json").write_text(traces)

    done = place.run("score", "traces.json", "--evalset", evalset)

    assert isinstance(done.exception, UsageError | FormatError)
    assert words in str(done.exception)
    assert not (place.folder / ".evaldesk/evaldesk.db").exists()


def trial(*messages: str, case_index: int = 0, trial_index: int = 0) -> TrialResult:
    """A finished trial of these messages that its source passed."""
    turns = tuple(TurnRecord(message, (Event("agent_message", text="yes"),)) for message in messages)
    scores = (Score("theirs", 1.0),)
    return TrialResult(0, case_index, trial_index, "finished", "passed", transcript=Transcript(turns), scores=scores)


def matched(
    trials: Sequence[TrialResult], evalset: EvalSet, ids: Sequence[str], named: frozenset[str] | None
) -> Matching:
    """The trials, each recorded under its id, matched to the set."""
    cases = tuple(Case(case_id, (Turn("recorded"),)) for case_id in ids)
    results = tuple(
        TrialResult(0, at, 0, each.status, each.verdict, transcript=each.transcript, scores=each.scores)
        for at, each in enumerate(trials)
    )
    return match_conversations(
        (Imported("otel", None, (RecordedRun("r", "a", cases, results),), case_ids=named),), evalset
    )


TWICE = EvalSet(
    "twice",
    cases=(
        Case("a", (Turn("hi", Expected(reference="x")),)),
        Case("b", (Turn("hi", Expected(reference="y")),)),
        Case("c", (Turn("hi"), Turn("and  then\u00a0?"))),
        Case("d", scenario={"starting_prompt": "hi"}),
    ),
)


@pytest.mark.parametrize(
    ("messages", "recorded_id", "is_named", "found"),
    [
        (("hi", "and then ?"), "1", False, "c"),
        (("hi",), "1", False, "several cases have these messages: a, b"),
        (("hi",), "b", True, "b"),
        (("hi",), "b", False, "several cases have these messages: a, b"),
        (("other words",), "d", True, "d"),
        (("other words",), "d", False, "no case has these messages"),
        (("hi", "and then ?"), "z", True, "c"),
        (("nothing",), "z", True, "it names the case 'z', which the set does not have, and no case has its messages"),
        ((), "1", False, "it has no message of a user"),
    ],
)
def test_a_conversation_is_of_the_named_case_or_of_the_only_one(
    messages: tuple[str, ...], recorded_id: str, *, is_named: bool, found: str
) -> None:
    anchor = trial("hi", "and then ?")  # something is matched always
    named = frozenset({recorded_id}) if is_named else frozenset[str]()

    matching = matched([trial(*messages), anchor], TWICE, [recorded_id, "anchor"], named)

    assert matching.run.cases == TWICE.cases
    reasons = [each.reason for each in matching.unmatched]
    ids = [matching.run.cases[result.case_index].id for result in matching.run.results]
    assert [*reasons, *ids] == ([found, "c"] if reasons else sorted([found, "c"]))
    assert all((result.verdict, result.scores) == ("unscored", ()) for result in matching.run.results)
    assert matching.missing_ids == tuple(case.id for case in TWICE.cases if case.id not in ids)


def test_without_a_match_the_first_reason_is_said() -> None:
    with pytest.raises(UsageError, match="of 1 conversation none is a trial of a case of the set; the first, 1 'no'"):
        matched([trial("no")], TWICE, ["1"], frozenset())
