"""A run as JUnit XML: a suite for each eval set with a test case for each case, and a suite of the gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from xml.etree import ElementTree as ET

from evaldesk.desk.runs.case_reports import CaseReport
from evaldesk.model import Conclusion, Counts, GateOutcome, Outcome
from evaldesk.wording.printable import printable
from evaldesk.wording.words import asides_words, scored_words


def junit_suite(
    name: str,
    cases: Iterable[tuple[CaseReport, str]],
    conclusion: Conclusion,
    *,
    notes: Mapping[str, str] | None = None,
    started_at: datetime | None = None,
) -> ET.Element:
    """One `<testsuite>` of cases, each with the name by which gates know it.

    A case is a failure when a gate that failed names it, and an error when it has errored trials and more than the
    tolerated ones errored. A case without a score, or in quarantine, is skipped. Other failed trials are listed in
    `<system-out>`. The message of a case ends with its note in `notes`. The properties of a case count its trials by
    how they ended.
    """
    broken = {case_name for gate in conclusion.gates if gate.is_failed for case_name in gate.names}
    is_troubled = any(gate.name == "--max-error-rate" and not gate.is_held for gate in conclusion.gates)
    notes_by_case = notes or {}
    left_out = frozenset(conclusion.case_ids_in_no_gate)
    elements = (
        _case_in_no_gate(name, case)
        if case_name in left_out
        else _case(name, case, case_name in broken, is_troubled, notes_by_case.get(case_name, ""))
        for case, case_name in cases
    )
    return _suite_of(name, elements, started_at)


def gate_suite(conclusion: Conclusion) -> ET.Element:
    """The suite of the gates: a test case for each, and one for the conclusion, which fails unless the run passed.

    A gate that is too close to tell, and a run that is neutral for it, are skipped.
    """
    elements = [_gate(gate.name, gate.sentence, _tag(gate)) for gate in conclusion.gates]
    tags: dict[Outcome, str] = {"passed": "", "failed": "failure", "neutral": "skipped"}
    reasons = (conclusion.headline, *conclusion.reasons) if conclusion.case_ids_in_no_gate else conclusion.reasons
    reason = "; ".join(reasons) or conclusion.outcome
    elements.append(_gate("conclusion", reason, tags.get(conclusion.outcome, "error")))
    return _suite_of("gates", elements, None)


def _tag(gate: GateOutcome) -> str:
    if gate.is_held:
        return ""
    if gate.is_neutral:
        return "skipped"
    return "failure" if gate.is_failed and not gate.is_of_evidence else "error"


def _gate(name: str, sentence: str, tag: str) -> ET.Element:
    element = ET.Element("testcase", classname="gates", name=_xml(name), time="0.000")
    if tag:
        ET.SubElement(element, tag, message=_xml(sentence))
    else:
        ET.SubElement(element, "system-out").text = _xml(sentence)
    return element


def _suite_of(name: str, elements: Iterable[ET.Element], started_at: datetime | None) -> ET.Element:
    suite = ET.Element("testsuite", name=_xml(name))
    suite.extend(elements)
    suite.set("tests", str(len(suite.findall("testcase"))))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("time", f"{sum(float(element.get('time', '0')) for element in suite):.3f}")
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


def _case_in_no_gate(suite: str, case: CaseReport) -> ET.Element:
    seconds = case.duration_ms / 1000
    element = ET.Element("testcase", classname=_xml(suite), name=_xml(case.id), time=f"{seconds:.3f}")
    _add_counts(element, case.counts)
    words = f"in quarantine, in no gate: {scored_words(case.counts)}{asides_words(case.counts)}"
    ET.SubElement(element, "skipped", message=_xml(words))
    return element


def _case(suite: str, case: CaseReport, is_broken: bool, is_troubled: bool, note: str) -> ET.Element:
    seconds = case.duration_ms / 1000
    element = ET.Element("testcase", classname=_xml(suite), name=_xml(case.id), time=f"{seconds:.3f}")
    counts = case.counts
    _add_counts(element, counts)
    if counts.all_passed:
        return element
    tag = "failure" if is_broken else "error" if is_troubled and counts.errored else ""
    if not tag and not counts.scored:
        tag = "skipped"
    message = scored_words(counts) + asides_words(counts) + (f"; {note}" if note else "")
    if case.trial_index is None:
        ET.SubElement(element, tag, message="never played")
        return element
    if case.words is not None:
        message += f"; trial {case.trial_index + 1}: {case.words}"
    if not tag:
        ET.SubElement(element, "system-out").text = _xml(message)
        return element
    child = ET.SubElement(element, tag, message=_xml(message))
    if tag != "skipped":
        child.text = _xml(case.text)
    return element


def _add_counts(element: ET.Element, counts: Counts) -> None:
    count_attributes = {
        "planned": counts.planned,
        "passed": counts.passed,
        "failed": counts.failed,
        "errored": counts.errored,
        "unscored": counts.unscored,
        "unplayed": counts.unplayed,
    }
    properties = ET.SubElement(element, "properties")
    for name, value in count_attributes.items():
        ET.SubElement(properties, "property", name=f"evaldesk_{name}", value=str(value))


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 excludes."""
    return "".join(
        letter
        if letter in "\t\n" or (letter >= " " and not "\ud800" <= letter <= "\udfff" and letter not in "￾￿")
        else "�"
        for letter in printable(text)
    )
