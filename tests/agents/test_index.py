"""The file index: once per tree, exact search, neighbours by imports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.context.sources import SourceFacts, facts_of, resolve
from agents.index import (
    Match,
    build_index,
    cosines,
    index_of,
    nearest,
    nearest_files,
    neighbours_of,
)
from agents.models import IndexedFile, TreeIndex
from agents.workspace.git import Store, store_for
from agents.workspace.trees import commit_files
from providers.connectors import embedder
from providers.embeddings import DIMENSIONS, HASHING_NAME, Embedded
from providers.errors import ProviderError, Unavailable
from tenants.models import Project
from tests.factories.agents import NOON, make_indexed_file, make_tree_index
from tests.factories.tenants import make_project


class Counting:
    """An embedder whose vector says how long a text is, and which counts what it was given."""

    name = "counting"
    lexical = True

    def __init__(self, error: ProviderError | None = None) -> None:
        self.texts: list[str] = []
        self._error = error

    def embed(self, texts: Sequence[str], *, seconds_max: float) -> Embedded:
        if self._error is not None:
            raise self._error
        self.texts += texts
        rows = [[float(len(text)), 1.0] + [0.0] * (DIMENSIONS - 2) for text in texts]
        vectors = np.asarray(rows, dtype=np.float32)
        return Embedded(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), None)


def at_cosine(score: float) -> bytes:
    """A stored vector at this cosine to the first axis."""
    vector = np.zeros(DIMENSIONS, dtype="<f4")
    vector[0], vector[1] = score, math.sqrt(1 - score * score)
    return vector.tobytes()


QUESTION = [1.0] + [0.0] * (DIMENSIONS - 1)


@pytest.mark.django_db
def test_the_five_best_at_six_tenths_and_above_are_given() -> None:
    """Worked example 19a (row 208)."""
    index = make_tree_index()
    for score in (0.59, 0.60, 0.61, 0.66, 0.72, 0.80, 0.91):
        make_indexed_file(index, path=f"{score:.2f}", vector=at_cosine(score))
    assert [match.path for match in nearest_files(index, QUESTION)] == [
        "0.91",
        "0.80",
        "0.72",
        "0.66",
        "0.61",
    ]


@pytest.mark.django_db
def test_files_that_are_gone_are_not_given() -> None:
    """Worked example 19a (row 210): only the live ones, still at 0.6 and above."""
    index = make_tree_index()
    for score in (0.59, 0.60, 0.61, 0.66, 0.72, 0.80, 0.91):
        make_indexed_file(index, path=f"{score:.2f}", vector=at_cosine(score))
    live = {"0.61", "0.60", "0.59"}
    assert [match.path for match in nearest_files(index, QUESTION, live=live)] == ["0.61", "0.60"]
    assert nearest_files(index, QUESTION, live=live, without={"0.61"}) == (Match("0.60", 6_000),)


@pytest.mark.parametrize(
    ("score", "given_"), [(0.6, True), (0.60001, True), (0.5999, False), (0.59996, False)]
)
def test_six_tenths_is_a_match_and_a_hair_less_is_not(score: float, given_: bool) -> None:
    """Row 208: 0.5999 excluded."""
    vectors = np.frombuffer(at_cosine(score), dtype="<f4").reshape(1, DIMENSIONS)
    assert bool(nearest([Match("a", cosines(vectors, QUESTION)[0])])) is given_


@given(st.lists(st.integers(-10_000, 10_000), max_size=30))
def test_nearest_is_what_sorting_by_hand_gives(scores: list[int]) -> None:
    found = nearest([Match(str(number), score) for number, score in enumerate(scores)])
    assert [match.score for match in found] == sorted((s for s in scores if s >= 6_000), reverse=True)[:5]


@pytest.mark.django_db
def test_another_tree_is_never_searched() -> None:
    """Row 208: one Project's vectors, and of them one tree's."""
    make_indexed_file(path="theirs.py", vector=at_cosine(0.9))
    assert nearest_files(make_tree_index(), QUESTION) == ()


FILES = {
    "shop/__init__.py": b"",
    "shop/cart.py": b"from shop.money import Usd\nfrom . import tax\nimport os\nclass Cart:\n    def add(self): ...\n",
    "shop/money.py": b"class Usd: ...\n",
    "shop/tax.py": b"def rate(): ...\n",
    "tests/test_cart.py": b"from shop.cart import Cart\n",
    "web/app.ts": b"import { total } from './total.js';\nexport function start() {}\n",
    "web/total.ts": b"export const total = 1;\n",
    "logo.png": b"\x89PNG\0\0",
}


@pytest.fixture
def project(db: None) -> Project:
    return make_project()


@pytest.fixture
def store(project: Project) -> Store:
    return store_for(project.pk).init()


def commit_of(store: Store, files: dict[str, bytes]) -> str:
    return commit_files(store, files, message="files", at=int(NOON.timestamp()))


def test_an_index_names_what_files_define_and_import(project: Project, store: Store) -> None:
    commit = commit_of(store, FILES)
    index = build_index(project.pk, commit, now=NOON, embedder=Counting())
    assert (index.files_total, index.embedder) == (8, "counting")
    rows = {row.path: row for row in IndexedFile.objects.filter(index=index)}
    assert rows["shop/cart.py"].symbols == ["Cart", "Cart.add"]
    assert rows["shop/cart.py"].imports == ["shop/money.py", "shop/tax.py"]
    assert rows["web/app.ts"].imports == ["web/total.ts"]
    assert (rows["web/app.ts"].language, rows["web/app.ts"].symbols) == ("typescript", ["start"])
    assert rows["logo.png"].vector is None
    assert neighbours_of(index, ["shop/cart.py"]) == ("shop/money.py", "shop/tax.py", "tests/test_cart.py")
    assert neighbours_of(index, ["shop/cart.py", "shop/tax.py"], matches_max=1) == ("shop/money.py",)


def test_an_index_is_built_once(project: Project, store: Store) -> None:
    """Row 211: on repetition nothing is read, embedded or written."""
    commit, embedder = commit_of(store, FILES), Counting()
    assert index_of(project.pk, commit) is None
    first = build_index(project.pk, commit, now=NOON, embedder=embedder)
    count = len(embedder.texts)
    assert build_index(project.pk, commit, now=NOON + timedelta(days=1), embedder=embedder) == first
    assert len(embedder.texts) == count
    assert TreeIndex.objects.count() == 1
    assert index_of(project.pk, commit) == first


def test_a_later_tree_looks_only_at_what_is_new(project: Project, store: Store) -> None:
    embedder = Counting()
    build_index(project.pk, commit_of(store, FILES), now=NOON, embedder=embedder)
    embedder.texts.clear()
    changed = {**FILES, "shop/tax.py": b"def rate(): return 1\n", "shop/new.py": b"import shop.tax\n"}
    index = build_index(project.pk, commit_of(store, changed), now=NOON, embedder=embedder)
    assert sorted(text.splitlines()[0] for text in embedder.texts) == ["shop/new.py", "shop/tax.py"]
    assert neighbours_of(index, ["shop/tax.py"]) == ("shop/cart.py", "shop/new.py")


def test_the_built_in_embedder_finds_a_file_by_its_words(project: Project, store: Store) -> None:
    """Row 209: 384 dimensions, without a download."""
    index = build_index(project.pk, commit_of(store, {"cart.py": b"cart total", "x.py": b"zebra"}), now=NOON)
    assert index.embedder == HASHING_NAME
    asked = embedder().embed(["cart total cart py"], seconds_max=1).vectors[0]
    assert [match.path for match in nearest_files(index, asked)] == ["cart.py"]


def test_an_index_is_built_without_vectors_when_the_service_fails(project: Project, store: Store) -> None:
    failing = Counting(Unavailable())
    index = build_index(project.pk, commit_of(store, FILES), now=NOON, embedder=failing)
    assert (index.embedder, index.files.count()) == ("", 8)
    assert nearest_files(index, QUESTION) == ()


@pytest.mark.parametrize(
    "content",
    [
        b"def broken(:",
        b"-" * 200_000 + b"1",
        b"not " * 60_000 + b"x",
        b"x" * 500_000,
        b"\xff\xfe",
        b"a\0b",
        b"'\\d'",
    ],
)
def test_a_hostile_source_file_only_has_a_language(content: bytes) -> None:
    assert facts_of("a.py", content) == SourceFacts("python")


@pytest.mark.parametrize(
    ("path", "wants", "found"),
    [
        ("a/b.py", "..c", "c.py"),
        ("a/b.py", ".|.", "a/__init__.py"),
        ("a/b.py", "os", None),
        ("a/b.py", "pkg.mod", "src/pkg/mod.py"),
        ("a/b.py", "helper", "a/helper.py"),
        ("a/b.py", "pkg.mod.name|pkg.mod", "src/pkg/mod.py"),
        ("a/x.ts", "../w", "w/index.tsx"),
        ("a/x.ts", "@/main", "src/main.vue"),
        ("a/x.ts", "../../../etc/passwd", None),
    ],
)
def test_an_import_is_the_file_of_this_tree(path: str, wants: str, found: str | None) -> None:
    paths = {"c.py", "a/__init__.py", "src/pkg/mod.py", "a/helper.py", "w/index.tsx", "src/main.vue"}
    language = "python" if path.endswith(".py") else "typescript"
    assert resolve(path, SourceFacts(language, (), (wants,)), paths) == ((found,) if found else ())
