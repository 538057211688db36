"""Connectors as people save them: checked before they are stored, sealed, audited. No door gives a key out again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F

from providers.account import check_account, read_options
from providers.catalog import price_card
from providers.connectors import scripted_entries
from providers.errors import RequestRefused
from providers.messages import ModelRequest, UserMessage
from providers.models import Connector, ConnectorKind
from providers.plans import Plan, plan_data, read_plan
from providers.scenarios import ScenarioError
from providers.stand_ins import check_plan
from tenants.access import require_role
from tenants.audit import note
from tenants.errors import InvalidInput, NotVisible
from tenants.models import SLUG, Organization, Role, User

CONNECTORS_MAX = 50
CONFIG_CHARACTERS_MAX = 1_000_000
SMALLEST_OUTPUT_TOKENS = 16
# What "test this connector" asks when the account has no names of its own.
_SMALLEST_MODEL = {
    ConnectorKind.ANTHROPIC: "claude-haiku-5-5",
    ConnectorKind.OPENAI: "gpt-4o-mini",
    ConnectorKind.OPENROUTER: "anthropic/claude-haiku-5.5",
    ConnectorKind.GOOGLE: "gemini-2.5-flash",
    ConnectorKind.SCRIPTED: "claude-haiku-5-5",
}
assert set(_SMALLEST_MODEL) == set(ConnectorKind)
# An escaped NUL, and not an escaped backslash before four noughts.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_FIELDS = frozenset({"base_url", "key", "headers", "config", "fallback"})


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A connector as somebody wants it. `key` and `fallback` None keep what is stored, "" and {} remove it."""

    name: str
    kind: str
    base_url: str = ""
    key: str | None = None
    headers: Mapping[str, str]
    config: Mapping[str, Any]
    fallback: Mapping[str, Any] | None = None
    enabled: bool = True

    def __repr__(self) -> str:
        return f"<Wanted {self.name} {self.kind}>"


def save_connector(  # the one way in, for pages, REST, admin and commands
    organization: Organization,
    *,
    name: str,
    kind: str,
    base_url: str = "",
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    fallback: Mapping[str, Any] | None = None,
    enabled: bool = True,
    new: bool = False,
    by: User | None,
) -> Connector:
    """Make the organization's connector of that name, or change it. `by` None is Remit's own command.

    `new` makes one only: of two people who make the same name at once, the second is told.
    Raises InvalidInput with the field, and RoleTooLow for less than an admin.
    """
    if by is not None:
        require_role(by, organization.pk, Role.ADMIN)
    wanted = Wanted(
        name=name.strip(),
        kind=kind,
        base_url=base_url.strip(),
        key=key,
        headers=dict(headers or {}),
        config=dict(config or {}),
        fallback=fallback,
        enabled=enabled,
    )
    _check_shape(wanted)
    try:
        with transaction.atomic():
            return _store(organization, wanted, by, new=new)
    except IntegrityError:
        problem = "was made by somebody else just now"
        raise InvalidInput("name", problem, "Look at it before you change it.", code="taken") from None


def set_fallback(
    connector: Connector, fallback: Mapping[str, Any], *, by: User, operator: bool = False
) -> Connector:
    """Say who stands in for this connector, and nothing else. An operator may do it from outside the organization."""
    if not operator:
        require_role(by, connector.organization_id, Role.ADMIN)
    if not _can_be_stored(fallback):
        raise InvalidInput("fallback", "holds a NUL or half a character", "Correct it and save again.")
    plan, organization = _plan(fallback), connector.organization
    with transaction.atomic():
        row: Connector = (
            Connector.objects.of_organization(organization.pk).select_for_update().get(pk=connector.pk)
        )
        before = _facts(row)
        _take_plan(row, organization, plan)
        row.version += 1
        row.save()
        note(organization, by, "connector.saved", row.name, before=before, after=_facts(row))
    return row


def switch_connector(
    connector: Connector, *, enabled: bool, by: User | None, operator: bool = False, reason: str = ""
) -> Connector:
    """Enable or disable. A disabled connector is not found by anybody, from the next call on.

    An operator of the deployment may do it from outside the organization.
    """
    if by is not None and not operator:
        require_role(by, connector.organization_id, Role.ADMIN)
    with transaction.atomic():
        changed = Connector.objects.of_organization(connector.organization_id).filter(
            pk=connector.pk, enabled=not enabled
        )
        if changed.update(enabled=enabled, version=F("version") + 1):
            action = "connector.enabled" if enabled else "connector.disabled"
            note(connector.organization, by, action, connector.name, reason=reason)
    connector.refresh_from_db()
    return connector


def connector_of(organization: Organization, connector_id: UUID) -> Connector:
    """One of this organization's, looked up together with it."""
    rows = Connector.objects.of_organization(organization.pk).select_related("organization")
    connector: Connector | None = rows.filter(pk=connector_id).first()
    if connector is None:
        raise NotVisible("connector")
    return connector


def smallest_request(connector: Connector) -> ModelRequest:
    """The cheapest question that shows whether this account answers. It is sent through the metered door."""
    model = _SMALLEST_MODEL[ConnectorKind(connector.kind)]
    named = (
        next(iter(read_options(connector.config).models), None)
        if connector.kind != ConnectorKind.SCRIPTED
        else None
    )
    return ModelRequest(
        model=named or model,
        messages=(UserMessage.of("Answer with the word ok."),),
        output_tokens_max=SMALLEST_OUTPUT_TOKENS,
        labels={"role": "connector_test"},
    )


def _store(organization: Organization, wanted: Wanted, by: User | None, *, new: bool) -> Connector:
    rows = Connector.objects.of_organization(organization.pk).select_for_update()
    known: Connector | None = rows.filter(name=wanted.name).first()
    if known is not None and new:
        raise InvalidInput("name", "is taken here", "Choose another, or change that connector.", code="taken")
    if known is None and rows.count() >= CONNECTORS_MAX:
        raise InvalidInput(
            "name", f"an organization has at most {CONNECTORS_MAX} connectors", "Change one of them."
        )
    before = None if known is None else _facts(known)
    connector = known or Connector(organization=organization, name=wanted.name, kind=wanted.kind)
    _check_own_prices({} if known is None else known.config, wanted.config)
    if known is not None:
        _check_same_address(known, wanted)
        connector.version += 1
    connector.kind, connector.base_url, connector.enabled = wanted.kind, wanted.base_url, wanted.enabled
    connector.headers, connector.config = dict(wanted.headers), dict(wanted.config)
    if wanted.fallback is not None:
        _take_plan(connector, organization, _plan(wanted.fallback))
    if wanted.key is not None:
        connector.seal_key(wanted.key)
    _check_scenarios(connector)
    connector.save()
    after = _facts(connector) | ({"key": "changed"} if wanted.key is not None else {})
    note(
        organization,
        by,
        "connector.saved" if known else "connector.made",
        wanted.name,
        before=before,
        after=after,
    )
    return connector


def _plan(fallback: Mapping[str, Any]) -> Plan | None:
    try:
        return read_plan(fallback)
    except RequestRefused as refused:
        raise InvalidInput("fallback", str(refused), "Correct it and save again.") from None


def _take_plan(connector: Connector, organization: Organization, plan: Plan | None) -> None:
    """A plan that stays as it is is not looked at again: what has become of others must not stop another change."""
    wanted = plan_data(plan)
    if wanted != connector.fallback:
        check_plan(organization, connector.name, plan)
        connector.fallback = wanted


def _check_shape(wanted: Wanted) -> None:
    try:
        SLUG(wanted.name)
    except ValidationError as error:
        raise InvalidInput("name", "is no short name", f"{error.messages[0].capitalize()}.") from None
    if wanted.kind not in ConnectorKind.values:
        raise InvalidInput(
            "kind", "is no kind of connector", f"Choose one of {', '.join(ConnectorKind.values)}."
        )
    for field, given in (("config", wanted.config), ("fallback", wanted.fallback)):
        if not _can_be_stored(given):
            problem = "holds a NUL, half a character, or a number that is too large"
            raise InvalidInput(field, problem, "Correct it and save again.")
    if len(str(wanted.config)) > CONFIG_CHARACTERS_MAX:
        raise InvalidInput("config", "is too long", f"Use at most {CONFIG_CHARACTERS_MAX:,} characters.")
    try:
        check_account(
            base_url=wanted.base_url,
            key=wanted.key or "",
            headers=wanted.headers,
            private_addresses=settings.PLANE.private_addresses,
        )
        read_options(wanted.config)
    except RequestRefused as refused:
        field = refused.code if refused.code in _FIELDS else "config"
        raise InvalidInput(field, str(refused), "Correct it and save again.", code=_code(refused)) from None


def _can_be_stored(given: object) -> bool:
    """As JSON in every database: what a page's own reader lets through, not all of them take."""
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return _NUL.search(text) is None


def _check_same_address(known: Connector, wanted: Wanted) -> None:
    """A stored key goes to the address it was stored for: whoever points it elsewhere must know it."""
    moved = (known.base_url, known.kind) != (wanted.base_url, wanted.kind)
    if moved and known.has_key and wanted.key is None:
        problem = "must be given again when the address or the kind changes"
        raise InvalidInput("key", problem, "Type the key for the new address.", code="key_needed")


def _check_own_prices(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Prices of listed models are the operator's to state: they decide what the deployment's own meter counts.

    One that is there already stays, also when a list has learned the model meanwhile.
    """
    before = known.get("prices", {})
    for model, said in wanted.get("prices", {}).items():
        if before.get(model) != said and price_card(model) is not None:
            problem = f"prices.{model}: the price of this model is known"
            raise InvalidInput(
                "config", problem, "Leave it out, or have the operator state another.", code="price_known"
            )


def _check_scenarios(connector: Connector) -> None:
    if connector.kind != ConnectorKind.SCRIPTED:
        return
    try:
        scripted_entries(connector)
    except (RequestRefused, ScenarioError) as error:
        raise InvalidInput("config", str(error), "Name a scenario file that can be played.") from None


def _facts(connector: Connector) -> dict[str, Any]:
    """For the audit list: no key, no header values, no scripts."""
    return {
        "kind": connector.kind,
        "base_url": connector.base_url,
        "has_key": connector.has_key,
        "headers": sorted(connector.headers),
        "config": sorted(connector.config),
        "prices": connector.config.get("prices", {}),
        "fallback": connector.fallback,
        "enabled": connector.enabled,
    }


def _code(refused: RequestRefused) -> str:
    return "invalid" if refused.code in _FIELDS else refused.code
