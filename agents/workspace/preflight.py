"""Before any money is spent: does a checkout open, do the checks run, and what is missing?"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.errors import GitError, NoSandbox
from agents.tier import SandboxTier
from agents.workspace.checkout import open_checkout
from agents.workspace.deps import DependencyState, lock_files_at, prepare, prepared_at
from agents.workspace.git import Store
from agents.workspace.importing import ImportWarning, warnings_of
from agents.workspace.lockfiles import why_not_prepared
from agents.workspace.sandbox import probe

CHECK_SECONDS_MAX = 600
TOTAL_SECONDS_MAX = 3_600  # of all checks of one preflight: others wait for the same worker
NOT_FOUND_CODE = 127
MISSING_MAX = 20  # of one check: what its output says it did not find
# How Python and Node say that a package is not there.
_NOT_THERE = re.compile(
    r"No module named '?([A-Za-z0-9_.]{1,80})'?|Cannot find (?:module|package) '([@A-Za-z0-9_./-]{1,120})'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """One command as the platform would run it. `exit_code` None: a limit ended it, `reason` says which."""

    command: str
    exit_code: int | None
    reason: str
    text: str
    seconds: float

    @property
    def passed(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What a person sees before the first attempt. `problems` is empty when attempts can begin."""

    tier: SandboxTier
    files: int = 0
    checkout_seconds: float | None = None  # None: it did not open
    problems: tuple[str, ...] = ()
    warnings: tuple[ImportWarning, ...] = ()
    dependencies: tuple[DependencyState, ...] = ()
    checks: tuple[CheckRun, ...] = ()
    missing: tuple[str, ...] = ()  # programs and packages that a check needs and the sandbox has not


# Called before each step with its words and with what was found so far; what it raises ends everything.
Tell = Callable[[str, Preflight], None]


@dataclass(slots=True)
class _Finding:
    """What is known so far."""

    tier: SandboxTier
    files: int = 0
    checkout_seconds: float | None = None
    problems: list[str] = field(default_factory=list)
    warnings: tuple[ImportWarning, ...] = ()
    dependencies: tuple[DependencyState, ...] = ()
    checks: list[CheckRun] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def so_far(self) -> Preflight:
        return Preflight(
            tier=self.tier,
            files=self.files,
            checkout_seconds=self.checkout_seconds,
            problems=tuple(dict.fromkeys(self.problems)),
            warnings=self.warnings,
            dependencies=self.dependencies,
            checks=tuple(self.checks),
            missing=tuple(dict.fromkeys(self.missing)),
        )


def preflight(
    store: Store,
    commit: str,
    commands: Sequence[str | Sequence[str]],
    *,
    trusted: bool = False,
    prepares: bool = False,
    beat: Callable[[], None] | None = None,
    tell: Tell | None = None,
) -> Preflight:
    """Opens a checkout of `commit` and runs every command once, each in a tree of its own.

    `prepares` installs first what the lock files ask for and is not there (needs the network). A
    problem ends nothing but its own step: a person wants to see everything at once.
    """
    found = _Finding(tier=probe())
    tell = tell or (lambda _step, _found: None)
    tell("opening a checkout", found.so_far())
    if not _open(store, commit, found, trusted=trusted):
        return found.so_far()
    if prepares:
        tell("installing the dependencies", found.so_far())
        try:
            prepare(store, commit, beat=beat)
        except NoSandbox as error:
            found.problems.append(str(error))
    _look_at_dependencies(store, commit, found)
    started = time.monotonic()
    for done, command in enumerate(commands):
        if time.monotonic() - started >= TOTAL_SECONDS_MAX:
            left = len(commands) - done
            found.problems.append(f"{left} commands were not run: {TOTAL_SECONDS_MAX} seconds are over")
            break
        try:
            argv = shlex.split(command) if isinstance(command, str) else list(command)
            tell(f"running {shlex.join(argv)}", found.so_far())
            found.checks.append(_check(store, commit, argv, trusted=trusted, beat=beat))
            _judge(found.checks[-1], found)
        except ValueError:
            found.problems.append(f"{command!r} cannot be read as a command")
        except (NoSandbox, GitError) as error:
            found.problems.append(str(error))
            break
    return found.so_far()


def _open(store: Store, commit: str, found: _Finding, *, trusted: bool) -> bool:
    started = time.monotonic()
    try:
        with open_checkout(store, commit, trusted=trusted) as checkout:
            checkout.opened()
            found.checkout_seconds = time.monotonic() - started
        found.files = len(store.tree_files(commit))
        found.warnings = warnings_of(store, commit)
    except (GitError, OSError) as error:
        found.problems.append(f"no checkout of this commit can be opened: {error}")
        return False
    return True


def _look_at_dependencies(store: Store, commit: str, found: _Finding) -> None:
    found.dependencies = prepared_at(store, commit).states
    found.problems += [
        f"the dependencies in {each.names} are {each.state}"
        for each in found.dependencies
        if each.state != "ready"
    ]
    tops = {file.path.partition("/")[0] for file in store.tree_files(commit)}
    found.problems += why_not_prepared(lock_files_at(store, commit), tops)


def _judge(check: CheckRun, found: _Finding) -> None:
    if check.exit_code == NOT_FOUND_CODE:
        program = check.command.split(" ", 1)[0]
        found.missing.append(program)
        found.problems.append(f"{program} is not there for commands")
    elif not check.passed:
        names = [one or other for one, other in _NOT_THERE.findall(check.text)]
        found.missing += list(dict.fromkeys(names))[:MISSING_MAX]
        how = f"exit code {check.exit_code}" if check.exit_code is not None else check.reason
        found.problems.append(f"{check.command} does not pass on this commit: {how}")


def _check(
    store: Store, commit: str, argv: Sequence[str], *, trusted: bool, beat: Callable[[], None] | None
) -> CheckRun:
    if not argv:
        raise ValueError("an empty command")
    with open_checkout(store, commit, trusted=trusted) as checkout:
        output = checkout.run(argv, seconds_max=CHECK_SECONDS_MAX, beat=beat)
    return CheckRun(
        command=shlex.join(argv),
        exit_code=output.exit_code,
        reason=output.reason,
        text=output.text,
        seconds=output.seconds,
    )
