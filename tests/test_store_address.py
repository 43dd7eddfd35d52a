"""The address of the store: from the environment or `evaldesk.toml`, and never with its password in a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaldesk.errors import UsageError
from evaldesk.settings import DatabaseUrl, database_url, read_settings

ADDRESS = "postgresql://ana@db.example:5433/evals?sslmode=require"


def settings_in(folder: Path, toml: str = "", **environment: str) -> DatabaseUrl | Path:
    (folder / "evaldesk.toml").write_text(toml, "utf-8")
    return read_settings(folder, (folder,), environment=environment).database


def test_without_an_address_it_is_the_file_of_the_workspace(tmp_path: Path) -> None:
    assert settings_in(tmp_path) == tmp_path / ".evaldesk" / "evaldesk.db"
    assert settings_in(tmp_path, "[store]") == tmp_path / ".evaldesk" / "evaldesk.db"


def test_the_address_is_in_the_file_and_the_environment_replaces_it(tmp_path: Path) -> None:
    named = f'[store]\nurl = "{ADDRESS}"\n'
    wanted = DatabaseUrl("db.example", "evals", 5433, "ana", options=(("sslmode", "require"),))

    assert settings_in(tmp_path, named) == wanted
    assert settings_in(tmp_path, named, EVALDESK_STORE="postgres:///mine") == DatabaseUrl("", "mine")
    assert read_settings(tmp_path, (), environment={}).is_store_of_file
    assert not read_settings(tmp_path, (), environment={"EVALDESK_STORE": ADDRESS}).is_store_of_file


@pytest.mark.parametrize(
    ("text", "wanted", "shown"),
    [
        (ADDRESS, DatabaseUrl("db.example", "evals", 5433, "ana", "", (("sslmode", "require"),)), ADDRESS),
        ("postgres://db/e", DatabaseUrl("db", "e"), "postgresql://db/e"),
        ("postgresql:///e?host=/run/pg", DatabaseUrl("/run/pg", "e"), "postgresql:///e?host=/run/pg"),
        ("postgresql://[::1]:5/e", DatabaseUrl("::1", "e", 5), "postgresql://[::1]:5/e"),
        (
            "postgresql://a%40b:s%2Fx@h/my%20db",
            DatabaseUrl("h", "my db", None, "a@b", "s/x"),
            "postgresql://a%40b@h/my%20db",
        ),
    ],
    ids=["whole", "short", "socket", "ipv6", "escaped"],
)
def test_an_address_is_read_and_shown_without_its_password(text: str, wanted: DatabaseUrl, shown: str) -> None:
    found = database_url(text, "the test")

    assert (found, str(found)) == (wanted, shown)
    assert "s/x" not in f"{found} {found!r}"
    assert database_url(shown, "the test") == DatabaseUrl(
        wanted.host, wanted.database, wanted.port, wanted.user, "", wanted.options
    )


@pytest.mark.parametrize(
    "text",
    [
        "mysql://db/evals",
        "postgresql://db.example",
        "postgresql://db.example/",
        "postgresql://db/a/b",
        "postgresql://db:port/evals",
        "postgresql://db/evals#x",
        "postgresql://db/evals?sslmode",
        "postgresql://db/evals?sslmode=require&sslmode=disable",
        "postgresql://ana:hidden-word@db:x/evals",
        "postgresql://[db/evals",
        "evals",
    ],
)
def test_what_is_no_address_of_a_database_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        database_url(text, "EVALDESK_STORE")

    assert str(refused.value) == "EVALDESK_STORE is not an address of the form postgresql://USER@HOST:PORT/DATABASE"


@pytest.mark.parametrize(
    "option", ["password=x", "passfile=/etc/shadow", "sslkey=/x", "options=-csearch_path", "service=x"]
)
def test_an_option_that_reads_files_or_holds_a_secret_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"unknown option '{option.partition('=')[0]}'; known: host, "):
        database_url(f"postgresql://db/evals?{option}", "EVALDESK_STORE")


def test_a_password_in_the_file_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds a password; leave it out") as refused:
        settings_in(tmp_path, '[store]\nurl = "postgresql://ana:hidden-word@db/evals"\n')

    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize("toml", ['store = "x"', "[store]\nurl = 3", '[store]\nurl = "postgresql://h/d"\nother = 1'])
def test_another_form_of_the_table_is_refused(tmp_path: Path, toml: str) -> None:
    with pytest.raises(UsageError, match=r"\[store\] may have the keys me and url"):
        settings_in(tmp_path, toml)


@pytest.mark.parametrize("name", ["coding agent Codex", "Coding  Agent", "a coding agent"])
def test_the_name_of_a_coding_agent_is_that_of_no_person(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"EVALDESK_ME: .* is a name of a coding agent"):
        read_settings(tmp_path, (tmp_path,), environment={"EVALDESK_ME": name})
    (tmp_path / "evaldesk.toml").write_text(f'[store]\nme = "{name}"\n')
    with pytest.raises(UsageError, match=r"me: .* is a name of a coding agent"):
        read_settings(tmp_path, (tmp_path,), environment={})
