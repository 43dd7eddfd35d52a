"""A run as JUnit XML: a suite for each eval set, a test case for each case; errors are not failures here either."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from xml.etree import ElementTree as ET

from evaldesk.report.run_result import CaseResult
from evaldesk.report.turn_text import first_words, printable, trial_text

LONGEST = 20_000


def junit_suite(
    name: str, cases: Iterable[CaseResult], *, started_at: datetime | None = None, pass_threshold: float = 1.0
) -> ET.Element:
    """One `<testsuite>`. A case is a failure when fewer than `pass_threshold` of its scored trials passed.

    A case whose trials all errored is an error, one of which nothing was scored is skipped. The properties of a case
    count its trials by what became of them.
    """
    suite = ET.Element("testsuite", name=_xml(name))
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    seconds = 0.0
    for case in cases:
        element, kind = _case(name, case, pass_threshold)
        suite.append(element)
        counts["tests"] += 1
        if kind:
            counts[kind] += 1
        seconds += float(element.get("time", "0"))
    for key, value in counts.items():
        suite.set(key, str(value))
    suite.set("time", f"{seconds:.3f}")
    if started_at:
        suite.set("timestamp", started_at.strftime("%Y-%m-%dT%H:%M:%S"))
    return suite


def junit_xml(suites: Sequence[ET.Element]) -> bytes:
    """The document of several suites."""
    root = ET.Element("testsuites", name="evaldesk")
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in suites):.3f}")
    root.extend(suites)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: str, case: CaseResult, pass_threshold: float) -> tuple[ET.Element, str]:
    seconds = sum(trial.duration_ms for trial in case) / 1000
    element = ET.Element("testcase", classname=_xml(suite), name=_xml(case.id), time=f"{seconds:.3f}")
    _add_counts(element, case)
    rate = case.pass_rate
    if rate is not None and rate >= pass_threshold:
        return element, ""
    kind, tag = ("failures", "failure") if rate is not None else ("errors", "error")
    if rate is None and not case.n_errored:
        kind, tag = "skipped", "skipped"
    worst = next((trial for trial in case if trial.verdict in ("failed", "errored")), case[0] if len(case) else None)
    said = f"{case.n_passed} of {case.n_scored} passed" if rate is not None else "nothing was scored"
    if worst is None:
        ET.SubElement(element, tag, message="never played")
        return element, kind
    message = f"{said}; trial {worst.trial_index + 1}: {first_words(case.case, worst)}"
    child = ET.SubElement(element, tag, message=_xml(message))
    if tag != "skipped":
        child.text = _xml(trial_text(case.case, worst)[:LONGEST])
    return element, kind


def _add_counts(element: ET.Element, case: CaseResult) -> None:
    counts = {
        "planned": case.n_planned,
        "passed": case.n_passed,
        "failed": case.n_failed,
        "errored": case.n_errored,
        "unscored": case.n_unscored,
    }
    properties = ET.SubElement(element, "properties")
    for name, value in counts.items():
        ET.SubElement(properties, "property", name=f"evaldesk_{name}", value=str(value))


def _xml(text: str) -> str:
    """Text without what XML 1.0 cannot hold."""
    return "".join(
        letter
        if letter in "\t\n" or (letter >= " " and not "\ud800" <= letter <= "\udfff" and letter not in "￾￿")
        else "�"
        for letter in printable(text)
    )
