"""Keys of an agent's own `.env`, taken out in its worker: the desk does not know them."""

from __future__ import annotations

from typing import TypeVar

from evaldesk.wire import from_json, json_scrubber, to_json

T = TypeVar("T")


def without_env_secrets(value: T) -> T:
    """`value` with the secret values that came from `.env` files replaced by the names of their variables."""
    from evaldesk.agents.environment import file_environment

    environment = file_environment()
    if not environment:
        return value
    data = to_json(value)
    clean = json_scrubber(environment)(data)
    return value if clean is data else from_json(clean, type(value))
