"""The tests that a benchmark asks of a patch stand beside the trial: before and after, the first broken one open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.model import AgentRef, Case, Event, RunConfig, Score, ToolCall, Transcript, TrialResult, TurnRecord
from evaldesk.pages.tested import AskedTests, asked_tests

INSTANCE: dict[str, Any] = {
    "FAIL_TO_PASS": json.dumps(["a.py::test_new"]),
    "PASS_TO_PASS": ["a.py::T::test_old", "a.py::test_gone"],
}
OUTPUT = """============ FAILURES ============
__________________ T.test_old __________________

    def test_old(self):
>       assert add(1, 2) == "<b>3</b>"
E       AssertionError

a.py:3: AssertionError
=========== short test summary info ============
PASSED a.py::test_new
FAILED a.py::T::test_old - AssertionError
========= 1 failed, 1 passed in 0.31s =========
"""


def found(told: dict[str, Any], instance: Any = INSTANCE, output: str = "") -> AskedTests:
    tests = asked_tests(instance, told, [output])
    assert tests
    return tests


def after(tests: AskedTests) -> dict[str, str]:
    return {test.name: test.after for group in tests.groups for test in group.tests}


def test_asked_tests_are_found_in_the_output_by_their_names() -> None:
    tests = found({}, output=OUTPUT)

    assert [(group.title, group.before, group.verdict) for group in tests.groups] == [
        ("Must turn green", "1 failed", "passed"),
        ("Must stay green", "2 passed", "failed"),
    ]
    assert [test.words for test in tests.broken] == ["failed; passed before", "not run; passed before"]
    assert tests.sentence == "Must turn green: 1 of 1 passed; must stay green: 0 of 2 passed, 1 failed, 1 not run"
    assert tests.output.splitlines()[1] == '>       assert add(1, 2) == "<b>3</b>"'
    assert tests.output.endswith("a.py:3: AssertionError")


@pytest.mark.parametrize(
    ("line", "name", "status"),
    [
        ("a.py::test_x PASSED      [ 50%]", "a.py::test_x", "passed"),
        ("test_x (tests.test_a.T) ... ok", "test_x (tests.test_a.T)", "passed"),
        ("test_x (tests.test_a.T) ... FAIL", "test_x (tests.test_a.T)", "failed"),
        ("test_x ok", "test_x", "passed"),
        ("test_x F", "test_x", "failed"),
        ("FAILED a.py::test_x[a b] - assert 1 == 2", "a.py::test_x[a", "failed"),
        ("XFAIL a.py::test_x - no", "a.py::test_x", "passed"),
        ("ERROR a.py::test_x - boom", "a.py::test_x", "failed"),
        ("a.py::test_y PASSED", "a.py::test_x", ""),
        ("a.py::test_x F is no PASSED line", "a.py::test_x", ""),
    ],
)
def test_a_line_of_an_output_tells_a_test(line: str, name: str, status: str) -> None:
    assert after(found({}, {"FAIL_TO_PASS": [name]}, f"before\n{line}\nafter")) == {name: status}


def test_a_report_comes_before_the_output() -> None:
    status = {"FAIL_TO_PASS": {"success": [], "failure": ["f"]}, "PASS_TO_PASS": {"success": ["p"], "failure": []}}

    tests = found({"report": {"pylint-1": {"tests_status": status}}}, output=OUTPUT)

    assert after(tests) == {"f": "failed", "p": "passed"}


def test_other_reports_of_tests_are_read() -> None:
    runs = {"f2p_tests": {"t": {"run": "PASS", "test": "FAIL", "fix": "PASS"}}, "p2p_tests": {"u": {"fix": "FAIL"}}}
    rows = {"report": {"tests": [{"nodeid": "a", "outcome": "passed"}, {"name": "b", "passed": False}, {"no": 1}, 3]}}

    multi, listed, named = found(runs), found(rows), found({"test_results": {"a": True, "b": "FAILED"}})

    assert [(test.name, test.words) for group in multi.groups for test in group.tests] == [
        ("t", "passed; failed before"),
        ("u", "failed"),
    ]
    assert after(listed) == after(named) == {"a": "passed", "b": "failed"}


def test_without_a_result_nothing_is_said_of_it() -> None:
    tests = found({"git_patch": ""})

    assert [(group.verdict, group.passed_words) for group in tests.groups] == [("", "–")] * 2
    assert (tests.broken, tests.sentence) == ([], "")


@pytest.mark.parametrize("odd", [None, 3, "[", "{}", [3], {"a": 1}, "[[" * 9_000, [], {"tests": {"a": [1]}}])
def test_what_a_benchmark_says_may_be_anything(odd: Any) -> None:
    told = dict.fromkeys(("report", "tests_status", "f2p_tests", "tests", "test_results"), odd)

    assert asked_tests({"FAIL_TO_PASS": odd, "PASS_TO_PASS": odd}, told, ["x"]) is None or isinstance(odd, list | dict)


@pytest.mark.parametrize("line", ["a::" * 90_000, "_" * 300_000, "PASSED " + "- " * 90_000, "x F y " * 50_000])
def test_a_hostile_output_is_read_at_once(line: str) -> None:
    assert after(found({}, {"FAIL_TO_PASS": ["a"]}, f"{line}\n{line}")) == {"a": ""}


def test_the_page_shows_the_table_and_the_first_broken_test_open(pages: Any) -> None:
    runs = pages.desk.store.runs
    case = Case("fix", extra={"instance": INSTANCE})
    run_id = runs.create(RunConfig(AgentRef("a", "a"), "s", n=1), [case])
    scores = (Score("resolved", value=0.0, details={"test_result": {"test_output": OUTPUT}}),)
    transcript = Transcript((TurnRecord("Fix.", (Event("tool_call", call=ToolCall("run", {})),)),))
    runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", transcript, scores)])

    page = pages.get(f"/runs/{run_id}/cases/0/trials/0").text

    assert '<th scope="row">Must stay green</th><td>2 passed</td><td data-num>0 of 2</td>' in page
    assert 'id="broke" data-broken open><summary><code>a.py::T::test_old</code>' in page
    assert '<li id="broke-2" data-broken><code>a.py::test_gone</code>' in page
    assert '<a class="button" data-kind="primary" href="#broke">First broken test <kbd>n</kbd></a>' in page
    assert "<mark>&gt;       assert add(1, 2) == &#34;&lt;b&gt;3&lt;/b&gt;&#34;</mark>\n<mark>E " in page
