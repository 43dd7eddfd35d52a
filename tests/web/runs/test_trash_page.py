"""The trash in the browser: deleted things are listed, come back by one click, and are removed for good."""

from __future__ import annotations

import html
import json
import random
import re
from typing import TYPE_CHECKING

import pytest

from evaldesk.desk.trash import trash_items
from evaldesk.errors import NotFoundError
from evaldesk.model.evalset import case_key

if TYPE_CHECKING:
    from pathlib import Path

    from tests.web.runs.conftest import RunPages

FOREIGN = {"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example"}


def fill(pages: RunPages) -> dict[str, str]:
    """Delete an eval set, a case, a chat and a run; gives their ids in the trash by kind."""
    pages.desk.store.sessions.delete(pages.desk.store.sessions.create(pages.agent, "A talk").id)
    pages.desk.evalsets.cases.delete(pages.evalset, [case_key("greets")])
    pages.post(f"{pages.finish()}/deletion")
    pages.post(f"/evalsets/{pages.desk.evalsets.create('short_lived', '')}/trash")
    return {item.kind: item.id for item in trash_items(pages.desk)}


def rows(text: str) -> list[str]:
    """The rows of the list as plain text."""
    found = re.findall(r"<tr>(.*?)</tr>", text.partition("<tbody")[2], re.DOTALL)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in found]


def until(text: str) -> str:
    found = re.search(r'name="until" value="([^"]+)"', text)
    assert found
    return html.unescape(found[1])


def test_every_kind_is_listed_with_its_size_and_how_long_it_is_kept(pages: RunPages) -> None:
    fill(pages)

    listed = rows(pages.get("/trash").text)

    assert sorted(re.sub(r"\d+ (bytes|kB)", "SIZE", row) for row in listed) == [
        f"1: {pages.agent} on dice_set, 6 trials run about SIZE just now {_in_30_days(pages)} "
        f"Restore run 1: {pages.agent} on dice_set, 6 trials",
        "A talk chat SIZE just now the trash is emptied Restore chat A talk",
        "greets of dice_set cases SIZE just now the trash is emptied Restore cases greets of dice_set",
        "short_lived.evalset.json eval set SIZE just now the trash is emptied "
        "Restore eval set short_lived.evalset.json",
    ]


def _in_30_days(pages: RunPages) -> str:
    kept = next(item.kept_until for item in trash_items(pages.desk) if item.kept_until)
    return kept.strftime("%-d %b %Y")


def test_the_size_of_a_run_is_about_that_of_its_transcripts(pages: RunPages) -> None:
    fill(pages)

    (size,) = [item.n_bytes for item in trash_items(pages.desk) if item.kind == "run"]

    with pages.desk.store._database.reading() as connection:
        stored = connection.exec_driver_sql("SELECT sum(length(data)) FROM transcript").scalar_one()
    assert size == stored > 0


@pytest.mark.parametrize("kind", ["eval set", "cases", "chat", "run"])
def test_everything_comes_back_by_one_click(pages: RunPages, kind: str) -> None:
    ids = fill(pages)

    answer = pages.post(f"/trash/{ids[kind]}/restoration")

    assert answer.status_code == 303
    assert pages.get(answer.headers["location"]).status_code == 200
    assert kind not in {item.kind for item in trash_items(pages.desk)}
    assert pages.post(f"/trash/{ids[kind]}/restoration").status_code == 404


def test_a_deleted_run_comes_back_by_undo(pages: RunPages) -> None:
    address = pages.finish()
    before = pages.desk.store.runs.summary(1)

    answer = pages.post(f"{address}/deletion")
    note = pages.get(answer.headers["location"]).text
    undone = pages.post(f"{address}/restoration")

    assert "Deleted run 1." in note
    assert f'action="{address}/restoration"' in note
    assert undone.headers["location"] == address
    assert pages.get(address).status_code == 200
    assert pages.desk.store.runs.summary(1) == before
    assert "Deleted run 1" not in pages.get(answer.headers["location"]).text
    assert pages.post(f"{address}/restoration").status_code == 404


@pytest.mark.parametrize("number", ["7", "-1", "x", "<script>", "9" * 30])
def test_a_number_that_undoes_nothing_shows_no_note(pages: RunPages, number: str) -> None:
    text = pages.client.get("/runs", params={"deleted": number}).text

    assert "Deleted run" not in text
    assert "<script>" not in text


def test_the_trash_is_linked_where_a_person_looks_for_it(pages: RunPages) -> None:
    chat = pages.desk.store.sessions.create(pages.agent, "Another talk").id
    ids = fill(pages)
    token = ids["eval set"]

    for address in ("/runs", "/evalsets", f"/sessions/{chat}", "/runs?deleted=1", f"/evalsets?trashed={token}"):
        assert 'href="/trash"' in pages.get(address).text, address


def test_an_emptied_trash_has_nothing_left(pages: RunPages) -> None:
    ids = fill(pages)

    answer = pages.post("/trash/removal", until=until(pages.get("/trash").text))

    assert answer.status_code == 200
    assert "4 items removed for good" in answer.text
    assert "The trash is empty" in answer.text
    assert all(pages.post(f"/trash/{item_id}/restoration").status_code == 404 for item_id in ids.values())
    with pages.desk.store._database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM transcript").scalar_one() == 0


def test_the_page_believes_no_address_that_says_what_was_removed(pages: RunPages) -> None:
    fill(pages)

    assert "4 items removed for good" not in pages.get("/trash?removed=4").text


def test_a_removal_that_is_sent_again_removes_nothing_more(pages: RunPages) -> None:
    fill(pages)
    seen = until(pages.get("/trash").text)
    pages.post("/trash/removal", until=seen)
    address = pages.finish(n="1")
    pages.post(f"{address}/deletion")

    again = pages.post("/trash/removal", until=seen)

    assert "0 items removed for good" in again.text
    assert [item.kind for item in trash_items(pages.desk)] == ["run"]


def test_ticked_runs_are_deleted_and_come_back_by_one_undo(pages: RunPages) -> None:
    ids = [address.rpartition("/")[2] for address in (pages.finish(n="1"), pages.finish(n="1"), pages.finish(n="1"))]
    before = [pages.desk.store.runs.summary(int(run_id)) for run_id in ids]

    answer = pages.client.post("/runs/deletion", data={"run": ids[:2]})
    note = pages.get(answer.headers["location"]).text
    undone = pages.client.post(
        "/runs/restoration", data={"run": re.findall(r'type="hidden" name="run" value="(\d+)"', note)}
    )

    assert f"Deleted 2 runs: {ids[0]}, {ids[1]}." in note
    assert f'href="/runs/{ids[2]}"' in note
    assert f'href="/runs/{ids[0]}"' not in note
    assert undone.headers["location"] == "/runs"
    assert [pages.desk.store.runs.summary(int(run_id)) for run_id in ids] == before
    assert "Deleted" not in pages.get(answer.headers["location"]).text


def test_one_ticked_run_that_is_gone_leaves_the_others_as_they_are(pages: RunPages) -> None:
    first, second = (address.rpartition("/")[2] for address in (pages.finish(n="1"), pages.finish(n="1")))

    refused = pages.client.post("/runs/deletion", data={"run": [first, "999"]})
    pages.client.post("/runs/deletion", data={"run": [first, second]})
    pages.post(f"/runs/{second}/restoration")
    undone = pages.client.post("/runs/restoration", data={"run": [first, second]})

    assert (refused.status_code, undone.status_code) == (404, 404)
    assert [item.id for item in trash_items(pages.desk)] == [f"run-{first}"]
    assert "Deleted run 1." in pages.get(f"/runs?deleted={first}&deleted={second}").text


@pytest.mark.parametrize("data", [{}, {"run": "x"}, {"run": ["", "-1"]}, {"run": "9" * 40}])
@pytest.mark.parametrize("address", ["/runs/deletion", "/runs/restoration"])
def test_without_a_ticked_run_nothing_is_deleted(pages: RunPages, address: str, data: dict[str, str]) -> None:
    pages.finish(n="1")

    answer = pages.client.post(address, data=data)

    assert answer.status_code == 422
    assert "select the runs" in answer.text
    assert pages.get("/runs/1").status_code == 200


def test_a_deletion_after_the_page_was_drawn_is_not_removed(pages: RunPages) -> None:
    fill(pages)
    seen = until(pages.get("/trash").text)
    address = pages.finish(n="1")
    pages.post(f"{address}/deletion")

    answer = pages.post("/trash/removal", until=seen)

    assert "4 items removed for good" in answer.text
    assert [item.kind for item in trash_items(pages.desk)] == ["run"]
    assert pages.post(f"{address}/restoration").status_code == 303


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-23", "2026-11-23T10:00:00"])
def test_a_moment_that_cannot_be_read_removes_nothing(pages: RunPages, text: str) -> None:
    fill(pages)

    answer = pages.post("/trash/removal", until=text)

    assert answer.status_code == 422
    assert "Nothing was removed" in answer.text
    assert len(trash_items(pages.desk)) == 4


def test_a_taken_name_is_told_and_the_set_stays_in_the_trash(pages: RunPages, tmp_path: Path) -> None:
    token = fill(pages)["eval set"]
    (tmp_path / "evalsets" / "short_lived.evalset.json").write_text(
        json.dumps({"eval_set_id": "other", "eval_cases": []})
    )

    answer = pages.post(f"/trash/{token}/restoration")

    assert answer.status_code == 409
    assert "rename it before you restore the old one" in html.unescape(answer.text)
    assert token in answer.text


def test_the_list_goes_on_in_pages(pages: RunPages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.web.routes.trash.PAGE_SIZE", 3)
    fill(pages)

    first, second, beyond = (pages.get(f"/trash?start={start}").text for start in ("x", "3", "9"))

    assert len(rows(first)) == 3
    assert 'href="/trash?start=3"' in first
    assert "4 to 4 of 4" in second
    assert "No items here" in beyond


def test_an_empty_trash_says_what_it_is_for(pages: RunPages) -> None:
    text = pages.get("/trash").text

    assert "The trash is empty" in text
    assert "Empty the trash" not in text


def test_another_site_can_neither_restore_nor_remove(pages: RunPages) -> None:
    ids = fill(pages)
    moment = until(pages.get("/trash").text)

    answers = [
        pages.client.post(f"/trash/{ids['run']}/restoration", headers=FOREIGN),
        pages.client.post("/runs/1/restoration", headers=FOREIGN),
        pages.client.post("/runs/restoration", data={"run": "1"}, headers=FOREIGN),
        pages.client.post("/runs/deletion", data={"run": "1"}, headers=FOREIGN),
        pages.client.post("/trash/removal", data={"until": moment}, headers=FOREIGN),
    ]

    assert [answer.status_code for answer in answers] == [403] * 5
    assert len(trash_items(pages.desk)) == 4
    with pytest.raises(NotFoundError):
        pages.desk.store.runs.summary(1)


@pytest.mark.parametrize(
    "address", ["/trash/removal", "/trash/x/restoration", "/runs/1/restoration", "/runs/deletion", "/runs/restoration"]
)
def test_what_changes_the_trash_takes_no_get(pages: RunPages, address: str) -> None:
    assert pages.get(address).status_code == 405


BROKEN = [
    b"",
    b"null",
    b"{",
    b"[1]",
    b'{"path": 1}',
    b'{"path": ""}',
    b'{"path": "/a\\u0000b"}',
    b"\xff",
    b"[" * 100_000,
]


@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_a_state_folder_with_broken_files_breaks_no_page(pages: RunPages, data: bytes) -> None:
    state, token = pages.desk.settings.state_folder, "0" * 16
    (state / "trash" / token).mkdir(parents=True)
    (state / "trash" / token / "origin.json").write_bytes(data)
    (state / "trash" / f"{token}.cases.json").write_bytes(data)
    (state / "uploads").mkdir()
    (state / "uploads" / f"{'0' * 24}.upload").write_bytes(data)

    answers = [
        pages.get("/trash"),
        pages.get("/imports"),
        pages.get(f"/evalsets?trashed={token}"),
        pages.get(f"/evalsets/{pages.evalset}?case_trashed={token}"),
        pages.post(f"/evalsets/trash/{token}/restoration"),
        pages.post(f"/evalsets/{pages.evalset}/trash/cases/{token}/restoration"),
        pages.get(f"/imports/{'0' * 24}"),
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 404, 404, 404]


def test_deleted_cases_behind_a_link_are_neither_listed_nor_restored(pages: RunPages, tmp_path: Path) -> None:
    token = pages.desk.evalsets.cases.delete(pages.evalset, [case_key("greets")])
    kept = pages.desk.settings.state_folder / "trash" / f"{token}.cases.json"
    kept.rename(tmp_path / "elsewhere.json")
    kept.symlink_to(tmp_path / "elsewhere.json")

    answer = pages.post(f"/evalsets/{pages.evalset}/trash/cases/{token}/restoration")

    assert answer.status_code == 404
    assert list(trash_items(pages.desk)) == []


def test_the_page_says_how_much_the_disk_got_back(pages: RunPages) -> None:
    notes = random.Random(7).randbytes(4_000_000).hex()
    pages.desk.store.sessions.delete(pages.desk.store.sessions.create(pages.agent, "Large", {"notes": notes}).id)

    answer = pages.post("/trash/removal", until=until(pages.get("/trash").text))

    assert re.search(r"1 item removed for good\. The disk got \d+\.\d MB back\.", answer.text)
