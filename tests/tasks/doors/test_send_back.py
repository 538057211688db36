"""Sending finished work back, from the page and over REST."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tasks.models import Task
from tasks.states import ChangeState, TaskState
from tenants.models import Role
from tests.factories.tasks import make_change, make_task
from tests.factories.tenants import make_member

pytestmark = pytest.mark.django_db


@pytest.fixture
def task() -> Task:
    return make_task(make_change(state=ChangeState.READY), state=TaskState.DONE)


def client_of(task: Task, role: Role = Role.MEMBER) -> Client:
    client = Client()
    client.force_login(make_member(task.change.organization, role))
    return client


def test_a_member_sends_work_back_from_its_page(task: Task) -> None:
    client, path = client_of(task), reverse("task-send-back", args=[task.pk])
    assert path in client.get(reverse("task", args=[task.pk])).content.decode()
    assert client.get(path).status_code == 200
    answer = client.post(path, {"comment": "Name <the> currency.", "key": "k"})
    assert answer.url == reverse("change", args=[task.change_id])  # type: ignore[attr-defined]  # a redirect
    task.refresh_from_db()
    assert task.state == TaskState.READY
    assert task.notes == ["A person looked at your work: Name <the> currency."]
    assert "Name &lt;the&gt; currency." in client.get(reverse("task", args=[task.pk])).content.decode()


def test_without_a_comment_nothing_is_sent_back(task: Task) -> None:
    answer = client_of(task).post(reverse("task-send-back", args=[task.pk]), {"comment": " ", "key": "k"})
    assert answer.status_code == 400
    assert Task.objects.get(pk=task.pk).state == TaskState.DONE


def test_over_rest_the_same_key_sends_it_back_once(task: Task) -> None:
    client, path = client_of(task), f"/api/v1/tasks/{task.pk}/send-back"
    answers = [
        client.post(
            path, {"comment": "Again."}, content_type="application/json", headers={"Idempotency-Key": "a"}
        )
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json()["state"] == "ready"
    assert Task.objects.get(pk=task.pk).reopenings.count() == 1


def test_a_viewer_may_not_and_a_stranger_sees_nothing(task: Task) -> None:
    body = {"comment": "Again."}
    path = f"/api/v1/tasks/{task.pk}/send-back"
    viewer = client_of(task, Role.VIEWER)
    assert viewer.post(path, body, content_type="application/json").status_code == 403
    assert viewer.get(reverse("task-send-back", args=[task.pk])).status_code == 403
    stranger = Client()
    stranger.force_login(make_member())
    assert stranger.post(path, body, content_type="application/json").status_code == 404


def test_unfinished_work_is_a_conflict(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(state=TaskState.RUNNING)
    answer = client_of(task).post(
        f"/api/v1/tasks/{task.pk}/send-back", {"comment": "Hm."}, content_type="application/json"
    )
    assert answer.status_code == 409
