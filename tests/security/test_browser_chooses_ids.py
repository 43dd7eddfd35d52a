"""A browser names things by opaque ids: no field of any form can choose code, a model's address, a key or a path."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evaldesk.gate_options import GATE_OPTIONS
from evaldesk.run_options import has_door, offered

HOSTILE = (
    "os:system",
    "subprocess:Popen",
    "a.b:__import__",
    "evaldesk.secrets:scrub",
    "../agents/dice",
    "/etc/passwd",
    "file:///etc/passwd",
    "http://169.254.169.254/latest",
    "openai/gpt@http://evil.invalid",
    "samples/hello_world",
    "__import__('os').system('id')",
)


def run_form(fort: Any, **changes: Any) -> dict[str, Any]:
    return {
        "filled": "1",
        "agent": fort.desk.agents.list()[0].id,
        "evalset": fort.evalset,
        "cases": "all",
        "n": "1",
        "concurrency": "1",
        "timeout_s": "30",
        "pass_threshold": "1",
        "metric": "response_match_score",
        "response_match_score.threshold": "0.8",
    } | changes


@pytest.fixture(scope="module")
def fort(build_fort: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One desk for all tests, which compare what is stored before and after."""
    opened = build_fort(tmp_path_factory.mktemp("fort") / "workspace")
    with opened.client:
        yield opened


@pytest.mark.parametrize("field", ["agent", "evalset", "metric", "model", "case"])
def test_a_run_is_of_what_was_found_and_of_nothing_else(fort: Any, field: str) -> None:
    before = fort.fingerprint()

    statuses = {
        hostile: fort.client.post("/runs", data=run_form(fort, **{field: hostile}, cases="selected")).status_code
        for hostile in HOSTILE
    }

    assert {hostile: status for hostile, status in statuses.items() if status not in {404, 422}} == {}
    assert fort.fingerprint() == before


@pytest.mark.parametrize("field", ["change", "case", "trial", "version"])
def test_only_what_trials_did_is_accepted(fort: Any, field: str) -> None:
    before, address = fort.fingerprint(), f"/runs/{fort.run}/acceptance"

    statuses = {
        hostile: fort.client.post(address, data={"change": "a:1.answer", field: hostile}).status_code
        for hostile in HOSTILE
    }

    assert {hostile: status for hostile, status in statuses.items() if status not in {404, 409}} == {}
    assert fort.fingerprint() == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", "1000000"),
        ("n", "1" * 400),
        ("n", "-1"),
        ("n", "1e9"),
        ("concurrency", "10000"),
        ("concurrency", "0"),
        ("timeout_s", "1e400"),
        ("timeout_s", "nan"),
        ("timeout_s", "999999999"),
        ("timeout_s", "-5"),
        ("pass_threshold", "2"),
        ("pass_threshold", "nan"),
        ("response_match_score.threshold", "inf"),
        ("response_match_score.threshold", "7"),
        ("note", "x" * 3000),
        ("environment", "/usr/bin/python3"),
        ("faults", "slow=2"),
        ("faults", "http://evil.invalid=0.1"),
    ],
)
def test_what_a_run_may_cost_has_a_ceiling(fort: Any, field: str, value: str) -> None:
    before = fort.fingerprint()

    answer = fort.client.post("/runs", data=run_form(fort, **{field: value}))

    assert answer.status_code == 422
    assert fort.fingerprint() == before


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_session_is_with_an_agent_that_was_found(fort: Any, hostile: str) -> None:
    before = fort.fingerprint()

    assert fort.post("/sessions", agent=hostile, state="{}").status_code == 404
    assert fort.get(f"/sessions/new?agent={hostile}").status_code == 404
    assert fort.fingerprint() == before


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_turn_is_played_on_a_model_of_the_settings(fort: Any, hostile: str) -> None:
    before = fort.fingerprint()

    answer = fort.post(f"/sessions/{fort.session}/turns", message="Hello", model=hostile)

    assert answer.status_code == 422
    assert fort.host.n_turns == 0
    assert fort.fingerprint() == before


@pytest.mark.parametrize(
    "field", ["api_base", "base_url", "api_key", "module", "target", "root", "folder", "kind", "path"]
)
def test_a_field_that_nobody_offers_is_not_listened_to(open_fort: Callable[..., Any], field: str) -> None:
    fort = open_fort()  # a run is played in it

    answer = fort.client.post("/runs", data=run_form(fort, **{field: "http://evil.invalid/canary"}))

    assert answer.status_code == 303
    configuration = fort.get(f"{answer.headers['location']}/configuration").text
    assert "evil.invalid" not in configuration


@pytest.mark.parametrize(
    "name", ["../x", "/tmp/x", "a/b", "a\\b", "CON", "nul", "-x", ".x", "x\x00", "x\ny", "é", "x" * 101, "C:x", "~"]
)
def test_a_new_eval_set_gets_a_plain_name_in_its_folder(fort: Any, name: str) -> None:
    before = fort.fingerprint()

    assert fort.post("/evalsets", name=name).status_code in {409, 422}
    assert fort.post(f"/evalsets/{fort.evalset}/settings", name=name).status_code in {409, 422}
    assert fort.post(f"/imports/{fort.staged}", name=name).status_code in {409, 422}
    assert fort.fingerprint() == before


# What each form may ask for, beside numbers, ticks and choices of the table of run options. A field that is new here
# needs a reason why it cannot choose code, a key or a path.
FIELDS = {
    *(option.name for option in offered("form") if option.kind in ("whole", "number", "switch", "choice")),
    *(option.name for option in GATE_OPTIONS if has_door(option, "form")),
    "use",  # the flags of a better gate, read as the fields are
    "like",  # the number of an earlier run
    *("add", "remove", "which", "with_tag", "with_only"),  # tags of many cases, and which cases match
    *(
        "agent",
        "run",
        "labeller",
        "answer",
        "verdict",
        "turn",
        "a",
        "b",
        "evalset",
        "case",
        "cases",
        "metric",
        "model",
        "n",
        "concurrency",
        "timeout_s",
        "pass_threshold",
        "note",
        "check",
    ),
    *(
        "errors_are_failures",
        "strict",
        "filled",
        "try",
        "how",
        "only",
        "sort",
        "status",
        "q",
        "tag",
        "before",
        "after",
        "start",
    ),
    *("state", "title", "message", "name", "description", "file", "choice", "tags", "app", "user", "initial", "final"),
    # A number of trials; texts of a scenario, the name of a user function that its case offers, and ticks.
    *("trials", "scenario", "opening", "persona", "goal", "plan"),
    *("domain", "known_info", "unknown_info", "player", "limit"),
    *("actions", "quarantine", "in_no_gate"),
    *(
        "op",
        "version",
        "raw",
        "form",
        "then",
        "new-set",
        "step",
        "another",
        "vary",
        "variant-list",
        "outcome",
        "outputs",
        "rubrics",
    ),
    *("change", "trial", "until", "queue", "merge", "preset", "preset-name", "enter", "list"),
    # What was shown when a form was filled, which is only compared; decisions of a case, as texts; a number or money.
    *("seen", "called", "decisions", "budget"),
    "conversation",  # numbers of conversations of the inbox
    # A draw of conversations: its number, filters and numbers of its strata, a seed, and a tick.
    *("draw", "stratum", "number", "seed", "twins"),
    *("criteria", "criteria-seen"),  # the JSON of criteria that a set carries, and their earlier text
    *("call", "fork"),  # numbers of a model call in a turn, and of a branch of the trial
    "runs_tools",  # yes or no: whether the tools of a fork run for real
    # Other parts of a fork: the number of a tool call, its result as JSON or as the text of an error, and messages.
    *("tool_call", "result", "is_error", "insert", "free_message"),
    # What a case also accepts: JSON values for its own calls and answers; and how its turns end, words of one table.
    *("accepted", "outcomes"),
    # The instruction of the agent for one run: a text for its model.
    "instruction",
    # A name of evaldesk.toml, and shares of faults of one table.
    *("environment", "faults"),
    # Findings: texts that are shown escaped, and numbers of findings, modes and turns.
    # Review queues: kinds of one table, places of trials, on or off, and names that are shown escaped.
    *("of", "item", "at", "shown", "blind", "reader", "named"),
    # The table of cases: values of stored runs to filter by, keys of columns, and an address of our own to go back to.
    *("tool", "error", "kind", "below", "divergence", "disagree", "in", "show", "runs", "hide", "columns", "density"),
    *("ids", "edited", "reply"),  # numbers of proposals, the JSON of a case or texts, and words for a coding agent
    *("address", "back", "baseline"),
    *("mode", "new-mode", "quote", "place", "finding", "into", "definition", "example-yes", "example-no"),
}
OPTION = r"[a-z_0-9]+\.[a-z_]+(\.keys)?"
WAY = r"way-\d+"  # how a change is accepted: a word of four, and the name of an offered change
PART = r"(?:turn|action)-\d+-[a-z0-9-]+"


def test_every_field_of_every_form_is_known(fort: Any) -> None:
    found: set[str] = set()
    for route in fort.routes():
        if "GET" in (route.methods or ()):
            page = fort.get(fort.address(route)).text
            tags = re.findall(r"<(?:input|select|textarea|button)\b[^>]*>", page)
            found |= {html.unescape(name) for tag in tags for name in re.findall(r'\sname="([^"]*)"', tag)}

    unknown = {name for name in found - FIELDS if not re.fullmatch(f"{OPTION}|{PART}|{WAY}", name)}
    assert unknown == set()
    assert {"agent", "evalset", "metric", "model"} <= found
