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
    rest = b""
    for chunk in chunks:
        rest += chunk
        whole, newline, tail = rest.replace(b"\r\n", b"\n").rpartition(b"\n")
        if b"\r" in whole:
            whole = whole.replace(b"\r", b"\n")
        if newline:
            rest = tail
            yield from (line.decode("utf-8", errors="replace") for line in whole.split(b"\n"))
        elif len(rest) > EVENT_BYTES_MAX:
            raise BadAnswer(f"one line is longer than {EVENT_BYTES_MAX:,} bytes")
