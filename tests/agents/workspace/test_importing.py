"""Bringing a repository in: any of four ways, an empty one refused, and what agents will meet named before."""

# ruff: noqa: E501  # tables of cases

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agents.workspace.git import Store
from tenants.errors import InvalidInput

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 5\n"


def git(place: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@x", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@x",
    }  # fmt: skip
    done = subprocess.run(
        ["git", *arguments], cwd=place, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "source"
    place.mkdir()
    git(place, "init", "-q", "-b", "trunk")
    (place / "a.txt").write_text("1\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "one")
    git(place, "branch", "other")
    (place / "b.txt").write_text("2\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "two")
    return place


@pytest.fixture
def empty_store(data_dir: Path) -> Store:
    return Store(data_dir / "git" / "imported.git")


@pytest.mark.parametrize(
    "way", ["path", "file url", "bare", "bundle", "bundle of one branch", "detached", "shallow"]
)
def test_the_default_branch_becomes_main(source: Path, empty_store: Store, tmp_path: Path, way: str) -> None:
    head = git(source, "rev-parse", "HEAD")
    place: str = str(source)
    if way == "file url":
        place = source.as_uri()
    elif way == "bare":
        git(tmp_path, "clone", "-q", "--bare", str(source), "bare.git")
        place = str(tmp_path / "bare.git")
    elif way.startswith("bundle"):
        git(
            source,
            "bundle",
            "create",
            "-q",
            str(tmp_path / "x.bundle"),
            *(["trunk"] if "one" in way else ["--all", "HEAD"]),
        )
        place = str(tmp_path / "x.bundle")
    elif way == "detached":
        git(source, "checkout", "-q", "--detach")
    elif way == "shallow":
        git(tmp_path, "clone", "-q", "--depth=1", source.as_uri(), "shallow")
        place = str(tmp_path / "shallow")
    done = empty_store.import_from(place)
    assert done.commit == head == empty_store.commit_of_main()
    assert done.files == 2
    assert done.branch == "trunk"
    assert [warning.kind for warning in done.warnings] == (["shallow"] if way == "shallow" else [])


@pytest.mark.parametrize("kind", ["no commits", "bare without commits"])
def test_a_repository_without_commits_is_refused(tmp_path: Path, empty_store: Store, kind: str) -> None:
    """C68."""
    git(tmp_path, "init", "-q", *(["--bare"] if "bare" in kind else []), "unborn")
    with pytest.raises(InvalidInput) as refused:
        empty_store.import_from(tmp_path / "unborn")
    assert refused.value.code == "empty_repository"
    assert empty_store.commit_of_main() is None


SOURCES = ["", "   ", "-x", "--upload-pack=touch x", "ext::sh -c id", "fd::17", "http://example.org/x", "git://example.org/x", "ftp://x/y",
           "https://", "ssh://-oProxyCommand=id/x", "/nowhere/at/all", "relative/nowhere", "file:///nowhere", "a\nb", "testgit::/x",
           "https:///path", "https://[::1", "file://[", "~nobody-is-called-this/x", "/" + "long" * 2000]  # fmt: skip


@pytest.mark.parametrize("bad", SOURCES)
def test_what_is_no_source_is_refused_before_git_runs(empty_store: Store, bad: str) -> None:
    """C33: no transport helper, no option, nothing unencrypted."""
    with pytest.raises(InvalidInput) as refused:
        empty_store.import_from(bad)
    assert refused.value.field == "from"
    assert refused.value.remedy


def test_a_folder_that_is_no_repository_says_so(tmp_path: Path, empty_store: Store) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(InvalidInput) as refused:
        empty_store.import_from(tmp_path / "plain")
    assert refused.value.code == "unreadable_source"


def test_a_failed_fetch_tells_no_password(empty_store: Store) -> None:
    with pytest.raises(InvalidInput) as refused:
        empty_store.import_from("https://user:hunter2@127.0.0.1:1/x.git")
    assert "hunter2" not in str(refused.value)


def test_a_project_is_imported_once(source: Path, empty_store: Store) -> None:
    empty_store.import_from(source)
    with pytest.raises(InvalidInput) as refused:
        empty_store.import_from(source)
    assert refused.value.code == "already_imported"


def test_what_agents_will_meet_is_named(source: Path, empty_store: Store) -> None:
    """C23, C75, C76."""
    (source / "AGENTS.md").write_text("1")
    (source / "agents.md").write_text("2")
    (source / "big.bin").write_bytes(POINTER)
    (source / "out").symlink_to("/etc/passwd")
    git(source, "add", ".")
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    git(source, "commit", "-qm", "odd")
    warnings = {warning.kind: warning.paths for warning in empty_store.import_from(source).warnings}
    assert warnings == {
        "clashing_names": ("AGENTS.md", "agents.md"),
        "lfs": ("big.bin",),
        "outside_links": ("out",),
        "submodules": ("vendor/lib",),
    }


def test_hooks_and_configuration_of_the_source_run_nothing(
    source: Path, empty_store: Store, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    with (source / ".git" / "config").open("a") as config:
        config.write(
            f'[core]\n fsmonitor = "touch {mark}"\n sshCommand = touch {mark}\n[uploadpack]\n packObjectsHook = touch {mark}\n'
        )
    for hook in ("post-checkout", "reference-transaction", "post-upload-pack", "pre-receive"):
        (source / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (source / ".git" / "hooks" / hook).chmod(0o755)
    empty_store.import_from(source)
    assert not mark.exists()
    assert (
        not list((empty_store.directory / "hooks").glob("*"))
        if (empty_store.directory / "hooks").exists()
        else True
    )
