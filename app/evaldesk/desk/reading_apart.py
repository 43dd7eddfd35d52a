"""Large uploads are read in a process of their own: pages stay quick meanwhile, and the memory is given back."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.formats.reading_process import Answer, Request
from evaldesk.wire import from_json, to_json

SMALL = 512 * 1024
"""Up to so many bytes are read at once: a process costs as much as a MiB does."""
TIMEOUT_S = 120.0
PACKED = (b"PK", b"PAR1")
"""How archives and Parquet begin: a small one may hold much."""
COMMAND = (sys.executable, "-P", "-m", "evaldesk.formats.reading_process")


def read_upload(data: bytes, source: str, outcome: str = "") -> Imported:
    """What an uploaded file holds. Raises FormatError, also for one that takes too long or too much."""
    if len(data) <= SMALL and not data.startswith(PACKED):
        return read_file(data, source, outcome=outcome)
    request = to_json(Request(source, outcome)) + b"\n" + data
    try:
        done = subprocess.run(COMMAND, input=request, capture_output=True, timeout=TIMEOUT_S, check=False)
        answer = from_json(done.stdout, Answer)
    except subprocess.TimeoutExpired:
        raise _too_much(source, f"it was not read within {TIMEOUT_S:g} s") from None
    except msgspec.MsgspecError:
        raise _too_much(source, "reading it broke off") from None
    if answer.imported is None:
        raise answer.refusal.error() if answer.refusal else _too_much(source, "reading it broke off")
    return answer.imported


def _too_much(source: str, what: str) -> FormatError:
    return FormatError(f"{what}; `evaldesk import FILE` on the command line has no such limit", source=source)
