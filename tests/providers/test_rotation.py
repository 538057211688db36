"""Rotating the sealing key: every stored key moves to the new one, and no page has to be saved for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command

from providers.models import Connector
from tests.factories.providers import make_connector

pytestmark = pytest.mark.django_db
OLD, NEW, OTHER = (Fernet.generate_key().decode() for _ in range(3))


def test_after_a_rotation_the_older_key_can_be_taken_away(
    with_plane: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 4: encrypted at rest with rotating keys."""
    with_plane(connector_keys=(OLD,))
    made = [make_connector(key=f"sk-{number}") for number in range(2)]
    make_connector(key="")
    with_plane(connector_keys=(NEW, OLD))
    call_command("reseal_connectors")
    with_plane(connector_keys=(NEW,))
    assert [Connector.objects.get(pk=each.pk).open_key() for each in made] == ["sk-0", "sk-1"]
    out = capsys.readouterr().out
    assert "2 keys" in out
    assert "sk-" not in out


def test_a_key_that_nothing_opens_is_named_and_kept(with_plane: Callable[..., Any]) -> None:
    with_plane(connector_keys=(OTHER,))
    lost = make_connector(key="sk-lost", name="lost")
    with_plane(connector_keys=(OLD,))
    fine = make_connector(key="sk-fine")
    with_plane(connector_keys=(NEW, OLD))
    with pytest.raises(CommandError, match=r"/lost$"):
        call_command("reseal_connectors")
    with_plane(connector_keys=(NEW, OTHER))
    assert Connector.objects.get(pk=fine.pk).open_key() == "sk-fine"
    assert Connector.objects.get(pk=lost.pk).open_key() == "sk-lost"
