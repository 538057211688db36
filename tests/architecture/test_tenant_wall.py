"""Doors get rows through `visible_to` only, and every row of a tenant says where its organization lies."""

from __future__ import annotations

import ast

from django.apps import apps
from django.db import models

from tenants.models import Organization
from tenants.scope import TenantModel
from tests.architecture.sources import APPS, ROOT, code, tracked

# Rows that hang on no organization, and why that is right.
SHARED = {
    "tenants.User": "a person may belong to several organizations",
    "tenants.IdempotencyRecord": "kept per person and key, never shown",
    "agents.WorkerHost": "a worker serves every organization; operators see it in the admin",
    "budgets.LedgerVerdict": "what the nightly audit of the whole ledger found",
}
# What may follow `.objects` in a door: the wall itself, one organization that an access function
# has let this person into, or nothing at all.
WALLS = {"visible_to", "of_organization", "none"}
# Lines that may reach past it, and why.
BEYOND = {
    "tenants/pages/people.py: User.objects.filter": "an invitation is opened before anybody has signed in",
}


def _is_door(path: str) -> bool:
    return any(part in ("api", "api.py", "pages", "pages.py") for part in path.split("/"))


def test_doors_never_reach_for_all_rows() -> None:
    found = []
    for source in code():
        if not _is_door(source.path):
            continue
        parents = {child: node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr in (
                "objects",
                "_default_manager",
                "_base_manager",
            ):
                after = parents.get(node)
                if not (isinstance(after, ast.Attribute) and after.attr in WALLS):
                    found.append(f"{source.path}: {ast.unparse(after or node)}")
    assert sorted(set(found) - set(BEYOND)) == []


def test_templates_never_reach_for_rows() -> None:
    for path in tracked():
        if path.startswith("templates/"):
            assert ".objects" not in (ROOT / path).read_text(encoding="utf-8"), path


def test_every_row_of_a_tenant_knows_its_organization() -> None:
    for model in apps.get_models():
        if model._meta.app_label not in APPS or model._meta.label in SHARED:
            continue
        assert issubclass(model, TenantModel), f"{model._meta.label}: a TenantModel, or a reason in SHARED"
        assert _end_of(model, model.tenant_path) is Organization, model._meta.label


def _end_of(model: type[models.Model], path: str) -> type[models.Model]:
    for name in filter(None, path.split("__")):
        related = model._meta.get_field(name).related_model
        assert isinstance(related, type), f"{model._meta.label}.{name} leads nowhere"
        model = related
    return model
