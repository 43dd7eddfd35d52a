"""Real files of other tools, which are not ours to publish: played only where `../shared` is beside the checkout.

`EVALDESK_SHARED` names another folder. What the formats promise is also shown by samples of our own, in other tests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from runpy import run_path
from typing import Any
from uuid import uuid4

import pytest
from tests.agents.endpoint import served
from tests.agents.installed import skip_without
from tests.desk.test_sessions_that_repeat import added_case, added_case_of, is_green, play
from tests.documents.conftest import Snippets
from tests.documents.statements import NAMES, commands_of, faults_of, rows_of, sample_text, snippets_of
from tests.formats.test_otel import shown
from tests.islands import has_island

from evaldesk.agents import load_agent
from evaldesk.desk.criteria.criteria import read_criteria, read_user
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.imports.importing import ImportDesk
from evaldesk.desk.runs.file import read_run_file
from evaldesk.engine import play_trial
from evaldesk.errors import FormatError
from evaldesk.formats import evalset_format, load_evalset, losses, read_evalset, write_evalset
from evaldesk.formats.criteria_file import read_criteria_file, write_criteria_file
from evaldesk.formats.files import read_file, write_file
from evaldesk.metrics import score_trial
from evaldesk.model import AgentRef, Case, Criterion, EvalSet, Event, Expected, ToolCall, Transcript, TrialSpec, Turn
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery
from evaldesk.settings import Settings
from evaldesk.statistics.intervals import curve_point, pass_at_k
from evaldesk.store import Store

SHARED = Path(os.environ.get("EVALDESK_SHARED") or Path(__file__).resolve().parents[2] / "shared")
DATA = SHARED / "data"
ADK = DATA / "adk"
if not ADK.is_dir():
    pytest.skip("no ../shared beside this checkout", allow_module_level=True)
if not all(map(has_island, ("bfcl", "openhands", "osmosis", "swe_agent", "tau"))):
    pytest.skip("the folder of a tool was removed", allow_module_level=True)

from tests.integrations.openhands.test_openhands_exchange import said
from tests.integrations.osmosis.test_osmosis_exchange import cases_of
from tests.integrations.osmosis.test_osmosis_results_exchange import recorded, strips

from evaldesk.integrations.bfcl.cases import Bfcl
from evaldesk.integrations.openhands.kit.events import CmdRunAction, EventSource, MessageAction
from evaldesk.integrations.openhands.kit.shared import codeact_user_response
from evaldesk.integrations.openhands.kit.state import State
from evaldesk.integrations.osmosis.command.rubrics import read_records, read_rubric_config
from evaldesk.integrations.swe_agent.trajectory import SweAgent
from evaldesk.integrations.tau.tau_bench import TauBench

PUBLISHED = {1: 0.420, 2: 0.273, 3: 0.220, 4: 0.200}
"""Published by tau-bench for gpt-4o, airline, tool calling (its README)."""
# Format, cases, turns, file.
EVAL_SETS = """
adk 1 1 adk-docs/docs__evaluate__index.md__json00.json
adk 2 3 adk-docs/docs__evaluate__index.md__json01.json
adk 2 2 adk-python/contributing__samples__live__live_non_blocking_tool_agent__live_non_blocking_tool_agent.evalset.json
adk 1 0 FIXTUREconversation_scenario__conversation_scenario.test.json
adk 1 4 FIXTUREecommerce_customer_service_agent__order_query.test.json
adk-flat 1 4 FIXTUREecommerce_customer_service_agent__order_query.test.old_schema.json
adk 1 2 FIXTUREelicitation_agent__elicitation_flow.test.json
adk 1 3 FIXTUREhello_world_agent__roll_die.test.json
adk-flat 1 3 FIXTUREhello_world_agent__roll_die.test.old_schema.json
adk 1 1 FIXTUREhome_automation_agent__simple_test.test.json
adk-flat 1 1 FIXTUREhome_automation_agent__simple_test.test.old_schema.json
adk-flat 1 1 FIXTUREhome_automation_agent__simple_test2.test.json
adk 1 2 FIXTUREhome_automation_agent__test_files__dependent_tool_calls.test.json
adk-flat 1 2 FIXTUREhome_automation_agent__test_files__dependent_tool_calls.test.old_schema.json
adk 1 2 FIXTUREhome_automation_agent__test_files__memorizing_past_events__eval_data.test.json
adk-flat 1 2 FIXTUREhome_automation_agent__test_files__memorizing_past_events__eval_data.test.old_schema.json
adk 1 2 FIXTUREhome_automation_agent__test_files__simple_multi_turn_conversation.test.json
adk-flat 1 2 FIXTUREhome_automation_agent__test_files__simple_multi_turn_conversation.test.old_schema.json
adk 1 2 FIXTUREhome_automation_agent__test_files__simple_test.test.json
adk 1 1 FIXTUREhome_automation_agent__test_files__simple_test2.test.json
adk 1 1 FIXTUREtrip_planner_agent__test_files__trip_inquiry_sub_agent.test.json
adk-flat 1 1 FIXTUREtrip_planner_agent__test_files__trip_inquiry_sub_agent.test.old_schema.json
adk-flat 1 2 FIXTUREtrip_planner_agent__trip_inquiry.test.json
adk-old 2 16 adk-samples/agents__code-reviewer__eval__data__evalset001.evalset.json
adk-old 2 14 adk-samples/agents__code-reviewer__eval__data__evalset002.evalset.json
adk 6 11 adk-samples/contrib__python__crypto-payroll-agent__eval__crypto_payroll_eval_set.evalset.json
adk 2 2 adk-samples/core__python__long-horizon-harness__tests__eval__evalsets__basic.evalset.json
adk-flat 1 22 adk-samples/python__agents__RAG__eval__data__conversation.test.json
adk 1 1 adk-samples/python__agents__academic-research__eval__data__academic_research_evalset.test.json
adk 1 1 adk-samples/python__agents__academic-research__eval__data__seminal.test.json
adk-old 1 6 adk-samples/python__agents__brand-search-optimization__eval__data__eval_data1.evalset.json
adk-flat 1 10 adk-samples/python__agents__customer-service__eval__eval_data__full_conversation.test.json
adk-flat 1 2 adk-samples/python__agents__customer-service__eval__eval_data__simple.test.json
adk-flat 1 2 adk-samples/python__agents__data-science__eval__eval_data__simple.test.json
adk 1 2 adk-samples/python__agents__financial-advisor__eval__data__financial-advisor.test.json
adk-flat 1 1 adk-samples/python__agents__financial-advisor__eval__data__seminal.test.json
adk-flat 1 1 adk-samples/python__agents__llm-auditor__eval__data__blueberries.test.json
adk-flat 1 1 adk-samples/python__agents__llm-auditor__eval__data__ice_cream_sandwich.test.json
adk-flat 1 1 adk-samples/python__agents__marketing-agency__eval__data__seminal.test.json
adk-flat 1 1 adk-samples/python__agents__personalized-shopping__eval__eval_data__simple.test.json
adk-flat 1 1 adk-samples/python__agents__personalized-shopping__tests__tools__tools.test.json
adk 1 3 adk-samples/python__agents__travel-concierge__eval__data__inspire.test.json
adk 1 4 adk-samples/python__agents__travel-concierge__eval__data__intrip.test.json
adk 1 2 adk-samples/python__agents__travel-concierge__eval__data__pretrip.test.json
"""
READ = {
    name.replace("FIXTURE", "adk-python/tests__integration__fixture__"): (file_format, int(n_cases), int(n_turns))
    for file_format, n_cases, n_turns, name in map(str.split, EVAL_SETS.strip().splitlines())
}
REFUSED = {
    "this is an eval config (test_config.json)": [
        "adk-docs/docs__evaluate__criteria.md__json00.json",
        "adk-docs/docs__evaluate__criteria.md__json03.json",
        "adk-docs/docs__evaluate__criteria.md__json04.json",
        "adk-docs/docs__evaluate__criteria.md__json05.json",
        "adk-docs/docs__evaluate__criteria.md__json06.json",
        "adk-docs/docs__evaluate__criteria.md__json08.json",
        "adk-docs/docs__evaluate__criteria.md__json10.json",
        "adk-docs/docs__evaluate__criteria.md__json12.json",
        "adk-docs/docs__evaluate__criteria.md__json14.json",
        "adk-docs/docs__evaluate__custom_metrics.md__json00.json",
        "adk-docs/docs__evaluate__custom_metrics.md__json01.json",
        "adk-docs/docs__evaluate__index.md__json02.json",
        "adk-docs/docs__evaluate__user-sim.md__json04.json",
        "adk-docs/docs__evaluate__user-sim.md__json05.json",
        "adk-python/tests__integration__fixture__conversation_scenario__test_config.json",
        "adk-python/tests__integration__fixture__ecommerce_customer_service_agent__test_config.json",
        "adk-python/tests__integration__fixture__hello_world_agent__test_config.json",
        "adk-python/tests__integration__fixture__home_automation_agent__test_config.json",
        "adk-python/tests__integration__fixture__trip_planner_agent__test_config.json",
        "adk-samples/python__agents__RAG__eval__data__test_config.json",
        "adk-samples/python__agents__brand-search-optimization__eval__data__test_config.json",
        "adk-samples/python__agents__customer-service__eval__eval_data__test_config.json",
        "adk-samples/python__agents__llm-auditor__eval__data__test_config.json",
        "adk-samples/python__agents__personalized-shopping__eval__eval_data__test_config.json",
        "adk-samples/python__agents__personalized-shopping__tests__tools__test_config.json",
        "adk-samples/python__agents__travel-concierge__eval__data__test_config.json",
    ],
    "this is one conversation scenario": [
        "adk-docs/docs__evaluate__user-sim.md__json01.json",
        "adk-docs/docs__evaluate__user-sim.md__json06.json",
    ],
    "this is a list of conversation scenarios": [
        "adk-docs/docs__evaluate__user-sim.md__json02.json",
    ],
    "this is a session input (the start of a session)": [
        "adk-docs/docs__evaluate__user-sim.md__json03.json",
    ],
    "this is a config for generating conversations": [
        "adk-docs/docs__evaluate__user-sim.md__json07.json",
    ],
    "this is an input for `adk run --replay`": [
        "adk-python/contributing__samples__session_state_agent__input.json",
    ],
    "this is a recording for `adk test` (a list of events)": [
        "adk-python/contributing__samples__tools__parallel_functions__tests__test_parallel_weather.json",
    ],
    "this is a session export of an ADK before its release": [
        "adk-python/tests__integration__fixture__context_update_test__successful_test.session.json",
        "adk-python/tests__integration__fixture__flow_complex_spark__sample.session.json",
    ],
    "this is a session export": [
        "adk-python/tests__integration__fixture__trip_planner_agent__initial.session.json",
        "adk-samples/python__agents__customer-service__eval__sessions__123.session.json",
        "adk-samples/python__agents__personalized-shopping__tests__example_interactions__image_search_denim_skirt.session.json",
        "adk-samples/python__agents__personalized-shopping__tests__example_interactions__text_search_floral_dress.session.json",
    ],
}


def _adk(name: str) -> EvalSet:
    return read_evalset((ADK / name).read_bytes(), source=name)


def _json(data: bytes) -> str:
    """As text, so that the order of keys and 1 against 1.0 count."""
    return json.dumps(json.loads(data))


def test_the_tables_name_every_file_of_adk() -> None:
    refused = {name for names in REFUSED.values() for name in names}

    assert READ.keys() | refused == {path.relative_to(ADK).as_posix() for path in ADK.glob("*/*.json")}


def test_the_eval_sets_of_adk_are_read_in_full() -> None:
    evalsets = {name: _adk(name) for name in READ}

    assert {
        name: (evalset_format(evalset), len(evalset.cases), sum(len(case.turns) for case in evalset.cases))
        for name, evalset in evalsets.items()
    } == READ
    old = [name for name, (file_format, *_) in READ.items() if file_format != "adk"]
    assert [name for name in old if losses(evalsets[name], evalset_format(evalsets[name]))] == []


@pytest.mark.parametrize("reason", REFUSED)
def test_files_of_another_kind_are_refused_by_its_name(reason: str) -> None:
    for name in REFUSED[reason]:
        with pytest.raises(FormatError) as refused:
            _adk(name)

        assert (refused.value.reason.startswith(reason), refused.value.source) == (True, name)


def test_an_untouched_eval_set_is_written_back_with_every_key_in_its_place() -> None:
    for name in READ:
        evalset = _adk(name)

        written = write_evalset(evalset, evalset_format(evalset))

        assert _json(written) == _json((ADK / name).read_bytes()), name
        assert read_evalset(written, source=name) == evalset


def test_editing_one_turn_changes_nothing_else() -> None:
    for name in (name for name, (_, _, n_turns) in READ.items() if n_turns):
        evalset = _adk(name)
        index, case = next((index, case) for index, case in enumerate(evalset.cases) if case.turns)
        turn = replace(case.turns[0], query="an entirely new question")
        edited_case = replace(case, turns=(turn, *case.turns[1:]))
        cases = (*evalset.cases[:index], edited_case, *evalset.cases[index + 1 :])

        written = _json(write_evalset(replace(evalset, cases=cases), evalset_format(evalset)))

        query = json.dumps(case.turns[0].query)[1:-1]
        before = _json((ADK / name).read_bytes())
        assert written.replace("an entirely new question", query, 1) == before, name


def test_an_eval_set_says_the_same_in_the_new_form() -> None:
    for name in READ:
        evalset = _adk(name)

        again = read_evalset(write_evalset(evalset, "adk"), source=name)

        assert [_asserted(case) for case in again.cases] == [_asserted(case) for case in evalset.cases], name


def _asserted(case: Case) -> tuple[object, ...]:
    return case.id, case.initial_state, [(turn.query, _expected(turn.expected)) for turn in case.turns]


def _expected(expected: Expected) -> tuple[object, ...]:
    calls = expected.tool_calls
    return calls and [(call.name, call.args) for call in calls], expected.intermediate, expected.reference


FORMATS_OF = {
    "tau/gpt-4o-airline.json": "tau-bench",
    "osmosis/git-sync-example/test_data.jsonl": "osmosis-jsonl",
    "osmosis/sdk-v0.2.20/multiply.jsonl": "osmosis-jsonl",
    "openhands/v0_evaloutput.jsonl": "openhands",
    "openhands/v0_resolver_output.jsonl": "openhands",
    "agentevals_otel/eval_set_helm.json": "adk",
    "adk/adk-samples/python__agents__customer-service__eval__sessions__123.session.json": "adk-session",
    "adk/adk-docs/docs__evaluate__user-sim.md__json02.json": "adk-scenarios",
    "adk/adk-samples/agents__code-reviewer__eval__data__evalset001.evalset.json": "adk-old",
    "adk/adk-samples/python__agents__RAG__eval__data__conversation.test.json": "adk-flat",
}
UNREAD = {
    "osmosis/sdk-v0.2.17/rubric_sample_data.jsonl": "evaldesk rubric -d",
    "osmosis/sdk-main/wire_completion_success.json": "no format knows this file",
    "agentevals_otel/dice_agent_eval_set.json": "eval_cases[0].eval_id",
    "adk/adk-docs/docs__evaluate__criteria.md__json06.json": "evaldesk eval --config-file-path",
}


def test_a_file_is_recognised_for_what_it_is() -> None:
    assert {name: read_file((DATA / name).read_bytes(), Path(name).name).format for name in FORMATS_OF} == FORMATS_OF
    for name, reason in UNREAD.items():
        with pytest.raises(FormatError, match=re.escape(reason)):
            read_file((DATA / name).read_bytes(), Path(name).name)


def test_a_trajectory_of_swe_agent_is_read() -> None:
    name = "marshmallow-1867.function_calling.traj"
    data = (DATA / "swe_agent" / name).read_bytes()

    assert SweAgent.recognises(data, name)
    found = SweAgent.read(data, source=name)

    (run,) = found.runs
    (result,) = run.results
    (turn,) = result.transcript.turns
    assert len(turn.tool_calls) == 11
    assert turn.tool_calls[0] == ToolCall("create", {"filename": "reproduce.py"}, "call_cyI71DYnRdoLHWwtZgIaW2wr")
    assert sum(event.kind == "tool_result" for event in turn.events) == 11
    assert (result.stop_reason, turn.state_after["exit_status"], result.usages) == ("submitted", "submitted", ())
    assert turn.query.startswith("We're currently solving the following issue")
    assert run.cases[0].turns[0].expected.tool_calls is None


def test_all_cases_and_calls_of_bfcl_are_read() -> None:
    folder = DATA / "bfcl"
    names = ["BFCL_v4_multi_turn_base.json", "possible_answer_BFCL_v4_multi_turn_base.json"]
    docs = sorted(path.name for path in folder.glob("func_doc_*.json"))
    data = b"\n".join((folder / name).read_bytes() for name in (*names, *docs))

    found = Bfcl.read(data, source="both.jsonl")

    assert found.evalset
    turns = [turn for case in found.evalset.cases for turn in case.turns]
    calls = [call for turn in turns for call in turn.expected.tool_calls or ()]
    assert (len(found.evalset.cases), len(turns), len(calls)) == (200, 734, 1142)
    assert sum(turn.expected.tool_calls == () for turn in turns) == 3
    assert found.refused == ()
    first = found.evalset.cases[0]
    assert first.turns[2].expected.tool_calls == (ToolCall("sort", {"file_name": "final_report.pdf"}),)
    assert list(first.initial_state) == ["GorillaFileSystem", "TwitterAPI"]
    assert not any("0" in call.args for call in calls)


def test_every_file_of_criteria_in_the_documents_of_adk_is_read() -> None:
    files = [path for path in (ADK / "adk-docs").glob("*.json") if "criteria" in json.loads(path.read_text())]

    assert len(files) > 10
    for path in files:
        read_user(path)
        assert read_criteria(path) is not None, path


def criteria_files() -> list[Path]:
    values = ((path, json.loads(path.read_text("utf-8-sig"))) for path in sorted(ADK.rglob("*.json")))
    return [path for path, value in values if isinstance(value, dict) and "criteria" in value]


def test_every_file_of_criteria_is_read_and_written_back() -> None:
    paths = criteria_files()
    assert len(paths) > 15

    for path in paths:
        criteria = read_criteria(path)
        file = read_criteria_file(path.read_bytes(), source=path.name)
        assert len(criteria) == len(json.loads(path.read_text("utf-8-sig"))["criteria"])
        assert json.loads(write_criteria_file(file)) == json.loads(path.read_text("utf-8-sig"))


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("popularity_2epochs.eval", {("1", 0): "failed", ("1", 1): "passed", ("2", 0): "passed", ("2", 1): "passed"}),
        ("browser.json", {("1", 0): "passed"}),
        ("security-guide.json", {("1", 0): "passed", ("2", 0): "passed", ("3", 0): "passed"}),
        ("popularity_10samples.eval", {(str(n), 0): "unscored" for n in range(1, 11)}),
    ],
)
def test_the_verdicts_of_real_logs_are_those_of_inspect(name: str, verdicts: dict[tuple[str, int], str]) -> None:
    (run,) = read_file((DATA / "inspect" / name).read_bytes(), "x.eval").runs

    found = {(run.cases[one.case_index].id, one.trial_index): one.verdict for one in run.results}
    assert list(found.items()) == list(verdicts.items())


def test_the_trial_of_a_browser_has_its_calls_its_tokens_and_its_store() -> None:
    (run,) = read_file((DATA / "inspect" / "browser.json").read_bytes(), "x.eval").runs

    (result,) = run.results
    (turn,) = result.transcript.turns
    assert [call.name for call in turn.tool_calls] == [
        "web_browser_go",
        "web_browser_click",
        "web_browser_click",
        "web_browser_click",
    ]
    assert turn.answer.startswith("The AI Security Institute (AISI)")
    assert (run.model, result.tokens, result.duration_ms) == ("openai/gpt-4o-mini", 15516, 18517.0)
    assert result.usages[0].tokens_cached == 9088
    assert "WebBrowserStore:4g6KtU22C8DUjmbCoiJCfR:instance" in turn.state_after


def test_a_cancelled_log_says_so_and_keeps_its_samples() -> None:
    found = read_file((DATA / "inspect" / "popularity_cancelled.json").read_bytes(), "x.eval")

    assert len(found.runs[0].results) == 3
    assert found.runs[0].plan.status == "stopped"


def test_rows_of_openhands_are_read_whole() -> None:
    path = DATA / "openhands" / "v0_evaloutput.jsonl"

    run = read_file(path.read_bytes(), path.name).runs[0]

    assert [trial.verdict for trial in run.results] == ["unscored", "unscored", "unscored"]
    assert [trial.stop_reason for trial in run.results] == ["answered", "answered", "max_iterations"]
    assert [len(trial.transcript.turns[0].tool_calls) for trial in run.results] == [23, 33, 49]
    assert [usage.tokens_in for usage in run.results[0].usages][:1] == [5920]
    assert run.results[0].tokens == 567_716
    assert all(usage.duration_ms > 0 for trial in run.results for usage in trial.usages)
    events = [event for event in run.results[0].transcript.turns[0].events if event.kind in ("usage", "tool_call")]
    assert [event.kind for event in events] == ["usage", "tool_call"] * 23
    assert all(trial.cost is None for trial in run.results)
    errors = [said(event) for event in run.results[1].transcript.turns[0].events if event.kind == "log"]
    assert sum(text.startswith("error: ") for text in errors) == 1


def test_rows_of_the_resolver_of_openhands_are_read() -> None:
    path = DATA / "openhands" / "v0_resolver_output.jsonl"

    run = read_file(path.read_bytes(), path.name).runs[0]

    assert [case.id for case in run.cases] == ["neubig/pr-viewer#5", "neubig/pr-viewer#1"]
    assert [trial.verdict for trial in run.results] == ["passed", "passed"]
    assert [trial.cost for trial in run.results] == [pytest.approx(0.070713), pytest.approx(1.152933)]
    assert run.results[0].transcript.turns[0].answer.startswith("The MIT License has been")


def test_a_log_of_the_sdk_of_openhands_is_read() -> None:
    path = DATA / "openhands" / "v1_sdk_events.jsonl"

    imported = read_file(path.read_bytes(), path.name)

    [trial] = imported.runs[0].results
    calls = [call.name for turn in trial.transcript.turns for call in turn.tool_calls]
    assert (imported.format, set(calls)) == ("openhands-log", {"terminal"})
    assert (trial.tokens, trial.usages[0].tokens_cached) == (108_805, 68_193)
    assert trial.cost is None


def test_a_trajectory_of_the_page_of_openhands_is_read() -> None:
    path = DATA / "openhands" / "v0_trajectory_basic_gui_mode.json"

    imported = read_file(path.read_bytes(), path.name)

    [turn] = imported.runs[0].results[0].transcript.turns
    assert imported.format == "openhands-log"
    assert turn.query.startswith("I want to create a VueJS app")
    assert [call.name for call in turn.tool_calls] == [
        "execute_bash",
        "str_replace_editor",
        "str_replace_editor",
        "execute_bash",
    ]
    assert [event.is_error for event in turn.events if event.kind == "tool_result"] == [False, False, False, True]
    assert turn.answer.startswith("I've created a complete Vue.js todo application")


def test_data_sets_of_osmosis_are_read_whole() -> None:
    files = {"git-sync-example/test_data.jsonl": 5, "sdk-v0.2.20/multiply.jsonl": 1000}

    for name, n in files.items():
        path = DATA / "osmosis" / name
        found = cases_of(read_file(path.read_bytes(), path.name))
        assert len(found) == n
        again = read_file(write_file(EvalSet(path.stem, cases=found), "osmosis-jsonl"), path.name)
        assert cases_of(again) == found


@pytest.mark.parametrize("name", ["multi_attempt_pass_at_k", "single_attempt_all_pass", "all_failed_no_rewards"])
def test_an_index_of_a_local_run_of_osmosis_gives_the_published_numbers(name: str) -> None:
    golden = json.loads((DATA / "osmosis" / "sdk-main" / f"eval_local_{name}.json").read_text())
    data = "\n".join(json.dumps(row) for row in golden["index"]).encode()

    (run,) = recorded(data, "index.jsonl")

    verdicts = Counter(trial.verdict for trial in run.results)
    assert verdicts["passed"] == golden["expected"]["passed"]
    for point in golden["expected"].get("pass_at_k", []):
        rates = [pass_at_k(len(verdicts), verdicts.count("p"), point["k"]) or 0.0 for verdicts in strips(run)]
        assert sum(rates) / len(rates) == pytest.approx(point["value"])
    summary = json.loads(write_file(run, "osmosis-results"))["summary"]
    assert (summary["total_runs"], summary["total_tokens"]) == (
        golden["expected"]["total_samples"],
        golden["expected"]["tokens_used"],
    )
    published = golden["expected"].get("reward_stats")
    if published:
        [written] = summary["eval_fns"].values()
        assert {name: written[name] for name in ("mean", "std", "min", "max")} == pytest.approx(
            {name: published[name] for name in ("mean", "std", "min", "max")}
        )


@pytest.mark.parametrize(
    ("trace", "evalset"),
    [("helm_3.json", "evalset_helm_3_2026-02-23.json"), ("k8s.json", "evalset_k8s_2026-02-20.json")],
)
def test_a_trace_becomes_the_eval_set_that_another_tool_made_of_it(trace: str, evalset: str) -> None:
    folder = DATA / "agentevals_otel"
    wanted = load_evalset(folder / evalset)

    found = read_file((folder / trace).read_bytes(), trace).evalset

    assert found
    ((case,), (other,)) = found.cases, wanted.cases
    assert shown(case) == shown(other)
    assert _responses(case) == _responses(other)


def _responses(case: Case) -> list[Any]:
    """What the tools gave; the other tool writes `is_error` where the trace says `isError`."""
    found: Any = case.turns[0].expected.extra.get("tool_responses") or []
    return [(one["name"], one["id"], one["response"]["content"]) for one in found]


@pytest.mark.parametrize(
    ("trace", "evalset", "value"),
    [
        ("helm.json", "eval_set_helm.json", 1.0),
        ("helm_2.json", "eval_set_helm.json", 0.0),
        ("k8s.json", "eval_set_helm.json", 0.0),
        ("helm_3.json", "evalset_helm_3_2026-02-23.json", 1.0),
        ("k8s.json", "evalset_k8s_2026-02-20.json", 1.0),
    ],
)
def test_a_trace_scores_against_an_eval_set_as_its_own_tool_says(trace: str, evalset: str, value: float) -> None:
    folder = DATA / "agentevals_otel"
    (case,) = load_evalset(folder / evalset).cases

    (result,) = read_file((folder / trace).read_bytes(), trace).runs[0].results

    scores = score_trial(result.transcript, case, (Criterion("tool_trajectory_avg_score", 1.0),))
    assert scores[-1].value == value
    if trace == "helm.json":
        words = score_trial(result.transcript, case, (Criterion("response_match_score", 0.8),))
        assert words[-1].value == pytest.approx(0.8119, abs=5e-5)


def test_an_export_of_tempo_tells_the_same_as_its_spans() -> None:
    data = (DATA / "agentevals_otel" / "tempo_export_with_batches.json").read_bytes()

    found = read_file(data, "tempo.json")

    (run,) = found.runs
    (turn,) = run.results[0].transcript.turns
    assert (run.agent, run.model, turn.query) == ("helm_agent", "gpt-4.1-mini", "list all helm releases\n")
    assert turn.tool_calls == (ToolCall("helm_list_releases", {}, "call_w0eKlvnaE7S9GQJeSSs0gn05"),)
    assert turn.answer.startswith("There are two Helm releases currently deployed")
    assert [usage.tokens_in for usage in turn.usages] == [2256, 2392]
    assert turn.duration_ms < 10_000


@pytest.mark.parametrize(
    "name",
    [
        "otel_genai_client_span_tool_calls.json",
        "otel_genai_deprecated_client_span_tool_calls.json",
        "openinference_client_span_tool_calls.json",
        "openinference_client_span_input_output_only.json",
    ],
)
def test_every_convention_tells_the_same_of_the_same_call(name: str) -> None:
    (run,) = read_file((DATA / "openinference" / name).read_bytes(), name).runs

    (turn,) = run.results[0].transcript.turns
    assert (turn.query, turn.tool_calls) == (
        "Weather in Paris?",
        (ToolCall("get_weather", {"location": "Paris"}, "1234"),),
    )
    assert turn.answer == "The weather in Paris is currently rainy with a temperature of 57°F."
    assert [event.result for event in turn.events if event.kind == "tool_result"] == ["rainy, 57°F"]
    assert run.results[0].tokens == 149


def test_a_trace_keeps_how_each_model_was_asked() -> None:
    folder = DATA / "agentevals_otel"
    found = read_file((folder / "helm_3.json").read_bytes(), "helm_3.json")

    [result] = found.runs[0].results

    assert result.prompts
    usages = [event.usage for event in result.transcript.turns[0].events if event.usage]
    assert [(call.tokens_in, call.at_ms) for call in result.prompts.calls] == [
        (usage.tokens_in, event.at_ms) for event in result.transcript.turns[0].events if (usage := event.usage)
    ]
    assert len(usages) == 2
    first, second = (result.prompts.messages(at) for at in range(2))
    assert second[: len(first)] == first
    offered = result.prompts.part(result.prompts.calls[0].tools)
    assert "helm" in str(offered)


def test_the_span_of_a_tool_alone_is_a_call_with_its_result() -> None:
    name = "otel_genai_tool_execution_span.json"
    (run,) = read_file((DATA / "openinference" / name).read_bytes(), name).runs

    (turn,) = run.results[0].transcript.turns
    assert turn.tool_calls == (ToolCall("get_weather", {"city": "New York"}, "1234"),)


def test_sessions_of_adk_are_read_whole() -> None:
    files = sorted(ADK.rglob("*.session.json"))
    n_turns = {path.name.rpartition("__")[2]: 0 for path in files}

    for path in files:
        evalset = read_file(path.read_bytes(), path.name).evalset
        n_turns[path.name.rpartition("__")[2]] = len(evalset.cases[0].turns) if evalset else 0

    assert n_turns == {
        "successful_test.session.json": 2,
        "sample.session.json": 1,
        "initial.session.json": 0,
        "123.session.json": 11,
        "image_search_denim_skirt.session.json": 5,
        "text_search_floral_dress.session.json": 8,
    }


SESSIONS = sorted(path.name for path in (ADK / "adk-samples").glob("*.session.json"))
SAMPLES = [name for name in READ if name.startswith("adk-samples/")] + [f"adk-samples/{name}" for name in SESSIONS]


def scripted(case: Case) -> Callable[[str, dict[str, Any]], Iterator[Any]]:
    """An agent that does in each turn what the case expects, and keeps a time, a counter and an id in its state."""
    turns = itertools.cycle(case.turns)

    def agent(message: str, state: dict[str, Any]) -> Iterator[Any]:
        turn = next(turns)
        state.setdefault("timer_start", time.time())
        state["request_count"] = next(COUNTS)
        for number, call in enumerate(turn.expected.tool_calls or ()):
            stamped_call = ToolCall(call.name, {**call.args, "request_id": str(uuid4())} if number == 0 else call.args)
            yield Event("tool_call", call=stamped_call)
            yield Event("tool_result", call=stamped_call, result=None)
        state.update(case.final_state or {})
        state["_time"] = str(datetime.now())
        yield turn.expected.reference or "Done."

    return agent


COUNTS = itertools.count(1)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_first_run_after_add_is_green_for_the_sessions_of_the_samples(name: str) -> None:
    evalset = read_file((ADK / name).read_bytes(), name).evalset
    assert evalset
    for case in evalset.cases:
        messages, agent = [turn.query for turn in case.turns], scripted(case)

        new_case = added_case(agent, 2, messages)

        assert [is_green(new_case, play(agent, messages)) for _ in range(3)] == [True] * 3, case.id


def test_the_first_run_after_add_is_green_for_the_held_agent() -> None:
    agent = run_path(str(DATA / "agents" / "stamped" / "agent.py"))["root_agent"]

    case = added_case(agent, 0)

    assert [is_green(case, play(agent)) for _ in range(5)] == [True] * 5
    assert case.final_state
    assert case.final_state["request_count"] == 2


@pytest.mark.parametrize("messages", [("hi",), ("hi", "and again")], ids=["one turn", "two turns"])
def test_the_first_run_after_add_is_green_for_the_workflow_of_adk(own_imports: None, messages: tuple[str, ...]) -> None:
    skip_without("google.adk")
    ref = AgentRef("flow", "adk_workflow.agent:root_agent", root=str(DATA / "agents"))

    def play_workflow() -> Transcript:
        case = Case("c", tuple(map(Turn, messages)))
        return asyncio.run(play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref))).transcript

    case = added_case_of(play_workflow, 2)

    assert [turn.expected.reference for turn in case.turns] == ["hello from a workflow"] * len(messages)
    assert [is_green(case, play_workflow()) for _ in range(3)] == [True] * 3


def test_the_published_gpt_4o_airline_row_comes_out_of_the_imported_file() -> None:
    data = (DATA / "tau" / "gpt-4o-airline.json").read_bytes()

    (run,) = TauBench.read(data, source="gpt-4o-airline.json").runs

    passed = [0] * len(run.cases)
    for result in run.results:
        passed[result.case_index] += result.verdict == "passed"
    points = {k: curve_point([(4, c, 1) for c in passed], k) for k in PUBLISHED}
    assert {k: round(point.pass_hat_k or 0, 3) for k, point in points.items()} == PUBLISHED
    assert [round(point.pass_at_k or 0, 4) for point in points.values()] == [0.42, 0.5667, 0.66, 0.72]
    assert (len(run.cases), len(run.results)) == (50, 200)
    assert sorted(passed) == [0] * 14 + [1] * 12 + [2] * 10 + [3] * 4 + [4] * 10


def test_the_published_file_of_tau_bench_is_understood_to_the_last_message() -> None:
    data = (DATA / "tau" / "gpt-4o-airline.json").read_bytes()

    found = TauBench.read(data, source="gpt-4o-airline.json")

    raw, (run,) = json.loads(data), found.runs
    ends = [result.stop_reason for result in run.results]
    assert [ends.count(end) for end in ("user_stop", "agent_stop", "max_steps")] == [147, 48, 5]
    results = {(run.cases[result.case_index].id, result.trial_index): result for result in run.results}
    for row in raw:
        turns = results[str(row["task_id"]), row["trial"]].transcript.turns
        said = [message for message in row["traj"] if message["role"] == "assistant"]
        calls = [call["function"] for message in said for call in message.get("tool_calls") or ()]
        assert [(call.name, call.args) for turn in turns for call in turn.tool_calls] == [
            (call["name"], json.loads(call["arguments"])) for call in calls
        ]
        kinds = [event.kind for turn in turns for event in turn.events]
        assert kinds.count("tool_result") == sum(message["role"] == "tool" for message in row["traj"])
        assert kinds.count("user_message") == sum(message["role"] == "user" for message in row["traj"])
    assert found.refused == ()


def test_every_file_of_adk_is_read_or_called_by_its_name() -> None:
    found: Counter[str] = Counter()
    for path in sorted(ADK.rglob("*.json")):
        try:
            found[read_file(path.read_bytes(), path.name).format] += 1
        except FormatError as error:
            assert "no format knows" not in str(error), path.name  # noqa: PT017
            found["refused"] += 1

    assert found == {"adk": 22, "adk-flat": 19, "adk-old": 3, "adk-session": 7, "adk-scenarios": 3, "refused": 29}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evaldesk.db") as opened:
        yield opened


def test_the_page_of_the_imported_run_says_what_tau_bench_published(store: Store, tmp_path: Path) -> None:
    settings = Settings(workspace=tmp_path, roots=(tmp_path,))
    desk = ImportDesk(settings, store, EvalSetDesk(settings, store))
    source = DATA / "tau" / "gpt-4o-airline.json"

    staged = desk.staging.stage(source.read_bytes(), source.name)
    taken = desk.take_in(staged.contents, source=source.name, name="airline")
    page = read_run(store.runs, taken.run_ids[0], RunQuery())

    points = page.reliability.points
    assert [round(point.pass_hat_k or 0, 3) for point in points] == [0.42, 0.273, 0.22, 0.2]
    assert [round(point.pass_at_k or 0, 4) for point in points] == [0.42, 0.5667, 0.66, 0.72]
    assert (page.summary.n_passed, page.summary.n_scored, page.summary.n_trials) == (84, 200, 200)
    assert page.reliability.words == "pass@k goes from 0.42 to 0.72, pass^k from 0.42 to 0.20 at k 4"


@pytest.mark.parametrize("version", ["sdk-v0.2.25", "sdk-v0.3.0"])
def test_the_scaffolds_of_osmosis_are_read(tmp_path: Path, version: str) -> None:
    text = (DATA / f"osmosis/{version}/eval_scaffold.toml").read_text().replace("<your-rollout>", "calc")
    path = tmp_path / "configs/eval/sums.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)

    assert read_run_file(path).secrets == ("OPENAI_API_KEY",)


def test_rubrics_of_osmosis_are_read() -> None:
    folder = DATA / "osmosis/sdk-v0.2.17"

    config = read_rubric_config(folder / "rubric_configs.yaml", "policy_grounding")
    records = read_records((folder / "rubric_sample_data.jsonl").read_bytes(), "rubric_sample_data.jsonl")

    assert (config.low, config.high, config.options.timeout_s) == (0.0, 10.0, 60.0)
    assert config.options.models == ("anthropic/claude-sonnet-4-5-20250929",)
    assert [record.rubric_id for record in records] == ["support_followup", "policy_grounding"]
    assert set(records[0].sections) == {"QUESTION", "REFERENCE", "METADATA"}


@pytest.fixture(scope="module")
def document() -> Callable[[str], str]:
    return lambda name: (SHARED / "documents" / f"{name}.txt").read_text("utf-8")


@pytest.fixture(scope="module")
def snippets(document: Callable[[str], str]) -> Snippets:
    return lambda name: snippets_of(document(name), rows_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_has_a_row(document: Callable[[str], str], name: str) -> None:
    assert faults_of(document(name), rows_of(name)) == []


def test_a_statement_without_a_row_is_a_fault(document: Callable[[str], str]) -> None:
    for name in NAMES:
        text, rows = document(name), rows_of(name)

        assert faults_of(f"{text}\nA new statement.\n", rows)[-1].endswith("has no row: 'A new statement.'")
        assert faults_of(f"A new statement.\n{text}", rows)
        assert faults_of(text.partition("\n")[2], rows)


def test_the_chinese_text_of_osmosis_says_the_same(document: Callable[[str], str]) -> None:
    """Its commands, functions and files are those of the English text, statement by statement."""
    chinese, english = document("osmosis_eval_mode"), document("osmosis_eval_mode_2")

    assert [each for each in commands_of(chinese, "osmosis") if each.isascii()] == [*commands_of(english, "osmosis")]
    pairs = list(zip(chinese.splitlines(), english.splitlines(), strict=False))
    assert len(chinese.splitlines()) in (len(english.splitlines()), len(english.splitlines()) - 1)
    assert [bool(one.strip()) for one, _ in pairs] == [bool(other.strip()) for _, other in pairs]
    differing = [one for one, other in pairs if one != other and one.isascii() and one.strip()]
    assert differing == []


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_have_the_commands_of_the_document(document: Callable[[str], str], name: str) -> None:
    of_both = [
        [_without_task(command) for program in ("osmosis", "adk", "poetry") for command in commands_of(text, program)]
        for text in (sample_text(name), document(name))
    ]

    assert of_both[0] == [command for command in of_both[1] if " " in command.removeprefix("adk ")]


def _without_task(command: str) -> str:
    return re.sub(r'-t "[^"<]*"', "-t", command)


def _function(lines: list[str], depths: dict[str, int] | None = None) -> str:
    """A printed function with its indents, which the document has lost; `depths` are those of deeper lines."""
    found, is_inside = [], False
    for line in (line.strip() for line in lines):
        depth = next((depth for begins, depth in (depths or {}).items() if line.startswith(begins)), int(is_inside))
        found.append("    " * depth + line)
        is_inside = is_inside or line.startswith("def ")
    return "\n".join(found) + "\n"


ADK_AGENT = '''
ANSWERS = {"home": "The light is on.", "trip": "You start in San Francisco."}


def root_agent(message, state):
    """Answers by its message; the origin comes from the session."""
    return f"You start in {state['origin']}." if message == "trip" else ANSWERS[message]
'''


def test_the_tests_of_the_document_are_run_by_pytest(tmp_path: Path, snippets: Snippets) -> None:
    """As printed, with the import of Evaldesk; their indents were lost in the document."""
    fixture = tmp_path / "tests/integration/fixture"
    found = snippets("adk_evaluation")
    for name, query, answer in (
        ("home_automation_agent", "home", "The light is on."),
        ("trip_planner_agent", "trip", "You start in San Francisco."),
    ):
        agent = fixture / name
        agent.mkdir(parents=True)
        (agent / "__init__.py").write_text("from . import agent\n")
        (agent / "agent.py").write_text(ADK_AGENT)
        turn = {"query": query, "expected_tool_use": [], "reference": answer}
        (agent / "simple_test.test.json").write_text(json.dumps([turn]))
    (fixture / "trip_planner_agent/initial.session.json").write_text("\n".join(found["session"]))
    for number in (1, 2):
        head, *body = found[f"pytest_{number}"]
        source = "\n".join(["from evaldesk import AgentEvaluator", "", head, *(f"    {line}" for line in body)])
        (tmp_path / f"test_{number}.py").write_text(f"{source}\n")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_1.py", "test_2.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


OWN = """
import os

import pandas as pd
from evaluation.utils.shared import compatibility_for_eval_history_pairs


def get_instruction(instance, metadata):
    return f"Write twice the number {instance.number} to answer.txt."


def your_user_response_function(state: State) -> str:
    return "/exit"


def evaluate_agent_actions(runtime, instance):
    seen = runtime.run_action(CmdRunAction(command="cat answer.txt"))
    assert isinstance(seen, CmdOutputObservation)
    return {"resolved": seen.content.strip() == str(2 * instance["number"])}


"""


MAIN = """

if __name__ == "__main__":
    llm_config, dataset_name, agent_class = get_llm_config_arg("eval_small"), "Numbers", "CodeActAgent"
    max_iterations, eval_note, eval_output_dir, eval_n_limit, num_workers = 5, None, "outputs", None, 1
    your_dataset = pd.DataFrame([{"instance_id": "n3", "number": 3}])
"""


CONFIG = """
[llm.eval_small]
model = "openai/small"
base_url = "{address}"
api_key = "key"
num_retries = 0
"""


def test_the_guides_own_code_runs(tmp_path: Path, snippets: Snippets) -> None:
    """As printed, with two `await` of the guide taken out, which stand where Python and OpenHands allow none."""
    steps = snippets("openhands_harness")
    imports = "\n".join(line.strip() for line in steps["step_1"])
    functions = "\n\n".join(_function(steps[f"step_{number}"]).replace("await ", "") for number in (2, 3, 4))
    start = "\n".join(f"    {line.strip()}" for line in steps["step_5"]).replace("await ", "")
    (tmp_path / "run_infer.py").write_text(f"{imports}\n{OWN}{functions}{MAIN}{start}\n")

    with served() as endpoint:
        (tmp_path / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        endpoint.says("", ("c1", "execute_bash", json.dumps({"command": "echo 6 > answer.txt"})))
        endpoint.says("It is done.")
        ended = subprocess.run(
            [sys.executable, "-m", "evaldesk", "benchmark", "--score-key", "resolved", "run_infer.py"],
            cwd=tmp_path,
            env={**os.environ, "OPENAI_API_KEY": ""},
            capture_output=True,
            text=True,
            check=False,
        )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 passed" in ended.stdout
    (row,) = (tmp_path / "outputs/Numbers/CodeActAgent/small_maxiter_5/output.jsonl").read_text().splitlines()
    written = json.loads(row)
    assert (written["instance_id"], written["test_result"], written["error"]) == ("n3", {"resolved": True}, None)
    assert written["instruction"] == "Write twice the number 3 to answer.txt."
    assert [pair[0].get("action") for pair in written["history"]] == ["message", "run", "message", "message", "finish"]


def test_our_user_offers_to_give_up_when_that_of_the_guide_does(snippets: Snippets) -> None:
    depths = {"# check": 2, "user_msgs": 2, "event": 3, "for event": 3, "if isinstance": 3, "]": 2, "if len": 2}
    depths |= {"# let": 3, "return (": 3, "return msg": 1, "msg\x00": 4, "+ ": 4}
    names = {"State": State, "MessageAction": MessageAction}
    exec(_function(snippets("openhands_harness")["codeact"], depths), names)  # noqa: S102 - the function that the guide prints
    printed: Callable[[State | None], str] = names["codeact_user_response"]

    for n_messages in range(4):
        state = State(history=[CmdRunAction("ls"), *(_from_user(number) for number in range(n_messages))])
        said = [
            ("give up" in words, "human help" in words.lower())
            for words in (codeact_user_response(state), printed(state))
        ]
        assert said == [(n_messages >= 2, True)] * 2, n_messages
    assert ("give up" in codeact_user_response(State()), "give up" in printed(None)) == (False, False)


def _from_user(number: int) -> MessageAction:
    message = MessageAction(f"message {number}")
    message._source = EventSource.USER
    return message


def test_the_eval_sets_of_adk_are_judged_as_adk_judges_them() -> None:
    pytest.importorskip("google.adk.evaluation.trajectory_evaluator")
    from tests.desk.test_other_tools import judge_beside_adk

    assert sum(judge_beside_adk(path) for path in sorted(ADK.rglob("*.json"))) >= 50
