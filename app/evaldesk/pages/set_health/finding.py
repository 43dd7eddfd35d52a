"""A finding about an eval set: its kind, its cases and the one action that answers it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import MOST_NAMED


class FindingKind(NamedTuple):
    """A kind of finding. `noun` is counted in its title, `status` colours it, `action` is the label of its button.

    `is_good`: it is no fault, so no build fails by it.
    """

    noun: str
    status: str
    action: str
    words: str
    is_good: bool = False


# In the order of the page: contradictions first, since no run can be right about both cases.
FINDING_KINDS: Mapping[str, FindingKind] = {
    "contradictions": FindingKind(
        "contradiction?", "failed", "Open both", "cases that say the same and expect something else"
    ),
    "wrong_way": FindingKind(
        "case that points the wrong way", "failed", "Inspect", "cases that pass where the other cases of a run fail"
    ),
    "never_passed": FindingKind(
        "case that never passed", "failed", "Accept results…", "0 of 20 trials or more, over 2 agent versions"
    ),
    "repeated_ids": FindingKind(
        "repeated id", "failed", "Rename", "ids that several cases have; no run can name one of them"
    ),
    "untested_tools": FindingKind(
        "untested tool", "errored", "Draft a case", "tools that no case expects and no passing trial called"
    ),
    "untested_arguments": FindingKind(
        "untested argument", "errored", "Draft a case", "arguments that no case expects and no passing trial sent"
    ),
    "untested_values": FindingKind(
        "argument with untested values", "errored", "Draft a case", "values of an enum that nobody asked for"
    ),
    "flaky": FindingKind(
        "flaky case", "errored", "Quarantine…", "passed and failed within 3 of the last 5 runs of one agent version"
    ),
    "broken_judge": FindingKind(
        "case with a broken judge", "errored", "Re-score", "20 % of the trials or more are unscored"
    ),
    "asserts_nothing": FindingKind("case that asserts nothing", "errored", "Add an expectation", "no run can fail"),
    "unasserted_states": FindingKind(
        "state that no case asserts", "unscored", "Add to cases", "keys that trials change and no case asserts"
    ),
    "answers_in_prompt": FindingKind(
        "answer in the prompt", "unscored", "Look", "references that stand in the user's words or the initial state"
    ),
    "twins": FindingKind("pair of twins", "unscored", "Open both", "cases that say and expect the same"),
    "expected_nowhere": FindingKind(
        "tool that is expected nowhere", "unscored", "Draft a case", "passing trials called it, no case expects it"
    ),
    "saturated": FindingKind(
        "case that never fails", "passed", "1 trial each", "passed 50 trials or more, over 5 runs of 2 agent versions"
    ),
    "tells_agents_apart": FindingKind(
        "case that tells agents apart", "passed", "Keep", "fails more where the rest fails more", is_good=True
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding; `items` are the counted things in words, `case_ids` its cases in the order of the set.

    `detail` is the rest of its sentence.
    """

    kind: str
    items: tuple[str, ...]
    case_ids: tuple[str, ...] = ()
    detail: str = ""

    @property
    def n(self) -> int:
        """The number of counted things."""
        return len(self.items)

    @property
    def about(self) -> FindingKind:
        """Its kind, with words and action."""
        return FINDING_KINDS[self.kind]

    @property
    def title(self) -> str:
        """`2 untested tools`."""
        noun = self.about.noun
        if noun.endswith("?"):
            return noun.capitalize() if self.n == 1 else f"{self.n:,} {noun[:-1]}s?"
        head, _, tail = noun.partition(" ")
        if self.n != 1 and head in ("case", "tool", "state", "pair", "argument", "answer"):
            tail = tail.replace("that never fails", "that never fail").replace("that asserts", "that assert")
            tail = tail.replace("that points", "that point").replace("that tells", "that tell")
            tail = tail.replace("that is expected", "that are expected")
            return f"{self.n:,} {head}s {tail}"
        return counted(self.n, noun)

    @property
    def words(self) -> str:
        """The counted things, the first ones by name."""
        names = ", ".join(self.items[:MOST_NAMED])
        more = f" and {self.n - MOST_NAMED:,} more" if self.n > MOST_NAMED else ""
        return f"{names}{more}{f': {self.detail}' if self.detail else ''}"

    def as_json(self) -> dict[str, Any]:
        """The finding as plain JSON."""
        return {
            "kind": self.kind,
            "count": self.n,
            "items": list(self.items),
            "cases": list(self.case_ids),
            "words": self.words,
            "action": self.about.action.rstrip("…"),
        }


def ci_command(name: str, agent_id: str) -> str:
    """The command of a build that fails by the findings that no run can be right about, or that nobody can trust."""
    kinds = [kind for kind, about in FINDING_KINDS.items() if about.status == "failed"]
    agent = ("--agent", agent_id) if agent_id else ()
    return shlex.join(("evaldesk", "evalset", "health", name, *agent, "--fail-on", ",".join(kinds)))


def kinds_of(text: str) -> tuple[str, ...]:
    """The kinds of finding in a text such as `untested_tools,never`: each by its name, or a beginning of only one.

    `all` are all that are faults. Raises UsageError for none, NotFoundError for an unknown one.
    """
    names = [part.strip().replace("-", "_") for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError(f"--fail-on: name at least one of {', '.join(FINDING_KINDS)}", field="fail_on")
    kinds: dict[str, None] = {}
    for name in names:
        matches = [kind for kind in FINDING_KINDS if kind == name] or [k for k in FINDING_KINDS if k.startswith(name)]
        if name == "all":
            matches = [kind for kind, about in FINDING_KINDS.items() if not about.is_good]
        elif len(matches) != 1:
            raise NotFoundError.among("kind of finding", name, (*FINDING_KINDS, "all"))
        kinds |= dict.fromkeys(matches)
    return tuple(kinds)


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings that count something, in the order of the table."""
    places = {kind: place for place, kind in enumerate(FINDING_KINDS)}
    return tuple(sorted((each for each in findings if each.n), key=lambda each: places[each.kind]))
