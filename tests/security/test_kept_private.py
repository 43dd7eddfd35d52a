"""The token, the database and the environment: who gets to see them."""

from __future__ import annotations

import ast
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.parsed_sources import parsed

from evaldesk import paths
from evaldesk.desk.trust import Answers
from evaldesk.engine import launch
from evaldesk.process_setup import WORKER_VARIABLE
from evaldesk.settings import read_settings
from evaldesk.store import Store, hold_workspace
from evaldesk.web import server

SOURCE = Path(launch.__file__).parents[1]
TOKEN = "a-token-nobody-may-see"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A person whose new files everybody may read."""
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_what_the_desk_keeps_is_for_its_person_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".evaldesk"
    with hold_workspace(folder, url=""), Store.open(folder / "evaldesk.db") as store:
        store.sessions.create("dice", "", {})

        assert mode(folder) == 0o700
        kept = {path.name: mode(path) for path in folder.iterdir() if path.is_file()}
        assert {"evaldesk.db", "evaldesk.db-wal", "evaldesk.db-shm", "desk.lock"} <= set(kept)
        assert set(kept.values()) == {0o600}


@pytest.mark.usefixtures("open_umask")
def test_a_folder_that_came_with_a_repository_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / ".evaldesk"
    folder.mkdir(mode=0o777)

    with hold_workspace(folder, url=""):
        assert mode(folder) == 0o700


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("call", [lambda each: each.trust(Path("/")), lambda each: each.mark_own(Path(".evaldesk"))])
def test_the_folder_of_the_answers_is_for_its_person_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Answers], bool]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert call(Answers({"XDG_STATE_HOME": str(tmp_path / "state")}))

    assert mode(tmp_path / "state" / "evaldesk") == 0o700


@pytest.mark.usefixtures("open_umask")
def test_the_page_that_opens_the_browser_is_for_its_person_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("webbrowser.open", seen.append)
    (tmp_path / "open.html").write_text("left by somebody else")

    server.open_in_browser(f"http://127.0.0.1:1/?token={TOKEN}", tmp_path)

    assert mode(tmp_path / "open.html") == 0o600
    assert TOKEN not in seen[0]  # the command line of a browser is for everyone to read


def test_a_page_that_opens_the_browser_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "open.html").symlink_to(target)

    server.open_in_browser("http://127.0.0.1:1/", tmp_path)

    assert target.read_text() == "precious"


@pytest.mark.usefixtures("open_umask")
def test_the_file_with_the_address_is_for_its_person_alone_and_goes_with_the_desk(tmp_path: Path) -> None:
    target, file = tmp_path / "precious", tmp_path / server.ADDRESS_NAME
    target.write_text("precious")
    file.symlink_to(target)

    with server._address_file(file, f"http://127.0.0.1:1/?token={TOKEN}"):
        assert (mode(file), file.is_symlink()) == (0o600, False)

    assert not file.exists()
    assert target.read_text() == "precious"


def test_neither_token_nor_cookie_stands_in_a_page_or_a_log(fort: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    fort.get(f"/?token={fort.token}")
    fort.get("/?token=wrong-token-of-somebody")

    pages = [fort.get(address).text for address in (*fort.pages(), "/nowhere", "/runs/999999")]

    assert not [page for page in pages if fort.token in page]
    said = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx")]
    assert not [line for line in said if "token=" in line or "cookie" in line.lower() or fort.token in line]
    kept = b"".join(path.read_bytes() for path in fort.folder.rglob("*") if path.is_file())
    assert fort.token.encode() not in kept


def test_a_worker_is_not_told_the_token() -> None:
    given = {"EVALDESK_TOKEN": TOKEN, "OPENAI_API_KEY": "needed", "PATH": "/bin"}

    started = launch.OWN.launch(given, "player")

    own = {WORKER_VARIABLE: started.mark, "OTEL_RESOURCE_ATTRIBUTES": "evaldesk.played=true"}
    assert started.environment == {"OPENAI_API_KEY": "needed", "PATH": "/bin", **own}
    elsewhere = launch.ProcessLauncher("/shop/bin/python").launch(given, "player")
    there = dict(elsewhere.environment)
    assert there.pop(WORKER_VARIABLE) == elsewhere.mark != started.mark
    assert there.pop("EVALDESK_PRICE_LIST").endswith(".json")
    assert there == {
        "OPENAI_API_KEY": "needed",
        "PATH": "/shop/bin:/bin",
        "OTEL_RESOURCE_ATTRIBUTES": "evaldesk.played=true",
    }


def test_neither_token_nor_key_is_in_the_command_line_of_a_worker() -> None:
    given = {"EVALDESK_TOKEN": TOKEN, "OPENAI_API_KEY": "a-key-of-the-environment", "PATH": "/bin"}

    commands = [
        launcher.launch(given, "player").command for launcher in (launch.OWN, launch.ProcessLauncher("/p/python"))
    ]

    assert all(secret not in " ".join(command) for command in commands for secret in (TOKEN, given["OPENAI_API_KEY"]))


def test_a_dotenv_file_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("EVALDESK_MODELS=evil/model\nCANARY_API_KEY=loaded\n")

    settings = read_settings(tmp_path, (tmp_path,), environment={})
    code = "import os, evaldesk.engine.worker.main, evaldesk.llm; print(os.environ.get('CANARY_API_KEY'))"
    seen = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert settings.models == ()
    assert seen.stdout.strip() == "None"


def test_a_defect_is_an_id_and_no_trace(
    open_fort: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fort = open_fort()
    assert fort.get(f"/runs/{fort.run}").status_code == 200  # what is imported at the first page is imported whole
    monkeypatch.setattr("evaldesk.pages.runs.page.read_run", None)

    answer = fort.get(f"/runs/{fort.run}?q=<script>%0aforged line")

    assert answer.status_code == 500
    assert "NoneType" not in answer.text
    assert "Traceback" not in answer.text
    assert "forged" not in answer.text
    found = re.search(r"under ([0-9a-f]{8})", answer.text)
    assert found
    assert [record for record in caplog.records if found[1] in record.getMessage()]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_an_address_cannot_forge_a_line_of_the_log(
    open_fort: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fort = open_fort()
    monkeypatch.setattr(fort.desk.evalsets, "file", None)

    fort.get("/evalsets/x%0aERROR forged%1b[2J")

    lines = [record.getMessage() for record in caplog.records if "forged" in record.getMessage()]
    assert lines
    assert not [line for line in lines if "\n" in line or "\x1b" in line]


@pytest.mark.parametrize("path", ["/nowhere", "/docs", "/openapi.json", "/admin", "/.git/config", "/.env", "/debug"])
def test_nothing_is_served_that_nobody_wrote(fort: Any, path: str) -> None:
    answer = fort.get(path)

    assert answer.status_code == 404
    assert path not in answer.text


def source_trees(words: str) -> Iterator[tuple[Path, ast.AST]]:
    """The modules in whose text one of the words stands; to read the trees of all takes seconds."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if re.search(rf"\b(?:{words})\b", text):
            yield path, parsed(path)


OF_DATA = (
    "eval|exec|compile|from_string|Markup|loads_pickle|load_dotenv|pickle|marshal|shelve|dill|cloudpickle|dotenv|yaml"
)


def test_no_code_is_made_of_data() -> None:
    found = {f"{path.relative_to(SOURCE)}: {name}" for path, tree in source_trees(OF_DATA) for name in of_data(tree)}

    # Patterns, paths into a state, a .env file that is read and sets nothing, what a template has escaped, cases that
    # the workers of one pytest, which run the same code, hand to their controller, and the source of a metric in a file
    # of criteria: a function of the user, played in a grader, which waits where others may have written it.
    assert found == {
        "matching/tolerance.py: regex.compile",
        "metrics/state/state_path.py: _environment().compile",
        "store/recovery.py: insert(table).prefix_with('OR IGNORE').compile",
        "agents/env_files.py: dotenv.dotenv_values",
        "web/render.py: Markup",
        "web/report.py: Markup",
        "testing/pytest_items.py: pickle",
        "metrics/functions/loading.py: compile",
        "metrics/functions/loading.py: exec",
    }


def test_python_text_becomes_a_tree_in_one_thread_at_a_time() -> None:
    trees = [tree for _, tree in source_trees(r"ast\.parse")]
    locked = [
        ast.unparse(node)
        for tree in trees
        for each in ast.walk(tree)
        if isinstance(each, ast.With) and ast.unparse(each.items[0]) == "parsing"
        for node in ast.walk(each)
        if is_parsing(node)
    ]
    anywhere = [ast.unparse(node) for tree in trees for node in ast.walk(tree) if is_parsing(node)]

    assert len(anywhere) > 3
    assert locked == anywhere


def is_parsing(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "ast.parse"


def of_data(tree: ast.AST) -> Iterator[str]:
    """What makes code of data in a module: calls by these names, and imports of these modules."""
    calls = {"eval", "exec", "compile", "from_string", "Markup", "loads_pickle", "load_dotenv"}
    modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "dotenv"}
    loaders = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}  # not safe_load
    of_yaml = {f"yaml.{name}" for name in loaders}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = called(node)
            whole = ast.unparse(node.func) if name in calls | loaders else ""
            if whole in of_yaml or (name in calls and whole != "re.compile"):
                yield whole
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        yield from (of + name for name in names if (of + name).partition(".")[0] in modules or of + name in of_yaml)


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def test_no_template_steps_out_of_escaping() -> None:
    for path in sorted(paths.shipped("templates").rglob("*.html")):
        text = path.read_text("utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape|xmlattr|\son\w+=|javascript:|\sstyle=", text), path.name
        assert not re.search(r"<script(?![^>]*(nonce=|application/json))", text), path.name
        # An attribute without quotes is left by the first space of its value.
        assert not re.search(r"<[a-z][^<>]*(?<!;)\s[\w:-]+=\{\{", text), path.name


def test_htmx_is_told_to_trust_only_the_nonce() -> None:
    for path in sorted(paths.shipped("templates").rglob("*.html")):
        if path.name != "ui.html":
            steers = re.findall(r"\shx-(?!sync\b)[\w:-]+=", path.read_text("utf-8"))
            assert steers == [], path.name  # through the macros of ui.html, which bring the nonce
    base = (paths.shipped("templates") / "base.html").read_text("utf-8")
    assert 'extensions:"hx-csp,sse"' in base


def test_vendored_scripts_are_what_they_say() -> None:
    import hashlib

    listed = (paths.shipped("static") / "vendor" / "VENDORED.txt").read_text("utf-8")
    for path in (paths.shipped("static") / "vendor").glob("*.js"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in listed, path.name
