"""The addresses of a name, within a time: the system's own lookup knows no clock."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from queue import Empty, SimpleQueue

# A lookup that hangs keeps its thread until the system gives up on it; more of them are not begun.
LOOKUPS_MAX = 32

_places = threading.BoundedSemaphore(LOOKUPS_MAX)


def look_up(host: str, port: int, *, seconds_max: float | None) -> list[str]:
    """In the system's order. Raises OSError for a name without any, TimeoutError when nothing came in time."""
    if _is_literal(host) or seconds_max is None:
        return _asked(host, port)
    places = _places  # whoever takes one of these gives it back to these
    if not places.acquire(timeout=seconds_max):
        raise TimeoutError(f"{LOOKUPS_MAX} lookups of names are waited for already")
    answer: SimpleQueue[list[str] | OSError] = SimpleQueue()
    try:
        threading.Thread(
            target=_answer, args=(host, port, answer, places), daemon=True, name="lookup"
        ).start()
    except RuntimeError as error:  # this machine has no thread left
        places.release()
        raise OSError(str(error)) from None
    try:
        found = answer.get(timeout=seconds_max)
    except Empty:
        raise TimeoutError(f"its name was not resolved within {seconds_max:.3g} s") from None
    if isinstance(found, OSError):
        raise found
    return found


def _answer(
    host: str, port: int, answer: SimpleQueue[list[str] | OSError], places: threading.BoundedSemaphore
) -> None:
    try:
        answer.put(_asked(host, port))
    except OSError as error:
        answer.put(error)
    except UnicodeError as error:  # a label that no name may have
        answer.put(OSError(str(error)))
    finally:
        places.release()


def _asked(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    return True


def _begin_anew() -> None:
    """A fork takes no threads along: their places are free in the child."""
    global _places  # noqa: PLW0603 - one per process
    _places = threading.BoundedSemaphore(LOOKUPS_MAX)


os.register_at_fork(after_in_child=_begin_anew)
