"""The bytes of media, kept once for all cases, trials and sessions that hold them.

A value is stored as JSON in which `sha256:DIGEST` stands for the base64 of its media, and `sha256-url:DIGEST` for the
base64 with the letters of addresses, which the form of a file may have as well. What is too short to be worth a row
stays in the JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from typing import Any, TypeAlias

from sqlalchemy import Connection, Table, delete, exists, func, insert, or_, select

from evaldesk.model import JsonValue, TurnRecord
from evaldesk.model.media import (
    HELD,
    HELD_URL,
    MARK,
    MAX_IMAGES,
    TO_URL,
    Media,
    images_in,
    media_of,
    without_image_texts,
)
from evaldesk.store.database import StorePart
from evaldesk.store.tables.columns import upsert
from evaldesk.store.tables.media import MEDIA, RUN_MEDIA, SESSION_MEDIA
from evaldesk.wire import to_json

MIN_LENGTH = 1_024
"""Characters of the shortest base64 that is kept apart; no other text has one of these in it by chance."""

MAX_DROPPED = 4 * 1024 * 1024
"""Bytes that one step of a removal takes away: some 10 ms of computing. A larger medium is alone in its own."""

Found: TypeAlias = Mapping[str, bytes]
"""Bytes by their digest."""

_PLACES = re.compile(rb"sha256(-url)?:([0-9a-f]{64})")
_IN_RESULTS = re.compile(MARK.encode() + _PLACES.pattern)


class MediaStore(StorePart):
    """The bytes of the media of a workspace."""

    def content(self, digest: str) -> bytes | None:
        """The bytes with that digest; None where nothing has them."""
        with self._database.reading() as connection:
            return connection.scalar(select(MEDIA.c.data).where(MEDIA.c.digest == digest))

    def with_bytes(self, media: Iterable[Media]) -> tuple[Media, ...]:
        """The media with their bytes again; one whose bytes are gone stays without."""
        with self._database.reading() as connection:
            return tuple(_with_bytes(connection, item) for item in media)

    def results_whole(self, turns: tuple[TurnRecord, ...]) -> tuple[TurnRecord, ...]:
        """The turns with the images of their tools' results again, MAX_IMAGES of them, the newest first."""
        with self._database.reading() as connection:
            return results_whole(connection, turns, MAX_IMAGES)


def drop_some(connection: Connection, table: Table, owner_id: object, n: int) -> bool:
    """Take some media, `n` at most, from a run or session that goes, with the bytes that nothing else uses.

    False without any. `table` holds the users of media.
    """
    owner, digest = table.columns[0], table.c.digest
    sizes = select(digest, func.coalesce(func.length(MEDIA.c.data), 0).label("n_bytes"))
    sizes = sizes.join(MEDIA, MEDIA.c.digest == digest, isouter=True).where(owner == owner_id)
    some = [row.digest for row in fitting(connection.execute(sizes.order_by(digest).limit(n)).all())]
    if not some:
        return False
    connection.execute(delete(table).where(owner == owner_id, digest.in_(some)))
    is_used = (exists().where(each.c.digest == MEDIA.c.digest) for each in (RUN_MEDIA, SESSION_MEDIA))
    connection.execute(delete(MEDIA).where(MEDIA.c.digest.in_(some), ~or_(*is_used)))
    return True


def fitting(rows: Sequence[Any]) -> list[Any]:
    """The first rows with `n_bytes` that one step takes away."""
    sums = accumulate(row.n_bytes for row in rows)
    return [row for row, up_to in zip(rows, sums, strict=True) if up_to <= MAX_DROPPED or row is rows[0]]


def taken_out(data: bytes, media: Iterable[Media], mark: str = "") -> bytes:
    """The JSON of a value with the digests of its media in the place of their bytes, each after `mark`."""
    for item in _apart(media):
        data = data.replace(item.data.encode(), f"{mark}{HELD}{item.digest}".encode())
        data = data.replace(item.data.translate(TO_URL).encode(), f"{mark}{HELD_URL}{item.digest}".encode())
    return data


def put_back(connection: Connection, data: bytes, only: Collection[str] | None = None) -> bytes:
    """The JSON as it was before `taken_out`; of a result these digests `only`. A digest whose bytes are gone stays."""
    places = _PLACES if only is None else _IN_RESULTS
    digests = {match[2].decode() for match in places.finditer(data)}
    digests = digests if only is None else digests & {*only}
    if not digests:
        return data
    rows = connection.execute(select(MEDIA.c.digest, MEDIA.c.data).where(MEDIA.c.digest.in_(digests)))
    texts = {row.digest: media_of("", row.data).data for row in rows}

    def write_image(match: re.Match[bytes]) -> bytes:
        text = texts.get(match[2].decode())
        if text is None:
            return match[0]
        return (text.translate(TO_URL) if match[1] else text).encode()

    return places.sub(write_image, data)


def turns_apart(turns: tuple[TurnRecord, ...]) -> tuple[TurnRecord, ...]:
    """The turns with digests in the place of the bytes of their media and of images in results of tools."""
    return tuple(_with_media(turn) for turn in _with_results(turns, _result_apart))


def _with_media(turn: TurnRecord) -> TurnRecord:
    if not turn.all_media:
        return turn

    def apart(media: tuple[Media, ...]) -> tuple[Media, ...]:
        return tuple(item.held() if len(item.data) >= MIN_LENGTH else item for item in media)

    events = tuple(replace(event, media=apart(event.media)) if event.media else event for event in turn.events)
    return replace(turn, media=apart(turn.media), events=events)


def _result_apart(result: JsonValue, images: list[Media]) -> JsonValue:
    """The result with marked digests; whole, where another text in it would then be read as an image."""
    if not any(item.is_held or len(item.data) >= MIN_LENGTH for item in images):
        return result
    data = to_json(result).replace(MARK.encode(), b"")
    clean: JsonValue = json.loads(data)
    images = images_in(clean)
    digests = {item.digest for item in _apart(images)}
    marked_result: JsonValue = json.loads(taken_out(data, images, MARK))
    return marked_result if {item.digest for item in images_in(marked_result) if item.is_held} == digests else clean


def results_whole(
    connection: Connection, turns: tuple[TurnRecord, ...], most: int | None = None
) -> tuple[TurnRecord, ...]:
    """The turns with the images of results again; with `most` characters of them, words stand for those before."""
    room = most

    def restore(result: JsonValue, images: list[Media]) -> JsonValue:
        nonlocal room
        digests = {item.digest for item in images if item.is_held}
        if not digests:
            return result
        data = to_json(result)
        full_data = put_back(connection, data, digests) if room is None or room >= 0 else data
        room = None if room is None else room - (len(full_data) - len(data))
        is_whole = room is None or (room >= 0 and full_data is not data)
        whole_result: JsonValue = json.loads(full_data) if is_whole else without_image_texts(result)
        return whole_result

    whole_turns = [_with_results((turn,), restore)[0] for turn in reversed(turns)]
    return tuple(reversed(whole_turns))


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
    turns: tuple[TurnRecord, ...], change_result: Callable[[JsonValue, list[Media]], JsonValue]
) -> tuple[TurnRecord, ...]:
    new_turns = []
    for turn in turns:
        events = list(turn.events)
        for at, event in enumerate(events):
            images = images_in(event.result) if event.kind == "tool_result" else []
            if images and (result := change_result(event.result, images)) is not event.result:
                events[at] = replace(event, result=result)
        new_turns.append(
            turn
            if all(new_event is old_event for new_event, old_event in zip(events, turn.events, strict=True))
            else replace(turn, events=tuple(events))
        )
    return tuple(new_turns)


def bytes_of(media: Iterable[Media]) -> dict[str, bytes]:
    """The bytes of media by digest; made before a transaction."""
    return {item.digest: item.content() for item in _apart(media) if not item.is_held}


def _apart(media: Iterable[Media]) -> Iterator[Media]:
    """Those whose bytes are worth a row."""
    return (item for item in media if len(item.data) >= MIN_LENGTH)


def keep(
    connection: Connection, owner: Mapping[str, object], bytes_by_digest: Found, clock: Callable[[], datetime]
) -> None:
    """Keep the bytes for the run or the session that `owner` names by its column."""
    if not bytes_by_digest:
        return
    table: Table = RUN_MEDIA if "run_id" in owner else SESSION_MEDIA
    stored_digests = set(connection.scalars(select(MEDIA.c.digest).where(MEDIA.c.digest.in_(bytes_by_digest))))
    fresh = {digest: data for digest, data in bytes_by_digest.items() if digest not in stored_digests}
    if fresh:
        connection.execute(insert(MEDIA), [{"digest": key, "kept_at": clock(), "data": fresh[key]} for key in fresh])
    uses = upsert(connection.dialect.name, table).on_conflict_do_nothing()
    connection.execute(uses, [{**owner, "digest": digest} for digest in bytes_by_digest])


def _with_bytes(connection: Connection, item: Media) -> Media:
    if not item.is_held:
        return item
    data = connection.scalar(select(MEDIA.c.data).where(MEDIA.c.digest == item.digest))
    return item if data is None else media_of(item.mime_type, data, name=item.name, at=item.at)
