"""The first runs of a sample: most of it works, one case fails and one is flaky, whatever was asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import evaldesk
from evaldesk.desk.runs.first_runs import _seed_of, first_seed
from evaldesk.desk.runs.run_result import RunResult
from evaldesk.model import AgentDescription, AgentRef, Case, EvalSet, Expected, RunConfig, ToolCall, Turn
from evaldesk.model.run import ToolDescription
from evaldesk.samples.hello_world.agent import roll_die
from evaldesk.store import Store

QUERY = "Roll a 20-sided die and check whether it is prime."
TOOLS = frozenset({"roll_die", "check_prime"})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALDESK_DEMO_DELAY_MS", "0")
    monkeypatch.delenv("EVALDESK_DEMO_MISTAKES", raising=False)


def _run(workspace: Path, evalset: object = "hello_world", **options: object) -> RunResult:
    result: RunResult = evaldesk.evaluate("samples/hello_world", evalset, workspace=workspace, **options)  # type: ignore[call-overload]
    return result


def _n_passed(result: RunResult) -> list[int]:
    return [case.counts.passed for case in result]


def test_the_first_run_of_a_sample_has_a_case_that_fails_and_one_that_is_flaky(tmp_path: Path) -> None:
    passed = _n_passed(_run(tmp_path, n=5))

    assert any(each * 2 < 5 for each in passed)
    assert any(0 < 5 - each < 5 / 2 for each in passed)
    assert sum(passed) * 2 > 5 * len(passed)


def test_the_first_run_of_a_single_chat_fails_now_and_then(tmp_path: Path) -> None:
    calls = (ToolCall("roll_die", {"sides": 20}), ToolCall("check_prime", {"nums": [roll_die(20, {})]}))
    case = Case("roll_20", turns=(Turn(QUERY, Expected(tool_calls=calls)),))

    (passed,) = _n_passed(_run(tmp_path, EvalSet("mine", cases=(case,)), n=5))

    assert 0 < passed < 5


def _seed(n_failed: int = 0, *, model: str | None = "demo/dice (scripted demo model)") -> int | None:
    """The seed of a run of the chat's case, when the last run of the agent had so many failed trials."""
    earlier = SimpleNamespace(counts=SimpleNamespace(failed=n_failed))
    store = SimpleNamespace(runs=SimpleNamespace(list=lambda **_: [earlier]))
    described = AgentDescription(
        name="hello_world", kind="litellm", model=model, tools=tuple(map(ToolDescription, TOOLS))
    )
    config = RunConfig(AgentRef("hello_world", "hello_world.agent:root_agent"), "mine", n=5)
    return first_seed(cast("Store", store), config, [Case("roll_20", turns=(Turn(QUERY),))], described)


def test_runs_are_seeded_until_a_failure_was_seen() -> None:
    assert _seed() is not None
    assert _seed(n_failed=1) is None


def test_a_real_model_is_left_to_chance() -> None:
    assert _seed(model="openai/gpt-5-mini") is None
    assert _seed(model=None) is None


def test_the_share_of_mistakes_is_that_of_the_model_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALDESK_DEMO_MISTAKES", "0")

    assert _seed() is None
    assert _seed(model="demo/dice?mistakes=0.3") is not None


def test_a_seed_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    assert _run(tmp_path, "hello_world:roll_16", n=1, seed=42).config.seed == 42


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_there_is_a_seed_for_every_number_of_trials(n: int) -> None:
    assert _seed_of((("roll_20", (QUERY,)),), TOOLS, n, 0.25) is not None


def test_a_conversation_in_which_nothing_can_go_wrong_has_none() -> None:
    assert _seed_of((("greets", ("hello",)),), TOOLS, 5, 0.25) is None
