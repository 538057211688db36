"""The file index: built once per tree, and read for a Task's neighbours and similar files (rows 208 to 212)."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from uuid import UUID

import numpy as np
import numpy.typing as npt
import structlog
from django.db import IntegrityError, transaction

from agents.context.sources import SOURCE_CHARACTERS_MAX, SourceFacts, facts_of, resolve
from agents.models import IndexedFile, TreeIndex
from agents.workspace.git import Store, TreeFile, store_for
from providers import connectors
from providers.embeddings import DIMENSIONS, TEXTS_MAX, Embedder, Vectors
from providers.errors import ProviderError

FILES_INDEXED_MAX = 50_000
# Read at once from git, and embedded at once.
FILES_PER_BATCH = 100
EMBEDDING_SECONDS_MAX = 60.0
ROWS_PER_INSERT = 500
EMBEDDED_CHARACTERS = 2_000
NEIGHBOURS_MAX = 20
MATCHES_MAX = 5
SCORE_MIN = 6_000  # cosine in ten-thousandths
INDEXES_IN_MEMORY = 4

assert FILES_PER_BATCH <= TEXTS_MAX, "a batch is one request"

_FILE_MODES = frozenset({"100644", "100755"})
Vector = npt.ArrayLike  # one row: the question's
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Match:
    """A similar file. `score` is its cosine in ten-thousandths."""

    path: str
    score: int


def build_index(
    project_id: UUID, commit: str, *, now: datetime, embedder: Embedder | None = None
) -> TreeIndex:
    """The index of a tree; built when it is not there, and otherwise a no-op (row 211).

    It appears whole: rows and files are written in one transaction, and of two builders the second
    finds the first one's. When the embedding service fails, the index is built without vectors:
    Tasks wait for the index, and similar files are the least part of it.
    """
    known = index_of(project_id, commit)
    if known is not None:
        return known
    try:
        return _built(project_id, commit, now=now, embedder=embedder or connectors.embedder())
    except ProviderError as error:
        log.warning("index_without_vectors", commit=commit, error=error.kind)
        return _built(project_id, commit, now=now, embedder=None)


def index_of(project_id: UUID, commit: str) -> TreeIndex | None:
    """The index of exactly this tree; None while nobody built it (row 30)."""
    found: TreeIndex | None = TreeIndex.objects.filter(project_id=project_id, commit=commit).first()
    return found


def neighbours_of(
    index: TreeIndex, declared: Sequence[str], *, matches_max: int = NEIGHBOURS_MAX
) -> tuple[str, ...]:
    """The files that the declared ones import, in order, then those that import them, by name."""
    imports = _imports_of(index.pk)
    asked = set(declared)
    wanted = [name for path in declared for name in imports.get(path, ())]
    wanting = sorted(path for path, names in imports.items() if asked.intersection(names))
    return tuple(name for name in dict.fromkeys([*wanted, *wanting]) if name not in asked)[:matches_max]


def nearest_files(
    index: TreeIndex,
    question: Vector,
    *,
    live: Collection[str] | None = None,
    without: Collection[str] = (),
) -> tuple[Match, ...]:
    """The most similar files of the tree, exactly (rows 208, 210). `live` are those that still exist."""
    paths, vectors = _vectors_of(index.pk)
    scores = cosines(vectors, question)
    candidates = [
        Match(path, score)
        for path, score in zip(paths, scores, strict=True)
        if (live is None or path in live) and path not in without
    ]
    return nearest(candidates)


def nearest(candidates: Sequence[Match]) -> tuple[Match, ...]:
    """Pure: at most five matches at or above the least score, best first, then by name."""
    good = [match for match in candidates if match.score >= SCORE_MIN]
    return tuple(sorted(good, key=lambda match: (-match.score, match.path))[:MATCHES_MAX])


def cosines(vectors: Vectors, question: Vector) -> list[int]:
    """Pure: the cosine of each row with the question, in ten-thousandths, never rounded up to a higher one."""
    asked = np.asarray(question, dtype=np.float64)
    length = float(np.linalg.norm(asked))
    if length == 0.0 or not len(vectors):
        return [0] * len(vectors)
    products = vectors.astype(np.float64) @ (asked / length)
    # A stored float32 may lie a hair below the exact value.
    return [int(score) for score in np.floor(products * 10_000 + 0.01)]


def text_of_file(path: str, facts: SourceFacts, content: bytes) -> str:
    """What of a file is embedded: its name in words, what it defines, and how it begins."""
    words = posixpath.splitext(path)[0].replace("/", " ").replace("_", " ").replace("-", " ")
    begins = content[: EMBEDDED_CHARACTERS * 4].decode("utf-8", "replace")[:EMBEDDED_CHARACTERS]
    return f"{path}\n{words}\n{' '.join(facts.symbols)}\n{begins}"


def _built(project_id: UUID, commit: str, *, now: datetime, embedder: Embedder | None) -> TreeIndex:
    store = store_for(project_id)
    files = [file for file in store.tree_files(commit) if file.mode in _FILE_MODES]
    index = TreeIndex(
        project_id=project_id,
        commit=commit,
        commit_time=store.commit_time(commit),
        files_total=len(files),
        embedder=embedder.name if embedder else "",
        built_at=now,
    )
    rows = _rows(index, store, files[:FILES_INDEXED_MAX], embedder)
    try:
        with transaction.atomic():
            index.save(force_insert=True)
            IndexedFile.objects.bulk_create(rows, batch_size=ROWS_PER_INSERT)
    except IntegrityError:
        known = index_of(project_id, commit)
        if known is None:
            raise
        return known
    return index


@dataclass(frozen=True, slots=True)
class _Known:
    """What an earlier index says of a blob under the same name."""

    facts: SourceFacts
    vector: bytes | None


def _rows(
    index: TreeIndex, store: Store, files: Sequence[TreeFile], embedder: Embedder | None
) -> list[IndexedFile]:
    """One row per file. What an earlier tree's index knows of the same blob is not read or embedded again."""
    known = _known_of(index)
    new = [file for file in files if (file.path, file.blob) not in known]
    for start in range(0, len(new), FILES_PER_BATCH):
        batch = new[start : start + FILES_PER_BATCH]
        known.update(_looked_at(index.commit, store, batch, embedder))
    paths = {file.path for file in files}
    return [_row(index, file, known[(file.path, file.blob)], paths) for file in files]


def _row(index: TreeIndex, file: TreeFile, known: _Known, paths: set[str]) -> IndexedFile:
    return IndexedFile(
        index=index,
        path=file.path,
        blob=file.blob,
        size_bytes=file.size,
        language=known.facts.language,
        symbols=list(known.facts.symbols),
        wants=list(known.facts.wants),
        imports=list(resolve(file.path, known.facts, paths)),
        vector=known.vector,
    )


def _known_of(index: TreeIndex) -> dict[tuple[str, str], _Known]:
    """The newest earlier index of the project, when it was made by the same embedder."""
    earlier = TreeIndex.objects.filter(project_id=index.project_id, embedder=index.embedder).order_by(
        "-built_at"
    )
    last = earlier.first()
    if last is None:
        return {}
    columns = ("path", "blob", "language", "symbols", "wants", "vector")
    return {
        (path, blob): _Known(SourceFacts(language, tuple(symbols), tuple(wants)), _plain(vector))
        for path, blob, language, symbols, wants, vector in last.files.values_list(*columns)
    }


def _looked_at(
    commit: str, store: Store, files: Sequence[TreeFile], embedder: Embedder | None
) -> Iterator[tuple[tuple[str, str], _Known]]:
    small = [file for file in files if file.size <= SOURCE_CHARACTERS_MAX]
    contents: Mapping[str, bytes] = {
        file.path: content or b""
        for file, content in zip(small, store.blobs([(commit, file.path) for file in small]), strict=True)
    }
    facts = {file.path: facts_of(file.path, contents.get(file.path, b"")) for file in files}
    texts = {
        path: text_of_file(path, facts[path], content)
        for path, content in contents.items()
        if b"\0" not in content[:8_000]  # a picture has no words
    }
    vectors: dict[str, bytes] = {}
    if embedder is not None and texts:
        embedded = embedder.embed(list(texts.values()), seconds_max=EMBEDDING_SECONDS_MAX).vectors
        vectors = {path: row.astype("<f4").tobytes() for path, row in zip(texts, embedded, strict=True)}
    for file in files:
        yield (file.path, file.blob), _Known(facts[file.path], vectors.get(file.path))


@lru_cache(maxsize=INDEXES_IN_MEMORY)
def _vectors_of(index_id: UUID) -> tuple[tuple[str, ...], Vectors]:
    """All vectors of an index, which never changes once it is there."""
    rows = list(
        IndexedFile.objects.filter(index_id=index_id, vector__isnull=False)
        .order_by("path")
        .values_list("path", "vector")
    )
    joined = b"".join(bytes(vector) for _, vector in rows)
    vectors = np.frombuffer(joined, dtype="<f4").reshape(len(rows), DIMENSIONS)
    return tuple(path for path, _ in rows), vectors


@lru_cache(maxsize=INDEXES_IN_MEMORY)
def _imports_of(index_id: UUID) -> Mapping[str, tuple[str, ...]]:
    rows = IndexedFile.objects.filter(index_id=index_id).values_list("path", "imports")
    return {path: tuple(imports) for path, imports in rows if imports}


def _plain(vector: object) -> bytes | None:
    return None if vector is None else bytes(vector)  # type: ignore[call-overload]  # PostgreSQL gives a memoryview
