"""Notices of live scoring to a trusted folder: the command `on_alarm`, and events of OpenTelemetry at `emit`."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evaldesk.agents.group_guard import kill_group
from evaldesk.durable_files import replace_file
from evaldesk.model.inbox import Conversation, InboxScore
from evaldesk.settings import Settings
from evaldesk.store import Store

log = logging.getLogger("evaldesk.inbox")

NOTICE_NAME = "inbox-alarm.json"
NOTICE_HOLD = "inbox-alarm"
COMMAND_S, POLL_S = 60.0, 0.05
EMIT_S = 10.0
EVENT = "gen_ai.evaluation.result"
"""The event of the semantic conventions of OpenTelemetry for a score."""
ALARM_EVENT = "evaldesk.alarm"
SEVERITY_INFO, SEVERITY_WARN = 9, 13
"""Of the data model of logs of OpenTelemetry."""
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class AlarmNotice:
    """An alarm as a command reads it on its input."""

    conversation: int
    at: datetime
    bar: float
    release: str
    n_passed: int
    n_scored: int

    @property
    def values(self) -> dict[str, object]:
        """The JSON of the notice."""
        return {
            "alarm": f"the pass rate is below {self.bar:g}",
            "conversation": self.conversation,
            "at": self.at.isoformat(),
            "bar": self.bar,
            "release": self.release,
            "passed": self.n_passed,
            "scored": self.n_scored,
        }


@dataclass(frozen=True, slots=True)
class FreshScores:
    """A conversation with the new scores of its criteria."""

    conversation: Conversation
    scores: tuple[InboxScore, ...]


def last_notice(settings: Settings) -> tuple[datetime, int]:
    """The time and the conversation of the last alarm that was told of; long ago and 0 before the first."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        values = json.loads((settings.state_folder / NOTICE_NAME).read_bytes())
        at = datetime.fromisoformat(values["at"])
        return (at if at.tzinfo else at.replace(tzinfo=UTC)), int(values["conversation"])
    return datetime.min.replace(tzinfo=UTC), 0


def send_notice(settings: Settings, store: Store, notice: AlarmNotice) -> bool:
    """Start `on_alarm` and send an event, once for each alarm; whether it is a new one.

    Only for a trusted folder. The command gets a JSON object on its input, and is ended after 60 s.
    """
    end_hold = store.try_hold(NOTICE_HOLD)
    if end_hold is None:  # another process sends it
        return False
    try:
        if last_notice(settings) >= (notice.at, notice.conversation):
            return False
        # Before the command: one that fails is not started again and again.
        values = {"at": notice.at.isoformat(), "conversation": notice.conversation}
        replace_file(settings.state_folder / NOTICE_NAME, json.dumps(values).encode(), mode=0o600)
    finally:
        end_hold()
    if settings.inbox.on_alarm:
        start_command(settings, notice)
    if settings.inbox.emit:
        emit_events(settings.inbox.emit, [_event(ALARM_EVENT, notice.at, store.now(), notice.values)])
    return True


def start_command(settings: Settings, notice: AlarmNotice) -> None:
    """Start `on_alarm` in the folder of the workspace, and wait for its end and that of its processes.

    After COMMAND_S its process group is killed. A fault is a warning.
    """
    deadline_s = time.monotonic() + COMMAND_S
    try:
        with subprocess.Popen(
            settings.inbox.on_alarm,
            cwd=settings.workspace,
            env=dict(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # one group for the command and its processes, to kill them together: decision 099
        ) as process:
            try:
                process.communicate(json.dumps(notice.values).encode(), timeout=COMMAND_S)
                while _has_processes(process.pid) and time.monotonic() < deadline_s:
                    time.sleep(POLL_S)
            finally:
                kill_group(process.pid)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, settings.inbox.on_alarm)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning("[inbox] on_alarm: %s", error)


def _has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)  # sends no signal, and tells whether the group has processes (decision 099)
    except OSError:
        return False
    return True


def emit_scores(url: str, batch: Sequence[FreshScores], scored_at: datetime) -> None:
    """Send the scores of conversations as events `gen_ai.evaluation.result`. A fault is a warning.

    A conversation that is one trace is named by the trace of the event too, as links of tracing tools need it.
    """
    events = []
    for each in batch:
        name = each.conversation.name
        about = {"gen_ai.conversation.id": name, "service.version": each.conversation.release}
        for score in each.scores:
            if score.value is None:
                continue
            values: dict[str, object] = {"gen_ai.evaluation.name": score.metric}
            # A double by the conventions of OpenTelemetry, also where the score is a whole number.
            values |= {"gen_ai.evaluation.score.value": float(score.value)}
            values |= {} if score.passed is None else {"gen_ai.evaluation.score.label": _label(passed=score.passed)}
            values |= {"gen_ai.evaluation.explanation": score.reason} if score.reason else {}
            event = _event(EVENT, each.conversation.ended_at, scored_at, about | values)
            events.append(event | ({"traceId": name} if _TRACE_ID.fullmatch(name) else {}))
    if events:
        emit_events(url, events)


def emit_events(url: str, events: Sequence[dict[str, Any]]) -> None:
    """Send events as a request of OTLP over HTTP in JSON, to `/v1/logs` of an address without a path.

    A fault is a warning, also of an address or a text that cannot be encoded: scoring goes on.
    """
    import httpx

    resource = {"attributes": _attributes({"service.name": "evaldesk"})}
    scope = {"scope": {"name": "evaldesk"}, "logRecords": [*events]}
    body = {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}
    try:
        address = httpx.URL(url)
        address = address.copy_with(path="/v1/logs") if address.path in ("", "/") else address
        with httpx.Client(timeout=EMIT_S, follow_redirects=False, trust_env=False) as client:
            client.post(address, json=body).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        log.warning("[inbox] emit: %s", type(error).__name__)


def _event(name: str, at: datetime, observed_at: datetime, values: dict[str, object]) -> dict[str, Any]:
    return {
        "timeUnixNano": _nanoseconds(at),
        "observedTimeUnixNano": _nanoseconds(observed_at),
        "severityNumber": SEVERITY_WARN if name == ALARM_EVENT else SEVERITY_INFO,
        "eventName": name,
        # Readers before the field eventName look for the attribute.
        "attributes": _attributes({"event.name": name} | values),
    }


def _nanoseconds(at: datetime) -> str:
    return str(int(at.timestamp() * 1_000_000) * 1000)


def _attributes(values: dict[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value != ""]


def _value(value: object) -> dict[str, object]:
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}


def _label(*, passed: bool) -> str:
    return "passed" if passed else "failed"
