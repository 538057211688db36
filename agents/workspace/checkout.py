"""The workspace of one run: opens on first use, keeps tools and commands apart, closes once."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4

from django.conf import settings

from agents.errors import AgentError, GitError
from agents.tier import SandboxTier
from agents.workspace.allowlist import (
    Refusal,
    asks_first,
    exact_patterns,
    read_command,
    scripts_of,
    targets_of,
)
from agents.workspace.bubblewrap import WORKSPACE, Box, Mount
from agents.workspace.deps import Prepared, mark_used, prepared_at, prepared_for
from agents.workspace.git import Store
from agents.workspace.grammar import Allowed, CommandContext
from agents.workspace.limits import COMMAND_SECONDS_MAX, OUTPUT_CHARACTERS_MAX, Limits
from agents.workspace.lockfiles import LOCK_BYTES_MAX, is_lock_name
from agents.workspace.names import PathRefused
from agents.workspace.paths import Root
from agents.workspace.publishing import Problem, PublishRules, why_not_published
from agents.workspace.sandbox import CommandOutput, probe, run
from agents.workspace.slots import SANDBOXES_MAX, claim, dead, take_slot
from agents.workspace.starting import forget_stages, sandbox_owner
from agents.workspace.worktree import WorkTree, remove_tree

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,80}")
KEPT_REFS = "continuations"
_GIT_INSIDE, _STORE_INSIDE = "/gitdir", "/git"


@dataclass(frozen=True, slots=True)
class WorkPublished:
    """`own_files` differ from the start commit (row 216)."""

    commit: str
    own_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkKept:
    """The workspace of a paused attempt. `patch` is what it would publish now; `written` as Latin-1 text."""

    commit: str
    patch: bytes
    written: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NothingChanged:
    """The tree is the start commit's: there is nothing to publish."""

    def __str__(self) -> str:
        return "nothing differs from the start commit"


@dataclass(frozen=True, slots=True)
class PublishRefused:
    """Nothing was published; the agent can mend every problem and ask again."""

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "not published:\n" + "\n".join(f"- {problem}" for problem in self.problems)


def open_checkout(
    store: Store,
    commit: str,
    *,
    change_id: UUID | None = None,
    trusted: bool = False,
    sandboxes_max: int = SANDBOXES_MAX,
) -> Checkout:
    """A fresh tree of a commit, for what Remit itself runs. A context manager; opens on first use."""
    name = f"check-{uuid4()}"
    return Checkout(
        store, commit, workspace_id=name, trusted=trusted, change_id=change_id, sandboxes_max=sandboxes_max
    )


def workspaces_directory() -> Path:
    place: Path = settings.PLANE.data_dir / "workspaces"
    place.mkdir(parents=True, exist_ok=True)
    return place


def close_leaked() -> int:
    """Removes what dead workers left behind; how many workspaces that were. Safe beside living ones."""
    forget_stages()
    count = 0
    for top in workspaces_directory().iterdir():
        if top.name == "slots" or not top.is_dir():
            continue
        held = dead(top)
        if held is not None:
            try:
                remove_tree(top)
                count += 1
            finally:
                os.close(held)
    return count


class Checkout:
    """Files of a commit on disk, and commands that run in them. One thread at a time (`lock`)."""

    def __init__(
        self,
        store: Store,
        start_commit: str,
        *,
        workspace_id: str,
        trusted: bool = False,
        change_id: UUID | None = None,
        sandboxes_max: int = SANDBOXES_MAX,
    ) -> None:
        assert _ID.fullmatch(workspace_id), f"{workspace_id!r} names no workspace"
        self.store = store
        self.start_commit = start_commit
        self.workspace_id = workspace_id
        self._trusted = trusted
        self._change = str(change_id) if change_id is not None else ""
        self._sandboxes_max = sandboxes_max
        self.lock = threading.RLock()
        self._held: list[int] = []
        self._tree: WorkTree | None = None
        self._files: Root | None = None
        self.prepared = Prepared()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """False until the first use (row 38)."""
        return self._tree is not None

    @property
    def files(self) -> Root:
        """The agent's file access. Opens the workspace; raises `SandboxLimit` (row 56)."""
        with self.lock:
            self.opened()
            assert self._files is not None
            return self._files

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds_max: float = COMMAND_SECONDS_MAX,
        beat: Callable[[], None] | None = None,
        output_characters_max: int = OUTPUT_CHARACTERS_MAX,
    ) -> CommandOutput:
        """Any argv, in the sandbox. Raises `NoSandbox`, `SandboxLimit`, and what `beat` raises."""
        with self.lock:
            tree = self.opened()
            tier = probe()
            return run(
                self._box(tree, argv, tier),
                argv,
                limits=Limits(seconds_max=seconds_max, output_characters_max=output_characters_max),
                beat=beat,
                trusted=self._trusted,
                tier=tier,
            )

    def close(self) -> None:
        """Removes the files and gives the place back. Safe to repeat."""
        with self.lock:
            self._closed = True
            if self._files is not None:
                self._files.close()
                self._files = None
            if self._tree is not None:
                remove_tree(self._tree.top)
                self._tree = None
            for fd in self._held:
                os.close(fd)
            self._held.clear()

    def opened(self) -> WorkTree:
        if self._closed:
            raise AgentError("the workspace is closed")
        if self._tree is not None:
            return self._tree
        root = workspaces_directory()
        try:
            if self._change:
                self._held.append(take_slot(root, self._change, self._sandboxes_max))
            self._held.append(claim(root / self.workspace_id))
            self._tree = self._fill(root / self.workspace_id)
        except BaseException:
            for fd in self._held:
                os.close(fd)
            self._held.clear()
            raise
        self._files = Root(self._tree.tree, owner=sandbox_owner(), lock=self.lock)
        return self._tree

    def _fill(self, top: Path) -> WorkTree:
        tree = WorkTree(self.store, top, owner=sandbox_owner())
        for place in (tree.tree, tree.gitdir):  # of a run of the same id whose worker died
            if place.exists():
                remove_tree(place)
        tree.fill(self.start_commit)
        self.prepared = prepared_at(self.store, self.start_commit)
        mark_used(self.prepared)
        inside = probe() in (SandboxTier.A, SandboxTier.B)
        (tree.gitdir / "HEAD").write_text(f"{self.start_commit}\n")
        (tree.gitdir / "commondir").write_text(f"{_STORE_INSIDE if inside else self.store.directory}\n")
        (top / "dotgit").write_text(f"gitdir: {_GIT_INSIDE if inside else tree.gitdir}\n")
        return tree

    def _box(self, tree: WorkTree, argv: Sequence[str], tier: SandboxTier) -> Box:
        mounts = [*self.prepared.mounts]
        environment = dict(self.prepared.environment)
        if tier in (SandboxTier.A, SandboxTier.B):
            # git inside sees the history, read-only; nothing can be written to it, or to its own .git.
            mounts += [
                Mount(self.store.directory, _STORE_INSIDE),
                Mount(tree.gitdir, _GIT_INSIDE),
                Mount(tree.top / "dotgit", f"{WORKSPACE}/.git"),
            ]
        else:
            mounts += [Mount(self.store.directory, _STORE_INSIDE), Mount(tree.gitdir, _GIT_INSIDE)]
            if argv[0] == "git":
                environment |= {"GIT_DIR": _GIT_INSIDE, "GIT_WORK_TREE": WORKSPACE}
        return Box(
            directory=tree.tree, mounts=tuple(mounts), path=self.prepared.path, environment=environment
        )


class Workspace(AbstractContextManager["Workspace"]):
    """A checkout that an agent works in: known commands only, and the work can be published."""

    def __init__(
        self,
        store: Store,
        start_commit: str,
        *,
        workspace_id: str,
        trusted: bool = False,
        change_id: UUID | None = None,
        sandboxes_max: int = SANDBOXES_MAX,
        extra_commands: Sequence[Sequence[str]] = (),
        approval_commands: Sequence[Sequence[str]] = (),
        rules: PublishRules | None = None,
    ) -> None:
        self._checkout = Checkout(
            store,
            start_commit,
            workspace_id=workspace_id,
            trusted=trusted,
            change_id=change_id,
            sandboxes_max=sandboxes_max,
        )
        self._asking = tuple(tuple(pattern) for pattern in approval_commands)
        self._extra = (*(tuple(pattern) for pattern in extra_commands), *exact_patterns(self._asking))
        self._rules = rules or PublishRules()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._checkout.is_open

    @property
    def files(self) -> Root:
        return self._checkout.files

    def run(
        self,
        command: str | Sequence[str],
        *,
        seconds_max: float = COMMAND_SECONDS_MAX,
        beat: Callable[[], None] | None = None,
        output_characters_max: int = OUTPUT_CHARACTERS_MAX,
    ) -> CommandOutput | Refusal:
        """One known command (row 44); what a build wrote is discarded before this returns (row 47)."""
        with self._checkout.lock:
            verdict = read_command(command, self._context())
            if isinstance(verdict, Refusal):
                return verdict
            if verdict.prepares:
                return self._answered(verdict)
            tree = self._checkout.opened()
            before = tree.everything() if verdict.builds else None
            try:
                return self._checkout.run(
                    verdict.argv,
                    seconds_max=seconds_max,
                    beat=beat,
                    output_characters_max=output_characters_max,
                )
            finally:
                if before is not None:
                    tree.restore(before)

    def asks_first(self, command: str | Sequence[str]) -> tuple[str, ...] | None:
        """The argv of a command that waits for a person's yes; None for one that does not, or is refused anyway."""
        if not self._asking:
            return None
        with self._checkout.lock:
            return asks_first(command, self._context(), self._asking)

    def keep(self, name: str, *, at: int) -> WorkKept | None:
        """The files as they are, ignored ones too, as one commit under refs/continuations/<name>. None: never opened.

        Empty directories are not kept: git has none.
        """
        checkout = self._checkout
        with checkout.lock:
            if not checkout.is_open:
                return None
            tree, store, start = checkout.opened(), checkout.store, checkout.start_commit
            written = checkout.files.written
            patch = store.patch(start, tree.snapshot(written))
            date = max(at, store.commit_time(start) + 1)
            commit = store.commit(tree.everything(), (start,), message=f"Paused {name}\n", at=date)
            store.keep_ref(KEPT_REFS, name, commit)
            return WorkKept(commit, patch, tuple(sorted(path.decode("latin-1") for path in written)))

    def bring_back(self, kept: str, written: Sequence[str]) -> None:
        """Opens the workspace with the files that `keep` saw."""
        checkout = self._checkout
        with checkout.lock:
            tree = checkout.opened()
            tree.restore(checkout.store.tree_of(kept))
            checkout.files.written.update(path.encode("latin-1") for path in written)

    def publish(
        self, changeset_id: object, *, message: str, at: int
    ) -> WorkPublished | NothingChanged | PublishRefused:
        """The work as one commit on the start commit, kept as refs/changesets/<id> (row 36)."""
        checkout = self._checkout
        with checkout.lock:
            if not checkout.is_open:
                return NothingChanged()
            tree = checkout.opened()
            store, start = checkout.store, checkout.start_commit
            try:
                snapshot = tree.snapshot(checkout.files.written)
            except GitError as error:  # such as a link where git wants a file: the agent can mend it
                return PublishRefused((Problem("", "git", f"git does not take these files: {error}"),))
            changes = tree.changes(start, snapshot)
            if not changes:
                return NothingChanged()
            read = tree.reader(changes, bytes_max=self._rules.file_bytes_max)
            problems = why_not_published(changes, read, self._rules)
            if problems:
                return PublishRefused(problems)
            # Never older than what it stands on: merges would have to walk all history then.
            date = max(at, store.commit_time(start) + 1)
            commit = store.commit(snapshot, (start,), message=message, at=date)
            store.keep_ref("changesets", changeset_id, commit)
            return WorkPublished(commit, tuple(change.path for change in changes))

    def close(self) -> None:
        self._checkout.close()

    def _context(self) -> CommandContext:
        files = self._checkout.files
        makefile = next((name for name in _MAKEFILES if _text_of(files, name) is not None), "")
        return CommandContext(
            scripts=scripts_of(_text_of(files, "package.json")),
            targets=targets_of(_text_of(files, makefile) or b"") if makefile else frozenset(),
            makefile=makefile,
            extra=self._extra,
        )

    def _answered(self, verdict: Allowed) -> CommandOutput:
        files = self._checkout.files
        names = [entry.name for entry in files.entries(".")[0] if is_lock_name(entry.name)]
        now = prepared_for({name: _text_of(files, name) or b"" for name in names})
        text, code = self._checkout.prepared.answer(verdict.prepares, now)
        return replace(_NOTHING_RUN, text=text, exit_code=code, whole=text.encode())


_NOTHING_RUN = CommandOutput(
    text="", exit_code=0, reason="prepared", whole=b"", seconds=0.0, bytes=0, peak_memory_bytes=0
)


def _text_of(files: Root, name: str) -> bytes | None:
    try:
        return files.read(name, bytes_max=LOCK_BYTES_MAX).data
    except PathRefused:
        return None
