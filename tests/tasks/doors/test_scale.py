"""The heavy doors over many rows: a bounded number of queries, and an index for every large table (issue 6, show 4).

`python -m bench doors` measures the same doors over a million events.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from django.db import connection

from bench import doors

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.django_db]

CHANGES = 300
# What one door may ask the database. The Spend page gathers a dozen figures; no other has a reason to.
QUERIES_MAX = 26
QUERIES_OF_SPEND_MAX = 30


@pytest.fixture
def world() -> Iterator[doors.World]:
    with doors.product_with_bare_views():
        yield doors.fill(changes=CHANGES)


def test_every_door_asks_a_bounded_number_of_times_and_by_an_index(world: doors.World) -> None:
    with connection.cursor() as cursor:
        # So few rows are read fastest from end to end; without that way, only what has no index still goes it.
        cursor.execute("SET LOCAL enable_seqscan = off")
    found = {}
    for door in doors.doors(world):
        queries, scans = doors.looked_into(doors.client_of(world, door), door.path(random.Random(1)))
        most = QUERIES_OF_SPEND_MAX if door.name.startswith("spend") else QUERIES_MAX
        if queries > most or scans:
            found[door.name] = (queries, scans)
    assert found == {}


def test_a_search_of_a_plan_sees_what_has_no_index(world: doors.World) -> None:
    """The measure itself: it must be able to fail."""
    assert world.changes
    assert doors.scanned("SELECT count(*) FROM tasks_event WHERE data::text LIKE '%x%'") == {"tasks_event"}
    assert doors.scanned("SELECT 1 FROM tasks_event WHERE id = 5") == set()
