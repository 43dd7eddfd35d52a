"""Where the files that ship with Evaldesk are: inside the installed package, or beside `app/` in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The folder `templates`, `static` or `evalsets`. Raises FileNotFoundError naming both places."""
    places = (PACKAGE / name, PACKAGE.parents[1] / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"{name} is neither at {places[0]} nor at {places[1]}; install Evaldesk again")


def samples() -> Path:
    """The folder of the sample agents."""
    return PACKAGE / "samples"
