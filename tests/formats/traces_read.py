"""Traces read for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.model import TurnRecord

SAMPLES = Path(__file__).parent / "exchange_samples"


OTLP: dict[str, Any] = json.loads((SAMPLES / "otel.json").read_bytes())


def read(value: object) -> Imported:
    return read_file(json.dumps(value).encode(), "t.json")


def turns_of_trace(value: object) -> tuple[TurnRecord, ...]:
    return read(value).runs[0].results[0].transcript.turns


def spans_of(value: dict[str, Any]) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = value["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return spans
