"""Events as they happen: in order, resumable, and over as soon as the right to them is (fault C83)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import httpx
import pytest
from django.test import Client
from django.utils import timezone

from tasks import horizon
from tasks.api import streams
from tasks.horizon import HOLE_SECONDS, Settled, settle
from tasks.models import Change
from tenants.models import ApiToken, Membership, Organization, Role, User
from tests.factories.tasks import make_change, make_event
from tests.factories.tenants import bearer, make_member, make_organization, make_project, make_token

WAIT_SECONDS = 10
# Heartbeats would keep a client waiting for ever.
LINES_MAX = 100


# ---- the horizon, pure


@pytest.mark.parametrize(
    ("ids", "upto", "holes"),
    [
        ([], 5, {}),
        ([6, 7], 7, {}),
        ([7, 8], 5, {6: 100.0}),
        ([6, 8], 6, {7: 100.0}),
    ],
)
def test_an_id_that_is_missing_is_waited_for(ids: list[int], upto: int, holes: dict[int, float]) -> None:
    assert settle(Settled(5, {}), ids, now=100.0) == Settled(upto, holes)


def test_an_id_that_comes_late_is_told_in_its_place() -> None:
    waiting = settle(Settled(5, {}), [7], now=100.0)
    assert settle(waiting, [6, 7], now=100.5) == Settled(7, {})


def test_an_id_that_never_comes_is_waited_for_no_longer_than_a_transaction_lasts() -> None:
    waiting = settle(Settled(5, {}), [7, 9], now=100.0)
    assert waiting == Settled(5, {6: 100.0, 8: 100.0})
    assert settle(waiting, [7, 9], now=100.0 + HOLE_SECONDS) == Settled(9, {})


# ---- over the wire


@dataclass(frozen=True)
class House:
    organization: Organization
    change: Change
    user: User
    token: ApiToken
    headers: dict[str, str]


@pytest.fixture
def house(transactional_db: None) -> House:
    organization = make_organization()
    user = make_member(organization, Role.VIEWER)
    token, plain = make_token(user, organization)
    change = make_change(make_project(organization))
    return House(organization, change, user, token, {"Authorization": f"Bearer {plain}"})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of time, not behaviour: nobody waits 15 seconds for a heartbeat in a test."""
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.3)
    monkeypatch.setattr(horizon, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(horizon, "HOLE_SECONDS", 0.2)


class Listening:
    """A client that reads what comes, event by event."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.lines = answer.iter_lines()

    def next(self) -> dict[str, Any]:
        """The next event with its id and name; comments are passed over."""
        found: dict[str, Any] = {"event": "message"}
        for line in islice(self.lines, LINES_MAX):
            name, _, value = line.partition(": ")
            if not line and "data" in found:
                return found
            if name in ("id", "event"):
                found[name] = value
            elif name == "data":
                found["data"] = json.loads(value)
        raise EOFError("nothing came")

    def comment(self) -> str:
        return next(line for line in self.lines if line.startswith(":"))


@pytest.fixture
def http(asgi_server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=asgi_server, timeout=WAIT_SECONDS) as client:
        yield client


def path_of(house: House) -> str:
    return f"/api/v1/changes/{house.change.pk}/events/stream"


def test_a_stream_tells_the_past_and_then_what_happens(http: httpx.Client, house: House) -> None:
    make_event(house.change, kind="change.planned", data={"text": "two\nlines"})
    with http.stream("GET", path_of(house) + "?after=0", headers=house.headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        listening = Listening(answer)
        first = listening.next()
        assert first["data"]["kind"] == "change.planned"
        assert first["data"]["data"] == {"text": "two\nlines"}
        make_event(make_change(house.change.project), kind="task.ready")
        later = make_event(house.change, kind="task.ready")
        second = listening.next()
        assert (second["id"], second["data"]["kind"]) == (str(later.pk), "task.ready")
        assert second["data"]["change"] == str(house.change.pk)


def test_a_broken_stream_goes_on_where_it_was(http: httpx.Client, house: House) -> None:
    events = [make_event(house.change, kind=f"step.{number}") for number in range(3)]
    headers = {**house.headers, "Last-Event-ID": str(events[0].pk)}
    with http.stream("GET", path_of(house) + "?after=0", headers=headers) as answer:
        listening = Listening(answer)
        assert [listening.next()["data"]["kind"] for _ in range(2)] == ["step.1", "step.2"]


def test_without_a_place_to_go_on_only_news_is_told(http: httpx.Client, house: House) -> None:
    make_event(house.change, kind="old")
    with http.stream("GET", path_of(house), headers=house.headers) as answer:
        listening = Listening(answer)
        listening.comment()
        make_event(house.change, kind="new")
        assert listening.next()["data"]["kind"] == "new"


def test_an_organizations_stream_tells_of_all_its_changes_and_of_no_other(
    http: httpx.Client, house: House
) -> None:
    path = f"/api/v1/organizations/{house.organization.pk}/events/stream"
    with http.stream("GET", path + "?after=0", headers=house.headers) as answer:
        listening = Listening(answer)
        make_event(make_change(), kind="foreign")
        make_event(house.change, kind="own")
        make_event(make_change(house.change.project), kind="also.own")
        assert [listening.next()["data"]["kind"] for _ in range(2)] == ["own", "also.own"]


def test_a_quiet_stream_says_that_it_is_there(http: httpx.Client, house: House) -> None:
    with http.stream("GET", path_of(house), headers=house.headers) as answer:
        listening = Listening(answer)
        assert listening.comment() == ": connected"
        assert listening.comment() == ": still here"


@pytest.mark.parametrize("end", ["membership", "token", "expiry", "switched off"])
def test_a_stream_ends_with_the_right_to_it(http: httpx.Client, house: House, end: str) -> None:
    """Fault C83: checked at connect and at each event."""
    with http.stream("GET", path_of(house), headers=house.headers) as answer:
        listening = Listening(answer)
        listening.comment()
        _end(house, end)
        make_event(house.change, kind="not.for.them")
        closed = listening.next()
    assert (closed["event"], closed["data"]) == ("closed", {"reason": "access_ended"})
    assert http.get(path_of(house), headers=house.headers).status_code == 401


def _end(house: House, end: str) -> None:
    token, user = ApiToken.objects.filter(pk=house.token.pk), User.objects.filter(pk=house.user.pk)
    match end:
        case "membership":
            Membership.objects.filter(user=house.user).delete()
        case "token":
            token.update(revoked_at=timezone.now())
        case "expiry":
            token.update(expires_at=timezone.now())
        case _:
            user.update(is_active=False)


def test_a_stream_of_a_browser_ends_when_its_session_does(http: httpx.Client, house: House) -> None:
    client = Client()
    client.force_login(house.user)
    cookies = {"Cookie": f"sessionid={client.cookies['sessionid'].value}"}
    with http.stream("GET", path_of(house), headers=cookies) as answer:
        listening = Listening(answer)
        listening.comment()
        client.logout()
        assert listening.next()["data"] == {"reason": "access_ended"}


def test_a_stream_ends_after_its_time(
    http: httpx.Client, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAM_SECONDS_MAX", 0.2)
    with http.stream("GET", path_of(house), headers=house.headers) as answer:
        assert Listening(answer).next()["data"] == {"reason": "lifetime"}


def test_one_person_keeps_so_many_streams_open(
    http: httpx.Client, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMS_PER_PERSON_MAX", 1)
    with http.stream("GET", path_of(house), headers=house.headers) as first:
        open_one = Listening(first)  # dropped, it would close the stream
        open_one.comment()
        with http.stream("GET", path_of(house), headers=house.headers) as second:
            assert Listening(second).next()["data"] == {"reason": "too_many_streams"}


def test_open_streams_hinder_no_other_request(http: httpx.Client, house: House) -> None:
    with (
        http.stream("GET", path_of(house), headers=house.headers) as first,
        http.stream("GET", path_of(house), headers=house.headers) as second,
    ):
        both = [Listening(first), Listening(second)]
        assert [each.comment() for each in both] == [": connected"] * 2
        assert http.get("/healthz").status_code == 200
        assert http.get("/api/v1/changes", headers=house.headers).status_code == 200


def test_strangers_get_no_stream(http: httpx.Client, house: House) -> None:
    foreigner = make_member(make_organization(), Role.OWNER)
    _, plain = make_token(foreigner, Membership.objects.get(user=foreigner).organization)
    streams_of = (path_of(house), f"/api/v1/organizations/{house.organization.pk}/events/stream")
    for path in streams_of:
        asks = {"Accept": "text/event-stream"}
        assert http.get(path, headers=asks).status_code == 401
        refused = http.get(path, headers={**asks, "Authorization": f"Bearer {plain}"})
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert http.get(path + "?after=x", headers=house.headers).status_code == 400


def test_a_server_without_streams_tells_what_is_there_and_ends(house: House) -> None:
    """Under WSGI nothing may wait: the client asks again with the last id."""
    event = make_event(house.change, kind="change.planned")
    answer = Client().get(path_of(house) + "?after=0", **bearer(house.headers["Authorization"][7:]))
    said = answer.getvalue().decode()
    assert f"id: {event.pk}\n" in said
    assert 'event: closed\ndata: {"reason": "not_live"}' in said


def test_asking_for_the_head_of_a_stream_opens_none(http: httpx.Client, house: House) -> None:
    """It used to run on behind an answer that was over, and to hold up what came next on its connection."""
    for path in (path_of(house), f"/api/v1/organizations/{house.organization.pk}/events/stream"):
        answer = http.head(path, headers=house.headers)
        assert (answer.status_code, answer.headers["content-type"]) == (200, streams.STREAM_TYPE)
        assert http.get("/healthz").status_code == 200
        assert not streams._OPEN
