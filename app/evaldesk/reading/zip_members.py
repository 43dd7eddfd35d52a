"""Members of a zip file that a stranger made: read one at a time, within bounds, and never written anywhere."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from evaldesk.errors import TEXT_LIMIT, VALUE_LIMIT, FormatError
from evaldesk.reading.regular_file import read_at_most

MAX_MEMBERS = 50_000
MAX_MEMBER_BYTES = 64 * 1024 * 1024
MAX_TOTAL_BYTES = 512 * 1024 * 1024
MAX_RATIO = 400
"""Unpacked over packed size, for members of more than a mebibyte; transcripts reach about 100."""

_ENTRY = b"PK\x01\x02"
_ZSTD = 93
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTD)
_FREE_BYTES = 1024 * 1024
_ZSTD_WINDOW = 2**27
# Lengths of name and extra field, at byte 26 of a local header (APPNOTE.TXT 4.3.7; decision 407).
_LOCAL_HEADER = struct.Struct("<26xHH")
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, OSError, RuntimeError, MemoryError)


@dataclass(slots=True)
class ZipMembers:
    """The members of a zip file. `names` are in the order of its directory."""

    data: bytes
    source: str
    archive: zipfile.ZipFile
    by_name: dict[str, zipfile.ZipInfo]
    n_unpacked: int = 0

    @classmethod
    def open(cls, data: bytes, source: str) -> ZipMembers:
        """Read the directory only. Raises FormatError for a file that is no zip, or has too many members."""
        if data.count(_ENTRY) > MAX_MEMBERS:
            raise FormatError(f"the zip file has more than {MAX_MEMBERS} members", source=source)
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
        except _DAMAGE as error:
            raise FormatError(f"this is not a complete zip file: {str(error)[:TEXT_LIMIT]}", source=source) from None
        by_name: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            if info.filename in by_name:
                raise FormatError(f"the zip file has {info.filename[:VALUE_LIMIT]!r} twice", source=source)
            by_name[info.filename] = info
        return cls(data, source, archive, by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def read(self, name: str) -> bytes:
        """The unpacked member. Raises FormatError when it is damaged, packed in a strange way, or too much."""
        info, source = self.by_name[name], f"{self.source}!{name[:TEXT_LIMIT]}"
        if info.flag_bits & 1:
            raise FormatError("the member is encrypted", source=source)
        if info.compress_type not in _METHODS:
            raise FormatError(
                f"packed by method {info.compress_type}; read are stored, deflate and zstd", source=source
            )
        limit = self._limit(info, source)
        try:
            content = self._unpack(info, limit)
        except _DAMAGE as error:
            raise FormatError(f"the member is damaged: {str(error)[:TEXT_LIMIT]}", source=source) from None
        self.n_unpacked += len(content)
        if len(content) > limit:
            raise FormatError(f"the member unpacks to more than {limit} bytes, which is refused", source=source)
        if zlib.crc32(content) != info.CRC:
            raise FormatError("the member is damaged: its checksum is wrong", source=source)
        return content

    def _unpack(self, info: zipfile.ZipInfo, limit: int) -> bytes:
        """At most one byte more than `limit`."""
        if info.compress_type == _ZSTD:
            return _unpack_zstd(_packed_bytes(self.data, info), limit)
        with self.archive.open(info) as member:
            return member.read(limit + 1)

    def _limit(self, info: zipfile.ZipInfo, source: str) -> int:
        """The most bytes that this member may unpack to, independent of its own header."""
        n_left = MAX_TOTAL_BYTES - self.n_unpacked
        if n_left <= 0:
            raise FormatError(f"the members unpack to more than {MAX_TOTAL_BYTES} bytes together", source=source)
        return min(MAX_MEMBER_BYTES, n_left, max(_FREE_BYTES, MAX_RATIO * min(info.compress_size, len(self.data))))


def _unpack_zstd(data: bytes, limit: int) -> bytes:
    """Python before 3.14 knows no zstd in zip files; newer versions of Inspect write it."""
    import zstandard

    try:
        reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).stream_reader(data)
        return read_at_most(reader, limit + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def _packed_bytes(data: bytes, info: zipfile.ZipInfo) -> bytes:
    n_name, n_extra = _LOCAL_HEADER.unpack_from(data, info.header_offset)
    start = info.header_offset + _LOCAL_HEADER.size + n_name + n_extra
    return data[start : start + info.compress_size]
