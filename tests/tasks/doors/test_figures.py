"""The figures that each page owes to people who look at it, one by one (the pages D1 to D8 of the specification)."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from agents import archive
from budgets.keys import MeterKind
from budgets.limits import set_limit
from budgets.models import Reservation
from budgets.money import Usd
from budgets.reservations import settle
from providers.messages import Usage
from routing.words import EndReason, Tier
from tasks.models import Candidate, Change, Check, Criterion, Reopening, Task
from tasks.states import CandidateState, ChangeState, RunState, TaskState
from tenants.models import Organization, Project, Role, User
from tests.factories.agents import make_model_call, make_tool_call
from tests.factories.budgets import make_context, make_hold, make_payers
from tests.factories.tasks import (
    NOW,
    make_candidate,
    make_change,
    make_changeset,
    make_criterion,
    make_dependency,
    make_failed_run,
    make_receipt,
    make_run,
    make_task,
    make_trunk,
)
from tests.factories.tenants import make_member, make_project
from tests.tasks.doors.scene import PLAN
from tests.tasks.money import give_budget, spend

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
PATCH = b"""diff --git a/tests/test_x.py b/tests/test_x.py
--- a/tests/test_x.py
+++ b/tests/test_x.py
@@ -1,4 +1,2 @@
-    self.assertEqual(total([1]), 1)
-    assert total([]) == 0
+    assert total([1])
     print(1)
"""


@pytest.fixture
def project() -> Project:
    project = make_project()
    make_trunk(project)
    return project


@pytest.fixture
def admin(project: Project) -> User:
    return make_member(project.organization, Role.ADMIN, email="ada@example.org")


@pytest.fixture
def client(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


def read(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def words(page: str) -> str:
    """What a person reads in the main part, with single spaces."""
    return text_of(page.partition("<main")[2].partition("</main>")[0])


def text_of(part: str) -> str:
    parted = re.sub(r"</(t[dhr]|li|p|div|h\d|dt|dd|ul|ol|section|button|a)>|<br>", r" \g<0>", part)
    return " ".join(html.unescape(strip_tags(parted)).split())


# ---- D1


def test_the_inbox_begins_with_the_month_and_says_what_each_row_is_about(
    client: Client, project: Project
) -> None:
    plan = make_change(project, state=ChangeState.AWAITING_APPROVAL, plan=PLAN, title="A plan")
    ready = make_change(project, state=ChangeState.READY, title="Done")
    candidate = make_candidate(ready, state=CandidateState.PASSED, number=3)
    for _ in range(2):
        _check(candidate, make_criterion(ready), "passed")
    page = read(client, "/")
    text = words(page)
    assert re.search(
        r"2 tasks, probably \$\S+ to \$\S+\. Nothing starts before somebody approves the plan", text
    )
    assert "2 of 2 criteria pass on candidate 3." in text
    assert re.search(r"\$0\.0000 spent · of \$\S+", text)
    assert page.index('class="month"') < page.index(f"/changes/{plan.pk}"), "the month stands at the top"


# ---- D2


def test_a_card_of_the_board_names_project_criteria_money_age_and_who(
    client: Client, project: Project
) -> None:
    change = make_change(project, state=ChangeState.RUNNING)
    first, _, _ = (make_criterion(change) for _ in range(3))
    _check(make_candidate(change, state=CandidateState.FAILED), first, "passed")
    give_budget(change, Usd.dollars("5"))
    page = read(client, "/changes?layout=board")
    card = page[page.index("small-card") : page.index("</article>")]
    text = text_of(card)
    for fact in (project.name, "1 of 3", "of $5.00", change.author.email):
        assert fact in text
    assert "<time" in card
    assert 'class="bar' in card


def test_a_plan_that_waits_is_not_called_no_plan(client: Client, project: Project) -> None:
    make_change(project, state=ChangeState.AWAITING_APPROVAL, plan=PLAN)
    text = words(read(client, "/changes"))
    assert "plan to approve" in text
    assert "no plan yet" not in text


# ---- D3


def test_a_change_shows_its_criteria_strip_its_decisions_and_what_each_limit_has_left(
    client: Client, project: Project, admin: User
) -> None:
    change = make_change(project, author=admin, state=ChangeState.RUNNING)
    one, _ = make_criterion(change), make_criterion(change)
    _check(make_candidate(change, state=CandidateState.FAILED), one, "passed")
    task = make_task(change, state=TaskState.RUNNING)
    run = make_run(task, tier=Tier.SONNET)
    make_receipt(change, task=task, run=run, decision="sonnet", reasons=["two_failures_at_haiku"])
    give_budget(change, Usd.dollars("5"))
    make_limit(project.organization, kind=MeterKind.PROJECT, subject=str(project.pk), to=Usd.dollars("38.80"))
    page = read(client, f"/changes/{change.pk}")
    text = words(page)
    assert "Acceptance criteria 1 of 2" in text
    assert page.count('<li data-state="passed"></li>') == page.count('<li data-state="pending"></li>') == 1
    assert "T1 sonnet: Two attempts failed at haiku: the Task moves up to sonnet." in text
    assert "Stops first at this change's budget: $5.00 left." in text
    assert "the project's budget $38.80 left" in text
    assert "the organization's budget $" in text


def test_a_change_that_was_raised_was_at_the_ground_before(client: Client, project: Project) -> None:
    """D3: what was left then is drawn as it was then, not as if the limit of now had always stood."""
    change = make_change(project, state=ChangeState.READY)
    give_budget(change, Usd.dollars("0.10"))
    spend(change, Usd.dollars("0.04"))
    spend(change, Usd.dollars("0.06"))
    Reservation.objects.update(closed_at=NOW - HOUR / 2)
    Change.objects.update(created_at=NOW - HOUR)
    give_budget(change, Usd.dollars("4"))
    spend(change, Usd.dollars("1"))
    Reservation.objects.filter(closed_at__gt=NOW).update(closed_at=NOW + HOUR)
    page = read(client, f"/changes/{change.pk}")
    line = re.findall(r'class="l-spent" points="([^"]*)"', page)[0].split()
    heights = [int(point.split(",")[1]) for point in line]
    assert heights[0] == 975
    assert 1000 in heights, "stopped: nothing was left"
    assert heights[-1] == 275


def test_the_graph_says_what_a_double_line_and_a_dashed_arrow_mean(client: Client, project: Project) -> None:
    change = make_change(project, state=ChangeState.RUNNING)
    first = make_task(change, state=TaskState.DONE)
    second = make_task(change, state=TaskState.BLOCKED, stop_limit="change_budget")
    assert "double line" in words(read(client, f"/changes/{change.pk}"))
    assert "dashed" not in words(read(client, f"/changes/{change.pk}"))
    make_dependency(second, first, added_by="integrate")
    assert "dashed: added when work did not merge" in words(read(client, f"/changes/{change.pk}"))


# ---- D4


def test_windows_are_brackets_and_what_no_longer_counts_stands_in_its_own(
    client: Client, project: Project, admin: User
) -> None:
    task, page = _reopened_twice(client, project, admin)
    sections = re.findall(
        r'<section class="window([^"]*)" aria-labelledby="window-(\d)">(.*?)</section>', page, re.DOTALL
    )
    assert [(over.strip(), number) for over, number, _ in sections] == [
        ("over", "1"),
        ("over", "2"),
        ("", "3"),
    ]
    bodies = [text_of(body) for _, _, body in sections]
    assert "Attempt 1" in bodies[0]
    assert "Attempt 2" in bodies[0]
    assert "no longer counts" in bodies[0]
    assert "reopened by ada@example.org" in bodies[1]
    assert "cap raised 2 to 5" in bodies[1]
    assert "Attempt 3" in bodies[1]
    assert "No attempt in this window yet." in bodies[2]
    assert "no longer counts" not in bodies[2]
    assert task.runs.count() == 3


def test_an_attempt_shows_its_own_files_against_all_files(
    client: Client, project: Project, admin: User
) -> None:
    task = make_task(make_change(project, author=admin), state=TaskState.DONE)
    run = make_run(task, state=RunState.SUCCEEDED, end_reason=EndReason.COMPLETED)
    make_changeset(task, run=run, own_files=["b.py", "<b>.py"], files=["a.py", "b.py", "<b>.py"])
    page = read(client, f"/tasks/{task.pk}")
    text = words(page)
    assert "2 of 3 changed files are its own" in text
    assert "a.py from what it builds on" in text
    assert "<b>.py" not in page
    run = make_run(task, state=RunState.SUCCEEDED, end_reason=EndReason.COMPLETED)
    make_changeset(task, run=run, own_files=["b.py"], files=["b.py"])
    assert "1 changed file, all its own" in words(read(client, f"/tasks/{task.pk}"))


def test_an_attempt_is_compared_with_the_packet_of_the_one_before(
    client: Client, project: Project, admin: User
) -> None:
    task = make_task(make_change(project, author=admin))
    make_failed_run(task, context_hash="a" * 64)
    same = make_failed_run(task, context_hash="a" * 64)
    other = make_failed_run(task, context_hash="b" * 64)
    page = read(client, f"/tasks/{task.pk}")
    assert "the same as of attempt 1" in words(page)
    assert f'href="/runs/{other.pk}/packet#difference">compare with attempt 2' in page
    assert f"/runs/{same.pk}/packet#difference" not in page


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ({"by": "rule", "floor": "sonnet"}, "classifier not asked · floor sonnet"),
        ({"by": "classifier", "confidence": "0.83", "floor": None}, "classifier sure to 0.83"),
        ({"by": "classifier", "confidence": "", "floor": None}, "classifier gave no answer"),
        ({"by": "escalation", "floor": None}, "classifier not asked"),
    ],
)
def test_the_receipt_of_a_route_tells_of_the_floor_and_the_classifier(
    client: Client, project: Project, detail: dict[str, str | None], said: str
) -> None:
    task = make_task(make_change(project))
    run = make_run(task)
    make_receipt(task.change, task=task, run=run, detail=detail)
    assert said in words(read(client, f"/tasks/{task.pk}"))


# ---- D5


def test_an_attempt_says_why_its_tier_and_how_a_failed_tool_answered(
    client: Client, project: Project
) -> None:
    run = make_run(make_task(make_change(project)))
    make_receipt(run.task.change, task=run.task, run=run)
    make_model_call(run_id=run.pk, organization=project.organization)
    make_tool_call(
        run_id=run.pk,
        organization_id=project.organization_id,
        model_call=1,
        outcome="error",
        code="not_unique",
        answer="edit 2 of 3 matches 2 places (lines 40, 88): nothing written\nmore",
    )
    page = read(client, f"/runs/{run.pk}")
    assert '<details class="why" id="why">' in page
    assert "A small first attempt at low risk goes to haiku." in words(page)
    summary = page[page.index('<details class="log-entry"') :].partition("</summary>")[0]
    assert "edit 2 of 3 matches 2 places (lines 40, 88): nothing written" in summary
    for key in ("model calls at haiku", "tools that failed", "nothing went on"):
        assert key in words(page)


# ---- D6


def test_a_candidate_says_what_merged_clean_what_conflicts_and_with_whom(
    client: Client, project: Project
) -> None:
    change = make_change(project, state=ChangeState.RUNNING)
    layers = [
        make_changeset(make_task(change, state=TaskState.DONE), own_files=files)
        for files in (["a.py"], ["api.py"], ["api.py", "b.py"], ["c.py"])
    ]
    candidate = make_candidate(
        change,
        state=CandidateState.CONFLICT,
        problem="conflict",
        generation=1,
        changesets=[str(each.pk) for each in layers],
        conflicts=[{"changeset": str(layers[2].pk), "task": "T3", "paths": ["api.py"], "messages": []}],
    )
    text = words(read(client, f"/candidates/{candidate.pk}"))
    made = text[text.index("What it is made of") :]
    assert made.count("merged clean") == 2
    assert "api.py against T2" in made
    assert made.index("conflict") < made.index("not reached")
    assert "It did not merge." in text
    assert "generation 1 of main" in text


def test_a_flag_counts_the_assertions_that_went(client: Client, project: Project) -> None:
    change = make_change(project, state=ChangeState.READY)
    candidate = make_candidate(
        change,
        state=CandidateState.PASSED,
        generation=1,
        flagged_files=["tests/test_x.py", "tox.ini"],
        patch_key=archive.put("patches/claims.patch", PATCH),
    )
    text = words(read(client, f"/candidates/{candidate.pk}"))
    assert "tests/test_x.py −2 assertions, +1" in text


@pytest.mark.parametrize(
    ("state", "of_change", "reason"),
    [
        (CandidateState.CHECKING, ChangeState.COMPOSING, "Its criteria are still run."),
        (CandidateState.FAILED, ChangeState.FAILED, "It did not pass."),
        (CandidateState.STALE, ChangeState.RUNNING, "It is stale"),
        (CandidateState.PASSED, ChangeState.COMPOSING, "The change is composing."),
    ],
)
def test_promote_is_disabled_with_the_reason(
    client: Client, project: Project, state: CandidateState, of_change: ChangeState, reason: str
) -> None:
    change = make_change(project, state=of_change)
    candidate = make_candidate(change, state=state, generation=1)
    page = read(client, f"/candidates/{candidate.pk}")
    assert '<button class="button" disabled aria-describedby="not-now">Promote to main</button>' in page
    assert reason in words(page)
    Change.objects.filter(pk=change.pk).update(state=ChangeState.CANCELLED, ended_at=NOW)
    assert "Promote to main" not in read(client, f"/candidates/{candidate.pk}")


# ---- D8


def test_limits_say_what_can_still_be_spent_and_what_binds(client: Client, project: Project) -> None:
    of, member = project.organization, make_member(project.organization, email="bo@example.org")
    make_limit(of, kind=MeterKind.ORGANIZATION, subject=str(of.pk), to=Usd.dollars("10"))
    make_limit(of, kind=MeterKind.PROJECT, subject=str(project.pk), to=Usd.dollars("40"))
    make_limit(of, kind=MeterKind.USER, subject=str(member.pk), to=Usd.dollars("3"))
    page = read(client, f"/organizations/{of.pk}/limits")
    rows = {
        name: text_of(row)
        for row in re.findall(r"<tr data-row>(.*?)</tr>", page, re.DOTALL)
        for name in (project.name, "bo@example.org", "ada@example.org")
        if name in row
    }
    assert "$40.00 $10.00 the organization's budget binds" in rows[project.name]
    assert "none $10.00 the organization's budget binds" in rows["ada@example.org"]
    assert "$3.00 $3.00" in rows["bo@example.org"]
    assert "binds" not in rows["bo@example.org"]


def test_the_audit_list_writes_money_as_everywhere(client: Client, project: Project) -> None:
    make_limit(project.organization, kind=MeterKind.PROJECT, subject=str(project.pk), to=Usd.dollars("40"))
    text = words(read(client, f"/organizations/{project.organization_id}/audit"))
    assert "none → $40.00" in text
    assert "$40.0000" not in text


def make_limit(organization: Organization, *, kind: MeterKind, subject: str, to: Usd) -> None:
    set_limit(
        organization_id=organization.pk,
        kind=kind,
        subject=subject,
        to=to,
        by=None,
        reason="for the test",
        key=f"{kind}-{subject}",
        now=timezone.now(),
    )


def _check(candidate: Candidate, criterion: Criterion, verdict: str) -> None:
    Check.objects.create(
        candidate=candidate,
        criterion=criterion,
        commit="a" * 40,
        command="true",
        verdict=verdict,
        started_at=NOW,
        ended_at=NOW,
    )


def _reopened_twice(client: Client, project: Project, admin: User) -> tuple[Task, str]:
    """Two attempts, a raise, one more, and a person's word after which nothing has started yet."""
    task = make_task(make_change(project, author=admin))
    for number in (1, 2):
        make_failed_run(task, EndReason.STUCK, started_at=NOW + number * timedelta(minutes=1))
    for at, reason in ((NOW + HOUR, "cap raised 2 to 5"), (NOW + 3 * HOUR, "")):
        Reopening.objects.create(
            task=task, key=str(at), by=admin, stop_limit="max_attempts_per_tier", reason=reason, at=at
        )
        make_receipt(task.change, task=task, kind="reset", decision="fresh_window", reasons=["failed"], at=at)
        Task.objects.filter(pk=task.pk).update(attempts_reset_at=at)
        if reason:
            make_failed_run(task, EndReason.RUN_COST_CAP, started_at=at + HOUR)
    return task, read(client, f"/tasks/{task.pk}")


# ---- D7


def test_spend_per_day_tells_the_classifier_and_the_judges_apart_in_utc(
    client: Client, project: Project, admin: User
) -> None:
    calls = (
        ("agent", "sonnet"),
        ("classifier", ""),
        ("integration_judge", "sonnet"),
        ("acceptance_check", "sonnet"),
        ("planner", ""),
    )
    for purpose, tier in calls:
        meters = make_payers(project.organization, project_id=project.pk, user_id=admin.pk)
        held = make_hold(meters, usd=2_000, context=make_context(meters, purpose=purpose, tier=tier))
        settle(held.reservation_id, cost=Usd(1_000), usage=Usage(input_uncached=10, output=1), rates={})
    page = read(client, f"/spend?organization={project.organization_id}")
    told = dict(re.findall(r"UTC, (\w+): (\$[\d.]+)</title>", page))
    assert told == {"sonnet": "$0.0010", "classifier": "$0.0010", "judge": "$0.0020", "other": "$0.0010"}
    assert "days in UTC</text>" in page
