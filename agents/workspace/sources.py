"""Where a repository may come from: a place on this machine, or an address by https or ssh. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from tenants.errors import InvalidInput

ADDRESS_CHARACTERS_MAX = 2_000
WAYS = "give a folder, a .bundle file, https://… or ssh://…"

_SCP_LIKE = re.compile(r"(?:(?P<user>[^@/:\s]+)@)?(?P<host>[\w.-]+):(?P<path>(?!/)\S+)")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_IN_THE_CLEAR = ("http", "git", "ftp")
_PORTS = {"https": 443, "ssh": 22}


class Way(StrEnum):
    LOCAL = "local"
    HTTPS = "https"
    SSH = "ssh"


@dataclass(frozen=True, slots=True)
class Source:
    """One source. `address` is what git is given; it never carries a password. A local one is a path as written."""

    way: Way
    address: str
    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_remote(self) -> bool:
        return self.way is not Way.LOCAL


def read_source(text: str, field: str) -> Source:
    """Only these ways in: never `ext::` or another helper, never an option, nothing in the clear (fault C33).

    Raises `InvalidInput` naming `field`. Whether a local path is there, only the disk knows.
    """
    if not text.strip() or text.startswith("-") or any(ord(character) < 32 for character in text):
        raise _wrong(field, "not a path, a bundle or an https or ssh address", WAYS)
    if len(text) > ADDRESS_CHARACTERS_MAX and "://" in text:
        raise _wrong(field, f"longer than {ADDRESS_CHARACTERS_MAX:,} characters", WAYS)
    if "::" in text.split("/", maxsplit=1)[0]:
        raise _wrong(field, "a transport helper would run a program", WAYS)
    if "://" in text:
        return _of_url(text, field)
    scp = _SCP_LIKE.fullmatch(text)
    if scp is None:
        return Source(Way.LOCAL, text)
    host, user, path = scp["host"], scp["user"] or "", scp["path"]
    if not _NAME.fullmatch(host) or (user and not _USER.fullmatch(user)) or path.startswith("-"):
        raise _wrong(field, "this is no address by ssh", "write such as git@example.org:team/app.git")
    return Source(Way.SSH, text, host, _PORTS["ssh"], path)


def _of_url(text: str, field: str) -> Source:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _wrong(field, "this is not an address", WAYS) from None
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise _wrong(field, "a file: address names no other machine", WAYS)
        return Source(Way.LOCAL, parts.path or "/nothing")
    if parts.scheme in _IN_THE_CLEAR:
        raise _wrong(
            field, f"{parts.scheme}:// goes in the clear, and anybody on the way can change it",
            "use https://… or ssh://…", code="insecure_address",
        )  # fmt: skip
    if parts.scheme not in _PORTS or not parts.hostname:
        raise _wrong(field, "not a path, a bundle or an https or ssh address", WAYS)
    if not _is_host(parts.hostname):
        raise _wrong(
            field, "the host's name cannot be used", "write such as https://example.org/team/app.git"
        )
    if parts.scheme == "https" and "@" in parts.netloc:
        raise _wrong(
            field,
            "an address carries no name and no password: everybody on this machine can see it",
            "leave out what stands before the @; give --username and --password-file, or set "
            "REMIT_GIT_CREDENTIALS",
            code="credentials_in_address",
        )
    if parts.scheme == "ssh" and (parts.password is not None or not _USER.fullmatch(parts.username or "git")):
        raise _wrong(
            field,
            "only a user's name stands before the @ of an ssh address",
            "keys come from REMIT_GIT_SSH_KEY",
        )
    if "?" in text or "#" in text:
        raise _wrong(field, "an address ends with its path: no ? and no #", WAYS)
    if parts.path in ("", "/"):
        raise _wrong(field, "the path of the repository is missing", WAYS)
    return Source(Way(parts.scheme), text, parts.hostname, port or _PORTS[parts.scheme], parts.path)


def _is_host(name: str) -> bool:
    if ":" in name:
        try:
            return bool(ipaddress.IPv6Address(name))
        except ValueError:
            return False
    return bool(_NAME.fullmatch(name)) and len(name) <= 253


def _wrong(field: str, problem: str, remedy: str, *, code: str = "bad_source") -> InvalidInput:
    return InvalidInput(field, problem, remedy, code=code)
