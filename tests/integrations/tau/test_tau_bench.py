"""Results of tau-bench: what its published runs say must come out of the imported file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.integrations.tau.tau_bench import REWARD, TauBench
from evaldesk.model import ToolCall


def _row(task_id: int = 0, trial: int = 0, reward: float = 1.0, **more: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": '{"n": 1}'}}
    task = {"user_id": "u", "instruction": "Book it.", "actions": [{"name": "book", "kwargs": {}}], "outputs": []}
    return {
        "task_id": task_id,
        "trial": trial,
        "reward": reward,
        "info": {"task": task, "source": "user", "reward_info": {"reward": reward, "info": {"r_actions": reward}}},
        "traj": [
            {"role": "system", "content": "policy"},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "name": "book", "content": "done"},
            {"role": "assistant", "content": "Booked."},
            {"role": "user", "content": "###STOP###"},
        ],
        **more,
    }


def _read(rows: object) -> Imported:
    data = json.dumps(rows).encode()
    assert TauBench.recognises(data, "x.json")
    return TauBench.read(data, source="folder/gpt-4o-airline.json")


def test_a_trial_has_its_turns_its_calls_and_its_reward() -> None:
    found = _read([_row(reward=0.0)])

    (case,), (run,) = found.evalset.cases if found.evalset else (), found.runs
    (result,) = run.results
    (turn,) = result.transcript.turns
    assert (run.name, case.id, case.scenario) == (
        "gpt-4o-airline",
        "0",
        {"starting_prompt": "", "conversation_plan": "Book it."},
    )
    assert case.extra == {"actions": [{"name": "book", "kwargs": {}}], "outputs": []}
    assert (turn.query, turn.answer, turn.tool_calls) == ("Hi", "Booked.", (ToolCall("book", {"n": 1}, "c1"),))
    assert (result.verdict, result.stop_reason, result.scores[0].value) == ("failed", "user_stop", 0.0)
    assert result.scores[0].reason == "The database differs from that of the reference actions."
    assert run.criteria == (REWARD,)


def test_trials_are_numbered_without_gaps_and_the_later_of_two_counts() -> None:
    rows = [_row(3, 2), _row(3, 0), _row(1, 0), _row(3, 2), _row(3, 7)]

    found = _read(rows)

    (run,) = found.runs
    assert [(result.case_index, result.trial_index) for result in run.results] == [(0, 0), (1, 0), (0, 1), (0, 2)]
    assert [len(result.earlier) for result in run.results] == [0, 0, 1, 0]
    assert found.kept[-1].startswith("1 earlier result of a trial")


def test_a_reward_that_is_one_but_for_rounding_passes() -> None:
    (run,) = _read([_row(reward=1 - 1e-7), _row(1, reward=0.99)]).runs

    assert [result.verdict for result in run.results] == ["passed", "failed"]


def test_a_trial_that_broke_is_an_error_and_not_a_failure() -> None:
    broken = {"task_id": 0, "trial": 0, "reward": 0.0, "info": {"error": "boom", "traceback": "at x"}, "traj": []}

    found = _read([broken, _row(0, 1)])

    (run,) = found.runs
    first, second = run.results
    assert (first.verdict, first.error and first.error.message, first.scores) == ("errored", "boom", ())
    assert second.verdict == "passed"
    assert (run.cases[0].scenario or {})["conversation_plan"] == "Book it."
    assert "1 trial ended in an error; tau-bench itself counts them as failures." in found.understood


def test_big_numbers_and_unknown_keys_of_a_task_survive() -> None:
    row = _row()
    row["info"]["task"]["odd"] = 2**80

    assert _read([row]).runs[0].cases[0].extra["odd"] == 2**80


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (_row(reward="1"), "[0].reward: expected a number, got a string"),  # type: ignore[arg-type]
        (_row(trial="x"), "[0].trial: expected a whole number"),  # type: ignore[arg-type]
        (_row(task_id=None), "[0].task_id: expected a number or a string"),  # type: ignore[arg-type]
        (_row(traj=None), "[0].traj: expected a list"),
        (_row(info=[]), "[0].info: expected an object"),
    ],
)
def test_a_fault_is_named_with_its_place(row: dict[str, Any], said: str) -> None:
    with pytest.raises(FormatError) as caught:
        _read([row])

    assert said in str(caught.value)
