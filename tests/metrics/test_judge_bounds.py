"""A reply of a judge that is large, deep, endless or impossible costs its own sample, and no page and no trial."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from evaldesk.metrics.judges.panel import Task
from evaldesk.metrics.judges.replies import (
    Points,
    Properties,
    Rating,
    ReplyError,
    Sentences,
    Validity,
    Verdict,
    read_reply,
)
from evaldesk.metrics.judges.rubrics.score import points_task
from evaldesk.wire import to_json

from .judged import details, graded
from .judging import Told

KINDS: tuple[type[Any], ...] = (Points, Properties, Rating, Sentences, Validity, Verdict)
TASKS: Mapping[type[Any], Task[Any]] = {Points: points_task(0, 10)}
VALID = json.dumps({"reasoning": "because", "is_the_agent_response_valid": "valid"})
REFUSED: Mapping[str, tuple[type[Any], str]] = {
    "digits": (Points, '{"score": ' + "9" * 5_000 + "}"),
    "beyond 2**53": (Points, f'{{"score": {2**53 + 1}}}'),
    "huge": (Points, '{"score": -1e308}'),
    "infinite": (Points, '{"score": 1e999}'),
    "Infinity": (Points, '{"score": -Infinity}'),
    "no number": (Points, '{"score": NaN}'),
    "digits of a sentence": (Sentences, '{"sentences": [{"number": ' + "9" * 5_000 + ', "label": "supported"}]}'),
    "digits of a rating": (Rating, '{"rating": ' + "5" * 5_000 + "}"),
    "too many": (Verdict, '{"verdict": "yes", "reasoning": "' + "x" * 100_000 + '"}'),
    "half a character": (Verdict, r'{"verdict": "yes", "reasoning": "\ud800"}'),
    "deep": (Verdict, '{"a":' * 19_999),
    "deep lists": (Verdict, '{"a":' + "[" * 90_000),
    "deep with a long end": (Verdict, '{"a":[' * 900 + "1," * 45_000),
    "braces": (Verdict, "{" * 99_999),
    "names without an end": (Verdict, '{"' * 49_999),
    "thoughts without an end": (Verdict, "<think>" * 14_000),
    "two verdicts": (Verdict, '{"verdict": "yes"} {"verdict": "no"}'),
    "a key twice": (Verdict, '{"verdict": "yes", "verdict": "no"}'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_reply_that_cannot_be_is_refused(name: str) -> None:
    kind, text = REFUSED[name]

    with pytest.raises(ReplyError) as caught:
        TASKS.get(kind, Task("", kind)).check(read_reply(text, kind))

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("name", "n_most"), [("deep", 1001), ("braces", 1001), ("deep with a long end", 500)])
def test_a_text_of_braces_is_given_up_soon(name: str, n_most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n_tried = 0
    decode = json.JSONDecoder.raw_decode

    def counted(self: json.JSONDecoder, text: str, at: int = 0) -> Any:
        nonlocal n_tried
        n_tried += 1
        return decode(self, text, at)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counted)

    with pytest.raises(ReplyError, match="too many braces"):
        read_reply(REFUSED[name][1], Verdict)

    assert n_tried <= n_most


def test_a_large_number_that_the_judge_quotes_is_no_fault_of_its_verdict() -> None:
    quoted = f'The tool said {{"id": {2**64}, "cost": 1e400}}, so: {{"verdict": "yes", "reasoning": "it said so"}}'

    assert read_reply(quoted, Verdict) == Verdict("yes", "it said so")


def test_no_reply_by_chance_raises_anything_else() -> None:
    chance = random.Random(20261123)
    seeds = [text for _, text in REFUSED.values() if len(text) < 10_000] + [VALID]
    pieces = ["{", "}", "[", "]", '"', "\\", "\\ud8", "9" * 4_400, "1e999", "NaN", "null", "\x00", "\ud800", "<think>"]

    for _ in range(4_000):
        text = chance.choice(seeds)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(pieces) + text[at + chance.randrange(3) :]
        try:
            found = read_reply(text, chance.choice(KINDS))
        except ReplyError:
            continue
        to_json(found)


HOSTILE = {name: text for name, (_, text) in REFUSED.items()} | {
    "half a character outside": "\ud800",
    "half a character behind a verdict": f"{VALID}\ud800",
    "nothing but zeros": "\x00" * 50,
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_reply_is_one_sample_and_the_trial_can_be_stored(told: Callable[..., Told], name: str) -> None:
    told(VALID, HOSTILE[name], VALID)

    result = await graded("final_response_match_v2", judge_model="x/judge", judge_model_options={"num_samples": 3})

    turn = result.scores[0]
    assert turn.value == 1.0
    assert [sample.get("verdict") for sample in details(turn)["samples"]].count("valid") >= 2
    assert len(to_json(result)) < 50_000
