"""Pure: the ways to confine a command, best first."""

from __future__ import annotations

from enum import StrEnum


class SandboxTier(StrEnum):
    """How well this host can confine a command, best first."""

    A = "A"
    B = "B"
    C = "C"
    D = "D"

    @property
    def words(self) -> str:
        return {
            "A": "bubblewrap with every namespace and a system call filter",
            "B": "bubblewrap; the host's process list is visible, because /proc is masked here",
            "C": "Landlock and a system call filter; no namespaces, so no sockets at all",
            "D": "none: commands are refused, files and git still work",
        }[self.value]
