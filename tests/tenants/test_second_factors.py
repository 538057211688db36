"""Second factors at rest: whoever reads a copy of the database can make no code from it."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import (
    TOTP,
    format_hotp_value,
    generate_totp_secret,
    hotp_value,
    yield_hotp_counters_from_time,
)
from cryptography.fernet import Fernet
from django.apps import apps
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from config.accounts import SEALED
from tenants.errors import FactorUnreadable
from tenants.models import User
from tests.factories.tenants import PASSWORD, make_user

pytestmark = pytest.mark.django_db
OLD, NEW, OTHER = (Fernet.generate_key().decode() for _ in range(3))


def code_of(secret: str) -> str:
    return str(format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time())))))


def everything_stored() -> str:
    """Every row of every table as text, and every session as its server reads it."""
    rows = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            rows += [str(row) for row in cursor.fetchall()]
    return "\n".join(rows + [str(session.get_decoded()) for session in Session.objects.all()])


def with_factors(user: User) -> tuple[str, list[str]]:
    """An authenticator app and recovery codes, as the pages make them: the secret, and the codes."""
    secret = generate_totp_secret()
    TOTP.activate(user, secret)
    return secret, RecoveryCodes.activate(user).generate_codes()


def test_neither_secret_nor_codes_lie_in_the_database_after_the_set_up_in_the_browser(client: Client) -> None:
    """Issue 6: the whole way, from the password to a sign-in by code and one by a recovery code."""
    user = make_user("ada@example.org", password=PASSWORD)
    activate = reverse("mfa_activate_totp")
    client.post(reverse("account_login"), {"login": user.email, "password": PASSWORD})
    page = client.get(activate, follow=True)
    if page.redirect_chain:  # a password is asked once more before a factor is made
        page = client.post(page.redirect_chain[-1][0], {"password": PASSWORD}, follow=True)
    secret = page.context["form"].secret
    assert secret in page.content.decode()
    made = client.post(activate, {"code": code_of(secret)}, follow=True)
    codes = re.findall(r"\b\d{8}\b", made.content.decode())
    assert len(codes) >= 10, "the recovery codes are shown"
    stored = everything_stored()
    seed = RecoveryCodes(Authenticator.objects.get(type="recovery_codes"))
    assert user.email in stored, "the whole database was read"
    assert not [hidden for hidden in (secret, *codes) if hidden in stored]
    assert all(
        text.startswith(SEALED)
        for factor in Authenticator.objects.all()
        for text in factor.data.values()
        if isinstance(text, str)
    )
    assert set(codes) >= set(seed.generate_codes())

    for code in (code_of(secret), codes[0]):
        cache.clear()  # the code of the set-up was used within this half minute
        other = Client()
        other.post(reverse("account_login"), {"login": user.email, "password": PASSWORD})
        assert "_auth_user_id" not in other.session, "the password alone opens nothing"
        other.post(reverse("mfa_authenticate"), {"code": code})
        assert other.session["_auth_user_id"] == str(user.pk), code


def test_after_a_rotation_the_older_key_can_be_taken_away(
    with_plane: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with_plane(connector_keys=(OLD,))
    user = make_user()
    secret, codes = with_factors(user)
    with_plane(connector_keys=(NEW, OLD))
    call_command("reseal_factors")
    assert "2 second factors" in capsys.readouterr().out
    with_plane(connector_keys=(NEW,))
    assert TOTP(Authenticator.objects.get(type="totp")).validate_code(code_of(secret))
    assert RecoveryCodes(Authenticator.objects.get(type="recovery_codes")).get_unused_codes() == codes


def test_a_factor_that_nothing_opens_is_named_and_lets_nobody_in(
    client: Client, with_plane: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clear answer, and neither a crash nor a way around the second factor."""
    with_plane(connector_keys=(OTHER,))
    user = make_user("lost@example.org", password=PASSWORD)
    secret, codes = with_factors(user)
    with_plane(connector_keys=(OLD,))
    with_factors(make_user("fine@example.org"))
    with_plane(connector_keys=(NEW, OLD))
    with pytest.raises(
        CommandError, match=r"lost@example\.org \(totp\), lost@example\.org \(recovery_codes\)"
    ):
        call_command("reseal_factors")
    assert "2 second factors" in capsys.readouterr().out
    client.post(reverse("account_login"), {"login": user.email, "password": PASSWORD})
    for code in (code_of(secret), codes[0]):
        answer = client.post(reverse("mfa_authenticate"), {"code": code})
        assert answer.status_code == 409
        assert "put the earlier sealing key back" in answer.content.decode()
        assert "_auth_user_id" not in client.session
    with pytest.raises(FactorUnreadable):
        get_adapter().decrypt(Authenticator.objects.filter(user=user, type="totp").get().data["secret"])


def test_what_was_stored_before_is_sealed_by_the_migration_and_opened_by_its_way_back() -> None:
    """Rows in the clear, as allauth leaves them; also codes that somebody brought from another program."""
    secret, seed = generate_totp_secret(), RecoveryCodes.generate_seed()
    plain: list[tuple[str, dict[str, Any]]] = [
        ("totp", {"secret": secret}),
        ("recovery_codes", {"seed": seed, "used_mask": 5}),
        ("recovery_codes", {"migrated_codes": ["one", "two"]}),
        ("webauthn", {"name": "Key", "credential": {"id": "public"}}),
    ]
    factors = [Authenticator.objects.create(user=make_user(), type=kind, data=data) for kind, data in plain]
    migration = import_module("tenants.migrations.0007_seal_second_factors")
    for _ in range(2):  # twice does no harm
        migration.seal_all(apps, None)
    stored = everything_stored()
    assert not [hidden for hidden in (secret, seed, "'one'", '"one"') if hidden in stored]
    totp, codes, brought, key = (Authenticator.objects.get(pk=each.pk) for each in factors)
    assert TOTP(totp).validate_code(code_of(secret))
    assert codes.data["used_mask"] == 5
    assert RecoveryCodes(brought).get_unused_codes() == ["one", "two"]
    assert key.data == plain[3][1]
    migration.open_all(apps, None)
    again = [Authenticator.objects.get(pk=each.pk).data for each in factors]
    assert again == [data for _, data in plain]


def test_what_an_older_process_writes_during_an_upgrade_still_opens_and_is_sealed_by_the_command() -> None:
    secret = generate_totp_secret()
    factor = Authenticator.objects.create(user=make_user(), type="totp", data={"secret": secret})
    assert TOTP(factor).validate_code(code_of(secret))
    call_command("reseal_factors")
    factor.refresh_from_db()
    assert factor.data["secret"].startswith(SEALED)
    cache.clear()
    assert TOTP(factor).validate_code(code_of(secret))
