"""A person's comment on finished work opens its Task again."""

from __future__ import annotations

import pytest

from tasks.errors import NotStopped
from tasks.fence import take_work
from tasks.models import Change
from tasks.reopening import send_back
from tasks.states import ChangeState, TaskState
from tenants.errors import InvalidInput, RoleTooLow
from tenants.models import Role
from tests.factories.tasks import NOW, make_change, make_task
from tests.factories.tenants import make_member
from tests.tasks.repositories import states

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def change() -> Change:
    """T1 <- T2, and T3 beside them: all done, and the Change waits for a person."""
    change = make_change(state=ChangeState.READY)
    first = make_task(change, state=TaskState.DONE)
    make_task(change, needs=(first,), state=TaskState.DONE)
    make_task(change, state=TaskState.DONE)
    return change


def test_a_comment_opens_the_task_and_what_stands_on_it(change: Change) -> None:
    task = change.tasks.get(key="T1")
    send_back(task, "Name the currency.", by=change.author, key="a", now=NOW)
    change.refresh_from_db()
    assert change.state == ChangeState.RUNNING
    assert states(change) == ["ready", "pending", "done"]
    assert task.notes == ["A person looked at your work: Name the currency."]
    assert task.attempts_reset_at == NOW
    assert task.reopenings.get().by == change.author


def test_the_same_key_opens_it_once(change: Change) -> None:
    task = change.tasks.get(key="T3")
    for _ in range(2):
        send_back(task, "Again.", by=change.author, key="a", now=NOW)
    assert len(task.notes) == 1


def test_a_failed_change_goes_on(change: Change) -> None:
    Change.objects.filter(pk=change.pk).update(state=ChangeState.FAILED, failure="criterion 1")
    send_back(change.tasks.get(key="T3"), "Mend it.", by=change.author, key="a", now=NOW)
    change.refresh_from_db()
    assert (change.state, change.failure) == (ChangeState.RUNNING, "")


def test_a_composer_that_is_at_work_loses_it(change: Change) -> None:
    Change.objects.filter(pk=change.pk).update(state=ChangeState.COMPOSING, not_before=NOW)
    hold = take_work(change.pk, now=NOW)
    assert hold is not None
    send_back(change.tasks.get(key="T3"), "Wait.", by=change.author, key="a", now=NOW)
    change.refresh_from_db()
    assert (change.state, change.work_key) == (ChangeState.RUNNING, "")


def test_what_is_not_done_or_has_ended_is_not_sent_back(change: Change) -> None:
    open_task = make_task(change)
    with pytest.raises(NotStopped):
        send_back(open_task, "Hm.", by=change.author, key="a", now=NOW)
    Change.objects.filter(pk=change.pk).update(state=ChangeState.PROMOTED)
    with pytest.raises(NotStopped):
        send_back(change.tasks.get(key="T3"), "Hm.", by=change.author, key="b", now=NOW)


def test_an_empty_comment_and_a_viewer_are_refused(change: Change) -> None:
    task = change.tasks.get(key="T3")
    with pytest.raises(InvalidInput) as refused:
        send_back(task, "  ", by=change.author, key="a", now=NOW)
    assert refused.value.field == "comment"
    viewer = make_member(change.organization, Role.VIEWER)
    with pytest.raises(RoleTooLow):
        send_back(task, "Hm.", by=viewer, key="a", now=NOW)
