"""A desk that is served whole, every page of it, and holds what hostile people have said wherever text can stand."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from httpx2 import Response
from starlette.routing import Mount, Route
from tests.conversations import put_conversation
from tests.desk_client import DeskClient
from tests.media_samples import picture
from tests.security import hostile_clone
from tests.security.hostile_events import HostileHost, case_of, events_of, prompts_of, trial_of
from tests.security.office import open_office, wires

from evaldesk.desk.desk import Desk
from evaldesk.engine import ChatPlayers
from evaldesk.formats.exchange import Imported
from evaldesk.model import Case, RunConfig, TrialResult, Turn, TurnRecord
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.model.failures import Anchor, FindingDraft
from evaldesk.model.inbox import DrawStratum
from evaldesk.model.media import Media
from evaldesk.model.proposals import ProposalDraft
from evaldesk.model.queues import VERDICT_KINDS, GivenLabel, QueueDraft, QueueStratum
from evaldesk.model.run import ExperimentPart
from evaldesk.model.stored import OpenTurn
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.presets import MAX_PRESETS
from evaldesk.store.queues import moment_id
from evaldesk.transcripts.recorded import RecordedRun
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import add_pages, create_app

__all__ = ["open_office", "wires"]

clone, repository, run_command = hostile_clone.clone, hostile_clone.repository, hostile_clone.run_command
PORT = 8420
TOKEN = "a-token-of-enough-letters"
PLAIN = tuple(f"plain text {number}" for number in range(8))
PAYLOADS = tuple(json.loads(Path(__file__).with_name("payloads.json").read_text("utf-8")))
_BUILT: dict[tuple[str, ...], Fort] = {}
FILE_NAME = '"><img src=x onerror=alert(1)> {{7*7}}'


@dataclass
class Fort:
    """The desk, a visitor who holds the token, and what stands in it."""

    client: DeskClient
    desk: Desk
    host: HostileHost
    folder: Path
    texts: tuple[str, ...]
    token: str = TOKEN
    session: str = ""
    state_key: str = ""
    evalset: str = ""
    run: int = 0
    staged: str = ""
    unmapped: str = ""
    cases: list[str] = field(default_factory=list)

    def get(self, address: str, **headers: str) -> Response:
        return self.client.get(address, headers=headers)

    def post(self, address: str, **fields: Any) -> Response:
        return self.client.post(address, data=fields)

    def fingerprint(self) -> str:
        """A hash of every row of the database and of every file beside it, but for the index that follows them.

        A backup is made once a desk has been open for a minute, whatever was asked of it.
        """
        digest = hashlib.sha256()
        with closing(sqlite3.connect(f"file:{self.desk.settings.database}?mode=ro", uri=True)) as connection:
            for line in connection.iterdump():
                # What lists remember of files, and the kept analysis of an experiment: both are made anew at will.
                if not line.startswith(('INSERT INTO "evalset_line"', 'INSERT INTO "experiment"')):
                    digest.update(line.encode())
            of_person = "SELECT id, name, plan, dropped, created_at FROM experiment ORDER BY id"
            digest.update(repr(connection.execute(of_person).fetchall()).encode())
        for path in sorted(self.folder.rglob("*")):
            if (
                path.is_file()
                and not path.name.startswith(("evaldesk.db", "search.db"))
                and path.parent.name != "backups"
            ):
                digest.update(str(path).encode() + path.read_bytes())
        return digest.hexdigest()

    def routes(self) -> list[Route]:
        """Every address of the application."""
        app = cast("Any", self.client.app).app
        add_pages(app)
        assert [route for route in app.routes if not isinstance(route, Route | Mount)] == []
        return [route for route in app.routes if isinstance(route, Route)]

    def address(self, route: Route, **others: str) -> str:
        """An address of the route that leads somewhere, but for `others`."""
        known = {
            "session_id": self.session,
            "adk_session_id": self.adk_session,
            "set_id": self.evalset,
            "key": self.cases[0],
            "run_id": str(self.run),
            "case_index": "0",
            "turn": "0",
            "event": "0",
            "at": "0",
            "trial_index": "0",
            "token": "0123456789abcdef",
            "item_id": "0123456789abcdef",
            "import_id": self.staged,
            "record_id": "1",
            "mode_id": "1",
            "digest": picture().digest,
            "queue_id": "1",
            "preset_id": "1",
            "view_id": "1",
            "experiment_id": "1",
            "proposal_id": "1",
            "place": "1",
            "conversation_id": "1",
            "draw_id": "1",
        } | others
        path = route.path
        for name in route.param_convertors:
            for shape in (f"{{{name}}}", f"{{{name}:int}}", f"{{{name}:number}}"):
                path = path.replace(shape, known[name])
        assert "{" not in path, path
        return f"{path}?key={quote(self.state_key)}" if path.endswith("/state/value") else path

    @cached_property
    def adk_session(self) -> str:
        """The id of the session that `adk web` kept, which leads to its file."""
        return self.desk.adk_sessions.list()[0].sessions[0].id

    @property
    def conversation(self) -> str:
        """The page of the imported trial, of which nothing is expected; alone it comes in parts."""
        return f"/runs/{self.run + N_RUNS_BETWEEN + 1}/cases/0/trials/0"

    def parts(self) -> list[str]:
        """The addresses of parts of that page."""
        turns = (f"{self.conversation}/turns/0", "/queues/1/trials/1/turns/0")
        return [f"{turn}{part}" for turn in turns for part in ("", "/pieces?from=1", "/events?from=1")]

    def pages(self) -> list[str]:
        """The addresses of all pages on which somebody else's text stands."""
        session, evalset, run = f"/sessions/{self.session}", f"/evalsets/{self.evalset}", f"/runs/{self.run}"
        case, trial = f"{evalset}/cases/{self.cases[0]}", f"{run}/cases/0/trials/0"
        return [
            *("/trust", "/evalsets/new", f"{evalset}/cases", f"{evalset}/cases/new", "/failures/1/where"),
            f"{evalset}/health",
            f"{evalset}/trend",
            f"{evalset}/versions",
            *(f"{session}/timeline", f"{session}/calls/0", f"{session}/state/value?key={quote(self.state_key)}"),
            f"{session}/turns/0/message",
            *(
                f"{trial}/{part}"
                for part in ("timeline", "calls/0", "pair", "pair?show=all", "source/0", "turns/0/answer")
            ),
            *("/adk-sessions", f"/adk-sessions/{self.adk_session}/case"),
            *("/bench", f"/bench?session={session.rpartition('/')[2]}", "/bench?n=2"),
            *("/", "/agents", "/sessions/new", session, f"{session}/case", "/evalsets", evalset),
            *(f"{evalset}/settings", f"{evalset}/exports", case, f"{case}/json", f"/runs/new?evalset={self.evalset}"),
            *(
                "/runs",
                run,
                f"{run}/exports",
                f"{run}/cases/0/trials/0",
                f"{run}/cases/0/trials/1",
                self.conversation,
                f"{self.conversation}?all=1",
                f"{self.conversation}/turns/0/events/0",
                f"/imports/{self.staged}",
                f"/imports/{self.unmapped}/mapping",
                "/imports",
                "/imports/records/1",
            ),
            *(
                f"{run}/spread",
                f"{run}/divergences",
                f"{run}/blame",
                f"{trial}/blame",
                f"{trial}/fork",
                f"{trial}/fork?turn=1&keep=0",
                f"{run}/agents",
                f"{run}/scorings/new",
                f"{run}/acceptance",
                "/compare",
                f"/table?runs={self.run},{self.run - 1}&show=only+in+A",
                f"/table?runs={self.run},{self.run - 1},{self.run + 1}",
                "/experiments",
                "/experiments/1",
                "/experiments/1/variants/new",
            ),
            *(
                f"/table?runs={self.run},{self.run + 1}&show=same",
                "/labels",
                f"/labels?run={self.run}",
                "/trash",
                "/proposals",
                "/proposals/1",
                "/gates",
            ),
            *(f"/failures?run={self.run}&before={self.run + 1}", "/failures/1"),
            *("/inbox", "/inbox?q=error", "/inbox/1", "/inbox/cases?conversation=1&conversation=2"),
            *("/inbox/draw?q=error", "/inbox/draws/1", "/inbox/1?draw=1", "/inbox/rates"),
            *("/queues", "/queues/1", "/queues/1?blind=off&at=1", "/queues/1?reader=sam&at=1", "/queues/1/trials"),
            "/queues/1?reader=sam",
            f"{run}/acceptance?queue=1",
            *(
                f"/queues/2?reader={quote(text)}"
                for text in self.texts
                if 0 < len(text.strip()) <= 80 and text.isprintable()
            ),
            *("/search?q=e", "/search?q=%3Cb%3E", f"/search?q={self.run}:"),
        ]


@pytest.fixture
def open_fort(tmp_path: Path) -> Iterator[Callable[..., Fort]]:
    """Opens a desk in which every text is one of `texts`."""
    opened: list[DeskClient] = []

    def open_desk(texts: tuple[str, ...] = PLAIN, folder: str = "workspace", **settings: Any) -> Fort:
        fort = fort_in(tmp_path / folder, texts, **settings)
        opened.append(fort.client)
        fort.client.__enter__()
        return fort

    yield open_desk
    for client in opened:
        client.__exit__()


@pytest.fixture
def fort(open_fort: Callable[..., Fort]) -> Fort:
    return open_fort()


N_RUNS_BETWEEN = 3
"""The re-scored run and the two variants that are made before the imported run."""


@pytest.fixture(scope="session", autouse=True)
def built() -> Iterator[None]:
    """Forts are built once and copied; at the end what they were copied from goes."""
    yield
    for fort in _BUILT.values():
        shutil.rmtree(fort.folder.parent)
    _BUILT.clear()


@pytest.fixture(scope="session")
def build_fort() -> Callable[..., Fort]:
    """Makes a desk that nobody serves yet."""
    return fort_in


@pytest.fixture(scope="session")
def payloads() -> tuple[str, ...]:
    """What hostile agents, tools, files and people say."""
    return PAYLOADS


def fort_in(home: Path, texts: tuple[str, ...] = PLAIN, *, port: int = PORT, **settings: Any) -> Fort:
    """A desk in a new workspace at `home`, with an eval set, sessions and runs that hold `texts`."""
    if texts not in _BUILT:
        _BUILT[texts] = build(Path(tempfile.mkdtemp(prefix="fort-")) / "workspace", texts)
    built = _BUILT[texts]
    shutil.copytree(built.folder, home)
    fort = garrison(home, texts, port, **settings)
    fort.evalset, fort.cases, fort.session, fort.run = built.evalset, built.cases, built.session, built.run
    fort.state_key = built.state_key
    return fort


def build(home: Path, texts: tuple[str, ...]) -> Fort:
    """A workspace at `home` with all that a fort holds; nobody is in it."""
    is_plain = texts[0].startswith("plain")
    agent = home / "agents" / ("dice" if is_plain else FILE_NAME.replace("/", ""))
    agent.mkdir(parents=True)
    (agent / "agent.py").write_text("root_agent = None\n")
    write_adk_sessions(agent / ".adk" / "session.db", texts)
    (home / "evalsets").mkdir()
    cases = [case_of("everything", texts), *(case_of(text, (text,)) for text in texts)]
    value = {"eval_set_id": texts[0], "name": " ".join(texts), "description": " ".join(texts), "eval_cases": cases}
    name = "hostile" if is_plain else FILE_NAME
    (home / "evalsets" / f"{name}.evalset.json").write_text(json.dumps(value))
    fort = garrison(home, texts, PORT)
    fill(fort)
    fort.desk.search.catch_up(pause_factor=0)  # each copy would do so when it is opened
    fort.desk.store.close()
    return fort


def write_adk_sessions(path: Path, texts: tuple[str, ...]) -> None:
    """A database as `adk web` writes it, with a session that holds every text, in its names as well."""
    path.parent.mkdir()
    texts = tuple(text.encode("utf-8", "replace").decode() for text in texts)
    calls = [{"function_call": {"name": text, "args": {text: text}}} for text in texts]
    says = [("user", [{"text": text} for text in texts]), (texts[0], calls), ("dice", [{"text": " ".join(texts)}])]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE sessions (app_name, user_id, id, state, create_time, update_time)")
        connection.execute("CREATE TABLE events (app_name, user_id, session_id, timestamp, event_data)")
        row = (texts[0], texts[1], texts[2], json.dumps(dict.fromkeys(texts, texts[0])), 0, "no time")
        connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", row)
        for number, (author, parts) in enumerate(says):
            event = {"invocation_id": texts[3], "author": author, "content": {"parts": parts}}
            event["actions"] = {"state_delta": {texts[4]: texts[5]}}
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (*row[:3], number, json.dumps(event)))
        connection.commit()


def garrison(home: Path, texts: tuple[str, ...], port: int, **settings: Any) -> Fort:
    """A desk in the workspace at `home`, and the visitor who holds the token."""
    found = Settings(workspace=home, roots=(home / "agents", home / "evalsets"), **settings)
    found.state_folder.mkdir(mode=0o700, exist_ok=True)
    host = HostileHost(texts)
    desk = Desk(found, Store.open(found.database), cast("ChatPlayers", host))
    client = DeskClient(
        create_app(desk, guard_settings(TOKEN, port)),
        base_url=f"http://127.0.0.1:{port}",
        headers={"Cookie": f"evaldesk-{port}={TOKEN}"},
        follow_redirects=False,
        raise_server_exceptions=False,
    )
    fort = Fort(client, desk, host, home, texts)
    cases = [{"id": text, text: text, "messages": [{"role": "user", "content": text}]} for text in texts]
    fort.staged = desk.imports.staging.stage(json.dumps(cases).encode(), f"{texts[0][:100]}.json").token
    rows = [{"question": text, text: text, "why": {text: text}} for text in texts]
    fort.unmapped = stage_file(desk, f"{texts[-1][:100]}.json", json.dumps(rows).encode())
    return fort


def stage_file(desk: Desk, name: str, data: bytes) -> str:
    """The token of an uploaded file, also of one that no format knows."""
    file = desk.imports.staging.arriving(name)
    file.write(data)
    return desk.imports.staging.stage_arrived([file])


def keep_image(store: Store, session_id: str, names: tuple[str, ...]) -> None:
    """Let a session hold an image under every name, and addresses that must not be fetched."""
    named = tuple(replace(picture(), name=name, mime_type=name) for name in names)
    outside = tuple(Media("image/png", uri=name) for name in names)
    turn = OpenTurn(0, "me", "What is it?", "", "person", datetime.now(UTC), media=(*named, *outside, picture()))
    store.sessions.begin_turn(session_id, turn)
    held = tuple(item.held() for item in turn.media)
    store.sessions.append_turn(session_id, TurnRecord("What is it?", media=held), owner="me")


def fill_inbox(fort: Fort) -> None:
    """A conversation with each text in every place, and labels with them; the first has all texts as turns."""
    for index, text in enumerate(fort.texts):
        trial = trial_of(fort.run, 0, fort.texts) if index == 0 else None
        number = put_conversation(fort.desk.store, text, trial and replace(trial, scores=()))
        fort.desk.store.inbox.label(number, text, "failed", text)
        strata = [DrawStratum(text, 1, 1, (1,))]
        fort.desk.store.inbox_draws.create(text, strata, [(number, text)], 7, text)


def fill_queue(fort: Fort) -> None:
    """A review queue of two trials, which one reader has read with every text as a note, and one of a short trial."""
    strata = [QueueStratum(fort.run, kind, 2, 2) for kind in VERDICT_KINDS.values()]
    drafts = [QueueDraft(fort.run, (0, index), fort.run, "failed") for index in range(2)]
    fort.desk.store.queues.create(strata, drafts, fort.texts[0], is_blind=True)
    for index, text in enumerate(fort.texts):
        seen = fort.desk.store.queues.items(1, "sam")[index % 2].label
        given = GivenLabel(index % 2 + 1, moment_id(seen.labelled_at) if seen else 0)
        fort.desk.store.queues.give(1, [given], "sam", "passed", text, is_blind=True)
    short = fort.run - len(fort.texts)
    fort.desk.store.runs.record([trial_of(short, 0, fort.texts[:1])])
    strata = [QueueStratum(short, "failed", 1, 1)]
    fort.desk.store.queues.create(strata, [QueueDraft(short, (0, 0), short, "failed")], fort.texts[0], is_blind=True)


def fill(fort: Fort) -> None:
    """Put sessions and runs into the desk that hold every text of it."""
    desk, texts = fort.desk, fort.texts
    agent = desk.agents.list()[0].ref
    fort.evalset = desk.evalsets.list()[0].id
    evalset, _, path = desk.evalsets.read(fort.evalset)
    from evaldesk.desk.evalsets.cases import case_keys

    fort.cases = case_keys(evalset.cases)
    state = dict(zip(texts, texts, strict=True))
    for text in texts:
        desk.store.sessions.create(agent.id, text, {text: text})
    keep_image(desk.store, desk.store.sessions.create(agent.id, "seen").id, texts)
    fort.session = desk.store.sessions.create(agent.id, texts[0], state).id
    for text in texts:
        record = TurnRecord(text, tuple(events_of(text)), state, state | {text: [text]}, 10.0, "error")
        asked = prompts_of(texts) if text == texts[0] else None
        desk.store.sessions.append_turn(fort.session, record, prompts=asked)
    fort.state_key = next(iter(desk.store.sessions.get(fort.session).state))
    for case, text in zip(reversed(evalset.cases), (*texts, texts[0]), strict=True):
        config = RunConfig(agent=agent, evalset_id=fort.evalset, evalset_path=str(path), n=2, note=text, model=text)
        fort.run = desk.store.runs.create(config, [case])
        desk.store.runs.set_status(fort.run, "stopped", text)
    desk.store.runs.record([trial_of(fort.run, index, texts) for index in range(2)])
    desk.store.runs.set_status(fort.run, "finished", texts[0])
    twin = desk.store.runs.create(replace(config, source_run_id=fort.run), [case])
    desk.store.runs.record([trial_of(twin, index, texts) for index in range(2)])
    desk.store.runs.set_status(twin, "finished", texts[0])
    variants = tuple(Variant(text, {"model": text}) for text in (texts[0], texts[-1]))
    number = desk.store.experiments.begin(ExperimentPlan(texts[0], variants, 7, 1), [])
    for index, variant in enumerate(variants):
        part = ExperimentPart(number, index, variant.name)
        variant_run = desk.store.runs.create(replace(config, experiment=part), [case])
        desk.store.runs.record([trial_of(variant_run, at, texts) for at in range(2)])
        desk.store.runs.set_status(variant_run, "finished", texts[0])
    for start in range(min(len(texts), MAX_PRESETS)):
        named = texts[start::MAX_PRESETS]
        desk.store.presets.save(agent.id, " ".join(named), [("n", named[0]), (named[0], named[0])])
        desk.store.views.save(fort.evalset, " ".join(named), f"q={named[0]}")
    for text in texts[:100]:
        kind = json.dumps({"name": text, "definition": text, "example_yes": "", "example_no": ""})
        desk.store.client_proposals.propose(ProposalDraft("kind", kind, why=text, case_id=text), text)
    for text in texts:
        desk.store.labels.put(fort.run, (0, 0), None, text, "failed", text)
        anchor = Anchor(0, quote=text)
        desk.store.failures.add(FindingDraft(fort.run, 0, 0, text, anchor=anchor), text, text)
    fill_inbox(fort)
    fill_queue(fort)
    trial = TrialResult(0, 0, 0, "finished", "passed", transcript=trial_of(0, 0, texts).transcript)
    recorded = RecordedRun(texts[0], texts[0], (Case(texts[0], (Turn(texts[0]),)),), (trial,))
    desk.imports.take_in(Imported("adk-results", runs=(recorded,)), source=texts[0], name="")
    for text in texts:
        desk.store.sessions.delete(desk.store.sessions.create(agent.id, text).id)
    desk.store.runs.delete(desk.store.runs.create(config, [case]))
