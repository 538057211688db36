"""Connectors: the organization's own, lazily built, keys sealed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from providers import sealing
from providers.connectors import connector_for
from providers.errors import ConnectorNotFound, RequestRefused
from providers.messages import ModelRequest, UserMessage
from providers.models import Connector, ConnectorKind
from tests.factories.providers import make_connector

pytestmark = pytest.mark.django_db
KEY = "sk-test-0123456789-secret"


def ask() -> ModelRequest:
    return ModelRequest(model="claude-haiku-5-5", messages=(UserMessage.of("hi"),), output_tokens_max=10)


def test_a_connector_of_another_organization_is_not_found() -> None:
    """Row 3, acceptance 1a: nothing falls back to another tenant's account of the same name."""
    theirs, ours = make_connector(name="helper"), make_connector(name="main")
    with pytest.raises(ConnectorNotFound, match="'helper'"):
        connector_for(ours.organization_id, "helper")
    assert connector_for(theirs.organization_id, "helper").account == f"scripted:{theirs.pk}"


def test_a_disabled_connector_is_not_found() -> None:
    row = make_connector(enabled=False)
    with pytest.raises(ConnectorNotFound):
        connector_for(row.organization_id, "main")


def test_a_gateway_is_kept_and_rebuilt_when_its_row_changed() -> None:
    row = make_connector()
    first = connector_for(row.organization_id, "main")
    assert connector_for(row.organization_id, "main") is first
    Connector.objects.filter(pk=row.pk).update(version=2, config={"inline": [{"steps": [{"text": "new"}]}]})
    again = connector_for(row.organization_id, "main")
    assert again.send(ask(), seconds_max=1).text == "new"


def test_a_scenario_path_stays_inside_the_data_directory(settings: Any, tmp_path: Path) -> None:
    data = tmp_path / "var"
    (data / "s").mkdir(parents=True)
    (data / "s" / "a.yaml").write_text("scenarios: [{steps: [{text: from a file}]}]")
    (tmp_path / "outside.yaml").write_text("scenarios: [{steps: [{text: outside}]}]")
    settings.PLANE = replace(settings.PLANE, data_dir=data)
    row = make_connector(config={"scenarios": "s"})
    assert connector_for(row.organization_id, "main").send(ask(), seconds_max=1).text == "from a file"
    for said in ("../outside.yaml", str(tmp_path / "outside.yaml"), "nothing.yaml", ""):
        Connector.objects.filter(pk=row.pk).update(config={"scenarios": said})
        with pytest.raises(RequestRefused) as caught:
            connector_for(row.organization_id, "main")
        assert caught.value.code == "no_scenario"


def test_a_key_is_sealed_at_rest_and_in_no_repr() -> None:
    """Row 4."""
    row = make_connector(key=KEY)
    row.refresh_from_db()
    assert row.open_key() == KEY
    assert row.has_key
    seen = [repr(row), str(row), row.sealed_key, repr(vars(row))]
    assert not any(KEY in text for text in seen)


def test_sealing_keys_rotate(settings: Any) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.PLANE = replace(settings.PLANE, connector_keys=(old,))
    row = make_connector(key=KEY)
    settings.PLANE = replace(settings.PLANE, connector_keys=(new, old))
    assert row.open_key() == KEY
    moved = sealing.seal(
        sealing.unseal(row.sealed_key, keys=(new, old), secret_key=""), keys=(new, old), secret_key=""
    )
    assert sealing.unseal(moved, keys=(new,), secret_key="") == KEY
    with pytest.raises(sealing.KeyUnreadable):
        sealing.unseal(row.sealed_key, keys=(new,), secret_key="")
    settings.PLANE = replace(settings.PLANE, connector_keys=(new,))
    Connector.objects.filter(pk=row.pk).update(kind="anthropic", config={})
    with pytest.raises(RequestRefused, match="put the earlier sealing key back"):
        connector_for(row.organization_id, "main")


@pytest.mark.parametrize("kind", [kind for kind in ConnectorKind if kind != "scripted"])
def test_every_kind_has_its_wire(kind: ConnectorKind) -> None:
    row = make_connector(kind=kind, config={}, key=KEY)
    gateway = connector_for(row.organization_id, "main")
    assert gateway.account == f"{kind}:{row.pk}"
    assert KEY not in repr(gateway)


def test_a_name_is_free_in_each_organization() -> None:
    assert make_connector().name == make_connector().name == "main"
