"""Workspaces, stacks, publishing and sandboxes, beside git's own ways and a bare process.

The repository is real: at BENCH_REPOSITORY when that is set, else 6,000 Python files of the installed packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from uuid import uuid4

import django

from agents.tier import SandboxTier
from agents.workspace.bubblewrap import Box
from agents.workspace.checkout import Workspace, workspaces_directory
from agents.workspace.git import Store
from agents.workspace.sandbox import give, probe, run
from agents.workspace.slots import claim
from agents.workspace.starting import sandbox_owner
from agents.workspace.worktree import WorkTree, remove_tree
from bench.measured import Measured, Skipped, compared

FILES = 6_000
AT = 1_700_000_000
STACKS = (3, 10)
EDITS = 12  # files that each ChangeSet edits by itself


def measure() -> Iterable[Measured]:
    if shutil.which("git") is None:
        raise Skipped("git is not installed")
    with tempfile.TemporaryDirectory(prefix="remit-bench-git-") as folder:
        place = Path(folder)
        store, commit = _store(place)
        yield from _creation(store, commit, place)
        yield from _stacks(store, commit, place)
        yield _publish(store, commit, place)
        yield from _starts()


def _store(place: Path) -> tuple[Store, str]:
    store = Store(place / "bench.git").init()
    given = os.environ.get("BENCH_REPOSITORY")
    if given:
        return store, store.import_from(given).commit
    packages = Path(django.__file__).parent.parent
    tree = place / "packages"
    for path in sorted(packages.rglob("*.py"))[:FILES]:
        target = tree / path.relative_to(packages)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    more = {"GIT_INDEX_FILE": str(place / "index"), "GIT_WORK_TREE": str(tree)}
    store.git("add", "-A", "-f", ".", more=more, directory=str(tree))
    written = store.git("write-tree", more=more).out.decode().strip()
    commit = store.commit(written, (), message="Packages\n", at=AT)
    store.promote(commit, None, "bench")
    store.git("repack", "-adq")
    return store, commit


def _creation(store: Store, commit: str, place: Path) -> Iterable[Measured]:
    numbers = count()
    made: list[Path] = []

    def ours() -> None:
        top = place / f"ws{next(numbers)}"
        os.close(claim(top))
        WorkTree(store, top, owner=sandbox_owner()).fill(commit)
        made.append(top)

    def theirs() -> None:
        made.append(place / f"wt{next(numbers)}")
        store.git("worktree", "add", "--quiet", "--detach", str(made[-1]), commit)

    ours()
    files = sum(1 for path in (made[0] / "tree").rglob("*") if path.is_file())
    what = f"open a workspace of {files:,} files / git worktree add"
    yield compared(what, ours, theirs, rounds=7, aim="at most 1.1")
    for top in made:
        remove_tree(top)
    store.git("worktree", "prune")


def _stacks(store: Store, commit: str, place: Path) -> Iterable[Measured]:
    sets = _change_sets(store, commit, max(STACKS))
    tree = place / "merging"
    store.git("worktree", "add", "--quiet", "--detach", str(tree), commit)
    times = count(store.commit_time(commit) + 1_000)
    for size in STACKS:
        yield compared(
            f"stack of {size} / git merge in a worktree",
            _stacked(store, commit, sets[:size], times),
            _merged(commit, sets[:size], tree),
            rounds=7,
            aim="at most 0.2",
        )
    remove_tree(tree)


def _stacked(store: Store, commit: str, sets: Sequence[str], times: Iterable[int]) -> Callable[[], object]:
    moments = iter(times)  # a new moment each time, so that nothing is kept from before
    return lambda: store.stack(commit, sets, next(moments))


def _merged(commit: str, sets: Sequence[str], tree: Path) -> Callable[[], object]:
    environment = {
        "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@x", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@x",
    }  # fmt: skip

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=tree, env=environment, check=True, capture_output=True)

    def act() -> None:
        git("checkout", "--quiet", "--detach", commit)
        for each in sets:
            git("merge", "--quiet", "--no-edit", each)

    return act


def _change_sets(store: Store, commit: str, many: int) -> list[str]:
    """Each edits files of its own and a part of one file that all edit, and adds three."""
    files = [
        f.path for f in store.tree_files(commit) if f.mode == "100644" and f.size > 2_000 and f.path.isascii()
    ]
    text = {path for path in files if b"\0" not in (store.read(commit, path) or b"\0")}
    files = [path for path in files[: EDITS * many * 2 + 50] if path in text]
    shared = max(files, key=lambda path: (store.read(commit, path) or b"").count(b"\n"))
    sets = []
    for number in range(many):
        mine = [path for path in files if path != shared][number * EDITS : (number + 1) * EDITS]
        contents = {path: b"# first\n" + (store.read(commit, path) or b"") for path in mine}
        lines = (store.read(commit, shared) or b"").split(b"\n")
        lines.insert((number + 1) * (len(lines) // (many + 2)), b"# set %d" % number)
        contents[shared] = b"\n".join(lines)
        contents |= {f"added/{number}-{n}.txt": b"new\n" for n in range(3)}
        sets.append(_committed(store, commit, contents, store.commit_time(commit) + 10 + number))
    return sets


def _committed(store: Store, commit: str, contents: dict[str, bytes], at: int) -> str:
    more = {"GIT_INDEX_FILE": str(store.directory / "bench-index")}
    store.git("read-tree", commit, more=more)
    lines = []
    for path, data in contents.items():
        blob = store.git("hash-object", "-w", "--stdin", stdin=data).out.decode().strip()
        lines.append(f"100644 {blob}\t{path}".encode())
    store.git("update-index", "-z", "--index-info", stdin=b"".join(line + b"\0" for line in lines), more=more)
    tree = store.git("write-tree", more=more).out.decode().strip()
    return store.commit(tree, (commit,), message="Work\n", at=at)


def _publish(store: Store, commit: str, place: Path) -> Measured:
    tree = place / "publishing"
    store.git("worktree", "add", "--quiet", "--detach", str(tree), commit)
    numbers = count()
    with Workspace(store, commit, workspace_id=str(uuid4())) as workspace:

        def ours() -> None:
            number = next(numbers)
            for n in range(25):
                workspace.files.write(f"work/{n}.txt", b"%d %d\n" % (number, n))
            workspace.publish(f"bench-{number}", message="Work\n", at=AT + number)

        def theirs() -> None:
            number = next(numbers)
            (tree / "work").mkdir(exist_ok=True)
            for n in range(25):
                (tree / "work" / f"{n}.txt").write_bytes(b"%d %d\n" % (number, n))
            for arguments in (
                ("add", "-A"),
                ("-c", "user.name=a", "-c", "user.email=a@x", "commit", "-qm", "Work"),
            ):
                subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True)

        ours()
        result = compared("publish 25 files, checked / git add and commit", ours, theirs, rounds=7)
    remove_tree(tree)
    return result


def _starts() -> Iterable[Measured]:
    tier = probe()
    if tier is SandboxTier.D:
        raise Skipped("this machine has no sandbox")
    tree = workspaces_directory() / "bench-box"
    tree.mkdir(exist_ok=True)
    give(tree)
    box = Box(directory=tree)

    def bare() -> None:
        subprocess.run(["true"], check=True, stdin=subprocess.DEVNULL, capture_output=True)

    what = f"start a sandbox (tier {tier}) / a bare process"
    yield compared(what, lambda: run(box, ["true"]), bare, rounds=31, aim="15 ms more")
    if tier is SandboxTier.A:
        what = "the same from a folder that any user reaches"
        with tempfile.TemporaryDirectory(prefix="remit-bench-", dir="/tmp") as top:
            Path(top).chmod(0o755)
            open_tree = Path(top) / "tree"
            open_tree.mkdir()
            give(open_tree)
            yield compared(
                what, lambda: run(Box(directory=open_tree), ["true"]), bare, rounds=31, aim="15 ms more"
            )
    remove_tree(tree)
