"""An agent's reports beside its answer: a reward, a test result, the very text that its code returned."""

from __future__ import annotations

from evaldesk.model.evalset import JsonObject, JsonValue
from evaldesk.model.transcript import Event, Transcript

AUTHOR = "report"
ARTEFACT = "artefact"


def report(values: JsonObject) -> Event:
    """The event that carries `values`, which must be plain JSON."""
    return Event("log", author=AUTHOR, text=f"The agent reports {', '.join(values)}.", result=dict(values))


def reported_values(transcript: Transcript) -> dict[str, JsonValue]:
    """All reports of a trial, by name; the last of a name counts."""
    found: dict[str, JsonValue] = {}
    for turn in transcript.turns:
        for event in turn.events:
            if event.kind == "log" and event.author == AUTHOR and isinstance(event.result, dict):
                found |= event.result
    return found


def artefact(form: str, text: str) -> Event:
    """The event that carries the result of the agent's own code, byte for byte; `form` names its format."""
    return Event("log", author=ARTEFACT, result={"form": form, "text": text})


def is_artefact(event: Event) -> bool:
    """Whether the event carries such a text, whole."""
    found = event.result
    if event.kind != "log" or event.author != ARTEFACT or not isinstance(found, dict):
        return False
    return set(found) == {"form", "text"} and all(isinstance(value, str) for value in found.values())


def artefact_text(transcript: Transcript, form: str) -> str | None:
    """The text that the code of the agent gave in that form; None where there is none, or it had to be cut."""
    for turn in transcript.turns:
        for event in turn.events:
            if is_artefact(event) and isinstance(event.result, dict) and event.result["form"] == form:
                return str(event.result["text"])
    return None
