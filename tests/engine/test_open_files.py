"""The limit of open files, raised where it is low and never lowered."""

from __future__ import annotations

import resource

import pytest

from evaldesk.process_setup import WANTED, allow_open_files

NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [(256, NONE, (WANTED, NONE)), (256, 1024, (1024, 1024)), (20_000, 20_000, None), (NONE, NONE, None)],
    ids=["macOS", "a low hard limit", "enough", "no limit"],
)
def test_the_limit_is_raised_as_far_as_it_may_be(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, expected: tuple[int, int] | None
) -> None:
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: written.append(limits))

    allow_open_files()

    assert written == ([expected] if expected else [])


def test_a_system_that_refuses_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, NONE))
    monkeypatch.setattr(resource, "setrlimit", refuse)

    allow_open_files()
