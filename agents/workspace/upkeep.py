"""What is done for all repositories while nobody waits: packing, preparing, forgetting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import structlog
from django.conf import settings

from agents.errors import GitError, NoSandbox
from agents.workspace.deps import deps_directory, prepare, prepared_at, used_at
from agents.workspace.git import Store
from agents.workspace.slots import try_lock
from agents.workspace.worktree import remove_tree

UNUSED_DAYS_MAX = 30  # prepared dependencies that nothing mounted for so long are removed

log = structlog.get_logger(__name__)


def maintain_stores() -> int:
    """Packs every repository (never dropping what a ref names), and forgets unused dependencies."""
    count = 0
    for store in stores():
        try:
            store.maintain()
            count += 1
        except GitError as error:  # one broken repository must not keep the others from theirs
            log.warning("store.not_maintained", store=store.directory.name, error=str(error))
    forget_unused_dependencies()
    return count


def prepare_missing() -> int:
    """Prepares what the lock files of each main ask for, once; a step that failed waits for a person.

    One at a time on this machine: a step may take minutes, and the clock does not wait for it.
    """
    deps_directory().mkdir(parents=True, exist_ok=True)
    alone = try_lock(deps_directory() / "preparing.lock")
    if alone is None:
        return 0
    try:
        return _prepare_missing()
    finally:
        os.close(alone)


def forget_unused_dependencies() -> int:
    root = deps_directory()
    count = 0
    for place in root.iterdir() if root.is_dir() else ():
        if place.is_dir() and time.time() - used_at(place) > UNUSED_DAYS_MAX * 24 * 3600:
            remove_tree(place)
            count += 1
    return count


def _prepare_missing() -> int:
    count = 0
    for store in stores():
        commit = store.commit_of_main()
        if commit is None:
            continue
        if all(state.state != "missing" for state in prepared_at(store, commit).states):
            continue
        try:
            prepare(store, commit)
            count += 1
        except NoSandbox as error:
            log.info("dependencies.not_prepared", error=str(error))
            return count
    return count


def stores() -> Iterator[Store]:
    """Every repository of this machine."""
    root = settings.PLANE.data_dir / "git"
    for place in sorted(root.glob("*.git")) if root.is_dir() else ():
        store = Store(place)
        if store.exists():
            yield store
