"""The bytes of media, kept once for all cases, trials and sessions that hold them.

A value is stored as JSON in which `sha256:DIGEST` stands for the base64 of its media, and `sha256-url:DIGEST` for the
base64 with the letters of addresses, which the form of a file may have as well. What is too short to be worth a row
stays in the JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection, Table, delete, insert, select

from evaldesk.model import TurnRecord
from evaldesk.model.media import HELD, HELD_URL, TO_URL, Media, images_in, media_of
from evaldesk.store.database import Database
from evaldesk.store.tables.columns import upsert
from evaldesk.store.tables.media import MEDIA, RUN_MEDIA, SESSION_MEDIA
from evaldesk.wire import to_json

MIN_LENGTH = 1_024
"""Characters of the shortest base64 that is kept apart; no other text has one of these in it by chance."""

Found: TypeAlias = Mapping[str, bytes]
"""Bytes by their digest."""

_PLACES = re.compile(rb"sha256(-url)?:([0-9a-f]{64})")


class MediaStore:
    """The bytes of the media of a workspace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def content(self, digest: str) -> bytes | None:
        """The bytes with that digest; None where nothing has them."""
        with self._database.reading() as connection:
            return connection.scalar(select(MEDIA.c.data).where(MEDIA.c.digest == digest))

    def whole(self, media: Iterable[Media]) -> tuple[Media, ...]:
        """The media with their bytes again; one whose bytes are gone stays without."""
        with self._database.reading() as connection:
            return tuple(_whole(connection, item) for item in media)

    def results_whole(self, turns: tuple[TurnRecord, ...]) -> tuple[TurnRecord, ...]:
        """The turns with the images of their tools' results again."""
        with self._database.reading() as connection:
            return results_whole(connection, turns)


def sweep(connection: Connection) -> None:
    """Remove the bytes that no run and no session uses."""
    used = select(RUN_MEDIA.c.digest).union(select(SESSION_MEDIA.c.digest))
    connection.execute(delete(MEDIA).where(MEDIA.c.digest.not_in(used)))


def taken_out(data: bytes, media: Iterable[Media]) -> bytes:
    """The JSON of a value with the digests of its media in the place of their bytes."""
    for item in _apart(media):
        data = data.replace(item.data.encode(), f"{HELD}{item.digest}".encode())
        data = data.replace(item.data.translate(TO_URL).encode(), f"{HELD_URL}{item.digest}".encode())
    return data


def put_back(connection: Connection, data: bytes, only: Collection[str] | None = None) -> bytes:
    """The JSON as it was before `taken_out`, of these digests `only`. A digest whose bytes are gone stays."""
    found = {match[2].decode() for match in _PLACES.finditer(data)}
    found = found if only is None else found & {*only}
    if not found:
        return data
    rows = connection.execute(select(MEDIA.c.digest, MEDIA.c.data).where(MEDIA.c.digest.in_(found)))
    texts = {row.digest: media_of("", row.data).data for row in rows}

    def written(match: re.Match[bytes]) -> bytes:
        text = texts.get(match[2].decode())
        if text is None:
            return match[0]
        return (text.translate(TO_URL) if match[1] else text).encode()

    return _PLACES.sub(written, data)


def results_apart(turns: tuple[TurnRecord, ...]) -> tuple[TurnRecord, ...]:
    """The turns with the digests of images in the place of their bytes in results of tools, and nowhere else."""
    return _with_results(turns, lambda images: bool(bytes_of(images)), taken_out)


def results_whole(connection: Connection, turns: tuple[TurnRecord, ...]) -> tuple[TurnRecord, ...]:
    """The turns as they were before `results_apart`."""

    def whole(data: bytes, images: list[Media]) -> bytes:
        return put_back(connection, data, {item.digest for item in images if item.is_held})

    return _with_results(turns, lambda images: any(item.is_held for item in images), whole)


def result_images(turns: Iterable[TurnRecord]) -> Iterator[Media]:
    """The images in results of tools."""
    return (
        item
        for turn in turns
        for event in turn.events
        if event.kind == "tool_result"
        for item in images_in(event.result)
    )


def _with_results(
    turns: tuple[TurnRecord, ...],
    is_changed: Callable[[list[Media]], bool],
    changed: Callable[[bytes, list[Media]], bytes],
) -> tuple[TurnRecord, ...]:
    found = []
    for turn in turns:
        events = list(turn.events)
        for at, event in enumerate(events):
            images = images_in(event.result) if event.kind == "tool_result" else []
            if images and is_changed(images):
                events[at] = replace(event, result=json.loads(changed(to_json(event.result), images)))
        found.append(
            turn
            if all(new is old for new, old in zip(events, turn.events, strict=True))
            else replace(turn, events=tuple(events))
        )
    return tuple(found)


def bytes_of(media: Iterable[Media]) -> dict[str, bytes]:
    """The bytes of media by digest; made before a transaction."""
    return {item.digest: item.content() for item in _apart(media) if not item.is_held}


def _apart(media: Iterable[Media]) -> Iterator[Media]:
    """Those whose bytes are worth a row."""
    return (item for item in media if len(item.data) >= MIN_LENGTH)


def keep(connection: Connection, owner: Mapping[str, object], found: Found, clock: Callable[[], datetime]) -> None:
    """Keep the bytes for the run or the session that `owner` names by its column."""
    if not found:
        return
    table: Table = RUN_MEDIA if "run_id" in owner else SESSION_MEDIA
    known = set(connection.scalars(select(MEDIA.c.digest).where(MEDIA.c.digest.in_(found))))
    fresh = {digest: data for digest, data in found.items() if digest not in known}
    if fresh:
        connection.execute(insert(MEDIA), [{"digest": key, "kept_at": clock(), "data": fresh[key]} for key in fresh])
    uses = upsert(connection.dialect.name, table).on_conflict_do_nothing()
    connection.execute(uses, [{**owner, "digest": digest} for digest in found])


def _whole(connection: Connection, item: Media) -> Media:
    if not item.is_held:
        return item
    data = connection.scalar(select(MEDIA.c.data).where(MEDIA.c.digest == item.digest))
    return item if data is None else media_of(item.mime_type, data, name=item.name, at=item.at)
