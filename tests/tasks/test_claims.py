"""Claims warn and never block (rows 220 to 222, example 21a)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tasks.claims import release_claims, renew_claims, take_claims
from tasks.models import Claim, Event
from tests.factories.tasks import NOW, make_change, make_run, make_task

pytestmark = pytest.mark.django_db


def at(seconds: int):  # type: ignore[no-untyped-def]  # a test's shorthand
    return NOW + timedelta(seconds=seconds)


def test_a_lease_is_renewed_at_half_life_and_not_before() -> None:
    """Example 21a."""
    run = make_run()
    take_claims(run, ["api.py"], now=at(0))
    renew_claims(run, now=at(50))
    assert Claim.objects.get().lease_until == at(120)
    renew_claims(run, now=at(60))
    assert Claim.objects.get().lease_until == at(180)


def test_a_second_agent_starts_and_the_contention_is_told_once() -> None:
    """Example 21a: t=70."""
    change = make_change()
    first, second = (make_run(make_task(change, state="running")) for _ in range(2))
    take_claims(first, ["api.py", "ui.py"], now=at(0))
    assert take_claims(second, ["api.py"], now=at(70)) == ("api.py",)
    assert Claim.objects.filter(run=second).count() == 1
    event = Event.objects.get(kind="claim.contended")
    assert event.run_id == second.pk
    assert event.data == {"resource": "api.py", "held_by": [str(first.pk)]}


def test_a_lapsed_lease_contends_with_nobody() -> None:
    """Row 222: after a crash the claim ends by itself in 120 s."""
    change = make_change()
    first, second = (make_run(make_task(change, state="running")) for _ in range(2))
    take_claims(first, ["api.py"], now=at(0))
    assert take_claims(second, ["api.py"], now=at(120)) == ()


def test_another_projects_claim_on_the_same_path_means_nothing() -> None:
    take_claims(make_run(), ["api.py"], now=NOW)
    assert take_claims(make_run(), ["api.py"], now=NOW) == ()


def test_the_end_of_a_run_releases_its_claims_and_no_others() -> None:
    mine, other = make_run(), make_run()
    take_claims(mine, ["a", "b"], now=NOW)
    take_claims(other, ["a"], now=NOW)
    assert release_claims(mine) == 2
    assert list(Claim.objects.values_list("run_id", flat=True)) == [other.pk]


def test_claiming_twice_keeps_one_claim() -> None:
    run = make_run()
    take_claims(run, ["a", "a"], now=NOW)
    take_claims(run, ["a"], now=NOW)
    assert Claim.objects.count() == 1
