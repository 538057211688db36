"""A POST that is sent twice happens once."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tenants.errors import RequestInProgress
from tenants.idempotency import KEPT_HOURS, Claimed, claim, forget_old
from tenants.models import IdempotencyRecord, Membership, Project, Role, User
from tests.factories.tenants import make_organization, make_user
from tests.tenants.conftest import House, api

ADDRESS = "/api/v1/projects"


def _post(user: User, house: House, key: str = "k1", **more: Any) -> Any:
    body = {"organization": str(house.organization.pk), "name": "New", "slug": "new"} | more
    return api(user).post(ADDRESS, body, HTTP_IDEMPOTENCY_KEY=key)


def test_the_same_request_again_gets_the_same_answer_and_does_nothing(house: House) -> None:
    first = _post(house.owner, house)
    second = _post(house.owner, house)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert Project.objects.filter(slug="new").count() == 1


def test_another_body_with_the_same_key_is_refused(house: House) -> None:
    _post(house.owner, house)
    answer = _post(house.owner, house, name="Other", slug="other")
    assert answer.status_code == 409
    assert answer.json()["code"] == "idempotency_key_reused"
    assert not Project.objects.filter(slug="other").exists()


@pytest.mark.parametrize("end", ["left", "lowered"])
def test_a_kept_answer_is_read_by_nobody_who_lost_the_right_to_it(house: House, end: str) -> None:
    """Fault C83: nothing acts on a repetition, so no view asks for the role."""
    assert _post(house.admin, house).status_code == 201
    mine = Membership.objects.filter(user=house.admin, organization=house.organization)
    if end == "left":
        mine.delete()
    else:
        mine.update(role=Role.VIEWER)
    answer = _post(house.admin, house)
    assert answer.status_code == 409
    assert "slug" not in answer.content.decode()


def test_who_got_a_higher_role_or_another_membership_reads_their_answer_again(house: House) -> None:
    first = _post(house.admin, house)
    Membership.objects.filter(user=house.admin).update(role=Role.OWNER)
    Membership.objects.create(user=house.admin, organization=make_organization(), role=Role.VIEWER)
    assert _post(house.admin, house).json() == first.json()


def test_a_key_belongs_to_one_user(house: House) -> None:
    _post(house.owner, house)
    assert _post(house.admin, house, slug="other").status_code == 201


def test_a_key_that_has_not_answered_yet_is_refused(house: House) -> None:
    """Also hours later: whether the first one took effect is unknown, so it is not done again."""
    _post(house.owner, house)
    IdempotencyRecord.objects.update(status=None, body=None)
    answer = _post(house.owner, house)
    assert answer.status_code == 409
    assert answer.json()["code"] == "idempotency_in_progress"
    assert 1 <= int(answer.headers["Retry-After"]) <= 60, "a client that asks again needs to know when"


def test_a_refusal_changed_nothing_and_gives_the_key_back(house: House) -> None:
    assert _post(house.owner, house, slug="Not A Slug").status_code == 400
    assert _post(house.owner, house).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 201, "caf\xe9"])
def test_odd_keys_are_refused(house: House, key: str) -> None:
    answer = _post(house.owner, house, key)
    assert answer.status_code == 400
    assert answer.json()["field"] == "Idempotency-Key"


def test_old_records_are_forgotten_and_the_key_is_free_again(db: None) -> None:
    user, now = make_user(), timezone.now()
    assert isinstance(claim(user, "k", "f", now=now), Claimed)
    with pytest.raises(RequestInProgress):
        claim(user, "k", "f", now=now + timedelta(hours=KEPT_HOURS - 1))
    later = now + timedelta(hours=KEPT_HOURS, minutes=1)
    assert isinstance(claim(user, "k", "f", now=later), Claimed)
    assert forget_old(now=later + timedelta(hours=KEPT_HOURS)) == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_claims_at_once_one_wins() -> None:
    user, now, together = make_user(), timezone.now(), Barrier(6)
    outcomes: list[str] = []

    def take() -> None:
        together.wait()
        try:
            outcomes.append(type(claim(user, "k", "f", now=now)).__name__)
        except RequestInProgress:
            outcomes.append("in progress")
        finally:
            connection.close()

    threads = [Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["Claimed"] + ["in progress"] * 5
