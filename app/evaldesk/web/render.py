"""Pages from templates: a template is served whole, or only the block that an htmx request targets."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import HTMLResponse, Response

from evaldesk import paths
from evaldesk.web import words

if TYPE_CHECKING:
    from starlette.requests import Request

    from evaldesk.desk.desk import Desk


@cache
def environment() -> Environment:
    """The one Jinja environment of this process: everything is escaped, nothing undefined prints as empty."""
    env = Environment(
        loader=FileSystemLoader(paths.shipped("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(words.FILTERS)
    env.globals["ui"] = env.get_template("ui.html").module
    return env


def desk_of(request: Request) -> Desk:
    """The desk that this application serves."""
    desk: Desk = request.app.state.desk
    return desk


def page(
    request: Request,
    template: str,
    *,
    block: str | None = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **context: object,
) -> Response:
    """`template` rendered whole, or only `block` when the request's htmx target is the element of that id.

    Block name and element id are the same word. Every template sees `nonce` (of this response) and `path`.
    """
    env: Environment = request.app.state.templates
    found = env.get_template(template)
    values = {
        "nonce": request.state.nonce,
        "path": request.url.path,
        "is_restricted": _is_restricted(request),
        "is_read_only": desk_of(request).is_read_only,
        **context,
    }
    if block and target_of(request) == block:
        body = "".join(found.blocks[block](found.new_context(values)))
    else:
        body = found.render(values)
    return HTMLResponse(body, status_code=status, headers={"Vary": "HX-Target", **(headers or {})})


def fragment(request: Request, template: str, block: str, **context: object) -> str:
    """One block as text, for a message of a stream."""
    env: Environment = request.app.state.templates
    found = env.get_template(template)
    values = {"nonce": request.state.nonce, "path": request.url.path, **context}
    return "".join(found.blocks[block](found.new_context(values)))


def _is_restricted(request: Request) -> bool:
    """Whether the page says that nothing of this folder runs."""
    return desk_of(request).is_restricted


def target_of(request: Request) -> str:
    """The id of the element that an htmx request replaces; empty for any other request. (htmx 4: `tag#id`)"""
    return request.headers.get("HX-Target", "").partition("#")[2]


class _NumberConvertor(Convertor[int]):
    """Starlette's own takes any number of digits, and Python refuses to read more than 4,300."""

    regex = "[0-9]{1,15}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


def number(name: str) -> str:
    """The part of a route's path that takes a number as the path parameter `name`."""
    return f"{{{name}:number}}"


register_url_convertor("number", _NumberConvertor())
