"""Files that a browser sends in, and the file that it gets back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

CASE = '"eval_id": "a", "conversation": [{"user_content": {"parts": [{"text": "Hi"}], "role": "user"}}]'
STATE = '{{"eval_set_id": "up", "eval_cases": [{{' + CASE.replace("{", "{{").replace("}", "}}")
STATE += ', "session_input": {{"app_name": "a", "user_id": "u", "state": {}}}}}]}}'
GOOD = STATE.format("{}").encode()


def upload(fort: Any, data: bytes, name: str = "up.evalset.json", **fields: str) -> Any:
    return confirmed(fort, fort.client.post("/imports", files={"file": (name, data)}), **fields)


def confirmed(fort: Any, looked_at: Any, **fields: str) -> Any:
    """The answer to a yes, once the file could be read."""
    if looked_at.status_code != 303:
        return looked_at
    assert fort.get(looked_at.headers["location"]).status_code == 200
    return fort.post(looked_at.headers["location"], **fields)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "deep"),
        (b'{"a":' * 100_000, "deep"),
        (STATE.format('{"x": NaN}').encode(), "NaN"),
        (STATE.format('{"x": Infinity}').encode(), "Infinity"),
        (STATE.format('{"x": 1e400}').encode(), "1e400"),
        (STATE.format('{"x": 1, "x": 2}').encode(), "x"),
        (STATE.format('{"x": ' + "9" * 5000 + "}").encode(), "digits"),
        (STATE.format(r'{"x": "\ud800"}').encode(), "half"),
        (STATE.format(r'{"\ud800": "x"}').encode(), "half"),
        (GOOD.decode().encode("utf-16"), "UTF-16"),
        (GOOD.decode().encode("utf-16-le"), "UTF-16"),
        (GOOD.decode().encode("utf-32"), "UTF"),
        ('{"eval_set_id": "é", "eval_cases": []}'.encode("latin-1"), "UTF-8"),
        (b"", ""),
        (b"   ", ""),
        (b"\x00" * 1000, ""),
        (b"PK\x03\x04" + b"\x00" * 100, ""),
        (b"\x1f\x8b\x08" + b"\x00" * 100, ""),
        (b"null", ""),
        (b"42", ""),
        (b'"text"', ""),
        (b"- yaml: &a [*a]", ""),
        (b"!!python/object/apply:os.system ['id']", ""),
        (b'{"eval_set_id": "x", "eval_cases": {}}', ""),
        (b'{"eval_set_id": 1, "eval_cases": []}', ""),
    ],
    ids=lambda value: re.sub(r"\W+", " ", repr(value))[:40],
)
def test_a_file_with_more_than_one_meaning_is_refused(fort: Any, data: bytes, word: str) -> None:
    before = fort.fingerprint()

    answer = upload(fort, data)

    assert answer.status_code == 422, answer.text[:2000]
    assert word in answer.text
    assert "Traceback" not in answer.text
    assert fort.fingerprint() == before


def test_rows_of_no_format_are_not_imported_before_they_are_mapped(fort: Any) -> None:
    before = fort.desk.evalsets.list()
    came = fort.client.post("/imports", files={"file": ("up.json", b'{"__proto__": {"x": 1}}')})

    answer = fort.post(came.headers["location"])

    assert fort.get(f"{came.headers['location']}/mapping").status_code == 200
    assert answer.status_code == 409
    assert fort.desk.evalsets.list() == before


def test_a_byte_order_mark_is_dropped(fort: Any) -> None:
    assert upload(fort, b"\xef\xbb\xbf" + GOOD).status_code == 303


def test_more_than_ten_mebibytes_are_refused_but_by_the_page_of_imports(fort: Any) -> None:
    before = fort.fingerprint()

    answer = fort.client.post("/evalsets", files={"file": ("up.json", b" " * (10 * 1024 * 1024) + GOOD)})

    assert answer.status_code == 413
    assert fort.fingerprint() == before


def test_numbers_and_text_survive_to_the_letter(fort: Any) -> None:
    state = (
        '{"big": 9007199254740993, "bigger": 18446744073709551616, "nul": "a\\u0000b", "__proto__": 1, "t": "\\u2028"}'
    )
    answer = upload(fort, STATE.format(state).encode())

    assert answer.status_code == 303, answer.text[:3000]
    exported = fort.get(answer.headers["location"].partition("?")[0] + "/file").content
    assert json.loads(exported)["eval_cases"][0]["session_input"]["state"] == json.loads(state)
    assert fort.get(answer.headers["location"]).status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.evalset.json",
        "..\\..\\evil.json",
        "/etc/cron.d/evil",
        "C:\\evil.json",
        "evil\r\nSet-Cookie: a=b.json",
        'evil"; filename="x.json',
        "<img src=x onerror=alert(1)>.json",
        "evil\x00.json",
        "CON.json",
        ".evaldesk",
        "-rf.json",
        "\u202enosj.live",
        "e" * 5000 + ".json",
        "évil.json",
        ".json",
        "a/b/c.evalset.json",
    ],
)
def test_the_name_of_an_upload_is_no_path(fort: Any, name: str) -> None:
    before = {path for path in fort.folder.parent.rglob("*") if path.is_file()}
    boundary = b'--b\r\nContent-Disposition: form-data; name="file"; filename="'
    body = (
        boundary
        + name.encode().replace(b'"', b"%22").replace(b"\r\n", b"%0D%0A")
        + b'"\r\n\r\n'
        + GOOD
        + b"\r\n--b--\r\n"
    )

    answer = confirmed(
        fort,
        fort.client.post("/imports", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"}),
    )

    assert answer.status_code in {303, 400, 409, 422}
    assert "set-cookie" not in answer.headers
    made = {path for path in fort.folder.parent.rglob("*") if path.is_file()} - before
    waiting = {path for path in made if path.parent == fort.folder / ".evaldesk" / "uploads"}
    made -= waiting
    assert all(re.fullmatch(r"[0-9a-f]{24}\.upload", path.name) for path in waiting)  # refused, and not discarded yet
    # an import that was refused waits, under a name that the desk made, until somebody tries again or discards it
    waiting = {path for path in made if path.parent == fort.folder / ".evaldesk" / "uploads"}
    assert not waiting or (len(waiting) == 1 and answer.status_code in {409, 422}), answer.text
    assert not any(name in path.name for path in waiting)
    made -= waiting
    assert {path.parent for path in made if not path.name.startswith(("evaldesk.db", "search.db"))} <= {
        fort.folder / "evalsets"
    }
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+\.evalset\.json|(evaldesk|search)\.db\S*", path.name) for path in made)


def test_an_export_is_a_download_with_a_plain_name(fort: Any) -> None:
    file = fort.folder / "evalsets" / 'a"b; x=\u00e9\u202e\t.evalset.json'
    file.write_bytes(GOOD)
    set_id = next(each.id for each in fort.desk.evalsets.list() if each.path == file)

    for kind in ("adk", "adk-old"):
        answer = fort.get(f"/evalsets/{set_id}/file?format={kind}")
        disposition = answer.headers["content-disposition"]
        assert re.fullmatch(r'attachment; filename="[A-Za-z0-9_.-]+"', disposition)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("kind", ["../x", "pickle", "os:system", "a\r\nb", ""])
def test_an_export_has_a_format_of_the_table(fort: Any, kind: str) -> None:
    assert fort.client.get(f"/evalsets/{fort.evalset}/file", params={"format": kind}).status_code == 404


def test_a_link_in_the_folder_is_not_followed(fort: Any) -> None:
    outside = fort.folder.parent / "outside.evalset.json"
    outside.write_bytes(GOOD)
    (fort.folder / "evalsets" / "link.evalset.json").symlink_to(outside)
    (fort.folder / "evalsets" / "deep").symlink_to(fort.folder.parent)

    assert [each.path.name for each in fort.desk.evalsets.list()] == ["hostile.evalset.json"]


def test_a_set_that_became_a_link_is_neither_read_nor_written(fort: Any) -> None:
    outside = fort.folder.parent / "outside.evalset.json"
    outside.write_bytes(foreign := GOOD.replace(b"Hi", b"words from outside"))
    file = fort.folder / "evalsets" / "hostile.evalset.json"
    file.unlink()
    file.symlink_to(outside)

    for answer in (
        fort.get(f"/evalsets/{fort.evalset}"),
        fort.get(f"/evalsets/{fort.evalset}/file"),
        fort.post(f"/evalsets/{fort.evalset}/settings", name="hostile", description="changed"),
        fort.post(f"/evalsets/{fort.evalset}/trash"),
    ):
        assert answer.status_code in {404, 422}
        assert "words from outside" not in answer.text
    assert b"words from outside" in outside.read_bytes() == foreign
