"""Bytes by chance at every form: whatever comes, the answer is no defect and the desk goes on."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from math import inf
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

pytestmark = pytest.mark.long

N_ROUNDS = 6
NUMBERS = {
    "run": ("cost", "tokens_in", "tokens_out", "duration_ms", "active_ms"),
    "trial": ("cost", "tokens_in", "tokens_out", "duration_ms"),
    "run_case": ("cost", "tokens_in", "tokens_out", "duration_ms"),
    "case_metric": ("total", "total_squares", "low", "high"),
    "score": ("value",),
}
MULTIPART = "multipart/form-data; boundary=b"
URLENCODED = "application/x-www-form-urlencoded"
ODD_TYPES = (
    "",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    "multipart/form-data; boundary=" + "b" * 5000,
    "multipart/form-data; boundary=b; charset=utf-16",
    "multipart/form-data; boundary=b; charset=raw_unicode_escape",
    "multipart/form-data; boundary=b; charset=undefined",
    "multipart/form-data; boundary=b; charset=idna",
    "multipart/form-data; boundary=b; charset=rot13",
    "application/x-www-form-urlencoded; charset=utf-7",
    "application/json",
    "text/plain",
    "a/b; c",
    ";;;",
)
NAMES = (
    *("agent", "evalset", "case", "cases", "metric", "model", "n", "note"),
    *("concurrency", "timeout_s", "pass_threshold"),
    *("state", "title", "message", "name", "description", "file", "choice", "tags", "app", "user", "initial", "final"),
    *("op", "version", "raw", "form", "then", "new-set", "step", "how"),
    *("turn-0-query", "turn-0-calls", "turn-0-origin", "turn-0-reference", "turn-0-intermediate-0-author"),
    *("turn-0-call-0-name", "turn-0-call-0-arg-0-name", "turn-0-call-0-arg-0-value", "turn-0-call-0-origin"),
    *("turn-0-tick", "response_match_score.threshold"),
)
VALUES = (b"", b"\x00", b"-1", b"1e400", b"nan", b"9" * 5000, b"\xed\xa0\x80", b"\xff\xfe", b"[" * 200, b"{}")
WORDS = (b'{"a": NaN}', b'{"a":1,"a":2}', b'"\\ud800"', b"calls", b"no_tool", b"turn-0-up", b"turn-99-add")
QUERY = ("q", "tag", "only", "start", "sort", "status", "agent", "evalset", "before", "after", "like", "case", "note")


def odd(chance: random.Random) -> bytes:
    """A value that somebody might not have thought of."""
    kinds = (
        chance.randbytes(chance.randrange(60)),
        chance.choice(VALUES),
        chance.choice(WORDS),
        str(chance.randrange(-(2**70), 2**70)).encode(),
        "\u202e\ufeff\u0000é\U0001f469\r\n".encode() * chance.randrange(4),
    )
    return chance.choice(kinds)


def body_of(chance: random.Random, content_type: str) -> bytes:
    fields = [(chance.choice(NAMES), odd(chance)) for _ in range(chance.randrange(1, 25))]
    if content_type.startswith("multipart"):
        parts = (f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + v for name, v in fields)
        return b"\r\n".join(parts) + chance.choice([b"\r\n--b--\r\n", b"", b"\r\n--b", chance.randbytes(20)])
    if content_type.startswith(URLENCODED):
        return b"&".join(name.encode() + b"=" + quote_from_bytes(value).encode() for name, value in fields)
    return chance.randbytes(200)


def posts(fort: Any) -> list[Any]:
    # What would take away what the next round needs stands aside.
    aside = ("/deletion", "/trash", "/trash/cases", "/discovery", "/turns")
    return [route for route in fort.routes() if "POST" in route.methods and not route.path.endswith(aside)]


@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART])
def test_no_form_breaks_on_what_chance_types(open_fort: Callable[..., Any], content_type: str) -> None:
    chance = random.Random(20261121)
    fort = open_fort()
    broken = []

    for _ in range(N_ROUNDS):
        for route in posts(fort):
            body = body_of(chance, content_type)
            answer = fort.client.post(fort.address(route), content=body, headers={"Content-Type": content_type})
            if answer.status_code >= 500:
                broken.append((route.path, body[:500]))

    assert broken == []
    assert fort.get("/").status_code == 200


@pytest.mark.parametrize("content_type", ODD_TYPES, ids=lambda each: each[:70] or "none")
def test_no_form_breaks_on_a_type_that_nobody_sends(fort: Any, content_type: str) -> None:
    chance = random.Random(7)
    broken = []
    body = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n\\ud800\xff\xfe\r\n--b--\r\n'

    for route in posts(fort):
        for sent in (body, body_of(chance, content_type), b"", b"\xff" * 50):
            answer = fort.client.post(fort.address(route), content=sent, headers={"Content-Type": content_type})
            if answer.status_code >= 500:
                broken.append((route.path, sent[:100]))

    assert broken == []


def test_no_page_breaks_on_an_odd_query(fort: Any) -> None:
    chance = random.Random(11)
    broken = []

    for route in fort.routes():
        if "GET" in route.methods and not route.path.endswith("/events"):
            for _ in range(N_ROUNDS):
                pairs = [f"{chance.choice(QUERY)}={quote_from_bytes(odd(chance)[:400])}" for _ in range(5)]
                answer = fort.get(f"{fort.address(route)}?{'&'.join(pairs)}")
                if answer.status_code >= 500:
                    broken.append((route.path, pairs))

    assert broken == []


@pytest.mark.parametrize("value", [-1000, 2**63 - 1, 1e308, inf], ids=["negative", "largest", "huge", "infinite"])
def test_no_page_breaks_on_a_number_that_only_an_early_version_stored(fort: Any, value: float) -> None:
    broken = []

    for table, names in NUMBERS.items():
        with closing(sqlite3.connect(fort.desk.settings.database)) as connection:
            stored = ", ".join(f"{name} = ?" for name in names)
            connection.execute(f"UPDATE {table} SET {stored}", [value] * len(names))  # noqa: S608 - names of our own
            connection.commit()
        pages = [page for page in fort.pages() if page.startswith(("/runs", "/compare")) or page == "/"]
        broken += [(table, page) for page in pages if fort.get(page).status_code >= 500]

    assert broken == []


@pytest.mark.parametrize("value", ["-5", "1e300", "1180591620717411303424", '"12"'])
def test_no_page_breaks_on_a_trial_with_a_number_that_only_an_early_version_stored(fort: Any, value: str) -> None:
    usage = f'"usages":[{{"model":"m","tokens_in":{value}}}]'
    with closing(sqlite3.connect(fort.desk.settings.database)) as connection:
        run, case, index = connection.execute(
            "SELECT run_id, case_index, trial_index FROM transcript WHERE run_id = ?", (fort.run,)
        ).fetchone()
        place = f'"run_id":{run},"case_index":{case},"trial_index":{index}'
        data = f'{{{place},"status":"finished","verdict":"passed",{usage}}}'
        connection.execute("UPDATE transcript SET codec = 0, data = ?", (data.encode(),))
        connection.commit()

    pages = [page for page in fort.pages() if page.startswith(("/runs", "/compare", "/labels"))]

    assert [page for page in pages if fort.get(page).status_code >= 500] == []
    assert "The stored trial cannot be read" in fort.get(f"/runs/{run}/cases/{case}/trials/{index}").text


@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART])
def test_a_million_fields_are_refused_soon(fort: Any, content_type: str) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
    body = b"a=&" * 1_000_000 if content_type == URLENCODED else part * 150_000 + b"--b--\r\n"
    before = fort.fingerprint()

    answer = fort.client.post("/evalsets", content=body, headers={"Content-Type": content_type})

    assert answer.status_code in {400, 413, 422}
    assert fort.fingerprint() == before


def test_a_long_name_is_not_compared_with_every_other(fort: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def get_close_matches(name: str, *_: object, **__: object) -> list[str]:
        compared.append(name)
        return []

    monkeypatch.setattr("difflib.get_close_matches", get_close_matches)

    answer = fort.post("/sessions", agent="dice" * 2_000_000, state="{}")

    assert answer.status_code == 404
    assert len(answer.text) < 100_000
    assert compared
    assert max(map(len, compared)) < 1000
