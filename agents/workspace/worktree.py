"""A tree of files on disk without a `.git` in it: taken from a commit, turned into one, put back."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from agents.errors import GitError
from agents.workspace.git import Store
from agents.workspace.merging import ABSENT
from agents.workspace.names import is_git_name
from agents.workspace.publishing import Change

REMOVE_SECONDS_MAX = 300
BLOBS_AT_ONCE_MAX = 200  # held in memory while a ChangeSet is looked at
# What tools leave beside the code, ignored besides the repository's own rules. What an agent wrote itself
# is added all the same.
LEFT_BY_TOOLS = """
__pycache__/
*.py[co]
.pytest_cache/
.mypy_cache/
.ruff_cache/
.hypothesis/
.coverage
.coverage.*
htmlcov/
.tox/
.nox/
.venv/
node_modules/
.nyc_output/
.DS_Store
"""
SUBMODULE_MODE = "160000"


class WorkTree:
    """Files beneath `top`/tree with an index of their own beside them, `top`/gitdir/index.

    Host git names its directory, tree and index each time, so nothing in the tree is ever taken for
    configuration. Never used while a command of the same workspace runs.
    """

    def __init__(self, store: Store, top: Path, *, owner: tuple[int, int] | None) -> None:
        self.store = store
        self.top = top
        self.tree = top / "tree"
        self.gitdir = top / "gitdir"
        self.index = self.gitdir / "index"
        self.ignored = top / "ignored"
        self._owner = owner

    def fill(self, commit: str) -> None:
        """Checks a commit out into the empty tree."""
        self.store.init()  # also pins the attributes of stores that were made before these were
        self.tree.mkdir(parents=True)
        self.gitdir.mkdir()
        self.tree.chmod(0o755)
        self.ignored.write_text(LEFT_BY_TOOLS)
        self._git("read-tree", "-m", "-u", "--no-recurse-submodules", commit)
        self._give()

    def snapshot(self, written: Iterable[bytes] = ()) -> str:
        """The tree as it is now. `written` are added even where .gitignore hides them."""
        self._add(["add", "-A", "--", "."])
        there = [path for path in written if self._is_file(path)]
        if there:
            forced = ["--literal-pathspecs", "add", "-f", "--pathspec-from-file=-", "--pathspec-file-nul"]
            self._add(forced, stdin=b"\0".join(there))
        return self._git("write-tree").decode().strip()

    def everything(self) -> str:
        """The tree with ignored files too, through an index that is thrown away: what `restore` brings back."""
        spare = self.gitdir / "spare"
        shutil.copyfile(self.index, spare)
        more = {"GIT_INDEX_FILE": str(spare)}
        self._add(["add", "-A", "-f", "--", "."], more=more)
        return self._git("write-tree", more=more).decode().strip()

    def restore(self, tree: str) -> None:
        """Puts every file back as `everything` saw it, and removes all others (row 47)."""
        spare = self.gitdir / "spare"
        if not spare.exists():
            shutil.copyfile(self.index, spare)
        more = {"GIT_INDEX_FILE": str(spare)}
        self._git("read-tree", "--reset", "-u", tree, more=more)
        try:
            self._git("clean", "-ffdxq", more=more)
        except GitError:  # a path too long for git, or a directory whose rights the build took away
            for place in self.tree.iterdir():
                remove_tree(place)
            self._git("checkout-index", "--all", "--force", "--quiet", more=more)
        self._give()
        spare.unlink(missing_ok=True)

    def changes(self, start: str, tree: str) -> list[Change]:
        differences = self.store.differences(start, tree)
        sizes = self._sizes([each.new_blob for each in differences])
        return [Change(each, size) for each, size in zip(differences, sizes, strict=True)]

    def reader(self, changes: Sequence[Change], *, bytes_max: int) -> Callable[[str], bytes]:
        """Reads blobs; those of `changes` that are not too large come from one process."""
        ids = [c.difference.new_blob for c in changes if c.size <= bytes_max]
        ids += [c.difference.old_blob for c in changes]
        wanted = [blob for blob in dict.fromkeys(ids) if blob != ABSENT][:BLOBS_AT_ONCE_MAX]
        known = dict(zip(wanted, self.store.objects(wanted), strict=True))

        def read(blob: str) -> bytes:
            data = known.get(blob)
            return data if data is not None else self.store.git("cat-file", "blob", blob).out

        return read

    def _add(self, arguments: list[str], *, stdin: bytes = b"", more: dict[str, str] | None = None) -> None:
        """Adds to an index, mending what a test may have left: taken rights, repositories inside."""
        for _ in range(3):
            try:
                self._git(*arguments, stdin=stdin, more=more)
            except GitError as error:
                if "ermission denied" in str(error):
                    _run("chmod", "--recursive", "u+rwX", str(self.tree))
                elif "does not have a commit checked out" in str(error):
                    self._remove_nested()
                elif "invalid path" not in str(error) or not self._remove_git_names():
                    raise
                continue
            if not self._holds_nested(more):
                return
            self._remove_nested()
        raise GitError("the tree cannot be read")

    def _is_file(self, path: bytes) -> bool:
        with suppress(OSError):
            return not stat.S_ISDIR(os.lstat(os.path.join(os.fsencode(self.tree), path)).st_mode)  # noqa: PTH118
        return False

    def _holds_nested(self, more: dict[str, str] | None) -> bool:
        """Whether a repository that something made inside became a link: its files would be lost (fault C75)."""
        entries = self._git("ls-files", "--stage", "-z", more=more).split(b"\0")
        links = [entry.split(b"\t", 1)[1] for entry in entries if entry.startswith(SUBMODULE_MODE.encode())]
        nested = [path for path in links if (self.tree / os.fsdecode(path) / ".git").exists()]
        if nested:
            listed = b"".join(path + b"\0" for path in nested)
            self._git("update-index", "-z", "--force-remove", "--stdin", stdin=listed, more=more)
        return bool(nested)

    def _remove_nested(self) -> None:
        """Every `.git` below the top goes, and with it whatever its configuration would start."""
        _run(
            "find", str(self.tree), "-mindepth", "2", "-name", ".git", "-prune",
            "-exec", "rm", "-rf", "--", "{}", "+",
        )  # fmt: skip

    def _remove_git_names(self) -> bool:
        """What a program named like `.git` in another spelling: git takes no such name, and no tool opens one."""
        found = []
        for top, directories, names in os.walk(os.fsencode(self.tree)):
            odd = [name for name in (*directories, *names) if is_git_name(name) and name != b".git"]
            found += [os.path.join(top, name) for name in odd]  # noqa: PTH118  # bytes
            directories[:] = [name for name in directories if name not in odd]
        for place in found:
            _run("rm", "--recursive", "--force", "--one-file-system", "--", os.fsdecode(place))
        return bool(found)

    def _sizes(self, blobs: list[str]) -> list[int]:
        if not blobs:
            return []
        lines = "\n".join(blobs) + "\n"
        out = self.store.git("cat-file", "--batch-check=%(objectsize)", stdin=lines.encode()).out.decode()
        return [int(line) if line.isdigit() else 0 for line in out.splitlines()]

    def _git(self, *arguments: str, stdin: bytes = b"", more: dict[str, str] | None = None) -> bytes:
        environment = {"GIT_WORK_TREE": str(self.tree), "GIT_INDEX_FILE": str(self.index), **(more or {})}
        config = {"core.excludesFile": str(self.ignored)}
        return self.store.git(
            *arguments, stdin=stdin, more=environment, config=config, directory=str(self.tree)
        ).out

    def _give(self) -> None:
        if self._owner is not None:
            whom = f"{self._owner[0]}:{self._owner[1]}"
            _run("chown", "--recursive", "--no-dereference", whom, str(self.tree))


def remove_tree(top: Path) -> None:
    """Removes a directory however deep it is, also where its directories forbid it."""
    _run("rm", "--recursive", "--force", "--one-file-system", "--", str(top))
    if top.exists():
        _run("chmod", "--recursive", "u+rwX", str(top))
        _run("rm", "--recursive", "--force", "--one-file-system", "--", str(top))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=False, capture_output=True, timeout=REMOVE_SECONDS_MAX)
