"""Any git repository becomes a project; what is none is refused with the option's name, and nothing is left."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agents.workspace.git import Store, store_for
from agents.workspace.trees import commit_files
from tasks.importing import without_password
from tasks.models import Trunk
from tenants.models import Organization, Project
from tests.factories.tenants import make_organization
from tests.tasks.repositories import AT, FILES

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def organization() -> Organization:
    return make_organization(slug="acme")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository of somebody else."""
    return make_source(tmp_path / "source.git", FILES)


def make_source(path: Path, files: dict[str, bytes]) -> Path:
    store = Store(path).init()
    store.promote(commit_files(store, files, message="Theirs\n", at=AT), None, "first")
    return path


def run(
    *, organization: str = "acme", name: str = "Their App", source: object, **more: object
) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(
        "import_project",
        organization=organization,
        name=name,
        source=str(source),
        stdout=out,
        stderr=err,
        **more,
    )
    return out.getvalue(), err.getvalue()


@pytest.mark.usefixtures("organization")
def test_a_repository_becomes_a_project_with_its_trunk_and_index(source: Path) -> None:
    out, err = run(source=source)
    project = Project.objects.get(slug="their-app")
    trunk = Trunk.objects.get(project=project)
    assert store_for(project.pk).commit_of_main() == trunk.commit == Store(source).commit_of_main()
    assert (trunk.generation, trunk.indexed_generation, trunk.warnings) == (1, 1, [])
    assert trunk.imported_from == str(source)
    assert "acme/their-app: 3 files" in out
    assert err == ""


@pytest.mark.usefixtures("organization")
def test_what_agents_will_stumble_over_is_said(tmp_path: Path) -> None:
    """Faults C23, C75, C76."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    source = make_source(tmp_path / "odd.git", {"AGENTS.md": b"1\n", "agents.md": b"2\n", "big.bin": pointer})
    _, err = run(source=source)
    warnings = Trunk.objects.get().warnings
    assert any("differ only by case" in warning and "agents.md" in warning for warning in warnings)
    assert any("LFS" in warning and "big.bin" in warning for warning in warnings)
    assert all(warning in err for warning in warnings)


@pytest.mark.usefixtures("organization")
def test_an_empty_repository_is_refused(tmp_path: Path) -> None:
    """Fault C68."""
    Store(tmp_path / "empty.git").init()
    with pytest.raises(CommandError, match=r"^--from: the repository has no commits"):
        run(source=tmp_path / "empty.git")
    assert not Project.objects.exists()


@pytest.mark.usefixtures("organization")
@pytest.mark.parametrize("source", ["/nowhere/at/all", "ext::sh -c id", "ftp://x/y", ""])
def test_what_is_no_repository_is_refused(source: str) -> None:
    with pytest.raises(CommandError, match=r"^--from: "):
        run(source=source)
    assert not Project.objects.exists()


@pytest.mark.usefixtures("organization")
def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(CommandError, match=r"^--from: "):
        run(source=tmp_path / "plain")
    assert not Project.objects.exists()


def test_an_unknown_organization_is_refused(source: Path) -> None:
    with pytest.raises(CommandError, match=r"^--organization: "):
        run(organization="nobody", source=source)


@pytest.mark.usefixtures("organization")
@pytest.mark.parametrize(("name", "option"), [("", "--name"), ("two\nlines", "--name"), ("!!!", "--slug")])
def test_a_bad_name_is_refused(source: Path, name: str, option: str) -> None:
    with pytest.raises(CommandError, match=f"^{option}: "):
        run(name=name, source=source)


@pytest.mark.usefixtures("organization")
def test_a_second_project_of_the_same_name_is_refused(source: Path) -> None:
    run(source=source)
    with pytest.raises(CommandError, match=r"^--slug: "):
        run(source=source)
    assert Project.objects.count() == 1


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("https://ana:secret@example.org/a.git", "https://example.org/a.git"),
        ("https://token@example.org/a@b.git", "https://example.org/a@b.git"),
        ("/a/path", "/a/path"),
    ],
)
def test_a_key_in_an_address_is_not_kept(source: str, shown: str) -> None:
    """Row 4."""
    assert without_password(source) == shown
