"""The demo end to end: real tools, real git, real checks, scripted models. The strongest test of the whole product."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from agents.workspace.git import store_for
from budgets.keys import MeterKind
from budgets.models import Meter, Reservation, ReservationState
from budgets.money import ZERO, Usd
from config.management.commands.demo import DEMO_FOLDER, OWNER_EMAIL, WANTED
from providers.models import Connector
from tasks.funding import spent_on
from tasks.models import Change, Check, Task, TaskRun, Trunk
from tasks.raises import preview_raise, raise_budget
from tasks.states import ChangeState, RunState, TaskState
from tenants.models import Project, User
from tests.journeys.workers import entries_without_pauses, work_until_idle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.bwrap]

CURRENCIES, SPLIT, EXPORT = (wanted.title for wanted in WANTED)


@pytest.fixture
def demo() -> Project:
    """The demo as `manage.py demo` makes it, at full speed."""
    call_command("demo", stdout=StringIO())
    connector = Connector.objects.get(organization__slug="demo")
    connector.config = {"inline": entries_without_pauses(DEMO_FOLDER / "scenarios")}
    connector.version += 1
    connector.save()
    return Project.objects.get(slug="tally")


def change_called(title: str) -> Change:
    return Change.objects.get(title=title)


def runs_of(change: Change) -> list[tuple[str, str, str]]:
    """(Task, tier, how it ended) in the order of the attempts."""
    runs = TaskRun.objects.filter(task__change=change).order_by("started_at", "attempt")
    return [(run.task.key, run.get_tier_display(), run.end_reason) for run in runs]


def raise_export(to: str) -> None:
    raise_budget(
        change=change_called(EXPORT),
        kind=MeterKind.CHANGE,
        to=Usd.dollars(to),
        by=User.objects.get(email=OWNER_EMAIL),
        reason="worth it",
        key=f"raise to {to}",
        now=timezone.now(),
    )


@pytest.mark.slow
def test_the_three_changes_of_the_demo(demo: Project) -> None:
    work_until_idle()

    first = change_called(CURRENCIES)
    assert first.state == ChangeState.PROMOTED, (first.failure, first.stop_detail, runs_of(first))
    assert runs_of(first) == [(f"T{n}", "haiku", "completed") for n in (1, 2, 3)]

    second = change_called(SPLIT)
    assert second.state == ChangeState.PROMOTED, (second.failure, second.stop_detail, runs_of(second))
    assert runs_of(second) == [
        ("T1", "haiku", "failed_by_agent"),
        ("T1", "haiku", "failed_by_agent"),
        ("T1", "sonnet", "completed"),
        ("T2", "haiku", "completed"),
    ]
    third_run = TaskRun.objects.get(task__change=second, tier=2)
    (receipt,) = third_run.receipts.filter(kind="route")
    assert "two_failures_at_haiku" in receipt.reasons  # acceptance 24a
    assert second.events.filter(kind="agent.escalated").count() == 1

    third = change_called(EXPORT)
    assert (third.state, third.stop_limit) == (ChangeState.BUDGET_BLOCKED, "change_budget")
    assert runs_of(third) == [("T1", "haiku", "completed"), ("T2", "haiku", "change_budget")]
    assert [(task.key, task.state) for task in third.tasks.all()] == [
        ("T1", TaskState.DONE),
        ("T2", TaskState.BLOCKED),
        ("T3", TaskState.BLOCKED),
    ]
    meter = Meter.objects.get(kind=MeterKind.CHANGE, subject=str(third.pk))
    assert (meter.limit_usd, meter.held_usd) == (Usd.dollars("0.10"), ZERO)
    assert Usd.dollars("0.09") < meter.spent_usd <= Usd.dollars("0.10")

    preview = preview_raise(third, MeterKind.CHANGE, Usd.dollars("1"), now=timezone.now())
    assert [task.key for task in preview.reopens] == ["T2"]
    assert [task.key for task in preview.gives_back] == ["T3"]
    raise_export("1")
    work_until_idle()
    third.refresh_from_db()
    assert third.state == ChangeState.PROMOTED, (third.failure, third.stop_detail, runs_of(third))
    assert runs_of(third)[2:] == [("T2", "haiku", "completed"), ("T3", "haiku", "completed")]

    assert_the_books_close(demo)
    assert_main_has_everything(demo)


def assert_the_books_close(project: Project) -> None:
    """Nothing is held any more, nothing is unknown, and the meters hold what the calls cost."""
    assert not Meter.objects.exclude(held_usd=ZERO).exists()
    paid = Reservation.objects.filter(project_id=project.pk)
    assert set(paid.values_list("state", flat=True)) <= {ReservationState.SETTLED, ReservationState.REFUNDED}
    total = sum((one.cost.micro for one in paid.exclude(cost=None)), 0)
    month = Meter.objects.get(kind=MeterKind.PROJECT, subject=str(project.pk))
    assert month.spent_usd == Usd(total)
    for change in Change.objects.all():
        runs = TaskRun.objects.filter(task__change=change)
        assert spent_on(change) == Usd(sum(run.cost.micro for run in runs))
        assert not runs.filter(state=RunState.RUNNING).exists()


def assert_main_has_everything(project: Project) -> None:
    trunk = Trunk.objects.get(project=project)
    store = store_for(project.pk)
    assert trunk.commit == store.commit_of_main()
    assert (trunk.generation, trunk.indexed_generation) == (4, 4)
    files = {file.path for file in store.tree_files(trunk.commit)}
    assert {"tally/export.py", "examples/two-currencies.csv", "tests/test_export.py"} <= files
    assert b"def split" in (store.read(trunk.commit, "tally/money.py") or b"")
    assert b"totals_by_currency" in (store.read(trunk.commit, "tally/report.py") or b"")
    checks = Check.objects.filter(candidate__state="promoted")
    assert {check.verdict for check in checks} == {"passed"}
    assert all(check.exit_code == 0 and check.output_key for check in checks)


@pytest.mark.slow
def test_a_raise_that_is_too_small_stops_again_with_the_same_name(demo: Project) -> None:
    work_until_idle()
    raise_export("0.101")
    work_until_idle()
    third = change_called(EXPORT)
    assert (third.state, third.stop_limit) == (ChangeState.BUDGET_BLOCKED, "change_budget")
    raise_export("0.50")
    work_until_idle()
    third.refresh_from_db()
    assert third.state == ChangeState.PROMOTED


def test_making_the_demo_twice_changes_nothing(demo: Project) -> None:
    before = list(Change.objects.values_list("pk", flat=True))
    out = StringIO()
    call_command("demo", stdout=out)
    assert list(Change.objects.values_list("pk", flat=True)) == before
    assert OWNER_EMAIL in out.getvalue()
    assert "password" in out.getvalue()
    assert Task.objects.count() == 0
