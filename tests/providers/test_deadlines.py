"""The clocks of a call."""

from __future__ import annotations

import pytest

from providers.deadlines import Deadline, call_seconds, total_of_stream


def test_the_shortest_clock_binds_and_a_child_only_shortens() -> None:
    """Rows 126, 127, acceptance 11a."""
    deadline = Deadline.after(10, now=100)
    assert call_seconds(receive=60, left=deadline.left(now=100)) == 10
    assert deadline.narrowed(Deadline.after(30, now=100)) == deadline
    assert deadline.narrowed(Deadline.after(3, now=100)).left(now=100) == 3
    assert deadline.narrowed(None) == deadline
    assert deadline.left(now=200) == 0


def test_a_wait_that_would_reach_the_deadline_does_not_begin() -> None:
    """Row 114."""
    assert Deadline.after(5, now=0).allows(4.9, now=0)
    assert not Deadline.after(5, now=0).allows(5, now=0)


def test_a_streams_total_has_bounds() -> None:
    """Row 125."""
    assert total_of_stream(None) == 60
    assert total_of_stream(300) == 300
    for bad in (0, -1, 300.1):
        with pytest.raises(ValueError, match="between 1 ms and 300 s"):
            total_of_stream(bad)
