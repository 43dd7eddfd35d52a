"""Logs of bounded length, and streams that know whose text they are given."""

from __future__ import annotations

import os

import pytest

from evaldesk.engine.worker.attempt import CURRENT_LOG, AttemptWriter, Log, Tail


def test_a_short_log_is_kept_whole() -> None:
    log = Log()

    log.write("one\n")
    log.write("two\n")

    assert log.text() == "one\ntwo\n"


def test_a_long_log_keeps_its_two_ends_and_says_what_is_missing() -> None:
    log = Log(limit=10)

    for letter in "abcdefghijklmnopqrstuvwxyz":
        log.write(letter)

    assert log.text() == "abcde\n… 16 characters left out …\nvwxyz"


def test_one_long_text_is_cut_as_many_short_ones_are() -> None:
    log = Log(limit=10)

    log.write("abcdefghijklmnopqrstuvwxyz")

    assert log.text() == "abcde\n… 16 characters left out …\nvwxyz"


def test_a_tail_keeps_the_end_of_a_flood() -> None:
    tail = Tail(limit=4)

    for piece in (b"abc", b"def", b"g", b"\xff"):
        tail.write(piece)

    assert tail.text() == "efg\ufffd"


def test_a_stream_writes_to_the_current_log() -> None:
    log = Log()
    token = CURRENT_LOG.set(log)

    stream = AttemptWriter()
    print("text", file=stream)
    stream.buffer.write(b"bytes \xff\n")
    stream.writelines(["a", "b\n"])
    CURRENT_LOG.reset(token)

    assert log.text() == "text\nbytes \ufffd\nab\n"


def test_a_stream_without_an_attempt_writes_to_file_descriptor_2(
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = AttemptWriter()

    print("nobody's", file=stream)
    os.write(stream.fileno(), b"raw\n")

    assert capfd.readouterr().err == "nobody's\nraw\n"
