"""Pages: what people read, and what the forms do. Hostile text stays text (fault C89)."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents import archive
from agents.workspace.git import store_for
from budgets.money import Usd
from routing.words import EndReason
from tasks.models import Change, Check, Task
from tasks.pages.inbox import COUNTED_MAX, ROWS_OF_A_KIND_MAX
from tasks.promotion import settle_trunk
from tasks.states import CandidateState, ChangeState, RunState, TaskState
from tenants.models import Organization, Project, Role, User
from tests.factories.agents import make_model_call, make_tool_call
from tests.factories.tasks import (
    NOW,
    make_candidate,
    make_change,
    make_changeset,
    make_criterion,
    make_dependency,
    make_event,
    make_failed_run,
    make_receipt,
    make_run,
    make_stopped_task,
    make_task,
    make_trunk,
)
from tests.factories.tenants import make_member, make_organization, make_project, make_user
from tests.tasks.money import give_budget
from tests.tasks.repositories import edited, make_repository

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert('x')</script>\u202e"
REFUSAL = {
    "kind": "change",
    "subject": "x",
    "period": "",
    "unit": "usd",
    "limit": 5_000_000,
    "spent": 4_900_000,
    "held": 0,
    "amount": 260_000,
    "ends_at": None,
    "waits": False,
    "stop": "change_budget",
}


@pytest.fixture
def project() -> Project:
    project = make_project(make_organization())
    make_trunk(project)
    return project


@pytest.fixture
def admin(project: Project) -> User:
    return make_member(project.organization, Role.ADMIN)


@pytest.fixture
def client(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


def read(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.content[:2_000]
    return answer.content.decode()


@pytest.mark.parametrize("path", ["/", "/changes/new"])
def test_who_is_in_no_organization_reads_how_to_get_in(path: str) -> None:
    """Not that nothing waits, nor that an admin should make a project: after the last membership ended."""
    person = make_user(email="left@example.org")
    client = Client()
    client.force_login(person)
    page = read(client, path)
    assert "You are in no organization" in page
    assert "left@example.org" in page
    assert "Nothing waits" not in page
    assert "No project yet" not in page
    assert 'href="/changes/new"' not in page


def test_a_draft_is_not_told_as_handed_over(client: Client, project: Project) -> None:
    sent = {"title": "Later", "goal": "Think first.", "criterion": "It is done", "command": "", "draft": "1"}
    made = client.post(f"/projects/{project.pk}/changes/new", sent)
    page = read(client, made["Location"])
    assert "Kept as a draft" in page
    assert "Handed over" not in page


def test_an_empty_list_teaches(client: Client) -> None:
    assert "No changes yet" in read(client, "/changes")
    assert "Nothing waits for you" in read(client, "/")


def test_the_list_shows_state_money_and_the_exact_stop(client: Client, project: Project, admin: User) -> None:
    change = make_change(
        project, title="Export CSV", state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget"
    )
    give_budget(change, Usd.dollars("5"))
    page = read(client, "/changes?q=export&state=budget_blocked")
    assert "Export CSV" in page
    assert "change_budget" in page
    assert "$5.00" in page


def test_the_inbox_puts_money_first_and_ends_each_row_in_one_act(client: Client, project: Project) -> None:
    make_change(project, title="To promote", state=ChangeState.READY)
    blocked = make_change(
        project, title="No money", state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget"
    )
    tried = make_change(
        project, title="Tried", state=ChangeState.BUDGET_BLOCKED, stop_limit="max_attempts_per_tier"
    )
    task = make_stopped_task(tried, "max_attempts_per_tier")
    page = read(client, "/")
    assert page.index("No money") < page.index("Tried") < page.index("To promote")
    assert f"/changes/{blocked.pk}/raise" in page
    assert f"/tasks/{task.pk}/reopen" in page


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("budget", {"state": ChangeState.BUDGET_BLOCKED, "stop_limit": "change_budget"}),
        ("replan", {"state": ChangeState.BUDGET_BLOCKED, "stop_limit": "max_attempts_per_tier"}),
        ("stopped", {"state": ChangeState.BUDGET_BLOCKED, "stop_limit": "stopped_by_person"}),
        ("plan", {"state": ChangeState.AWAITING_APPROVAL}),
        ("promote", {"state": ChangeState.READY}),
        ("failed", {"state": ChangeState.FAILED, "failure": "it broke"}),
    ],
)
def test_the_inbox_shows_the_oldest_of_each_kind_and_a_way_to_all(
    client: Client, project: Project, kind: str, fields: dict[str, Any]
) -> None:
    """D1: oldest first; as many as fit, the true count, and the list of exactly these."""
    made = [make_change(project, title=f"number {n:02}", **fields) for n in range(ROWS_OF_A_KIND_MAX)]
    other = ChangeState.AWAITING_APPROVAL if kind != "plan" else ChangeState.READY
    make_change(project, title="another kind", state=other)
    assert "Show all" not in read(client, "/")
    with CaptureQueriesContext(connection) as before:
        read(client, "/")
    made += [make_change(project, title=f"number {n:02}", **fields) for n in range(90, 93)]
    with CaptureQueriesContext(connection) as after:
        page = read(client, "/")
    assert len(after) == len(before)
    shown = [change.title for change in made if change.title in page]
    assert shown == [f"number {n:02}" for n in range(ROWS_OF_A_KIND_MAX)]
    assert f"({len(made) + 1})" in page
    link = re.search(r'href="(/changes\?[^"]+)">Show all 11<', page)
    assert link is not None
    found = client.get(html.unescape(link[1])).context["rows"]
    assert {row.change.pk for row in found} == {change.pk for change in made}


def test_money_stops_of_several_limits_are_one_kind(client: Client, project: Project) -> None:
    """D1: the oldest of all of them first, and one count, whichever limit it was."""
    limits = ("change_budget", "project_budget", "organization_month")
    for number in range(ROWS_OF_A_KIND_MAX + 2):
        limit = limits[number % len(limits)]
        make_change(project, title=f"number {number:02}", state=ChangeState.BUDGET_BLOCKED, stop_limit=limit)
    page = read(client, "/")
    at = [page.find(f"number {number:02}") for number in range(ROWS_OF_A_KIND_MAX + 2)]
    assert at[:-2] == sorted(at[:-2])
    assert (min(at[:-2]) > 0, at[-2:]) == (True, [-1, -1])
    assert "Show all 10<" in page


def test_the_inbox_counts_what_runs_beyond_what_it_names(client: Client, project: Project) -> None:
    for number in range(ROWS_OF_A_KIND_MAX + 2):
        change = make_change(project, title=f"plans {number}", state=ChangeState.PLANNING)
        make_run(make_task(change), state=RunState.RUNNING)
    page = read(client, "/")
    assert "10 attempts and 10 changes at work" in page
    assert "/changes?group=working" in page


def test_the_inbox_counts_no_further_than_it_says(client: Client, project: Project) -> None:
    """Issue 6: thousands at work cost no more than a hundred, and the page says that there may be more."""
    for number in range(COUNTED_MAX):
        make_change(project, title=f"plans {number}", state=ChangeState.PLANNING)
    assert f"0 attempts and {COUNTED_MAX} changes at work" in read(client, "/")
    make_change(project, title="one more", state=ChangeState.PLANNING)
    assert f"0 attempts and {COUNTED_MAX} or more changes at work" in read(client, "/")


def test_a_stop_says_what_it_needs(client: Client, project: Project, admin: User) -> None:
    """Promise 4; row 240."""
    detail = {
        "at": NOW.isoformat(),
        "reason": "budget_refused",
        "refusals": [REFUSAL],
        "ways_out": [
            {"act": "raise", "meter": "change", "role": "admin", "at_least": 5_160_000, "unit": "usd"}
        ],
    }
    change = make_change(
        project, state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget", stop_detail=detail
    )
    page = read(client, f"/changes/{change.pk}")
    for said in (
        "change_budget",
        "$5.00",
        "$4.90",
        "$0.2600",
        "to at least $5.16 for the next call",
        f"/changes/{change.pk}/raise",
    ):
        assert said in page, said
    member = Client()
    member.force_login(make_member(project.organization, Role.MEMBER))
    page = read(member, f"/changes/{change.pk}")
    assert f'href="/changes/{change.pk}/raise' not in page
    assert f"to at least $5.16: {admin.email}" in page
    assert f'data-copy="http://testserver/changes/{change.pk}/raise?meter=change"' in page
    assert "you may pause or cancel" in page


def test_a_change_page_shows_criteria_tasks_graph_and_events(client: Client, project: Project) -> None:
    change = make_change(project, goal=HOSTILE)
    make_criterion(change, text=HOSTILE, command="python3 -m unittest")
    first = make_task(change, title=HOSTILE)
    second = make_task(change, needs=(first,))
    make_run(first, state=RunState.RUNNING)
    make_event(change, kind="task.ready", data={"because": "planned"})
    page = read(client, f"/changes/{change.pk}")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "⟨U+202E⟩" in page
    assert f"/tasks/{second.pk}" in page
    assert "<svg" in page
    assert " style=" not in page


def test_a_poll_that_has_seen_everything_gets_nothing(client: Client, project: Project) -> None:
    change = make_change(project)
    page = client.get(f"/changes/{change.pk}")
    seen = {"seen": page.context["mark"]}
    assert client.get(f"/changes/{change.pk}", seen, HTTP_HX_REQUEST="true").status_code == 204
    make_event(change, kind="task.ready")
    assert client.get(f"/changes/{change.pk}", seen, HTTP_HX_REQUEST="true").status_code == 200
    assert client.get(f"/changes/{change.pk}", seen).status_code == 200


def test_a_change_is_handed_over_from_the_form(client: Client, project: Project) -> None:
    path = f"/projects/{project.pk}/changes/new"
    assert "Acceptance criteria" in read(client, path)
    answer = client.post(path, {**FORM, "budget": "2.50"})
    change = Change.objects.get()
    assert answer.headers["Location"] == f"/changes/{change.pk}"
    assert [(c.text, c.command) for c in change.criteria.all()] == [
        ("tests pass", "python3 -m unittest"),
        ("reads well", ""),
    ]
    assert change.state == ChangeState.PLANNING


FORM: dict[str, Any] = {
    "title": "Export CSV",
    "goal": "People want a file.",
    "criterion": ["tests pass", "", "reads well"],
    "command": ["python3 -m unittest", "", ""],
    "invariants": "",
    "budget": "",
}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"budget": "5,00"}, "digits and at most one point"),
        ({"goal": ""}, "Is empty"),
        ({"criterion": ["", "", ""], "command": ["", "", ""]}, "Give at least one"),
        ({"command": ["a | b", "", ""]}, "shell syntax"),
        ({"title": "x" * 201}, "too long"),
    ],
    ids=str,
)
def test_a_form_keeps_what_was_typed_and_says_what_is_wrong(
    client: Client, project: Project, wrong: dict[str, Any], said: str
) -> None:
    answer = client.post(f"/projects/{project.pk}/changes/new", {**FORM, "title": "Export CSV", **wrong})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert said in page
    assert "reads well" in page or "criterion" in wrong
    assert not Change.objects.exists()


def test_more_criteria_adds_rows_and_hands_nothing_over(client: Client, project: Project) -> None:
    answer = client.post(f"/projects/{project.pk}/changes/new", {**FORM, "more": ""})
    assert answer.status_code == 200
    assert answer.content.decode().count('name="criterion"') == 6
    assert not Change.objects.exists()


def test_a_raise_previews_and_then_reopens(client: Client, project: Project, admin: User) -> None:
    change = make_change(project, state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget")
    task = make_stopped_task(change)
    give_budget(change, Usd.dollars("1"))
    path = f"/changes/{change.pk}/raise"
    key = client.get(path).context["form"].initial["key"]
    body = {"meter": "change", "to": "3", "reason": "worth it", "key": key}
    preview = client.post(path, {**body, "preview": ""}).content.decode()
    assert f"<strong>{change.key}/{task.key}</strong>" in preview
    assert Task.objects.get(pk=task.pk).state == TaskState.BLOCKED
    for _ in range(2):  # the second press of the button raises nothing more
        assert client.post(path, {**body, "raise": ""}).headers["Location"] == f"/changes/{change.pk}"
    task.refresh_from_db()
    assert (task.state, task.reopenings.count()) == (TaskState.READY, 1)


def test_a_raise_that_is_none_says_so_beside_its_field(client: Client, project: Project, admin: User) -> None:
    change = make_change(project)
    give_budget(change, Usd.dollars("1"))
    body = {"meter": "change", "to": "-3", "reason": "", "key": "k", "raise": ""}
    answer = client.post(f"/changes/{change.pk}/raise", body)
    assert answer.status_code == 400
    assert (
        "cannot be negative" in answer.content.decode()
        or "digits and at most one point" in answer.content.decode()
    )


def test_a_task_page_shows_attempts_receipts_and_the_diff(client: Client, project: Project) -> None:
    change = make_change(project)
    task = make_task(change, attempts_reset_at=NOW)
    old = make_failed_run(task, EndReason.FAILED_BY_AGENT, started_at=NOW.replace(hour=1))
    run = make_run(task, started_at=NOW.replace(hour=23), note=HOSTILE)
    make_receipt(change, task=task, run=run, kind="route", decision="haiku", reasons=["R4"])
    patch = (
        b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-1\n+<script>alert('x')</script>\n"
    )
    key = archive.put(f"patches/{task.pk}.patch", patch)
    make_changeset(task, patch_key=key, intent=HOSTILE)
    page = read(client, f"/tasks/{task.pk}")
    assert "Window 2" in page
    assert "A small first attempt at low risk goes to haiku." in page
    assert "<script>alert" not in page
    assert f"/runs/{old.pk}" in page
    download = client.get(f"/changesets/{task.changesets.get().pk}/patch")
    assert download.content == patch
    assert download.headers["Content-Disposition"].startswith("attachment")


def test_a_run_page_shows_calls_tools_and_unknown_cost(client: Client, project: Project) -> None:
    run = make_run(make_task(make_change(project)), unknown_calls=1)
    make_model_call(
        run_id=run.pk,
        organization=project.organization,
        cost=None,
        state="failed",
        error="timeout",
        ended_at=timezone.now(),
    )
    make_tool_call(run_id=run.pk, organization=project.organization)
    page = read(client, f"/runs/{run.pk}")
    assert "unknown" in page
    assert "timeout" in page


def test_a_call_whose_worker_died_is_unknown_and_not_on_its_way_for_ever(
    client: Client, project: Project
) -> None:
    """Nobody is left to close its row: the end of the run says that no answer comes any more."""
    task = make_task(make_change(project))
    dead = make_failed_run(task, EndReason.WORKER_LOST, unknown_calls=1)
    alive = make_run(make_task(make_change(project)))
    for run in (dead, alive):
        make_model_call(
            run_id=run.pk, organization=project.organization, state="sent", held=Usd(4_400), ended_at=None
        )
    page = read(client, f"/runs/{dead.pk}")
    assert "its answer never came" in page
    assert "charged at most $0.0044" in page
    assert "on its way" not in page
    page = read(client, f"/runs/{alive.pk}")
    assert "on its way" in page
    assert " held<" in page


def test_a_candidate_shows_evidence_flags_and_who_promotes(client: Client, project: Project) -> None:
    change = make_change(project, state=ChangeState.READY)
    criterion = make_criterion(change)
    candidate = make_candidate(
        change, state=CandidateState.PASSED, flagged_files=["tests/test_x.py"], generation=1
    )
    Check.objects.create(
        candidate=candidate,
        criterion=criterion,
        commit="a" * 40,
        command="true",
        verdict="passed",
        exit_code=0,
        output="10%\r100%",
        started_at=NOW,
        ended_at=NOW,
    )
    page = read(client, f"/candidates/{candidate.pk}")
    assert "Promote to main" in page
    assert "tests/test_x.py" in page
    assert "10%" not in page
    member = Client()
    member.force_login(make_member(project.organization, Role.MEMBER))
    assert "An admin promotes" in read(member, f"/candidates/{candidate.pk}")


@pytest.mark.django_db(transaction=True)
def test_after_main_moved_a_person_has_the_candidate_composed_anew(client: Client) -> None:
    """Nobody else does: a READY Change whose button is dead would stay READY for ever."""
    project = make_project(Organization.objects.get())  # the organization that `client` is an admin of
    trunk = make_repository(project)
    store = store_for(project.pk)
    mine, theirs = (edited(store, trunk.commit, {f"{name}.txt": b"1"}) for name in ("mine", "theirs"))
    change = make_change(project, state=ChangeState.READY)
    candidate = make_candidate(
        change, state=CandidateState.PASSED, base_commit=trunk.commit, commit=mine, generation=1
    )
    store.promote(theirs, trunk.commit, "another")
    settle_trunk(project.pk, now=NOW)
    page = read(client, f"/candidates/{candidate.pk}")
    assert "Compose it anew" in page
    assert '<button class="button" disabled aria-describedby="not-now">Promote to main</button>' in page
    assert "Main has moved since it was composed." in page
    assert page.partition("<main")[2].count("disabled") == 1
    assert '<button class="button primary">Compose it anew</button>' in page
    client.post(f"/candidates/{candidate.pk}/promote")
    change.refresh_from_db()
    assert (change.state, store.commit_of_main()) == (ChangeState.COMPOSING, theirs)


def test_query_counts_do_not_grow_with_rows(
    client: Client, project: Project, django_assert_max_num_queries: Any
) -> None:
    for number in range(25):
        change = make_change(project, number=number + 1)
        make_criterion(change)
    big = make_change(project, number=99)
    first = make_task(big)
    for _ in range(15):
        make_dependency(make_task(big), first)
        make_failed_run(make_task(big))
    with django_assert_max_num_queries(16):
        read(client, "/changes")
    with django_assert_max_num_queries(24):
        read(client, f"/changes/{big.pk}")
