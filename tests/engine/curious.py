"""An agent that looks for later messages of its user in everything that its process has."""

from __future__ import annotations

from evaldesk.model import TrialResult

SECRET = "treasure-" + "Q7XZ41KP"
"""The word that only later messages have; the agent looks for its pattern, so that it does not find itself."""

CURIOUS = r"""
import gc, os, re, sys

PATTERN = re.compile(rb"(?i)treasure-[A-Z0-9]{8}")


def is_in(data):
    return bool(PATTERN.search(data))


def texts(values):
    for value in values:
        try:
            yield repr(value).encode("utf-8", "replace")
        except Exception:
            continue


def in_objects():
    kept = [each for each in gc.get_objects() if isinstance(each, (dict, list, tuple, set))]
    attributes = [getattr(each, "__slots__", ()) and each for each in gc.get_objects()]
    return any(map(is_in, texts([*kept, *filter(None, attributes)])))


def in_frames():
    found = []
    for frame in [sys._getframe(), *sys._current_frames().values()]:
        while frame:
            found.append(dict(frame.f_locals))
            frame = frame.f_back
    for task in [each for each in gc.get_objects() if hasattr(each, "cr_frame") and each.cr_frame]:
        found.append(dict(task.cr_frame.f_locals))
    return any(map(is_in, texts(found)))


def in_memory():
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        for line in maps:
            place, rights, *_ = line.split()
            start, end = (int(part, 16) for part in place.split("-"))
            if rights.startswith("rw") and "[v" not in line:
                try:
                    memory.seek(start)
                    if is_in(memory.read(end - start)):
                        return True
                except (OSError, ValueError, OverflowError):
                    continue
    return False


def in_pipes():
    data = []
    for fd in range(3, 64):
        try:
            os.set_blocking(fd, False)
            data.append(os.read(fd, 1 << 20))
        except OSError:
            continue
    return any(map(is_in, data))


def agent(message):
    # Memory first: a look at objects as text leaves texts there.
    looks = (in_memory, in_objects, in_frames, in_pipes)
    return "found: " + " ".join(look.__name__ for look in looks if look())
"""


def looks(result: TrialResult) -> list[str]:
    """What the agent found in each turn."""
    assert result.error is None, result.error
    return [turn.answer for turn in result.transcript.turns]
