"""Commits without a working tree."""

from __future__ import annotations

from agents.workspace.git import Store
from agents.workspace.trees import commit_files, with_paths_of

AT = 1_790_000_000


def test_the_same_files_give_the_same_commit(store: Store) -> None:
    files = {"a/b.py": b"1\n", "README": b"2\n"}
    first = commit_files(store, files, message="First\n", at=AT)
    assert first == commit_files(store, dict(reversed(files.items())), message="First\n", at=AT)
    assert store.read(first, "a/b.py") == b"1\n"


def test_paths_can_be_put_back_to_another_commit(store: Store) -> None:
    """Fault C93: the base's version of an edited or deleted test; everything else stays."""
    base = commit_files(
        store, {"app.py": b"1\n", "tests/test_a.py": b"2\n", "tests/gone.py": b"3\n"}, message="Base\n", at=AT
    )
    work = commit_files(
        store,
        {"app.py": b"new\n", "tests/test_a.py": b"weaker\n", "tests/test_new.py": b"4\n"},
        message="Work\n",
        at=AT + 1,
        parents=(base,),
    )
    mixed = with_paths_of(store, work, base, ["tests/test_a.py", "tests/gone.py"])
    assert {file.path: store.read(mixed, file.path) for file in store.tree_files(mixed)} == {
        "app.py": b"new\n",
        "tests/gone.py": b"3\n",
        "tests/test_a.py": b"2\n",
        "tests/test_new.py": b"4\n",
    }
    assert mixed == with_paths_of(store, work, base, ["tests/gone.py", "tests/test_a.py"])


def test_a_path_that_the_other_commit_lacks_is_left_out(store: Store) -> None:
    base = commit_files(store, {"app.py": b"1\n"}, message="Base\n", at=AT)
    work = commit_files(store, {"app.py": b"1\n", "ci.yml": b"x\n"}, message="Work\n", at=AT)
    assert [file.path for file in store.tree_files(with_paths_of(store, work, base, ["ci.yml"]))] == [
        "app.py"
    ]
