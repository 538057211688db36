"""Import over https and ssh from real servers: what comes in, what is refused in which words, what is left."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError

from agents.workspace.git import Store, store_for
from agents.workspace.importing import import_into
from agents.workspace.remote import Access, Bounds
from tasks.models import Trunk
from tenants.errors import InvalidInput
from tenants.models import AuditEntry, Organization, Project
from tests.factories.tenants import make_organization, make_project
from tests.tasks.git_servers import Authority, HttpsGit, Sshd, https_git, make_key, sshd
from tests.tasks.repositories import FILES
from tests.tasks.test_import import make_source, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PASSWORD = "a-secret/of: ana@example%20"


@pytest.fixture(autouse=True)
def plane(
    tmp_path: Path, with_plane: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))  # other tests import at the same time
    with_plane(data_dir=tmp_path / "data")
    make_organization(slug="acme")
    return with_plane


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_source(tmp_path / "served" / "app.git", FILES)
    Store(tmp_path / "served" / "empty.git").init()
    return tmp_path / "served"


@pytest.fixture
def authority() -> Authority:
    return Authority.made()


@pytest.fixture
def https(root: Path, authority: Authority, tmp_path: Path, plane: Callable[..., Any]) -> Iterator[HttpsGit]:
    """A server that the deployment trusts."""
    plane(git_ca_file=authority.write(tmp_path / "ca.pem"))
    with https_git(root, *authority.server_files(tmp_path / "tls")) as server:
        yield server


@pytest.fixture
def ssh(root: Path, tmp_path: Path, plane: Callable[..., Any]) -> Iterator[Sshd]:
    with sshd(tmp_path / "sshd") as server:
        plane(git_ssh_key=server.user_key, git_known_hosts=server.known_hosts)
        yield server


def refused(source: str, **more: str) -> str:
    """The command's complaint, after which nothing is left: no row, no folder, no process."""
    with pytest.raises(CommandError) as error:
        run(source=source, **more)
    assert not Project.objects.exists()
    assert not AuditEntry.objects.filter(action__startswith="project.").exists()
    assert list((django_settings.PLANE.data_dir / "git").glob("*")) == []
    assert list(Path(tempfile.gettempdir()).glob("remit-import-*")) == []
    assert "\x1b" not in str(error.value)
    return str(error.value)


def secret_file(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


# ---- https


def test_a_repository_comes_in_over_https(https: HttpsGit, root: Path) -> None:
    out, err = run(source=https.url("app.git"))
    trunk = Trunk.objects.get()
    assert store_for(trunk.project_id).commit_of_main() == trunk.commit == Store(root / "app.git").rev("main")
    assert (trunk.imported_from, err) == (https.url("app.git"), "")
    assert "acme/their-app: 3 files" in out


def test_a_name_and_password_open_what_is_closed(https: HttpsGit, tmp_path: Path) -> None:
    https.password = PASSWORD
    run(
        source=https.url("app.git"),
        username="ana",
        password_file=str(secret_file(tmp_path / "p", PASSWORD + "\n")),
    )
    trunk = Trunk.objects.get()
    assert PASSWORD not in str(Trunk.objects.values().get()) + str(list(AuditEntry.objects.values()))
    held = subprocess.run(
        ["grep", "-rlF", PASSWORD, str(django_settings.PLANE.data_dir)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (trunk.imported_from, held.stdout) == (https.url("app.git"), "")


def test_the_operators_file_of_credentials_is_looked_through(
    https: HttpsGit, tmp_path: Path, plane: Callable[..., Any]
) -> None:
    https.password = "other word"
    port = https.origin.rpartition(":")[2]
    lines = f"https://ana:wrong@elsewhere.example\nhttps://ana:other%20word@localhost:{port}\n"
    kept = secret_file(tmp_path / "credentials", lines)
    plane(git_credentials=kept)
    run(source=https.url("app.git"))
    assert Trunk.objects.exists()
    assert kept.read_text() == lines  # git's own helper would take out what a server refuses


def test_no_secret_stands_in_an_argument_or_on_the_disk(https: HttpsGit, tmp_path: Path) -> None:
    """What any user of the machine could see while git waits for the server, or after a kill -9."""
    https.password, https.behave = PASSWORD, "silent"
    seen: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.append(place.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
                except OSError:
                    continue
            for folder in (Path(tempfile.gettempdir()), tmp_path / "x.git"):
                for place in folder.rglob("*"):
                    try:
                        seen.append(place.read_bytes().decode("utf-8", "replace"))
                    except OSError:
                        continue
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(InvalidInput) as error:
            import_into(
                Store(tmp_path / "x.git"),
                https.url("app.git"),
                access=access_of("ana", PASSWORD),
                bounds=Bounds(listing_seconds_max=2.0),
            )
    finally:
        done.set()
        watcher.join()
    assert error.value.code == "too_slow"
    assert any("git" in line and "ls-remote" in line for line in seen), "the watcher saw git"
    assert [line for line in seen if PASSWORD in line or "a-secret" in line] == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "--password-file"),
        ({"username": "ana", "password": "wrong"}, "does not take this name and password"),
    ],
)
def test_a_wrong_password_names_the_remedy_and_not_the_password(
    https: HttpsGit, tmp_path: Path, given: dict[str, str], words: str
) -> None:
    https.password = PASSWORD
    more = (
        {"username": given["username"], "password_file": str(secret_file(tmp_path / "p", given["password"]))}
        if given
        else {}
    )
    said = refused(https.url("app.git"), **more)
    assert words in said
    assert "REMIT_GIT_CREDENTIALS" in said
    assert ":wrong" not in said


def test_an_unknown_authority_names_the_setting(
    https: HttpsGit, plane: Callable[..., Any], tmp_path: Path
) -> None:
    plane(git_ca_file=Authority.made("Another").write(tmp_path / "other.pem"))
    assert "REMIT_GIT_CA_FILE" in refused(https.url("app.git"))
    plane(git_ca_file=None)
    assert "REMIT_GIT_CA_FILE" in refused(https.url("app.git"))


@pytest.mark.parametrize(
    ("made", "words"), [({"host": "other.example"}, "of another name"), ({"days": -1}, "out of date")]
)
def test_a_certificate_that_does_not_fit(
    root: Path,
    authority: Authority,
    tmp_path: Path,
    plane: Callable[..., Any],
    made: dict[str, Any],
    words: str,
) -> None:
    plane(git_ca_file=authority.write(tmp_path / "ca.pem"))
    with https_git(root, *authority.server_files(tmp_path / "tls", **made)) as server:
        assert words in refused(server.url("app.git"))


@pytest.mark.parametrize(
    ("name", "words"), [("nothing.git", "no repository at this address"), ("empty.git", "has no commits")]
)
def test_what_is_not_there_or_empty_is_refused_over_https(https: HttpsGit, name: str, words: str) -> None:
    """Fault C68."""
    assert words in refused(https.url(name))


def test_a_page_is_no_repository(https: HttpsGit) -> None:
    https.behave = "page"
    assert "does not speak git" in refused(https.url("app.git"))


def test_a_redirect_is_not_followed(
    https: HttpsGit, root: Path, authority: Authority, tmp_path: Path
) -> None:
    https.password = PASSWORD
    with https_git(root, *authority.server_files(tmp_path / "tls2")) as other:
        https.redirect_to = other.origin
        said = refused(
            https.url("app.git"), username="ana", password_file=str(secret_file(tmp_path / "p", PASSWORD))
        )
        assert "not followed" in said
        assert other.seen == []


def test_an_address_behind_the_deployments_wall_is_not_asked(
    https: HttpsGit, plane: Callable[..., Any]
) -> None:
    plane(private_addresses=False)
    said = refused(https.url("app.git"))
    assert "REMIT_PRIVATE_ADDRESSES" in said
    assert https.seen == []


def test_the_clouds_own_address_is_never_asked() -> None:
    assert "may not be asked" in refused("https://169.254.169.254/latest.git")


def test_a_host_without_an_address_says_so() -> None:
    assert "check the host's name" in refused("https://nobody.invalid/app.git")


def test_a_port_where_nobody_listens_says_so() -> None:
    assert "the connection failed" in refused("https://localhost:1/app.git")


@pytest.mark.parametrize("behave", ["silent", "endless-refs"])
def test_a_server_that_never_ends_is_cut(https: HttpsGit, tmp_path: Path, behave: str) -> None:
    """In time, with all that git has started."""
    https.behave = behave
    begun = time.monotonic()
    with pytest.raises(InvalidInput) as error:
        import_into(Store(tmp_path / "x.git"), https.url("app.git"), bounds=Bounds(listing_seconds_max=2.0))
    assert error.value.code in ("too_slow", "too_large")
    assert time.monotonic() - begun < 10
    assert children() == []


def test_a_server_that_falls_silent_is_cut_by_gits_own_clock(https: HttpsGit, tmp_path: Path) -> None:
    https.behave = "silent"
    with pytest.raises(InvalidInput) as error:
        import_into(Store(tmp_path / "x.git"), https.url("app.git"), bounds=Bounds(silent_seconds_max=1))
    assert error.value.code == "too_slow"


def test_a_pack_without_end_stops_at_its_limit(https: HttpsGit, tmp_path: Path) -> None:
    https.behave = "endless-pack"
    with pytest.raises(InvalidInput) as error:
        import_into(Store(tmp_path / "x.git"), https.url("app.git"), bounds=Bounds(bytes_max=5_000_000))
    assert error.value.code == "too_large"
    assert "REMIT_IMPORT_MIB_MAX" in error.value.remedy
    assert children() == []


def test_what_agents_will_stumble_over_is_said_over_https_too(https: HttpsGit, tmp_path: Path) -> None:
    """Faults C23, C75, C76."""
    make_odd(https.root / "odd.git", tmp_path)
    _, err = run(source=https.url("odd.git"))
    check_odd(err)


# ---- ssh


@pytest.mark.sshd
def test_a_repository_comes_in_over_ssh(ssh: Sshd, root: Path) -> None:
    run(source=ssh.url(root / "app.git"))
    trunk = Trunk.objects.get()
    assert trunk.commit == Store(root / "app.git").rev("main")
    assert trunk.imported_from == f"ssh://localhost:{ssh.port}{root}/app.git"


@pytest.mark.sshd
def test_what_agents_will_stumble_over_is_said_over_ssh_too(ssh: Sshd, root: Path, tmp_path: Path) -> None:
    """Faults C23, C75, C76."""
    make_odd(root / "odd.git", tmp_path)
    _, err = run(source=ssh.url(root / "odd.git"))
    check_odd(err)


@pytest.mark.sshd
@pytest.mark.parametrize(
    ("name", "words"), [("nothing.git", "no repository at this address"), ("empty.git", "has no commits")]
)
def test_what_is_not_there_or_empty_is_refused_over_ssh(ssh: Sshd, root: Path, name: str, words: str) -> None:
    """Fault C68."""
    assert words in refused(ssh.url(root / name))


@pytest.mark.sshd
def test_an_unknown_server_is_refused_and_nobody_is_asked(
    ssh: Sshd, root: Path, tmp_path: Path, plane: Callable[..., Any]
) -> None:
    plane(git_known_hosts=secret_file(tmp_path / "none", ""))
    said = refused(ssh.url(root / "app.git"))
    assert "the server's key is not known" in said
    assert "REMIT_GIT_KNOWN_HOSTS" in said
    assert (tmp_path / "none").read_text() == ""


@pytest.mark.sshd
def test_a_changed_server_is_refused(
    ssh: Sshd, root: Path, tmp_path: Path, plane: Callable[..., Any]
) -> None:
    other = make_key(tmp_path / "another_host")
    line = f"[localhost]:{ssh.port} {other.with_suffix('.pub').read_text()}"
    plane(git_known_hosts=secret_file(tmp_path / "changed", line))
    assert "perhaps this is another server" in refused(ssh.url(root / "app.git"))


@pytest.mark.sshd
def test_a_key_that_the_server_does_not_know(
    ssh: Sshd, root: Path, tmp_path: Path, plane: Callable[..., Any]
) -> None:
    plane(git_ssh_key=make_key(tmp_path / "stranger"))
    assert "REMIT_GIT_SSH_KEY" in refused(ssh.url(root / "app.git"))


@pytest.mark.sshd
def test_a_key_that_others_may_read_is_not_used(ssh: Sshd, root: Path) -> None:
    ssh.user_key.chmod(0o644)
    assert "chmod 600" in refused(ssh.url(root / "app.git"))


@pytest.mark.sshd
def test_the_users_own_ssh_configuration_runs_nothing(ssh: Sshd, root: Path, tmp_path: Path) -> None:
    """Fault C33: a path that the server would take for an option, and a host that ssh would."""
    mark = tmp_path / "mark"
    for source in (
        f"ssh://-oProxyCommand=touch%20{mark}/x",
        f"-oProxyCommand=touch {mark}",
        f"a@-oProxyCommand=touch\t{mark}:x",
        f"ssh://{ssh.user}@localhost:{ssh.port}/$(touch {mark})",
        f"ssh://{ssh.user}@localhost:{ssh.port}/'; touch {mark}; '",
        f"ext::sh -c 'touch {mark}'",
    ):
        refused(source)
    assert not mark.exists()


def test_a_server_that_takes_the_connection_and_says_nothing(tmp_path: Path) -> None:
    """Over ssh: nobody answers the greeting."""

    with socket.create_server(("127.0.0.1", 0)) as dead, pytest.raises(InvalidInput) as error:
        import_into(
            Store(tmp_path / "x.git"),
            f"ssh://git@127.0.0.1:{dead.getsockname()[1]}/app.git",
            bounds=Bounds(listing_seconds_max=2.0),
        )
    assert error.value.code == "too_slow"
    assert children() == []


# ---- words that never reach a server


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("http://localhost/app.git", "in the clear"),
        ("git://localhost/app.git", "in the clear"),
        ("https://ana:hunter2@localhost/app.git", "--password-file"),
        ("https://ghp_hunter2@localhost/app.git", "--password-file"),
        ("ssh://git:hunter2@localhost/app.git", "REMIT_GIT_SSH_KEY"),
        ("https://localhost/app.git?private_token=hunter2", "no ?"),
        ("https://localhost", "path of the repository"),
        ("file://elsewhere/srv/app.git", "no other machine"),
        ("ext::sh -c id", "would run a program"),
        ("https://a\u202eb/x.git", "host's name"),
        ("https://-x/x.git", "host's name"),
        ("git@-oProxyCommand=id:x", "--from"),
        ("git@localhost:-x", "no address by ssh"),
    ],
)
def test_an_odd_address_is_refused_before_anything_is_asked(source: str, words: str) -> None:
    said = refused(source)
    assert said.startswith("--from: ")
    assert words in said
    assert "hunter2" not in said


# ---- rows


def test_a_project_that_was_made_in_the_browser_gets_its_repository(https: HttpsGit) -> None:
    """Its page says to import one; the import must then not make a second, or refuse the name."""
    waiting = make_project(django_organization(), name="Waiting", slug="waiting")
    run(name="Waiting", source=https.url("app.git"))
    assert Trunk.objects.get().project == waiting
    with pytest.raises(CommandError, match=r"^--slug: "):
        run(name="Waiting", source=https.url("app.git"))


def test_a_failed_import_leaves_a_waiting_project_as_it_was(https: HttpsGit) -> None:
    make_project(django_organization(), name="Waiting", slug="waiting")
    with pytest.raises(CommandError):
        run(name="Waiting", source=https.url("empty.git"))
    assert Project.objects.filter(slug="waiting", trunk__isnull=True).exists()


def make_odd(place: Path, tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    make_source(place, {"AGENTS.md": b"1\n", "agents.md": b"2\n", "big.bin": pointer})
    git = ["git", "-C", str(place)]
    environment = {
        "PATH": os.environ["PATH"], "GIT_INDEX_FILE": str(tmp_path / "index"), "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@x", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@x",
    }  # fmt: skip

    def call(*arguments: str) -> str:
        return subprocess.run(
            [*git, *arguments], env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    call("read-tree", "main")
    call("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    commit = call("commit-tree", call("write-tree"), "-p", "main", "-m", "odd")
    call("update-ref", "refs/heads/main", commit)


def check_odd(err: str) -> None:
    assert re.search(r"submodules stay empty.*vendor/lib", err)
    assert re.search(r"LFS.*big\.bin", err)
    assert re.search(r"differ only by case.*agents\.md", err)


def access_of(name: str, password: str) -> Access:
    return Access(name, password)


def django_organization() -> Organization:
    return Organization.objects.get(slug="acme")


def children() -> list[str]:
    """Processes of git or ssh that this test has started and that still live."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
            if tempfile.gettempdir().encode() in place.with_name("environ").read_bytes():
                found.append(b" ".join(words).decode("utf-8", "replace"))
        except OSError:
            continue
    return found
