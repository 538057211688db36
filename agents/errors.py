"""What ends a run from inside.

AgentError
├── StopRun     the run is over, with the reason that its rows will carry
├── NoSandbox   this host has no sandbox tier; commands are refused, files and git still work
└── GitError    git said no
    ├── MergeConflict   two sides do not merge: a normal result with its paths
    └── LostRef         compare-and-swap: somebody moved the ref first
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routing.words import EndReason


class AgentError(Exception):
    """Root of this floor's errors."""


class StopRun(AgentError):
    """Ends the attempt at once. `refusals` are the meters that said no, as data."""

    def __init__(
        self,
        end: EndReason,
        note: str = "",
        *,
        refusals: tuple[Mapping[str, Any], ...] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{end}: {note}" if note else str(end))
        self.end = end
        self.note = note
        self.refusals = refusals
        self.retry_after_seconds = retry_after_seconds


class NoSandbox(AgentError):
    """No sandbox on this host."""


class GitError(AgentError):
    """git refused or failed; the text is git's own, bounded."""


class LostRef(GitError):
    """The ref was not at the expected commit any more."""


class MergeConflict(GitError):
    """`paths` are repository paths as text; `at` is the commit that did not merge."""

    def __init__(self, paths: tuple[str, ...], messages: tuple[str, ...], at: str) -> None:
        super().__init__(f"{len(paths)} paths conflict: {', '.join(paths[:5])}")
        self.paths = paths
        self.messages = messages
        self.at = at
