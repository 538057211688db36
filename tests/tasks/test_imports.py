"""A person brings a repository in, in the browser or over REST; a worker does it, and says why when it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings as django_settings
from django.db import IntegrityError, connections, transaction
from django.test import Client
from django.utils import timezone

from agents.workspace import importing as engine
from agents.workspace.git import Store, store_for
from tasks import imports
from tasks.errors import IllegalMove, LostRace, StillOpen
from tasks.imports import (
    KEPT_MAX,
    TRIES_MAX,
    WAITS_HOURS_MAX,
    WantedImport,
    cancel_import,
    end_forgotten_imports,
    request_bundle_import,
    request_import,
    run_import,
    wake_due_imports,
)
from tasks.models import ProjectImport, Trunk
from tasks.uploads import ABANDONED_SECONDS, Upload, bundle_path, clear_abandoned_uploads
from tenants.errors import InvalidInput
from tenants.models import AuditEntry, Organization, Project, Role, User
from tests.factories.tasks import make_import
from tests.factories.tenants import bearer, make_member, make_project, make_token
from tests.tasks.git_servers import Authority, HttpsGit, Sshd, https_git
from tests.tasks.repositories import FILES
from tests.tasks.test_import import make_source
from tests.tasks.test_import_wires import authority, children, plane, root, secret_file, ssh

__all__ = ["authority", "plane", "root", "ssh"]

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "a-secret/of: ana@example%20"


@pytest.fixture
def https(root: Path, authority: Authority, tmp_path: Path, plane: Callable[..., Any]) -> Iterator[HttpsGit]:
    plane(git_ca_file=authority.write(tmp_path / "ca.pem"))
    with https_git(root, *authority.server_files(tmp_path / "tls")) as server:
        yield server


@pytest.fixture
def project(plane: Callable[..., Any]) -> Project:  # its data folder
    return make_project(Organization.objects.get(slug="acme"))


def admin_of(project: Project) -> User:
    return make_member(project.organization, Role.ADMIN)


def asked(project: Project, source: str, **more: str) -> ProjectImport:
    return request_import(project, WantedImport(source, **more), by=admin_of(project), now=timezone.now())


def worked(project: Project, source: str, **more: str) -> ProjectImport:
    found = asked(project, source, **more)
    run_import(found.pk)
    found.refresh_from_db()
    return found


def sent(project: Project, path: Path, name: str = "app.bundle") -> ProjectImport:
    upload = Upload()
    try:
        upload.write(path.read_bytes())
        return request_bundle_import(project, upload, name, by=admin_of(project), now=timezone.now())
    finally:
        upload.discard()


def bundle_of(repository: Path, to: Path) -> Path:
    Store(repository).git("bundle", "create", "--quiet", str(to), "--all")
    return to


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def nothing_left(project: Project) -> None:
    """No repository, no folder, no file and no process of an import that did not come to a good end."""
    data = django_settings.PLANE.data_dir
    assert not Trunk.objects.filter(project=project).exists()
    assert list((data / "git").glob("*")) == []
    assert list((data / "uploads").glob("*")) == []
    assert children() == []


# ---- what comes in


def test_a_repository_comes_in_over_https(project: Project, https: HttpsGit, root: Path) -> None:
    found = worked(project, https.url("app.git"))
    trunk = Trunk.objects.get(project=project)
    assert (found.state, found.problem) == ("done", "")
    assert found.found == {
        "commit": trunk.commit,
        "branch": "main",
        "files": 3,
        "bytes": sum(map(len, FILES.values())),
        "warnings": [],
    }
    assert store_for(project.pk).commit_of_main() == trunk.commit == Store(root / "app.git").rev("main")
    assert (trunk.imported_from, trunk.indexed_generation) == (https.url("app.git"), 1)
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert actions[-2:] == ["import.requested", "project.imported"]


def test_a_password_is_sealed_until_it_is_used_and_then_nowhere(project: Project, https: HttpsGit) -> None:
    https.password = PASSWORD
    found = asked(project, https.url("app.git"), username="ana", password=PASSWORD)
    assert found.sealed_password
    assert PASSWORD not in str(ProjectImport.objects.values().get())
    run_import(found.pk)
    found.refresh_from_db()
    assert (found.state, found.sealed_password, found.username) == ("done", "", "")
    rows = [*ProjectImport.objects.values(), *Trunk.objects.values(), *AuditEntry.objects.values()]
    assert PASSWORD not in str(rows)
    held = subprocess.run(
        ["grep", "-rlF", PASSWORD, str(django_settings.PLANE.data_dir)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert held.stdout == ""


def test_the_database_itself_keeps_no_password_past_the_end(project: Project) -> None:
    found = make_import(project, sealed_password="sealed")
    with pytest.raises(IntegrityError), transaction.atomic():
        ProjectImport.objects.filter(pk=found.pk).update(state="failed", ended_at=timezone.now())


def test_a_wrong_password_is_refused_with_words_for_this_door(project: Project, https: HttpsGit) -> None:
    https.password = PASSWORD
    found = worked(project, https.url("app.git"), username="ana", password="wrong-one")
    assert (found.state, found.code, found.sealed_password) == ("failed", "access_denied", "")
    assert "--password" not in found.problem + found.remedy
    assert "access token" in found.remedy
    assert "wrong-one" not in str(ProjectImport.objects.values().get())
    nothing_left(project)


def test_what_agents_will_stumble_over_stands_on_the_page(project: Project, https: HttpsGit) -> None:
    """Faults C23, C75."""
    make_source(https.root / "odd.git", {"AGENTS.md": b"1\n", "agents.md": b"2\n"})
    found = worked(project, https.url("odd.git"))
    assert any("differ only by case" in warning for warning in found.found["warnings"])
    client = client_of(make_member(project.organization, Role.VIEWER))
    for path in (f"/projects/{project.pk}/repository", f"/projects/{project.pk}"):
        body = client.get(path).content.decode()
        assert "iffer only by case" in body
        assert https.url("odd.git") in body


def test_a_bundle_comes_in_and_its_file_goes(project: Project, root: Path, tmp_path: Path) -> None:
    found = sent(project, bundle_of(root / "app.git", tmp_path / "a.bundle"), "../team/app.bundle")
    assert found.source == "app.bundle"
    assert bundle_path(found.pk).exists()
    run_import(found.pk)
    found.refresh_from_db()
    assert (found.state, found.found["files"]) == ("done", 3)
    assert Trunk.objects.get(project=project).imported_from == "app.bundle (a bundle)"
    assert list((django_settings.PLANE.data_dir / "uploads").iterdir()) == []


# ---- what does not


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("/etc", "local_source"),
        ("app.git", "local_source"),
        ("file:///srv/git/app.git", "local_source"),
        ("ext::sh -c id", "bad_source"),
        ("http://localhost/app.git", "insecure_address"),
        ("https://ana:hunter2@localhost/app.git", "credentials_in_address"),
        ("ssh://git@localhost/app.git", "key_not_shared"),
        ("git@localhost:team/app.git", "key_not_shared"),
        ("", "required"),
    ],
)
def test_an_address_that_is_none_here_is_refused_at_once(project: Project, source: str, code: str) -> None:
    """Fault C33."""
    with pytest.raises(InvalidInput) as refused:
        asked(project, source)
    assert (refused.value.field, refused.value.code) == ("source", code)
    said = refused.value.problem + refused.value.remedy
    assert "hunter2" not in said
    assert "--" not in said
    assert not ProjectImport.objects.exists()


def test_a_file_that_looks_like_an_ssh_address_is_none(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plane: Callable[..., Any]
) -> None:
    """The command takes it for a file; from a browser nothing of this machine is reached."""
    plane(git_organizations=("acme",))
    monkeypatch.chdir(tmp_path)
    make_source(tmp_path / "localhost:app.git", FILES)
    found = worked(project, "localhost:app.git")
    assert found.state == "failed"
    nothing_left(project)


def test_a_private_address_is_asked_by_the_deployments_rule_only(
    project: Project, https: HttpsGit, plane: Callable[..., Any]
) -> None:
    plane(private_addresses=False)
    found = worked(project, https.url("app.git"))
    assert (found.state, found.code) == ("failed", "private_address")
    assert https.seen == []
    nothing_left(project)


def test_the_deployments_credentials_are_shown_for_named_organizations_only(
    project: Project, https: HttpsGit, tmp_path: Path, plane: Callable[..., Any]
) -> None:
    """Promise 7: what the operator's token opens is not every tenant's."""
    https.password = PASSWORD
    host = https.origin.removeprefix("https://")
    line = f"https://ana:{quote(PASSWORD, safe='')}@{host}\n"
    plane(git_credentials=secret_file(tmp_path / "kept", line), git_organizations=("another",))
    assert worked(project, https.url("app.git")).code == "access_denied"
    with pytest.raises(InvalidInput, match="missing"):
        asked(project, https.url("app.git"), username="ana")
    plane(git_organizations=("*",))
    assert worked(project, https.url("app.git")).state == "done"


@pytest.mark.sshd
def test_the_deployments_key_opens_for_named_organizations(
    project: Project, ssh: Sshd, root: Path, plane: Callable[..., Any]
) -> None:
    plane(git_organizations=("acme",))
    with pytest.raises(InvalidInput, match="of no use over ssh"):
        asked(project, ssh.url(root / "app.git"), password="x")
    assert worked(project, ssh.url(root / "app.git")).state == "done"


@pytest.mark.sshd
def test_a_share_that_ends_before_the_worker_begins_counts(
    project: Project, ssh: Sshd, root: Path, plane: Callable[..., Any]
) -> None:
    plane(git_organizations=("acme",))
    found = asked(project, ssh.url(root / "app.git"))
    plane(git_organizations=())
    run_import(found.pk)
    found.refresh_from_db()
    assert found.code == "key_not_shared"


@pytest.mark.parametrize(
    ("name", "code"), [("nothing.git", "no_repository"), ("empty.git", "empty_repository")]
)
def test_what_is_not_there_or_empty_says_so(project: Project, https: HttpsGit, name: str, code: str) -> None:
    """Fault C68."""
    found = worked(project, https.url(name))
    assert (found.state, found.code) == ("failed", code)
    assert found.remedy
    admin = client_of(admin_of(project))
    assert "What helps" in admin.get(f"/projects/{project.pk}").content.decode()
    assert f'value="{https.url(name)}"' in admin.get(f"/projects/{project.pk}/repository").content.decode()
    nothing_left(project)
    assert worked(project, https.url("app.git")).state == "done"


def test_a_project_that_has_one_takes_no_other(project: Project, https: HttpsGit) -> None:
    worked(project, https.url("app.git"))
    with pytest.raises(InvalidInput) as refused:
        asked(project, https.url("app.git"))
    assert refused.value.code == "already_imported"
    body = client_of(admin_of(project)).get(f"/projects/{project.pk}/repository").content.decode()
    assert "From an address" not in body


def test_an_archived_project_takes_none(project: Project) -> None:
    Project.objects.update(archived_at=timezone.now())
    project.refresh_from_db()
    with pytest.raises(InvalidInput, match="archived"):
        asked(project, "https://git.example.org/app.git")


# ---- hostile bundles


def test_a_file_that_points_at_another_repository_is_no_bundle(
    project: Project, https: HttpsGit, tmp_path: Path
) -> None:
    """git follows such a file, and what it points at may be another tenant's."""
    other = make_project()
    make_source(store_for(other.pk).directory, FILES)
    for text in (f"gitdir: {store_for(other.pk).directory}\n", "# v2 git bundle", "", "# v9 git bundle\nx"):
        file = secret_file(tmp_path / "x", text)
        with pytest.raises(InvalidInput) as refused:
            sent(project, file)
        assert (refused.value.field, refused.value.code) == ("bundle", "not_a_bundle")
    found = sent(project, bundle_of(https.root / "app.git", tmp_path / "a"))
    bundle_path(found.pk).write_text(f"gitdir: {store_for(other.pk).directory}\n")  # changed behind our back
    run_import(found.pk)
    found.refresh_from_db()
    assert found.code == "not_a_bundle"
    assert not Trunk.objects.filter(project=project).exists()


@pytest.mark.parametrize("kind", ["cut", "garbage", "needs-another", "filtered"])
def test_a_bundle_that_is_not_whole_is_refused(
    project: Project, root: Path, tmp_path: Path, kind: str
) -> None:
    data = bundle_of(root / "app.git", tmp_path / "a").read_bytes()
    head, _, pack = data.partition(b"\n\n")
    wrong = {
        "cut": data[:-40],
        "garbage": head + b"\n\n" + b"\0" * len(pack),
        "needs-another": data.replace(b"# v2 git bundle\n", b"# v2 git bundle\n-" + b"1" * 40 + b"\n"),
        "filtered": data.replace(
            b"# v2 git bundle\n", b"# v3 git bundle\n@object-format=sha1\n@filter=blob:none\n@x=y\n"
        ),
    }[kind]
    (tmp_path / "b").write_bytes(wrong)
    found = sent(project, tmp_path / "b")
    run_import(found.pk)
    found.refresh_from_db()
    assert (found.state, found.code) == ("failed", "unreadable_source")
    nothing_left(project)


def test_a_few_trees_that_name_each_other_are_not_listed_for_ever(project: Project, tmp_path: Path) -> None:
    """Ten entries, ten levels: ten thousand million files in a few hundred bytes."""
    store = Store(tmp_path / "bomb.git").init()
    entry = store.git("hash-object", "-w", "--stdin", stdin=b"boom\n").out.decode().strip()
    kind = "100644 blob"
    for _ in range(10):
        lines = "".join(f"{kind} {entry}\tf{at}\n" for at in range(10))
        entry = store.git("mktree", stdin=lines.encode()).out.decode().strip()
        kind = "040000 tree"
    more = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "x@example.org")
    more |= dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "x")
    commit = store.git("commit-tree", entry, "-m", "boom", more=more).out.decode().strip()
    store.git("update-ref", "refs/heads/main", commit)
    file = bundle_of(tmp_path / "bomb.git", tmp_path / "b")
    assert file.stat().st_size < 5_000
    began = time.monotonic()
    found = sent(project, file)
    run_import(found.pk)
    found.refresh_from_db()
    assert (found.state, found.code) == ("failed", "too_many_files")
    assert time.monotonic() - began < 60
    nothing_left(project)


def test_a_link_of_any_length_is_not_read(project: Project, tmp_path: Path) -> None:
    store = Store(tmp_path / "long.git").init()
    blob = store.git("hash-object", "-w", "--stdin", stdin=b"a" * 4_097).out.decode().strip()
    tree = store.git("mktree", stdin=f"120000 blob {blob}\tlink\n".encode()).out.decode().strip()
    assert [each.size for each in store.tree_files(tree)] == [4_097]
    assert engine._outside_links(store, tree, store.tree_files(tree)) == ["link"]


def test_a_bundle_larger_than_allowed_is_cut_as_it_comes(
    project: Project, root: Path, tmp_path: Path, plane: Callable[..., Any]
) -> None:
    plane(import_mib_max=1)
    client = client_of(admin_of(project))
    data = bundle_of(root / "app.git", tmp_path / "a").read_bytes() + b"\0" * 1024 * 1024
    path = f"/api/v1/projects/{project.pk}/imports/bundle"
    answer = client.post(path, data, content_type="application/octet-stream")
    assert (answer.status_code, answer.json()["code"]) == (400, "too_large")
    (tmp_path / "b").write_bytes(data)
    with (tmp_path / "b").open("rb") as file:
        answer = client.post(f"/projects/{project.pk}/repository/bundle", {"bundle": file})
    assert answer.status_code == 400
    assert "larger than 1 MiB" in answer.content.decode()
    nothing_left(project)


# ---- one at a time, and workers that die


def test_one_import_at_a_time(project: Project) -> None:
    first = asked(project, "https://git.example.org/app.git")
    with pytest.raises(StillOpen) as refused:
        asked(project, "https://git.example.org/app.git")
    assert refused.value.code == "import_open"
    with pytest.raises(StillOpen):  # also when both looked before either wrote
        imports._queue(project, {"source": "x"}, by=admin_of(project), now=timezone.now())
    cancel_import(first, by=admin_of(project), now=timezone.now())
    assert asked(project, "https://git.example.org/app.git").state == "queued"
    with pytest.raises(IllegalMove):
        cancel_import(first, by=admin_of(project), now=timezone.now())


def test_of_two_who_bring_one_in_the_second_leaves_the_first_alone(
    project: Project, https: HttpsGit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command while a worker fetches: whoever settles first has it."""
    found = asked(project, https.url("app.git"))
    commit = make_source(https.root / "other.git", {"a": b"b\n"})
    warned = engine.warnings_of

    def meanwhile(*arguments: Any) -> Any:
        monkeypatch.setattr(engine, "warnings_of", warned)
        from tasks.importing import import_project

        import_project(project.organization, name=project.name, slug=project.slug, source=str(commit))
        return warned(*arguments)

    monkeypatch.setattr(engine, "warnings_of", meanwhile)
    run_import(found.pk)
    found.refresh_from_db()
    assert (found.state, found.code) == ("failed", "already_imported")
    assert store_for(project.pk).commit_of_main() == Trunk.objects.get().commit == Store(commit).rev("main")


def test_whoever_lost_it_makes_nothing(project: Project, https: HttpsGit) -> None:
    found = asked(project, https.url("app.git"))
    first = imports._take(found.pk, now=timezone.now())
    assert first is not None
    assert imports._take(found.pk, now=timezone.now()) is None
    ProjectImport.objects.update(not_before=timezone.now() - timedelta(seconds=1))
    second = imports._take(found.pk, now=timezone.now())
    assert second is not None
    with pytest.raises(LostRace):
        first.watch("fetching", 1)
    with pytest.raises(LostRace):
        imports._do(first)
    first.refuse("x", "y", "z")
    found.refresh_from_db()
    assert (found.state, found.tries, found.problem) == ("running", 2, "")
    nothing_left(project)
    imports._do(second)
    found.refresh_from_db()
    assert found.state == "done"


def test_a_repository_that_kills_its_workers_does_so_three_times(project: Project) -> None:
    found = asked(project, "https://git.example.org/app.git", username="ana", password="secret")
    for tried in range(1, TRIES_MAX + 1):
        assert imports._take(found.pk, now=timezone.now()) is not None
        assert wake_due_imports(timezone.now()) == 0
        row = ProjectImport.objects.get()
        assert (row.tries, bool(row.sealed_password)) == (tried, True)
        machine = row.work_key.rsplit(":", 3)[0]
        ProjectImport.objects.update(work_key=f"{machine}:4194999:1:{tried}")
        assert wake_due_imports(timezone.now()) == 1
    run_import(found.pk)
    found.refresh_from_db()
    assert (found.state, found.code, found.sealed_password) == ("failed", "workers_died", "")


def test_a_password_waits_a_day_for_a_worker_and_no_longer(project: Project) -> None:
    found = asked(project, "https://git.example.org/app.git", username="ana", password="secret")
    assert end_forgotten_imports(timezone.now()) == 0
    assert end_forgotten_imports(timezone.now() + timedelta(hours=WAITS_HOURS_MAX, minutes=1)) == 1
    found.refresh_from_db()
    assert (found.state, found.code, found.sealed_password) == ("failed", "not_taken", "")


def test_files_of_requests_that_died_go_and_awaited_ones_stay(
    project: Project, root: Path, tmp_path: Path
) -> None:
    waiting = bundle_path(sent(project, bundle_of(root / "app.git", tmp_path / "a")).pk)
    dead = waiting.with_name("dead.part")
    dead.write_bytes(b"x")
    assert clear_abandoned_uploads(timezone.now()) == 0
    for path in (waiting, dead):
        os.utime(path, (time.time() - ABANDONED_SECONDS - 5,) * 2)
    assert clear_abandoned_uploads(timezone.now()) == 1
    assert (waiting.exists(), dead.exists()) == (True, False)


def test_a_cancelled_one_ends_its_git(project: Project, https: HttpsGit) -> None:
    https.behave = "silent"
    found = asked(project, https.url("app.git"))

    def work() -> None:
        try:
            run_import(found.pk)
        finally:
            connections.close_all()

    worker = threading.Thread(target=work)
    worker.start()
    wait_for(lambda: ProjectImport.objects.get().step != "")
    cancel_import(ProjectImport.objects.get(), by=admin_of(project), now=timezone.now())
    worker.join(15)
    assert not worker.is_alive()
    found.refresh_from_db()
    assert found.state == "cancelled"
    nothing_left(project)


def test_a_fault_of_ours_ends_it_with_a_word(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(imports, "bring_in", broken)
    found = worked(project, "https://git.example.org/app.git", password="secret")
    assert (found.state, found.code) == ("failed", "internal_error")
    assert "RuntimeError" in found.problem
    assert "secret" not in found.problem


def test_a_fault_at_the_last_step_leaves_nothing(
    project: Project, https: HttpsGit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row was moved in the transaction that then was taken back."""

    def broken(*_: Any) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("tasks.importing.take_in", broken)
    found = worked(project, https.url("app.git"))
    assert (found.state, found.code, found.found) == ("failed", "internal_error", {})
    nothing_left(project)


def test_the_last_ones_are_kept_and_older_ones_go(project: Project) -> None:
    for at in range(KEPT_MAX + 5):
        past = timezone.now() - timedelta(days=at + 1)
        make_import(project, state="failed", created_at=past, ended_at=past, source=f"https://x.example/{at}")
    newest = asked(project, "https://git.example.org/app.git")
    assert ProjectImport.objects.count() == KEPT_MAX
    assert ProjectImport.objects.filter(pk=newest.pk).exists()


@pytest.mark.slow
def test_a_killed_worker_leaves_nothing_half_and_the_next_does_it(
    project: Project, https: HttpsGit, tmp_path: Path
) -> None:
    """kill -9 in the middle of a fetch: git ends too, the folder goes, no password is on the disk."""
    https.password, https.behave = PASSWORD, "endless-pack"
    found = asked(project, https.url("app.git"), username="ana", password=PASSWORD)
    program = (
        "import django; django.setup()\n"
        "from dataclasses import replace\nfrom pathlib import Path\nfrom uuid import UUID\n"
        "from django.conf import settings\nfrom django.db import connections\n"
        f"settings.DATABASES['default']['NAME'] = {connections['default'].settings_dict['NAME']!r}\n"
        f"connections['default'].settings_dict['NAME'] = {connections['default'].settings_dict['NAME']!r}\n"
        f"settings.PLANE = replace(settings.PLANE, data_dir=Path({str(django_settings.PLANE.data_dir)!r}),"
        f" git_ca_file=Path({str(django_settings.PLANE.git_ca_file)!r}),"
        f" secret_key={django_settings.PLANE.secret_key!r},"
        f" connector_keys={django_settings.PLANE.connector_keys!r})\n"
        f"from tasks.imports import run_import; run_import(UUID({str(found.pk)!r}))\n"
    )
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    worker = subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=django_settings.BASE_DIR)
    git = django_settings.PLANE.data_dir / "git"
    try:
        wait_for(lambda: ProjectImport.objects.get().received_bytes > 1_000_000, seconds=60)
        assert PASSWORD.encode() not in b"".join(
            path.read_bytes() for path in git.rglob("*") if path.is_file() and path.stat().st_size < 100_000
        )
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    (left,) = git.glob("incoming-*")
    wait_for(lambda: not _git_runs(left))
    row = ProjectImport.objects.get()
    assert (row.state, row.tries) == ("running", 1)
    assert not Trunk.objects.exists()
    https.behave = "git"
    assert wake_due_imports(timezone.now()) == 1
    run_import(found.pk)
    row.refresh_from_db()
    assert (row.state, row.tries, row.sealed_password) == ("done", 2, "")
    assert not left.exists()
    assert [path.name for path in git.iterdir()] == [store_for(project.pk).directory.name]


# ---- the doors


def test_an_admin_brings_one_in_on_the_pages_and_everybody_follows(project: Project, https: HttpsGit) -> None:
    admin, viewer = client_of(admin_of(project)), client_of(make_member(project.organization, Role.VIEWER))
    page = f"/projects/{project.pk}/repository"
    assert "From an address" in admin.get(page).content.decode()
    assert "From an address" not in viewer.get(page).content.decode()
    assert viewer.post(page, {"source": https.url("app.git")}).status_code == 403
    wrong = admin.post(page, {"source": "/srv/app.git", "password": "hunter2"})
    assert wrong.status_code == 400
    assert "own disk" in wrong.content.decode()
    assert "hunter2" not in wrong.content.decode()
    assert admin.post(page, {"source": https.url("app.git")}).headers["Location"] == page
    again = admin.post(page, {"source": https.url("app.git")})
    assert "has not ended" in again.content.decode()
    card = f"/projects/{project.pk}/repository/card"
    for path in (page, card, f"/projects/{project.pk}"):
        body = viewer.get(path).content.decode()
        assert "waits for a worker" in body
        assert "every 2s" in body
        assert "Cancel it" not in body
    assert "Cancel it" in admin.get(card).content.decode()
    run_import(ProjectImport.objects.get().pk)
    for path in (page, card, f"/projects/{project.pk}"):
        body = viewer.get(path).content.decode()
        assert "3 files" in body
        assert "every 2s" not in body


def test_a_new_project_leads_to_its_repository(project: Project) -> None:
    wanted = {"organization": project.organization_id, "name": "Next", "slug": "next", "connector": "main"}
    answer = client_of(admin_of(project)).post("/projects/new", wanted)
    assert answer.headers["Location"] == f"/projects/{Project.objects.get(slug='next').pk}/repository"


def test_a_bundle_is_uploaded_by_the_form(project: Project, root: Path, tmp_path: Path) -> None:
    bundle_of(root / "app.git", tmp_path / "app.bundle")
    page = f"/projects/{project.pk}/repository/bundle"
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(admin_of(project))
    with (tmp_path / "app.bundle").open("rb") as file:
        assert strict.post(page, {"bundle": file}).status_code == 403
    viewer = client_of(make_member(project.organization, Role.VIEWER))
    with (tmp_path / "app.bundle").open("rb") as file:
        assert viewer.post(page, {"bundle": file}).status_code == 403
    admin = client_of(admin_of(project))
    assert "required" in admin.post(page, {}).content.decode()
    (tmp_path / "note.bundle").write_text("hello\n")
    with (tmp_path / "note.bundle").open("rb") as file:
        assert "no git bundle" in admin.post(page, {"bundle": file}).content.decode()
    assert list((django_settings.PLANE.data_dir / "uploads").iterdir()) == []
    strict.get(f"/projects/{project.pk}/repository")
    with (tmp_path / "app.bundle").open("rb") as file:
        form = {"csrfmiddlewaretoken": strict.cookies["csrftoken"].value, "bundle": file}
        assert strict.post(page, form).status_code == 302
    found = ProjectImport.objects.get()
    run_import(found.pk)
    found.refresh_from_db()
    assert (found.state, found.source) == ("done", "app.bundle")


def test_over_rest_it_is_queued_read_and_cancelled(project: Project, https: HttpsGit) -> None:
    admin = admin_of(project)
    _, plain = make_token(admin, project.organization, scopes=["admin"])
    _, weak = make_token(admin, project.organization, scopes=["changes:write"])
    path = f"/api/v1/projects/{project.pk}/imports"

    def post(where: str, body: Any, token: str = plain, **headers: str) -> Any:
        return Client(**bearer(token)).post(where, body, content_type="application/json", headers=headers)

    get = Client(**bearer(weak)).get
    wanted = {"source": https.url("app.git"), "username": "ana", "password": PASSWORD}
    assert post(path, wanted, weak).json()["code"] == "scope_missing"
    made = post(path, wanted, **{"Idempotency-Key": "one"})
    assert (made.status_code, made.json()["state"], made.json()["found"]) == (201, "queued", None)
    assert "password" not in made.json()
    again = post(path, wanted, **{"Idempotency-Key": "one"})
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (made.json(), "true")
    assert post(path, wanted | {"password": "x"}, **{"Idempotency-Key": "one"}).status_code == 409
    assert post(path, wanted).json()["code"] == "import_open"
    one = f"/api/v1/imports/{made.json()['id']}"
    assert post(f"{one}/cancel", {}).json()["state"] == "cancelled"
    assert post(f"{one}/cancel", {}).status_code == 409
    next_one = post(path, {"source": https.url("nothing.git")}).json()["id"]
    run_import(next_one)
    refusal = get(f"/api/v1/imports/{next_one}").json()["refusal"]
    assert (refusal["code"], bool(refusal["remedy"])) == ("no_repository", True)
    last = post(path, {"source": https.url("app.git")}).json()["id"]
    run_import(last)
    found = get(f"/api/v1/imports/{last}").json()
    assert (found["state"], found["found"]["files"], found["refusal"]) == ("done", 3, None)
    assert [each["state"] for each in get(path).json()["results"]] == ["done", "failed", "cancelled"]
    taken = post(path, {"source": https.url("app.git")})
    assert (taken.status_code, taken.json()["code"]) == (400, "already_imported")
    for body, field in (({}, "source"), ({"source": "/srv/x"}, "source"), ({"source": "x", "y": 1}, "y")):
        refused = post(f"/api/v1/projects/{make_project(project.organization).pk}/imports", body)
        assert (refused.status_code, refused.json()["field"]) == (400, field)


def test_a_bundle_over_rest_is_the_body_and_comes_once(project: Project, root: Path, tmp_path: Path) -> None:
    data = bundle_of(root / "app.git", tmp_path / "a").read_bytes()
    _, plain = make_token(admin_of(project), project.organization, scopes=["admin"])
    path = f"/api/v1/projects/{project.pk}/imports/bundle?name=app.bundle"

    def post(body: bytes, content_type: str = "application/octet-stream", **headers: str) -> Any:
        return Client(**bearer(plain)).post(path, body, content_type=content_type, headers=headers)

    assert post(b"{}", "application/json").status_code == 415
    assert post(b"hello").json()["code"] == "not_a_bundle"
    made = post(data, **{"Idempotency-Key": "one"})
    assert (made.status_code, made.json()["source"], made.json()["received_bytes"]) == (
        201,
        "app.bundle",
        len(data),
    )
    again = post(data, **{"Idempotency-Key": "one"})
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (made.json(), "true")
    assert post(data + b"\0", **{"Idempotency-Key": "one"}).status_code == 409
    assert post(data).json()["code"] == "import_open"
    assert [path.suffix for path in (django_settings.PLANE.data_dir / "uploads").iterdir()] == [".bundle"]
    run_import(made.json()["id"])
    assert ProjectImport.objects.get().state == "done"
    assert list((django_settings.PLANE.data_dir / "uploads").iterdir()) == []


def test_the_sealed_password_is_not_in_the_admin(project: Project) -> None:
    found = asked(project, "https://git.example.org/app.git", username="ana", password="secret")
    staff = client_of(User.objects.create_superuser("root@example.org", "x" * 20))
    answer = staff.get(f"/admin/tasks/projectimport/{found.pk}/change/")
    assert answer.status_code == 200
    assert found.sealed_password not in answer.content.decode()
    assert "git.example.org" in answer.content.decode()


def wait_for(met: Callable[[], bool], *, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < until
        time.sleep(0.05)


def _git_runs(directory: Path) -> bool:
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(directory).encode() in place.read_bytes():
                return True
        except OSError:
            continue
    return False
