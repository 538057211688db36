"""Celery entries of the engine. Ids in, one service, nothing returned; safe to run twice."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from agents import index
from agents.clock import WALL
from agents.continuation import forget_orphans
from agents.workspace.checkout import close_leaked
from agents.workspace.upkeep import maintain_stores, prepare_missing


@shared_task(name="agents.build_index", acks_late=True, ignore_result=True)
def build_index(project_id: str, commit: str) -> None:
    """The file index of a promoted or imported tree (row 211)."""
    index.build_index(UUID(project_id), commit, now=WALL.now())


@shared_task(name="agents.close_leaked_workspaces", ignore_result=True)
def close_leaked_workspaces() -> None:
    """Takes away what dead workers left: directories and sandboxes."""
    close_leaked()


@shared_task(name="agents.maintain_stores", ignore_result=True)
def maintain_every_store() -> None:
    """Nightly: forgets what pauses left, packs the repositories, forgets dependencies that nothing uses."""
    forget_orphans(now=WALL.now())
    maintain_stores()


@shared_task(name="agents.prepare_dependencies", ignore_result=True)
def prepare_dependencies() -> None:
    """Installs what the lock files of each main branch ask for and is not there yet. Needs the network."""
    prepare_missing()
