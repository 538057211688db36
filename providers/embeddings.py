"""The embed service: text to 384 numbers. Built in and lexical, or a service over HTTP."""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from providers.account import Account
from providers.deadlines import RECEIVE_SECONDS
from providers.errors import BadAnswer
from providers.messages import Usage
from providers.statuses import error_of
from providers.transport import Transport
from providers.usage import embedding_usage
from providers.wire import decode, encode, utc_now

DIMENSIONS = 384
TEXTS_MAX = 128
TEXT_CHARACTERS_MAX = 32_000
HASHING_NAME = "hashing-v1"

Vectors: TypeAlias = NDArray[np.float32]

_WORD = re.compile(r"[A-Za-z]+|[0-9]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class Embedded:
    """One unit-length row a text; `usage` None when nobody counted, and for the built-in, which costs nothing."""

    vectors: Vectors
    usage: Usage | None


class Embedder(Protocol):
    """Turns texts into unit vectors. `name` belongs beside stored vectors: those of two names never compare."""

    @property
    def name(self) -> str: ...

    @property
    def lexical(self) -> bool:
        """True: it compares words and parts of words, not meaning; say so where results are shown."""
        ...

    def embed(self, texts: Sequence[str], *, seconds_max: float) -> Embedded:
        """At most `TEXTS_MAX` texts in one physical request. Raises a `ProviderError`."""
        ...


class HashingEmbedder:
    """Hashes words and their parts into 384 buckets: no download, no call, the same numbers everywhere."""

    name = HASHING_NAME
    lexical = True

    def embed(self, texts: Sequence[str], *, seconds_max: float) -> Embedded:  # noqa: ARG002 - needs no time
        return Embedded(np.stack([_hashed(text) for text in texts]) if texts else _none(), None)


class HttpEmbedder:
    """A service with OpenAI's /embeddings, such as text-embeddings-inference with bge-small-en-v1.5."""

    lexical = False

    def __init__(self, account: Account, *, model: str) -> None:
        self._account, self._model = account, model
        self._transport: Transport | None = None
        self._opened_by = 0
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._model

    def embed(self, texts: Sequence[str], *, seconds_max: float) -> Embedded:
        assert len(texts) <= TEXTS_MAX, f"at most {TEXTS_MAX} texts a request"
        if not texts:
            return Embedded(_none(), None)
        key = {"authorization": f"Bearer {self._account.key}"} if self._account.key else {}
        body = {"model": self._model, "input": [text[:TEXT_CHARACTERS_MAX] or " " for text in texts]}
        with self._open().post(
            _embeddings_url(self._account.base_url),
            headers={**self._account.headers, **key},
            content=encode(body),
            receive_seconds=RECEIVE_SECONDS,
            seconds_max=seconds_max,
        ) as answer:
            if answer.status != 200:
                text = answer.error_text().decode("utf-8", errors="replace")
                raise error_of(
                    answer.status,
                    headers=answer.headers,
                    document=_readable(text),
                    text=text,
                    now=utc_now(),
                    secret=self._account.key,
                )
            document = decode(answer.body())
        usage = embedding_usage(document.get("usage"))
        return Embedded(_vectors(document, count=len(texts), usage=usage), usage)

    def _open(self) -> Transport:
        with self._lock:
            if self._transport is None or self._opened_by != os.getpid():
                scheme = urlsplit(self._account.base_url).scheme
                self._transport = Transport(scheme=scheme, private_addresses=self._account.private_addresses)
                self._opened_by = os.getpid()
            return self._transport


def _embeddings_url(base_url: str) -> str:
    base = base_url.rstrip("/")
    return f"{base}/embeddings" if base.endswith("/v1") else f"{base}/v1/embeddings"


def _readable(text: str) -> object:
    try:
        return decode(text)
    except BadAnswer:
        return {}


def _vectors(document: dict[str, object], *, count: int, usage: Usage | None) -> Vectors:
    try:
        rows = sorted(document["data"], key=lambda row: row["index"])  # type: ignore[call-overload]  # checked below
        vectors = np.asarray([row["embedding"] for row in rows], dtype=np.float32)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadAnswer("the answer holds no embeddings", usage=usage) from None
    if vectors.shape != (count, DIMENSIONS) or not np.isfinite(vectors).all():
        raise BadAnswer(f"expected {count} vectors of {DIMENSIONS} numbers, got {vectors.shape}", usage=usage)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), dtype=np.float32)


def _none() -> Vectors:
    return np.zeros((0, DIMENSIONS), dtype=np.float32)


def _hashed(text: str) -> Vectors:
    """Words weigh by the logarithm of their number; each falls into a bucket with a sign, both from its hash."""
    vector = np.zeros(DIMENSIONS, dtype=np.float32)
    for feature, number in Counter(_features(text[:TEXT_CHARACTERS_MAX])).items():
        digest = hashlib.blake2b(feature.encode(), digest_size=8).digest()
        sign = 1.0 if digest[7] & 1 else -1.0
        vector[int.from_bytes(digest[:4], "big") % DIMENSIONS] += (
            sign * (1.0 + math.log(number)) * _weight(feature)
        )
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


def _features(text: str) -> list[str]:
    """Words, the parts of joined names (readFile, read_file), and pieces of long words for their endings."""
    features: list[str] = []
    for joined in re.findall(r"[A-Za-z0-9_]+", text):
        words = [word.lower() for part in _CAMEL.split(joined) for word in _WORD.findall(part)]
        for word in words:
            features.append(word)
            if len(word) > 5:
                features.append(f"^{word[:5]}")
        if len(words) > 1:
            features.append("_".join(words))
    return features


def _weight(feature: str) -> float:
    return 0.5 if feature.startswith("^") else 1.0 if len(feature) > 2 else 0.3
