"""Before any money is spent: does a checkout open, do the checks run, and what is missing?"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.errors import GitError, NoSandbox
from agents.workspace.checkout import open_checkout
from agents.workspace.deps import DependencyState, prepared_at
from agents.workspace.git import Store
from agents.workspace.importing import ImportWarning, warnings_of
from agents.workspace.sandbox import SandboxTier, probe

CHECK_SECONDS_MAX = 600
NOT_FOUND_CODE = 127


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
    files: int
    problems: tuple[str, ...]
    warnings: tuple[ImportWarning, ...]
    dependencies: tuple[DependencyState, ...]
    checks: tuple[CheckRun, ...]
    missing: tuple[str, ...]  # programs that a check needs and the sandbox has not


def preflight(
    store: Store,
    commit: str,
    commands: Sequence[str | Sequence[str]],
    *,
    trusted: bool = False,
    beat: Callable[[], None] | None = None,
) -> Preflight:
    """Opens a checkout of `commit` and runs every command once, each in a tree of its own."""
    problems: list[str] = []
    missing: list[str] = []
    checks: list[CheckRun] = []
    states = prepared_at(store, commit).states
    problems += [
        f"the dependencies in {each.names} are {each.state}" for each in states if each.state != "ready"
    ]
    for command in commands:
        try:
            argv = shlex.split(command) if isinstance(command, str) else list(command)
            checks.append(_check(store, commit, argv, trusted=trusted, beat=beat))
        except ValueError:
            problems.append(f"{command!r} cannot be read as a command")
        except (NoSandbox, GitError) as error:
            problems.append(str(error))
            break
    for check in checks:
        if check.exit_code == NOT_FOUND_CODE:
            missing.append(check.command.split(" ", 1)[0])
        elif not check.passed:
            how = f"exit code {check.exit_code}" if check.exit_code is not None else check.reason
            problems.append(f"{check.command} does not pass on this commit: {how}")
    problems += [f"{name} is not there for commands" for name in dict.fromkeys(missing)]
    return Preflight(
        tier=probe(),
        files=len(store.tree_files(commit)),
        problems=tuple(problems),
        warnings=warnings_of(store, commit),
        dependencies=states,
        checks=tuple(checks),
        missing=tuple(dict.fromkeys(missing)),
    )


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
