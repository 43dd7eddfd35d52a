"""A server of PostgreSQL for the tests: one for each process of them, on a socket in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy import delete

from evaldesk.settings import DatabaseUrl
from evaldesk.store.tables import METADATA

ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.server))
REQUIRED = "EVALDESK_REQUIRE_POSTGRES"
PLACES = ("/usr/local/bin", "/usr/local/pgsql/bin", *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin"))))
PLACE = "/tmp"
"""Open to the user of the server, and short: the path of a socket has 107 characters at most."""
EMPTIED = (
    "SET session_replication_role = replica",  # in any order of the tables
    *(str(delete(table)) for table in METADATA.tables.values()),  # TRUNCATE makes new files for each table and index
    "SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence",
    "DROP TABLE IF EXISTS search_seen, search_place",
)
SETTINGS = ("listen_addresses=", "fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB")


_AS_USER = """
import ctypes, os, signal, sys
user, group, *command = sys.argv[1:]
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(group))
    os.setuid(int(user))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: the server ends with killed tests
os.execv(command[0], command)
"""


def empty_database(request: pytest.FixtureRequest) -> DatabaseUrl:
    """The database of the server of these tests, with its tables, without rows, and with ids from 1 on."""
    import psycopg

    url: DatabaseUrl = request.getfixturevalue("postgresql")
    waits_at_most = "-c lock_timeout=120s"  # for a transaction that a failed test left open
    with psycopg.connect(host=url.host, dbname=url.database, user=url.user, options=waits_at_most) as connection:
        connection.execute("; ".join(EMPTIED))
    return url


def place_of(request: pytest.FixtureRequest, file: Path) -> Path | DatabaseUrl:
    """The file, or an empty database of the server where the parameter of a fixture says so."""
    return empty_database(request) if request.param == "postgresql" else file


@contextmanager
def running_server(*, port: bool = False, tls: Path | None = None) -> Iterator[DatabaseUrl]:
    """The database `postgres` of a server that is started here and ended with the block; skips where none can be.

    It has a port of this machine only where that is asked for, with the key and certificate in the folder `tls`.
    """
    initdb, postgres = _programs()
    with tempfile.TemporaryDirectory(prefix="evaldesk-pg-", dir=PLACE) as made:
        folder = Path(made)
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        os.chown(folder, user.pw_uid, user.pw_gid)  # root is refused by the server
        as_user = (sys.executable, "-I", "-S", "-c", _AS_USER, str(user.pw_uid), str(user.pw_gid))
        quiet: dict[str, Any] = {
            "cwd": folder,
            "env": {"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
        }
        made_by = [initdb, "-D", str(folder / "data"), "-A", "trust", "-U", "evaldesk", "-E", "UTF8"]
        made_by += ["--no-locale", "--no-sync"]
        done = subprocess.run([*as_user, *made_by], check=False, stderr=subprocess.PIPE, **quiet)
        if done.returncode:
            _give_up(f"initdb: {done.stderr.decode('utf-8', 'replace')}")
        settings = [*SETTINGS, f"unix_socket_directories={folder}"]
        number = _free_port() if port or tls else None
        if number:
            settings += ["listen_addresses=127.0.0.1", f"port={number}"]
        if tls:
            for name in ("server.key", "server.crt"):
                shutil.copy(tls / name, folder / name)
                os.chown(folder / name, user.pw_uid, user.pw_gid)
                (folder / name).chmod(0o600)
            settings += ["ssl=on", f"ssl_key_file={folder / 'server.key'}", f"ssl_cert_file={folder / 'server.crt'}"]
        options = [word for setting in settings for word in ("-c", setting)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen([*as_user, postgres, "-D", str(folder / "data"), *options], stderr=log, **quiet)
        try:
            url = DatabaseUrl(str(folder), "postgres", number, user="evaldesk")
            _wait_for(url, server, folder / "log")
            yield url
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait(120)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(url: DatabaseUrl, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    while server.poll() is None:
        try:
            psycopg.connect(host=url.host, port=url.port, dbname=url.database, user=url.user).close()
        except psycopg.OperationalError:  # not yet
            time.sleep(0.05)
        else:
            return
    _give_up(f"the server ended: {log.read_text('utf-8', 'replace')}")


def _give_up(reason: str) -> NoReturn:
    """Skip the test where no server can be started; fail where the environment says that there must be one."""
    (pytest.fail if os.environ.get(REQUIRED) == "1" else pytest.skip)(f"no PostgreSQL here: {reason}")


def _programs() -> tuple[str, str]:
    """The paths of initdb and postgres; skips the test without them or without psycopg."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *PLACES))
    found = {name: shutil.which(name, path=path) or "" for name in ("initdb", "postgres")}
    missing = [name for name, place in found.items() if not place]
    if find_spec("psycopg") is None:
        missing.append("psycopg")
    if missing:
        _give_up(f"{', '.join(missing)} is missing")
    # The programs look for each other beside themselves, and a link may be alone in its folder.
    return os.path.realpath(found["initdb"]), os.path.realpath(found["postgres"])
