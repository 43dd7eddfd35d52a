"""Where the files that ship with Evaldesk are, in the package or a checkout; and what a person may have meant."""

from __future__ import annotations

import os
from difflib import get_close_matches
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


def did_you_mean(path: Path, otherwise: str) -> str:
    """`did you mean set.json?`, of what lies beside a `path` that is not there; `otherwise` where nothing is near."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return otherwise
    nearest = get_close_matches(path.name, names, n=1, cutoff=0.75)
    return f"did you mean {path.with_name(nearest[0])}?" if nearest else otherwise
