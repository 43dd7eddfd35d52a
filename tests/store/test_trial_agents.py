"""The agents of trees in the store: their failures, cost and time over the trials of a run, also after a retry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evaldesk.model import Event, ToolCall, Transcript, TrialResult, TurnRecord, Usage, Verdict
from evaldesk.store import Store

Plan = Callable[..., int]
End = Callable[..., TrialResult]


def of_tree(result: TrialResult, cost: float | None = 0.25) -> TrialResult:
    """The result with a turn in which a lead asks a scout."""
    ask = ToolCall("ask_scout", {}, "1")
    usage = Usage("m", tokens_in=10, tokens_out=5, cost=cost, duration_ms=100.0)
    events = (
        Event("tool_call", author="lead", call=ask),
        Event("usage", author="scout", parent="lead", within="ask_scout", usage=usage),
        Event("tool_result", author="lead", call=ask, result="no", is_error=True),
        Event("agent_message", author="lead", text="done"),
    )
    return replace(result, transcript=Transcript((TurnRecord("go", events),)))


def totals(store: Store, run: int, verdict: Verdict | None = None) -> dict[str, tuple[object, ...]]:
    return {
        each.name: (each.parent, each.n_trials, each.n_failed, each.n_errored, each.n_entries, each.cost, each.n_errors)
        for each in store.runs.agent_totals(run, verdict)
    }


def test_failures_cost_and_errors_are_counted_for_each_agent(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=2, n=2)
    verdicts: tuple[Verdict, ...] = ("passed", "failed", "errored")

    store.runs.record([of_tree(end(run, at // 2, at % 2, verdict)) for at, verdict in enumerate(verdicts)])
    store.runs.record([end(run, 1, 1, "passed")])

    assert store.runs.has_agent_totals(run)
    assert totals(store, run) == {"lead": ("", 3, 1, 1, 3, 0.0, 3), "scout": ("lead", 3, 1, 1, 3, 0.75, 0)}
    assert totals(store, run, "failed")["scout"][:3] == ("lead", 1, 1)
    [lead, scout] = store.runs.agent_totals(run)
    assert (lead.depth, scout.depth, scout.tool, scout.tokens, scout.duration_ms) == (0, 1, "ask_scout", 45, 300.0)


def test_an_unknown_cost_is_counted_apart(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=2, n=1)

    store.runs.record([of_tree(end(run, at, 0, "passed"), cost) for at, cost in enumerate((None, 0.5))])

    [_, scout] = store.runs.agent_totals(run)
    assert (scout.cost, scout.n_unpriced) == (0.5, 1)


def test_a_trial_that_is_played_again_counts_once(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=1, n=1)
    store.runs.record([of_tree(end(run, 0, 0, "errored"))])

    store.runs.retry_errored(run)
    [again] = store.runs.pending(run)
    store.runs.record([of_tree(replace(end(run, 0, 0, "passed"), attempt=again.attempt))])

    assert totals(store, run)["lead"][1:4] == (1, 0, 0)


def test_a_run_with_one_agent_has_no_such_rows(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=1, n=1)

    store.runs.record([end(run, 0, 0, "passed")])

    assert not store.runs.has_agent_totals(run)
    assert store.runs.agent_totals(run) == []
