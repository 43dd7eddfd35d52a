"""Live scoring by `[inbox.score]`: samples, judges within their budget, and notices of an alarm."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conversations import put_conversation

from evaldesk.desk.inbox import notices
from evaldesk.desk.inbox.live import LiveDesk, scoring_plan
from evaldesk.desk.inbox.notices import emit_events
from evaldesk.desk.inbox.sampling import is_sampled
from evaldesk.errors import UsageError
from evaldesk.model import Criterion
from evaldesk.model.inbox import InboxScore
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.settings import Settings, read_settings
from evaldesk.store import Store
from evaldesk.transcripts.otel.spans import log_spans_in

JUDGE = """
[inbox.score]
sample = 0.25
errors = true
judge_budget = "2usd/day"
[inbox.score.criteria]
turn_count = 5
hallucinations_v1 = { threshold = 0.5, judge_model_options = { judge_model = "demo/judge", num_samples = 1 } }
"""
NAMES = [f"conv-{number:03d}" for number in range(40)]
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def settings_of(home: Path, text: str) -> Settings:
    (home / "evaldesk.toml").write_text(text)
    return read_settings(home, (home,), environment={})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """40 conversations; those of the numbers 30 to 39 had an error."""
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as opened:
        for number, name in enumerate(NAMES):
            put_conversation(opened, f"q{number}", name=name, source="shop", ending="closed", has_error=number >= 30)
        yield opened


def verdicts(store: Store) -> dict[str, str]:
    """The stratum of each conversation with a verdict, by its name."""
    rows = store.inbox.scored_conversations(LONG_AGO)
    conversations = store.inbox.many([row.id for row in rows])
    return {conversations[row.id].name: row.stratum for row in rows}


def test_judges_score_a_sample_and_errors_and_other_criteria_score_all(store: Store, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, JUDGE)
    live = LiveDesk(settings, store)
    assert settings.inbox.score

    n = live.score_by_settings(settings.inbox.score, is_trusted=True)
    strata = verdicts(store)
    scores = store.inbox.scores([each.id for each in store.inbox.list().items])

    # golden/inbox.json ("kept"), 0.25: ten conversations, none of them from 030 on.
    assert n == 40
    assert {name for name, stratum in strata.items() if stratum == "sample"} == {
        name for name in NAMES if is_sampled(name, 0.25)
    }
    assert {name for name, stratum in strata.items() if stratum == "forced"} == {*NAMES[30:]}
    assert sum(any(each.metric == "turn_count" for each in own) for own in scores.values()) == 40
    assert sum(any(each.metric == "hallucinations_v1" for each in own) for own in scores.values()) == 20
    assert live.score_by_settings(settings.inbox.score, is_trusted=True) == 0
    rates = live.rates(LONG_AGO, 0.85, 0.0001)
    assert sum(each.n_scored for each in rates.releases) == 10  # forced ones are no sample
    assert rates.alarm.n_scored == 10


def test_a_spent_budget_stops_judges_until_the_next_day(store: Store, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, JUDGE.replace("sample = 0.25", "sample = 1.0"))
    live, first = LiveDesk(settings, store), store.inbox.list(limit=1).items[0].id
    store.inbox.record_scores({first: [InboxScore("$", 2.0, None)]})
    assert settings.inbox.score

    assert live.score_by_settings(settings.inbox.score, is_trusted=True) == 0
    assert verdicts(store) == {}
    store.inbox.record_scores({first: [InboxScore("$", 1.0, None)]})

    assert live.score_by_settings(settings.inbox.score, is_trusted=True) == 40
    assert all(each.metric != "$" for each in store.inbox.scores([first])[first])
    day = store.now().replace(hour=0, minute=0, second=0, microsecond=0)
    assert store.inbox.judge_cost(day, day + timedelta(days=1)) == 0.0  # of the demo judge; the 1 was replaced
    assert store.inbox.judge_cost(day + timedelta(days=1), day + timedelta(days=2)) == 0.0


def test_nobody_is_asked_started_or_sent_to_in_a_folder_without_trust(store: Store, tmp_path: Path) -> None:
    judged = settings_of(tmp_path, JUDGE)
    assert judged.inbox.score
    assert LiveDesk(judged, store).score_by_settings(judged.inbox.score, is_trusted=False) == 0

    settings = alarming(tmp_path, tmp_path / "alarm.json")
    assert settings.inbox.score
    assert LiveDesk(settings, store).score_by_settings(settings.inbox.score, is_trusted=False) == 40
    assert LiveDesk(settings, store).recent_rates().alarms

    assert not (tmp_path / "alarm.json").exists()


def alarming(home: Path, place: Path, emit: str = "") -> Settings:
    """Settings by which each conversation fails, and a command that writes its input to a file, one line a start."""
    code = f"import sys; open({str(place)!r}, 'a').write(sys.stdin.read() + chr(10))"
    command = json.dumps([sys.executable, "-c", code])
    address = f'emit = "{emit}"\n' if emit else ""
    return settings_of(
        home,
        f"[inbox]\non_alarm = {command}\n{address}[inbox.score]\nbar = 0.9\nalpha = 0.001\n"
        "[inbox.score.criteria]\ntool_used = { threshold = 1, tool = 'none' }\n",
    )


def test_an_alarm_starts_its_command_once(store: Store, tmp_path: Path) -> None:
    settings = alarming(tmp_path, tmp_path / "alarm.json")
    live = LiveDesk(settings, store)
    assert settings.inbox.score

    live.score_by_settings(settings.inbox.score, is_trusted=True)
    live.score_by_settings(settings.inbox.score, is_trusted=True)
    (line,) = (tmp_path / "alarm.json").read_text().splitlines()
    notice = json.loads(line)

    assert notice["alarm"] == "the pass rate is below 0.9"
    assert notice["conversation"] == live.rates(LONG_AGO, 0.9, 0.001).alarms[-1][0]
    assert (notice["bar"], notice["passed"]) == (0.9, 0)


def test_an_alarm_is_told_of_once_while_old_scores_leave_the_window(store: Store, tmp_path: Path) -> None:
    settings = alarming(tmp_path, tmp_path / "alarm.json")
    live = LiveDesk(settings, store)
    assert settings.inbox.score
    live.score_by_settings(settings.inbox.score, is_trusted=True)
    rows = store.inbox.scored_conversations(LONG_AGO)

    # Each step leaves the oldest score out, so that the alarms of the window ring elsewhere.
    starts = [row.scored_at for row in rows[:20]]
    rates = [live.rates(start, 0.9, 0.001) for start in starts]
    is_told = [live.tell_alarm(each, start, 0.9, 0.001) for each, start in zip(rates, starts, strict=True)]

    assert len({each.alarms[-1] for each in rates}) > 1
    assert not any(is_told)
    assert len((tmp_path / "alarm.json").read_text().splitlines()) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"at": 5, "conversation": 1}', '{"at": "x", "conversation": "y"}'])
def test_a_file_of_the_last_alarm_that_cannot_be_read_is_none(store: Store, tmp_path: Path, text: str) -> None:
    settings = alarming(tmp_path, tmp_path / "alarm.json")
    assert settings.inbox.score
    (settings.state_folder / "inbox-alarm.json").write_text(text)

    LiveDesk(settings, store).score_by_settings(settings.inbox.score, is_trusted=True)

    assert len((tmp_path / "alarm.json").read_text().splitlines()) == 1


def test_a_command_that_fails_is_a_warning_and_not_started_again(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = alarming(tmp_path, tmp_path / "missing" / "alarm.json")
    live = LiveDesk(settings, store)
    assert settings.inbox.score

    live.score_by_settings(settings.inbox.score, is_trusted=True)
    live.score_by_settings(settings.inbox.score, is_trusted=True)

    assert [record.message[:17] for record in caplog.records] == ["[inbox] on_alarm:"]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of a process is seen on Linux")
def test_processes_that_a_command_leaves_end_with_its_time(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([0.0, 1.0, 2.0, *[notices.COMMAND_S + 1] * 5])
    monkeypatch.setattr(notices, "time", SimpleNamespace(monotonic=lambda: next(moments), sleep=time.sleep))
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
    )
    settings = alarming(tmp_path, tmp_path / "alarm.json")
    settings = replace(settings, inbox=replace(settings.inbox, on_alarm=(sys.executable, "-S", "-c", code)))

    notices.start_command(settings, notices.AlarmNotice(1, store.now(), 0.9, "1.4", 1, 2))

    assert next(moments) > notices.COMMAND_S  # it waited for the processes
    watch = select.poll()
    with suppress(ProcessLookupError):  # it is gone already
        handle = os.pidfd_open(int(pid_file.read_text()))
        watch.register(handle, select.POLLIN)
        ended = watch.poll(20_000)
        os.close(handle)
        assert ended


class Collector(BaseHTTPRequestHandler):
    """Takes the logs of OTLP in JSON."""

    bodies: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.bodies.append((self.path, json.loads(body)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing: the test reads `bodies`."""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    bodies: list[tuple[str, Any]] = []
    handler = type("Handler", (Collector,), {"bodies": bodies})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


def test_scores_and_alarms_go_out_as_events(
    store: Store, tmp_path: Path, collector: tuple[str, list[tuple[str, Any]]]
) -> None:
    address, bodies = collector
    settings = alarming(tmp_path, tmp_path / "alarm.json", address)
    assert settings.inbox.score

    LiveDesk(settings, store).score_by_settings(settings.inbox.score, is_trusted=True)
    records = [record for _, body in bodies for record in body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]]
    first = {each["key"]: next(iter(each["value"].values())) for each in records[0]["attributes"]}

    assert {path for path, _ in bodies} == {"/v1/logs"}
    assert [record["eventName"] for record in records] == ["gen_ai.evaluation.result"] * 40 + ["evaldesk.alarm"]
    assert (first["gen_ai.evaluation.name"], first["gen_ai.evaluation.score.label"]) == ("tool_used", "failed")
    assert first["gen_ai.evaluation.score.value"] == 0
    assert first["gen_ai.conversation.id"] in NAMES
    assert all("traceId" not in record for record in records)  # these conversations are sessions
    assert [record["severityNumber"] for record in records] == [9] * 40 + [13]
    assert all(int(record["observedTimeUnixNano"]) >= int(record["timeUnixNano"]) > 0 for record in records)


TYPES_OF_ATTRIBUTES = {
    "event.name": "stringValue",
    "gen_ai.conversation.id": "stringValue",
    "gen_ai.evaluation.name": "stringValue",
    "gen_ai.evaluation.score.value": "doubleValue",
    "gen_ai.evaluation.score.label": "stringValue",
    "gen_ai.evaluation.explanation": "stringValue",
    "service.version": "stringValue",
}
"""The types of the attributes of an event by the semantic conventions of OpenTelemetry 1.38 to 1.44."""


def test_the_event_of_a_score_has_the_types_of_opentelemetry(
    store: Store, collector: tuple[str, list[tuple[str, Any]]]
) -> None:
    address, bodies = collector
    trace_id = "a1" * 16
    conversation_id = put_conversation(store, "hello", name=trace_id, source="shop", release="1.4")
    conversation = store.inbox.get(conversation_id)
    scores = (InboxScore("turn_count", 1, True, "One turn."), InboxScore("tool_used", None, None))

    notices.emit_scores(address, [notices.FreshScores(conversation, scores)], store.now())
    ((_, body),) = bodies
    (record,) = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    (event,) = (span.events[0] for span in log_spans_in(JsonPosition(Document(body)), with_span_id(body)))

    assert {each["key"]: next(iter(each["value"])) for each in record["attributes"]} == TYPES_OF_ATTRIBUTES
    assert (record["traceId"], record["severityNumber"]) == (trace_id, 9)
    assert event.name == "gen_ai.evaluation.result"
    assert event.attributes["gen_ai.evaluation.score.value"] == 1.0


def test_the_attributes_of_a_score_are_those_that_opentelemetry_names() -> None:
    conventions = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")

    names = {value for name, value in vars(conventions).items() if name.startswith("GEN_AI_EVALUATION")}

    assert {each for each in TYPES_OF_ATTRIBUTES if each.startswith("gen_ai.evaluation")} == names


def with_span_id(body: Any) -> Any:
    """The request with an id of a span, without which its records belong to no span."""
    (record,) = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    record["spanId"] = "b2" * 8
    return body


def test_an_address_that_does_not_answer_is_a_warning(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = alarming(tmp_path, tmp_path / "alarm.json", "http://127.0.0.1:9")
    assert settings.inbox.score

    assert LiveDesk(settings, store).score_by_settings(settings.inbox.score, is_trusted=True) == 40
    assert {record.message for record in caplog.records} == {"[inbox] emit: ConnectError"}


@pytest.mark.parametrize("address", ["https://a..b", "https://\u2603", "https://xn--", "https://a/" + "x" * 70_000])
def test_an_address_that_cannot_be_is_a_warning_and_scoring_goes_on(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    settings = alarming(tmp_path, tmp_path / "alarm.json", address)
    assert settings.inbox.score

    assert LiveDesk(settings, store).score_by_settings(settings.inbox.score, is_trusted=True) == 40
    assert {record.message[:13] for record in caplog.records} == {"[inbox] emit:"}


def test_a_text_that_cannot_be_encoded_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    emit_events("http://127.0.0.1:9", [{"body": "\ud800"}])

    assert [record.message for record in caplog.records] == ["[inbox] emit: UnicodeEncodeError"]


def test_a_command_with_a_null_byte_is_a_warning(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = alarming(tmp_path, tmp_path / "alarm.json")
    settings = replace(settings, inbox=replace(settings.inbox, on_alarm=("tool", "\0")))
    assert settings.inbox.score

    assert LiveDesk(settings, store).score_by_settings(settings.inbox.score, is_trusted=True) == 40
    assert [record.message[:17] for record in caplog.records] == ["[inbox] on_alarm:"]


def test_a_judge_needs_a_budget_and_a_function_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a budget"):
        scoring_plan([Criterion("hallucinations_v1", 0.5, {"judge_model": "demo/judge"})])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[inbox.score]\n", "needs criteria"),
        ("[inbox.score]\nsample = 2\ncriteria = { turn_count = 5 }\n", "a share from 0 to 1, got 2"),
        ("[inbox.score]\nbar = 1\ncriteria = { turn_count = 5 }\n", "bar and alpha lie between 0 and 1"),
        ('[inbox.score]\njudge_budget = "2"\ncriteria = { turn_count = 5 }\n', "judge_budget is the dollars of a day"),
        ("[inbox.score]\nsamples = 1\n", "[inbox.score] may have the keys"),
        ('[inbox]\nemit = "http://example.com"\n', "emit is an https address, or an http address of this machine"),
        ('[inbox]\nemit = "https://me:secret@example.com"\n', "emit is an https address"),
        ('[inbox]\nemit = "file:///etc/passwd"\n', "emit is an https address"),
        ('[inbox]\nemit = "http://127.0.0.1.example.com"\n', "emit is an https address"),
        ('[inbox]\non_alarm = [""]\n', "on_alarm is a command"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        settings_of(tmp_path, text)

    assert sentence in str(refusal.value)
