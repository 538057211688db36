"""The rules without a database: signatures after the convention, and the schedule of retries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tenants.errors import InvalidInput
from webhooks.addresses import checked_url
from webhooks.schedule import (
    ATTEMPTS_MAX,
    RETRY_AFTER_SECONDS_MAX,
    Again,
    Answer,
    Delivered,
    GiveUp,
    Gone,
    is_hopeless,
    rest_seconds,
    verdict,
)
from webhooks.signing import is_signed, is_signed_by_github, new_secret, signature, signatures

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
# The vector of the convention's own libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE, STAMP, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_signature_is_that_of_the_convention() -> None:
    assert signature(SECRET, MESSAGE, STAMP, BODY) == SIGNATURE


@pytest.mark.parametrize(
    ("header", "timestamp", "later", "fits"),
    [
        (SIGNATURE, str(STAMP), 0, True),
        (f"v1,AAAA v2,{SIGNATURE[3:]} {SIGNATURE}", str(STAMP), 300, True),
        (SIGNATURE, str(STAMP), 301, False),
        (SIGNATURE, str(STAMP), -301, False),
        (f"v2,{SIGNATURE[3:]}", str(STAMP), 0, False),
        (SIGNATURE[3:], str(STAMP), 0, False),
        ("v1,dawfeoifkpqwoekfpqoekf", str(STAMP), 0, False),
        ("", str(STAMP), 0, False),
        ("ü" * 5_000, str(STAMP), 0, False),
        (" ".join(["v1,AAAA"] * 10 + [SIGNATURE]), str(STAMP), 0, False),
        (SIGNATURE, f"{STAMP}.0", 0, False),
        (SIGNATURE, f"-{STAMP}", 0, False),
        (SIGNATURE, "٣", 0, False),
        (SIGNATURE, "9" * 400, 0, False),
        (SIGNATURE, "", 0, False),
    ],
)
def test_a_message_is_signed_and_fresh_or_it_is_not(
    header: str, timestamp: str, later: int, fits: bool
) -> None:
    signed = is_signed(
        [new_secret(), SECRET],
        message_id=MESSAGE,
        timestamp=timestamp,
        header=header,
        body=BODY,
        now=STAMP + later,
    )
    assert signed is fits


def test_while_a_secret_rotates_both_sign() -> None:
    fresh = new_secret()
    header = signatures([fresh, SECRET], MESSAGE, STAMP, BODY)
    for known in (fresh, SECRET):
        assert is_signed(
            [known], message_id=MESSAGE, timestamp=str(STAMP), header=header, body=BODY, now=STAMP
        )


def test_githubs_signature_is_that_of_its_manual() -> None:
    header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert is_signed_by_github(["It's a Secret to Everybody"], header=header, body=b"Hello, World!")
    assert not is_signed_by_github(["another"], header=header, body=b"Hello, World!")
    assert not is_signed_by_github(["It's a Secret to Everybody"], header=header[7:], body=b"Hello, World!")


def test_the_waits_grow_and_reach_over_about_a_day() -> None:
    waits = []
    for tries in range(1, ATTEMPTS_MAX):
        found = verdict(Answer(500), tries=tries, queued_at=NOW, now=NOW, shake=0.5)
        assert isinstance(found, Again)
        waits.append(found.seconds)
    assert waits == [10, 40, 160, 640, 2_560, 10_240, 36_000, 36_000]
    assert 20 * 3_600 < sum(waits) < 28 * 3_600
    assert verdict(Answer(500), tries=ATTEMPTS_MAX, queued_at=NOW, now=NOW, shake=0) == GiveUp(
        "tries_used_up"
    )


@pytest.mark.parametrize(("shake", "seconds"), [(0.0, 8), (0.5, 10), (0.999, 12)])
def test_a_wait_is_shaken_by_a_fifth(shake: float, seconds: int) -> None:
    assert verdict(Answer(500), tries=1, queued_at=NOW, now=NOW, shake=shake) == Again(seconds)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120),
        ("5", 10),  # never sooner than our own wait
        ("Mon, 30 Nov 2026 12:10:00 GMT", 600),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 10),
        ("999999999999999999", RETRY_AFTER_SECONDS_MAX),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_SECONDS_MAX),
        ("soon", 10),
        ("-3", 10),
        ("1e9", 10),
        ("", 10),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 10),
        ("Mon, 01 Jan 2026 00:00:00 +99999999999999999999999", 10),
        ("1-Jan-9999:99 +00001e5) 9999999999", 10),
    ],
)
def test_retry_after_is_honoured_within_bounds(said: str, seconds: int) -> None:
    answer = Answer(503, retry_after=said)
    assert verdict(answer, tries=1, queued_at=NOW, now=NOW, shake=0.5) == Again(seconds)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_a_good_answer_ends_it(status: int) -> None:
    assert verdict(Answer(status), tries=9, queued_at=NOW, now=NOW, shake=0) == Delivered()


@pytest.mark.parametrize("status", [None, 199, 301, 307, 400, 401, 404, 429, 500, 599])
def test_every_other_answer_is_tried_again(status: int | None) -> None:
    assert isinstance(verdict(Answer(status), tries=1, queued_at=NOW, now=NOW, shake=0), Again)


def test_gone_is_for_ever_and_old_ones_are_given_up() -> None:
    assert verdict(Answer(410), tries=1, queued_at=NOW, now=NOW, shake=0) == Gone()
    old = NOW - timedelta(hours=72, seconds=1)
    assert verdict(Answer(500), tries=2, queued_at=old, now=NOW, shake=0) == GiveUp("too_old")


def test_an_endpoint_rests_longer_with_each_failure_and_is_hopeless_only_after_days_and_many() -> None:
    assert [rest_seconds(failures) for failures in (0, 1, 2, 3, 4, 7, 8, 1_000)] == [
        0,
        0,
        2,
        4,
        8,
        60,
        60,
        60,
    ]
    assert is_hopeless(failing_since=NOW - timedelta(days=5), failures=10, now=NOW)
    assert not is_hopeless(failing_since=NOW - timedelta(days=5), failures=9, now=NOW)
    assert not is_hopeless(failing_since=NOW - timedelta(days=4, hours=23), failures=999, now=NOW)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "   ",
        "ftp://example.org/",
        "example.org/hook",
        "https://",
        "https://user:password@example.org/",
        "https://example.org/#part",
        "https://example.org/with space",
        "https://exämple.org/",
        "https://example.org/" + "x" * 500,
        "https://169.254.169.254/latest/meta-data",
        "https://[fd00:ec2::254]/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://10.0.0.1/hook",
        "https://[::ffff:10.0.0.1]/",
        "http://example.org/hook",
        "https://example.org:99999/",
    ],
)
def test_an_address_that_may_not_be_called_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_url(url, private_addresses=False)
    assert refused.value.field == "url"
    assert refused.value.remedy


@pytest.mark.parametrize("url", ["https://example.org/hook?team=a&x=1", "https://example.org:8443/"])
def test_an_https_address_with_a_query_is_taken(url: str) -> None:
    assert checked_url(f" {url} ", private_addresses=False) == url
