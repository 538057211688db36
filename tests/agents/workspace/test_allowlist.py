"""Commands: the known forms pass, rewritten; every way round them is refused with the allowed form."""

# ruff: noqa: E501  # tables of commands

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.workspace.allowlist import (
    FORMS,
    Refusal,
    asks_first,
    exact_patterns,
    read_command,
    scripts_of,
    targets_of,
    why_bad_pattern,
    why_refused,
)
from agents.workspace.grammar import Allowed, CommandContext

CONTEXT = CommandContext(
    scripts=scripts_of(b'{"scripts":{"test":"node t.js","build":"x","lint:css":"y","-x":"z"}}'),
    targets=targets_of(b"all: test\ntest lint:\n\tpytest\nX := 1\n.PHONY: all\nbuild::\n\techo\n"),
    makefile="Makefile",
    extra=(("npm", "run", "e2e"), ("bash", "scripts/check.sh", "{path}"), ("tool", "{word}", "{number}")),
)

KNOWN = (
    "pytest|pytest -q tests/test_a.py::T::test_x[1-a] -x|pytest -k 'a and not b' --maxfail=2 --tb=short|pytest tests/tést.py|"
    "python -m pytest -n 2 tests|python3 -m pytest -vv|uv run pytest -q|uv run --frozen ruff check .|ruff check . --fix|"
    "ruff format --check src|mypy src|mypy -p pkg|npm test|npm run build|npm run lint:css|npm test -- tests/a.test.js|"
    "npm ci|npm install|uv sync|pip install -r requirements.txt|python -m pip install -e .|pip install 'django>=5'|"
    "bun install|bun install --frozen-lockfile|bun test a/b.test.ts|bun run build|bun run typecheck|bun run bench|"
    "bun run contract|bun run test|bunx tsc --noEmit|npx eslint --fix src|make test|make build|make|go test ./...|"
    "go test -run TestX -count=1 ./pkg/...|go vet ./...|go build ./...|cargo test|cargo test -p core my_test -- --nocapture|"
    "cargo fmt --check|git status|git status --short|git diff|git diff --stat HEAD~1 -- src/a.py|git diff main HEAD|"
    "git log --oneline -5|git log -n 3 -- a.py|git log -p -S foo HEAD|ls|ls -la src|python manage.py test app.tests|"
    "python -m unittest|python3 -m unittest -v tests.test_a|python3 -m unittest tests/test_a.py|"
    "python3 -m unittest discover -s tests -p 'test_*.py'|npm run e2e|bash scripts/check.sh src|tool abc 12"
)


@pytest.mark.parametrize("command", KNOWN.split("|"))
def test_a_known_form_is_allowed(command: str) -> None:
    """Row 44 and the issue's list."""
    verdict = read_command(command, CONTEXT)
    assert isinstance(verdict, Allowed), verdict
    assert "/" not in verdict.argv[0]


SHELL = [
    "", "   ", "sh -c id", "bash x.sh", "env pytest", "FOO=1 pytest", "CI=true git commit", "NODE_OPTIONS=--require=/x npm test",
    "GIT_CONFIG_COUNT=1 git status", "X=`touch${IFS}/p` npm test", "./pytest", "/usr/bin/pytest", "pytest; id", "pytest && id",
    "pytest | tee x", "pytest > x", "pytest 2>&1", "pytest $(id)", "pytest `id`", "pytest\nid", "git status\nrm -rf x",
    "git status\rid", "pytest $HOME", "pytest *.py", "pytest ~/x", "pytest {a,b}", "$'r\\155' x", "git statusx", "git status;x",
    "git status&&x", "pytest 'a\0b'", "pytest –q", "pytest \u200b-q", "pytest \uff0dq", "PYTEST -q", "pyte\u0455t", "ｐｙｔｅｓｔ",
    "pytest " + "a " * 70, "pytest " + "a" * 1_001, "pytest 'unclosed", "cat x", "rm -rf .", "find . -exec id", "xargs id", "sudo pytest",
    "pytest -k 'é'", "pytest -m é", "-q", "#pytest",
]  # fmt: skip
PYTHON = [
    "python x.py", "python -c 1", "python -m pip uninstall x", "python -m http.server", "python3 -mhttp.server pytest", "python -mpytest",
    "python -I -m pytest", "python -m unittest -p x", "python -m unittest discover -s /", "python -m pytest --pdb", "python",
    "python -m", "python manage.py shell", "python manage.py test --settings=x", "python manage.py migrate", "pytest -p evil",
    "pytest -pevil", "pytest -c /etc/passwd", "pytest -c x.ini", "pytest --rootdir=/", "pytest --basetemp=.", "pytest --confcutdir=/",
    "pytest -o addopts=x", "pytest --override-ini=x=y", "pytest --junitxml=/x", "pytest --log-file=x", "pytest --pastebin=all",
    "pytest --pdb", "pytest --import-mode=importlib", "pytest --pyargs os", "pytest @args", "pytest ../x", "pytest /etc",
    "pytest --cov-report=html:/x", "pytest -W error", "pytest --collect-only=1", "pytest -n 64", "pytest -n ٣", "pytest .git/x",
    "pytest --deselect", "pytest -k", "pytest --", "ruff --config x check", "ruff check --config x", "ruff check --output-file=x",
    "ruff check --cache-dir=/x", "ruff clean", "ruff server", "ruff", "ruff check --add-noqa", "ruff check -- /etc", "ruff check ../..",
    "mypy --python-executable=/x", "mypy --config-file=x", "mypy --install-types", "mypy --junit-xml=x", "mypy --html-report=x",
    "mypy -c 1", "mypy @x", "mypy --cache-dir=/x", "mypy --custom-typeshed-dir=/x", "uv run python x", "uv run uv run pytest",
    "uv run --with evil pytest", "uv run --python /x pytest", "uv run --script x", "uvx evil", "uv run", "uv add x", "uv pip compile x",
    "pip install", "pip install -i http://x y", "pip install --target=/x y", "pip install git+https://x/y", "pip install /x",
    "pip install -r ../x", "pip download x", "pip install -e ..", "pip install https://x/y.whl", "pip config set x y",
]  # fmt: skip
NODE = [
    "npm i x", "npm exec x", "npm run", "npm run -x", "npm run -- -x", "npm run nope", "npm test --prefix=/x", "npm --prefix /x test",
    "npm run build --script-shell=/x", "npm run build --node-options=--require=/x", "npm test -- --config=/x", "npm test -- /etc",
    "npm run test:ci", "npm config set x y", "npm ci --userconfig=x", "npm test extra", "npx cowsay", "npx -y tsc --noEmit",
    "npx tsc", "bunx evil", "bun run ./x.ts", "bun x.ts", "bun install evil", "bun install --registry=http://x", "bun run -x",
    "bun run --cwd=/ x", "bun --cwd / test", "bun test --preload ./x", "bun test ../x", "bun test /x", "bun add x", "bun", "pnpm dlx x",
    "yarn dlx x", "pnpm test --dir=/x", "yarn add x", "npx eslint --config x src", "npx eslint --rulesdir=x",
]  # fmt: skip
NATIVE = [
    "make -f x", "make -C /", "make --eval=x", "make SHELL=/x test", "make X=1", "make -j", "make nope", "make ../x", "make X",
    "make .PHONY", "go run x.go", "go test -exec=/x ./...", "go test -exec /x", "go test -toolexec=x", "go test -o x", "go test -c",
    "go build -o /x .", "go vet -vettool=x", "go test -overlay=x", "go test -C / ./...", "go test ../...", "go test ./../..",
    "go test ./a/../../b", "go test -ldflags=x", "go test -cpuprofile=x", "go get x", "go generate", "go test -modfile=x",
    "go env -w X=1", "go", "go test -run", "go test /etc", "cargo run", "cargo install x", "cargo +nightly test", "cargo test --config x",
    "cargo test --manifest-path=/x", "cargo test --target-dir=/x", "cargo test -Z x", "cargo -C / test", "cargo evil",
    "cargo test -- --logfile=/x", "cargo publish", "cargo test a b", "ls /", "ls ..", "ls ~", "ls -la /etc", "ls --color=always",
    "ls .git", "ls out/../..", "ls -- /", "ls --time-style=+%s",
]  # fmt: skip
GIT = [
    "git", "git push", "git commit -m x", "git add .", "git checkout x", "git worktree add x", "git -c core.pager=x log",
    "git -C / log", "git -C .. status", "git --git-dir=/x log", "git --work-tree=/ status", "git --exec-path=/x log", "git -p log",
    "git diff --output=x", "git log --output=x", "git diff --ext-diff", "git diff --textconv", "git log --textconv",
    "git diff --no-index /etc/passwd /dev/null", "git diff -O/etc/passwd", "git diff -- /etc/passwd", "git diff -- ../x",
    "git diff -- ':(top)../x'", "git log --format=%x", "git log --exec=x", "git diff --submodule=log", "git status --ignore-submodules=none",
    "git diff --ignore-submodules=none", "git log -L1,2:x", "git log --show-signature", "git diff --ita-visible-in-index",
    "git diff ext::sh", "git diff -- .git/config", "git diff -- .GIT/config", "git diff --pickaxe-regex", "git config -l", "git help -w",
    "git help -m x", "git log --help", "git diff -G x", "git log --all", "git diff :/x", "git diff --relative", "git log --stdin",
    "git diff -", "git diff a b c", "git grep -iO/usr/bin/id .", 'git clone "ext::sh -c id"', "git fetch", "git archive HEAD",
    "git log -- -x", "git diff --color=always", "git status /etc", "git log --since=--output=x", "git -cx=y status",
    "git diff HEAD....x", "git log --mailmap", "git submodule update",
]  # fmt: skip
EXTRA = ["npm run e2e -- x", "npm run e2e x", "bash scripts/check.sh", "bash scripts/check.sh ../x", "bash scripts/check.sh /etc",
         "bash scripts/other.sh src", "tool -x 12", "tool abc twelve", "tool abc 12 13"]  # fmt: skip


@pytest.mark.parametrize("command", [*SHELL, *PYTHON, *NODE, *NATIVE, *GIT, *EXTRA])
def test_a_way_round_the_list_is_refused(command: str) -> None:
    """Row 45; faults C27 to C34, C38, C39, C41."""
    verdict = read_command(command, CONTEXT)
    assert isinstance(verdict, Refusal), verdict
    assert verdict.reason
    assert verdict.form


def test_argv_needs_no_quoting_because_there_is_no_shell() -> None:
    verdict = read_command(["pytest", "-k", "a; rm -rf $(x)"], CONTEXT)
    assert isinstance(verdict, Allowed)
    assert verdict.argv[-1] == "a; rm -rf $(x)"
    assert why_refused(["git", "diff", "--output=x"], CONTEXT)
    assert why_refused(["git", "status\nid"], CONTEXT)
    assert why_refused([], CONTEXT)


@pytest.mark.parametrize("flag", ["--pdb", "-p x", "-o x=y", "-c x", "--rootdir=.", "--basetemp=x"])
def test_both_spellings_of_pytest_have_one_policy(flag: str) -> None:
    """C38."""
    for start in (
        "pytest",
        "python -m pytest",
        "python3 -m pytest",
        "uv run pytest",
        "uv run python -m pytest",
    ):
        assert why_refused(f"{start} {flag}", CONTEXT)
        assert why_refused(f"{start} -q", CONTEXT) is None


@pytest.mark.parametrize("program", sorted(FORMS))
def test_a_refusal_names_the_allowed_form(program: str) -> None:
    """C34, C42: `npm test 2>&1 | tail` says what would have been taken."""
    refusal = why_refused(f"{program} --no-such-flag 2>&1 | tail -5", CONTEXT)
    assert refusal is not None
    assert refusal.form == FORMS[program]


def test_an_unknown_program_is_told_every_form_and_the_owners_own() -> None:
    refusal = why_refused("frobnicate", CONTEXT)
    assert refusal is not None
    assert "bun install" in refusal.form
    assert "npm run e2e" in refusal.form


def test_paths_are_rewritten_so_that_none_can_be_a_flag() -> None:
    verdict = read_command(["ls", "src//./a"], CONTEXT)
    assert isinstance(verdict, Allowed)
    assert verdict.argv == ("ls", "./src/a")


@pytest.mark.parametrize("path", ["./-m", "./-c", ".//--locals", "./-s"])
def test_no_path_becomes_a_flag_again(path: str) -> None:
    """unittest takes dotted names, so its paths lose their ./, but never where a flag would come out."""
    verdict = read_command(["python3", "-m", "unittest", path], CONTEXT)
    assert isinstance(verdict, Allowed)
    assert not any(argument.startswith("-") for argument in verdict.argv[3:])


@pytest.mark.parametrize(
    ("command", "prepares"),
    [
        ("npm ci", "node"),
        ("bun install", "node"),
        ("uv sync", "python"),
        ("pip install x", "python"),
        ("npm test", ""),
    ],
)
def test_installing_is_answered_by_the_prepared_step(command: str, prepares: str) -> None:
    verdict = read_command(command, CONTEXT)
    assert isinstance(verdict, Allowed)
    assert verdict.prepares == prepares


@pytest.mark.parametrize(
    ("command", "builds"),
    [
        ("bun run build", True),
        ("npm run build", True),
        ("go build ./...", True),
        ("make build", True),
        ("bun test", False),
    ],
)
def test_what_a_build_writes_is_marked_for_discarding(command: str, builds: bool) -> None:
    """Row 47."""
    verdict = read_command(command, CONTEXT)
    assert isinstance(verdict, Allowed)
    assert verdict.builds is builds


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"scripts": 5}', b"\xff", None, b"[" * 100_000])
def test_a_broken_package_json_has_no_scripts(text: bytes | None) -> None:
    assert scripts_of(text) == frozenset()


@pytest.mark.parametrize(
    "pattern",
    [
        [],
        "npm run x",
        ["./x"],
        ["/bin/sh"],
        ["npm", ""],
        ["npm", "a\nb"],
        ["npm", "{anything}"],
        ["npm", 5],
        ["é"],
    ],
)
def test_an_owners_pattern_is_a_list_of_plain_words(pattern: object) -> None:
    assert why_bad_pattern(pattern)
    assert why_bad_pattern(["npm", "run", "e2e", "{path}"]) is None


WAITING = (
    ("make", "test"),
    ("pytest", "tests/e2e.py"),
    ("tool", "{word}", "7"),
    ("go", "..."),
    ("kubectl", "..."),
)


@pytest.mark.parametrize(
    "command",
    [
        "make test",
        ["make", "test"],
        " make   'test' ",
        "pytest tests/e2e.py",
        "pytest ./tests/e2e.py",
        "pytest tests//./e2e.py",
        "tool release 7",
        "go test ./...",
        "go vet ./...",
    ],
)
def test_a_command_that_waits_for_a_yes_is_known_in_every_spelling(command: str | list[str]) -> None:
    """Row 228: what is asked about is what would be run. Also where no pattern allows it by itself."""
    for context in (CONTEXT, replace(CONTEXT, extra=(*CONTEXT.extra, *exact_patterns(WAITING)))):
        verdict = read_command(command, context)
        assert isinstance(verdict, Allowed)
        assert asks_first(command, context, WAITING) == verdict.argv


@pytest.mark.parametrize(
    "command",
    [
        "make lint",
        "make test lint",
        "pytest tests",
        "tool release 8",
        "git status",
        "kubectl apply",  # only held back where it is allowed: and it is not
        "make test; make lint",
        "",
    ],
)
def test_other_commands_and_refused_ones_wait_for_nobody(command: str) -> None:
    assert asks_first(command, CONTEXT, WAITING) is None


def test_only_a_pattern_of_one_command_allows_something_new() -> None:
    assert exact_patterns(WAITING) == WAITING[:3]
