"""File access beneath one directory: no link, race or spelling leads out of it, in both ways of opening."""

# ruff: noqa: E501  # tables of cases

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.workspace.names import PathRefused, clashes, is_git_name, name_bytes, name_text, path_parts
from agents.workspace.paths import Root

SECRET = b"the-secret"


@pytest.fixture(params=["openat2", "walk"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Root]:
    top = tmp_path / "ws"
    (top / "a").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(SECRET)
    (top / "a" / "f.txt").write_bytes(b"hello")
    (top / "A-dir").mkdir()
    (top / "out").symlink_to(tmp_path)
    (top / "outf").symlink_to(tmp_path / "secret")
    (top / "up").symlink_to("../secret")
    (top / "inl").symlink_to("a/f.txt")
    (top / "ind").symlink_to("a")
    (top / "proc").symlink_to("/proc/self/root")
    (top / "loop").symlink_to("loop")
    (top / "dangling").symlink_to("nowhere")
    os.mkfifo(top / "fifo")
    os.link(top / "a" / "f.txt", top / "hard")
    there = socket.socket(socket.AF_UNIX)
    directory = os.open(top, os.O_DIRECTORY)
    there.bind(f"/proc/self/fd/{directory}/sock")
    os.close(directory)
    found = Root(top, walk=request.param == "walk")
    yield found
    found.close()
    there.close()


SPELLINGS = [".git", ".GIT", ".Git", ".git.", ".git ", ".git...", ".git::$INDEX_ALLOCATION", ".git:x", "git~1", "GIT~1", "git~12",
             ".g\\xe2\\x80\\x8cit", ".gi\\xe2\\x80\\x8bt", "\uff0egit", ".ｇit", ".git\\xc2\\xad", ".\\xef\\xbb\\xbfgit"]  # fmt: skip
OUTSIDE = [
    "../secret", "a/../../secret", "/etc/passwd", "out/secret", "outf", "up", "proc/etc/passwd", "proc/self/environ", "loop",
    "fifo", "sock", "dangling", "a\0b", "~root/x", "~", "a\\..\\x", "C:\\x", "x" * 300, "/".join(["d"] * 70), "d/" * 600, "",
    "a\nb", "a\tb", "\ud800", "\u202egpj.x", "a/f.txt/x", "\\x2e\\x2e/secret", "\\x2fetc/passwd", "..", "a/..", "./../secret",
    "out/../../secret", "ind/../../secret", "//etc/passwd",
]  # fmt: skip
GIT = [f"{name}/config" for name in SPELLINGS] + [f"a/{name}/hooks/x" for name in SPELLINGS[:5]]


@pytest.mark.parametrize("path", [*OUTSIDE, *GIT])
def test_what_lies_outside_is_not_read(root: Root, path: str) -> None:
    """C20, and `.git` in every spelling."""
    with pytest.raises(PathRefused):
        root.read(path)


WRITES = ["ind/new", "out/new", "inl", "outf", "up", "dangling", "hard/x", "A/f.txt", "e\u0301.txt", "a/F.TXT", "con:ads", "name.", "name ",
          "a\\\\b", "w\\xe2\\x80\\x8dj", "caf\\xe9", "a-dir/x", ".", "a"]  # fmt: skip


@pytest.mark.parametrize("path", [*OUTSIDE, *GIT, *WRITES])
def test_what_lies_outside_or_would_clash_is_not_written(root: Root, tmp_path: Path, path: str) -> None:
    """C20, C22, C23: writes follow no link, and make no name that another system would confuse."""
    before = sorted(str(each) for each in tmp_path.rglob("*"))
    with pytest.raises(PathRefused):
        root.write(path, b"owned")
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert (tmp_path / "ws" / "a" / "f.txt").read_bytes() == b"hello"
    assert sorted(str(each) for each in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "path", [*[path for path in OUTSIDE if path not in ("outf", "up", "loop", "dangling")], *GIT, "a", "."]
)
def test_what_lies_outside_is_not_deleted(root: Root, tmp_path: Path, path: str) -> None:
    with pytest.raises(PathRefused):
        root.delete(path)
    assert (tmp_path / "secret").exists()


def test_ordinary_use(root: Root, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    assert root.read("./a//f.txt").data == b"hello"
    assert root.write("n/e/w.py", b"1")
    assert not root.write("n/e/w.py", b"2")
    assert (ws / "n/e/w.py").read_bytes() == b"2"
    root.delete("n/e/w.py")
    assert not (ws / "n/e/w.py").exists()
    assert [each.name for each in ws.iterdir() if each.name.startswith(".remit")] == []


def test_a_write_breaks_a_hard_link_and_drops_set_id(root: Root, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    root.write("hard", b"changed")
    assert (ws / "a" / "f.txt").read_bytes() == b"hello"
    (ws / "a" / "f.txt").chmod(0o4755)
    root.write("a/f.txt", b"#!")
    assert (ws / "a" / "f.txt").stat().st_mode & 0o7777 == 0o755


def test_deleting_a_link_leaves_what_it_points_to(root: Root, tmp_path: Path) -> None:
    root.delete("outf")
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert not os.path.lexists(tmp_path / "ws" / "outf")


def test_a_link_that_stays_inside_is_readable(tmp_path: Path) -> None:
    """C22: a harmless tracked link is no reason to refuse; the answer names both paths (C20)."""
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "l").symlink_to("../f")
    root = Root(tmp_path)
    if not root._openat2:
        pytest.skip("this kernel has no openat2")
    opened = root.read("d/l")
    assert (opened.data, opened.resolved) == (b"1", "f")
    root.close()


def test_a_listing_names_kinds_and_hides_git(root: Root, tmp_path: Path) -> None:
    (tmp_path / "ws" / ".git").mkdir()
    (tmp_path / "ws" / os.fsdecode(b"caf\xe9")).write_bytes(b"12")
    entries, whole = root.entries()
    kinds = {entry.name: entry.kind for entry in entries}
    assert whole
    assert ".git" not in kinds
    assert kinds["fifo"] == "special"
    assert kinds["inl"] == "link"
    assert kinds["a"] == "directory"
    assert {entry.name: entry.size for entry in entries}["caf\\xe9"] == 2
    some, all_of_it = root.entries(entries_max=3)
    assert len(some) == 3
    assert not all_of_it


def test_a_large_file_is_read_in_part_and_not_written(root: Root) -> None:
    root.write("big", b"x" * 1_000)
    opened = root.read("big", bytes_max=100)
    assert (len(opened.data), opened.whole) == (100, False)
    with pytest.raises(PathRefused):
        root.write("big", b"x" * 101, bytes_max=100)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of renameat2 on x86-64")
def test_swapping_a_directory_for_a_link_leaks_nothing(root: Root, tmp_path: Path) -> None:
    """A process exchanges a directory and a link that leads out, as fast as it can."""
    ws, evil = tmp_path / "ws", tmp_path / "evil"
    evil.mkdir()
    (evil / "f.txt").write_bytes(SECRET)
    (ws / "d").mkdir()
    (ws / "d" / "f.txt").write_bytes(b"good")
    (ws / "l").symlink_to(evil)
    swapper = multiprocessing.get_context("fork").Process(
        target=_swap, args=(ws / "d", ws / "l"), daemon=True
    )
    swapper.start()
    good = refused = 0
    until = time.monotonic() + 0.7
    try:
        while time.monotonic() < until:
            try:
                assert root.read("d/f.txt").data == b"good"
                good += 1
            except PathRefused:
                refused += 1
            for attempt in (lambda: root.write("d/w.txt", b"x"), lambda: root.delete("d/w.txt")):
                try:
                    attempt()
                except PathRefused:
                    refused += 1
    finally:
        swapper.terminate()
        swapper.join()
    assert good
    assert refused
    assert sorted(each.name for each in evil.iterdir()) == ["f.txt"]


def _swap(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None)
    while True:
        libc.syscall(316, -100, os.fsencode(one), -100, os.fsencode(other), 2)  # renameat2, RENAME_EXCHANGE


@given(st.binary(min_size=1, max_size=30).filter(lambda raw: b"\0" not in raw))
def test_a_names_text_is_json_safe_and_loses_nothing(raw: bytes) -> None:
    """C69."""
    text = name_text(raw)
    assert name_bytes(text) == raw
    assert text.isprintable() or " " in text or not text.isascii()
    text.encode("utf-8")


@pytest.mark.parametrize(
    "name", ["git", ".gitignore", ".github", ".gitattributes", "git~", "a.git", ".gitx", "dot.git", "git~x"]
)
def test_what_is_not_git_is_free(name: str) -> None:
    assert not is_git_name(name.encode())
    assert path_parts(f"{name}/x")


def test_names_that_differ_only_by_case_or_form_are_found() -> None:
    """C23."""
    found = clashes([b"AGENTS.md", b"agents.md", b"a/x", b"A/y", "é".encode(), "e\u0301".encode(), b"fine"])
    assert [tuple(name_text(each) for each in group) for group in found] == [
        ("A", "a"), ("AGENTS.md", "agents.md"), ("e\u0301", "é"),
    ]  # fmt: skip
