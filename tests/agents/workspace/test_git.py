"""The store: the same commit anywhere, compare-and-swap, odd names whole, nothing of a tenant runs on the host."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agents.errors import GitError, LostRef, MergeConflict
from agents.workspace.git import MAIN, Store
from tests.agents.workspace.helpers import AT, commit_files


def test_an_empty_store_has_no_main_and_takes_its_first_commit(store: Store) -> None:
    """C68: an unborn repository is a state with a name, never a silent fallback."""
    assert store.commit_of_main() is None
    commit = commit_files(store, {b"a": b"1\n"})
    store.promote(commit, None, "p0")
    assert store.commit_of_main() == commit
    with pytest.raises(LostRef):
        store.promote(commit_files(store, {b"a": b"2\n"}), None, "p1")


def test_names_modes_and_links_survive(store: Store, main: str) -> None:
    files = {file.path: file for file in store.tree_files(main)}
    assert files["run.sh"].mode == "100755"
    assert files["ln"].mode == "120000"
    assert files["caf\\xe9.txt"].size == 6
    assert store.read(main, "caf\\xe9.txt") == b"latin\n"
    assert store.read(main, "missing") is None
    assert store.read(main, "src") is None


@pytest.mark.parametrize(
    "name",
    [b"with space", b"new\nline", b"tab\t", b'quo"te', b"back\\slash", b"\xff\xfe", "äfile.txt".encode(), b"a b/ b/c",
     b"--option", b"*", b":(top)x", "e\u0301.txt".encode(), "w\u200dj".encode()],
    ids=repr,
)  # fmt: skip
def test_odd_names_are_bytes_end_to_end(store: Store, main: str, name: bytes) -> None:
    """C69: no name is quoted on its way, and the text form finds the file again."""
    after = commit_files(store, {name: b"x\n"}, on=main, at=AT + 1)
    (path,) = store.changed_files(main, after)
    path.encode()  # JSON and PostgreSQL take it
    assert store.read(after, path) == b"x\n"


def test_a_stack_is_the_same_commit_in_two_clones(tmp_path: Path) -> None:
    """Rows 213, 214 and fault C69: same input, same id, on any machine."""
    ids = []
    for clone in ("one", "two"):
        store = Store(tmp_path / f"{clone}.git").init()
        base = commit_files(store, {b"a.txt": b"".join(b"%d\n" % n for n in range(40))})
        sets = []
        for number in range(3):
            lines = [b"%d\n" % n for n in range(40)]
            lines.insert(number * 15, b"set %d\n" % number)
            files = {b"a.txt": b"".join(lines), b"n%d.py" % number: b"n\n"}
            sets.append(commit_files(store, files, on=base, at=AT + 1 + number))
        stacked = store.stack(base, sets, AT + 9)
        assert store.stack(base, sets, AT + 9) == stacked
        assert {file.path for file in store.tree_files(stacked)} == {"a.txt", "n0.py", "n1.py", "n2.py"}
        ids.append((base, *sets, stacked, store.stack(base, sets, 0)))
    assert ids[0] == ids[1]


def test_the_cached_stack_is_what_a_new_merge_gives(store: Store, main: str) -> None:
    sets = [commit_files(store, {b"%d" % n: b"x"}, on=main, at=AT + n) for n in (1, 2)]
    first = store.stack(main, sets, AT)
    for ref in store.git("for-each-ref", "--format=%(refname)", "refs/stacks").out.decode().split():
        store.git("update-ref", "-d", ref)
    assert store.stack(main, sets, AT) == first


def test_shared_history_is_not_merged_twice(store: Store, main: str) -> None:
    """Row 218: a ChangeSet that was stacked on another brings it along once."""
    one = commit_files(store, {b"one": b"1"}, on=main, at=AT + 1)
    two = commit_files(store, {b"two": b"2"}, on=one, at=AT + 2)
    assert store.stack(main, [one, two], AT + 3) == two
    assert store.stack(main, [two, one], AT + 3) == two
    assert store.stack(main, [], AT + 3) == main


def test_files_and_own_files_of_a_stacked_changeset(store: Store) -> None:
    """Acceptance 20a."""
    base = commit_files(store, {b"schema.ts": b"s", b"api.ts": b"a", b"ui.ts": b"u"})
    first = commit_files(store, {b"schema.ts": b"s1"}, on=base, at=AT + 1)
    second = commit_files(store, {b"api.ts": b"a1"}, on=base, at=AT + 2)
    start = store.stack(base, [first, second], AT + 3)
    own = commit_files(store, {b"ui.ts": b"u1"}, on=start, at=AT + 4)
    assert store.changed_files(base, own) == ("api.ts", "schema.ts", "ui.ts")
    assert store.changed_files(start, own) == ("ui.ts",)
    patch = store.patch(start, own)
    assert b"ui.ts" in patch
    assert b"api.ts" not in patch


def test_a_patch_gives_the_same_tree_again(store: Store, main: str) -> None:
    after = commit_files(
        store,
        {b"bin": bytes(range(256)), b"moved.txt": b"0\n1\n", b"a.txt": None, b"run.sh": ("100644", b"#!\n")},
        on=main,
        at=AT + 1,
    )
    more = {"GIT_INDEX_FILE": str(store.directory / "apply")}
    store.git("read-tree", main, more=more)
    store.git("apply", "--cached", "--binary", stdin=store.patch(main, after), more=more)
    assert store.git("write-tree", more=more).out.decode().strip() == store.tree_of(after)


BINARY = b"\0bin\xff"
CONFLICTS: dict[str, tuple[dict[bytes, object], dict[bytes, object], set[str]]] = {
    "contents": ({b"a.txt": b"A\n"}, {b"a.txt": b"B\n"}, {"a.txt"}),
    "add/add": ({b"new": b"A\n"}, {b"new": b"B\n"}, {"new"}),
    "modify/delete": ({b"a.txt": None}, {b"a.txt": b"B\n"}, {"a.txt"}),
    "binary": ({b"bin": BINARY + b"1"}, {b"bin": BINARY + b"2"}, {"bin"}),
    "rename/rename": (
        {b"src/app.py": None, b"src/one.py": b"print('hi')\n"},
        {b"src/app.py": None, b"src/two.py": b"print('hi')\n"},
        {"src/app.py", "src/one.py", "src/two.py"},
    ),
    "odd name": ({b"caf\xe9.txt": b"A\n"}, {b"caf\xe9.txt": b"B\n"}, {"caf\\xe9.txt"}),
}


@pytest.mark.parametrize("kind", CONFLICTS)
def test_a_conflict_is_a_result_with_its_paths(store: Store, main: str, kind: str) -> None:
    """C73, row 215: paths and kinds; every ref stays as it was."""
    ours, theirs, paths = CONFLICTS[kind]
    one = commit_files(store, ours, on=main, at=AT + 1)  # type: ignore[arg-type]  # the table is loose
    two = commit_files(store, theirs, on=main, at=AT + 2)  # type: ignore[arg-type]  # the table is loose
    before = store.git("for-each-ref").out
    with pytest.raises(MergeConflict) as conflict:
        store.stack(main, [one, two], AT + 3)
    assert conflict.value.at == two
    assert paths <= set(conflict.value.paths)
    assert all(message.startswith("CONFLICT") for message in conflict.value.messages)
    assert store.git("for-each-ref").out == before


def test_attributes_of_a_tree_cannot_hide_a_conflict(store: Store, main: str) -> None:
    """`merge=union` in .gitattributes would make every conflict vanish."""
    attributes = b"* merge=union\n"
    one = commit_files(store, {b"a.txt": b"A\n", b".gitattributes": attributes}, on=main, at=AT + 1)
    two = commit_files(store, {b"a.txt": b"B\n", b".gitattributes": attributes}, on=main, at=AT + 2)
    with pytest.raises(MergeConflict):
        store.stack(main, [one, two], AT + 3)


def test_a_promotion_is_compared_and_swapped(store: Store, main: str) -> None:
    one = commit_files(store, {b"x": b"1"}, on=main, at=AT + 1)
    two = commit_files(store, {b"x": b"2"}, on=main, at=AT + 2)
    store.promote(one, main, "p1")
    with pytest.raises(LostRef):
        store.promote(two, main, "p2")
    assert store.commit_of_main() == one
    assert store.find("refs/promotions/p2") is None


def test_a_promotion_asked_again_after_a_crash_changes_nothing(store: Store, main: str) -> None:
    one = commit_files(store, {b"x": b"1"}, on=main, at=AT + 1)
    store.promote(one, main, "p1")
    store.promote(one, main, "p1")
    two = commit_files(store, {b"x": b"2"}, on=one, at=AT + 2)
    store.promote(two, one, "p2")
    store.promote(one, main, "p1")
    assert store.commit_of_main() == two


def test_of_many_promotions_exactly_one_wins(store: Store, main: str) -> None:
    """C71, C78: real threads, one winner, the others learn that they lost."""
    commits = [commit_files(store, {b"x": b"%d" % n}, on=main, at=AT + n) for n in range(6)]
    won: list[str] = []

    def promote(commit: str) -> None:
        try:
            Store(store.directory).promote(commit, main, commit)
        except LostRef:
            return
        won.append(commit)

    threads = [threading.Thread(target=promote, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [store.commit_of_main()]


@pytest.mark.parametrize("left", ["refs/heads/main.lock", "packed-refs.lock", "packed-refs.new", "HEAD.lock"])
def test_locks_of_a_killed_process_do_not_block(store: Store, main: str, left: str) -> None:
    store.git("pack-refs", "--all")
    (store.directory / left).touch()
    one = commit_files(store, {b"x": b"1"}, on=main, at=AT + 1)
    store.promote(one, main, "p1")
    store.drop_ref("promotions", "p1")
    store.maintain()
    assert store.commit_of_main() == one


KILLED = 12  # times


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_blocks_nobody_and_loses_nothing(store: Store, main: str) -> None:
    """kill -9 in the middle of commits, refs, promotions and maintenance: the kernel frees the project's lock."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "import django; from django.conf import settings; settings.configure()\n"
        "from pathlib import Path\n"
        "from agents.workspace.git import Store\n"
        "from agents.errors import LostRef\n"
        "from tests.agents.workspace.helpers import commit_files\n"
        "store = Store(Path(sys.argv[1])); print('up', flush=True)\n"
        "for number in range(1_000_000):\n"
        "    old = store.commit_of_main()\n"
        "    files = {b'f%d' % (number % 9): b'%d' % number}\n"
        "    new = commit_files(store, files, on=old, at=store.commit_time(old) + 1)\n"
        "    store.keep_ref('changesets', new, new)\n"
        "    store.promote(new, old, new)\n"
        "    if number % 5 == 4: store.maintain()\n"
    )
    for round_ in range(KILLED):
        command = [sys.executable, "-c", script, str(store.directory), str(Path(__file__).parents[3])]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"up\n"
        time.sleep(0.05 + 0.06 * round_)  # another moment each time; what matters is that it is in the middle
        worker.kill()
        worker.wait()
        worker.stdout.close()
        old = store.commit_of_main()
        assert old is not None
        mine = commit_files(store, {b"mine": b"%d" % round_}, on=old, at=store.commit_time(old) + 1)
        began = time.monotonic()
        while True:
            try:
                store.promote(mine, old, mine)
                break
            except LostRef:  # its last git lived a moment longer, and held the lock
                old = store.commit_of_main()
                assert old is not None
                mine = commit_files(store, {b"mine": b"%d" % round_}, on=old, at=store.commit_time(old) + 1)
        assert time.monotonic() - began < 20
        assert store.commit_of_main() == mine
    store.maintain()
    said = store.git("fsck", "--connectivity-only", "--no-dangling").out
    assert b"missing" not in said
    refs = store.git("for-each-ref", "--format=%(objectname)", "refs/changesets").out.split()
    assert len(refs) > KILLED
    assert all(store.find(ref.decode()) for ref in refs)


def test_maintenance_keeps_every_referenced_object(store: Store, main: str) -> None:
    kept = commit_files(store, {b"kept": b"1"}, on=main, at=AT + 1)
    dropped = commit_files(store, {b"dropped": b"1"}, on=main, at=AT + 2)
    young = commit_files(store, {b"young": b"1"}, on=main, at=AT + 3)
    store.keep_ref("changesets", "kept", kept)
    store.keep_ref("changesets", "kept", kept)
    old = 60 * 24 * 3600
    loose = store.directory / "objects" / dropped[:2] / dropped[2:]
    os.utime(loose, (loose.stat().st_mtime - old,) * 2)
    store.maintain()
    assert store.read(kept, "kept") == b"1"
    assert store.read(young, "young") == b"1"
    assert store.find(dropped) is None


def test_the_environment_of_git_is_built_from_nothing(
    store: Store, main: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """C29, C33, C77: what the worker inherited reaches no git."""
    other = tmp_path / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", other], check=True)
    mark = tmp_path / "mark"
    for name, value in {
        "GIT_DIR": str(other), "GIT_INDEX_FILE": "/nonexistent", "GIT_WORK_TREE": "/nonexistent",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": f"touch {mark}",
        "GIT_EXTERNAL_DIFF": f"touch {mark}", "GIT_OBJECT_DIRECTORY": str(tmp_path), "GIT_NAMESPACE": "x",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert store.commit_of_main() == main
    after = commit_files(store, {b"x": b"1"}, on=main, at=AT + 1)
    assert store.patch(main, after)
    assert not mark.exists()


def test_configuration_of_the_repository_cannot_change_merges(store: Store, main: str) -> None:
    one = commit_files(
        store, {b"a.txt": None, b"b.txt": b"".join(b"%d\n" % n for n in range(40))}, on=main, at=AT + 1
    )
    two = commit_files(store, {b"a.txt": b"".join(b"%d\n" % n for n in range(41))}, on=main, at=AT + 2)
    plain = store.merge(one, two, message="m", at=AT + 3)
    for key, value in (("merge.renames", "false"), ("merge.conflictStyle", "diff3"), ("user.name", "x")):
        store.git("config", "--file", str(store.directory / "config"), key, value)
    assert store.merge(one, two, message="m", at=AT + 3) == plain


def test_an_unknown_commit_is_a_git_error(store: Store, main: str) -> None:
    with pytest.raises(GitError):
        store.rev("nope")
    with pytest.raises(GitError):
        store.tree_files("f" * 40)
    assert store.find("--all") is None
    assert store.commit_time(main) == AT
    assert store.rev(MAIN) == main
