"""What ends a run from inside.

AgentError
├── StopRun     the run is over, with the reason that its rows will carry
│   ├── CallFailed  the provider failed or refused; says whether asking once more may help
│   └── AllowanceRefused  a ModelTask has no room for the call; nothing was dispatched
├── NeedsApproval  a command waits for a person's yes; the run pauses
├── SnapshotError  a stored conversation that cannot be gone on with
├── HelperMisconfigured  a helper that cannot be asked as it is set up; nothing was sent
├── HelperOutputError    a helper's answer stayed invalid, or could not be asked for
├── SandboxLimit  the Change has as many open sandboxes as it may (row 56); nothing was opened
├── NoSandbox   this host has no sandbox tier; commands are refused, files and git still work
└── GitError    git said no
    ├── MergeConflict   two sides do not merge: a normal result with its paths
    └── LostRef         compare-and-swap: somebody moved the ref first
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routing.words import EndReason

# An error keeps a copy of what it complains about up to this size; of more it keeps a marker (row 234).
ERROR_COPY_BYTES_MAX = 4_096


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


class CallFailed(StopRun):
    """One physical call failed. `again` is true for a passing error of the transport (row 57)."""

    def __init__(
        self, end: EndReason, note: str = "", *, again: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(end, note, retry_after_seconds=retry_after_seconds)
        self.again = again


class AllowanceRefused(StopRun):
    """The ModelTask of the call has no room for it (row 149). `dimension` is a stable word.

    `at_least` is what the limit of that dimension would have to be; empty where no figure helps.
    """

    def __init__(self, dimension: str, note: str, *, at_least: str = "") -> None:
        end = EndReason.RUN_CALL_CAP if dimension == "calls" else EndReason.RUN_COST_CAP
        super().__init__(end, note)
        self.dimension = dimension
        self.at_least = at_least


class NeedsApproval(AgentError):
    """The run pauses before this command: its project's owner wants a person to say yes. Nothing was run."""

    def __init__(self, argv: tuple[str, ...], why: str) -> None:
        super().__init__(f"{' '.join(argv)[:200]} needs a person's yes")
        self.argv = argv
        self.why = why


class SnapshotError(AgentError):
    """A stored conversation is corrupt, foreign or from the future (row 233). `code` is one of these words."""

    def __init__(self, code: str, message: str, *, payload: bytes = b"") -> None:
        super().__init__(f"the stored conversation is {code}: {message}")
        self.code = code
        self.copy = error_copy(payload)


class HelperMisconfigured(AgentError):
    """What is wrong with a helper's role, profile or schemas. `code` is a stable word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class HelperOutputError(AgentError):
    """A helper gave no valid answer. `code` is a stable word; `calls` were made and paid."""

    def __init__(self, code: str, message: str, *, calls: int) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.calls = calls


class SandboxLimit(AgentError):
    """Row 56. The call may be made again when another run of the Change has ended."""

    def __init__(self, sandboxes_max: int) -> None:
        super().__init__(f"sandbox_limit: this Change has {sandboxes_max} open sandboxes already")
        self.sandboxes_max = sandboxes_max


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


def error_copy(payload: bytes) -> dict[str, Any]:
    """What an error may keep of the data that it complains about: the whole, or a marker with its size (row 234)."""
    if len(payload) > ERROR_COPY_BYTES_MAX:
        return {"payload_omitted": True, "bytes": len(payload)}
    text = payload.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return {"payload": text, "bytes": len(payload)}
