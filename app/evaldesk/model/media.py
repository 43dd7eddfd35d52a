"""Images, sounds and files of a message."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from evaldesk.errors import UsageError

MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]
MEDIA_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video", "file")

HELD = "sha256:"
"""The start of `data` where the bytes are in the store; no base64 has a colon."""
HELD_URL = "sha256-url:"
"""The same for base64 with the letters of addresses."""
# No character, so that no tool can claim a stored image: decision 182.
MARK = "\ufdd0"
"""Stands before HELD in results of tools: the store alone writes it, so no text of an agent is taken for an image."""
MAX_MEDIA = 20 * 1024 * 1024
"""Bytes of one image, sound or file."""
MAX_MEDIA_COUNT = 50
MAX_IMAGE_TEXT = 12_000_000
"""Characters of a text with an image in a result of a tool: base64 of 9 MB."""
MAX_IMAGES = 24 * 1024 * 1024
"""Characters of base64 of all images that results of tools in a turn, or in a trial, bring."""


@dataclass(frozen=True, slots=True)
class Media:
    """One image, sound, video or file that goes with the text of a message.

    `data` is base64 of the bytes, or `sha256:` and their digest where the store holds them. Where only the address of
    the bytes is known it is `uri`, which Evaldesk itself never fetches. `at` is the number of characters of the text
    that come before it.
    """

    mime_type: str
    data: str = ""
    uri: str = ""
    name: str = ""
    at: int = 0

    @property
    def kind(self) -> MediaKind:
        """The kind by its MIME type; anything that is no image, sound or video is a file."""
        top = self.mime_type.partition("/")[0].lower()
        return top if top in ("image", "audio", "video") else "file"  # type: ignore[return-value] # one of these

    @property
    def is_held(self) -> bool:
        """Whether the bytes are in the store and not here."""
        return self.data.startswith(HELD)

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes in hex; empty where only an address is known."""
        if not self.data:
            return ""
        return self.data.removeprefix(HELD) if self.is_held else hashlib.sha256(self.content()).hexdigest()

    def content(self) -> bytes:
        """The bytes; none where they are elsewhere."""
        return b"" if self.is_held else base64.b64decode(self.data)

    def held(self) -> Media:
        """The same without its bytes."""
        return replace(self, data=f"{HELD}{self.digest}") if self.data and not self.is_held else self

    def title(self) -> str:
        """`image photo.png`, or `image/png` where it has no name."""
        return f"{self.kind} {self.name}" if self.name else self.mime_type


def media_of(mime_type: str, content: bytes, *, name: str = "", at: int = 0) -> Media:
    """The media with these bytes. Raises UsageError for more than MAX_MEDIA of them, and for none."""
    if not content:
        raise UsageError(f"{name or mime_type}: the file is empty")
    if len(content) > MAX_MEDIA:
        raise UsageError(
            f"{name or mime_type} has {len(content) / 2**20:.1f} MiB; a message takes files of at most "
            f"{MAX_MEDIA // 2**20} MiB"
        )
    return Media(mime_type.lower(), base64.b64encode(content).decode(), name=name, at=at)


def base64_text(text: str) -> str | None:
    """The base64 of RFC 4648, section 4, of a text in that form or in the form for addresses; None for any other."""
    standard = "".join(text.split()).translate(_STANDARD).rstrip("=")
    padded = standard + "=" * (-len(standard) % 4)
    try:
        return padded if base64.b64decode(padded, validate=True) else None
    except (ValueError, binascii.Error):
        return None


_STANDARD = str.maketrans("-_", "+/")
TO_URL = str.maketrans("+/", "-_")


def sniffed_type(content: bytes) -> str:
    """The MIME type by the first bytes, among types that a browser shows safely; empty for any other."""
    for mime_type, starts in _SHOWN.items():
        if any(content.startswith(start) for start in starts):
            return mime_type
    if content[:4] == b"RIFF" and content[8:12] in _RIFF:
        return _RIFF[content[8:12]]
    return ""


_SHOWN: dict[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "audio/mpeg": (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"),
    "audio/ogg": (b"OggS",),
}
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
SHOWN_TYPES = frozenset({*_SHOWN, *_RIFF.values()})


_DATA = ("data", "base64", "bytes")
_TYPE = ("mimeType", "mime_type", "media_type", "mediaType")
_MAX_VALUES = 10_000
_HELD = re.compile(rf"{MARK}sha256(?:-url)?:([0-9a-f]{{64}})")


def images_in(value: object) -> list[Media]:
    """The images in a result of a tool, in order, also in JSON as text; at most MAX_MEDIA bytes of base64.

    Their forms are those of MCP, google-adk, Anthropic, LangChain and pydantic-ai (base64 beside its type) and of
    OpenAI (data URLs). The bytes tell the type: what no browser shows safely, as an SVG, is none.
    """
    images: list[Media] = []
    room, n_seen = MAX_MEDIA, 0
    queue: list[tuple[object, bool]] = [(value, True)]
    while queue and len(images) < MAX_MEDIA_COUNT and n_seen < _MAX_VALUES:
        n_seen += 1
        item, may_be_held = queue.pop()
        image = None
        if isinstance(item, str):
            if item.startswith("data:image/"):
                head, _, data = item.partition(";base64,")
                image = _image(data, head.removeprefix("data:"), room)
            elif _is_json(item):
                queue.append(
                    (_parse_json(item), may_be_held and MARK in item)
                )  # an escaped mark is none of the store's
        elif isinstance(item, (dict, Mapping)):  # a dict is told first: the results of a long trial are thousands
            declared_type = str(_text_at(item, _TYPE, item.get("type")))
            image = (
                _image(str(_text_at(item, _DATA, "")), declared_type, room)
                if declared_type.startswith("image")
                else None
            )
            queue += [(each, may_be_held) for each in reversed([*item.values()])]
        elif isinstance(item, list):
            queue += [(each, may_be_held) for each in reversed(item)]
        if image and (may_be_held or not image.is_held):
            images.append(image)
            room -= len(image.data)
    return images


def _text_at(item: Mapping[Any, Any], keys: Iterable[str], default: object) -> object:
    for key in keys:
        if isinstance(value := item.get(key), str):
            return value
    return default


def is_image_text(text: str) -> bool:
    """Whether a text of a result is an image as base64, a data URL of one, or JSON with one, of bounded length."""
    if len(text) > MAX_IMAGE_TEXT:
        return False
    if _is_json(text):
        return bool(images_in(text))
    data = text.partition(";base64,")[2] if text.startswith("data:image/") else text
    return _image(data, "", MAX_MEDIA) is not None


def without_image_texts(value: Any) -> Any:
    """The result with words in the place of its images, and of JSON as text that holds one."""
    if isinstance(value, str):
        is_image = _HELD.search(value) is not None or (len(value) > len(_LEFT_OUT) and is_image_text(value))
        return _LEFT_OUT if is_image else value
    if isinstance(value, Mapping):
        return {key: without_image_texts(item) for key, item in value.items()}
    return [without_image_texts(item) for item in value] if isinstance(value, list) else value


_LEFT_OUT = f"[an image is left out: a turn keeps {MAX_IMAGES // 2**20} MiB of images as base64]"


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[") and "image" in text


def _image(data: str, declared_type: str, room: int) -> Media | None:
    """The image with that base64, which must be complete, or with its digest alone."""
    if digest := _HELD.fullmatch(data):
        return Media(declared_type if declared_type in SHOWN_TYPES else "image/png", f"{HELD}{digest[1]}")
    if not data or len(data) > room:
        return None
    standard = data.translate(_STANDARD)
    try:
        mime_type = sniffed_type(base64.b64decode(standard[:32], validate=True))
    except (ValueError, binascii.Error):
        return None
    if not mime_type.startswith("image/") or base64_text(data) != standard:
        return None
    return Media(mime_type, standard)


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def split(text: str, media: Iterable[Media]) -> list[str | Media]:
    """The message in order: its texts, none of them empty, and its media. A line break around media is no text."""
    parts: list[str | Media] = []
    start = 0
    for item in sorted(media, key=lambda item: item.at):
        before = text[start : item.at]
        if before.strip("\n"):
            parts.append(before.strip("\n"))
        parts.append(item)
        start = max(start, item.at)
    tail = text[start:].strip("\n") if start else text.strip("\n") if parts else text
    return [*parts, tail] if tail else parts


def join_parts(parts: Iterable[str | Media]) -> tuple[str, tuple[Media, ...]]:
    """The text of a message, its parts joined by line breaks, and its media, each with its place in the text."""
    text = ""
    media = []
    for part in parts:
        if isinstance(part, Media):
            media.append(replace(part, at=len(text)))
        elif part:
            text = f"{text}\n{part}" if text else part
    return text, tuple(media)


def with_names(text: str, media: Sequence[Media]) -> str:
    """The message as text alone, `[image photo.png]` in the place of an image: for titles, judges and search."""
    return "\n".join(part if isinstance(part, str) else f"[{part.title()}]" for part in split(text, media))
