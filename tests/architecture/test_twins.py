"""What a person can do on a page, a token with the right scope can do over REST (issue 6)."""

from __future__ import annotations

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from tests.architecture.test_routes import Foreign, Route, foreign, routes

__all__ = ["foreign"]

# Every page that takes a form, and the operations that do the same. A new form fails until it stands here.
TWINS = {
    "changes/views": ("changes_views_save", "changes_views_forget"),
    "changes/act": ("changes_pause", "changes_resume", "changes_cancel"),
    "projects/<uuid:project_id>/changes/new": ("changes_create",),
    "projects/<uuid:project_id>/repository": ("imports_create",),
    "projects/<uuid:project_id>/repository/bundle": ("imports_upload",),
    "imports/<uuid:import_id>/cancel": ("imports_cancel",),
    "projects/<uuid:project_id>/preflights": ("preflights_create",),
    "preflights/<uuid:preflight_id>/cancel": ("preflights_cancel",),
    "changes/<uuid:change_id>/plan": ("changes_approve_plan",),
    "changes/<uuid:change_id>/raise": ("raises_create", "raises_preview"),
    "changes/<uuid:change_id>/<act:act>": (
        "changes_start",
        "changes_pause",
        "changes_resume",
        "changes_cancel",
        "changes_retry",
    ),
    "organizations/<uuid:organization_id>/limits": ("limits_set", "limits_preview"),
    "organizations/<uuid:organization_id>/unknown": ("ledger_release",),
    "tasks/<uuid:task_id>/reopen": ("tasks_reopen",),
    "tasks/<uuid:task_id>/send-back": ("tasks_send_back",),
    "approvals/<uuid:approval_id>/decide": ("approvals_decide",),
    "approvals/<uuid:approval_id>/reconcile": ("approvals_reconcile",),
    "runs/<uuid:run_id>/stop": ("runs_stop",),
    "candidates/<uuid:candidate_id>/promote": ("candidates_promote",),
    "organizations/new": ("organizations_create",),
    "organizations/<uuid:organization_id>": ("organizations_update",),
    "organizations/<uuid:organization_id>/members": ("invitations_create",),
    "organizations/<uuid:organization_id>/members/<uuid:user_id>/role": ("members_update",),
    "organizations/<uuid:organization_id>/members/<uuid:user_id>/remove": ("members_remove",),
    "organizations/<uuid:organization_id>/invitations/<uuid:invitation_id>": (
        "invitations_revoke",
        "invitations_renew",
    ),
    "organizations/<uuid:organization_id>/tokens": ("tokens_create",),
    "organizations/<uuid:organization_id>/tokens/<uuid:token_id>/revoke": ("tokens_revoke",),
    "projects/new": ("projects_create",),
    "projects/<uuid:project_id>": ("projects_update",),
    "projects/<uuid:project_id>/archive": ("projects_update",),
    "organizations/<uuid:organization_id>/connectors": ("connectors_create",),
    "organizations/<uuid:organization_id>/connectors/<uuid:connector_id>": ("connectors_update",),
    "organizations/<uuid:organization_id>/connectors/<uuid:connector_id>/switch": ("connectors_update",),
    "organizations/<uuid:organization_id>/connectors/<uuid:connector_id>/test": ("connectors_test",),
    "organizations/<uuid:organization_id>/webhooks": ("webhooks_create",),
    "organizations/<uuid:organization_id>/webhooks/<uuid:webhook_id>": ("webhooks_update",),
    "organizations/<uuid:organization_id>/webhooks/<uuid:webhook_id>/act": (
        "webhooks_test",
        "webhooks_resend_failed",
        "webhooks_rotate",
        "webhooks_update",
        "webhooks_remove",
    ),
    "organizations/<uuid:organization_id>/webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/resend": (
        "webhooks_deliveries_resend",
    ),
    "projects/<uuid:project_id>/hooks": ("hooks_create",),
    "projects/<uuid:project_id>/hooks/<uuid:hook_id>": ("hooks_update",),
    "projects/<uuid:project_id>/hooks/<uuid:hook_id>/act": ("hooks_rotate", "hooks_update", "hooks_remove"),
}


def operations() -> set[str]:
    schema = SchemaGenerator(api_version="v1").get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return {
        str(operation["operationId"])
        for methods in schema["paths"].values()
        for operation in methods.values()
    }


@pytest.mark.parametrize("route", [route for route in routes() if not route.is_api], ids=str)
def test_every_form_of_a_page_has_its_operation(route: Route, client: Client, foreign: Foreign) -> None:
    takes_forms = client.post(route.path(foreign.values)).status_code != 405
    assert takes_forms == (route.pattern in TWINS), f"{route.pattern}: name its operations in TWINS"


def test_every_operation_that_is_named_is_there() -> None:
    named = {name for names in TWINS.values() for name in names}
    assert named - operations() == set()
