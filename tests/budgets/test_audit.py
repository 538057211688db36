"""The audit finds what is wrong, says it, and exits non-zero."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F, Value
from django.utils import timezone

from budgets.audit import audit_ledger, find_problems, ledger_problems
from budgets.jobs import audit, sweep
from budgets.keys import MeterKind
from budgets.meters import follow_defaults
from budgets.models import Entry, LimitRule, Meter, Reservation, ThresholdCrossing
from budgets.money import Usd
from budgets.reservations import keep, settle
from providers.messages import Usage
from tests.factories.budgets import limit, make_hold, make_payers
from tests.factories.tenants import make_organization

pytestmark = pytest.mark.django_db


@pytest.fixture
def books() -> None:
    """A little of everything: open, settled, unknown, and a limit that was set."""
    meters = make_payers(now=timezone.now())
    limit(meters[0], Usd(1_000_000), now=timezone.now())
    make_hold(meters, 100_000)
    settled = make_hold(meters, 100_000)
    settle(settled.reservation_id, cost=Usd(5), usage=Usage(input_uncached=1, output=1), rates=None)
    keep(make_hold(meters, 100_000).reservation_id, reason="timeout")


def drop_an_entry() -> None:
    # The append-only trigger guards PostgreSQL's rows; here the entry is added, as a forger would.
    row = Reservation.objects.filter(state="settled").first()
    assert row is not None
    Entry.objects.create(
        reservation=row, kind="late", held_usd=Usd(0), held_tokens=0, held_calls=0, spent_usd=Usd(1),
        spent_tokens=0, spent_calls=0, actor="forger", at=timezone.now(),
    )  # fmt: skip


FAULTS: dict[str, Callable[[], object]] = {
    "I1": lambda: Meter.objects.filter(kind="change").update(spent_usd=F("spent_usd") + Value(1)),
    "I2": drop_an_entry,
    "I3": lambda: Meter.objects.filter(kind="organization").update(limit_usd=Usd(1)),
    "I4": lambda: Reservation.objects.filter(state="unknown").update(state="settled"),
    "I5": lambda: Reservation.objects.filter(state="held").update(
        lease_until=timezone.now() - timedelta(hours=1)
    ),
    "I6": lambda: LimitRule.objects.update(limit_usd=Usd(9_000_000)),
}


def test_sound_books_have_no_problem(books: None) -> None:
    assert list(find_problems(timezone.now())) == []
    out = StringIO()
    call_command("audit_ledger", stdout=out)
    assert "sound" in out.getvalue()


@pytest.mark.parametrize("name", FAULTS)
def test_each_invariant_is_checked(books: None, name: str) -> None:
    FAULTS[name]()
    problems = list(find_problems(timezone.now()))
    assert any(problem.startswith(name) for problem in problems), problems
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("audit_ledger", stdout=out)
    assert name in out.getvalue()


def test_a_limit_that_nobody_set_is_found(books: None) -> None:
    """A limit written into a meter by hand has no rule and no history."""
    Meter.objects.filter(kind="project").update(limit_usd=Usd(9_000_000))
    (problem,) = find_problems(timezone.now())
    assert problem.startswith("I6: meter project:")


def test_a_reservation_on_another_organizations_meter_is_found(books: None) -> None:
    stranger = make_organization()
    Reservation.objects.filter(state="settled").update(organization=stranger)
    assert any("another organization's" in problem for problem in find_problems(timezone.now()))


def test_the_nightly_verdict_is_kept_for_the_probe(books: None) -> None:
    now = timezone.now()
    assert ledger_problems(now) is None
    audit()
    verdict = ledger_problems(now)
    assert verdict is not None
    assert (verdict.problems, verdict.stale) == ((), False)
    FAULTS["I1"]()
    audit_ledger(now)
    broken = ledger_problems(now + timedelta(hours=30))
    assert broken is not None
    assert broken.problem_count >= 1
    assert broken.stale


def test_the_sweep_closes_what_lapsed(books: None) -> None:
    FAULTS["I5"]()
    sweep()
    sweep()
    assert not Reservation.objects.filter(state="held").exists()
    assert Meter.objects.get(kind=MeterKind.CHANGE).held_usd == Usd(0)
    assert list(find_problems(timezone.now())) == []


def test_a_step_of_the_sweep_that_breaks_keeps_no_other_from_its_work(
    books: None, with_plane: Callable[..., object]
) -> None:
    FAULTS["I5"]()
    Meter.objects.filter(kind="project").update(limit_usd=Usd(1))
    with_plane(monthly_limit="no amount")
    with pytest.raises(TypeError):
        follow_defaults(timezone.now())
    sweep()
    assert not Reservation.objects.filter(state="held").exists()
    assert ThresholdCrossing.objects.filter(meter__kind="project").exists()
