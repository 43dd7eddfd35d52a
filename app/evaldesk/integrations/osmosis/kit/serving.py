"""Stand-ins for objects built at import: servers, unused by Evaldesk, and the backend of a workflow and its grader."""

from __future__ import annotations

from typing import Any

__all__ = ["LocalBackend", "ServeError", "create_app", "create_rollout_server", "serve_agent_loop"]


class ServeError(Exception):
    """The stand-in was asked to serve."""


class App:
    """An ASGI application that only raises ServeError; modules build one at import."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        self.parts = parts
        self.options = options

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse."""
        raise ServeError("Evaldesk runs the agent itself; to serve it, `pip install 'osmosis-ai[server]'`")


def create_app(agent_loop: Any, **options: Any) -> App:
    """The application of an agent loop."""
    return App(agent_loop, **options)


def serve_agent_loop(agent_loop: Any, **options: Any) -> None:
    """Refuse."""
    raise ServeError("Evaldesk runs the agent itself; to serve it, `pip install 'osmosis-ai[server]'`")


class LocalBackend:
    """A workflow with its grader, and their configurations."""

    def __init__(
        self,
        workflow: Any,
        workflow_config: Any = None,
        grader: Any = None,
        grader_config: Any = None,
        **options: Any,
    ) -> None:
        self.workflow = workflow
        self.workflow_config = workflow_config
        self.grader = grader
        self.grader_config = grader_config
        self.options = options


def create_rollout_server(*, backend: Any, **options: Any) -> App:
    """The application of a backend."""
    return App(backend, **options)
