"""connector_for(organization, name): the only way to an account, and never to another tenant's (row 3)."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import structlog
from django.conf import settings

from providers.account import Account, Options, check_account, read_options
from providers.anthropic import AnthropicGateway
from providers.embeddings import Embedder, HashingEmbedder, HttpEmbedder
from providers.errors import ConnectorNotFound, RequestRefused
from providers.fallback import FallbackGateway, Target
from providers.gateway import Gateway
from providers.google import GoogleGateway
from providers.models import Connector, ConnectorKind
from providers.openai_chat import OpenAIGateway, OpenRouterGateway
from providers.plans import Plan, read_plan
from providers.scenarios import Entry, ScenarioError, load_scenarios, read_entries
from providers.scripted import ScriptedGateway
from providers.sealing import KeyUnreadable
from providers.wire import HttpGateway

log = structlog.get_logger(__name__)

# Where a relative path of a scripted connector may lie, searched in this order.
DEMO_FOLDER = Path("tasks") / "demo"

_WIRES: dict[ConnectorKind, type[HttpGateway]] = {
    ConnectorKind.ANTHROPIC: AnthropicGateway,
    ConnectorKind.OPENAI: OpenAIGateway,
    ConnectorKind.OPENROUTER: OpenRouterGateway,
    ConnectorKind.GOOGLE: GoogleGateway,
}
assert {*_WIRES, ConnectorKind.SCRIPTED} == set(ConnectorKind), "every kind has a wire"

_built: dict[UUID, tuple[int, object, Gateway]] = {}
_built_by = os.getpid()
_embedders: dict[tuple[int, str, str], Embedder] = {}
_lock = threading.Lock()


def connector_for(organization_id: UUID, name: str) -> Gateway:
    """The gateway of an organization's enabled connector of that name.

    Raises `ConnectorNotFound` before any packet or IO, also for another tenant's name.
    Clients are built lazily in each process (never before a fork), kept, and rebuilt when
    the row or its scenario file changed.
    """
    return gateway_of(_enabled(organization_id, [name], name)[name])


def line_for(organization_id: UUID, name: str) -> Gateway:
    """The same, with whoever stands in for it: the chain of its plan, or its one gateway when it has none.

    A stand-in that is disabled by now, or that cannot be opened, is left out: it must not stop the account
    that it would only replace. Chains remember who failed, so each run asks for one of its own.
    """
    first = _enabled(organization_id, [name], name)[name]
    plan = read_plan(first.fallback)
    if plan is None:
        return gateway_of(first)
    return FallbackGateway(
        (Target(gateway_of(first), connector=name), *_stand_ins(first, plan)), policy=plan.policy
    )


def _enabled(organization_id: UUID, names: Sequence[str], needed: str) -> dict[str, Connector]:
    rows = Connector.objects.of_organization(organization_id).filter(name__in=names, enabled=True)
    found = {row.name: row for row in rows}
    if needed and needed not in found:
        raise ConnectorNotFound(needed)
    return found


def _stand_ins(first: Connector, plan: Plan) -> list[Target]:
    rows = _enabled(first.organization_id, [each.connector for each in plan.stand_ins], "")
    targets = []
    for each in plan.stand_ins:
        row = rows.get(each.connector)
        try:
            gateway = None if row is None else gateway_of(row)
        except RequestRefused as refused:
            log.warning(
                "a stand-in cannot be opened", connector=each.connector, problem=refused.code, of=first.name
            )
            continue
        if gateway is not None:
            targets.append(Target(gateway, connector=each.connector, models=each.models))
    return targets


def options_of(organization_id: UUID, name: str) -> Options:
    """How an account names and prices models; the defaults for one that is not there or cannot be read any more."""
    row = _enabled(organization_id, [name], "").get(name)
    try:
        return Options() if row is None else read_options(row.config)
    except RequestRefused:
        return Options()


def gateway_of(connector: Connector) -> Gateway:
    """The gateway of a row that its caller was allowed to see."""
    global _built_by  # noqa: PLW0603 - one cache per process
    stamp = _stamp(connector)
    with _lock:
        if _built_by != os.getpid():
            _built.clear()
            _built_by = os.getpid()
        known = _built.get(connector.pk)
        if known is None or known[:2] != (connector.version, stamp):
            known = (connector.version, stamp, _build(connector))
            _built[connector.pk] = known
        return known[2]


def embedder() -> Embedder:
    """The deployment's embed service: built in and lexical, or the one it was given."""
    plane = settings.PLANE
    if plane.embeddings == "hashing":
        return HashingEmbedder()
    account = Account(
        name="embeddings", base_url=plane.embeddings_url, key=plane.embeddings_key, private_addresses=True
    )
    with _lock:
        place = (os.getpid(), plane.embeddings_url, plane.embeddings_model)
        if place not in _embedders:
            _embedders[place] = HttpEmbedder(account, model=plane.embeddings_model)
        return _embedders[place]


def account_of(connector: Connector) -> str:
    """The stable name of the paying account: the row's id, since names may be given again."""
    return f"{connector.kind}:{connector.pk}"


def account_for(connector: Connector) -> Account:
    """The row as the wires know it. Checked again here: rules may have become stricter since it was saved."""
    options = read_options(connector.config)
    try:
        key = connector.open_key()
    except KeyUnreadable as error:
        raise RequestRefused("key_unreadable", f"connector {connector.name!r}: {error}") from None
    check_account(
        base_url=connector.base_url,
        key=key,
        headers=connector.headers,
        private_addresses=settings.PLANE.private_addresses,
    )
    return Account(
        name=account_of(connector),
        base_url=connector.base_url,
        key=key,
        headers={name.lower(): value for name, value in connector.headers.items()},
        options=options,
        private_addresses=settings.PLANE.private_addresses,
    )


def _build(connector: Connector) -> Gateway:
    if connector.kind == ConnectorKind.SCRIPTED:
        return _scripted(connector)
    return _WIRES[ConnectorKind(connector.kind)](account_for(connector))


def scripted_entries(connector: Connector) -> tuple[Entry, ...]:
    """What a scripted connector plays; raises `ScenarioError` or `RequestRefused` when it cannot be played."""
    inline = connector.config.get("inline")
    if inline is not None:
        return read_entries(inline, source=f"connector {connector.name}")
    return load_scenarios(_scenario_path(connector))


def _scripted(connector: Connector) -> Gateway:
    try:
        return ScriptedGateway(scripted_entries(connector), account=account_of(connector))
    except ScenarioError as error:  # the file was changed after the connector was saved
        raise RequestRefused("bad_scenario", str(error)) from None


def _stamp(connector: Connector) -> object:
    """Changes when a scenario file does, so that a person can edit a script while it plays."""
    if connector.kind != ConnectorKind.SCRIPTED or "inline" in connector.config:
        return None
    path = _scenario_path(connector)
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return tuple((file.name, file.stat().st_mtime_ns) for file in files)


def _scenario_path(connector: Connector) -> Path:
    """A scenario path is relative to the data directory or the demo's folder, and stays inside it."""
    said = str(connector.config.get("scenarios", ""))
    if not said:
        raise RequestRefused("no_scenario", f"connector {connector.name!r}: config.scenarios names no file")
    for root in (settings.PLANE.data_dir, settings.BASE_DIR / DEMO_FOLDER):
        root_path = Path(root).resolve()
        path = (root_path / said).resolve()
        if path.is_relative_to(root_path) and path.exists():
            return path
    raise RequestRefused("no_scenario", f"connector {connector.name!r}: no scenario file {said!r}")
