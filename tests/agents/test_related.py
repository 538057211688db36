"""What is shown beside a Task's declared files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from agents.index import Match
from agents.models import TreeIndex
from agents.related import related_files
from budgets.keys import MeterKind
from budgets.models import Meter
from providers.embeddings import DIMENSIONS, Embedded
from providers.errors import ProviderError, TimedOut, Unavailable
from tenants.models import Project
from tests.factories.agents import TestClock, make_indexed_file, make_payers, make_tree_index
from tests.factories.tenants import make_project

pytestmark = pytest.mark.django_db


class Constant:
    """An embedder for which all texts are alike."""

    name = "constant"
    lexical = True

    def __init__(self, error: ProviderError | None = None) -> None:
        self._error = error

    def embed(self, texts: Sequence[str], *, seconds_max: float) -> Embedded:
        if self._error is not None:
            raise self._error
        rows = [[1.0] + [0.0] * (DIMENSIONS - 1) for _ in texts]
        return Embedded(np.asarray(rows, dtype=np.float32), None)


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def index(project: Project) -> TreeIndex:
    found = make_tree_index(project, embedder="constant")
    same = bytes.fromhex("0000803f") + bytes(4 * (DIMENSIONS - 1))
    make_indexed_file(found, path="a.py", imports=["b.py"], vector=same)
    make_indexed_file(found, path="b.py", vector=same)
    make_indexed_file(found, path="c.py", vector=same)
    return found


def ask(index: TreeIndex, project: Project, **over: object) -> tuple[tuple[str, ...], tuple[Match, ...], str]:
    given = {
        "declared": ["a.py"],
        "question": "add a cart",
        "embedder": Constant(),
        "clock": TestClock(),
        **over,
    }
    found = related_files(index, make_payers(project), **given)  # type: ignore[arg-type]  # by name
    return found.neighbours, found.similar, found.note


def test_similar_files_are_those_not_shown_already(index: TreeIndex, project: Project) -> None:
    assert ask(index, project) == (("b.py",), (Match("c.py", 10_000),), "")
    meter = Meter.objects.get(kind=MeterKind.EMBEDDINGS)
    assert (meter.spent_calls, meter.held_calls) == (1, 0)


def test_files_that_the_start_tree_no_longer_has_are_not_shown(index: TreeIndex, project: Project) -> None:
    """Row 210."""
    assert ask(index, project, live={"a.py"}) == ((), (), "")


def test_a_used_up_day_has_no_similar_files_and_goes_on(
    index: TreeIndex, project: Project, with_plane: Callable[..., object]
) -> None:
    """Row 209."""
    with_plane(embeddings_per_day_max=1)
    assert ask(index, project)[2] == ""
    assert ask(index, project) == (("b.py",), (), "embeddings_daily_limit")


def test_vectors_of_another_embedder_are_not_compared(project: Project) -> None:
    assert ask(make_tree_index(project, embedder="other"), project)[2] == "other_embedder"
    assert ask(make_tree_index(project), project)[2] == "no_vectors"
    assert not Meter.objects.filter(kind=MeterKind.EMBEDDINGS).exists()


@pytest.mark.parametrize(("error", "counted"), [(TimedOut(), 1), (Unavailable(), 0)])
def test_a_service_that_fails_costs_the_similar_files_only(
    index: TreeIndex, project: Project, error: ProviderError, counted: int
) -> None:
    assert ask(index, project, embedder=Constant(error)) == (("b.py",), (), "embedder_failed")
    assert Meter.objects.get(kind=MeterKind.EMBEDDINGS).spent_calls == counted
