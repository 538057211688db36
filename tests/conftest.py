"""What every test gets: no network beyond this machine, parts that are missing named, and a Plane to swap."""

from __future__ import annotations

import gc
import ipaddress
import os
import shutil
import socket
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.core.cache import cache
from playwright.sync_api import Browser, sync_playwright

from config.env import Plane
from tests import database
from tests.browser import FLAGS

# A busy machine is no fault of an example: what must be quick is measured by `make bench`, as ratios.
hypothesis.settings.register_profile("remit", deadline=None)
hypothesis.settings.load_profile("remit")

# Marks of tests that need a part which a machine may lack, and why they are then skipped.
NEEDS = {
    "slow": "takes long: run by `make test-slow`, and by CI",
    "postgres": "needs PostgreSQL: run by `make test-services`",
    "sqlite": "about SQLite only: run by `make test`",
    "redis": "needs Redis: run by `make test-services`",
    "bwrap": "needs bubblewrap, which is not installed here",
    "chromium": "needs Chromium, which is not installed here",
    "sshd": "needs openssh-server, which is not installed here",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow", action="store_true", help="also the tests of whole journeys, which take minutes"
    )


def pytest_configure(config: pytest.Config) -> None:
    for mark, reason in NEEDS.items():
        config.addinivalue_line("markers", f"{mark}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What collecting makes lives to the end: it is not looked through for garbage, then or at every test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    there = {
        "slow": config.getoption("--slow"),
        "postgres": settings.PLANE.database_url.startswith("postgres"),
        "sqlite": not settings.PLANE.database_url.startswith("postgres"),
        "redis": bool(settings.PLANE.redis_url),
        "bwrap": bool(shutil.which("bwrap")),
        "chromium": bool(chromium_path()),
        "sshd": bool(shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")),
    }
    for item in items:
        for mark, reason in NEEDS.items():
            if item.get_closest_marker(mark) and not there[mark]:
                item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("chromium"):
            # Playwright's loop runs in this thread, and Django refuses its database calls there.
            os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"


def chromium_path() -> str:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's own browser. Of one module: while it lives, its loop runs in this thread."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def django_db_keepdb(request: pytest.FixtureRequest) -> bool:
    """Kept from what was laid out before; the folder of the tests goes at the end, and the database with it."""
    return not settings.PLANE.database_url or bool(request.config.getvalue("reuse_db"))


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request: pytest.FixtureRequest,
    django_db_blocker: Any,
    django_db_modify_db_settings_parallel_suffix: None,  # has named the database
) -> None:
    """Where pytest-django lets settings be changed: on SQLite a migrated database is laid out in its place."""
    if not settings.PLANE.database_url and request.config.cache is not None:
        with django_db_blocker.unblock():
            folder = request.config.cache.mkdir("database")
            database.lay_out(folder, Path(settings.DATABASES["default"]["TEST"]["NAME"]))


@pytest.fixture(autouse=True, scope="session")
def quick_database() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        database.keep_connected(patch)
        database.flush_rows_of_tests_only(patch)
        yield


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """A connection that would leave this machine is a mistake in the test, named at once."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
        def checked(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
                raise AssertionError(f"a test tried to reach {address[0]}: only this machine is allowed")
            return method(self, address)

        return checked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded(connect))
        patch.setattr(socket.socket, "connect_ex", guarded(connect_ex))
        yield


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    """Rate limits of one test must not stop the next."""
    cache.clear()


@pytest.fixture
def with_plane(settings: Any) -> Callable[..., Plane]:
    """`with_plane(allow_opus=True)` swaps settings.PLANE for this test."""

    def swap(**changes: Any) -> Plane:
        settings.PLANE = replace(settings.PLANE, **changes)
        plane: Plane = settings.PLANE
        return plane

    return swap


def _is_loopback(host: Any) -> bool:
    if host in ("localhost", "", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host).is_loopback
    except ValueError:
        return False
