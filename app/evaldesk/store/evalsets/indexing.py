"""The module behind `python -m evaldesk.store.evalsets.indexing FILE FOLDER`: indexes one eval set beside the pages.

On its output stands one Answer. Nothing else is said.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from evaldesk.errors import FormatError
from evaldesk.formats.process import NICENESS, Refusal
from evaldesk.model.stored import EvalSetFacts
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.store.evalsets.case_index import build_index
from evaldesk.wire import from_json, to_json

COMMAND = (sys.executable, "-P", "-m", "evaldesk.store.evalsets.indexing")


class Answer(msgspec.Struct, frozen=True):
    """The facts of a set, or why there is no index of it; neither for a file of another form."""

    facts: EvalSetFacts | None = None
    refusal: Refusal | None = None
    failure: str = ""


def indexed_facts(source: Path, folder: Path) -> EvalSetFacts:
    """Index a set in a process of its own, so that pages go on. Raises as `build_index` does."""
    process = subprocess.run([*COMMAND, source, folder], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    try:
        answer = from_json(process.stdout, Answer)
    except msgspec.MsgspecError:
        raise OSError(f"reading {source.name} broke off; it is read again when it is asked for") from None
    if answer.refusal:
        raise answer.refusal.error()
    if answer.failure:
        raise OSError(answer.failure)
    if answer.facts is None:
        raise NotStreamedError
    return answer.facts


def main(source: Path, folder: Path) -> Answer:
    """Index the set."""
    os.nice(NICENESS)
    try:
        return Answer(build_index(source, folder))
    except NotStreamedError:
        return Answer()
    except FormatError as error:
        return Answer(refusal=Refusal(error.reason, error.source, error.path, error.line, error.column))
    except OSError as error:
        return Answer(failure=str(error))


if __name__ == "__main__":
    sys.stdout.buffer.write(to_json(main(Path(sys.argv[1]), Path(sys.argv[2]))))
