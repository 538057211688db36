"""Pure: names of files, as bytes in git and as text that loses nothing for people, models and JSON."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable

PATH_BYTES_MAX = 1024
NAME_BYTES_MAX = 255
COMPONENTS_MAX = 64

# Code points that HFS+ and similar file systems ignore when they compare names.
_IGNORED = dict.fromkeys(
    [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF, 0x00AD, 0x034F, 0x180E]
)
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SHORT_GIT = re.compile(r"git~\d+")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|(\\))")


class PathRefused(Exception):
    """A path that no tool opens. The text is for the agent: it says what is wrong with it."""


def name_text(raw: bytes) -> str:
    r"""The text form of a name: itself where it is plain UTF-8, `\xNN` for odd bytes, `\\` for a backslash."""
    text = raw.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_shown(character) for character in text)


def name_bytes(text: str) -> bytes:
    """The inverse of `name_text`. Raises `PathRefused` for text that is no name's text form."""
    out, position = bytearray(), 0
    while position < len(text):
        if text[position] != "\\":
            try:
                out += text[position].encode()
            except UnicodeEncodeError:
                raise PathRefused("the path is not valid text") from None
            position += 1
            continue
        escape = _ESCAPE.match(text, position)
        if escape is None:
            raise PathRefused("a backslash is no path separator here; use /")
        out += b"\\" if escape[2] else bytes([int(escape[1], 16)])
        position = escape.end()
    # One spelling per name: otherwise `\x2e\x2e` would be a second way to write `..`.
    if name_text(bytes(out)) != text:
        raise PathRefused("the path holds control or invisible characters, or escapes that need no escaping")
    return bytes(out)


def path_parts(path: str) -> tuple[bytes, ...]:
    """The components of a relative path beneath the workspace; `()` is the workspace itself."""
    if not path:
        raise PathRefused("the path is empty")
    if path.startswith(("/", "~")):
        raise PathRefused("give a path relative to the workspace, such as src/app.py")
    raw = name_bytes(path)
    if b"\0" in raw:
        raise PathRefused("the path holds a NUL")
    if len(raw) > PATH_BYTES_MAX:
        raise PathRefused(f"the path is longer than {PATH_BYTES_MAX} bytes")
    parts = tuple(part for part in raw.split(b"/") if part not in (b"", b"."))
    if len(parts) > COMPONENTS_MAX:
        raise PathRefused(f"the path has more than {COMPONENTS_MAX} components")
    for part in parts:
        if part == b"..":
            raise PathRefused("'..' is not allowed; give a path from the top of the workspace")
        if len(part) > NAME_BYTES_MAX:
            raise PathRefused(f"a name in the path is longer than {NAME_BYTES_MAX} bytes")
        if is_git_name(part):
            raise PathRefused(".git is not accessible; use git status, git diff and git log")
    return parts


def is_git_name(name: bytes) -> bool:
    """`.git` as any file system may see it: case, trailing dots, NTFS streams and short names, HFS+ code points."""
    text = name.decode("utf-8", "surrogateescape").translate(_IGNORED)
    folded = unicodedata.normalize("NFKC", text).casefold().split(":")[0].rstrip(" .")
    return folded == ".git" or _SHORT_GIT.fullmatch(folded) is not None


def why_not_new(name: bytes) -> str | None:
    """Why a new file or directory may not have this name: it would mean something else elsewhere (fault C23)."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return "a new name must be valid UTF-8"
    if any(unicodedata.category(character) in _INVISIBLE for character in text):
        return "a new name may not hold control or invisible characters"
    if text != unicodedata.normalize("NFC", text):
        return "a new name must be in Unicode normal form C"
    if text != text.rstrip(" .") or ":" in text or "\\" in text:
        return "a new name may not end in a dot or space or hold ':' or a backslash"
    return None


def folded(name: bytes) -> str:
    """What a case-folding, normalising file system compares. Two names with one folded form clash."""
    return unicodedata.normalize("NFC", name.decode("utf-8", "surrogateescape")).casefold()


def clashes(paths: Iterable[bytes]) -> tuple[tuple[bytes, ...], ...]:
    """Groups of paths, or of their directories, that differ only by case or normal form (fault C23)."""
    seen: dict[str, set[bytes]] = {}
    for path in paths:
        parts = path.split(b"/")
        for end in range(1, len(parts) + 1):
            prefix = b"/".join(parts[:end])
            seen.setdefault(folded(prefix), set()).add(prefix)
    groups = [tuple(sorted(group)) for group in seen.values() if len(group) > 1]
    return tuple(sorted(groups))


def _shown(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    # ZWJ and friends are part of real names in some scripts, but nobody sees them: show their bytes.
    if unicodedata.category(character) in _INVISIBLE:
        return "".join(f"\\x{byte:02x}" for byte in character.encode())
    return character


def leaves(link: bytes, target: bytes) -> bool:
    """Whether a link's target lies outside the repository, as written."""
    if target.startswith(b"/"):
        return True
    normal = os.path.normpath(os.path.join(os.path.dirname(link), target))  # noqa: PTH118, PTH120  # bytes
    return normal == b".." or normal.startswith(b"../")
