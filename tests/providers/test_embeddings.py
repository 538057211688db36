"""The embed services: the built-in one, and one over HTTP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from providers.account import Account
from providers.connectors import embedder
from providers.embeddings import DIMENSIONS, HashingEmbedder, HttpEmbedder
from providers.errors import BadAnswer, RateLimited
from providers.fake.play import Play
from providers.fake.server import FakeServer
from tests.providers.conftest import KEY


def service(fake: FakeServer) -> HttpEmbedder:
    return HttpEmbedder(
        Account(name="embeddings", base_url=fake.url("embeddings"), key=KEY), model="bge-small"
    )


def test_the_built_in_one_says_that_it_is_lexical_and_repeats_itself() -> None:
    hashing = HashingEmbedder()
    assert hashing.lexical
    assert hashing.name == "hashing-v1"
    first = hashing.embed(["read a file", "write_file(path)"], seconds_max=1).vectors
    assert first.shape == (2, DIMENSIONS)
    assert np.allclose(np.linalg.norm(first, axis=1), 1)
    assert (
        first == HashingEmbedder().embed(["read a file", "write_file(path)"], seconds_max=1).vectors
    ).all()


def test_it_brings_words_and_the_parts_of_names_together() -> None:
    """Row 209 needs nearer texts to score higher; 0.6 is the line."""
    texts = [
        "def parse_invoice(text): return Invoice(total, currency)",
        "parseInvoice reads the invoice text: total and currency",
        "the greenhouse sensor publishes its humidity every minute",
    ]
    a, b, c = HashingEmbedder().embed(texts, seconds_max=1).vectors
    assert a @ b > a @ c + 0.2
    assert a @ a > 0.999


@pytest.mark.parametrize("text", ["", "   ", "\x00\ud800", "日本語", "!!!"])
def test_odd_texts_have_a_vector(text: str) -> None:
    vectors = HashingEmbedder().embed([text], seconds_max=1).vectors
    assert np.isfinite(vectors).all()
    assert HashingEmbedder().embed([], seconds_max=1).vectors.shape == (0, DIMENSIONS)


def test_a_service_answers_in_one_request(fake: FakeServer) -> None:
    embedded = service(fake).embed(["a", "b", ""], seconds_max=5)
    assert embedded.vectors.shape == (3, DIMENSIONS)
    assert np.allclose(np.linalg.norm(embedded.vectors, axis=1), 1)
    assert embedded.usage is not None
    assert embedded.usage.input == 3
    assert len(fake.seen) == 1
    assert fake.seen[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": []},
        {"data": [{"index": 0, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": "x"}]},
        {"data": [{"index": 0, "embedding": [None] * 384}]},
        {"data": 5},
    ],
)
def test_an_answer_without_vectors_is_a_bad_answer(body: Any, fake: FakeServer) -> None:
    fake.push(Play(fault="status", status=200, body=body))
    with pytest.raises(BadAnswer):
        service(fake).embed(["a"], seconds_max=5)


def test_a_refusal_of_the_service_has_its_class(fake: FakeServer) -> None:
    fake.push(Play(fault="status", status=429))
    with pytest.raises(RateLimited):
        service(fake).embed(["a"], seconds_max=5)


def test_the_deployment_chooses(with_plane: Any) -> None:
    with_plane(embeddings="hashing")
    assert embedder().lexical
    with_plane(embeddings="http", embeddings_url="http://127.0.0.1:9", embeddings_model="bge")
    assert not embedder().lexical
    assert embedder() is embedder()
    assert embedder().name == "bge"
