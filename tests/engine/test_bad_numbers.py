"""A cost or a count that cannot be is an error of its trial, by name, whatever said it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.scripted import REF, Scripted
from tests.islands import of_tools

from evaldesk.agents.remote.protocol import read_events
from evaldesk.engine import InlineExecutor
from evaldesk.engine.worker.player import play_trial
from evaldesk.errors import BadNumberError
from evaldesk.formats.files import read_file
from evaldesk.llm import cost_at, price
from evaldesk.model import AgentRef, Event, Session, TrialResult, Usage
from evaldesk.model.transcript import MAX_NUMBER
from evaldesk.transcripts.recorded import whole_number
from evaldesk.wire import from_json, to_json

pytestmark = [of_tools("atif", "promptfoo", "swe_agent", "tau"), pytest.mark.anyio]

BAD = [-1, -0.5, math.nan, math.inf, -math.inf, 2**53 + 1, 1e300, 10**400]
FIELDS = ["tokens_in", "tokens_out", "cost"]
bad_numbers = st.one_of(
    st.floats(max_value=0, exclude_max=True, allow_nan=False),
    st.floats(min_value=MAX_NUMBER, exclude_min=True, allow_nan=False),
    st.just(math.nan),
    st.integers(max_value=-1),
    st.integers(min_value=MAX_NUMBER + 1),
    st.text(),
    st.booleans(),
)
good_numbers = st.one_of(st.floats(0, MAX_NUMBER), st.integers(0, MAX_NUMBER))


@given(st.sampled_from([*FIELDS, "n_attempts", "duration_ms"]), bad_numbers)
def test_a_usage_takes_no_number_that_cannot_be(field: str, value: Any) -> None:
    with pytest.raises(BadNumberError, match=rf"usage\.{field} must be a number from 0 to 2\*\*53, got"):
        Usage("m", **{field: value})


@given(good_numbers)
def test_a_usage_takes_every_number_that_can_be(value: float) -> None:
    usage = Usage("m", tokens_in=int(value), cost=value)

    assert from_json(to_json(usage), Usage) == usage


@pytest.mark.parametrize("value", [Decimal("0.25"), Fraction(1, 4)])
def test_a_number_of_another_type_is_the_number(value: Any) -> None:
    assert Usage("m", cost=value).cost == 0.25


def test_a_count_is_whole_and_an_unknown_cost_stays_unknown() -> None:
    with pytest.raises(BadNumberError, match=r"usage\.tokens_in must be a whole number, got 1\.5"):
        Usage("m", tokens_in=1.5)  # type: ignore[arg-type]

    assert Usage("m", tokens_in=3.0).tokens_in == 3  # type: ignore[arg-type]
    assert Usage("m").cost is None
    assert Usage("m", cost=0).cost == 0


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", BAD)
def test_the_protocol_of_commands_and_addresses_names_a_bad_number(field: str, value: float) -> None:
    with pytest.raises(BadNumberError, match=rf"usage\.{field}"):
        [*read_events({"kind": "usage", "model": "m", field: value}, Session("s"), "a")]


@pytest.mark.parametrize("value", BAD)
def test_a_count_of_a_foreign_form_names_a_bad_number(value: float) -> None:
    with pytest.raises(BadNumberError, match=r"usage\.prompt_token_count"):
        whole_number(value, "prompt_token_count")


@pytest.mark.parametrize("value", BAD)
def test_a_bad_number_takes_no_price_from_the_model(value: Any) -> None:
    with pytest.raises(BadNumberError, match=r"usage\.tokens_in"):
        price("gpt-4o-mini", value, 1)

    assert price("gpt-4o-mini", 1, 1)


def test_a_price_that_a_person_says_cannot_make_a_cost_that_cannot_be() -> None:
    usage = Usage("m", tokens_in=MAX_NUMBER, tokens_out=MAX_NUMBER)

    with pytest.raises(BadNumberError, match=r"usage\.cost"):
        Usage("m", cost=cost_at((1_000_000, 1_000_000), usage))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", BAD)
async def test_the_trial_of_a_bad_number_errs_and_says_which(field: str, value: float, trial: Any) -> None:
    async def reply(session: Session, message: str) -> AsyncIterator[Event]:
        yield Event("agent_message", text="on the way")
        forged = Usage("m")
        object.__setattr__(forged, field, value)  # as code that makes its own usage may
        yield Event("usage", usage=forged)

    result = await play_trial(Scripted(reply), trial(REF))

    assert (result.status, result.error and result.error.kind) == ("errored", "bad_number")
    assert result.error
    assert f"usage.{field} must be a number from 0 to 2**53, got " in result.error.message
    assert from_json(to_json(result), TrialResult).cost is None


SPENDING = """
from evaldesk.model import Event, Usage

async def agent(message):
    cost = {"nan": float("nan"), "less": -1, "more": 2**53 + 1, "inf": float("inf")}.get(message, 0.5)
    yield Event("usage", usage=Usage("m", 10, 1, cost=cost))
    yield Event("agent_message", text=message)
"""


async def test_the_other_trials_of_the_batch_are_not_touched(
    write_agent: Callable[..., AgentRef], trial: Any, play: Any
) -> None:
    agent = write_agent(SPENDING)
    queries = ("nan", "fine", "less", "more", "good", "inf")

    results = await play(InlineExecutor(), [trial(agent, n, (query,)) for n, query in enumerate(queries)])

    costs = [results[n].cost for n in range(len(queries))]
    assert costs == [None, 0.5, None, None, 0.5, None]
    assert [results[n].status for n in (1, 4)] == ["finished", "finished"]
    assert all("usage.cost must be" in results[n].error.message for n in (0, 2, 3, 5))


@pytest.mark.parametrize("value", [-1, -0.5, 2**53 + 1, 1e300, "12", "free", [1], True], ids=str)
@pytest.mark.parametrize("field", ["cost", "prompt"])
def test_a_bad_number_of_an_imported_row_is_the_error_of_its_trial_alone(field: str, value: object) -> None:
    def row(query: str) -> dict[str, Any]:
        return {
            "vars": {"q": query},
            "success": True,
            "response": {"output": "yes", "tokenUsage": {"prompt": 1, "completion": 1}},
            "cost": 0.5,
        }

    bad, good = row("bad"), row("good")
    (bad if field == "cost" else bad["response"]["tokenUsage"])[field] = value
    data = json.dumps({"results": {"version": 3, "results": [bad, good]}}).encode()

    [run] = read_file(data, "results.json", "promptfoo").runs

    errored, fine = run.results
    assert errored.error is not None
    assert (errored.verdict, errored.error.kind, errored.cost) == ("errored", "bad_number", None)
    assert re.match(rf"usage\.{field} must be a (whole )?number", errored.error.message)
    assert (fine.verdict, fine.cost) == ("passed", 0.5)


IMPORTED: dict[str, Any] = {
    "tau2-results": lambda tokens: {
        "tasks": [{"id": "a", "user_scenario": {"instructions": "Ask."}, "evaluation_criteria": None}],
        "info": {},
        "simulations": [
            {
                "task_id": "a",
                "trial": 0,
                "termination_reason": "user_stop",
                "reward_info": {"reward": 1.0},
                "messages": [
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "yes", "usage": {"prompt_tokens": tokens, "completion_tokens": 1}},
                ],
            }
        ],
    },
    "swe-agent": lambda tokens: {
        "environment": "e",
        "trajectory": [],
        "history": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}],
        "info": {"model_stats": {"tokens_sent": tokens, "tokens_received": 1, "instance_cost": 0.1}},
    },
    "atif": lambda tokens: {
        "schema_version": "ATIF-v1.4",
        "agent": {"name": "a", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "hi"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "yes",
                "metrics": {"prompt_tokens": tokens, "completion_tokens": 1},
            },
        ],
    },
}


@pytest.mark.parametrize("format_name", IMPORTED)
def test_text_for_tokens_is_never_zero_tokens(format_name: str) -> None:
    def imported(tokens: object) -> TrialResult:
        data = json.dumps(IMPORTED[format_name](tokens)).encode()
        [result] = read_file(data, "file.json", format_name).runs[0].results
        return result

    known, wrong = imported(12), imported("12")

    assert (known.error, known.usages[0].tokens_in) == (None, 12)
    assert wrong.error is not None
    assert (wrong.verdict, wrong.usages) == ("errored", ())
    assert "must be a number from 0 to 2**53, got str '12'" in wrong.error.message


def test_a_time_and_a_score_that_are_text_are_said_to_be_left_out() -> None:
    row = {
        "vars": {"q": "hi"},
        "success": True,
        "score": "0.9",
        "latencyMs": "long",
        "response": {"output": "yes"},
    }

    found = read_file(json.dumps({"results": {"version": 3, "results": [row]}}).encode(), "results.json", "promptfoo")

    assert [score.metric for score in found.runs[0].results[0].scores] == ["promptfoo"]
    assert {sentence.partition(",")[0] for sentence in found.refused} == {
        "Left out: a score that is not a number",
        "Left out: a time that is not a number of at least 0",
    }
