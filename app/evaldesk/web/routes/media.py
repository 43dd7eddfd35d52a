"""The bytes of images, sounds and files, by their digest."""

from __future__ import annotations

import re

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.errors import NotFoundError
from evaldesk.model.media import sniffed_type
from evaldesk.web.render import desk_of

_DIGEST = re.compile(r"[0-9a-f]{64}")


async def show(request: Request) -> Response:
    """GET /media/{digest}: an image or a sound that a browser shows safely, anything else as a download.

    The type is told by the bytes: claims of an agent or a file are not believed.
    """
    digest = request.path_params["digest"]
    content = await run_in_threadpool(desk_of(request).media, digest) if _DIGEST.fullmatch(digest) else None
    if content is None:
        raise NotFoundError("There is no such image or file; the run or the session that had it was deleted.")
    mime_type = sniffed_type(content)
    name = "inline" if mime_type else f'attachment; filename="{digest[:12]}.bin"'
    headers = {
        "Content-Disposition": name,
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    }
    return Response(content, media_type=mime_type or "application/octet-stream", headers=headers)


routes = [Route("/media/{digest}", show)]
