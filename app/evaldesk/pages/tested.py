"""The tests of a benchmark for a patch: tests to turn green, tests to stay green, and their results.

They are read from the report of the benchmark, else by their names from the output of pytest, unittest or Django.
(SWE-bench swebench/harness/grading.py and log_parsers; Multi-SWE-bench multi_swe_bench/harness/report.py)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_READ = 1_000_000
"""So many characters at the end of an output are read."""
MAX_OUTPUT = 3_000
ASKED = {"FAIL_TO_PASS": ("Must turn green", "failed"), "PASS_TO_PASS": ("Must stay green", "passed")}
"""The keys of SWE-bench: what is asked of their tests, and what they did before the patch."""
RUNS = {
    "f2p_tests": "FAIL_TO_PASS",
    "s2p_tests": "FAIL_TO_PASS",
    "n2p_tests": "FAIL_TO_PASS",
    "p2p_tests": "PASS_TO_PASS",
}
"""The keys of Multi-SWE-bench."""
OTHERS = ("tests", "test_results", "test_cases")
"""Keys by which other reports list their tests, as a list of objects or as an object of outcomes."""
WORDS = {
    **dict.fromkeys(("pass", "passed", "ok", "success", "xfail", "true", "."), "passed"),
    **dict.fromkeys(("fail", "failed", "failure", "error", "errored", "xpass", "f", "e", "false"), "failed"),
    **dict.fromkeys(("skip", "skipped", "s"), "skipped"),
}
_WORDS = "PASSED|FAILED|ERROR|XFAIL|XPASS"
_LINES = (
    re.compile(
        rf"^(?P<name>\S.{{0,400}}?) (?:\.\.\. ?)?(?P<word>{_WORDS}|SKIPPED|ok|OK|FAIL|F|E)\s*(?:\[.{{0,20}}\])?$", re.M
    ),
    re.compile(rf"^(?P<word>{_WORDS}) (?P<name>\S.*?)(?: - .*)?$", re.M),
)
"""The lines of a test as it runs, and those of the summary, which come last and count."""
_SECTION = re.compile(r"^_{3,} (.+?) _{3,}$|^(?:FAIL|ERROR): (.+)$", re.M)
_RULE = re.compile(r"^(?:_{3,} .+ _{3,}|={3,}.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Tested:
    """A test before and after the patch: `passed`, `failed`, `skipped`, or empty where nothing tells it."""

    name: str
    before: str
    after: str

    @property
    def words(self) -> str:
        """The result of the test."""
        after = self.after or "not run"
        return after if not self.before else f"{after}; {self.before} before"


@dataclass(frozen=True, slots=True)
class Group:
    """The tests with one requirement; none has an `after` where no result is reported."""

    title: str
    tests: Sequence[Tested]

    def n(self, after: str) -> int:
        """The number of tests with this result after the patch."""
        return sum(test.after == after for test in self.tests)

    @property
    def before(self) -> str:
        """Their result before the patch."""
        results = dict.fromkeys(test.before for test in self.tests if test.before)
        return ", ".join(f"{sum(test.before == word for test in self.tests):,} {word}" for word in results)

    @property
    def verdict(self) -> str:
        """A test that did not run did not pass; empty where no result is told."""
        if not any(test.after for test in self.tests):
            return ""
        return "passed" if self.n("passed") == len(self.tests) else "failed"

    @property
    def passed_words(self) -> str:
        """The number of passed tests, as `121 of 122`."""
        return f"{self.n('passed'):,} of {len(self.tests):,}" if self.verdict else "–"

    @property
    def sentence(self) -> str:
        """`must stay green: 120 of 122 passed, 1 failed, 1 not run`."""
        count_words = [f"{n:,} {word or 'not run'}" for word in ("failed", "skipped", "") if (n := self.n(word))]
        return ", ".join([f"{self.title.lower()}: {self.passed_words} passed", *count_words])


@dataclass(frozen=True, slots=True)
class AskedTests:
    """The groups; `broken` are the first tests that did not pass, `output` is the output of the first."""

    groups: Sequence[Group]
    output: str

    @property
    def broken(self) -> list[Tested]:
        """The tests that did not pass, in groups with a result; failed ones first."""
        tests = [test for group in self.groups if group.verdict for test in group.tests if test.after != "passed"]
        return sorted(tests, key=lambda test: test.after != "failed")

    @property
    def passed(self) -> list[Tested]:
        """The passed tests."""
        return [test for group in self.groups for test in group.tests if test.after == "passed"]

    @property
    def sentence(self) -> str:
        """The results of the groups; empty without one."""
        words = "; ".join(group.sentence for group in self.groups if group.verdict)
        return f"{words[:1].upper()}{words[1:]}"


def asked_tests(instance: Any, report: Mapping[str, Any], outputs: Iterable[str]) -> AskedTests | None:
    """The tests that the report in `report` lists, else those of `instance` as `outputs` tell them, or None."""
    texts = [text[-MAX_READ:] for text in outputs]
    groups = list(_report_groups(report)) or list(
        _instance_groups(instance if isinstance(instance, dict) else {}, texts)
    )
    tests = AskedTests(groups, "")
    return AskedTests(groups, _output(tests.broken[0].name, texts) if tests.broken else "") if groups else None


def _report_groups(report: Mapping[str, Any], depth: int = 0) -> Iterator[Group]:
    """The groups of the first report in `report` that tells tests, three levels deep."""
    status = report.get("tests_status")
    groups = [*_groups(_of_status(status if isinstance(status, dict) else {})), *_groups(_of_runs(report))]
    groups = groups or [Group("Tests", tests) for key in OTHERS if (tests := list(_of_list(report.get(key))))][:1]
    for value in report.values():
        groups = groups or (list(_report_groups(value, depth + 1)) if isinstance(value, dict) and depth < 3 else [])
    yield from groups


def _groups(tests: Iterable[tuple[str, Tested]]) -> Iterator[Group]:
    pairs = list(tests)
    for list_name, (title, _) in ASKED.items():
        if mine := [test for key, test in pairs if key == list_name]:
            yield Group(title, mine)


def _of_status(status: Mapping[str, Any]) -> Iterator[tuple[str, Tested]]:
    for list_name, (_, before) in ASKED.items():
        lists = status.get(list_name)
        for key, after in (("failure", "failed"), ("success", "passed")):
            for name in _names(lists.get(key) if isinstance(lists, dict) else None):
                yield list_name, Tested(name, before, after)


def _of_runs(report: Mapping[str, Any]) -> Iterator[tuple[str, Tested]]:
    for key, list_name in RUNS.items():
        rows = report.get(key)
        for name, runs in rows.items() if isinstance(rows, dict) else ():
            if isinstance(runs, dict):
                yield list_name, Tested(str(name), _word(runs.get("test")), _word(runs.get("fix")))


def _of_list(rows: Any) -> Iterator[Tested]:
    if isinstance(rows, dict):
        rows = [{"name": name, "status": value} for name, value in rows.items()]
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            name = next((row[key] for key in ("name", "nodeid", "test", "id") if isinstance(row.get(key), str)), "")
            result = next((row[key] for key in ("status", "outcome", "result", "passed") if key in row), None)
            if name and (after := _word(result)):
                yield Tested(name, "", after)


def _instance_groups(instance: Mapping[str, Any], texts: Sequence[str]) -> Iterator[Group]:
    names_by_list = {list_name: _names(instance.get(list_name)) for list_name in ASKED}
    after = _statuses(texts) if any(names_by_list.values()) else {}
    for list_name, names in names_by_list.items():
        title, before = ASKED[list_name]
        if names:
            yield Group(title, [Tested(name, before, after.get(name, "")) for name in names])


def _names(value: Any) -> list[str]:
    """A list of names, also as the JSON text that data sets have in its place."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _statuses(texts: Sequence[str]) -> dict[str, str]:
    """Every test that an output names with its last status there; data sets cut names at their first space."""
    status_by_name: dict[str, str] = {}
    for line in _LINES:
        for match in (match for text in texts for match in line.finditer(text)):
            name, word = match["name"], _word(match["word"])
            status_by_name[name] = status_by_name[name.partition(" ")[0]] = word
    return status_by_name


def _word(value: Any) -> str:
    return WORDS.get(str(value).strip().lower(), "") if isinstance(value, str | bool) else ""


def _output(name: str, texts: Sequence[str]) -> str:
    """The output of pytest or unittest for a failed test; empty where it is missing."""
    dotted_name = ".".join(name.split("::")[1:]) or name
    for text in texts:
        for head in _SECTION.finditer(text):
            if (head[1] or head[2]).strip() in (dotted_name, name, dotted_name.partition(" ")[0]):
                end = _RULE.search(text, head.end())
                return text[head.end() : end.start() if end else None].strip("\n")[:MAX_OUTPUT]
    return ""
