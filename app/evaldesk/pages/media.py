"""Images, sounds and files of a message as a page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evaldesk.model.media import SHOWN_TYPES, Media, MediaKind, sniffed_type


@dataclass(frozen=True, slots=True)
class MediaView:
    """One of them; `address` is where the desk serves its bytes, empty where it has none. `uri` is never fetched."""

    kind: MediaKind
    title: str
    mime_type: str
    address: str = ""
    uri: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether a browser shows it on the page."""
        return bool(self.address) and self.mime_type in SHOWN_TYPES


def media_views(media: Iterable[Media]) -> tuple[MediaView, ...]:
    """The media of a message, in order."""
    return tuple(_view(item) for item in media)


def _view(item: Media) -> MediaView:
    address = f"/media/{item.digest}" if item.is_held else _inline(item)
    return MediaView(item.kind, item.name or item.kind, item.mime_type, address, item.uri)


def _inline(item: Media) -> str:
    """The bytes themselves as an address, of an image that is too small to be kept apart."""
    found = sniffed_type(item.content()) if item.kind == "image" and item.data else ""
    return f"data:{found};base64,{item.data}" if found.startswith("image/") else ""
