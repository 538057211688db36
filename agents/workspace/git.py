"""The store: one bare repository per project. Deterministic merges, compare-and-swap, nothing leaks in."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from django.conf import settings

from agents.errors import GitError, LostRef, MergeConflict
from agents.workspace.git_command import GitAnswer, git_environment, run_git
from agents.workspace.importing import Imported, import_into
from agents.workspace.merging import ABSENT, Difference, History, read_differences, read_merge
from agents.workspace.names import name_bytes, name_text

MAIN = "refs/heads/main"
AUTHOR_NAME = "Remit"
AUTHOR_EMAIL = "remit@localhost"
# Loose objects that no ref names yet belong to work in progress; a run lasts minutes, not days.
PRUNE_AFTER_DAYS = 14
MAINTENANCE_SECONDS_MAX = 3_600
STACK_VERSION = "stack-1"  # part of a stack's key: a change of the merge rules must change it

# Above every .gitattributes of a repository: a file on disk has the bytes of its blob, and back. Converting
# would change lines that nobody edited, and put files into a ChangeSet that its agent never touched.
ATTRIBUTES = "* -text -ident -filter !working-tree-encoding\n"

_COMMIT_ID = re.compile(r"[0-9a-f]{40}")
_REF_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,80}")
_LOST = ("but expected", "reference already exists", "unable to resolve reference")


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One entry of a tree. `path` is the text form of its name (`names.name_text`)."""

    path: str
    mode: str  # 100644, 100755, 120000 (a link), 160000 (a submodule)
    blob: str
    size: int  # bytes; 0 for a submodule


def store_for(project_id: UUID) -> Store:
    """The repository of a project, whether it is there yet or not."""
    return Store(settings.PLANE.data_dir / "git" / f"{project_id}.git")


class Store:
    """A bare repository. Paths in arguments and results are text forms; commits are full ids."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    # -- making and reading

    def exists(self) -> bool:
        return (self.directory / "HEAD").is_file()

    def init(self) -> Store:
        """Makes the repository if it is not there. Safe to repeat."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.exists():
            self.git("init", "--quiet", "--bare", "--initial-branch=main", "--template=")
        self._pin_attributes()
        return self

    def import_from(self, source: str | Path) -> Imported:
        """Fills an empty store from a path, a bundle or a URL. Raises `InvalidInput`."""
        return import_into(self, source)

    def rev(self, name: str) -> str:
        """The full id of a commit. Raises `GitError` when there is none of that name."""
        found = self.find(name)
        if found is None:
            raise GitError(f"no commit {name!r} in this repository")
        return found

    def find(self, name: str) -> str | None:
        answer = self.git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", codes=(0, 1, 128)
        )
        return answer.out.decode().strip() if answer.code == 0 else None

    def commit_of_main(self) -> str | None:
        """None for a repository without commits."""
        return self.find(MAIN)

    def commit_time(self, commit: str) -> int:
        """Seconds since the epoch, as the committer wrote it."""
        return self._times([commit])[0]

    def tree_of(self, commit: str) -> str:
        return (
            self.git("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}").out.decode().strip()
        )

    def tree_files(self, commit: str) -> list[TreeFile]:
        """Every file of a commit, in git's order."""
        return self._entries("-r", commit)

    def top_files(self, commit: str) -> list[TreeFile]:
        """What lies at the top of a commit; directories have mode 040000."""
        return self._entries(commit)

    def _entries(self, *arguments: str) -> list[TreeFile]:
        files = []
        for entry in self.git("ls-tree", "-l", "-z", "--full-tree", *arguments).out.split(b"\0"):
            if entry:
                head, name = entry.split(b"\t", 1)
                mode, _, blob, size = head.decode().split()
                files.append(TreeFile(name_text(name), mode, blob, int(size) if size.isdigit() else 0))
        return files

    def read(self, commit: str, path: str) -> bytes | None:
        """The bytes of a file at a commit; None when there is no such file (or it is a directory)."""
        names = self.blobs([(commit, path)])
        return names[0]

    def blobs(self, wanted: Sequence[tuple[str, str]]) -> list[bytes | None]:
        """Many files in one process: `(commit, path)` each."""
        lines = []
        for commit, path in wanted:
            raw = name_bytes(path)
            if b"\n" in raw:  # cat-file reads lines; such a name goes by its blob
                lines.append(self._blob_of(commit, raw).encode())
            else:
                lines.append(commit.encode() + b":" + raw)
        return self._batch(lines)

    def objects(self, blobs: Sequence[str]) -> list[bytes | None]:
        """The bytes of blobs by their ids, in one process."""
        return self._batch([blob.encode() for blob in blobs]) if blobs else []

    def is_ancestor(self, older: str, newer: str) -> bool:
        return self.git("merge-base", "--is-ancestor", older, newer, codes=(0, 1)).code == 0

    def differences(self, before: str, after: str) -> list[Difference]:
        """What differs between two commits or trees, without guessing renames."""
        answer = self.git(
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-renames",
            "--full-index",
            "--end-of-options",
            before,
            after,
        )
        return list(read_differences(answer.out))

    def changed_files(self, before: str, after: str) -> tuple[str, ...]:
        """The text forms of the paths that differ, sorted by bytes (row 216)."""
        return tuple(name_text(each.path) for each in self.differences(before, after))

    def patch(self, before: str, after: str) -> bytes:
        """A patch that `git apply` turns into exactly the same tree (row 217)."""
        return self.git(
            "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv",
            "--no-color", "-M", "--src-prefix=a/", "--dst-prefix=b/", "--end-of-options", before, after,
        ).out  # fmt: skip

    # -- merging

    def stack(self, base: str, commits: Sequence[str], at: int) -> str:
        """`base` with `commits` merged in, in order (rows 213, 214, 218).

        The same input gives the same commit id on any machine; kept under refs/stacks. Raises
        `MergeConflict` with `at` = the commit that did not merge; nothing is changed then.
        """
        if not commits:
            return base
        names = [STACK_VERSION, base, *commits, str(at)]
        ref = "refs/stacks/" + hashlib.sha256("\n".join(names).encode()).hexdigest()[:40]
        known = self.find(ref)
        if known is not None:
            return known
        history = self._history(base, commits)
        current = base
        for commit in commits:
            if history.holds(current, commit):
                continue
            if history.holds(commit, current):
                current = commit
                continue
            # A date older than its parents makes git walk all history to find a merge base.
            date = max(at, history.time(current) + 1, history.time(commit) + 1)
            merged = self._merged(current, commit, message=f"Stack {commit}\n", at=date)
            history.add(merged, date, (current, commit))
            current = merged
        with contextlib.suppress(LostRef):  # another worker kept the same commit first
            self.move((ref, current, None))
        return current

    def merge(self, ours: str, theirs: str, *, message: str, at: int) -> str:
        """One merge without a working tree. Shared history is taken as it is (row 218)."""
        base = self.git("merge-base", ours, theirs, codes=(0, 1)).out.decode().split("\n")[0]
        if base in (ours, theirs):  # one is an ancestor of the other
            return theirs if base == ours else ours
        return self._merged(ours, theirs, message=message, at=at)

    def commit(self, tree: str, parents: Sequence[str], *, message: str, at: int) -> str:
        """A commit whose id depends on its arguments alone."""
        who = {}
        for role in ("AUTHOR", "COMMITTER"):
            who[f"GIT_{role}_NAME"] = AUTHOR_NAME
            who[f"GIT_{role}_EMAIL"] = AUTHOR_EMAIL
            who[f"GIT_{role}_DATE"] = f"{at} +0000"
        arguments = [part for parent in parents for part in ("-p", parent)]
        text = message.replace("\0", "").encode("utf-8", "replace")
        return self.git("commit-tree", *arguments, "-F", "-", tree, stdin=text, more=who).out.decode().strip()

    # -- refs

    def promote(self, new: str, old: str | None, promotion_id: object) -> None:
        """Moves main from `old` (None: no commit yet) to `new`, or raises `LostRef`.

        Repeating a promotion that already happened changes nothing: a crash between git and the
        database is mended by asking again.
        """
        ref = f"refs/promotions/{_ref_part(promotion_id)}"
        try:
            self.move((MAIN, new, old), (ref, new, None))
        except LostRef:
            if self.find(ref) != new:
                raise

    def keep_ref(self, kind: str, name: object, commit: str) -> None:
        """Names a commit so that maintenance never drops it: refs/<kind>/<name>. Safe to repeat."""
        ref = f"refs/{_ref_part(kind)}/{_ref_part(name)}"
        try:
            self.move((ref, commit, None))
        except LostRef:
            if self.find(ref) != commit:
                raise

    def names(self, kind: str) -> tuple[str, ...]:
        """Of everything that is kept as refs/<kind>/<name>."""
        place = f"refs/{_ref_part(kind)}/"
        out = self.git("for-each-ref", "--format=%(refname)", place).out
        return tuple(name_text(line).removeprefix(place) for line in out.splitlines())

    def drop_ref(self, kind: str, name: object) -> None:
        """Forgets a name; nothing happens when it is not there."""
        ref = f"refs/{_ref_part(kind)}/{_ref_part(name)}"
        with self._alone() as lock:
            self._write_refs(f"delete {ref}\n", lock)

    def move(self, *updates: tuple[str, str, str | None]) -> None:
        """`(ref, new, old)` each, all or none; raises `LostRef` when an old value is another (C71)."""
        for ref, new, _ in updates:
            assert _COMMIT_ID.fullmatch(new), f"{ref}: {new!r} is no full id"
        script = "".join(f"update {ref} {new} {old or ABSENT}\n" for ref, new, old in updates)
        with self._alone() as lock:
            self._write_refs(script, lock)

    def maintain(self) -> None:
        """Nightly: packs, prunes what no ref has named for weeks, writes the commit graph."""
        with self._alone() as lock:
            self._drop_stale_locks()
            for arguments in (
                ("gc", "--quiet", f"--prune={PRUNE_AFTER_DAYS}.days.ago"),
                ("commit-graph", "write", "--reachable"),
            ):
                self.git(*arguments, keep_open=(lock,), seconds_max=MAINTENANCE_SECONDS_MAX)

    def _pin_attributes(self) -> None:
        place = self.directory / "info" / "attributes"
        if not place.is_file() or place.read_text() != ATTRIBUTES:
            place.parent.mkdir(exist_ok=True)
            spare = place.with_name(f"attributes-{os.getpid()}-{threading.get_ident()}")
            spare.write_text(ATTRIBUTES)
            spare.replace(place)

    # -- one process

    def git(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        codes: Sequence[int] = (0,),
        config: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
        directory: str = "/",
        keep_open: Sequence[int] = (),
        seconds_max: float = 300,
    ) -> GitAnswer:
        """One git command on this repository. `more` adds environment, `config` adds pinned settings."""
        return run_git(
            arguments,
            environment=git_environment(self.directory, config=config, more=more),
            stdin=stdin,
            codes=codes,
            directory=directory,
            keep_open=keep_open,
            seconds_max=seconds_max,
        )

    def _history(self, base: str, commits: Sequence[str]) -> History:
        wanted = [base, *commits]
        wrong = [commit for commit in wanted if not _COMMIT_ID.fullmatch(commit)]
        if wrong:
            raise GitError(f"not a full commit id: {wrong[0]!r}")
        shape = ("--no-commit-header", "--format=%H %ct %P")
        return History(self.git("rev-list", *shape, *wanted, "--not", f"{base}^@").out)

    def _merged(self, ours: str, theirs: str, *, message: str, at: int) -> str:
        # Bare and away from any directory, so that no .gitattributes of a working tree takes part.
        answer = self.git(
            "merge-tree", "--write-tree", "--messages", "-z", ours, theirs,
            codes=(0, 1), config={"core.bare": "true"},
        )  # fmt: skip
        tree, conflict = read_merge(answer.out)
        if answer.code == 1:
            paths = tuple(name_text(path) for path in conflict.paths)
            raise MergeConflict(paths, conflict.messages, theirs)
        return self.commit(tree, (ours, theirs), message=message, at=at)

    def _times(self, commits: Sequence[str]) -> list[int]:
        out = self.git(
            "rev-list", "--no-walk=unsorted", "--no-commit-header", "--format=%H %ct", *commits
        ).out
        known = {}
        for line in out.decode().splitlines():
            commit, time = line.split()
            known[commit] = int(time)
        missing = [commit for commit in commits if commit not in known]
        if missing:
            raise GitError(f"not a full commit id: {missing[0]!r}")
        return [known[commit] for commit in commits]

    def _batch(self, lines: Sequence[bytes]) -> list[bytes | None]:
        """What `cat-file --batch` answers to these names; None for what is not there or no file."""
        out = self.git("cat-file", "--batch", stdin=b"\n".join(lines) + b"\n").out
        found: list[bytes | None] = []
        position = 0
        while len(found) < len(lines):
            end = out.index(b"\n", position)
            head = out[position:end].rsplit(b" ", 2)
            position = end + 1
            if len(head) != 3 or not head[2].isdigit():  # "<name> missing"
                found.append(None)
                continue
            size = int(head[2])
            found.append(out[position : position + size] if head[1] == b"blob" else None)
            position += size + 1
        return found

    def _blob_of(self, commit: str, path: bytes) -> str:
        out = self.git("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", path).out
        return out.split(b"\t")[0].decode().split()[2] if out else ABSENT

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        """The one writer of this project's refs. The kernel frees the lock when its holder is killed.

        The descriptor is handed to git too: a child that outlives a killed worker still holds the lock.
        """
        lock = os.open(f"{self.directory}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _write_refs(self, script: str, lock: int) -> None:
        for last in (False, True):
            try:
                text = f"start\n{script}prepare\ncommit\n".encode()
                self.git("update-ref", "--stdin", stdin=text, keep_open=(lock,))
            except GitError as error:
                if any(words in str(error) for words in _LOST):
                    raise LostRef(str(error)) from error
                if last or "File exists" not in str(error):
                    raise
                # We are alone, so a lock that git meets was left by a killed process.
                self._drop_stale_locks()
            else:
                return

    def _drop_stale_locks(self) -> None:
        """git's own locks survive a kill. Only called by the one holder of the flock."""
        for top, directories, names in os.walk(self.directory):
            if top == str(self.directory / "objects"):  # not the thousands of loose ones
                directories[:] = [name for name in directories if name in ("info", "pack")]
            for name in names:
                if name.endswith(".lock") or name in ("packed-refs.new", "gc.pid"):
                    (Path(top) / name).unlink(missing_ok=True)


def _ref_part(name: object) -> str:
    """A plain word: run ids and the like, never a person's text (fault C78)."""
    text = str(name)
    assert _REF_PART.fullmatch(text), f"{text!r} cannot name a ref"
    return text
