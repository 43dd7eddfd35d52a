"""The roles of docs/store.md, made by the statements of that page, and TLS to the server."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import ProgrammingError
from tests.postgresql_server import running_server

from evaldesk.errors import WorkspaceError
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.settings import DatabaseUrl, database_url
from evaldesk.store import Store
from evaldesk.store.runs.imports import new_run

pytestmark = pytest.mark.server
PAGE = Path(__file__).resolve().parents[2] / "docs" / "store.md"
ROLES = ("evals_owner", "evals_player", "evals_reader")


@pytest.fixture
def user(postgresql: DatabaseUrl) -> Iterator[Callable[[str], DatabaseUrl]]:
    """The address of a fresh database for a role of the page, whose owner has opened it."""
    import psycopg

    (statements,) = re.findall(r"```sql\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)

    def as_superuser(database: str, *asked: str) -> None:
        place = {"host": postgresql.host, "dbname": database, "user": postgresql.user}
        with psycopg.connect(**place, autocommit=True) as connection:
            for statement in asked:
                connection.execute(statement)

    as_superuser(postgresql.database, "CREATE DATABASE roles")
    as_superuser("roles", *filter(str.strip, statements.split(";")))
    url = replace(postgresql, database="roles")
    with Store.open(replace(url, user="evals_owner")) as store:
        assert store.search.refusal == ""
    yield lambda role: replace(url, user=f"evals_{role}")
    as_superuser(postgresql.database, "DROP DATABASE roles WITH (FORCE)", *(f"DROP ROLE {role}" for role in ROLES))


def _run(store: Store) -> int:
    run_id = store.runs.create(RunConfig(AgentRef("echo", ""), "set", n=1), [Case("c", (Turn("Hi."),))])
    store.runs.record([TrialResult(run_id, 0, 0, "finished", "passed")])
    return run_id


def test_a_player_plays_labels_and_deletes_and_changes_no_table(user: Callable[[str], DatabaseUrl]) -> None:
    with Store.open(user("player")) as store:
        run_id = _run(store)
        store.labels.put(run_id, (0, 0), None, "anna", "failed", "no")
        store.search.catch_up(lambda case: case.id, lambda trial: "hello")
        store.runs.delete(_run(store))

        assert not store.is_read_only
        assert store.runs.summary(run_id).n_passed == 1
        refused = pytest.raises(WorkspaceError, match=r"may not do this; docs/store.md has the rights")
        with refused, store._database.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE extra (id INTEGER)")


def test_the_number_of_a_half_import_goes_to_the_next_run(user: Callable[[str], DatabaseUrl]) -> None:
    case, config = Case("c", (Turn("Hi."),)), RunConfig(AgentRef("echo", "", kind="imported"), "imported-set")
    half = new_run(config, [case], [TrialResult(0, 0, 0, "finished", "passed")], "", "digest")

    with Store.open(user("player")) as store:
        for status in ("first", "later"):
            import_id, run_ids = store.imports.begin(f"{status}.json", [half, replace(half, digest="other")], "me")
            store.imports.end(import_id, "failed", "killed")
            store.runs.finish_deleting()
            run_id = _run(store)

            assert run_id == run_ids[0]


def test_a_reader_sees_everything_and_is_told_that_nothing_can_be_stored(user: Callable[[str], DatabaseUrl]) -> None:
    with Store.open(user("player")) as store:
        run_id = _run(store)

    with Store.open(user("reader")) as store:
        seen = store.runs.summary(run_id)
        hits = store.search.find("hello")
        with pytest.raises(WorkspaceError, match="is read-only for its user"):
            _run(store)
        with pytest.raises((WorkspaceError, ProgrammingError)), store._database.reading() as connection:
            connection.exec_driver_sql("UPDATE run SET status = 'pending'")

    assert (store.is_read_only, seen.n_passed, hits.places) == (True, 1, [])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key and certificate of a server called localhost, and those of another authority."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("no openssl here")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "other"):
        asked = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
        alternative = ["-addext", "subjectAltName=DNS:localhost"]
        subprocess.run([openssl, *asked, *files, *alternative], check=True, capture_output=True)
    return folder


def test_verify_full_takes_the_server_of_that_authority_and_name_alone(certificates: Path) -> None:
    with running_server(tls=certificates) as socket:
        assert socket.port

        def opened(host: str, authority: str) -> str:
            options = f"sslmode=verify-full&sslrootcert={certificates / authority}"
            url = database_url(f"postgresql://evaldesk@{host}:{socket.port}/postgres?{options}", "here")
            with Store.open(url) as store:
                return store.engine().name

        assert opened("localhost", "server.crt").startswith("PostgreSQL")
        with pytest.raises(WorkspaceError, match="certificate verify failed"):
            opened("localhost", "other.crt")
        with pytest.raises(WorkspaceError, match=r'does not match host name "127\.0\.0\.1"'):
            opened("127.0.0.1", "server.crt")


def test_verify_full_refuses_a_server_without_tls(certificates: Path) -> None:
    with running_server(port=True) as socket:
        options = f"sslmode=verify-full&sslrootcert={certificates / 'server.crt'}"
        url = database_url(f"postgresql://evaldesk@localhost:{socket.port}/postgres?{options}", "here")

        with pytest.raises(WorkspaceError, match="server does not support SSL"):
            Store.open(url)
