"""`output.jsonl` of OpenHands becomes a run."""

from __future__ import annotations

import json
import random
import tracemalloc
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evaldesk.cli import cli
from evaldesk.errors import FormatError
from evaldesk.formats.files import as_one_file, read_file, write_file
from evaldesk.integrations.openhands.formats.rows import OpenHands
from evaldesk.model import Event, Score, Transcript, Verdict
from evaldesk.transcripts.recorded import RecordedRun

SAMPLE = Path(__file__).parents[2] / "formats/exchange_samples" / "openhands.jsonl"


def recorded(*rows: dict[str, Any]) -> RecordedRun:
    data = "\n".join(json.dumps(row) for row in rows).encode() if rows else SAMPLE.read_bytes()
    return read_file(data, "output.jsonl").runs[0]


def row(history: list[Any], **keys: Any) -> dict[str, Any]:
    return {"instance_id": "i", "test_result": {}, "history": history} | keys


def kinds(run: RecordedRun) -> list[tuple[str, str]]:
    events = (event for turn in run.results[0].transcript.turns for event in turn.events)
    return [(event.kind, said(event)) for event in events if event.author not in ("artefact", "report")]


def said(event: Event) -> str:
    return event.call.name if event.call else event.text


def test_a_row_that_evaldesk_numbered_is_another_trial_of_its_instance() -> None:
    run = recorded()

    assert [case.id for case in run.cases] == ["repo-1", "repo-2"]
    assert [(trial.case_index, trial.trial_index, trial.verdict) for trial in run.results] == [
        (0, 0, "passed"),
        (0, 1, "failed"),
        (1, 0, "unscored"),
    ]
    assert (run.name, run.agent, run.model) == ("mini", "CodeActAgent", "openai/m")
    assert [(each.metric, each.threshold) for each in run.criteria] == [("resolved", 1.0)]


def test_the_last_row_of_an_instance_counts_and_the_one_before_is_beside_it() -> None:
    done = {"report": {"resolved": True}}

    run = recorded(row([], error="502 Server Error"), row([], test_result=done))

    (result,) = run.results
    assert (result.verdict, result.trial_index) == ("passed", 0)
    assert [(each.verdict, each.reason) for each in result.earlier] == [("errored", "502 Server Error")]


@pytest.mark.parametrize(
    ("error", "stop"),
    [
        ("AgentStuckInLoopError: Agent got stuck in a loop", "stuck"),
        ("RuntimeError: Agent reached maximum iteration in headless mode", "max_iterations"),
        ("RuntimeError: Agent reached maximum budget for conversation", "budget"),
        ("litellm.ContextWindowExceededError: too long", "context_window"),
        ("litellm.ContentPolicyViolationError: refused", "content_filter"),
    ],
)
def test_a_row_whose_agent_ran_into_its_own_bound_is_judged_by_its_result(error: str, stop: str) -> None:
    (result,) = recorded(row([], error=error, test_result={"resolved": False})).results

    assert (result.status, result.verdict, result.stop_reason) == ("finished", "failed", stop)


def test_the_call_is_the_models_request_and_not_the_harness_version() -> None:
    (turn,) = recorded().results[0].transcript.turns

    assert [(call.name, call.args, call.id) for call in turn.tool_calls] == [
        ("execute_bash", {"command": "ls"}, "t1"),
        ("finish", {"final_thought": "Done."}, "4"),
    ]
    assert (turn.query, turn.intermediate, turn.answer) == ("Fix it", (("", "I look."),), "Done.")


def test_a_price_of_nothing_for_tokens_is_unknown() -> None:
    first, second, _ = recorded().results

    assert first.cost == pytest.approx(0.02)
    assert (first.tokens, len(first.usages)) == (280, 2)
    assert (second.cost, second.tokens) == (None, 55)


def _action(at: str, response: str) -> dict[str, Any]:
    beside = {"tool_call_metadata": {"model_response": {"id": response}}} if response else {}
    return {
        "action": "run",
        "args": {"command": "ls"},
        "source": "agent",
        "timestamp": f"2025-01-01T00:00:{at}",
    } | beside


def test_a_model_call_stands_before_its_actions_with_the_time_of_the_row() -> None:
    tokens = [{"model": "m", "prompt_tokens": n, "completion_tokens": 1, "response_id": f"r{n}"} for n in (1, 2, 3)]
    took = [{"response_id": "r1", "latency": 1.5}, {"response_id": "r2", "latency": "long"}, {"latency": 9}, None]
    metrics = {"token_usages": tokens, "response_latencies": took}

    run = recorded(row([_action("00", ""), _action("05", "r1"), _action("07.5", "r2")], metrics=metrics))

    events = run.results[0].transcript.turns[0].events
    calls = [(event.usage.tokens_in, event.at_ms, event.usage.duration_ms) for event in events if event.usage]
    assert calls == [(1, 5000.0, 1500.0), (2, 7500.0, 0.0), (3, 7500.0, 0.0)]
    assert [event.kind for event in events if event.kind in ("usage", "tool_call")] == [
        *("tool_call", "usage", "tool_call", "usage", "tool_call", "usage"),
    ]
    assert [event.at_ms for event in events] == sorted(event.at_ms for event in events)


@pytest.mark.parametrize(
    "metrics", [{"response_latencies": 1}, {"response_latencies": [{"response_id": [], "latency": 1}]}]
)
def test_latencies_that_cannot_be_read_are_unknown(metrics: dict[str, Any]) -> None:
    tokens = [{"model": "m", "prompt_tokens": 1, "completion_tokens": 1, "response_id": ["x"]}]

    (usage,) = recorded(row([], metrics={"token_usages": tokens, **metrics})).results[0].usages

    assert usage.duration_ms == 0.0


def test_a_row_at_the_limit_is_finished_at_its_bound_as_a_played_one_is() -> None:
    limit = recorded().results[2]

    assert (limit.status, limit.verdict, limit.stop_reason) == ("finished", "unscored", "max_iterations")
    assert "maximum iteration" in limit.transcript.turns[0].events[-1].text


def test_without_an_outcome_the_trials_are_unscored_and_the_import_says_so() -> None:
    imported = read_file(json.dumps(row([])).encode(), "output.jsonl")

    assert imported.runs[0].results[0].verdict == "unscored"
    assert any("unscored" in sentence for sentence in imported.understood)


def test_pairs_of_action_and_observation_are_taken_apart() -> None:
    call = {"action": "run", "args": {"command": "ls", "thought": "look"}, "id": 1}
    seen = {"observation": "run", "content": "a.c", "cause": 1}

    run = recorded(row([[{"action": "message", "source": "user", "args": {"content": "Go"}}, None], [call, seen]]))

    assert kinds(run) == [
        ("user_message", "Go"),
        ("agent_message", "look"),
        ("tool_call", "run"),
        ("tool_result", "run"),
    ]
    assert run.results[0].transcript.turns[0].tool_calls[0].args == {"command": "ls"}


def test_an_observation_without_a_cause_is_kept() -> None:
    run = recorded(
        row([{"action": "message", "source": "user", "message": "Go"}, {"observation": "error", "content": "?"}])
    )

    assert kinds(run) == [("user_message", "Go"), ("log", "error: ?")]


def test_events_of_the_sdk_are_read() -> None:
    history = [
        {"kind": "SystemPromptEvent", "system_prompt": {"text": "Be good."}},
        {"kind": "MessageEvent", "source": "user", "llm_message": {"content": [{"type": "text", "text": "Go"}]}},
        {
            "kind": "ActionEvent",
            "tool_name": "terminal",
            "tool_call_id": "c",
            "thought": [{"type": "text", "text": "I look."}],
            "tool_call": {"name": "terminal", "arguments": '{"command": "ls"}'},
        },
        {"kind": "ObservationEvent", "tool_call_id": "c", "observation": {"content": "a.c", "is_error": False}},
        {"kind": "ActionEvent", "tool_name": "finish", "tool_call": {"arguments": '{"message": "Done."}'}},
        {"kind": "ConversationStateUpdateEvent", "key": "stats"},
    ]

    run = recorded(row(history))

    assert kinds(run) == [
        ("user_message", "Go"),
        ("log", "Be good."),
        ("agent_message", "I look."),
        ("tool_call", "terminal"),
        ("tool_result", "terminal"),
        ("tool_call", "finish"),
        ("agent_message", "Done."),
    ]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('{"instance_id": [], "history": []}', "instance_id"),
        ('{"instance_id": "i", "history": {"a": 1}}', "history"),
        ('{"instance_id": "i", "history": [7]}', "history[0]"),
        ('{"instance_id": "i", "history": [{"action": []}]}', "history[0].action"),
        ('{"instance_id": "i", "history": [], "error": 5}', "error"),
        ('{"instance_id": "i", "history": [', ""),
    ],
)
def test_an_error_names_the_line(line: str, place: str) -> None:
    good = json.dumps(row([]))

    with pytest.raises(FormatError) as caught:
        read_file(f"{good}\n\n{line}\n".encode(), "output.jsonl")

    assert (caught.value.line, caught.value.path) == (3, place)


def test_it_says_which_outcome_was_taken_and_which_could_be() -> None:
    rows = [row([], test_result={"own": 0.5, "report": {"resolved": True}}), row([], test_result={"own": 1, "n": 7})]
    rows[1]["instance_id"] = "j"
    data = "\n".join(map(json.dumps, rows)).encode()

    usual, chosen = read_file(data, "output.jsonl"), read_file(data, "output.jsonl", outcome="own")

    assert (usual.outcome, usual.outcomes) == ("resolved", ("resolved", "own"))
    assert "Rows also have own, which could decide instead." in " ".join(usual.understood)
    assert [trial.verdict for trial in usual.runs[0].results] == ["passed", "unscored"]
    assert chosen.outcome == "own"
    assert [trial.verdict for trial in chosen.runs[0].results] == ["failed", "passed"]
    assert [each.metric for each in chosen.runs[0].criteria] == ["own"]


def test_a_benchmark_with_a_key_of_its_own_is_unscored_until_it_is_chosen() -> None:
    data = json.dumps(row([], test_result={"own": True})).encode()

    imported = read_file(data, "output.jsonl")

    assert (imported.outcome, imported.outcomes) == ("", ("own",))
    assert "choose the deciding key among own" in " ".join(imported.understood)
    assert read_file(data, "output.jsonl", outcome="own").runs[0].results[0].verdict == "passed"


@pytest.mark.parametrize("outcome", ["other", "n", "instance_id"])
def test_an_outcome_that_no_row_has_is_refused(outcome: str) -> None:
    with pytest.raises(FormatError, match=rf"no row says '{outcome}' of its outcome; there are: own"):
        read_file(json.dumps(row([], test_result={"own": 1, "n": 7})).encode(), "output.jsonl", outcome=outcome)


def test_a_run_of_another_tool_keeps_its_verdicts_as_rows_of_openhands() -> None:
    run = recorded(row([]), row([], instance_id="other"))
    verdicts: tuple[Verdict, ...] = ("passed", "failed")
    results = (
        replace(each, verdict=verdict, scores=(Score("own", 0.5, passed=verdict == "passed"),), transcript=Transcript())
        for each, verdict in zip(run.results, verdicts, strict=True)
    )

    written = write_file(replace(run, results=tuple(results)), "openhands")

    assert [json.loads(line)["test_result"] for line in written.splitlines()] == [
        {"own": 0.5, "resolved": True},
        {"own": 0.5, "resolved": False},
    ]
    assert tuple(each.verdict for each in read_file(written, "output.jsonl").runs[0].results) == verdicts


def test_other_formats_have_their_own_verdict() -> None:
    path = SAMPLE.parent / "adk-results.evalset_result.json"

    with pytest.raises(FormatError, match="the file states which trials passed"):
        read_file(path.read_bytes(), path.name, outcome="resolved")


def test_metadata_beside_the_rows_has_the_values_that_they_lack() -> None:
    metadata = {"agent_class": "A", "llm_config": {"model": "m/x"}, "dataset": "bench", "max_iterations": 5}
    rows = json.dumps(row([], test_result={"resolved": True})).encode()

    source, data = as_one_file([("metadata.json", json.dumps(metadata, indent=2).encode()), ("output.jsonl", rows)])
    run = read_file(data, source).runs[0]

    assert (source, run.name, run.agent, run.model) == ("output.jsonl", "bench", "A", "m/x")
    assert [trial.verdict for trial in run.results] == ["passed"]


@pytest.mark.parametrize("names", [("a.json", "b.json"), ("metadata.json", "sub/metadata.json")])
def test_files_that_are_not_one_run_are_refused_together(names: tuple[str, str]) -> None:
    with pytest.raises(FormatError, match="other files are imported one by one"):
        as_one_file([(name, b"{}") for name in names])


def test_metadata_alone_is_called_by_its_name() -> None:
    with pytest.raises(FormatError, match=r"contains no trial; choose the output\.jsonl beside it"):
        read_file(b'{"agent_class": "A", "llm_config": {}, "max_iterations": 5}', "metadata.json")


@pytest.mark.long
def test_rows_of_errors_are_not_in_memory_together() -> None:
    row = {"history": [], "test_result": {}, "error": "503", "instruction": "x" * 20_000}
    rows = [{"evaldesk": "output_errors.jsonl"}, *({"instance_id": f"i{number}"} | row for number in range(500))]
    file = BytesIO(b"".join(json.dumps(each).encode() + b"\n" for each in rows))

    tracemalloc.start()
    imported = OpenHands.read_large(file, source="output.jsonl", outcome="")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(imported.runs[0].results) == 500
    assert peak < 5_000_000


ACTION: dict[str, Any] = {
    "kind": "ActionEvent",
    "id": "a1",
    "timestamp": "2026-11-29T10:00:01",
    "source": "agent",
    "thought": [],
    "action": {"kind": "FinishAction", "message": "done"},
    "tool_name": "finish",
    "tool_call_id": "c1",
    "tool_call": {"id": "c1", "name": "finish", "arguments": "{}", "origin": "completion"},
    "llm_response_id": "r1",
    "summary": None,
}
ROW_OF_SDK: dict[str, Any] = {
    "instance_id": "i",
    "attempt": 1,
    "test_result": {"git_patch": "+1", "nested": {"a": [1, 2.5, None, True]}},
    "instruction": "Do it.",
    "metadata": {"llm": {"model": "openai/m", "api_key": "**********"}, "critic": {"kind": "PassCritic"}},
    "history": [ACTION],
    "metrics": {"model_name": "m", "accumulated_cost": 0.5, "costs": [], "token_usages": []},
    "error": None,
    "instance": {"instance_id": "i", "repo": "a/b"},
    "runtime_runs": [{"runtime_id": "x", "retry_count": 0}],
    "cost": 0.5,
    "a_later_key": {"deep": [{"x": 1}]},
}


@pytest.mark.parametrize("changes", [{}, {"error": "gone"}, {"history": [], "metrics": None}, {"attempt": 3}])
def test_a_row_of_the_sdk_is_written_with_every_key_as_it_was_read(changes: dict[str, Any]) -> None:
    sdk_row = {**ROW_OF_SDK, **changes}

    (line,) = write_file(recorded(sdk_row), "openhands").splitlines()

    assert json.loads(line) == sdk_row


def test_later_attempts_of_the_sdk_are_written_with_every_key_and_the_number_of_their_trial() -> None:
    rows = [ROW_OF_SDK, {**ROW_OF_SDK, "attempt": 2, "evaldesk": {"trial": 1}}]

    assert list(map(json.loads, write_file(recorded(*rows), "openhands").splitlines())) == rows


def test_rows_of_the_sdk_leave_the_store_with_every_key(tmp_path: Path) -> None:
    chance = random.Random(39)
    rows = [
        {
            **ROW_OF_SDK,
            "instance_id": f"i{number}",
            "test_result": {"resolved": chance.random() < 0.5, **drawn_object(chance, 3)},
            "instance": drawn_object(chance, 3),
            f"own_{number}": drawn_value(chance, 2),
            **chance.choice([{}, {"error": "gone"}, {"history": []}, {"metrics": None}, {"instruction": None}]),
        }
        for number in range(40)
    ]
    (tmp_path / "output.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    home = ["--workspace", str(tmp_path)]

    read = CliRunner().invoke(cli, ["import", str(tmp_path / "output.jsonl"), *home])
    written = CliRunner().invoke(cli, ["export", "1", "--format", "openhands", *home])

    assert (read.exit_code, written.exit_code) == (0, 0), read.output + written.output
    assert list(map(json.loads, written.stdout.splitlines())) == rows


def drawn_object(chance: random.Random, depth: int) -> dict[str, Any]:
    return {f"key {at}": drawn_value(chance, depth - 1) for at in range(chance.randrange(4))}


def drawn_value(chance: random.Random, depth: int) -> Any:
    plain = [None, True, 0, -3, 2**53, 0.1, 1e-9, "", "text", "Zeile\nzwei", "\U0001f600", "null"]
    if depth == 0 or chance.random() < 0.5:
        return chance.choice(plain)
    values = [drawn_value(chance, depth - 1) for _ in range(chance.randrange(3))]
    return values if chance.random() < 0.5 else drawn_object(chance, depth)
