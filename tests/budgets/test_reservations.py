"""Holds and settlements, through the ledger's own door, on whichever database the suite runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from budgets.audit import find_problems
from budgets.decisions import Amount
from budgets.errors import ClosedDifferently, KeyReused, NoSuchReservation
from budgets.keys import MeterKey, MeterKind
from budgets.meters import at_period, daily_meter, ensure_meters, payer_meters, read_meters, refusals
from budgets.models import Entry, LimitRule, Meter, Reservation
from budgets.money import Usd
from budgets.prices import cost_of
from budgets.reservations import (
    AlreadyHeld,
    Held,
    Refused,
    keep,
    late,
    reap,
    refund,
    release_unknown,
    reserve,
    settle,
)
from providers.messages import Usage
from tenants.errors import InvalidInput
from tests.factories.budgets import NOON, limit, make_context, make_hold, make_payers
from tests.factories.tenants import make_member, make_organization

pytestmark = pytest.mark.django_db

USAGE = Usage(input_uncached=5_000, cache_read=30_000, cache_write_5m=4_000, output=1_200)  # $0.035 on sonnet
COST = Usd(35_000)
RATES = {"model": "claude-sonnet-5-5"}


def of(meters: tuple[MeterKey, ...], kind: MeterKind) -> MeterKey:
    return next(key for key in meters if key.kind is kind)


def figures(key: MeterKey) -> tuple[int, int, int, int]:
    """Spent and held money, spent and held calls."""
    (now,) = read_meters([key])
    return now.spent_usd.micro, now.held_usd.micro, now.spent_calls, now.held_calls


def ask(meters: tuple[MeterKey, ...], usd: int | None, **over: object) -> Held | Refused | AlreadyHeld:
    given = {
        "key": uuid4().hex,
        "meters": meters,
        "amount": Amount(None if usd is None else Usd(usd), 56_000),
        "context": make_context(meters),
        "owner": "worker",
        "lease_seconds": 600,
    } | over
    return reserve(**given)  # type: ignore[arg-type]


def test_a_hold_is_settled_to_the_exact_cost_on_every_meter() -> None:
    """Rows 140 to 144, acceptance 13a: 5.74 of 6 used, hold 0.26, settle 0.035."""
    meters = make_payers()
    change = of(meters, MeterKind.CHANGE)
    limit(change, Usd(6_000_000))
    settle(make_hold(meters, 5_740_000).reservation_id, cost=Usd(5_740_000), usage=USAGE, rates=RATES)
    held = make_hold(meters, 260_000)
    assert figures(change) == (5_740_000, 260_000, 1, 1)
    closed = settle(held.reservation_id, cost=COST, usage=USAGE, rates=RATES)
    assert (closed.state, closed.cost, closed.overrun) == ("settled", COST, False)
    for key in meters:
        assert figures(key) == (5_775_000, 0, 2, 0), key
    row = Reservation.objects.get(pk=held.reservation_id)
    assert row.usage is not None
    assert (row.usage["cache_read"], row.usage_quality, row.rates) == (30_000, "reported", RATES)
    assert not list(find_problems(timezone.now()))


def test_one_micro_dollar_too_much_is_refused_and_changes_nothing() -> None:
    """Acceptance 13a, second half: the daily counter does not move either."""
    meters = make_payers()
    change = of(meters, MeterKind.CHANGE)
    limit(change, Usd(6_000_000))
    settle(make_hold(meters, 5_740_001).reservation_id, cost=Usd(5_740_001), usage=USAGE, rates=RATES)
    before = [figures(key) for key in meters]
    refused = ask(meters, 260_000)
    assert isinstance(refused, Refused)
    assert refused.stop == "change_budget"
    assert [figures(key) for key in meters] == before
    assert Entry.objects.count() == 2


@pytest.mark.parametrize(
    "kind", [kind for kind in MeterKind if kind not in ("classifier_calls", "embeddings")]
)
def test_each_meter_alone_can_be_the_binding_one(kind: MeterKind) -> None:
    """Faults #11962 and #27394: all meters always apply; the strictest wins."""
    organization = make_organization()
    if kind is MeterKind.PLATFORM:
        LimitRule.objects.create(
            name="platform:-:platform", kind=kind, subject="platform", limit_usd=Usd(10**9)
        )
    meters = make_payers(organization)
    key = of(meters, kind)
    limit(key, 1 if kind is MeterKind.DAILY_CALLS else Usd(260_000))
    assert isinstance(ask(meters, 260_000), Held)
    refused = ask(meters, 1)
    assert isinstance(refused, Refused)
    assert [refusal.kind for refusal in refused.refusals] == [kind]
    assert refused.refusals[0].ends_at == (None if kind is MeterKind.CHANGE else refused.refusals[0].ends_at)


def test_a_refusal_names_every_meter_and_the_first_in_order_is_the_stop() -> None:
    """Rows 22, 143 and 240."""
    meters = make_payers()
    for kind, to in (
        (MeterKind.DAILY_CALLS, 0),
        (MeterKind.ORGANIZATION, Usd(100)),
        (MeterKind.USER, Usd(99)),
    ):
        limit(of(meters, kind), to)
    refused = ask(meters, 260_000)
    assert isinstance(refused, Refused)
    assert [one.kind for one in refused.refusals] == [
        MeterKind.USER,
        MeterKind.ORGANIZATION,
        MeterKind.DAILY_CALLS,
    ]
    assert refused.stop == "user_budget"
    data = refused.refusals[0].as_data()
    assert data == {
        "kind": "user",
        "subject": of(meters, MeterKind.USER).subject,
        "period": "2026-11",
        "unit": "usd",
        "limit": 99,
        "spent": 0,
        "held": 0,
        "amount": 260_000,
        "ends_at": "2026-12-01T00:00:00+00:00",
        "waits": False,
        "stop": "user_budget",
    }


def test_held_money_makes_the_caller_wait_and_spent_money_makes_it_stop() -> None:
    """Faults C55, PR #38647: held is not spent; a polite sequential caller is never refused while it fits."""
    meters = make_payers()
    limit(of(meters, MeterKind.CHANGE), Usd(500_000))
    first = make_hold(meters, 300_000)
    waiting = ask(meters, 300_000)
    assert isinstance(waiting, Refused)
    assert waiting.waits
    settle(first.reservation_id, cost=Usd(10_000), usage=USAGE, rates=RATES)
    for _ in range(5):  # 10,000 each: the sequential caller goes on
        held = make_hold(meters, 300_000)
        settle(held.reservation_id, cost=Usd(10_000), usage=USAGE, rates=RATES)
    settle(make_hold(meters, 300_000).reservation_id, cost=Usd(300_000), usage=USAGE, rates=RATES)
    stopped = ask(meters, 300_000)
    assert isinstance(stopped, Refused)
    assert not stopped.waits


def test_a_stop_that_no_waiting_helps_gives_the_name() -> None:
    meters = make_payers()
    limit(of(meters, MeterKind.CHANGE), Usd(300_000))
    limit(of(meters, MeterKind.ORGANIZATION), Usd(290_000))
    make_hold(meters, 200_000)
    refused = ask(meters, 295_000)
    assert isinstance(refused, Refused)
    assert [one.waits for one in refused.refusals] == [True, False]
    assert refused.stop == "monthly_budget"


def test_the_ledger_refuses_to_work_inside_a_transaction() -> None:
    """Fault #33923 and the hot row of the notes: a hold that can be rolled back is none."""
    meters = make_payers()
    held = make_hold(meters)
    with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
        ask(meters, 1)
    with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
        refund(held.reservation_id, reason="no")


def test_a_redelivery_finds_its_hold_and_never_holds_twice() -> None:
    """Row 145; also after midnight, since a key names one physical call."""
    meters = make_payers()
    key = uuid4().hex
    first = ask(meters, 1_000, key=key)
    assert isinstance(first, Held)
    tomorrow = at_period(meters, now=NOON + timedelta(days=30))
    for again in (ask(meters, 1_000, key=key), ask(tomorrow, 1_000, key=key)):
        assert again == AlreadyHeld(first.reservation_id, "held", lapsed=False)
    settle(first.reservation_id, cost=COST, usage=USAGE, rates=RATES)
    assert ask(meters, 1_000, key=key) == AlreadyHeld(first.reservation_id, "settled", lapsed=False)
    assert figures(meters[0]) == (35_000, 0, 1, 0)


def test_the_key_of_another_request_is_an_error() -> None:
    meters = make_payers()
    key = uuid4().hex
    ask(meters, 1_000, key=key)
    with pytest.raises(KeyReused):
        ask(meters, 1_001, key=key)
    with pytest.raises(KeyReused):
        ask(meters[:2], 1_000, key=key)
    with pytest.raises(KeyReused):
        ask(meters, 1_000, key=key, context=make_context(meters, model="claude-haiku-5-5"))
    assert figures(meters[0]) == (0, 1_000, 0, 1)


def test_settling_twice_the_same_is_nothing_and_differently_an_error() -> None:
    """Row 145."""
    meters = make_payers()
    held = make_hold(meters)
    settle(held.reservation_id, cost=COST, usage=USAGE, rates=RATES)
    assert settle(held.reservation_id, cost=COST, usage=USAGE, rates=RATES).result == "already"
    with pytest.raises(ClosedDifferently):
        settle(held.reservation_id, cost=Usd(35_001), usage=USAGE, rates=RATES)
    with pytest.raises(ClosedDifferently):
        refund(held.reservation_id, reason="too late")
    second = keep(held.reservation_id, reason="the reaper lost the race")
    assert (second.result, second.cost, second.charged) == (
        "already",
        COST,
        COST,
    )  # what is known stays known
    assert figures(meters[0]) == (35_000, 0, 1, 0)
    with pytest.raises(NoSuchReservation):
        settle(10**12, cost=COST, usage=USAGE, rates=RATES)


def test_a_refund_gives_everything_back_the_daily_call_too() -> None:
    """Row 123: only where the call certainly never left or was not billed."""
    meters = make_payers()
    held = make_hold(meters)
    closed = refund(held.reservation_id, reason="429")
    assert (closed.state, closed.cost, closed.charged) == ("refunded", Usd(0), Usd(0))
    assert all(figures(key) == (0, 0, 0, 0) for key in meters)


@pytest.mark.parametrize(
    ("usage", "cost", "word"),
    [
        (None, None, "missing"),
        (None, Usd(5), "missing"),
        (Usage(input_uncached=0, output=0), Usd(0), "all_zero"),
        (Usage(input_uncached=9, output=1, reasoning=2), Usd(5), "inconsistent"),
        (USAGE, None, "reported"),
    ],
)
def test_a_report_that_cannot_be_charged_by_keeps_the_worst_case(
    usage: Usage | None, cost: Usd | None, word: str
) -> None:
    """Rows 134, 136, 144; faults C50, #37923, #40100: a stream without its usage is not free."""
    meters = make_payers()
    held = make_hold(meters)
    closed = settle(held.reservation_id, cost=cost, usage=usage, rates=None)
    assert (closed.state, closed.cost, closed.charged) == ("unknown", None, Usd(260_000))
    row = Reservation.objects.get(pk=held.reservation_id)
    assert (row.cost, row.usd, row.usage_quality) == (None, Usd(260_000), word)
    assert all(figures(key) == (260_000, 0, 1, 0) for key in meters)


def test_a_late_answer_corrects_an_unknown_charge_where_it_was_held() -> None:
    """Rows 144 and 164."""
    meters = make_payers()
    held = make_hold(meters)
    keep(held.reservation_id, reason="timeout")
    closed = late(held.reservation_id, cost=COST, usage=USAGE, rates=RATES)
    assert (closed.result, closed.state, closed.cost) == ("late", "settled", COST)
    assert late(held.reservation_id, cost=COST, usage=USAGE, rates=RATES).result == "already"
    assert all(figures(key) == (35_000, 0, 1, 0) for key in meters)
    other = make_hold(meters)
    keep(other.reservation_id, reason="timeout")
    assert refund(other.reservation_id, reason="it never left after all").result == "late"
    assert all(figures(key) == (35_000, 0, 1, 0) for key in meters)
    assert not list(find_problems(timezone.now()))


def test_a_charge_above_the_hold_is_booked_and_the_next_hold_refused() -> None:
    """Row 144: the difference may be positive."""
    meters = make_payers()
    limit(of(meters, MeterKind.CHANGE), Usd(300_000))
    held = make_hold(meters, 200_000)
    closed = settle(held.reservation_id, cost=Usd(310_000), usage=USAGE, rates=RATES)
    assert closed.overrun
    refused = ask(meters, 1)
    assert isinstance(refused, Refused)
    assert not refused.waits
    assert not list(find_problems(timezone.now())), "an overrun explains a meter above its limit"


@pytest.mark.parametrize("limits", [{"limit_usd": Usd(0)}, {"limit_tokens": 0}, {"limit_calls": 0}])
def test_a_limit_of_nothing_stops_a_call_that_costs_nothing_too(limits: dict[str, object]) -> None:
    """Row 22: 0 means none, in the database's own rule as in the pure one."""
    meters = make_payers()
    ensure_meters(meters)
    Meter.objects.filter(name=of(meters, MeterKind.PROJECT).name).update(**limits)
    refused = ask(meters, 0, amount=Amount(Usd(0), 0, 0))
    assert isinstance(refused, Refused), refused
    assert [one.kind for one in refused.refusals] == [MeterKind.PROJECT]


def test_the_sweep_turns_a_lapsed_hold_into_an_unknown_charge_never_into_a_refund() -> None:
    """Row 145, faults #27639 and PR #30522."""
    meters = make_payers()
    held = make_hold(meters)
    alive = make_hold(meters, 1_000)
    Reservation.objects.filter(pk=held.reservation_id).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    assert reap(timezone.now()) == 1
    assert reap(timezone.now()) == 0
    row = Reservation.objects.get(pk=held.reservation_id)
    assert (row.state, row.usd, row.cost) == ("unknown", Usd(260_000), None)
    assert Reservation.objects.get(pk=alive.reservation_id).state == "held"
    assert figures(meters[0]) == (260_000, 1_000, 1, 1)


def test_a_clock_that_runs_ahead_reaps_nothing_early() -> None:
    """Two machines whose clocks are 5 s (here an hour) apart: leases are the ledger's own time."""
    make_hold(make_payers(), lease_seconds=60)
    assert reap(timezone.now() + timedelta(hours=1)) == 0


def test_a_person_releases_an_unknown_charge_with_a_reason() -> None:
    meters = make_payers()
    held = make_hold(meters)
    user = make_member()
    with pytest.raises(ClosedDifferently):
        release_unknown(held.reservation_id, by=user, reason="it is not unknown yet")
    keep(held.reservation_id, reason="timeout")
    with pytest.raises(InvalidInput):
        release_unknown(held.reservation_id, by=user, reason="  ")
    assert figures(meters[0]) == (260_000, 0, 1, 0)
    closed = release_unknown(held.reservation_id, by=user, reason="the invoice does not have it")
    assert (closed.state, closed.charged) == ("refunded", Usd(0))
    assert figures(meters[0]) == (0, 0, 1, 0), "the call's slot stays used"
    entry = Entry.objects.get(reservation_id=held.reservation_id, kind="release")
    assert (entry.actor, entry.reason) == (f"user {user.pk}", "the invoice does not have it")
    assert Reservation.objects.get(pk=held.reservation_id).released_by_id == user.pk
    # The person was wrong: the bill is a fact.
    assert late(held.reservation_id, cost=COST, usage=USAGE, rates=RATES).result == "late"
    assert figures(meters[0]) == (35_000, 0, 1, 0)
    assert not list(find_problems(timezone.now()))


def test_an_unpriced_call_needs_meters_without_a_limit_in_money(with_plane: object) -> None:
    """Fault #25874: unpriced is refused wherever money is limited, else shown as unknown."""
    meters = make_payers()
    refused = ask(meters, None)
    assert isinstance(refused, Refused)
    assert refused.refusals[0].amount is None
    limit(of(meters, MeterKind.ORGANIZATION), None)
    held = ask(meters, None)
    assert isinstance(held, Held)
    closed = settle(held.reservation_id, cost=None, usage=USAGE, rates=None)
    assert (closed.state, closed.cost) == ("settled", None)
    (reading,) = read_meters(meters[:1])
    assert (reading.spent_tokens, reading.spent_usd) == (40_200, Usd(0))


def test_a_call_over_midnight_settles_on_the_day_on_which_it_was_held() -> None:
    """Half-open periods: 23:59:59 and 00:00:01 are two days, and two months at a month's end."""
    organization = make_organization()
    before = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
    after = datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC)
    meters = make_payers(organization, now=before)
    held = make_hold(meters)
    next_meters = at_period(meters, now=after)
    make_hold(next_meters, 1_000)
    settle(held.reservation_id, cost=COST, usage=USAGE, rates=RATES)
    assert figures(of(meters, MeterKind.DAILY_CALLS)) == (35_000, 0, 1, 0)
    assert figures(of(meters, MeterKind.ORGANIZATION)) == (35_000, 0, 1, 0)
    assert figures(of(next_meters, MeterKind.DAILY_CALLS)) == (0, 1_000, 0, 1)
    assert figures(of(next_meters, MeterKind.ORGANIZATION)) == (0, 1_000, 0, 1)
    assert figures(of(meters, MeterKind.CHANGE)) == (35_000, 1_000, 1, 1), "a Change is metered for life"


def test_new_periods_start_at_zero_with_the_limit_of_the_rule() -> None:
    organization = make_organization()
    meters = make_payers(organization)
    key = of(meters, MeterKind.ORGANIZATION)
    limit(key, Usd(300_000))
    settle(make_hold(meters).reservation_id, cost=Usd(260_000), usage=USAGE, rates=RATES)
    january = at_period(meters, now=datetime(2027, 1, 31, tzinfo=UTC))
    make_hold(january)
    (reading,) = read_meters([of(january, MeterKind.ORGANIZATION)])
    assert (reading.limit_usd, reading.spent_usd, reading.held_usd) == (Usd(300_000), Usd(0), Usd(260_000))


def test_defaults_apply_where_nobody_set_a_limit(with_plane: object) -> None:
    """Row 141."""
    plane = with_plane(monthly_limit=Usd(7), calls_per_day_max=3, classifier_calls_per_day_max=2)  # type: ignore[operator]
    organization = make_organization()
    meters = make_payers(organization)
    found = {reading.key.kind: reading for reading in read_meters(meters)}
    assert found[MeterKind.ORGANIZATION].limit_usd == plane.monthly_limit
    assert found[MeterKind.DAILY_CALLS].limit_calls == 3
    assert found[MeterKind.CHANGE].limit_usd is None
    classifier = daily_meter(MeterKind.CLASSIFIER_CALLS, organization.pk, now=NOON)
    assert read_meters([classifier])[0].limit_calls == 2
    assert refusals(meters, Amount(Usd(8), 1), now=NOON)[0].kind is MeterKind.ORGANIZATION


def test_a_call_before_a_change_exists_has_no_change_meter() -> None:
    """Rows 142 and 147: monthly, project and user; planner and intake do not count as daily calls."""
    organization = make_organization()
    meters = payer_meters(
        organization_id=organization.pk,
        project_id=uuid4(),
        user_id=uuid4(),
        change_id=None,
        connector="main",
        counts_daily=False,
        now=NOON,
    )
    assert [key.kind for key in meters] == ["project", "user", "organization", "provider"]


def test_a_caller_cannot_pay_with_another_organizations_meter() -> None:
    """Faults #27480 and row 1."""
    mine, theirs = make_payers(), make_payers()
    with pytest.raises(AssertionError, match="another organization"):
        ask((*mine, theirs[0]), 1, context=make_context(mine))


def test_the_database_refuses_what_must_never_be() -> None:
    """NaN cannot enter a whole-number column; negative counters and changed entries are refused."""
    held = make_hold()
    meter = Meter.objects.first()
    assert meter is not None
    for values in ({"held_usd": Usd(-1)}, {"spent_calls": -1}, {"limit_usd": Usd(-1)}):
        with pytest.raises(DatabaseError), transaction.atomic():
            Meter.objects.filter(pk=meter.pk).update(**values)
    with pytest.raises(DatabaseError), transaction.atomic():
        Entry.objects.filter(reservation_id=held.reservation_id).update(reason="history is written anew")
    if connection.vendor == "postgresql":
        with pytest.raises(DatabaseError), transaction.atomic():
            Entry.objects.filter(reservation_id=held.reservation_id).delete()


def test_the_price_of_the_call_that_answered_is_stored() -> None:
    priced = cost_of(USAGE, "claude-sonnet-5-5", NOON.date())
    assert priced is not None
    held = make_hold()
    settle(held.reservation_id, cost=priced.cost, usage=USAGE, rates=priced.rates)
    stored = Reservation.objects.get(pk=held.reservation_id).rates
    assert stored == priced.rates


def test_a_report_that_no_request_can_have_keeps_the_worst_case() -> None:
    """A hostile or broken server's figure would burst a column, and the settlement would be lost with it."""
    held = make_hold(usd=1_000)
    usage = Usage(input_uncached=2**53, output=2**53)
    closed = settle(held.reservation_id, cost=Usd(2**62), usage=usage, rates=None)
    assert (closed.state, closed.cost, closed.charged) == ("unknown", None, Usd(1_000))


@pytest.mark.skipif(connection.vendor != "postgresql", reason="nothing is prepared on SQLite")
def test_a_pooler_that_changes_the_session_stops_no_call() -> None:
    """Row 143: prepared statements are the session's, and a pooler may hand each statement another one."""
    meters = make_payers()
    limit(meters[0], Usd(1_000_000))
    connection.ensure_connection()
    threshold, connection.connection.prepare_threshold = connection.connection.prepare_threshold, 0
    try:
        first = ask(meters, 40_000)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%budgets_reserve%'"
            )
            assert cursor.fetchone() == (1,), "it was not prepared, so this test shows nothing"
            cursor.execute("DEALLOCATE ALL")
        second = ask(meters, 40_000)
        assert isinstance(first, Held)
        assert isinstance(second, Held)
        settle(second.reservation_id, cost=COST, usage=USAGE, rates=RATES)
        assert figures(meters[0])[:2] == (35_000, 40_000)
    finally:
        connection.connection.prepare_threshold = threshold


@pytest.mark.skipif(connection.vendor != "postgresql", reason="there are no functions on SQLite")
def test_the_functions_plan_once_a_session() -> None:
    """A function that is made anew loses its settings without a word: each call would be planned again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname, proconfig FROM pg_proc WHERE proname IN ('budgets_reserve', 'budgets_close')"
        )
        found = dict(cursor.fetchall())
    assert found == {
        key: ["plan_cache_mode=force_generic_plan"] for key in ("budgets_reserve", "budgets_close")
    }
