"""What the tests of the doors share: the product's own web server, in a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn
from django.db import connections
from django.utils import timezone

from agents.tier import SandboxTier
from agents.workspace.sandbox import probe
from config.asgi import application
from config.management.commands.demo import fill_with_ledger
from tasks.attempts.run import run_task
from tasks.dispatch import due_tasks
from tasks.fence import due_changes
from tasks.importing import fill_project
from tasks.work import work_on
from tenants.models import Organization, Project, Role, User
from tests.factories.providers import make_connector
from tests.factories.tenants import PASSWORD, make_member, make_organization, make_project

START_SECONDS = 20


@pytest.fixture
def asgi_server(transactional_db: None) -> Iterator[str]:
    """The address of a server like the deployed one: streams live, and requests do not wait for each other."""
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=0,
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    ends_at = time.monotonic() + START_SECONDS
    while not server.started:
        assert time.monotonic() < ends_at, "the server did not start"
        time.sleep(0.02)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    yield f"http://{host}:{port}"
    server.should_exit = True
    thread.join(START_SECONDS)


@dataclass(frozen=True)
class Team:
    """An organization with the demo's repository, played by the demo's scripts, and people in their roles."""

    organization: Organization
    project: Project
    owner: User
    admin: User
    member: User


@pytest.fixture
def team(transactional_db: None) -> Team:
    organization = make_organization(name="Acme")
    owner = make_member(organization, Role.OWNER, password=PASSWORD)
    make_connector(organization, config={"scenarios": "scenarios"})
    project = make_project(organization, name="Tally", trusted=probe() is SandboxTier.D)
    fill_project(project, fill_with_ledger, imported_from="the demo")
    return Team(
        organization=organization,
        project=project,
        owner=owner,
        admin=make_member(organization, Role.ADMIN, password=PASSWORD),
        member=make_member(organization, Role.MEMBER, password=PASSWORD),
    )


@pytest.fixture
def worker(transactional_db: None) -> Iterator[None]:
    """A worker in a thread: it takes what is due, as the sweep and the wakes of a deployment would bring it."""
    stop = threading.Event()
    faults: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.wait(0.05):
                now = timezone.now()
                for change_id in list(due_changes(now).values_list("pk", flat=True)):
                    work_on(change_id)
                for task in list(due_tasks(now)):
                    run_task(task.pk)
        except BaseException as fault:
            faults.append(fault)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(START_SECONDS)
    assert not faults, faults
