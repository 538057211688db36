"""A Change's life as people steer it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection

from budgets.money import Usd
from tasks.changes import (
    WantedChange,
    WantedCriterion,
    cancel_change,
    pause_change,
    resume_change,
    retry_change,
    start_draft,
    submit_change,
)
from tasks.errors import IllegalMove, NotStopped
from tasks.fence import due_changes, take_work
from tasks.funding import budget_of
from tasks.models import Change, Event
from tasks.states import ChangeState, TaskState
from tenants.errors import InvalidInput
from tenants.models import Organization, Project, User
from tests.factories.tasks import NOW, make_change, make_task, make_trunk
from tests.factories.tenants import make_member, make_project

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def project() -> Project:
    project = make_project()
    make_trunk(project)
    return project


@pytest.fixture
def ana(project: Project) -> User:
    return make_member(project.organization)


def wanted(**more: object) -> WantedChange:
    fields = {"title": "Say hello", "goal": "Greet people.", "criteria": (WantedCriterion("It greets"),)}
    return WantedChange(**(fields | more))  # type: ignore[arg-type]  # a test's shorthand


def test_a_submitted_change_has_its_criteria_its_meter_and_goes_to_the_planner(
    project: Project, ana: User
) -> None:
    criteria = (WantedCriterion("It greets", "python3 -m unittest"), WantedCriterion("It is kind"))
    change = submit_change(project, wanted(criteria=criteria, budget=Usd(500_000)), by=ana, now=NOW)
    assert (change.key, change.state, change.author) == ("CH-1", ChangeState.PLANNING, ana)
    assert [(each.position, each.command) for each in change.criteria.all()] == [
        (1, "python3 -m unittest"),
        (2, ""),
    ]
    assert budget_of(change) == Usd(500_000)
    assert list(due_changes(NOW)) == [change]
    assert Event.objects.filter(change=change, kind="change.submitted").count() == 1


def test_without_a_budget_the_change_has_no_limit_of_its_own(project: Project, ana: User) -> None:
    """Row 18."""
    assert budget_of(submit_change(project, wanted(), by=ana, now=NOW)) is None


def test_a_draft_waits_until_it_is_handed_over(project: Project, ana: User) -> None:
    change = submit_change(project, wanted(draft=True), by=ana, now=NOW)
    assert change.state == ChangeState.DRAFT
    assert not due_changes(NOW).exists()
    start_draft(change, by=ana, now=NOW)
    assert change.state == ChangeState.PLANNING
    with pytest.raises(IllegalMove):
        start_draft(change, by=ana, now=NOW)


def test_numbers_count_per_organization_also_when_many_submit_at_once(project: Project, ana: User) -> None:
    def submit(_: int) -> int:
        try:
            return submit_change(project, wanted(), by=ana, now=NOW).number
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(submit, range(8)))
    assert sorted(numbers) == list(range(1, 9))
    other = make_project()
    make_trunk(other)
    assert submit_change(other, wanted(), by=make_member(other.organization), now=NOW).number == 1


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"title": ""}, "title"),
        ({"goal": "x" * 1_000_000}, "goal"),
        ({"goal": " \u200b\ufeff\n"}, "goal"),  # nothing that anybody could read
        ({"criteria": ()}, "criteria"),
        ({"budget": Usd(-1)}, "budget"),
        ({"budget": "5"}, "budget"),
    ],
)
def test_bad_input_keeps_nothing(project: Project, ana: User, more: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        submit_change(project, wanted(**more), by=ana, now=NOW)
    assert refused.value.field == field
    assert not Change.objects.exists()
    assert Organization.objects.get(pk=project.organization_id).last_change_number == 0


def test_a_project_without_a_repository_says_what_to_do(ana: User, project: Project) -> None:
    bare = make_project(project.organization)
    with pytest.raises(InvalidInput, match="project's page") as refused:
        submit_change(bare, wanted(), by=ana, now=NOW)
    assert refused.value.code == "no_repository"


def test_cancelling_ends_every_task_that_is_not_done_and_takes_the_work_away(
    project: Project, ana: User
) -> None:
    """Row 10: running attempts notice at their next beat."""
    change = make_change(project, not_before=NOW)
    for state in (TaskState.DONE, TaskState.RUNNING, TaskState.READY, TaskState.PENDING):
        make_task(change, state=state)
    hold = take_work(change.pk, now=NOW)
    assert hold is not None
    cancel_change(change, by=ana, now=NOW)
    assert change.state == ChangeState.CANCELLED
    assert change.ended_at == NOW
    assert [task.state for task in change.tasks.order_by("position")] == ["done", *["cancelled"] * 3]
    assert (change.work_key, change.not_before) == ("", None)
    with pytest.raises(IllegalMove):
        cancel_change(change, by=ana, now=NOW)


def test_a_paused_change_starts_nothing_new(project: Project, ana: User) -> None:
    change = make_change(project, state=ChangeState.PLANNING, not_before=NOW)
    pause_change(change, by=ana, now=NOW)
    pause_change(change, by=ana, now=NOW)
    assert take_work(change.pk, now=NOW) is None
    assert Event.objects.filter(change=change, kind="change.paused").count() == 1
    resume_change(change, by=ana, now=NOW)
    assert take_work(change.pk, now=NOW) is not None


def test_a_pause_takes_nothing_from_whoever_is_at_work(project: Project, ana: User) -> None:
    """What runs goes on: a planner's question that was paid is not asked again after a pause."""
    change = make_change(project, state=ChangeState.PLANNING, not_before=NOW)
    hold = take_work(change.pk, now=NOW)
    assert hold is not None
    pause_change(change, by=ana, now=NOW)
    resume_change(change, by=ana, now=NOW)
    assert take_work(change.pk, now=NOW) is None
    with hold.writing():
        pass


def test_what_waited_for_its_next_try_is_due_after_a_pause(project: Project, ana: User) -> None:
    later = NOW + timedelta(minutes=5)
    change = make_change(project, state=ChangeState.PLANNING, not_before=later, paused_at=NOW)
    resume_change(change, by=ana, now=NOW)
    assert take_work(change.pk, now=NOW) is not None


def test_a_failed_plan_is_asked_for_again(project: Project, ana: User) -> None:
    change = make_change(project, state=ChangeState.FAILED, failure="plan_refused")
    retry_change(change, by=ana, key="again", now=NOW)
    assert (change.state, change.failure) == (ChangeState.PLANNING, "")
    assert list(due_changes(NOW)) == [change]


def test_a_failed_task_is_opened_again(project: Project, ana: User) -> None:
    change = make_change(project, state=ChangeState.FAILED)
    task = make_task(change, state=TaskState.FAILED, failure="two_transport_failures", ended_at=NOW)
    retry_change(change, by=ana, key=str(uuid4()), now=NOW)
    task.refresh_from_db()
    assert (change.state, task.state) == (ChangeState.RUNNING, TaskState.READY)


def test_a_failed_composition_is_composed_again(project: Project, ana: User) -> None:
    change = make_change(project, state=ChangeState.FAILED)
    make_task(change, state=TaskState.DONE)
    retry_change(change, by=ana, key="again", now=NOW)
    assert change.state == ChangeState.COMPOSING
    assert list(due_changes(NOW)) == [change]


def test_what_did_not_fail_is_not_tried_again(project: Project, ana: User) -> None:
    with pytest.raises(NotStopped):
        retry_change(make_change(project), by=ana, key="again", now=NOW)
