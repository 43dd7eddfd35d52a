"""Whole runs of an agent of ours against an endpoint with faults: engine, store and clients are the real ones."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.installed import skip_without

from evaldesk import evaluate
from evaldesk.desk.runs.plan import RunOptions, RunPlan, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine.driver.inline import InlineExecutor
from evaldesk.model import AgentRef, Case, Criterion, EvalSet, Expected, Turn
from evaldesk.model.stored import RunSummary
from evaldesk.pages.runs.page import run_page
from evaldesk.pages.runs.view import RunQuery
from evaldesk.pages.trial import trial_page
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = pytest.mark.anyio
both_clients = pytest.mark.usefixtures("client")

AGENT = """
from evaldesk import LlmAgent

root_agent = LlmAgent(name="small", model="{model}", api_base="{address}")
"""
CRITERIA = (Criterion("response_match_score", 0.5),)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[RunDesk]:
    folder = tmp_path / ".evaldesk"
    folder.mkdir()
    with Store.open(folder / "evaldesk.db") as store:
        settings = Settings(workspace=tmp_path, roots=())
        desk = RunDesk(settings, store, open_executor=lambda _: InlineExecutor(1))
        yield desk
        await desk.close()


async def _run(desk: RunDesk, root: Path, endpoint: Any, *, n_cases: int, model: str = "small") -> RunSummary:
    return await desk.run_to_end(_plan(desk, root, endpoint, n_cases=n_cases, model=model), lambda _: None)


def _plan(desk: RunDesk, root: Path, endpoint: Any, *, n_cases: int, model: str = "small") -> RunPlan:
    folder = root / "faulty"
    folder.mkdir()
    folder.joinpath("agent.py").write_text(AGENT.format(model=model, address=endpoint.address))
    cases = tuple(Case(f"c{index}", (Turn("hi", Expected(reference="hello")),)) for index in range(n_cases))
    ref = AgentRef("faulty", "faulty.agent:root_agent", root=str(root), folder=str(folder))
    subject = RunSubject(ref, EvalSet("set", cases=cases), "set")
    options = RunOptions(criteria=CRITERIA, concurrency=1, n_retries=1)
    return desk.plan_for(subject, options)


@both_clients
@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, None, "The model's provider does not accept the key, so no more trials were started: "),
        (404, "model_not_found", "The model does not exist, so no more trials were started: "),
    ],
)
async def test_a_refusal_for_good_stops_the_run_once_and_leaves_the_rest_pending(
    desk: RunDesk, tmp_path: Path, endpoint: Any, status: int, code: str | None, says: str
) -> None:
    for _ in range(5):
        endpoint.fails(status, "no", code)

    run = await _run(desk, tmp_path, endpoint, n_cases=5)

    assert (run.status, run.n_errored, run.n_todo) == ("failed", 1, 4)
    assert len(endpoint.asked) == 1
    assert run.reason.startswith(says)
    assert "\n" not in run.reason


BROKEN_CLIENT = """
import httpx
from openai import AsyncOpenAI

class Broken(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request):
        with open({tried!r}, "a") as file:
            file.write("x")
        import a_package_that_is_not_there

async def root_agent(message):
    http_client = httpx.AsyncClient(transport=Broken())
    client = AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", http_client=http_client)
    messages = [{{"role": "user", "content": message}}]
    return (await client.chat.completions.create(model="small", messages=messages)).choices[0].message.content
"""


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_import_error_inside_a_client_stops_the_run_once_with_one_sentence(
    tmp_path: Path, own_imports: None, concurrency: int
) -> None:
    skip_without("openai")
    tried = tmp_path / "tried"
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "agent.py").write_text(BROKEN_CLIENT.format(tried=str(tried)))
    cases = tuple(Case(f"c{index}", (Turn("hi", Expected(reference="hello")),)) for index in range(12))

    result = evaluate(
        str(tmp_path / "broken"),
        EvalSet("set", cases=cases),
        criteria={"response_match_score": 0.5},
        concurrency=concurrency,
        workspace=str(tmp_path),
    )

    assert (result.status, result.counts.errored, result.counts.unplayed) == ("failed", 1, 11)
    assert len(tried.read_text()) <= concurrency  # no client tries again, and no trial begins after the first
    assert result.reason.startswith("The client of the model cannot send any request, so no more trials were started: ")
    assert "a_package_that_is_not_there" in result.reason
    assert "\n" not in result.reason


@both_clients
async def test_transient_failures_are_counted_and_logged_in_the_trial(
    desk: RunDesk, tmp_path: Path, endpoint: Any
) -> None:
    endpoint.fails(429, "slow down", retry_after="0").says("hello")

    run = await _run(desk, tmp_path, endpoint, n_cases=1)

    assert (run.status, run.n_passed) == ("finished", 1)
    trial = desk.run_store.trial(run.id, 0, 0)
    assert [usage.n_attempts for usage in trial.usages] == [2]
    [log] = [event.text for event in trial.transcript.turns[0].events if event.kind == "log"]
    assert log.startswith("rate-limited until ")


@both_clients
async def test_a_run_shows_a_rate_limit_while_it_waits(desk: RunDesk, tmp_path: Path, endpoint: Any) -> None:
    endpoint.fails(429, "slow down", retry_after="50")
    run_id = await desk.start(_plan(desk, tmp_path, endpoint, n_cases=1))

    async for _ in desk.watch(run_id):
        said = (await run_page(desk, run_id, RunQuery())).progress.detail
        if "wait" in said:
            break
    await desk.stop(run_id, cancel=True)
    async for _ in desk.watch(run_id):
        pass  # until it is over

    assert re.fullmatch(r"1 running\. 1 trial waits: rate-limited until \d\d:\d\d:\d\d\.", said)
    assert desk.pause(run_id) == ""


@both_clients
async def test_faults_that_stay_are_errors_of_their_trials_and_never_answers(
    desk: RunDesk, tmp_path: Path, endpoint: Any
) -> None:
    for _ in range(2):
        endpoint.gives(b"<html>")
    endpoint.fails(400, "bad words").says("hello")

    run = await _run(desk, tmp_path, endpoint, n_cases=3)

    assert (run.status, run.n_errored, run.n_passed) == ("finished", 2, 1)


@both_clients
async def test_the_cost_of_a_model_without_a_price_is_unknown(desk: RunDesk, tmp_path: Path, endpoint: Any) -> None:
    endpoint.says("hello")

    run = await _run(desk, tmp_path, endpoint, n_cases=1)

    trial = await trial_page(desk, run.id, (0, 0))
    assert trial.result
    [usage] = trial.result.usages
    assert (usage.role, usage.model, usage.tokens_in, usage.cost) == ("agent", "small", 11, None)
    assert trial.result.cost is None


async def test_the_cost_of_a_model_with_a_price_is_known(
    desk: RunDesk, tmp_path: Path, endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-the-tests")
    endpoint.says("hello")

    run = await _run(desk, tmp_path, endpoint, n_cases=1, model="openai/gpt-4o-mini")

    trial = await trial_page(desk, run.id, (0, 0))
    assert trial.result
    assert trial.result.cost == pytest.approx(11 * 0.15e-6 + 5 * 0.6e-6)
