"""What happens while nobody waits, and the command that a person runs before the first attempt."""

from __future__ import annotations

import os
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from agents.workspace import upkeep
from agents.workspace.deps import deps_directory, prepared_at
from agents.workspace.git import Store, store_for
from agents.workspace.slots import try_lock
from tests.agents.workspace.helpers import AT, commit_files
from tests.factories.tenants import make_project


def test_every_repository_is_maintained_and_a_broken_one_stops_no_other(store: Store, main: str) -> None:
    broken = Store(store.directory.with_name("a-broken.git")).init()
    (broken.directory / "config").write_text("[core\n")
    assert upkeep.maintain_stores() == 1
    assert (store.directory / "objects" / "info" / "commit-graph").exists()
    assert store.read(main, "a.txt")


@pytest.mark.bwrap
def test_missing_dependencies_are_prepared_once(
    store: Store, main: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.workspace.lockfiles.ALWAYS_IN_PYTHON", ())  # nothing to fetch
    assert upkeep.prepare_missing() == 0
    new = commit_files(store, {b"requirements.txt": b"# none\n"}, on=main, at=AT + 1)
    store.promote(new, main, "p")
    held = try_lock(deps_directory() / "preparing.lock")
    assert held is not None
    assert upkeep.prepare_missing() == 0  # somebody is at it
    os.close(held)
    assert upkeep.prepare_missing() == 1
    assert upkeep.prepare_missing() == 0
    (state,) = prepared_at(store, new).states
    place = deps_directory() / state.key
    assert upkeep.forget_unused_dependencies() == 0
    long_ago = AT
    os.utime(place.with_name(f"{place.name}.used"), (long_ago, long_ago))
    assert upkeep.forget_unused_dependencies() == 1
    assert not place.exists()


@pytest.mark.bwrap
@pytest.mark.django_db
def test_the_preflight_command_says_what_would_fail(data_dir: object) -> None:
    project = make_project()
    names = {"organization": project.organization.slug, "project": project.slug}
    with pytest.raises(CommandError, match="import a repository first"):
        call_command("preflight", **names)
    store = store_for(project.pk).init()
    store.promote(commit_files(store, {b"a.txt": b"1\n"}), None, "p")
    out, err = StringIO(), StringIO()
    call_command("preflight", **names, commands=["ls a.txt"], stdout=out, stderr=err)
    assert "$ ls a.txt: exit code 0" in out.getvalue()
    assert "tier" in out.getvalue()
    with pytest.raises(CommandError, match="1 problems"):
        call_command("preflight", **names, commands=["ls b.txt"], stdout=out, stderr=err)
    assert "does not pass on this commit" in err.getvalue()
    with pytest.raises(CommandError, match="there is no project"):
        call_command("preflight", organization="nobody", project="nothing")
