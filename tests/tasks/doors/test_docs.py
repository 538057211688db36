"""The page about REST: its client runs, and its table of codes is the code's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rest_framework import exceptions

from config.errors import TABLE
from tasks.api import streams
from tasks.models import Change
from tasks.states import ChangeState
from tenants.models import Scope
from tests.factories.tenants import make_token
from tests.tasks.doors.conftest import Team

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
CLIENT_SECONDS_MAX = 120
APPS = ("tasks", "tenants", "budgets", "providers", "config", "agents", "webhooks")


@pytest.mark.slow
def test_the_client_of_the_page_hands_over_follows_and_prints_the_cost(
    asgi_server: str, worker: None, team: Team
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    _, plain = make_token(team.member, team.organization, scopes=[Scope.CHANGES_WRITE])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "REMIT_URL": asgi_server, "REMIT_TOKEN": plain},
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    change = Change.objects.get()
    assert change.state == ChangeState.READY, ran.stdout
    lines = ran.stdout.splitlines()
    assert "change.submitted" in lines[0]
    assert re.fullmatch(r"CH-1 cost \$0\.0\d+", lines[-1])
    kinds = [line.split()[1] for line in lines[:-1]]
    told = list(change.events.order_by("pk").values_list("kind", flat=True))
    assert kinds == told[: len(kinds)]


def test_every_code_stands_in_the_table() -> None:
    listed = set(
        re.findall(r"`([a-z_]+)`", "\n".join(line for line in PAGE.splitlines() if line.startswith("| ")))
    )
    written = {row.code for row in TABLE.values()}
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            written |= set(re.findall(r'InvalidInput\([^()]*code="([a-z_]+)"', text))
            written |= set(re.findall(r'Problem\([^()]*code="([a-z_]+)"', text))
    framework: list[type[exceptions.APIException]] = [
        exceptions.ParseError,
        exceptions.NotAuthenticated,
        exceptions.PermissionDenied,
        exceptions.MethodNotAllowed,
        exceptions.NotAcceptable,
        exceptions.UnsupportedMediaType,
        exceptions.Throttled,
    ]
    written |= {str(each.default_code) for each in framework}
    assert len(written) > 30
    assert written - listed == set()


def test_the_page_names_the_limits_of_the_code() -> None:
    for said in (
        f"every {streams.HEARTBEAT_SECONDS} seconds",
        f"lasts {streams.STREAM_SECONDS_MAX // 60} minutes",
        f"({streams.STREAMS_PER_PERSON_MAX} for one person)",
    ):
        assert said in PAGE.replace("\n", " "), said
