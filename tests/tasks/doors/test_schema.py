"""The schema and the server say the same: no fault of ours, and nothing that is not written down."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import schemathesis
from django.core.management import call_command
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from agents import archive
from config.rest import ClientRate
from tenants.models import Role, Scope
from tests.factories.agents import make_approval
from tests.factories.budgets import make_hold, make_payers
from tests.factories.providers import make_connector
from tests.factories.tasks import (
    make_allowance,
    make_candidate,
    make_change,
    make_changeset,
    make_criterion,
    make_event,
    make_import,
    make_preflight,
    make_question,
    make_receipt,
    make_run,
    make_task,
    make_trunk,
)
from tests.factories.tenants import make_invitation, make_member, make_organization, make_project, make_token
from tests.factories.webhooks import make_delivery, make_endpoint, make_hook

# Few in the usual suite, which must stay quick; more by TEST_SCHEMA_EXAMPLES=50 when a door is new.
EXAMPLES = int(os.environ.get("TEST_SCHEMA_EXAMPLES", "2"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]
# A stream does not end by itself; it has tests of its own.
STREAMS = {"changes_events_stream", "organizations_events_stream"}


def generated() -> str:
    out = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", stdout=out)
    return out.getvalue()


def test_the_schema_is_made_without_a_warning() -> None:
    schema = schemathesis.openapi.from_dict(_loaded())
    names = [_name(operation) for operation in _operations(schema)]
    assert len(names) > 50
    assert len(names) == len(set(names))


def test_every_operation_says_how_it_refuses() -> None:
    for path, methods in _loaded()["paths"].items():
        for method, operation in methods.items():
            missing = {"400", "401", "403", "404", "429"} - set(operation["responses"])
            assert not missing, f"{method} {path}"
            if method == "get":
                assert "304" in operation["responses"], path


def test_every_post_may_be_sent_twice() -> None:
    for path, methods in _loaded()["paths"].items():
        if "post" in methods:
            names = [each["name"] for each in methods["post"].get("parameters", [])]
            assert "Idempotency-Key" in names, path


@pytest.fixture(autouse=True)
def no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine asks faster than the limits of a client; they have tests of their own."""
    monkeypatch.setitem(ClientRate.THROTTLE_RATES, "client", None)  # None: no limit
    monkeypatch.setitem(ClientRate.THROTTLE_RATES, "organization", None)  # None: no limit


@pytest.mark.slow
def test_whatever_the_schema_allows_gets_a_documented_answer(
    asgi_server: str, some_of_everything: Any
) -> None:
    """Issue 6, shows 3: the whole schema against the running server."""
    ids, headers = some_of_everything
    schema = schemathesis.openapi.from_dict(_loaded())
    schema.config.update(base_url=asgi_server)
    tried = set()
    for operation in _operations(schema):
        if _name(operation) not in STREAMS:
            _try(operation, ids=ids, headers=headers)
            tried.add(_name(operation))
    assert len(tried) > 50


@pytest.mark.slow
def test_no_operation_answers_somebody_without_a_token(asgi_server: str, some_of_everything: Any) -> None:
    ids, headers = some_of_everything
    schema = schemathesis.openapi.from_dict(_loaded())
    schema.config.update(base_url=asgi_server)
    for operation in _operations(schema):
        if _name(operation) not in STREAMS:
            _try(operation, ids=ids, headers=headers, examples=1, checks=[ignored_auth])


@pytest.mark.slow
def test_every_id_of_an_address_is_tried_with_a_row_that_is_there(some_of_everything: Any) -> None:
    """A door whose rows are all unknown answers 404, and nothing behind that is ever looked at."""
    ids, _ = some_of_everything
    named = {name for path in _loaded()["paths"] for name in re.findall(r"{(\w+)}", path)}
    assert named - set(ids) == set()


def _try(
    operation: Any,
    *,
    ids: dict[str, str],
    headers: dict[str, str],
    examples: int = EXAMPLES,
    checks: Any = CHECKS,
) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), real=st.booleans())
    def run(case: Any, real: bool) -> None:
        for name in case.path_parameters or {}:
            if real and name in ids:
                case.path_parameters[name] = ids[name]
        case.call_and_validate(headers=headers, checks=checks)

    run()


@pytest.fixture
def some_of_everything(transactional_db: None) -> tuple[dict[str, str], dict[str, str]]:
    """One row of each kind and a token with every scope, of an owner."""
    organization = make_organization()
    owner, other = make_member(organization, Role.OWNER), make_member(organization, Role.MEMBER)
    project = make_project(organization)
    make_trunk(project)
    change = make_change(project)
    make_criterion(change)
    task = make_task(change)
    kept = archive.put("logs/schema.json", b'[{"position": 1, "tool": "read_file"}]')
    packet = archive.put("packets/schema.json", b"{}")
    run = make_run(task, tool_log_key=kept, packet_key=packet)
    make_event(change)
    make_receipt(change)
    _, plain = make_token(owner, organization, scopes=[scope.value for scope in Scope])
    spare, _ = make_token(owner, organization)
    allowance = make_allowance(project)
    endpoint = make_endpoint(organization)
    patch = archive.put("patches/schema.patch", b"diff --git a/x b/x\n")
    rows = {
        "organization_id": organization,
        "project_id": project,
        "change_id": change,
        "task_id": task,
        "run_id": run,
        "changeset_id": make_changeset(task, patch_key=patch),
        "candidate_id": make_candidate(change, patch_key=patch),
        "user_id": other,
        "token_id": spare,
        "invitation_id": make_invitation(organization)[0],
        "connector_id": make_connector(organization),
        "import_id": make_import(project),
        "allowance_id": allowance,
        "question_id": make_question(allowance, by=other),
        "preflight_id": make_preflight(project),
        "approval_id": make_approval(
            organization,
            project_id=project.pk,
            change_id=change.pk,
            task_id=task.pk,
            run_id=run.pk,
            patch_key=patch,
        ),
        "webhook_id": endpoint,
        "hook_id": make_hook(project, author=other),
        "delivery_id": make_delivery(endpoint),
    }
    hold = make_hold(make_payers(organization, project_id=project.pk, change_id=change.pk))
    ids = {name: str(row.pk) for name, row in rows.items()} | {"call_id": str(hold.reservation_id)}
    return ids, {"Authorization": f"Bearer {plain}"}


def _operations(schema: Any) -> Iterator[Any]:
    for result in schema.get_all_operations():
        yield result.ok()


def _name(operation: Any) -> str:
    return str(operation.definition.raw["operationId"])


def _loaded() -> dict[str, Any]:

    found: dict[str, Any] = json.loads(generated())
    return found
