"""Messages with media: their parts in order, base64 in either alphabet, and what a browser may show."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.islands import of_tools
from tests.media_samples import picture, png, report, sound

from evaldesk.errors import FormatError, UsageError
from evaldesk.formats.exchange import FORMATS
from evaldesk.model import Case, EvalSet, Expected, Turn
from evaldesk.model.media import (
    MAX_MEDIA,
    MAX_MEDIA_COUNT,
    Media,
    base64_text,
    images_in,
    join_parts,
    media_of,
    sniffed_type,
    split,
    with_names,
)

TALK = Case(
    "cat",
    (
        Turn("First\nSecond", Expected((), reference="A cat."), media=(picture("", at=5), report())),
        Turn("", Expected((), reference="Another."), media=(picture("", seed=2),)),
    ),
)
PNG = picture("").data
DATA_URL = f"data:image/png;base64,{PNG}"
PARTS = [
    pytest.param({"type": "image", "data": PNG, "mimeType": "image/png"}, id="MCP"),
    pytest.param({"inline_data": {"data": PNG, "mime_type": "image/png"}}, id="google-adk"),
    pytest.param(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}, id="Anthropic"
    ),
    pytest.param({"type": "image", "base64": PNG, "mime_type": "image/png"}, id="LangChain"),
    pytest.param({"kind": "binary", "data": PNG, "media_type": "image/jpeg"}, id="pydantic-ai, of another type"),
    pytest.param({"type": "image_url", "image_url": {"url": DATA_URL}}, id="OpenAI"),
    pytest.param({"type": "input_image", "image_url": DATA_URL}, id="OpenAI Agents"),
    pytest.param(DATA_URL, id="a data URL"),
]
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>").decode()
NO_IMAGES = [
    pytest.param({"type": "image", "data": SVG, "mimeType": "image/svg+xml"}, id="SVG"),
    pytest.param({"type": "image", "data": SVG, "mimeType": "image/png"}, id="SVG as PNG"),
    pytest.param(f"data:image/svg+xml;base64,{SVG}", id="SVG as data URL"),
    pytest.param({"type": "image", "data": PNG[:400] + "!" + PNG[401:], "mimeType": "image/png"}, id="no base64"),
    pytest.param({"type": "image", "data": PNG[:-2], "mimeType": "image/png"}, id="broken off"),
    pytest.param({"type": "text", "data": PNG}, id="not said to be one"),
    pytest.param({"type": "image", "data": sound().data, "mimeType": "image/png"}, id="a sound"),
    pytest.param({"type": "image", "url": "https://evil.example/a.png"}, id="an address"),
    pytest.param({"type": "image", "data": PNG[:24] + "A" * 30_000_000, "mimeType": "image/png"}, id="too large"),
    pytest.param('{"image": ' + "[" * 100_000, id="nested without an end"),
    pytest.param({"type": ["image"], "data": {"data": 1}, "mimeType": None}, id="of other types"),
]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=8)


@pytest.mark.parametrize("part", PARTS)
def test_an_image_in_a_result_is_found_in_each_form(part: Any) -> None:
    found = [images_in(value) for value in (part, {"result": [1, part]}, json.dumps([part]))]

    assert found == [[replace(picture(""), name="")]] * 3


@pytest.mark.parametrize("part", NO_IMAGES)
def test_what_no_browser_shows_safely_is_no_image_of_a_result(part: Any) -> None:
    assert images_in([part, "text"]) == []


def test_the_images_of_a_result_are_bounded() -> None:
    assert len(images_in([DATA_URL] * 60)) == MAX_MEDIA_COUNT


@given(st.lists(st.one_of(TEXTS, st.just(picture())), max_size=8))
def test_a_message_is_split_as_it_was_joined(parts: list[str | Media]) -> None:
    text, media = join_parts(parts)

    found = split(text, media)

    # Texts that follow each other are one text of several lines, as google-adk has it.
    assert join_parts(found) == (text, media)
    assert [part for part in found if isinstance(part, Media)] == list(media)


@given(st.binary(min_size=1, max_size=200))
def test_base64_of_either_alphabet_is_the_same(content: bytes) -> None:
    plain = base64.b64encode(content).decode()

    assert base64_text(plain) == plain
    assert base64_text(base64.urlsafe_b64encode(content).decode()) == plain
    assert base64_text(plain.rstrip("=")) == plain


@pytest.mark.parametrize("text", ["", "sha256:00", "a", "with space!", "ä"])
def test_other_text_is_no_base64(text: str) -> None:
    assert base64_text(text) is None


def test_only_known_bytes_are_shown_by_a_browser() -> None:
    assert sniffed_type(png()) == "image/png"
    assert sniffed_type(sound().content()) == "audio/wav"
    assert sniffed_type(report().content()) == ""
    assert sniffed_type(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'>") == ""
    assert sniffed_type(b"<html>") == ""


def test_a_message_as_text_names_its_media() -> None:
    assert with_names("What is it?", [picture(at=0), report()]) == "[image cat.png]\n[file report.pdf]\nWhat is it?"
    assert with_names("hi", ()) == "hi"


def test_a_file_that_is_empty_or_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        media_of("image/png", b"", name="x.png")
    with pytest.raises(UsageError, match="20 MiB"):
        media_of("image/png", b"0" * (MAX_MEDIA + 1), name="x.png")


def test_a_held_image_keeps_its_digest() -> None:
    image = picture()

    assert image.held().digest == image.digest
    assert image.held().held() == image.held()
    assert image.held().content() == b""


@pytest.mark.parametrize("form", ["openai-messages", "anthropic-messages"])
def test_messages_with_media_are_written_and_read_back(form: str) -> None:
    kind = _format(form)

    found = kind.read(kind.write(EvalSet("seen", cases=(TALK,))), source="x.json").evalset

    assert found is not None
    turns = found.cases[0].turns
    assert [turn.query for turn in turns] == ["First\nSecond", ""]
    assert [sorted((item.at, item.digest) for item in turn.media) for turn in turns] == [
        sorted((item.at, item.digest) for item in turn.media) for turn in TALK.turns
    ]


@of_tools("osmosis")
def test_a_row_of_osmosis_holds_no_image() -> None:
    case = Case("cat", (Turn("What?", media=(picture(),)),))

    with pytest.raises(FormatError, match=r"image cat\.png; a row of Osmosis holds text alone"):
        _format("osmosis-jsonl").write(EvalSet("seen", cases=(case,)))


CAT = "https://a/cat.png"
DATA = f"data:image/gif;base64,{picture().data}"
SOUND = {"type": "input_audio", "input_audio": {"data": sound().data, "format": "mp3"}}
FILE = {"type": "input_file", "filename": "a.pdf", "file_url": "https://a/a.pdf"}


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ({"type": "image_url", "image_url": {"url": CAT}}, Media("image/png", uri=CAT)),
        ({"type": "image_url", "image_url": CAT}, Media("image/png", uri=CAT)),
        ({"type": "input_image", "image_url": DATA}, Media("image/gif", picture().data)),
        (SOUND, Media("audio/mp3", sound().data)),
        (FILE, Media("application/octet-stream", uri="https://a/a.pdf", name="a.pdf")),
    ],
    ids=["address", "address alone", "responses", "sound", "file"],
)
def test_parts_of_openai_are_read(part: dict[str, object], wanted: Media) -> None:
    question = {"role": "user", "content": [part, {"type": "text", "text": "What?"}]}
    talk = [question, {"role": "assistant", "content": "A cat."}]

    found = _format("openai-messages").read(json.dumps(talk).encode(), source="x.json").evalset

    assert found.cases[0].turns[0].media == (wanted,)
    assert found.cases[0].turns[0].query == "What?"


def _format(name: str) -> Any:
    return cast("Any", FORMATS.load(name))()
