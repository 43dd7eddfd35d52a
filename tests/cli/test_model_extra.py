"""Keys in the parameters that are added to the body of each call: no file and no text of a run shows them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from evaldesk.llm.call import ModelCall
from evaldesk.llm.recording import _content
from evaldesk.model import JsonObject

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

AGENT = "from evaldesk import LlmAgent\n\nroot_agent = LlmAgent(name='talk', model='demo/dice')\n"
KEY, TOKEN = "zq81-MySecretPass77", "Bearer hunter22-of-mine"
EXTRA: JsonObject = {
    "extra_headers": {"X-Api-Key": KEY, "Authorization": TOKEN, "X-Team": "blue-team-one"},
    "top_k": 20,
}


def test_no_file_and_no_text_of_a_run_shows_a_key_of_the_extra_body(place: CommandFolder) -> None:
    agent = place.folder / "talk"
    agent.mkdir()
    (agent / "agent.py").write_text(AGENT)
    evalset = place.evalset("first", {"hello": "hello"})
    files = [
        place.folder / name for name in ("r.json", "t.jsonl", "t.csv", "s.scores.csv", "j.xml", "s.md", "run.html")
    ]
    outputs = [each for path in files[:4] for each in ("-o", path)]

    ended = place.run(
        *("eval", agent, evalset, "--model-extra", json.dumps(EXTRA), "--recording", "record", *outputs),
        *("--junit", files[4], "--summary", files[5], "--print-detailed-results"),
    )
    again = [
        place.run("run", "info", "1"),
        place.run("run", "info", "1", "--json"),
        place.run("report", "1", "-o", files[6]),
    ]

    said = [result.output for result in (ended, *again)]
    written = [path for path in place.folder.rglob("*") if path.is_file() and "evaldesk.db" not in path.name]
    kept = [path.read_bytes().decode("utf-8", "replace") for path in written]
    assert "blue-team-one" in said[1], said
    assert set(files) <= {*written}, said
    assert any("recordings" in path.parts for path in written), written
    assert not [text[:500] for text in (*said, *kept) if "MySecretPass77" in text or "hunter22" in text]
    assert "[extra_headers_X-Api-Key]" in files[0].read_text()


def test_a_recording_knows_a_call_by_its_extra_body_without_keys() -> None:
    content = _content(ModelCall("m", (), extra=EXTRA))

    headers = {"X-Api-Key": "[extra_headers_X-Api-Key]", "Authorization": "[extra_headers_Authorization]"}
    assert content["extra"] == {"extra_headers": {**headers, "X-Team": "blue-team-one"}, "top_k": 20}
