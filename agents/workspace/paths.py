"""Opens files beneath one directory in a way that no link, race or odd name leads out of."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from agents.workspace.names import PathRefused, folded, is_git_name, name_text, path_parts, why_not_new

FILE_BYTES_MAX = 4 << 20
ENTRIES_MAX = 2_000
RACES_MAX = 64
TEMPORARY_PREFIX = b".remit-"

_OPENAT2 = 437
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of a directory; `name` is its text form."""

    name: str
    kind: str  # file, directory, link, special
    size: int  # bytes, of a file
    target: str = ""  # of a link, as written


@dataclass(frozen=True, slots=True)
class Opened:
    data: bytes
    whole: bool  # False: the file is larger than the limit
    resolved: str  # where it really lies: differs from the asked path behind a link (fault C20)


class Root:
    """All file access of an agent. Reads follow links that stay inside; writes never follow any.

    `owner` is the (uid, gid) that new files are given to, when the worker is root. `walk` forces the
    fallback for kernels without openat2, which follows no link at all. `lock` keeps commands away meanwhile.
    """

    def __init__(
        self,
        directory: Path,
        *,
        owner: tuple[int, int] | None = None,
        walk: bool = False,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.written: set[bytes] = set()  # paths, so that publishing finds them below an ignored directory
        self._lock = lock or nullcontext()
        self._fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._owner = owner
        self._openat2 = not walk and _has_openat2(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def read(self, path: str, *, bytes_max: int = FILE_BYTES_MAX) -> Opened:
        """At most `bytes_max` bytes of a regular file. Raises `PathRefused`."""
        parts = path_parts(path)
        with self._lock, _told(path), self._open(parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise PathRefused(f"{path} is not a regular file")
            data = bytearray()
            while len(data) <= bytes_max:
                piece = os.read(fd, min(1 << 20, bytes_max + 1 - len(data)))
                if not piece:
                    break
                data += piece
            return Opened(bytes(data[:bytes_max]), len(data) <= bytes_max, self._resolved(fd, parts))

    def write(self, path: str, data: bytes, *, bytes_max: int = FILE_BYTES_MAX) -> bool:
        """Writes a whole file; True when it is new. Keeps the executable bit, replaces nothing half.

        Raises `PathRefused`. The new bytes are a new inode: a hard link elsewhere keeps the old ones.
        """
        if len(data) > bytes_max:
            raise PathRefused(f"{path} would be larger than {bytes_max:,} bytes")
        parts = path_parts(path)
        with self._lock, _told(path), self._parent(parts, make=True) as parent:
            mode = self._mode_to_write(parent, parts[-1])
            temporary = TEMPORARY_PREFIX + secrets.token_hex(8).encode()
            try:
                self._fill(parent, temporary, data, mode or 0o644)
                os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
                self.written.add(b"/".join(parts))
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise
            return mode is None

    def delete(self, path: str) -> None:
        """Removes a file or a link (never what it points to). Raises `PathRefused`."""
        parts = path_parts(path)
        with self._lock, _told(path), self._parent(parts, make=False) as parent:
            mode = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                raise PathRefused(f"{path}: only files and links can be deleted")
            os.unlink(parts[-1], dir_fd=parent)

    def entries(self, path: str = ".", *, entries_max: int = ENTRIES_MAX) -> tuple[list[Entry], bool]:
        """A directory, sorted by name, and whether that is all of it. `.git` is never shown."""
        parts = path_parts(path)
        found: list[Entry] = []
        with self._lock, _told(path), self._open(parts, os.O_RDONLY | os.O_DIRECTORY) as fd:
            for name in sorted(_names(fd)):
                if is_git_name(name):
                    continue
                if len(found) == entries_max:
                    return found, False
                with suppress(FileNotFoundError):
                    found.append(_entry(fd, name))
        return found, True

    def is_link(self, path: str) -> bool:
        """Whether the last component is a link; False when it is not there."""
        parts = path_parts(path)
        if not parts:
            return False
        try:
            with self._parent(parts, make=False) as parent:
                return stat.S_ISLNK(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode)
        except OSError:
            return False

    @contextmanager
    def _open(self, parts: tuple[bytes, ...], flags: int) -> Iterator[int]:
        if self._openat2:
            how = _BENEATH | _NO_MAGICLINKS | _NO_XDEV
            fd = _openat2(self._fd, b"/".join(parts) or b".", flags, how)
        else:
            fd = self._walk(parts, flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def _walk(self, parts: tuple[bytes, ...], flags: int) -> int:
        """One component at a time and no link followed, for kernels before 5.6."""
        current = os.dup(self._fd)
        try:
            for part in parts[:-1]:
                following = os.open(part, os.O_PATH | _DIRECTORY, dir_fd=current)
                os.close(current)
                current = following
            last = parts[-1] if parts else b"."
            return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
        finally:
            os.close(current)

    @contextmanager
    def _parent(self, parts: tuple[bytes, ...], *, make: bool) -> Iterator[int]:
        if not parts:
            raise PathRefused("the path names the workspace itself")
        current = os.open(b".", _DIRECTORY, dir_fd=self._fd)
        try:
            for part in parts[:-1]:
                following = self._step(current, part, make=make)
                os.close(current)
                current = following
            yield current
        finally:
            os.close(current)

    def _step(self, current: int, part: bytes, *, make: bool) -> int:
        try:
            return os.open(part, _DIRECTORY, dir_fd=current)
        except FileNotFoundError:
            if not make:
                raise
        _check_new(current, part)
        with suppress(FileExistsError):
            os.mkdir(part, 0o755, dir_fd=current)
        made = os.open(part, _DIRECTORY, dir_fd=current)
        if self._owner is not None:
            os.fchown(made, *self._owner)
        return made

    def _mode_to_write(self, parent: int, name: bytes) -> int | None:
        """The mode for an existing file; None for a new one, whose name was checked."""
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            _check_new(parent, name)
            return None
        if stat.S_ISLNK(mode):
            raise PathRefused(f"{name_text(name)} is a link; writing does not follow links. Delete it first")
        if not stat.S_ISREG(mode):
            raise PathRefused(f"{name_text(name)} is not a regular file")
        return 0o755 if mode & 0o100 else 0o644  # set-id and group-write bits go

    def _fill(self, parent: int, name: bytes, data: bytes, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            os.fchmod(fd, mode)
            if self._owner is not None:
                os.fchown(fd, *self._owner)
        finally:
            os.close(fd)

    def _resolved(self, fd: int, parts: tuple[bytes, ...]) -> str:
        top = os.readlink(f"/proc/self/fd/{self._fd}".encode())  # noqa: PTH115  # bytes
        real = os.readlink(f"/proc/self/fd/{fd}".encode())  # noqa: PTH115
        return name_text(real.removeprefix(top + b"/") if real.startswith(top + b"/") else b"/".join(parts))


def _check_new(parent: int, name: bytes) -> None:
    why = why_not_new(name)
    if why is not None:
        raise PathRefused(f"{name_text(name)}: {why}")
    wanted = folded(name)
    for other in _names(parent):
        if other != name and folded(other) == wanted:
            raise PathRefused(
                f"{name_text(name)} differs only by case or Unicode form from {name_text(other)}"
            )


def _names(directory: int) -> list[bytes]:
    with os.scandir(directory) as entries:
        return [os.fsencode(entry.name) for entry in entries]


def _entry(directory: int, name: bytes) -> Entry:
    facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(facts.st_mode):
        return Entry(name_text(name), "link", 0, name_text(os.readlink(name, dir_fd=directory)))
    if stat.S_ISDIR(facts.st_mode):
        return Entry(name_text(name), "directory", 0)
    regular = stat.S_ISREG(facts.st_mode)
    return Entry(name_text(name), "file" if regular else "special", facts.st_size if regular else 0)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """The kernel's refusals in words for the agent."""
    words = {
        errno.ENOENT: "there is no such file",
        errno.ENOTDIR: "it goes through something that is not a directory",
        errno.EISDIR: "it is a directory",
        errno.ELOOP: "it goes through a link",
        errno.EXDEV: "it leads out of the workspace",
        errno.ENXIO: "it is not a regular file",
        errno.EACCES: "it may not be opened",
        errno.EPERM: "it may not be opened",
        errno.ENAMETOOLONG: "its name is too long",
        errno.EAGAIN: "it kept changing while it was opened",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk is full",
    }
    try:
        yield
    except OSError as error:
        if error.errno not in words:
            raise
        raise PathRefused(f"{path}: {words[error.errno]}") from error


def _has_openat2(fd: int) -> bool:
    try:
        os.close(_openat2(fd, b".", os.O_PATH, _BENEATH))
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        return False
    return True


def _openat2(directory: int, path: bytes, flags: int, resolve: int) -> int:
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)
    code = errno.EAGAIN
    for _ in range(RACES_MAX):
        fd = int(
            _libc.syscall(
                ctypes.c_long(_OPENAT2), ctypes.c_int(directory), path, how, ctypes.c_size_t(len(how))
            )
        )
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename raced with the lookup
            break
    raise OSError(code, os.strerror(code), os.fsdecode(path))
