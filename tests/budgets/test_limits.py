"""Setting limits: audited, once per key, with an expiry, and safe against bad input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction
from django.utils import timezone

from budgets.audit import find_problems
from budgets.decisions import Amount, Unit
from budgets.errors import KeyReused
from budgets.keys import MeterKey, MeterKind
from budgets.limits import AlreadyDone, Unchanged, is_raise, limit_of, read_limit, return_expired
from budgets.meters import at_period, follow_defaults, read_meters, refusals
from budgets.models import LimitChange, LimitRule, Meter
from budgets.money import Usd
from budgets.reservations import settle
from providers.messages import Usage
from tenants.errors import InvalidInput, NotVisible
from tenants.models import AuditEntry
from tests.factories.budgets import NOON, limit, make_hold, make_payers
from tests.factories.tenants import make_member, make_organization, make_project

pytestmark = pytest.mark.django_db

USAGE = Usage(input_uncached=10, output=10)


def organization_key() -> MeterKey:
    return next(key for key in make_payers() if key.kind is MeterKind.ORGANIZATION)


def in_force(key: MeterKey, now: datetime = NOON) -> object:
    return limit_of(organization_id=key.organization_id, kind=key.kind, subject=key.subject, now=now)


def test_a_raise_is_written_down_and_works_at_once_and_later() -> None:
    """Rows 196 to 199: who, when, from, to, why, key."""
    key = organization_key()
    member = make_member()
    make_hold((key,))
    change = limit(key, Usd(50_000_000), by=member, reason="more work", key="k1")
    assert isinstance(change, LimitChange)
    assert (change.before, change.after, change.by, change.reason, change.at, change.key) == (
        10_000_000,
        50_000_000,
        member,
        "more work",
        NOON,
        "k1",
    )
    assert read_meters([key])[0].limit_usd == Usd(50_000_000)
    assert in_force(key, NOON + timedelta(days=40)) == Usd(50_000_000)
    entry = AuditEntry.objects.get(action="limit.set")
    assert (entry.actor, entry.before, entry.reason) == (
        member,
        {"limit": 10_000_000, "unit": "usd"},
        "more work",
    )


def test_the_same_key_sets_a_limit_once_and_with_another_amount_never() -> None:
    key = organization_key()
    limit(key, Usd(20_000_000), key="k1")
    limit(key, Usd(30_000_000), key="k2")
    assert isinstance(limit(key, Usd(20_000_000), key="k1"), AlreadyDone)
    assert in_force(key) == Usd(30_000_000), "the repetition did not set it again"
    with pytest.raises(KeyReused):
        limit(key, Usd(21_000_000), key="k1")
    assert LimitChange.objects.count() == 2
    # Another organization's key of the same text is its own.
    assert isinstance(limit(organization_key(), Usd(20_000_000), key="k1"), LimitChange)


def test_an_equal_value_is_no_change() -> None:
    key = organization_key()
    assert limit(key, Usd(10_000_000)) == Unchanged(10_000_000, 10_000_000)
    assert not LimitChange.objects.exists()


@pytest.mark.parametrize(
    ("before", "after", "raised"),
    [
        (Usd(5), Usd(6), True),
        (Usd(5), Usd(5), False),
        (Usd(5), Usd(4), False),
        (Usd(5), None, True),
        (None, Usd(10**9), False),
        (None, None, False),
        (0, 1, True),
    ],
)
def test_only_more_is_a_raise(before: Usd | int | None, after: Usd | int | None, raised: bool) -> None:
    """Row 199."""
    assert is_raise(before, after) is raised


def test_lowering_below_what_is_spent_is_allowed_and_stops_the_next_call() -> None:
    key = organization_key()
    settle(make_hold((key,), 500_000).reservation_id, cost=Usd(500_000), usage=USAGE, rates=None)
    limit(key, Usd(400_000))
    refused = refusals([key], Amount(Usd(1), 1), now=NOON)
    assert not refused[0].waits
    assert not list(find_problems(NOON)), "a lowered limit explains a meter above it"


def test_a_limit_edited_in_the_middle_of_a_period_counts_what_was_spent_before() -> None:
    key = organization_key()
    settle(make_hold((key,), 900_000).reservation_id, cost=Usd(900_000), usage=USAGE, rates=None)
    limit(key, Usd(1_000_000))
    assert refusals([key], Amount(Usd(100_001), 1), now=NOON)
    assert not refusals([key], Amount(Usd(100_000), 1), now=NOON)


def test_the_rows_of_a_later_period_that_exist_already_follow() -> None:
    """A machine whose clock runs ahead opened the next month before the limit was set."""
    key = organization_key()
    (next_month,) = at_period([key], now=datetime(2026, 12, 1, tzinfo=UTC))
    (last_month,) = at_period([key], now=datetime(2026, 10, 1, tzinfo=UTC))
    make_hold((next_month,))
    make_hold((last_month,))
    limit(key, Usd(77_000_000))
    readings = read_meters([key, next_month, last_month])
    assert [reading.limit_usd for reading in readings] == [Usd(77_000_000), Usd(77_000_000), Usd(10_000_000)]


def test_none_is_unlimited_and_zero_is_nothing() -> None:
    key = organization_key()
    limit(key, None)
    assert not refusals([key], Amount(Usd(10**11), 1), now=NOON)
    limit(key, Usd(0))
    assert refusals([key], Amount(Usd(0), 1), now=NOON)


def test_a_second_unit_leaves_the_first_as_it_was() -> None:
    key = organization_key()
    limit(key, 5_000_000, unit=Unit.TOKENS)
    (reading,) = read_meters([key])
    assert (reading.limit_usd, reading.limit_tokens) == (Usd(10_000_000), 5_000_000)
    assert LimitRule.objects.get().limit_usd == Usd(10_000_000)


def test_a_raise_with_an_expiry_returns_by_itself() -> None:
    key = organization_key()
    raised = limit(key, Usd(20_000_000), expires_at=NOON + timedelta(hours=2))
    assert return_expired(NOON + timedelta(hours=1)) == 0
    assert return_expired(NOON + timedelta(hours=2)) == 1
    assert return_expired(NOON + timedelta(hours=3)) == 0
    assert in_force(key) == Usd(10_000_000)
    back = LimitChange.objects.get(returns=raised)
    assert (back.before, back.after, back.by, back.at) == (
        20_000_000,
        10_000_000,
        None,
        NOON + timedelta(hours=2),
    )
    assert AuditEntry.objects.filter(action="limit.returned").count() == 1
    assert not list(find_problems(NOON))


def test_an_expiry_never_undoes_a_later_decision() -> None:
    key = organization_key()
    limit(key, Usd(20_000_000), expires_at=NOON + timedelta(hours=2))
    limit(key, Usd(30_000_000), now=NOON + timedelta(hours=1))
    assert return_expired(NOON + timedelta(hours=2)) == 1
    assert in_force(key) == Usd(30_000_000)
    assert not list(find_problems(NOON))


def test_nested_expiries_return_step_by_step_in_either_order() -> None:
    for first, second in ((1, 3), (3, 1)):
        key = organization_key()
        limit(key, Usd(20_000_000), expires_at=NOON + timedelta(hours=first))
        limit(
            key, Usd(30_000_000), expires_at=NOON + timedelta(hours=second), now=NOON + timedelta(minutes=1)
        )
        return_expired(NOON + timedelta(hours=2))
        assert in_force(key) == (Usd(30_000_000) if second == 3 else Usd(20_000_000))
        return_expired(NOON + timedelta(hours=4))
        assert in_force(key) == Usd(10_000_000)
    assert not list(find_problems(NOON))


BAD_TEXTS = ["-1", "-0", "NaN", "nan", "Infinity", "1e400", "1e3", "5,00", "$5", "5 EUR", "5.0000001",
             "1000000000000000", "٥", "0x10", "", " ", "5.5.5", True, 5.0, [], {}]  # fmt: skip


@pytest.mark.parametrize("text", BAD_TEXTS, ids=repr)
def test_what_is_no_amount_is_said_with_a_remedy(text: object) -> None:
    """The bad input of issue 3: negative, NaN, 1e400, "5,00", 10^15, another currency."""
    with pytest.raises(InvalidInput) as problem:
        read_limit(MeterKind.ORGANIZATION, text)
    assert problem.value.code == "bad_amount"
    assert problem.value.remedy
    with pytest.raises(InvalidInput):
        read_limit(MeterKind.DAILY_CALLS, text)


def test_an_unknown_currency_is_refused() -> None:
    with pytest.raises(InvalidInput) as problem:
        read_limit(MeterKind.ORGANIZATION, "5", currency="EUR")
    assert problem.value.code == "unknown_currency"


def test_good_limits_are_read() -> None:
    assert read_limit(MeterKind.CHANGE, "12.50") == Usd(12_500_000)
    assert read_limit(MeterKind.CHANGE, 12) == Usd(12_000_000)
    assert read_limit(MeterKind.DAILY_CALLS, "250") == 250
    assert read_limit(MeterKind.DAILY_CALLS, 0) == 0
    assert read_limit(MeterKind.CHANGE, None) is None


@pytest.mark.parametrize(
    ("field", "over"),
    [
        ("limit", {"to": Usd(-1)}),
        ("limit", {"to": Usd(10**15)}),
        ("limit", {"to": 5}),  # calls on a meter of money
        ("limit", {"to": Usd(5), "unit": Unit.CALLS}),
        ("limit", {"to": True, "unit": Unit.CALLS}),
        ("reason", {"reason": "", "reason_needed": True}),
        ("reason", {"reason": " \n", "reason_needed": True}),
        ("reason", {"reason": "x" * 2_001}),
        ("key", {"key": ""}),
        ("key", {"key": "x" * 201}),
        ("expires_at", {"expires_at": NOON}),
        ("expires_at", {"expires_at": datetime(2026, 12, 1)}),  # noqa: DTZ001  # no zone is the point
        ("expires_at", {"expires_at": NOON + timedelta(days=400)}),
    ],
)
def test_bad_input_is_named_and_changes_nothing(field: str, over: dict[str, object]) -> None:
    key = organization_key()
    given = {"to": Usd(20_000_000)} | over
    with pytest.raises(InvalidInput) as problem:
        limit(key, given.pop("to"), **given)  # type: ignore[arg-type]
    assert problem.value.field == field
    assert in_force(key) == Usd(10_000_000)
    assert not LimitChange.objects.exists()
    assert not LimitRule.objects.exists()


def test_a_project_that_wants_reasons_gets_them() -> None:
    organization = make_organization()
    project = make_project(organization, raise_needs_reason=True)
    key = MeterKey(MeterKind.PROJECT, organization.pk, str(project.pk), "")
    with pytest.raises(InvalidInput) as problem:
        limit(key, Usd(5), reason="")
    assert problem.value.code == "reason_needed"
    assert isinstance(limit(key, Usd(5), reason="a trial"), LimitChange)


@pytest.mark.parametrize(
    "kind", [MeterKind.PROJECT, MeterKind.USER, MeterKind.ORGANIZATION, MeterKind.DAILY_CALLS]
)
def test_another_organizations_subject_is_not_there(kind: MeterKind) -> None:
    """Row 1: a meter of another organization."""
    mine, other = make_organization(), make_organization()
    subject = {
        MeterKind.PROJECT: make_project(other).pk,
        MeterKind.USER: make_member(other).pk,
    }.get(kind, other.pk)
    for found in (str(subject), str(uuid4()), "no id at all"):
        with pytest.raises(NotVisible):
            limit(MeterKey(kind, mine.pk, found, ""), 5 if kind is MeterKind.DAILY_CALLS else Usd(5))
    assert not Meter.objects.exists()


def test_the_history_of_limits_cannot_be_rewritten() -> None:
    change = limit(organization_key(), Usd(5))
    with pytest.raises(DatabaseError), transaction.atomic():
        LimitChange.objects.filter(pk=change.pk).update(after=10**9)


def test_a_raise_for_a_time_can_be_made_to_last() -> None:
    """The same amount without an expiry is a decision of its own: the return must not undo it."""
    key = organization_key()
    limit(key, Usd(50_000_000), key="for a day", expires_at=NOON + timedelta(days=1))
    assert isinstance(limit(key, Usd(50_000_000), key="for good"), LimitChange)
    return_expired(NOON + timedelta(days=2))
    assert in_force(key, NOON + timedelta(days=2)) == Usd(50_000_000)
    assert isinstance(limit(key, Usd(50_000_000), key="again"), Unchanged)
    assert list(find_problems(NOON)) == []


def test_the_same_key_with_another_expiry_is_another_raise() -> None:
    key = organization_key()
    limit(key, Usd(50_000_000), key="k", expires_at=NOON + timedelta(days=1))
    with pytest.raises(KeyReused):
        limit(key, Usd(50_000_000), key="k")


def test_an_expiry_while_calls_are_held_keeps_them_and_refuses_the_next() -> None:
    """The old limit comes back below what is held: the calls on their way end, and the books stay whole."""
    meters = make_payers()
    limit(meters[0], Usd(1_000), key="first")
    limit(meters[0], Usd(9_000), key="for an hour", expires_at=NOON + timedelta(hours=1))
    held = make_hold(meters, 8_000)
    later = NOON + timedelta(hours=2)
    return_expired(later)
    (refused,) = refusals(meters[:1], Amount(Usd(1), 1), now=later)
    assert (refused.limit, refused.held, refused.waits) == (Usd(1_000), Usd(8_000), True)
    settle(held.reservation_id, cost=Usd(7_000), usage=USAGE, rates=None)
    (refused,) = refusals(meters[:1], Amount(Usd(1), 1), now=later)
    assert (refused.spent, refused.waits) == (Usd(7_000), False)
    assert list(find_problems(NOON)) == []


def test_an_operator_limits_the_whole_deployment_by_a_command() -> None:
    """Row 15: from then on every call holds on it, too."""

    def said(*arguments: str) -> str:
        out = StringIO()
        call_command("limit_platform", *arguments, stdout=out)
        return out.getvalue()

    assert "500" in said("500", "--reason", "the bill of November", "--key", "k")
    assert "nothing" in said("500", "--reason", "the bill of November", "--key", "k")
    assert [key.kind for key in make_payers()][-1] is MeterKind.PLATFORM
    for wrong in (["600", "--reason", "x", "--key", "k"], ["5,00", "--reason", "x"], ["5", "--reason", " "]):
        with pytest.raises(CommandError):
            said(*wrong)
    assert limit_of(
        organization_id=None, kind=MeterKind.PLATFORM, subject="platform", now=timezone.now()
    ) == Usd(500_000_000)


def test_a_changed_setting_holds_with_the_next_sweep_where_nobody_set_a_limit(
    with_plane: Callable[..., object],
) -> None:
    """Row 141: the deployment's limit is what an organization has until an owner sets another."""
    own, ruled = make_payers(), make_payers()
    for payers in (own, ruled):
        make_hold(payers)
    limit(next(key for key in ruled if key.kind is MeterKind.ORGANIZATION), Usd.dollars("7"))
    with_plane(monthly_limit=Usd.dollars("25"), calls_per_day_max=5)
    assert follow_defaults(NOON) > 0
    assert follow_defaults(NOON) == 0

    def limits_of(payers: tuple[MeterKey, ...]) -> dict[str, object]:
        readings = read_meters([key for key in payers if key.organization_id])
        return {str(one.key.kind): one.limit_usd or one.limit_calls for one in readings}

    assert limits_of(own)["organization"] == Usd.dollars("25")
    assert limits_of(own)["daily_calls"] == 5
    assert limits_of(ruled)["organization"] == Usd.dollars("7")
    assert list(find_problems(NOON)) == []


def test_limits_set_by_clocks_that_differ_stand_in_the_order_in_which_they_were_set() -> None:
    """Issue 3, time: two machines 5 s apart. The later one by the lock is the one in force, and the chain is whole."""
    key = organization_key()
    limit(key, Usd(20_000_000), now=NOON + timedelta(seconds=5))
    limit(key, Usd(30_000_000), now=NOON)
    assert in_force(key) == Usd(30_000_000)
    limit(key, Usd(90_000_000), now=NOON + timedelta(minutes=1), expires_at=NOON + timedelta(hours=1))
    return_expired(NOON + timedelta(hours=2))
    assert in_force(key) == Usd(30_000_000)
    assert list(find_problems(NOON)) == []


def test_a_raise_by_a_clock_that_is_late_may_not_end_before_it_began() -> None:
    key = organization_key()
    limit(key, Usd(20_000_000), now=NOON + timedelta(seconds=5))
    with pytest.raises(InvalidInput) as problem:
        limit(key, Usd(30_000_000), now=NOON, expires_at=NOON + timedelta(seconds=3))
    assert problem.value.field == "expires_at"
    assert in_force(key) == Usd(20_000_000)


def test_no_key_of_a_person_keeps_a_raise_from_its_return() -> None:
    """Ids of changes can be read over REST: somebody may use a name that Remit would choose."""
    key, other = organization_key(), organization_key()
    raised = limit(key, Usd(20_000_000), expires_at=NOON + timedelta(hours=1))
    limit(other, Usd(20_000_000), expires_at=NOON + timedelta(hours=1, minutes=1))
    limit(key, Usd(20_000_001), key=f"return:{raised.pk}", expires_at=NOON + timedelta(hours=2))
    assert return_expired(NOON + timedelta(hours=3)) == 3
    assert (in_force(key), in_force(other)) == (Usd(10_000_000), Usd(10_000_000))


def test_a_raise_that_cannot_return_keeps_no_other_from_it() -> None:
    """A row of one tenant that no code of today can read, the first in line."""
    key, other = organization_key(), organization_key()
    LimitChange.objects.create(
        key="k",
        organization_id=key.organization_id,
        kind="of another version",
        subject="x",
        unit="usd",
        before=1,
        after=2,
        expires_at=NOON + timedelta(hours=1),
        at=NOON,
    )
    limit(other, Usd(20_000_000), expires_at=NOON + timedelta(hours=2))
    assert return_expired(NOON + timedelta(hours=3)) == 1
    assert in_force(other) == Usd(10_000_000)


def test_a_default_below_what_is_spent_stops_the_next_call_and_is_explained(
    with_plane: Callable[..., object],
) -> None:
    """The operator lowers the setting: the books stay sound, and the admins read in their audit list what happened."""
    meters = make_payers()
    settle(make_hold(meters, 8_000_000).reservation_id, cost=Usd(8_000_000), usage=USAGE, rates=None)
    with_plane(monthly_limit=Usd.dollars("5"))
    follow_defaults(NOON)
    assert [one.kind for one in refusals(meters, Amount(Usd(1), 1), now=NOON)] == [MeterKind.ORGANIZATION]
    assert list(find_problems(NOON)) == []
    entry = AuditEntry.objects.get(action="limit.followed")
    assert (entry.before, entry.after) == (
        {"limit_usd": 10_000_000, "limit_calls": None},
        {"limit_usd": 5_000_000, "limit_calls": None},
    )
    assert entry.actor is None
