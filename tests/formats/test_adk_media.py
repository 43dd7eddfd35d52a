"""Images and files in an eval set of google-adk: read, written back as they stood, and edited."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.media_samples import picture, report

from evaldesk import dump_evalset, load_evalset
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.model.evalset import user_side


def _url_safe(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode()


def _evalset(*parts: Any) -> dict[str, Any]:
    turn = {"invocation_id": "i", "user_content": {"parts": list(parts), "role": "user"}}
    return {"eval_set_id": "seen", "eval_cases": [{"eval_id": "cat", "conversation": [turn]}]}


def _inline(data: str, **more: str) -> dict[str, Any]:
    return {"inline_data": {"data": data, "mime_type": "image/png", **more}}


PICTURE = _url_safe(picture().content())
FORMS = {
    "url-safe bytes": ({"text": "What is it?"}, _inline(PICTURE)),
    "plain bytes before the text": (_inline(picture().data, display_name="cat.png"), {"text": "What is it?"}),
    "camelCase": ({"inlineData": {"data": PICTURE, "mimeType": "image/png"}}, {"text": "What is it?"}),
    "an address": ({"file_data": {"file_uri": "gs://b/cat.png", "mime_type": "image/png"}}, {"text": "What is it?"}),
    "no text": (_inline(PICTURE),),
    "between two texts": ({"text": "This:"}, _inline(PICTURE), {"text": "and?"}),
    "bytes that are none": (_inline("?!"), {"text": "What is it?"}),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_file_is_written_back_as_it_was_read(tmp_path: Path, name: str) -> None:
    path, again = tmp_path / "a.evalset.json", tmp_path / "b.evalset.json"
    path.write_text(json.dumps(_evalset(*FORMS[name])))

    dump_evalset(load_evalset(path), again)

    assert json.loads(again.read_text()) == _evalset(*FORMS[name])


def test_media_are_read_with_their_place_in_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.evalset.json"
    path.write_text(json.dumps(_evalset(*FORMS["between two texts"])))

    (turn,) = load_evalset(path).cases[0].turns

    assert turn.query == "This:\nand?"
    assert turn.media == (replace(picture(""), at=len("This:")),)


def test_an_edit_of_the_text_leaves_the_image(tmp_path: Path) -> None:
    path, again = tmp_path / "a.evalset.json", tmp_path / "b.evalset.json"
    path.write_text(json.dumps(_evalset({"text": "What is it?"}, _inline(PICTURE), {"thought_signature": "x"})))
    evalset = load_evalset(path)
    case = evalset.cases[0]
    edited = replace(case, turns=(replace(case.turns[0], query="Which animal?"),))

    dump_evalset(replace(evalset, cases=(edited,)), again)

    written = json.loads(again.read_text())["eval_cases"][0]["conversation"][0]["user_content"]["parts"]
    assert written == [{"text": "Which animal?"}, _inline(PICTURE), {"thought_signature": "x"}]


def test_an_image_that_is_taken_out_or_put_in_is_so_in_the_file(tmp_path: Path) -> None:
    path, again = tmp_path / "a.evalset.json", tmp_path / "b.evalset.json"
    path.write_text(json.dumps(_evalset({"text": "What is it?"}, _inline(PICTURE))))
    evalset = load_evalset(path)
    turn = evalset.cases[0].turns[0]

    for media in ((), (picture(), replace(report(), at=len(turn.query)))):
        case = replace(evalset.cases[0], turns=(replace(turn, media=media),))
        dump_evalset(replace(evalset, cases=(case,)), again)
        found = load_evalset(again).cases[0].turns[0]
        assert (found.query, [item.content() for item in found.media]) == (
            turn.query,
            [each.content() for each in media],
        )


def test_adk_reads_an_image_that_we_write(tmp_path: Path) -> None:
    adk = pytest.importorskip("google.adk.evaluation.eval_set")
    path = tmp_path / "a.evalset.json"
    dump_evalset(EvalSet("seen", cases=(Case("cat", (Turn("What is it?", media=(picture(),)),)),)), path)

    read = adk.EvalSet.model_validate_json(path.read_text())

    image, text = read.eval_cases[0].conversation[0].user_content.parts
    assert (image.inline_data.data, image.inline_data.display_name) == (picture().content(), "cat.png")
    assert text.text == "What is it?"


def test_the_old_form_says_that_it_loses_an_image() -> None:
    from evaldesk.formats.adk.old_case import case_losses

    assert case_losses(Case("cat", (Turn("What is it?", media=(picture(),)),))) == (
        "case 'cat', turn 1: parts of messages that are not text",
    )


def test_the_player_gets_the_media() -> None:
    case = Case("cat", (Turn("What is it?", media=(picture(),)),))

    assert user_side(case).turns[0].media == (picture(),)
