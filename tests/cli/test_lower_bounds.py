"""Trials that do not tell every call: at each place where a run's tokens and cost stand they are lower bounds."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.desk.stored_desk import desk_on
from tests.run_columns import column_values

from evaldesk.cli import cli
from evaldesk.cli.eval.progress import progress_words
from evaldesk.desk.runs.gates.conclusion import conclude
from evaldesk.desk.runs.run_result import CaseResult, RunResult
from evaldesk.desk.runs.stored_runs import StoredRuns, joined_numbers
from evaldesk.desk.runs.trial_rows import trial_row
from evaldesk.model import AgentRef, Case, Event, RunConfig, Transcript, TrialResult, Turn, TurnRecord, Usage
from evaldesk.model.conclusion import Gates
from evaldesk.model.transcript import UNKNOWN
from evaldesk.pages.comparison import read_comparison
from evaldesk.pages.reports.markdown import SummaryPart, markdown_summary
from evaldesk.pages.runs.objects import run_object
from evaldesk.pages.runs.page import Figure, read_run
from evaldesk.pages.runs.view import RunQuery, known_cost
from evaldesk.pages.timeline import read_timeline
from evaldesk.store import Store

PRICED = Usage("openai/big", tokens_in=100, tokens_out=20, cost=0.25)
MAY = {
    "whole": (PRICED,),
    "unpriced": (Usage("mine", tokens_in=100, tokens_out=20),),
    "incomplete": (PRICED, Usage("unknown", is_least=True)),
    "untold": (),
    "silent": (),
    "seen": (),
}
LEAST = ("incomplete", "untold", "silent")
MIXES = [kinds for n in (1, 2) for kinds in product(MAY, repeat=n) if "seen" not in kinds]
"""In a trial that is "seen" no call of a model was: its cost is within each limit."""


def trial(key: tuple[int, int, int], kind: str, ms: float = 100.0) -> TrialResult:
    events = (Event("agent_message", text="4"), *(Event("usage", usage=usage) for usage in MAY[kind]))
    turn = TurnRecord("Roll.", events, duration_ms=ms, captures=("told",) if kind in {"silent", "seen"} else ())
    usages = (*MAY[kind], *((UNKNOWN,) if kind == "silent" else ()))
    return TrialResult(*key, "finished", "passed", "", Transcript((turn,)), (), usages, ms)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(tmp_path / ".evaldesk/evaldesk.db") as opened:
        yield opened


def played(store: Store, *kinds: str, ms: tuple[float, ...] = (), **values: Any) -> tuple[int, RunResult]:
    """A finished run of one case with a trial of each kind."""
    config, case = (
        RunConfig(AgentRef("dice", "dice:agent"), "set", n=len(kinds), **values),
        Case("roll", (Turn("Roll."),)),
    )
    run_id = store.runs.create(config, [case])
    results = [trial((run_id, 0, at), kind, ms[at] if ms else 100.0) for at, kind in enumerate(kinds)]
    store.runs.record(results)
    store.runs.set_status(run_id, "finished")
    return run_id, RunResult(run_id, config, (CaseResult(case, tuple(results), len(kinds)),))


def figure(figures: Any, label: str) -> Figure:
    found: Figure = next(each for each in figures if each.label == label)
    return found


@pytest.mark.parametrize("kinds", MIXES, ids="+".join)
def test_every_place_says_whether_tokens_are_a_lower_bound(store: Store, kinds: tuple[str, ...]) -> None:
    run_id, result = played(store, *kinds)
    n_least = sum(kind in LEAST for kind in kinds)
    tokens = sum(usage.tokens_in + usage.tokens_out for kind in kinds for usage in MAY[kind])
    summary, runs = store.runs.summary(run_id), StoredRuns(store.runs)

    page = read_run(store.runs, run_id, RunQuery())
    said = run_object(summary, runs.numbers(summary))
    rows = [trial_row(result.cases[0].case, each, result.config) for each in result.trials]

    assert (summary.tokens, summary.n_uncounted) == (tokens, n_least)
    assert [row.n_uncounted for row in store.runs.case_rows(run_id)] == [n_least]
    for name in ("tokens in", "tokens out"):
        assert figure(page.figures, name).is_least is (n_least > 0)
        assert (figure(page.figures, name).value is None) is (tokens == 0)
    assert (said["tokens"], said["n_uncounted"]) == (tokens, n_least)
    assert (f"at least {tokens:,} tokens" in progress_words(summary, None)) is (n_least > 0 and tokens > 0)
    assert (result.tokens, result.is_least) == (tokens, n_least > 0)
    assert [row["is_least"] for row in rows] == [kind in LEAST for kind in kinds]
    for at, kind in enumerate(kinds):
        assert read_timeline(store.runs, run_id, (0, at)).is_least is (kind in LEAST)


@pytest.mark.parametrize("kinds", MIXES, ids="+".join)
def test_every_place_says_whether_the_cost_is_a_lower_bound(store: Store, kinds: tuple[str, ...]) -> None:
    run_id, result = played(store, *kinds)
    is_least, known = set(kinds) != {"whole"}, 0.25 * kinds.count("whole")
    words = f"{'at least ' if is_least else ''}${known:.2f}" if known else "–"
    summary, runs = store.runs.summary(run_id), StoredRuns(store.runs)
    numbers = runs.numbers(summary)

    page, desk = read_run(store.runs, run_id, RunQuery()), desk_on(store)
    compared = read_comparison(desk, run_id, played(store, "whole")[0])
    said = run_object(summary, numbers)
    summed = markdown_summary([SummaryPart("dice", numbers, {})], runs.conclusion(summary))

    assert figure(page.figures, "cost")[2:] == (known or None, is_least)
    shown = (*column_values(page, "Cost"), known_cost(summary, summary), compared.a.cost)
    assert [cost.words for cost in shown] == [words] * 4
    assert ("Cost of a trial" in {each.title for each in compared.differences}) is not is_least
    assert (said["cost"], said["known_cost"]) == (None if is_least else known, known or None)
    assert (words in progress_words(summary, None)) is bool(known)
    assert (f"Cost {words}" in summed) is bool(known)
    assert result.cost == (None if is_least else known)


@pytest.mark.parametrize(
    ("kinds", "tokens", "cost"),
    [
        (("whole", "whole"), "240", "$0.50"),
        (("whole", "incomplete"), "at least 240", "at least $0.25"),
        (("whole", "untold"), "at least 120", "at least $0.25"),
        (("whole", "unpriced"), "240", "at least $0.25"),
        (("whole", "silent"), "at least 120", "at least $0.25"),
        (("untold",), "not known", "not known"),
        (("silent",), "not known", "not known"),
        (("seen",), "not known", "not known"),
    ],
    ids=lambda kinds: "+".join(kinds) if isinstance(kinds, tuple) else "",
)
def test_run_info_tells_lower_bounds(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], tokens: str, cost: str
) -> None:
    run_id, _ = played(store, *kinds)
    monkeypatch.chdir(tmp_path)
    ask = ["run", "info", str(run_id)]

    lines = dict(line.split(maxsplit=1) for line in CliRunner().invoke(cli, ask).output.splitlines() if " " in line)
    results = json.loads(CliRunner().invoke(cli, [*ask, "--json"]).output)["data"]

    assert (lines["Tokens"], lines["Cost"]) == (tokens, cost)
    assert (
        results["summary"]["n_uncounted"]
        == results["results"]["n_uncounted"]
        == int("at least" in tokens or kinds[0] in LEAST)
    )


@pytest.mark.parametrize(("kind", "n"), [("untold", "1 trial"), ("silent", "at least 1 trial")])
def test_a_limit_of_cost_is_not_said_to_hold_where_a_trial_tells_nothing(store: Store, kind: str, n: str) -> None:
    run_id, result = played(store, "whole", kind, gates=Gates(max_cost=1.0))
    within, above = (
        conclude(Gates(max_cost=most), StoredRuns(store.runs).numbers(store.runs.summary(run_id))).gates[-1]
        for most in (1.0, 0.1)
    )

    assert result.conclusion.gates[-1] == within
    assert (within.answer, above.answer) == ("undecided", "failed")
    assert within.sentence == f"the cost of {n} is not known, so the run cannot be held to $1"
    assert above.sentence.startswith("the run cost at least $0.25, more than $0.1")


@pytest.mark.parametrize("kinds", MIXES, ids="+".join)
def test_no_place_says_that_fewer_trials_have_an_unknown_cost_than_have(store: Store, kinds: tuple[str, ...]) -> None:
    run_id, result = played(store, *kinds, gates=Gates(max_cost=1.0))
    summary, runs = store.runs.summary(run_id), StoredRuns(store.runs)
    numbers, n_unknown = runs.numbers(summary), sum(kind != "whole" for kind in kinds)

    outcomes = [each.gates[-1] for each in (runs.conclusion(summary), conclude(Gates(max_cost=1.0), numbers))]
    joined = joined_numbers([numbers, numbers])
    summed = markdown_summary([SummaryPart("dice", numbers, {})], runs.conclusion(summary))

    assert outcomes == [result.conclusion.gates[-1]] * 2
    for n, words in ((n_unknown, outcomes[0].sentence), (n_unknown, summed), (2 * n_unknown, joined.costs.unknown)):
        said = re.search(r"the cost of (at least )?(\d)", words)
        assert bool(said) is (n > 0)
        assert said is None or (int(said[2]) <= n if said[1] else int(said[2]) == n)


def test_trials_without_a_time_do_not_pull_the_mean_down(store: Store) -> None:
    run_id, _ = played(store, "whole", "whole", "whole", ms=(300.0, 0.0, 100.0))
    other, _ = played(store, "whole", ms=(0.0,))

    page, compared = read_run(store.runs, run_id, RunQuery()), read_comparison(desk_on(store), other, run_id)

    assert [*column_values(page, "Time"), figure(page.figures, "mean of a trial").value] == [200.0] * 3
    assert (compared.a.mean_ms, compared.b.mean_ms) == (None, 200.0)
