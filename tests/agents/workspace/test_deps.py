"""Prepared dependencies: what is asked for, what is there, and the preflight that says so before money is spent."""

# ruff: noqa: E501  # tables of cases

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agents.tier import SandboxTier
from agents.workspace import deps
from agents.workspace.bubblewrap import Box, Mount
from agents.workspace.checkout import Workspace, open_checkout
from agents.workspace.git import Store
from agents.workspace.lockfiles import NODE, PYTHON, is_lock_name, wanted_of, why_not_prepared
from agents.workspace.preflight import preflight
from agents.workspace.sandbox import CommandOutput, give, probe, run
from agents.workspace.toolchain import toolchain
from tests.agents.workspace.helpers import AT, commit_files

PYPROJECT = b"""
[project]
name = "x"
dependencies = ["django>=5", "evil @ https://example.org/evil.whl"]
[project.optional-dependencies]
test = ["pytest-django"]
docs = ["sphinx"]
[dependency-groups]
dev = ["ruff", {include-group = "test"}]
"""
UV_LOCK = b"""
[[package]]
name = "django"
version = "5.2.1"
source = { registry = "somewhere" }
[[package]]
name = "twice"
version = "1"
source = { registry = "somewhere" }
[[package]]
name = "twice"
version = "2"
source = { registry = "somewhere" }
[[package]]
name = "x"
version = "0"
source = { editable = "." }
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [("requirements.txt", True), ("requirements-dev.txt", True), ("pyproject.toml", True), ("uv.lock", True), ("package.json", True),
     ("package-lock.json", True), ("bun.lock", True), ("setup.py", False), ("requirements.txt.bak", False), ("../requirements.txt", False)],
)  # fmt: skip
def test_which_files_decide(name: str, says: bool) -> None:
    assert is_lock_name(name) is says


def test_a_project_asks_for_its_own_and_its_tests_packages() -> None:
    (wanted,) = wanted_of({"pyproject.toml": PYPROJECT, "uv.lock": UV_LOCK}, salt="s")
    assert wanted.kind == PYTHON
    assert wanted.requirements == ("django>=5", "pytest-django", "ruff", "pytest")
    assert wanted.constraints == ("django==5.2.1",)


def test_the_key_follows_the_lock_file_and_the_machine() -> None:
    keys = {
        wanted_of({"requirements.txt": data}, salt=salt)[0].key
        for data in (b"six\n", b"seven\n")
        for salt in ("one", "other")
    }
    assert len(keys) == 4
    again = wanted_of({"requirements.txt": b"six\n", "README": b"x"}, salt="one")
    assert again[0].key in keys


def test_node_needs_a_lock_file() -> None:
    assert wanted_of({"package.json": b"{}"}, salt="s") == ()
    (wanted,) = wanted_of({"package.json": b"{}", "bun.lock": b""}, salt="s")
    assert (wanted.kind, wanted.installer) == (NODE, "bun")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[project", b"project = 5", b"[project]\ndependencies = 5\n", b"a=" + b"[" * 5_000],
)
def test_a_broken_project_file_asks_for_nothing(data: bytes) -> None:
    assert wanted_of({"pyproject.toml": data}, salt="s") == ()


@pytest.mark.bwrap
def test_a_prepared_environment_is_on_the_path_and_read_only(store: Store, main: str) -> None:
    """Made by hand here, as the networked step leaves it: no test may need a network."""
    start = commit_files(store, {b"requirements.txt": b"shown==1\n"}, on=main, at=AT + 1)
    (state,) = deps.prepared_at(store, start).states
    assert state.state == "missing"
    place = deps.deps_directory() / state.key
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "shown").write_text(
        "#!/bin/sh\necho from the prepared environment\necho x > /deps/bin/shown\n"
    )
    (place / "bin" / "shown").chmod(0o755)
    with open_checkout(store, start) as checkout:
        output = checkout.run(["shown"])
        assert output.text.startswith("from the prepared environment\n")
        assert "Read-only" in output.text
    with Workspace(store, start, workspace_id=str(uuid4())) as workspace:
        answer = workspace.run("pip install -r requirements.txt")
        assert isinstance(answer, CommandOutput)
        assert answer.passed
        assert "already installed" in answer.text


@pytest.mark.bwrap
@pytest.mark.skipif(probe() not in (SandboxTier.A, SandboxTier.B), reason="needs namespaces")
def test_an_empty_list_is_prepared_without_a_package(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole step with nothing to fetch: built where it is later seen, once, and then found."""
    monkeypatch.setattr("agents.workspace.lockfiles.ALWAYS_IN_PYTHON", ())
    project = b'[project]\nname = "mine"\nversion = "1.2"\n[project.entry-points.plugins]\na = "mine:a"\n'
    files = {b"requirements.txt": b"# nothing\n", b"pyproject.toml": project, b"src/mine.py": b"a = 1\n"}
    start = commit_files(store, files)
    (state,) = deps.prepare(store, start).states
    assert (state.state, state.text) == ("ready", "")
    with open_checkout(store, start) as checkout:
        assert checkout.run(["python3", "-c", "import sys; print(sys.prefix)"]).text == "/deps\n"
        script = "import mine; from importlib.metadata import *; print(version('mine'), len(entry_points(group='plugins')))"
        assert checkout.run(["python3", "-c", script]).text == "1.2 1\n"


def test_a_released_copy_of_the_project_itself_is_taken_out_again() -> None:
    """Seen with Pygments: pytest wants it, and its own tests then ran against the release."""
    (wanted,) = wanted_of(
        {"pyproject.toml": b'[project]\nname = "Pygments"\ndependencies = ["a"]\n'}, salt=""
    )
    script = deps._python_script(wanted)
    assert script.index(" pip install ") < script.index(" pip uninstall --quiet --yes Pygments\n")
    (nameless,) = wanted_of({"requirements.txt": b"a\n"}, salt="")
    assert "uninstall" not in deps._python_script(nameless)


@pytest.mark.bwrap
@pytest.mark.skipif(probe() not in (SandboxTier.A, SandboxTier.B), reason="needs namespaces")
def test_a_step_that_fails_says_why_and_may_be_tried_again(store: Store) -> None:
    start = commit_files(store, {b"requirements.txt": b"-r missing.txt\n"})
    (state,) = deps.prepare(store, start).states
    assert state.state == "failed"
    assert "missing.txt" in state.text
    noted = json.loads((deps.deps_directory() / f"{state.key}.json").read_text())
    assert noted["state"] == "failed"
    assert not list(deps.deps_directory().glob("*.building"))


@pytest.mark.bwrap
def test_a_preflight_says_what_runs_and_what_is_missing(store: Store, main: str) -> None:
    found = preflight(
        store,
        main,
        [
            "python3 -m unittest discover -s tests",
            ["no-such-program", "-x"],
            "python3 -c 'raise SystemExit(3)'",
            "'open",
        ],
    )
    assert [check.exit_code for check in found.checks] == [0, 127, 3]
    assert found.missing == ("no-such-program",)
    assert any("exit code 3" in problem for problem in found.problems)
    assert any("cannot be read" in problem for problem in found.problems)
    assert found.files == 9
    assert preflight(store, main, ["python3 -m unittest discover -s tests"]).problems == ()


@pytest.mark.bwrap
def test_a_preflight_does_not_keep_its_worker_for_ever(
    store: Store, main: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.workspace.preflight.TOTAL_SECONDS_MAX", 0)
    found = preflight(store, main, ["ls", "ls src"])
    assert found.checks == ()
    assert found.problems == ("2 commands were not run: 0 seconds are over",)


@pytest.mark.bwrap
def test_python_is_found_where_the_machine_has_none_of_its_own(tmp_path: Path) -> None:
    """The worker's own interpreter is then mounted where it lies, though only root may reach it there."""
    tools = toolchain(("/nowhere",))
    prefix = tools.trees[-1]
    assert tools.path[0] == str(prefix / "bin")
    (tmp_path / "tree").mkdir()
    give(tmp_path / "tree")
    box = Box(directory=tmp_path / "tree", mounts=(Mount(prefix, str(prefix)),), path=(tools.path[0],))
    output = run(box, ["python3", "-c", "import sys, unittest; print(sys.prefix)"])
    assert output.text == f"{prefix}\n"


def test_the_step_gets_the_settings_and_nothing_of_the_workers_environment(
    with_plane: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_INDEX_URL", "HTTPS_PROXY", "NPM_CONFIG_REGISTRY", "PIP_EXTRA_INDEX_URL", "AWS_SECRET"):
        monkeypatch.setenv(name, "leaked")
    assert "leaked" not in deps.registries(trusts=True).values()
    with_plane(
        python_index="https://me:secret-word@index.example.org/simple",
        node_registry="https://registry.example.org",
        dependencies_proxy="http://proxy.example.org:3128",
    )
    found = deps.registries(trusts=False)
    assert found["PIP_INDEX_URL"].endswith("index.example.org/simple")
    assert found["NPM_CONFIG_REGISTRY"] == "https://registry.example.org"
    assert found["https_proxy"] == found["HTTP_PROXY"] == "http://proxy.example.org:3128"
    assert "PIP_CERT" not in found
    said = deps.without_secrets("Looking in https://me:secret-word@index.example.org/simple; secret-word")
    assert said == "Looking in https://***@index.example.org/simple; ***"


def test_lists_with_hashes_are_installed_alone_and_first() -> None:
    """pip wants hashes for everything in a command that has one: the test runner has none."""
    files = {"requirements.txt": b"a==1 --hash=sha256:00\n", "requirements-dev.txt": b"b\n"}
    script = deps._python_script(wanted_of(files, salt="")[0])
    first, second = [line for line in script.splitlines() if " install " in line]
    assert "requirements.txt" in first
    assert "requirements-dev.txt" not in first
    assert '"$@"' not in first
    assert "requirements-dev.txt" in second
    assert '"$@"' in second


@pytest.mark.parametrize(
    ("files", "tops", "says"),
    [
        ({"package.json": b'{"devDependencies": {"a": "1"}}'}, set(), "no lock file"),
        ({"package.json": b'{"devDependencies": {"a": "1"}}', "bun.lock": b""}, set(), ""),
        ({"package.json": b'{"scripts": {}}'}, set(), ""),
        ({"package.json": b"[]"}, set(), ""),
        ({"package.json": b"\xff"}, set(), ""),
        ({"go.mod": b"module a\nrequire b v1\n"}, set(), "go mod vendor"),
        ({"go.mod": b"module a\nrequire (\n b v1\n)\n"}, {"vendor"}, ""),
        ({"go.mod": b"module a\n\ngo 1.22\n"}, set(), ""),
        ({"Cargo.lock": b'source = "registry+https://x"\n'}, set(), "cargo vendor"),
        ({"Cargo.lock": b'source = "registry+https://x"\n'}, {"vendor"}, ""),
        ({"Cargo.lock": b'name = "mine"\n'}, set(), ""),
    ],
)
def test_what_no_step_installs_is_said(files: dict[str, bytes], tops: set[str], says: str) -> None:
    found = why_not_prepared(files, tops)
    assert (says in found[0]) if says else (found == [])
