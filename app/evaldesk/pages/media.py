"""Images, sounds and files of a message as a page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from evaldesk.model import JsonValue
from evaldesk.model.json_text import json_line
from evaldesk.model.media import HELD, HELD_URL, MARK, SHOWN_TYPES, TO_URL, Media, MediaKind, images_in, sniffed_type
from evaldesk.wording.words import size_words

MAX_INLINE = 100_000
"""Characters of images that stand on a page themselves, for one result: of those that are not in the store."""


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


def result_media(result: JsonValue) -> tuple[MediaView, ...]:
    """The images in a result of a tool, in order."""
    room, views = MAX_INLINE, []
    for item in images_in(result):
        n = 0 if item.is_held else len(item.data)
        view = replace(_view(item), title=_size(item))
        views.append(view if n <= room else replace(view, address=""))
        room -= n if n <= room else 0
    return tuple(views)


def result_line(result: JsonValue) -> str:
    """The result on one line."""
    return without_images(json_line(result), result)


def without_images(text: str, result: JsonValue) -> str:
    """The result as text, in the place of base64 `42 kB image/png`, or the beginning of the digest of stored bytes."""
    for item in images_in(result):
        if item.is_held:
            texts, words = (
                (f"{MARK}{item.data}", f"{MARK}{HELD_URL}{item.digest}"),
                f"{item.mime_type} {HELD}{item.digest[:12]}",
            )
        else:
            texts, words = (item.data, item.data.translate(TO_URL)), f"{_size(item)} {item.mime_type}"
        for data in texts:
            text = text.replace(data, words)
    return text


def _size(item: Media) -> str:
    return "image" if item.is_held else size_words(len(item.content()))


def _view(item: Media) -> MediaView:
    address = f"/media/{item.digest}" if item.is_held else _inline(item)
    return MediaView(item.kind, item.name or item.kind, item.mime_type, address, item.uri)


def _inline(item: Media) -> str:
    """The bytes themselves as an address, of an image that is too small to be kept apart."""
    mime_type = sniffed_type(item.content()) if item.kind == "image" and item.data else ""
    return f"data:{mime_type};base64,{item.data}" if mime_type.startswith("image/") else ""
