"""What is imported when: the server stays light, and so does `import evaldesk`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.torture.conftest import ServedFolder

HEAVY = frozenset({"litellm", "rouge_score", "nltk", "pandas", "plotly", "scipy", "alembic", "numpy", "openai"})

VISIT = """
import json, re, sys

from starlette.testclient import TestClient

from evaldesk.desk.workspace import open_settings
from evaldesk.desk.desk import Desk
from evaldesk.web.server import create_app
from evaldesk.web.guard import guard_settings

token = "a-token-of-enough-letters"
app = create_app(Desk.open(open_settings((), workspace=sys.argv[1])), guard_settings(token, 80))
seen = {}
todo = ["/"]
with TestClient(app, base_url="http://127.0.0.1", headers={"Cookie": f"evaldesk-80={token}"}) as client:
    while todo:
        path = todo.pop(0)
        if path in seen or len(seen) == 60:
            continue
        answer = client.get(path)
        seen[path] = answer.status_code
        todo += re.findall(r'href="(/(?!static)[^"#?]*)', answer.text)
modules = sorted({name.partition(".")[0] for name in sys.modules})
sys.stdout.write(json.dumps({"pages": seen, "modules": modules}))
"""


@pytest.mark.server
def test_no_page_makes_the_server_import_what_belongs_to_workers(brief: ServedFolder) -> None:
    brief.write_cases([f"case {i}" for i in range(8)])
    server = brief.start()
    server.say_when_done(server.start_run(n="2"))
    server.end()

    ended = subprocess.run(
        [sys.executable, "-c", VISIT, str(brief.workspace)],
        capture_output=True,
        text=True,
        env=brief.environment,
        cwd=brief.workspace,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    visited = json.loads(ended.stdout)
    assert {path: status for path, status in visited["pages"].items() if status != 200} == {}
    kinds = ("/agents", "/sessions/new", "/runs/new", "/runs/1/cases/3/trials/0", "/evalsets/set-")
    assert [kind for kind in kinds if not any(path.startswith(kind) for path in visited["pages"])] == []
    assert "starlette" in visited["modules"]
    assert HEAVY & set(visited["modules"]) == {"numpy"}, "forecasts of gates need it"


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        pytest.param(
            "import evaldesk", {"msgspec", "sqlalchemy", "sqlmodel", "starlette", "click"} | HEAVY, id="import"
        ),
        pytest.param(
            "import evaldesk.cli; evaldesk.cli.cli(['--version'], standalone_mode=False)",
            {"sqlalchemy", "sqlmodel", "starlette", "asyncio", "jinja2"} | HEAVY,
            id="--version",
        ),
        pytest.param(
            "import evaldesk.cli; evaldesk.cli.cli(['--help'], standalone_mode=False)",
            {"sqlalchemy", "sqlmodel", "starlette", "jinja2"} | HEAVY,
            id="--help",
        ),
    ],
)
def test_what_needs_little_imports_little(code: str, unwanted: set[str]) -> None:
    names = "import sys; print('modules', *{name.partition('.')[0] for name in sys.modules})"

    ended = subprocess.run([sys.executable, "-c", f"{code}\n{names}"], capture_output=True, text=True, check=True)

    assert unwanted & set(ended.stdout.rpartition("modules")[2].split()) == set()


VERSION_MODULES = {
    "evaldesk",
    "evaldesk.cli",
    "evaldesk.cli.broken_pipe",
    "evaldesk.cli.lazy",
    "evaldesk.errors",
    "evaldesk.integrations",
    "evaldesk.process_setup",
    "evaldesk.registry",
}
MOST_MODULES = 175
"""Beyond those of a bare interpreter: 145 on Python 3.11 with click 8; other versions have a few more."""


def test_the_version_needs_no_module_more_however_many_commands_and_tools_there_are() -> None:
    """Its time follows from the modules, which are the same under any load."""
    code = (
        "import sys; before = set(sys.modules); sys.argv = ['evaldesk', '--version']\n"
        "from evaldesk.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sorted(set(sys.modules) - before))"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    version, names = ended.stdout.splitlines()
    modules = set(names.split())
    assert version.startswith("evaldesk ")
    assert {name for name in modules if name.startswith("evaldesk")} == VERSION_MODULES | {"evaldesk.__main__"}
    assert {name.partition(".")[0] for name in modules} - sys.stdlib_module_names == {"evaldesk", "click"}
    assert len(modules) <= MOST_MODULES


def test_the_package_itself_imports_only_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import evaldesk; print(*(set(sys.modules) - before))"

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    roots = {name.partition(".")[0] for name in ended.stdout.split()}
    assert roots - sys.stdlib_module_names == {"evaldesk"}
