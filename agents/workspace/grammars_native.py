"""Pure: make, go, cargo, git and ls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agents.workspace.grammar import (
    INTEGER,
    PATH,
    TEXT,
    WORD,
    Allowed,
    CommandContext,
    CommandRefused,
    Rule,
    Shape,
    one_of,
    path,
    switches,
    take,
)

FORMS = {
    "make": "make TARGET (a target of the Makefile)",
    "go": "go test|vet|build [-run REGEX] [-v] [./...]",
    "cargo": "cargo test|check|clippy|build [-p PACKAGE] [filter], or cargo fmt [--check]",
    "git": "git status [--short], git diff [--stat] [revisions] [-- paths], git log [-n N] [--oneline] [revision]",
    "ls": "ls [-laR] [paths]",
}
_TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}")
_PACKAGE = re.compile(r"\.|\./(?:[A-Za-z0-9_-]+(?:[.][A-Za-z0-9_-]+)*/?)*(?:\.\.\.)?")
_GO_TEST: dict[str, Rule | None] = {
    **switches("-v", "-race", "-short", "-failfast", "-json"),
    "-run": TEXT, "-bench": TEXT, "-count": INTEGER, "-timeout": re.compile(r"[0-9]{1,3}s"),
}  # fmt: skip
_CARGO_TEST_FLAGS = one_of(("--nocapture", "--test-threads=1", "--include-ignored", "--ignored", "--exact"))


def _cargo_filter(argument: str) -> str:
    """What stands after `--`: a test filter or a flag of the test program."""
    return argument if WORD.fullmatch(argument) else _CARGO_TEST_FLAGS(argument)


_CARGO = Shape(
    flags={
        **switches(
            "--workspace", "--all-targets", "--all-features", "--no-default-features", "--release", "--lib",
            "--bins", "--no-run", "--no-fail-fast", "-q", "-v",
        ),
        "-p": WORD, "--package": WORD, "--test": WORD, "--features": re.compile(r"[A-Za-z0-9_,/-]{1,200}"),
    },
    positional=WORD,
    positionals_max=1,
    after_dashes=_cargo_filter,
)  # fmt: skip
_LS = Shape(flags=switches("-l", "-a", "-A", "-1", "-R", "-F", "-h", "-t", "-r", "-d", "-S"), positional=PATH)

# Whatever the repository's files say, git starts no program and reads nothing outside.
_GIT = (
    "git", "--no-pager", "--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false",
    "-c", "core.hooksPath=/dev/null", "-c", "diff.external=", "-c", "core.quotePath=true",
    "-c", "log.showSignature=false", "-c", "protocol.allow=never",
)  # fmt: skip
_GIT_SAFE = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color")
_REVISION = re.compile(r"(?!.*\.\.\.\.)[A-Za-z0-9][A-Za-z0-9._/^~@{}-]{0,120}")
_STATUS = Shape(
    flags=switches("-s", "--short", "--porcelain", "-b", "--branch", "-uno", "-uall", "--untracked-files"),
    after_dashes=PATH,
)
_DIFF_FLAGS: dict[str, Rule | None] = {
    **switches(
        "--stat", "--shortstat", "--name-only", "--name-status", "-w", "-b", "--no-color", "-M", "-p", "--patch",
        "--no-renames", "--numstat", "--summary", "--minimal",
    ),
    "-U": INTEGER, "--unified": INTEGER, "--word-diff": ("plain", "porcelain"),
    "--diff-filter": re.compile(r"[ACDMRTUXBacdmrtuxb]{1,12}"),
}  # fmt: skip
_DIFF = Shape(
    flags={**_DIFF_FLAGS, **switches("--cached", "--staged", "--check")},
    positional=_REVISION,
    positionals_max=2,
)
_LOG = Shape(
    flags={
        **_DIFF_FLAGS,
        **switches("--oneline", "--graph", "--no-merges", "--reverse", "--follow"),
        "-n": INTEGER, "--max-count": INTEGER, "--since": TEXT, "--until": TEXT, "--author": TEXT,
        "--grep": TEXT, "-S": TEXT,
    },
    positional=_REVISION, positionals_max=1,
)  # fmt: skip


def make_command(arguments: Sequence[str], context: CommandContext) -> Allowed:
    if not context.makefile:
        raise CommandRefused("there is no Makefile")
    for target in arguments:
        if not _TARGET.fullmatch(target):
            raise CommandRefused(f"{target!r} is no plain target")
        if target not in context.targets:
            known = ", ".join(sorted(context.targets))[:300] or "none"
            raise CommandRefused(f"{context.makefile} has no target {target!r}; it has: {known}")
    argv = ("make", "--no-print-directory", "-f", context.makefile, *arguments)
    return Allowed(argv=argv, builds="build" in arguments)


def go_command(arguments: Sequence[str], _context: CommandContext) -> Allowed:
    """Go's flags are long ones with a single dash, so they are read here."""
    if not arguments or arguments[0] not in ("test", "vet", "build"):
        raise CommandRefused("only go test, go vet and go build")
    flags = _GO_TEST if arguments[0] == "test" else {}
    out, left = [], list(arguments[1:])
    while left:
        argument = left.pop(0)
        name, equals, value = argument.partition("=")
        if not argument.startswith("-"):
            out.append(_package(argument))
        elif name not in flags:
            raise CommandRefused(f"the flag {name!r} is not allowed")
        elif (rule := flags[name]) is None:
            if equals:
                raise CommandRefused(f"{name} takes no value")
            out.append(name)
        else:
            if not equals:
                value = left.pop(0) if left else ""
            if not isinstance(rule, re.Pattern) or value.startswith("-") or not rule.fullmatch(value):
                raise CommandRefused(f"{name}: {value!r} is not allowed")
            out.append(f"{name}={value}")
    nowhere = ("-o", "/dev/null") if arguments[0] == "build" else ()
    return Allowed(argv=("go", arguments[0], *nowhere, *out), builds=arguments[0] == "build")


def cargo_command(arguments: Sequence[str], _context: CommandContext) -> Allowed:
    match list(arguments):
        case ["test" | "check" | "clippy" | "build" as what, *rest]:
            return Allowed(argv=("cargo", what, "--offline", *take(rest, _CARGO)), builds=what == "build")
        case ["fmt"]:
            return Allowed(argv=("cargo", "fmt"))
        case ["fmt", "--check"] | ["fmt", "--", "--check"]:
            return Allowed(argv=("cargo", "fmt", "--check"))
    raise CommandRefused("only cargo test, check, clippy, build and fmt")


def git_command(arguments: Sequence[str], _context: CommandContext) -> Allowed:
    """Only reading; global flags, other subcommands and every flag that starts a program are refused (C33, C34)."""
    match list(arguments):
        case ["status", *rest]:
            return Allowed(argv=(*_GIT, "status", "--ignore-submodules=all", *take(rest, _STATUS)))
        case ["diff", *rest]:
            return Allowed(argv=(*_GIT, "diff", *_GIT_SAFE, *_revisions_and_paths(rest, _DIFF)))
        case ["log", *rest]:
            counted = [f"-n{each[1:]}" if re.fullmatch(r"-[0-9]{1,3}", each) else each for each in rest]
            safe = (*_GIT_SAFE, "--no-show-signature")
            return Allowed(argv=(*_GIT, "log", *safe, *_revisions_and_paths(counted, _LOG)))
    raise CommandRefused("only git status, git diff and git log; Remit commits and merges by itself")


def ls_command(arguments: Sequence[str], _context: CommandContext) -> Allowed:
    return Allowed(argv=("ls", *take(arguments, _LS)))


def _package(argument: str) -> str:
    if not _PACKAGE.fullmatch(argument):
        raise CommandRefused(f"{argument!r} is no package beneath the workspace, such as ./...")
    return argument


def _revisions_and_paths(arguments: list[str], shape: Shape) -> list[str]:
    """Flags, then `--end-of-options`, then revisions, then `--` and paths: nothing can change its role."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    paths = [path(each) for each in arguments[end + 1 :]]
    flags, revisions = [], []
    left = take(arguments[:end], shape)
    while left:
        each = left.pop(0)
        if not each.startswith("-"):
            revisions.append(each)
            continue
        takes_value = not each.startswith("--") and shape.flags.get(each) is not None
        flags.append(each + left.pop(0) if takes_value else each)
    return [*flags, "--end-of-options", *revisions, "--", *paths]
