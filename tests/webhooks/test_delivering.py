"""Deliveries to a real server on this machine: signed, retried, bounded, fair, and each the same message."""

from __future__ import annotations

import json
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from tasks.states import ChangeState
from tasks.transitions import move_change
from tenants.models import AuditEntry, Organization, Role
from tests.factories.tasks import make_change
from tests.factories.tenants import make_member, make_organization
from tests.factories.webhooks import SECRET, make_attempt, make_delivery, make_endpoint
from tests.tasks.threads import in_threads
from tests.webhooks.receiver import Receiver
from webhooks import deliveries, lanes
from webhooks.delivering import deliver_due
from webhooks.endpoints import resend, resend_failed, rotate_secret, switch_endpoint
from webhooks.models import Attempt, Delivery, DeliveryState, Endpoint
from webhooks.schedule import Answer
from webhooks.sending import ANSWER_SHOWN_CHARACTERS_MAX

pytestmark = pytest.mark.django_db


def time_passes(seconds: float) -> None:
    """Everything that waits has waited so long: moved back in the rows, since the job reads the real clock."""
    by = timedelta(seconds=seconds)
    for endpoint in Endpoint.objects.all():
        endpoint.lease_until = endpoint.lease_until and endpoint.lease_until - by
        endpoint.rests_until = endpoint.rests_until and endpoint.rests_until - by
        endpoint.failing_since = endpoint.failing_since and endpoint.failing_since - by
        endpoint.save()
    for delivery in Delivery.objects.all():
        delivery.not_before -= by
        delivery.queued_at -= by
        delivery.created_at -= by
        delivery.save()


def fresh(delivery: Delivery) -> Delivery:
    found: Delivery = Delivery.objects.get(pk=delivery.pk)
    return found


def test_a_delivery_is_signed_after_the_convention_and_noted() -> None:
    with Receiver(answers=[(200, {}, "schön".encode())]) as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        assert deliver_due() == 1
    (got,) = receiver.got
    assert got.is_signed_with(SECRET)
    assert not got.is_signed_with("whsec_" + "A" * 44)
    assert got.path == "/hook?team=a"
    assert got.id == delivery.message_id == got.data["id"]
    assert got.headers["content-type"] == "application/json"
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 5
    after = fresh(delivery)
    assert (after.state, after.tries, after.problem) == (DeliveryState.DELIVERED, 1, "")
    (attempt,) = after.attempts.all()
    assert (attempt.status, attempt.answer, attempt.next_at) == (200, "schön", None)
    assert attempt.milliseconds is not None
    endpoint = Endpoint.objects.get()
    assert endpoint.succeeded_at
    assert (endpoint.lease_key, endpoint.lease_until) == ("", None)


def test_an_event_writes_its_deliveries_in_its_own_transaction_for_those_who_asked() -> None:
    change = make_change(state=ChangeState.COMPOSING)
    ours = make_endpoint(change.organization, kinds=["change.ready", "task.done"])
    make_endpoint(change.organization, kinds=["task.done"])
    make_endpoint(change.organization, enabled=False, off_because="person")
    make_endpoint(make_organization())
    move_change(change, ChangeState.READY, because="criteria_passed", now=timezone.now())
    (delivery,) = Delivery.objects.all()
    assert delivery.endpoint == ours
    said = json.loads(delivery.payload)
    event = change.events.get()
    assert said["id"] == delivery.message_id == f"evt_{event.pk}"
    assert (said["type"], said["version"]) == ("change.ready", 1)
    assert said["organization"] == str(change.organization_id)
    assert said["data"]["change"]["state"] == "ready"
    assert said["data"]["event"]["data"] == {"because": "criteria_passed"}


def test_what_fails_is_tried_again_under_the_same_id_with_the_same_body() -> None:
    with Receiver(
        answers=[(500, {}, b"down"), (503, {"Retry-After": "90"}, b""), (200, {}, b"")]
    ) as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        assert deliver_due() == 1
        first = fresh(delivery)
        assert first.state == DeliveryState.PENDING
        assert 7 <= (first.not_before - timezone.now()).total_seconds() <= 12
        assert deliver_due() == 0
        time_passes(13)
        assert deliver_due() == 1
        wait = (fresh(delivery).not_before - timezone.now()).total_seconds()
        assert 85 <= wait <= 90  # Retry-After, longer than our own wait
        time_passes(91)
        assert deliver_due() == 1
    assert len({(got.id, got.body) for got in receiver.got}) == 1
    assert fresh(delivery).state == DeliveryState.DELIVERED
    numbers = delivery.attempts.values_list("number", "status", "answer")
    assert list(numbers) == [(1, 500, "down"), (2, 503, ""), (3, 200, "")]
    assert Endpoint.objects.get().failures == 0


def test_after_the_last_try_it_is_given_up_and_a_person_may_resend() -> None:
    admin = make_member(make_organization(), Role.ADMIN)
    organization = Organization.objects.get()
    with Receiver(answers=[(500, {}, b"")]) as receiver:
        endpoint = make_endpoint(organization, url=receiver.url)
        delivery = make_delivery(endpoint)
        for _ in range(9):
            assert deliver_due() == 1
            wait = fresh(delivery).not_before - timezone.now()
            time_passes(max(60, wait.total_seconds()) + 1)
        assert deliver_due() == 0
        after = fresh(delivery)
        assert (after.state, after.tries, after.problem) == (DeliveryState.FAILED, 9, "tries_used_up")
        receiver.answers = [(200, {}, b"")]
        resend(after, by=admin, now=timezone.now())
        assert deliver_due() == 1
    after = fresh(delivery)
    assert (after.state, after.tries) == (DeliveryState.DELIVERED, 1)
    assert after.attempts.count() == 10
    assert len({got.id for got in receiver.got}) == 1
    assert AuditEntry.objects.filter(action="webhook.resent", actor=admin).count() == 1


def test_resend_all_that_failed_since_takes_exactly_these() -> None:
    organization = make_organization()
    admin = make_member(organization, Role.ADMIN)
    now = timezone.now()
    endpoint, other = make_endpoint(organization), make_endpoint(organization)
    ended: dict[str, Any] = {"ended_at": now, "tries": 9}
    failed = [
        make_delivery(endpoint, state="failed", created_at=now - timedelta(hours=age), **ended)
        for age in (1, 5, 30)
    ]
    make_delivery(endpoint, state="delivered", created_at=now - timedelta(hours=1), **ended)
    make_delivery(other, state="failed", created_at=now - timedelta(hours=1), **ended)
    assert resend_failed(endpoint, since=now - timedelta(hours=24), by=admin, now=now) == 2
    due = Delivery.objects.filter(state="pending").values_list("pk", flat=True)
    assert set(due) == {failed[0].pk, failed[1].pk}
    assert resend_failed(endpoint, since=now - timedelta(hours=24), by=admin, now=now) == 0


def test_gone_switches_the_endpoint_off_gives_up_the_rest_and_tells_the_admins() -> None:
    with Receiver(answers=[(410, {}, b"")]) as receiver:
        endpoint = make_endpoint(url=receiver.url)
        first, second = make_delivery(endpoint), make_delivery(endpoint)
        assert deliver_due() == 1
    endpoint.refresh_from_db()
    assert (endpoint.enabled, endpoint.off_because) == (False, "gone")
    assert fresh(first).problem == "gone"
    assert fresh(second).state == DeliveryState.FAILED
    assert "switched off" in fresh(second).problem
    entry = AuditEntry.objects.get(action="webhook.switched_off")
    assert entry.actor is None
    assert entry.after == {"because": "it answered 410 Gone", "failures": 0}


def test_days_of_nothing_but_failures_switch_it_off() -> None:
    endpoint = make_endpoint(
        failures=20, failing_since=timezone.now() - timedelta(days=5, minutes=1)
    )  # nobody listens at its address
    delivery = make_delivery(endpoint)
    assert deliver_due() == 1
    endpoint.refresh_from_db()
    assert (endpoint.enabled, endpoint.off_because) == (False, "failing")
    attempt = delivery.attempts.get()
    assert attempt.status is None
    assert "no connection" in attempt.problem


def test_a_backlog_for_a_broken_receiver_does_not_hammer_it() -> None:
    """After a failure the turn ends; after the second in a row the endpoint rests as a whole."""
    with Receiver(answers=[(500, {}, b"")]) as receiver:
        endpoint = make_endpoint(url=receiver.url)
        for _ in range(10):
            make_delivery(endpoint)
        deliver_due()
        assert len(receiver.got) == 2
        assert deliver_due() == 0
        endpoint.refresh_from_db()
        assert endpoint.rests_until is not None


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with Receiver() as elsewhere, Receiver(answers=[(status, {"Location": elsewhere.url}, b"")]) as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        deliver_due()
    assert elsewhere.got == []
    attempt = delivery.attempts.get()
    assert attempt.status == status
    assert "redirects are not followed" in attempt.problem


def test_only_the_first_part_of_an_answer_is_read_and_kept() -> None:
    text = b"\x00\x1b[31m\xff<script>" + b"x" * 3_000_000
    with Receiver(answers=[(200, {}, text)]) as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        deliver_due()
    kept = delivery.attempts.get().answer
    assert len(kept) == ANSWER_SHOWN_CHARACTERS_MAX
    assert "\x00" not in kept
    assert fresh(delivery).state == DeliveryState.DELIVERED


def test_a_packed_answer_is_not_unpacked_and_its_status_counts() -> None:
    with Receiver(answers=[(200, {"Content-Encoding": "gzip"}, b"\x1f\x8b bomb")]) as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        deliver_due()
    assert fresh(delivery).state == DeliveryState.DELIVERED


def test_a_private_address_is_refused_when_the_deployment_says_so_also_behind_a_name(with_plane: Any) -> None:
    """The address that a name resolves to at the connect decides: no rebinding."""
    with_plane(private_addresses=False)
    with Receiver() as receiver:
        port = receiver.url.split(":")[2].partition("/")[0]
        for url in (f"https://127.0.0.1:{port}/", f"https://localhost:{port}/", "https://10.1.2.3/"):
            delivery = make_delivery(make_endpoint(url=url))
            deliver_due()
            attempt = delivery.attempts.get()
            assert attempt.status is None
            assert "private address" in attempt.problem, url
    assert receiver.got == []


def test_an_answer_that_drips_is_cut_and_its_status_counts(monkeypatch: Any) -> None:
    """The total of a request binds, whatever the receiver does byte by byte."""
    monkeypatch.setattr("webhooks.sending.SEND_SECONDS_MAX", 0.6)
    listening = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
            try:
                for _ in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.1)
            except OSError:
                return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    delivery = make_delivery(make_endpoint(url=f"http://127.0.0.1:{listening.getsockname()[1]}/"))
    begun = time.monotonic()
    deliver_due()
    assert time.monotonic() - begun < 3
    assert fresh(delivery).state == DeliveryState.DELIVERED
    thread.join(5)
    listening.close()


def test_a_silent_receiver_is_given_up_in_time(monkeypatch: Any) -> None:
    monkeypatch.setattr("webhooks.sending.SEND_SECONDS_MAX", 0.4)
    with Receiver(slow_seconds=1.5) as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        begun = time.monotonic()
        deliver_due()
        assert time.monotonic() - begun < 1.4
    attempt = delivery.attempts.get()
    assert (attempt.status, attempt.problem) == (None, "no answer in time")
    assert fresh(delivery).state == DeliveryState.PENDING


def test_a_rotated_secret_signs_beside_the_old_one_for_a_day() -> None:
    organization = make_organization()
    admin = make_member(organization, Role.ADMIN)
    with Receiver() as receiver:
        endpoint, secret = rotate_secret(
            make_endpoint(organization, url=receiver.url), by=admin, now=timezone.now()
        )
        make_delivery(endpoint)
        deliver_due()
        Endpoint.objects.update(previous_until=timezone.now() - timedelta(seconds=1))
        make_delivery(endpoint)
        deliver_due()
    during, after = receiver.got
    assert during.is_signed_with(secret)
    assert during.is_signed_with(SECRET)
    assert after.is_signed_with(secret)
    assert not after.is_signed_with(SECRET)


def test_a_secret_that_no_key_opens_is_told_and_nothing_leaves(with_plane: Any) -> None:
    with Receiver() as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        with_plane(connector_keys=("another-key-of-this-deployment",))
        deliver_due()
    assert receiver.got == []
    assert "secret cannot be opened" in delivery.attempts.get().problem


def test_a_worker_that_died_in_the_middle_is_told_as_unknown_and_the_message_comes_again() -> None:
    with Receiver() as receiver:
        endpoint = make_endpoint(url=receiver.url)
        delivery = make_delivery(endpoint)
        lane = lanes.take_lane(timezone.now())
        assert lane is not None
        assert deliveries.take_next(lane, timezone.now()) is not None
        # Here its worker is killed.
        assert deliver_due() == 0, "the lease holds"
        time_passes(lanes.LEASE_SECONDS + 1)
        assert deliver_due() == 1
    lost, second = delivery.attempts.all()
    assert "nobody knows" in lost.problem
    assert (second.status, receiver.got[0].id) == (204, delivery.message_id)


def test_a_worker_slower_than_its_lease_writes_the_truth_and_undoes_nothing() -> None:
    with Receiver() as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        lane = lanes.take_lane(timezone.now())
        assert lane is not None
        slow = deliveries.take_next(lane, timezone.now())
        assert slow is not None
        time_passes(lanes.LEASE_SECONDS + 1)
        assert deliver_due() == 1
        assert fresh(delivery).state == DeliveryState.DELIVERED
        deliveries.note_answer(slow, Answer(500, text="late"), timezone.now())
        assert deliveries.take_next(lane, timezone.now()) is None, "its lane is lost"
    assert fresh(delivery).state == DeliveryState.DELIVERED
    assert delivery.attempts.get(number=1).status == 500


def test_a_delivery_whose_workers_all_died_ends() -> None:
    delivery = make_delivery(tries=9)
    make_attempt(delivery)
    assert deliver_due() == 0
    after = fresh(delivery)
    assert after.state == DeliveryState.FAILED
    assert "worker died" in after.problem


def test_an_endpoint_that_is_off_gets_nothing_and_what_is_due_is_given_up() -> None:
    organization = make_organization()
    admin = make_member(organization, Role.ADMIN)
    with Receiver() as receiver:
        endpoint = make_endpoint(organization, url=receiver.url)
        delivery = make_delivery(endpoint)
        switch_endpoint(endpoint, enabled=False, by=admin, now=timezone.now())
        assert deliver_due() == 0
    assert receiver.got == []
    assert fresh(delivery).state == DeliveryState.FAILED


def test_old_deliveries_are_forgotten_and_young_or_pending_ones_are_not() -> None:
    endpoint = make_endpoint()
    now = timezone.now()
    old = now - timedelta(days=deliveries.KEPT_DAYS, minutes=1)
    gone = make_delivery(endpoint, created_at=old, state="failed", ended_at=old)
    make_attempt(gone)
    kept = [
        make_delivery(endpoint, created_at=old),
        make_delivery(endpoint, state="delivered", ended_at=now),
    ]
    assert deliveries.forget_old(now) == 1
    assert set(Delivery.objects.values_list("pk", flat=True)) == {one.pk for one in kept}
    assert Attempt.objects.count() == 0


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    """Real threads, each with a connection of its own."""

    def test_many_workers_send_each_delivery_once_and_an_endpoint_one_at_a_time(self) -> None:
        with Receiver(slow_seconds=0.02) as receiver:
            endpoint = make_endpoint(url=receiver.url)
            for _ in range(12):
                make_delivery(endpoint)
            in_threads(6, lambda _: deliver_due())
            deliver_due()
        assert len(receiver.got) == 12
        assert len({got.id for got in receiver.got}) == 12
        assert receiver.most_at_once == 1
        assert set(Delivery.objects.values_list("state", "tries")) == {("delivered", 1)}

    def test_one_slow_organization_does_not_hold_up_another(self) -> None:
        """However many slow endpoints it has, it takes two lanes; the others go on."""
        slow_one, quick_one = make_organization(), make_organization()
        with Receiver(slow_seconds=1.5) as slow, Receiver() as quick:
            for _ in range(6):
                make_delivery(make_endpoint(slow_one, url=slow.url))
            for _ in range(3):
                make_delivery(make_endpoint(quick_one, url=quick.url))
            workers = [threading.Thread(target=_work, daemon=True) for _ in range(4)]
            begun = time.monotonic()
            for worker in workers:
                worker.start()
            while len(quick.got) < 3:
                assert time.monotonic() - begun < 1.4, "the quick one had to wait for the slow one"
                time.sleep(0.01)
            assert slow.most_at_once <= lanes.LANES_PER_ORGANIZATION_MAX
            for worker in workers:
                worker.join(30)
        assert slow.most_at_once == lanes.LANES_PER_ORGANIZATION_MAX
        assert len(slow.got) == 6


def _work() -> None:
    try:
        deliver_due()
    finally:
        connections.close_all()


def test_the_job_of_the_night_is_registered_and_runs(settings: Any) -> None:
    from webhooks.jobs import deliver, forget_old

    old = timezone.now() - timedelta(days=40)
    make_delivery(created_at=old, state="failed", ended_at=old)
    deliver()
    forget_old()
    assert Delivery.objects.count() == 0
