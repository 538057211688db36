"""Reviews before a Change exists: metered, paid by project, person and month, and read strictly."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.errors import StopRun
from budgets.keys import MeterKind
from budgets.models import Meter, Reservation
from routing.words import EndReason
from tasks.reviews import intake_gate, request_review
from tasks.states import ChangeState
from tasks.verdicts import Unreadable, Verdict
from tasks.wanted import WantedChange, WantedCriterion
from tenants.models import Project, User
from tests.factories.tasks import make_change
from tests.factories.tenants import make_member, make_project
from tests.tasks.repositories import make_script, says

pytestmark = pytest.mark.django_db(transaction=True)

WANTED = WantedChange("Say hello", "Greet people.", (WantedCriterion("It greets"),))


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def ana(project: Project) -> User:
    return make_member(project.organization)


def test_a_request_is_judged_before_it_is_a_change_and_no_change_pays(project: Project, ana: User) -> None:
    """Rows 70, 80, 147."""
    make_script(project.organization, says("intake", {"verdict": "fail", "reason": "Greet whom?"}))
    said = intake_gate(project, WANTED, by=ana, now=timezone.now())
    assert said == Verdict(False, "Greet whom?")
    paid = Reservation.objects.get()
    kinds = set(Meter.objects.filter(pk__in=paid.meters).values_list("kind", flat=True))
    assert {MeterKind.PROJECT, MeterKind.USER, MeterKind.ORGANIZATION, MeterKind.CLASSIFIER_CALLS} <= kinds
    assert not kinds & {MeterKind.CHANGE, MeterKind.DAILY_CALLS}
    assert (paid.change_id, paid.user_id, paid.purpose) == (None, ana.pk, "intake")


def test_an_answer_in_another_form_is_no_verdict(project: Project, ana: User) -> None:
    make_script(project.organization, says("intake", "Sounds great!"))
    assert isinstance(intake_gate(project, WANTED, by=ana, now=timezone.now()), Unreadable)


def test_a_request_is_compared_with_what_is_under_way_in_its_own_project(project: Project, ana: User) -> None:
    make_script(project.organization, says("request_review", {"verdict": "fail", "reason": "Repeats CH-7."}))
    make_change(make_project(project.organization))
    make_change(project, state=ChangeState.PROMOTED)
    assert request_review(project, WANTED, by=ana, now=timezone.now()) is None
    assert not Reservation.objects.exists()
    make_change(project)
    assert request_review(project, WANTED, by=ana, now=timezone.now()) == Verdict(False, "Repeats CH-7.")


def test_without_its_own_connector_nothing_is_asked(project: Project, ana: User) -> None:
    """Row 3."""
    make_script(make_project().organization, says("intake", {"verdict": "pass", "reason": ""}))
    with pytest.raises(StopRun) as stopped:
        intake_gate(project, WANTED, by=ana, now=timezone.now())
    assert stopped.value.end is EndReason.BAD_REQUEST
    assert not Reservation.objects.exists()
