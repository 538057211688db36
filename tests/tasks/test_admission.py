"""Which due Task may start (row 16, example 2b)."""

from __future__ import annotations

import pytest

from tasks.admission import AGENTS_PER_CHANGE_MAX, BLOCKED_LIMIT, PAUSED, AdmissionFacts, Admit, Wait, admit


@pytest.mark.parametrize(
    ("active", "older_due", "verdict"),
    [
        (0, 0, Admit()),
        (7, 0, Admit()),
        (8, 0, Wait(BLOCKED_LIMIT)),
        (9, 0, Wait(BLOCKED_LIMIT)),
        (7, 1, Wait(BLOCKED_LIMIT)),  # the free place is the older Task's
        (5, 2, Admit()),
        (0, 8, Wait(BLOCKED_LIMIT)),
    ],
)
def test_the_free_places_go_to_the_oldest(active: int, older_due: int, verdict: Admit | Wait) -> None:
    assert admit(AdmissionFacts(active=active, older_due=older_due)) == verdict


def test_a_paused_change_starts_nothing() -> None:
    assert admit(AdmissionFacts(active=0, older_due=0, paused=True)) == Wait(PAUSED)


def test_eight_agents_work_on_a_change() -> None:
    assert AGENTS_PER_CHANGE_MAX == 8
