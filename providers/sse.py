"""Server-sent events out of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from providers.errors import BadAnswer

EVENT_BYTES_MAX = 8_000_000


def read_events(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Pairs of event name and data. A last event without its blank line is dropped: it may be cut."""
    name, size = "", 0
    data: list[str] = []
    for line in _lines(chunks):
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data, size = "", [], 0
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            size += len(value)
            if size > EVENT_BYTES_MAX:
                raise BadAnswer(f"one event is longer than {EVENT_BYTES_MAX:,} characters")
            data.append(value)
        elif field == "event":
            name = value


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines that end with LF, CR LF or CR. A CR at the end of a chunk waits for what follows."""
    rest: list[bytes] = []  # joined only when a line ends: a long one in small pieces is looked at once
    size = 0
    for chunk in chunks:
        rest.append(chunk)
        size += len(chunk)
        if b"\n" in chunk:
            whole, _, tail = b"".join(rest).replace(b"\r\n", b"\n").rpartition(b"\n")
            rest, size = [tail], len(tail)
            yield from (line.decode("utf-8", errors="replace") for line in _ends(whole).split(b"\n"))
        elif size > EVENT_BYTES_MAX:
            raise BadAnswer(f"one line is longer than {EVENT_BYTES_MAX:,} bytes")


def _ends(whole: bytes) -> bytes:
    return whole.replace(b"\r", b"\n") if b"\r" in whole else whole
