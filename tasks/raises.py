"""Limits of an organization: what a new one would reopen, and what it reopens (rows 196, 199)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from budgets.decisions import Unit, unit_of
from budgets.keys import MeterKey, MeterKind
from budgets.limits import AlreadyDone, Limit, Unchanged, is_raise, set_limit
from budgets.meters import meter_key, read_meters
from budgets.models import Meter
from budgets.money import Usd
from routing.words import MAX_ATTEMPTS_PER_TIER
from tasks.dependents import BlockedBy, settle_dependents, standings_of, verdicts
from tasks.dispatch import wake_waiting_for_money
from tasks.events import record, record_for_organization
from tasks.fence import resume_work
from tasks.models import Change, Task
from tasks.states import ENDED_CHANGES, ChangeState, TaskState
from tasks.stops import BUDGET_KINDS, RAISED_BY, was_stopped_by
from tasks.transitions import locked_change
from tasks.windows import KEY_CHARACTERS_MAX, check_role, checked_text, reopen
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Organization, Project, Role, User

# The limits that pay for a Change, and that its page offers to raise.
RAISABLE = (
    MeterKind.CHANGE,
    MeterKind.PROJECT,
    MeterKind.USER,
    MeterKind.ORGANIZATION,
    MeterKind.DAILY_CALLS,
    MeterKind.PROVIDER,
)
assert {kind for kinds in RAISED_BY.values() for kind in kinds} == set(RAISABLE), "every stop can be lifted"
# What an organization's admin may limit. The platform's own meter is an operator's.
SETTABLE = tuple(kind for kind in MeterKind if kind is not MeterKind.PLATFORM)
OF_THE_ORGANIZATION = frozenset(
    {MeterKind.ORGANIZATION, MeterKind.DAILY_CALLS, MeterKind.CLASSIFIER_CALLS, MeterKind.EMBEDDINGS}
)
PROVIDER_NAME_CHARACTERS_MAX = 63
BUDGET_RAISED = "budget.raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOf:
    """Whose limit. `change`: the Change in view, whose repeated-failure stops a raise reopens too (row 196)."""

    organization_id: UUID
    kind: MeterKind
    subject: str
    change: Change | None = None

    def key(self, *, now: datetime) -> MeterKey:
        return meter_key(self.kind, self.organization_id, self.subject, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisePreview:
    """What a raise would do, before anybody presses the button. `before` and `to` of None: no limit."""

    kind: MeterKind
    before: Limit
    to: Limit
    spent: Usd | int
    held: Usd | int
    is_raise: bool
    reopens: tuple[Task, ...]
    gives_back: tuple[Task, ...]  # dependents which those stops had blocked
    resumes: tuple[Change, ...]  # Changes whose own work stopped at this limit

    @property
    def stops_the_next_call(self) -> bool:
        """Nothing is left under the new limit."""
        spent, held, to = (_plain(each) for each in (self.spent, self.held, self.to))
        assert spent is not None, "a meter counts from zero"
        assert held is not None, "a meter counts from zero"
        return to is not None and spent + held >= to


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """What a raise did. `replayed`: this key had done it before, and nothing was done now."""

    reopened: tuple[Task, ...]
    changes_resumed: tuple[Change, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSet:
    """What setting a limit did. A lower or equal one reopens nothing (row 199)."""

    before: Limit
    after: Limit
    is_raise: bool
    raised: Raised


def limit_of_subject(
    organization: Organization, kind: MeterKind, subject: str, *, field: str = "subject"
) -> LimitOf:
    """Whose limit a client names. Empty: the organization's own. Raises `NotVisible` for another organization's."""
    if kind not in SETTABLE:
        names = ", ".join(SETTABLE)
        raise InvalidInput(
            "meter", f"{kind} cannot be set here", f"Name one of {names}.", code="not_settable"
        )
    if kind in OF_THE_ORGANIZATION:
        subject = subject or str(organization.pk)
    if not subject:
        raise InvalidInput(field, f"whose {kind} limit is missing", "Give its id, or a connector's name.")
    if kind in OF_THE_ORGANIZATION and subject != str(organization.pk):
        raise NotVisible(str(kind))
    if kind is MeterKind.PROVIDER:
        _check_connector(organization, subject)
        return LimitOf(organization_id=organization.pk, kind=kind, subject=subject)
    try:
        subject = str(UUID(subject))
    except ValueError:
        raise NotVisible(str(kind)) from None
    change = None
    if kind is MeterKind.CHANGE:
        change = Change.objects.of_organization(organization.pk).filter(pk=subject).first()
        if change is None:
            raise NotVisible("change")
    return LimitOf(organization_id=organization.pk, kind=kind, subject=subject, change=change)


def preview_raise(change: Change, kind: MeterKind, to: Limit, *, now: datetime) -> RaisePreview:
    """Only reads. A page shows "this will reopen CH-42/T3, T4" from it."""
    return preview_limit(_limit_for(change, kind), to, now=now)


def preview_limit(whose: LimitOf, to: Limit, *, now: datetime) -> RaisePreview:
    """Only reads: what this limit would reopen, were it set now."""
    reading = read_meters([whose.key(now=now)])[0]
    in_money = unit_of(whose.kind) is Unit.USD
    before: Limit = reading.limit_usd if in_money else reading.limit_calls
    raises = is_raise(before, to)
    stopped = _stopped_tasks(whose) if raises else []
    return RaisePreview(
        kind=whose.kind,
        before=before,
        to=to,
        spent=reading.spent_usd if in_money else reading.spent_calls,
        held=reading.held_usd if in_money else reading.held_calls,
        is_raise=raises,
        reopens=tuple(stopped),
        gives_back=tuple(_given_back(stopped)),
        resumes=tuple(_stopped_changes(whose)) if raises else (),
    )


def raise_budget(
    *,
    change: Change,
    kind: MeterKind,
    to: Limit,
    by: User,
    reason: str,
    key: str,
    expires_at: datetime | None = None,
    now: datetime,
) -> Raised:
    """Raise one of the limits that pay for this Change, and reopen exactly the Tasks that it stopped.

    Row 196: a raise of the change, project or user budget also reopens the Tasks of this Change that
    repeated failures stopped. Once per `key`: the same raise again changes nothing. Raises `RoleTooLow`
    below ADMIN, and `InvalidInput` for what is no raise (row 199).
    """
    if kind not in RAISABLE:
        names = ", ".join(RAISABLE)
        raise InvalidInput(
            "kind", f"{kind} cannot be raised here", f"Name one of {names}.", code="not_raisable"
        )
    if change.project.raise_needs_reason and not reason.strip():
        raise InvalidInput("reason", "this project wants a reason", "Say why.", code="reason_needed")
    with transaction.atomic():
        done = set_budget(
            _limit_for(change, kind), to, by=by, reason=reason, key=key, expires_at=expires_at, now=now
        )
        if not (done.is_raise or done.raised.replayed):
            raise _no_raise(done.before)  # the transaction takes back what was written
        return done.raised


def set_budget(
    whose: LimitOf,
    to: Limit,
    *,
    by: User,
    reason: str,
    key: str,
    expires_at: datetime | None = None,
    now: datetime,
) -> LimitSet:
    """Set a limit up or down. A raise reopens exactly what that limit stopped; anything else reopens nothing.

    Once per `key`. Raises `RoleTooLow` below ADMIN, `KeyReused`, `InvalidInput`, and `NotVisible`.
    """
    check_role(by, whose.organization_id, Role.ADMIN)
    reason = checked_text(reason, key)
    with transaction.atomic():
        for change_id in _changes_to_lock(whose):
            locked_change(change_id)
        done = set_limit(
            organization_id=whose.organization_id,
            kind=whose.kind,
            subject=whose.subject,
            to=to,
            by=by,
            reason=reason,
            key=key,
            expires_at=expires_at,
            reason_needed=_project_wants_reason(whose),
            now=now,
        )
        if isinstance(done, AlreadyDone):
            return _replayed(whose, done, key)
        before, after = _limit(whose.kind, done.before), _limit(whose.kind, done.after)
        raises = not isinstance(done, Unchanged) and is_raise(before, after)
        raised = (
            _lift(whose, by=by, reason=reason, key=_reopening_key(whose.kind, key), now=now)
            if raises
            else Raised(reopened=())
        )
        if raises:
            _record_raise(whose, before, after, by=by, key=key, now=now)
        return LimitSet(before=before, after=after, is_raise=raises, raised=raised)


def _record_raise(whose: LimitOf, before: Limit, after: Limit, *, by: User, key: str, now: datetime) -> None:
    """One event, for the Change's history and for endpoints. The person's reason is in the audit list only."""
    data = {
        "meter": str(whose.kind),
        "subject": whose.subject,
        "unit": str(unit_of(whose.kind)),
        "before": _plain(before),
        "limit": _plain(after),
        "by": str(by.pk),
    }
    once = hashlib.sha256(f"{whose.organization_id}:{whose.kind}:{whose.subject}:{key}".encode()).hexdigest()
    name = f"{BUDGET_RAISED}:{once}"
    if whose.kind is MeterKind.CHANGE and whose.change is not None:
        record(BUDGET_RAISED, change=whose.change, data=data, key=name, now=now)
    else:
        record_for_organization(
            BUDGET_RAISED, organization_id=whose.organization_id, data=data, key=name, now=now
        )


def _replayed(whose: LimitOf, done: AlreadyDone, key: str) -> LimitSet:
    reopened = Task.objects.of_organization(whose.organization_id).filter(
        reopenings__key=_reopening_key(whose.kind, key)
    )
    before, after = _limit(whose.kind, done.change.before), _limit(whose.kind, done.change.after)
    raised = Raised(reopened=tuple(reopened.select_related("change")), replayed=True)
    return LimitSet(before=before, after=after, is_raise=is_raise(before, after), raised=raised)


def _lift(whose: LimitOf, *, by: User, reason: str, key: str, now: datetime) -> Raised:
    stopped = _stopped_tasks(whose)
    reopened = [task for task in stopped if reopen(task, by=by, reason=reason, key=key, now=now)]
    for touched in {task.change_id for task in reopened}:
        settle_dependents(locked_change(touched), now=now)
    resumed = [one for one in _stopped_changes(whose) if resume_work(one, because="raised", now=now)]
    wake_waiting_for_money(whose.organization_id, now=now)
    for task in reopened:
        task.refresh_from_db()
    return Raised(reopened=tuple(reopened), changes_resumed=tuple(resumed))


def _stopped_tasks(whose: LimitOf) -> list[Task]:
    """Exactly the Tasks which that limit stopped; of the Change in view also those that failed too often (row 196)."""
    limits = [limit for limit in _limits_of(whose.kind) if limit != MAX_ATTEMPTS_PER_TIER]
    by_limit = Q(stop_limit__in=limits) & _scope_of(whose, "change__")
    replanned = (
        Q(stop_limit=MAX_ATTEMPTS_PER_TIER, change=whose.change)
        if whose.change is not None and whose.kind in BUDGET_KINDS
        else Q(pk=None)
    )
    tasks: QuerySet[Task] = Task.objects.filter(by_limit | replanned, state=TaskState.BLOCKED).exclude(
        change__state__in=ENDED_CHANGES
    )
    found = tasks.select_related("change").order_by("change_id", "position")
    return [task for task in found if was_stopped_by(whose.kind, task.stop_limit, task.stop_detail)]


def _stopped_changes(whose: LimitOf) -> list[Change]:
    changes: QuerySet[Change] = Change.objects.filter(
        _scope_of(whose, ""),
        state=ChangeState.BUDGET_BLOCKED,
        stop_limit__in=_limits_of(whose.kind),
        stop_detail__has_key="work",
    )
    return [
        one for one in changes.order_by("pk") if was_stopped_by(whose.kind, one.stop_limit, one.stop_detail)
    ]


def _limits_of(kind: MeterKind) -> list[str]:
    return [limit for limit, kinds in RAISED_BY.items() if kind in kinds]


def _scope_of(whose: LimitOf, path: str) -> Q:
    within = Q(**{f"{path}organization_id": whose.organization_id})
    match whose.kind:
        case MeterKind.CHANGE:
            return within & Q(**{f"{path}pk": whose.subject})
        case MeterKind.PROJECT:
            return within & Q(**{f"{path}project_id": whose.subject})
        case MeterKind.USER:
            return within & Q(**{f"{path}author_id": whose.subject})
        case MeterKind.PROVIDER:
            return within & Q(**{f"{path}project__connector": whose.subject})
        case _:
            return within


def _changes_to_lock(whose: LimitOf) -> list[UUID]:
    """In the order of their ids, so that two raises cannot wait for each other."""
    touched = {task.change_id for task in _stopped_tasks(whose)} | {one.pk for one in _stopped_changes(whose)}
    return sorted(touched | ({whose.change.pk} if whose.change else set()))


def _given_back(stopped: Sequence[Task]) -> Iterable[Task]:
    lifted = {task.pk for task in stopped}
    for change_id in dict.fromkeys(task.change_id for task in stopped):
        tasks = {task.pk: task for task in Task.objects.filter(change_id=change_id)}
        after = [
            replace(one, stopped=False, state=TaskState.PENDING) if one.id in lifted else one
            for one in standings_of(tasks)
        ]
        for task_id, verdict in verdicts(after).items():
            was_blocked = tasks[task_id].state == TaskState.BLOCKED and task_id not in lifted
            if was_blocked and not isinstance(verdict, BlockedBy):
                yield tasks[task_id]


def _limit_for(change: Change, kind: MeterKind) -> LimitOf:
    """The limit of that kind which pays for this Change."""
    return LimitOf(
        organization_id=change.organization_id, kind=kind, subject=_subject_of(change, kind), change=change
    )


def _project_wants_reason(whose: LimitOf) -> bool:
    """Of a Change's limit; of a project's own the ledger asks by itself."""
    wants: bool = whose.change is not None and whose.change.project.raise_needs_reason
    return wants


def _check_connector(organization: Organization, name: str) -> None:
    """An account that a project pays with, or that was paid with this once."""
    if (
        "\0" in name
        or len(name) > PROVIDER_NAME_CHARACTERS_MAX
        or not (
            Project.objects.of_organization(organization.pk).filter(connector=name).exists()
            or Meter.objects.of_organization(organization.pk)
            .filter(kind=MeterKind.PROVIDER, subject=name)
            .exists()
        )
    ):
        raise NotVisible("connector")


def _no_raise(before: Limit) -> InvalidInput:
    now_at = "unlimited" if before is None else str(before)
    return InvalidInput(
        "to", f"this is not more than the limit of now ({now_at})", "Name a higher one.", code="not_a_raise"
    )


def _limit(kind: MeterKind, value: int | None) -> Limit:
    if value is None:
        return None
    return Usd(value) if unit_of(kind) is Unit.USD else value


def _plain(value: Limit) -> int | None:
    return value.micro if isinstance(value, Usd) else value


def _reopening_key(kind: MeterKind, key: str) -> str:
    """Of the key as a whole: one that is too long is not cut, or two of them would be one."""
    name = f"{kind}:{key}"
    return name if len(name) <= KEY_CHARACTERS_MAX else f"{kind}:{hashlib.sha256(key.encode()).hexdigest()}"


def _subject_of(change: Change, kind: MeterKind) -> str:
    subjects = {
        MeterKind.CHANGE: change.pk,
        MeterKind.PROJECT: change.project_id,
        MeterKind.USER: change.author_id,
        MeterKind.PROVIDER: change.project.connector,
    }
    return str(subjects.get(kind, change.organization_id))
