"""The workspace of a run: opens late, publishes exactly what changed, discards builds, leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agents.errors import AgentError, SandboxLimit, StopRun
from agents.tier import SandboxTier
from agents.workspace.allowlist import Refusal
from agents.workspace.checkout import (
    NothingChanged,
    PublishRefused,
    WorkPublished,
    Workspace,
    close_leaked,
    open_checkout,
    workspaces_directory,
)
from agents.workspace.git import Store
from agents.workspace.paths import Root
from agents.workspace.publishing import PublishRules, rules_of
from agents.workspace.sandbox import CommandOutput, probe
from routing.words import EndReason
from tests.agents.workspace.helpers import AT, commit_files


def needs_bwrap(test: Any) -> Any:
    """Tier C mounts nothing, so what these tests look at is not there."""
    namespaces = probe() in (SandboxTier.A, SandboxTier.B)
    return pytest.mark.bwrap(pytest.mark.skipif(not namespaces, reason="this host blocks namespaces")(test))


def publish(workspace: Workspace, name: str = "c1") -> WorkPublished | NothingChanged | PublishRefused:
    return workspace.publish(name, message="Work\n", at=AT + 5)


def ran(workspace: Workspace, command: str) -> CommandOutput:
    output = workspace.run(command)
    assert isinstance(output, CommandOutput), output
    return output


def tree_of(workspace: Workspace) -> Path:
    (top,) = (each for each in workspaces_directory().iterdir() if each.name != "slots")
    return top / "tree"


def test_nothing_is_opened_before_the_first_use(workspace: Workspace) -> None:
    """Row 38."""
    assert not workspace.is_open
    assert list(workspaces_directory().iterdir()) == []
    assert workspace.files.read("a.txt").data.startswith(b"0\n")
    assert workspace.is_open


def test_work_is_published_as_one_commit_on_the_start(store: Store, main: str, workspace: Workspace) -> None:
    """Rows 36, 216, 217."""
    workspace.files.write("src/app.py", b"print('bye')\n")
    workspace.files.write("new/deep/file.txt", b"new\n")
    workspace.files.delete("run.sh")
    done = publish(workspace)
    assert isinstance(done, WorkPublished)
    assert done.own_files == ("new/deep/file.txt", "run.sh", "src/app.py")
    assert store.rev("refs/changesets/c1") == done.commit
    assert store.rev(f"{done.commit}~1") == main
    assert store.read(done.commit, "src/app.py") == b"print('bye')\n"


def test_the_same_work_is_the_same_commit_again(store: Store, main: str) -> None:
    """Fixed author, date and message: ids repeat."""
    ids = set()
    for _ in range(2):
        with Workspace(store, main, workspace_id=str(uuid4())) as workspace:
            workspace.files.write("x.txt", b"x\n")
            done = publish(workspace)
            assert isinstance(done, WorkPublished)
            ids.add(done.commit)
    assert len(ids) == 1


def test_unchanged_work_is_told_apart(workspace: Workspace) -> None:
    assert publish(workspace) == NothingChanged()
    workspace.files.write("x.txt", b"x\n")
    workspace.files.delete("x.txt")
    assert publish(workspace) == NothingChanged()


def test_a_written_file_is_published_though_ignored(workspace: Workspace) -> None:
    """What the agent wrote itself is work; what only a build left in an ignored place is not."""
    workspace.files.write("dist/kept.js", b"1\n")
    (tree_of(workspace) / "dist" / "junk.js").write_text("junk")
    done = publish(workspace)
    assert isinstance(done, WorkPublished)
    assert done.own_files == ("dist/kept.js",)


def test_what_tools_leave_beside_the_code_is_no_work(workspace: Workspace) -> None:
    workspace.files.write("src/new.py", b"1\n")
    for name in (".coverage", ".hypothesis/x", "src/__pycache__/a.pyc", "node_modules/x/y.js"):
        place = tree_of(workspace) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("junk")
    done = publish(workspace)
    assert isinstance(done, WorkPublished)
    assert done.own_files == ("src/new.py",)


def test_links_modes_and_odd_names_come_and_go_whole(store: Store, workspace: Workspace) -> None:
    """C22, C69: a link inside is readable; a name that is no text is written back as it was."""
    assert workspace.files.read("ln").resolved == "a.txt"
    assert workspace.files.read("caf\\xe9.txt").data == b"latin\n"
    workspace.files.write("caf\\xe9.txt", b"changed\n")
    workspace.files.write("run.sh", b"#!/bin/sh\necho 1\n")
    done = publish(workspace)
    assert isinstance(done, WorkPublished)
    assert done.own_files == ("caf\\xe9.txt", "run.sh")
    modes = {file.path: file.mode for file in store.tree_files(done.commit)}
    assert modes["run.sh"] == "100755"
    assert modes["ln"] == "120000"


PRIVATE = b"-----BEGIN RSA PRIVATE KEY-----\n" + b"A" * 64 + b"\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("secret", PRIVATE),
        ("secret", b"key = 'AKIA" + b"ABCDEFGHIJKLMNOP'\n"),
        ("secret", b"token: ghp_" + b"a" * 36 + b"\n"),
        ("secret", b"sk-ant-" + b"api03-" + b"a" * 40 + b"\n"),
        ("secret", b"AIza" + b"a" * 35 + b"\n"),
        ("conflict_markers", b"<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n"),
        ("large_file", b"x" * 2_000),
    ],
)  # fmt: skip
def test_what_nobody_wants_in_git_is_refused(store: Store, main: str, kind: str, data: bytes) -> None:
    """C74; secrets and large files, by limits that a project may set."""
    rules = PublishRules(file_bytes_max=1_000)
    with Workspace(store, main, workspace_id=str(uuid4()), rules=rules) as workspace:
        workspace.files.write("bad", data)
        refused = publish(workspace)
        assert isinstance(refused, PublishRefused)
        assert [problem.kind for problem in refused.problems] == [kind]
        assert "bad" in str(refused)
        assert store.find("refs/changesets/c1") is None
        workspace.files.write("bad", b"fine\n")
        assert isinstance(publish(workspace), WorkPublished)


def test_a_project_adds_patterns_and_names_places_where_nobody_looks(store: Store, main: str) -> None:
    """What was there before is not this run's doing; an exception is for secrets alone."""
    overrides = {
        "file_kib_max": 1,
        "secret_patterns": [{"name": "an ACME key", "pattern": "^key = ACME-[A-Z0-9]{8}$"}],
        "secret_exceptions": ["tests/fixtures/*"],
    }
    start = commit_files(store, {b"old.cfg": b"key = ACME-AAAAAAAA\nb\n"}, on=main, at=AT + 1)
    with Workspace(store, start, workspace_id=str(uuid4()), rules=rules_of(overrides)) as workspace:
        workspace.files.write("new.cfg", b"a = 1\nkey = ACME-ABCD1234\nb = 2\n")
        workspace.files.write("tests/fixtures/deep/k.cfg", b"key = ACME-ABCD1234\n" + PRIVATE)
        workspace.files.write("tests/fixtures/large", b"x" * 1_025)
        workspace.files.write("old.cfg", b"key = ACME-AAAAAAAA\nc\n")
        workspace.files.write("near.cfg", b"my key = ACME-ABCD1234\n")
        refused = publish(workspace)
    assert isinstance(refused, PublishRefused)
    assert [(problem.path, problem.kind) for problem in refused.problems] == [
        ("new.cfg", "secret"),
        ("tests/fixtures/large", "large_file"),
    ]
    assert "an ACME key" in str(refused)


def test_a_pattern_and_a_file_made_for_it_hang_nobody(store: Store, main: str) -> None:
    """`(a+)+$` takes ages in an engine that backtracks."""
    rules = rules_of({"secret_patterns": [{"name": "x", "pattern": "(a+)+$"}]})
    with Workspace(store, main, workspace_id=str(uuid4()), rules=rules) as workspace:
        workspace.files.write("bad", b"a" * 1_000_000 + b"b\n")
        began = time.monotonic()
        assert isinstance(publish(workspace), WorkPublished)
        assert time.monotonic() - began < 5


def test_the_rules_of_a_project_that_says_nothing_are_the_defaults() -> None:
    assert rules_of({}) == PublishRules()


@pytest.mark.parametrize(
    "data",
    [
        b"Title\n=======\ntext\n",
        b"AKIAIOSFODNN7EXAMPLE\n",
        b"a <<<<<<< b\n",
        b"-----BEGIN PRIVATE KEY-----\n",
    ],
)
def test_what_only_looks_bad_is_published(workspace: Workspace, data: bytes) -> None:
    """C74: `=======` alone is Markdown; an example key is no key."""
    workspace.files.write("fine.md", data)
    assert isinstance(publish(workspace), WorkPublished)


def test_a_secret_that_was_there_before_does_not_stop_an_edit(store: Store) -> None:
    start = commit_files(store, {b"fixture.py": PRIVATE + b"a\n"})
    with Workspace(store, start, workspace_id=str(uuid4())) as workspace:
        workspace.files.write("fixture.py", PRIVATE + b"b\n")
        assert isinstance(publish(workspace), WorkPublished)


def test_a_link_that_leads_out_is_not_published(workspace: Workspace) -> None:
    """C20."""
    _ = workspace.files
    (tree_of(workspace) / "evil").symlink_to("../../../etc/passwd")
    refused = publish(workspace)
    assert isinstance(refused, PublishRefused)
    assert refused.problems[0].kind == "outside_link"


def test_an_lfs_pointer_stays_a_pointer(store: Store) -> None:
    """C76: no filter runs; the pointer is untouched and not in the work."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
    start = commit_files(store, {b"big.bin": pointer, b".gitattributes": b"*.bin filter=lfs -text\n"})
    with Workspace(store, start, workspace_id=str(uuid4())) as workspace:
        assert workspace.files.read("big.bin").data == pointer
        assert publish(workspace) == NothingChanged()
        workspace.files.write("big.bin", b"content")
        refused = publish(workspace)
        assert isinstance(refused, PublishRefused)
        assert refused.problems[0].kind == "lfs"


def test_a_submodule_passes_through_unchanged(store: Store, main: str) -> None:
    """C75."""
    start = commit_files(store, {b"vendor/lib": ("160000", b"1" * 40)}, on=main, at=AT + 1)
    with Workspace(store, start, workspace_id=str(uuid4())) as workspace:
        workspace.files.write("x", b"1")
        done = publish(workspace)
        assert isinstance(done, WorkPublished)
        assert done.own_files == ("x",)
        assert any(file.mode == "160000" for file in store.tree_files(done.commit))


def test_a_repository_inside_runs_nothing_and_its_files_are_work(
    store: Store, workspace: Workspace, tmp_path: Path
) -> None:
    """Nested and top-level `.git` with every configuration that starts a program; with and without commits."""
    _ = workspace.files
    tree, mark = tree_of(workspace), tmp_path / "mark"
    for name in ("top", "with", "without"):
        place = tree if name == "top" else tree / name
        subprocess.run(["git", "init", "-q", place], check=True, env={"PATH": os.environ["PATH"]})
        with (place / ".git" / "config").open("a") as config:
            config.write(f'[core]\n fsmonitor = "touch {mark}; false"\n hooksPath = {tmp_path}\n')
            config.write(f'[filter "x"]\n clean = touch {mark}\n smudge = touch {mark}\n')
            config.write(f"[diff]\n external = touch {mark}\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@x", "-c", "core.fsmonitor=false"]
    subprocess.run(
        ["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tree / "with", check=True
    )
    mark.unlink(missing_ok=True)
    (tree / ".gitattributes").write_text("* filter=x diff=x\n")
    for name in ("with", "without"):
        (tree / name / "f.py").write_text("1\n")
    done = publish(workspace)
    assert isinstance(done, WorkPublished)
    assert done.own_files == (".gitattributes", "with/f.py", "without/f.py")
    assert not mark.exists()


def test_the_fifth_open_sandbox_of_a_change_is_refused(store: Store, main: str) -> None:
    """Row 56: nothing is opened, and the call works once another has closed."""
    change = uuid4()
    spaces = [Workspace(store, main, workspace_id=str(uuid4()), change_id=change) for _ in range(5)]
    try:
        for each in spaces[:4]:
            _ = each.files
        with pytest.raises(SandboxLimit, match="sandbox_limit"):
            _ = spaces[4].files
        assert not spaces[4].is_open
        spaces[0].close()
        assert spaces[4].files.read("a.txt").whole
        other = Workspace(store, main, workspace_id=str(uuid4()), change_id=uuid4())
        with other:
            assert other.files.read("a.txt").whole
    finally:
        for each in spaces:
            each.close()


def test_closing_leaves_nothing_and_may_be_repeated(workspace: Workspace) -> None:
    workspace.files.write("x", b"1")
    deep = tree_of(workspace)
    for _ in range(1_200):
        deep = deep / "d"
    subprocess.run(["mkdir", "-p", "d/" * 1_200], cwd=tree_of(workspace), check=True)
    (tree_of(workspace) / "src").chmod(0)
    workspace.close()
    workspace.close()
    assert [each.name for each in workspaces_directory().iterdir() if each.name != "slots"] == []
    with pytest.raises(AgentError):
        _ = workspace.files


def test_two_workers_never_share_a_workspace(store: Store, main: str) -> None:
    """C78."""
    name = str(uuid4())
    with Workspace(store, main, workspace_id=name) as one, Workspace(store, main, workspace_id=name) as two:
        _ = one.files
        with pytest.raises(AgentError, match="another worker"):
            _ = two.files


def test_what_a_killed_worker_left_is_swept_and_its_place_is_free(
    store: Store, main: str, data_dir: Path
) -> None:
    change, name = uuid4(), str(uuid4())
    script = textwrap.dedent(f"""
        import sys, time, django
        from pathlib import Path
        django.setup()
        from dataclasses import replace
        from django.conf import settings
        settings.PLANE = replace(settings.PLANE, data_dir=Path({str(data_dir)!r}))
        from agents.workspace.checkout import Workspace
        from agents.workspace.git import Store
        store = Store(Path({str(store.directory)!r}))
        def space(n):
            return Workspace(store, {main!r}, workspace_id={name!r} + str(n), change_id={str(change)!r})
        spaces = [space(n) for n in range(4)]
        for space in spaces:
            space.files
        print("open", flush=True)
        time.sleep(60)
    """)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": ".",
        "REMIT_DATA_DIR": str(data_dir / "child"),
    }
    worker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"open\n"
    assert close_leaked() == 0
    with Workspace(store, main, workspace_id=str(uuid4()), change_id=change) as fifth:
        with pytest.raises(SandboxLimit):
            _ = fifth.files
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
        assert fifth.files.read("a.txt").whole
        assert close_leaked() == 4
        assert fifth.files.read("a.txt").whole


@needs_bwrap
def test_a_command_runs_in_the_tree_and_sees_edits(workspace: Workspace) -> None:
    workspace.files.write(
        "tests/test_new.py",
        b"import unittest\n\nclass N(unittest.TestCase):\n    def test(self): print('seen')\n",
    )
    output = ran(workspace, "python3 -m unittest discover -s tests")
    assert output.passed, output.text
    assert "seen" in output.text
    assert ran(workspace, "make hello").text == "hello from make\n"
    assert ran(workspace, "ls src").text == "app.py\n"


@needs_bwrap
@pytest.mark.parametrize("command", ["make build", "npm run build"])
def test_what_a_build_wrote_is_discarded(workspace: Workspace, command: str) -> None:
    """Row 47: the result says pass or fail, the ChangeSet has none of it, and the agent's own work stays."""
    workspace.files.write("mine.txt", b"mine\n")
    workspace.files.write("dist/mine.js", b"mine\n")
    if command.startswith("npm") and subprocess.run(["sh", "-c", "command -v npm"], check=False).returncode:
        pytest.skip("npm is not installed here")
    output = ran(workspace, command)
    assert output.passed, output.text
    assert not (tree_of(workspace) / "new").exists()
    assert not (tree_of(workspace) / "dist" / "out").exists()
    assert workspace.files.read("a.txt").data.endswith(b"39\n")
    assert workspace.files.read("dist/mine.js").data == b"mine\n"
    workspace.files.write("mine.txt", b"still writable\n")
    done = publish(workspace)
    assert isinstance(done, WorkPublished)
    assert done.own_files == ("dist/mine.js", "mine.txt")


@needs_bwrap
def test_git_inside_reads_history_and_can_write_nothing(
    store: Store, main: str, workspace: Workspace
) -> None:
    """C37: no hook, config or ref of the store is in reach."""
    workspace.files.write("a.txt", b"changed\n")
    assert " M a.txt" in ran(workspace, "git status --short").text
    assert "+changed" in ran(workspace, "git diff").text
    assert ran(workspace, "git log --oneline").text.startswith(main[:7])
    with open_checkout(store, main) as checkout:
        for script in (
            "git commit -qam x", "git branch x", "git config a.b c", "git update-ref refs/heads/x HEAD", "git gc",
            "echo x > .git", "rm -f .git", "mv .git y", "echo x > /git/config", "echo x > /git/hooks/post-update",
            "echo x > /gitdir/index", "mkdir -p /git/refs/heads/y",
        ):  # fmt: skip
            output = checkout.run(["sh", "-c", script])
            assert output.exit_code != 0, script
    assert store.commit_of_main() == main
    assert publish(workspace) == WorkPublished(store.rev("refs/changesets/c1"), ("a.txt",))


@needs_bwrap
def test_a_cancelled_run_kills_its_command(workspace: Workspace) -> None:
    def beat() -> None:
        raise StopRun(EndReason.CANCELLED)

    workspace.files.write("tests/test_slow.py", b"import time\ntime.sleep(60)\n")
    started = time.monotonic()
    with pytest.raises(StopRun):
        workspace.run("python3 -m unittest discover -s tests", beat=beat)
    assert time.monotonic() - started < 10
    assert workspace.files.read("a.txt").whole


@needs_bwrap
def test_file_tools_wait_while_a_command_runs(workspace: Workspace) -> None:
    """Never at the same time on one workspace: that is what makes host git race-free."""
    files: Root = workspace.files
    workspace.files.write("tests/test_slow.py", b"import time\nprint(1)\ntime.sleep(1)\n")
    done: list[float] = []

    def test_slowly() -> None:
        workspace.run("python3 -m unittest discover -s tests")
        done.append(time.monotonic())

    command = threading.Thread(target=test_slowly)
    command.start()
    time.sleep(0.3)
    files.write("during.txt", b"1")
    written = time.monotonic()
    command.join()
    assert done[0] <= written


def test_an_unknown_command_is_a_refusal_and_nothing_runs(workspace: Workspace) -> None:
    refusal = workspace.run("rm -rf .")
    assert isinstance(refusal, Refusal)
    assert "Allowed:" in str(refusal)


def test_an_install_is_answered_by_the_prepared_step(store: Store, main: str, workspace: Workspace) -> None:
    output = ran(workspace, "pip install requests")
    assert output.reason == "prepared"
    assert output.exit_code == 0
    start = commit_files(store, {b"requirements.txt": b"six==1.17.0\n"}, on=main, at=AT + 1)
    with Workspace(store, start, workspace_id=str(uuid4())) as other:
        missing = ran(other, "pip install -r requirements.txt")
        assert missing.exit_code == 1
        assert "not prepared yet" in missing.text
        other.files.write("requirements.txt", b"six==1.16.0\n")
        assert "changed in this workspace" in ran(other, "pip install -r requirements.txt").text


ATTRIBUTES = [
    b"* text", b"* text=auto", b"* text eol=crlf", b"*.txt eol=crlf", b"*.txt ident", b"* filter=lfs", b"* merge=union",
    b"*.txt working-tree-encoding=UTF-16LE", b"*.txt working-tree-encoding=NOPE",
]  # fmt: skip


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_no_attribute_of_a_repository_changes_a_byte(store: Store, attributes: bytes) -> None:
    """C01, C76: what is on disk is the blob, untouched files are no work, and what is written is what is published."""
    files = {b"crlf.txt": b"a\r\nb\r\n$Id$\r\n", b"lf.txt": b"a\nb\n$Id$\n", b"odd.txt": b"\xff\xfe\x00"}
    start = commit_files(
        store, {**files, b".gitattributes": attributes + b"\n", b"Makefile": b"build:\n\ttrue\n"}
    )
    with Workspace(store, start, workspace_id=str(uuid4())) as workspace:
        assert {name: workspace.files.read(name.decode()).data for name in files} == files
        assert isinstance(workspace.run("make build"), CommandOutput)
        assert publish(workspace) == NothingChanged()
        workspace.files.write("new.txt", b"x\r\ny\n")
        done = publish(workspace)
        assert isinstance(done, WorkPublished)
        assert done.own_files == ("new.txt",)
        assert store.read(done.commit, "new.txt") == b"x\r\ny\n"


LEFT_BEHIND = {
    "another spelling of .git": ("mkdir -p .GIT s/.Git; echo '[core]' > .GIT/config; echo x > s/.Git/x", "published"),
    "a short name of .git": ("echo x > git~1", "published"),
    "a .git with a space": ("echo x > '.git '", "published"),
    "a .git with what nobody sees": ("printf x > \"$(printf '.g\\342\\200\\214it')\"", "published"),
    "a link for .gitmodules": ("ln -s a.txt .gitmodules", "git does not take"),
    "a pipe": ("mkfifo pipe", "published"),
    "a pipe in place of the work": ("rm -rf own.txt; mkfifo own.txt; echo 1 > two.txt", "published"),
    "a directory without rights": ("mkdir q; echo x > q/f; chmod 0 q", "published"),
    "a thousand directories deep": ("for i in $(seq 900); do mkdir ddddddd; cd ddddddd; done; echo > f", "published"),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_BEHIND)
def test_what_a_program_leaves_behind_does_not_lose_the_work(store: Store, main: str, what: str) -> None:
    """A test may create anything. The work is published, or the agent is told what stands in the way."""
    script, expected = LEFT_BEHIND[what]
    with Workspace(store, main, workspace_id=str(uuid4())) as workspace:
        workspace.files.write("own.txt", b"own\n")
        workspace._checkout.run(["sh", "-c", script])
        if expected == "published":
            assert isinstance(workspace.run("make build"), CommandOutput)
        done = publish(workspace)
        if expected == "published":
            assert isinstance(done, WorkPublished), done
            assert set(done.own_files) & {"own.txt", "two.txt"}
            assert not any("git" in name.lower() for name in done.own_files)
        else:
            assert isinstance(done, PublishRefused)
            assert expected in str(done)
