"""Facts of a trial's source beside its conversation: scenario, reference actions, checks, patches, tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.diff.text_diff import Segment, diff_text
from evaldesk.diff.turn_diff import ArgRow, diff_args_by_key
from evaldesk.matching import json_equal
from evaldesk.model import Case, ToolCall, TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.model.transcript import reported_values
from evaldesk.pages.json_tree import Node, Trees, cut
from evaldesk.pages.prose import Markdown, Prose
from evaldesk.pages.tested import AskedTests, asked_tests
from evaldesk.wording.words import counted_words

MAX_LINES = 300
MAX_OUTPUT = 4_000
MAX_ACTIONS = 100
MAX_SEARCHED = 100_000
SCENARIO = {
    "starting_prompt": "First message",
    "persona": "Persona",
    "user_persona": "Persona",
    "conversation_plan": "Plan",
}
# Names of keys, not formats, so that played and imported trials look the same: decision 090.
CHECKS = {
    "env_assertions": "Environment",
    "communicate_checks": "Said",
    "nl_assertions": "Judged",
    "action_checks": "Action",
}
_PATCH = re.compile(r"^(?:diff --git |--- \S.*\n\+\+\+ )", re.MULTILINE)
_TESTED = re.compile(r"^[= ]*(\d+ [a-z]+(?:, \d+ [a-z]+)*) in \d[\d.]*s\b", re.MULTILINE)
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True, slots=True)
class Action:
    """A reference action: made (`=`), made with other arguments (`~`), or never made (`-`); empty without a trial.

    `args` are those of the call that is nearest, which stands at `href` of the page; empty without one.
    """

    op: str
    name: str
    args: Sequence[ArgRow]
    href: str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the source checked: whether it held, None where it does not say so."""

    name: str
    text: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a patch with its numbers before and after; `op` is `+`, `-`, `@` (a hunk), `f` (a file), or empty.

    `hunk` counts the hunks of the patch from 1, on the line where one begins. `segments` are the words that changed
    where a line stands for another.
    """

    op: str
    text: str
    before: int | None = None
    after: int | None = None
    hunk: int = 0
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A patch as `lines`, or any other long text as `beginning`; `at` is its place among the texts of the source.

    `words` are the files and lines of a patch, or the passed and failed tests by the output of pytest.
    """

    at: int
    title: str
    lines: Sequence[PatchLine]
    words: str
    beginning: str
    is_cut: bool

    @property
    def is_made(self) -> bool:
        """Whether the agent or its tests left it, rather than the benchmark as a reference."""
        return not self.title.startswith("Reference ")

    @property
    def files(self) -> dict[str, list[str]]:
        """The addresses of the hunks on this page, by the file that they change."""
        hunks_by_file: dict[str, list[str]] = {}
        for line in self.lines:
            if line.op == "f":
                hunks = hunks_by_file.setdefault(line.text, [])
            elif line.hunk and hunks_by_file:
                hunks.append(f"#source-{self.at}-hunk-{line.hunk}")
        return hunks_by_file


@dataclass(frozen=True, slots=True)
class Source:
    """The facts beside a trial, each part empty where it is unknown; `told` are single values by their title."""

    prose_texts: Sequence[tuple[str, Prose]]
    actions: Sequence[Action]
    checks: Sequence[Check]
    texts: Sequence[Text]
    reports: Sequence[tuple[str, Node]]
    tests: AskedTests | None = None

    def __bool__(self) -> bool:
        return bool(self.prose_texts or self.actions or self.checks or self.texts or self.reports or self.tests)

    @property
    def patch(self) -> Text | None:
        """The first patch that the agent left."""
        return next((text for text in self.texts if text.lines and text.is_made), None)

    @property
    def reference_files(self) -> set[str]:
        """The files that a reference patch changes; empty without one."""
        return {name for text in self.texts if not text.is_made for name in text.files}

    def hunks(self, path: str) -> tuple[str, ...] | None:
        """The addresses of the hunks of a file in the agent's patch; None without a patch, or where it is cut."""
        if self.patch is None or self.patch.is_cut:
            return None
        hunk_lists = (hunks for name, hunks in self.patch.files.items() if f"/{path}".endswith(f"/{name}"))
        return tuple(next(hunk_lists, ()))

    @property
    def summary(self) -> str:
        """The outcome of the trial in sentences: reference actions, patch, tests; empty where it is unknown."""
        n_made = sum(action.op == "=" for action in self.actions)
        actions = [f"{counted_words(n_made, len(self.actions), 'reference action')} made."] if self.actions else []
        tests = [text for text in self.texts if text.words and not text.lines][:1]
        test_words = f"{self.tests.sentence}." if self.tests and self.tests.sentence else ""
        texts = [f"{text.title}: {text.words}." for text in (self.patch, *(() if test_words else tests)) if text]
        return " ".join([*actions, *([test_words] if test_words else []), *texts])


def source_of(case: Case, result: TrialResult | None, agent_reports: Mapping[str, Any] | None = None) -> Source:
    """All that is known beside a trial; without a result that of its case.

    `agent_reports` are the reports of a trial of many turns, of which the result has the last one only.
    """
    trees, markdown, target_texts = Trees(n_left=300), Markdown(), (*_scenario(case, result), *_targets(case, result))
    reports = [(name, trees.tree(value)) for name, value in _reports(result, agent_reports)] if result else []
    texts = source_texts(case, result, agent_reports)
    outputs = [text for _, text in texts if not _PATCH.search(text[:2_000])]
    return Source(
        prose_texts=[(title, markdown.prose(cut(text, MAX_OUTPUT))) for title, text in target_texts],
        actions=_actions(case, result),
        checks=_checks(result),
        texts=[_text(at, title, text) for at, (title, text) in enumerate(texts)],
        reports=[(name, tree) for name, tree in reports if tree],
        tests=asked_tests(_instance(case), _report_values(result, agent_reports), outputs),
    )


def source_texts(
    case: Case, result: TrialResult | None, reports: Mapping[str, Any] | None = None
) -> list[tuple[str, str]]:
    """The long texts that a source gives, by title: patches first, then output of tests.

    Of the state at the end, in which SWE-agent's submission is, and of a reference only patches are.
    """
    texts: dict[str, str] = {}
    instance = _instance(case)
    state = result.transcript.final_state if result and result.transcript.turns else {}
    value_groups = (("", _report_values(result, reports), True), ("", state, False))
    for owner, values, is_whole in (*value_groups, ("reference", instance, False)):
        for name, text in _strings(values):
            is_patch = _PATCH.search(text[:2_000]) is not None
            if (is_patch or (is_whole and "\n" in text.strip())) and text not in texts.values():
                texts[_title(f"{owner} {name}")] = text
    return sorted(texts.items(), key=lambda each: _PATCH.search(each[1][:2_000]) is None)


def _instance(case: Case) -> dict[str, Any]:
    """The benchmark's facts of its instance; Inspect has them as the metadata of a sample."""
    values = (case.extra.get(key) for key in ("instance", "metadata"))
    return next((each for each in values if isinstance(each, dict)), {})


def _report_values(result: TrialResult | None, reports: Mapping[str, Any] | None) -> dict[str, Any]:
    """The reported values of a trial, and the test results in the details of its scores."""
    if result is None:
        return {}
    tests = [score.details.get("test_result") for score in result.scores]
    return {
        **next((test for test in tests if isinstance(test, dict)), {}),
        **(reported_values(result.transcript) if reports is None else reports),
    }


def _strings(values: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict) and depth < 2:
            yield from _strings(value, depth + 1)


def _title(name: str) -> str:
    return name.replace("_", " ").strip().capitalize()


def _scenario(case: Case, result: TrialResult | None) -> Iterator[tuple[str, str]]:
    user = case.extra.get("user_scenario")
    persona = user.get("persona") if isinstance(user, dict) else None
    fields = dict(case.scenario or {})
    if isinstance(persona, str) and persona:
        plan = str(fields.get("conversation_plan", "")).removeprefix(f"Persona: {persona}\n\n")
        fields = {"persona": persona, **fields, "conversation_plan": plan}
    for name, title in SCENARIO.items():
        if isinstance(text := fields.get(name), str) and text.strip():
            yield title, text
    if case.scenario is not None and result and result.stop_reason:
        yield "Stop reason", result.stop_reason.replace("_", " ")


def _targets(case: Case, result: TrialResult | None) -> Iterator[tuple[str, str]]:
    """The target of a sample, with the answer and explanation of its scorers."""
    target = case.extra.get("target")
    if isinstance(target, str | list) and target:
        yield "Target", target if isinstance(target, str) else "\n".join(map(str, target))
    for score in result.scores if result else ():
        answer = score.details.get("answer")
        if isinstance(answer, str) and answer:
            yield f"Answer that {score.metric} read", answer
            if score.reason:
                yield f"Explanation of {score.metric}", score.reason


def _actions(case: Case, result: TrialResult | None) -> list[Action]:
    """The reference actions, each beside the call that is equal, or else the first unused one of that tool."""
    reference_calls = list(_reference(case))[:MAX_ACTIONS]
    agent_calls = list(_calls(result)) if reference_calls else []
    pairs: dict[int, tuple[ToolCall, str]] = {}
    for is_equal in (True, False):
        for at, action in enumerate(reference_calls):
            if at in pairs:
                continue
            fit = (each for each in agent_calls if each[0].name == action.name)
            fit = (each for each in fit if not is_equal or json_equal(dict(action.args), dict(each[0].args)))
            if call_pair := next(fit, None):
                pairs[at] = call_pair
                agent_calls.remove(call_pair)
    absent = "-" if result else ""
    return [_action(action, pairs.get(at), absent) for at, action in enumerate(reference_calls)]


def _action(action: ToolCall, pair: tuple[ToolCall, str] | None, absent: str) -> Action:
    if pair is None:
        return Action(absent, action.name, diff_args_by_key(action.args, {}), "")
    rows = diff_args_by_key(action.args, pair[0].args)
    return Action("=" if all(row.op == "=" for row in rows) else "~", action.name, rows, pair[1])


def has_reference_actions(case: Case) -> bool:
    """Whether the case names calls, beside each of which that of the trial is shown."""
    return next(_reference(case), None) is not None


def _reference(case: Case) -> Iterator[ToolCall]:
    criteria = case.extra.get("evaluation_criteria")
    rows = criteria.get("actions") if isinstance(criteria, dict) else case.extra.get("actions")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(name := row.get("name"), str):
            args = row.get("arguments", row.get("kwargs"))
            yield ToolCall(name, args if isinstance(args, dict) else {})


def _calls(result: TrialResult | None) -> Iterator[tuple[ToolCall, str]]:
    for number, turn in enumerate(result.transcript.turns if result else (), 1):
        for at, event in enumerate(turn.events):
            if event.kind == "tool_call" and event.call and not event.within:
                yield event.call, f"#turn-{number}-event-{at}"


def _checks(result: TrialResult | None) -> list[Check]:
    """The checks of tau-bench and tau2: the database, required outputs, and the parts of a reward."""
    checks: list[Check] = []
    for details in (score.details for score in result.scores) if result else ():
        database = details.get("db_check")
        if isinstance(database, dict) and "db_match" in database:
            checks.append(_database(database["db_match"] is True))
        elif "r_actions" in details:
            checks.append(_database(details["r_actions"] == 1))
        outputs = details.get("outputs")
        for text, is_said in outputs.items() if isinstance(outputs, dict) else ():
            checks.append(Check("Said", str(text), bool(is_said)))
        for key, name in CHECKS.items():
            rows = details.get(key)
            checks += [_check(name, row) for row in (rows if isinstance(rows, list) else ()) if isinstance(row, dict)]
    return checks


def _database(is_same: bool) -> Check:
    words = "as the reference actions leave it" if is_same else "differs from that of the reference actions"
    return Check("Database", words, is_same)


def _check(name: str, row: Mapping[str, Any]) -> Check:
    action = row.get("action")
    text = row.get("info", row.get("nl_assertion", action.get("name") if isinstance(action, dict) else ""))
    holds = row.get("met", row.get("action_match"))
    return Check(name, str(text)[:500], holds if isinstance(holds, bool) else None)


def _reports(result: TrialResult, values: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """The values that a benchmark reports, without its long texts."""
    for name, value in _report_values(result, values).items():
        if isinstance(value, dict | list) and value and name != "test_result":
            yield _title(name), _without_long_texts(value)


def _without_long_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_long_texts(item)
            for key, item in value.items()
            if not (isinstance(item, str) and "\n" in item)
        }
    return value


def _text(at: int, title: str, text: str) -> Text:
    if not _PATCH.search(text[:2_000]):
        summaries = _TESTED.findall(text[-MAX_SEARCHED:])
        return Text(at, title, (), summaries[-1] if summaries else "", text[:MAX_OUTPUT], len(text) > MAX_OUTPUT)
    lines = text.splitlines()
    return Text(at, title, list(patch_lines(lines[:MAX_LINES])), _changed_words(lines), "", len(lines) > MAX_LINES)


def _changed_words(lines: Sequence[str]) -> str:
    n_added, n_removed = (
        sum(line.startswith(mark) and not line.startswith(3 * mark) for line in lines) for mark in "+-"
    )
    n_files = sum(line.startswith("diff --git ") for line in lines) or sum(line.startswith("+++ ") for line in lines)
    where = "" if n_files < 2 else f" in {counted(n_files, 'file')}"
    return f"{counted(n_added, 'line')} added, {n_removed:,} removed{where}"


def patch_lines(lines: Sequence[str]) -> Iterator[PatchLine]:
    """The lines of a patch, or of one file from its first hunk on, as rows of a table."""
    before = after = hunk = 0
    is_head, is_git = True, False
    old_lines: list[PatchLine] = []
    new_lines: list[PatchLine] = []
    for line in lines:
        text = line[:500]
        if line.startswith("+") and not is_head:
            new_lines.append(PatchLine("+", text[1:], None, after))
            after += 1
            continue
        if new_lines or not line.startswith("-"):
            yield from _compare_lines(old_lines, new_lines)
            old_lines, new_lines = [], []
        if hunk_match := _HUNK.match(line):
            before, after, is_head, hunk = int(hunk_match[1]), int(hunk_match[2]), False, hunk + 1
            yield PatchLine("@", text, hunk=hunk)
        elif line.startswith("diff --git ") or is_head:
            is_head, is_git = True, is_git or line.startswith("diff --git ")
            if line.startswith("diff --git " if is_git else "+++ "):
                yield PatchLine("f", text.rpartition(" b/")[2] if is_git else text.removeprefix("+++ "))
        elif line.startswith("-"):
            old_lines.append(PatchLine("-", text[1:], before))
            before += 1
        else:
            yield PatchLine("", text[1:], before, after)
            before, after = before + 1, after + 1
    yield from _compare_lines(old_lines, new_lines)


def _compare_lines(old_lines: Sequence[PatchLine], new_lines: Sequence[PatchLine]) -> list[PatchLine]:
    """Lines that were taken away and those after them; as many of both are compared word by word."""
    if len(old_lines) != len(new_lines):
        return [*old_lines, *new_lines]
    pairs = [
        (old_line, new_line, diff_text(old_line.text, new_line.text))
        for old_line, new_line in zip(old_lines, new_lines, strict=True)
    ]
    alike = [any(each.kind == "same" and each.text.strip() for each in diff.expected) for _, _, diff in pairs]
    return [
        *(
            replace(old_line, segments=diff.expected) if like else old_line
            for like, (old_line, _, diff) in zip(alike, pairs, strict=True)
        ),
        *(
            replace(new_line, segments=diff.actual) if like else new_line
            for like, (_, new_line, diff) in zip(alike, pairs, strict=True)
        ),
    ]
