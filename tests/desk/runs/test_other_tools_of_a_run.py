"""What other tools say of the trials of a run: each of them is asked about, and few statements read them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from evaldesk.desk.other_tools import difference, has_other_scores
from evaldesk.desk.runs.stored_runs import ByOtherTools, OtherVerdict, StoredRuns
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    ErrorRecord,
    Event,
    Expected,
    RunConfig,
    Score,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    trial_verdict,
)
from evaldesk.store import Store

CRITERIA = (Criterion("response_match_score", 0.5),)
N = 3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evaldesk.db") as opened:
        yield opened


def trial(run: int, case: int, index: int, said: str) -> TrialResult:
    score = Score("response_match_score", 1.0, None, 0.5, True)
    transcript = Transcript((TurnRecord("hi", (Event("agent_message", text=said),)),))
    if said == "":
        return TrialResult(run, case, index, "errored", "errored", error=ErrorRecord("agent_raised", "no"))
    verdict = trial_verdict([score], CRITERIA, None)
    return TrialResult(run, case, index, "finished", verdict, scores=(score,), transcript=transcript)


def stored(store: Store, n_cases: int) -> int:
    """A run of cases of which some assert nothing in a turn, with trials that broke off and that were not played."""
    answers = (Expected(reference="hello"), Expected(), Expected(reference=None, tool_calls=()))
    cases = [Case(f"c{at}", (Turn("hi", answers[at % 3]), Turn("hi", answers[at % 2]))) for at in range(n_cases)]
    run = store.runs.create(RunConfig(AgentRef("a", "a:a"), "set", n=N, criteria=CRITERIA), cases)
    said = ("hello", "bye", "")
    played = [(case, index) for case in range(n_cases) for index in range(N) if (case + index) % 7 != 3]
    store.runs.record([trial(run, case, index, said[(case * index) % 3]) for case, index in played])
    store.runs.set_status(run, "stopped")
    return run


def test_each_trial_is_asked_about_in_the_order_of_the_file(store: Store) -> None:
    run = store.runs.summary(stored(store, 120))
    wanted, n_scores = [], 0
    for row in StoredRuns(store.runs).rows(run.id):
        case = store.runs.case(run.id, row.case_index)
        keys = [(row.case_index, index) for index, mark in enumerate(row.verdicts) if mark != "."]
        trials = [store.runs.trials(run.id, [key])[key] for key in keys if store.runs.trials(run.id, [key])]
        reasons = Counter(difference("adk", case, each, CRITERIA) for each in trials)
        wanted += [OtherVerdict("adk", row.case_id, text, n, N) for text, n in reasons.items() if text]
        is_same = not any(reasons)
        n_scores += is_same and any(has_other_scores("adk", case, each, CRITERIA) for each in trials)

    found = StoredRuns(store.runs).by_other_tools(run)

    assert [each for each in found.verdicts if each.tool == "adk"] == wanted
    assert len(wanted) > 50
    assert found.n_scores.get("adk", 0) == n_scores


def test_cases_with_the_same_difference_are_one_sentence_that_counts_all_of_them(store: Store) -> None:
    found = StoredRuns(store.runs).by_other_tools(store.runs.summary(stored(store, 120)))
    broke_off = [each for each in found.verdicts if each.sentence.startswith("errored here")]

    (sentence,) = [each for each in found.sentences if "errored here" in each]

    n, names = sum(each.n for each in broke_off), ", ".join(each.case_id for each in broke_off[:10])
    assert len(broke_off) > 20
    assert sentence == (
        f"{len(broke_off)} cases ({n} of {N * len(broke_off)} trials): errored here, failed by `adk eval`: "
        f"a trial that broke off counts as failed there ({names}, and {len(broke_off) - 10} more)"
    )
    assert len(found.sentences) == len({each.sentence for each in found.verdicts})


@pytest.mark.parametrize(
    ("verdicts", "sentences"),
    [
        ([OtherVerdict("adk", "a", "why", 1, 1)], ["a: why"]),
        ([OtherVerdict("adk", "a", "why", 2, 5)], ["a (2 of 5 trials): why"]),
        ([OtherVerdict("adk", "a", "why", 1, 1), OtherVerdict("adk", "b", "why", 1, 1)], ["2 cases: why (a, b)"]),
        ([OtherVerdict("adk", "a", "why", 1, 1), OtherVerdict("adk", "b", "so", 1, 1)], ["a: why", "b: so"]),
    ],
)
def test_a_single_case_is_named_before_the_difference(verdicts: list[OtherVerdict], sentences: list[str]) -> None:
    assert ByOtherTools(tuple(verdicts), {}).sentences == sentences


def test_a_run_of_many_cases_is_read_by_few_statements(store: Store) -> None:
    n_asked = 0

    def note(*_: Any) -> None:
        nonlocal n_asked
        n_asked += 1

    run = store.runs.summary(stored(store, 300))
    event.listen(store._database._reader, "before_cursor_execute", note)
    StoredRuns(store.runs).by_other_tools(run)
    event.remove(store._database._reader, "before_cursor_execute", note)

    assert 0 < n_asked < 100


def test_a_tool_that_decides_by_no_criterion_is_named_once_and_no_trial_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = (Criterion("response_exact", 0.0), Criterion("tool_call_count_v1", None))
    cases = [Case(f"c{at}", (Turn("hi"),)) for at in range(3)]
    run = store.runs.summary(store.runs.create(RunConfig(AgentRef("a", "a:a"), "set", criteria=exact), cases))
    monkeypatch.setattr(store.runs, "trials", lambda *_: pytest.fail("a trial is read"))

    found = StoredRuns(store.runs).by_other_tools(run, "adk")

    sentence = "`adk eval` scores none of these cases: it does not decide by response_exact."
    assert (found.verdicts, found.n_scores, found.unscored) == ((), {}, (sentence,))
    assert StoredRuns(store.runs).by_other_tools(run).unscored == ()  # nobody spelled the command as it
