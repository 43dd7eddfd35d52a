"""Images in a chat: sent with a message, shown, served safely, and saved with the case."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.media_samples import picture, png, report
from tests.web.conftest import DICE, STREAM, ScriptedHost

from evaldesk.engine import ChatPlayers
from evaldesk.model import Event, TurnRecord, TurnSpec
from evaldesk.model.media import media_of

Pages = Any
ANSWER = (Event("agent_message", 1.0, "dice", "A cat."),)


class SeeingHost(ScriptedHost):
    """Answers as scripted; its player claims to have been given another image."""

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        async for item in super().play_turn(spec):
            yield replace(item, media=(picture(seed=9).held(),)) if isinstance(item, TurnRecord) else item


@pytest.fixture
def host(pages: Pages) -> ScriptedHost:
    seeing = SeeingHost(ANSWER, descriptions={"eyes": replace(DICE, takes=("image", "file"))})
    for name in ("eyes", "blind"):
        folder = pages.folder.parent / name
        folder.mkdir()
        folder.joinpath("agent.py").write_text("root_agent = None\n")
    pages.desk.agents._host = seeing
    pages.desk.host = cast("ChatPlayers", seeing)
    return seeing


def _session(pages: Pages, agent: str = "eyes") -> str:
    pages.get("/agents")
    return str(pages.post("/sessions", {"agent": agent, "state": "{}"}).headers["location"])


def _send(pages: Pages, session: str, *files: tuple[str, bytes, str], message: str = "What is it?") -> Any:
    sent = [("media", file) for file in files]
    return pages.client.post(f"{session}/turns", data={"message": message}, files=sent, headers=STREAM)


CAT = ("../cat.png", png(60), "text/html")


def test_a_message_takes_an_image_which_the_page_shows(pages: Pages, host: ScriptedHost) -> None:
    session = _session(pages)

    answer = _send(pages, session, CAT)

    assert answer.status_code == 200
    assert host.specs[0].media == (picture(),)
    text = pages.get(session).text
    assert f'<img src="/media/{picture().digest}" alt="cat.png"' in text
    assert text.count("/media/") == 2  # the image, and the link around it: not the one that the player claims


def test_an_image_needs_no_text_and_the_next_turn_has_it(pages: Pages, host: ScriptedHost) -> None:
    session = _session(pages)

    _send(pages, session, CAT, message="")
    _send(pages, session, message="Which color?")

    assert (host.specs[0].message, host.specs[1].media) == ("", ())
    assert host.specs[1].turns[0].media == (picture(),)
    assert "[image cat.png]" in pages.get(session).text  # the title


def test_a_message_of_nothing_is_refused(pages: Pages, host: ScriptedHost) -> None:
    answer = _send(pages, _session(pages), message=" ")

    assert answer.status_code == 422
    assert "needs text or a file" in answer.text


def test_an_agent_that_takes_no_images_is_not_sent_one(pages: Pages, host: ScriptedHost) -> None:
    session = _session(pages, "blind")

    answer = _send(pages, session, CAT)

    assert answer.status_code == 422
    assert "takes text only" in answer.text
    assert host.specs == []
    assert 'type="file"' not in pages.get(session).text.partition("composer")[2].partition("inspector")[0]


def test_only_images_and_sounds_are_shown_by_the_browser(pages: Pages, host: ScriptedHost) -> None:
    session = _session(pages)
    _send(pages, session, CAT, ("evil.png", b"<script>alert(1)</script>" * 90, "image/png"))

    image, other = (media_of("image/png", data).digest for data in (png(60), b"<script>alert(1)</script>" * 90))

    shown, saved = pages.get(f"/media/{image}"), pages.get(f"/media/{other}")
    assert shown.headers["content-type"] == "image/png"
    assert saved.headers["content-type"] == "application/octet-stream"
    assert saved.headers["content-disposition"].startswith("attachment")
    for answer in (shown, saved):
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("digest", ["0" * 64, "..%2f..", "x"])
def test_bytes_that_are_not_there_are_a_page_404(pages: Pages, digest: str) -> None:
    assert pages.get(f"/media/{digest}").status_code == 404


def test_the_session_is_saved_with_its_image(pages: Pages, host: ScriptedHost, calc: str) -> None:
    session = _session(pages)
    _send(pages, session, CAT, ("report.pdf", report().content(), "application/pdf"))
    address = f"{session}/case"
    fields = pages.fields(address)
    assert "image cat.png" in pages.get(address).text

    pages.post(address, {**fields, "evalset": calc, "case": "cat"})

    parts = pages.stored()["eval_cases"][2]["conversation"][0]["user_content"]["parts"]
    case = pages.desk.evalsets.read(calc)[0].cases[2]
    assert [sorted(part) for part in parts] == [["inline_data"], ["inline_data"], ["text"]]
    assert case.turns[0].media == (picture(), report())

    edit = pages.case_address(calc, "cat")
    kept = pages.fields(edit)
    del kept["turn-0-media-1-kept"]
    assert pages.post(edit, kept).status_code == 303
    assert pages.desk.evalsets.read(calc)[0].cases[2].turns[0].media == (picture(),)


def test_an_unticked_image_is_not_saved(pages: Pages, host: ScriptedHost, calc: str) -> None:
    session = _session(pages)
    _send(pages, session, CAT)
    fields = pages.fields(f"{session}/case")
    del fields["turn-0-media-0-kept"]

    pages.post(f"{session}/case", {**fields, "evalset": calc, "case": "cat"})

    assert pages.desk.evalsets.read(calc)[0].cases[2].turns[0].media == ()
