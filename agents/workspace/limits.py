"""What one command may use. Every limit is hard: reaching it ends the whole process tree."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20

COMMAND_SECONDS_MAX = 180
OUTPUT_CHARACTERS_MAX = 12_000
OUTPUT_BYTES_MAX = 64 * MEBIBYTE  # of all output; more ends the command
WHOLE_OUTPUT_BYTES_MAX = 8 * MEBIBYTE  # of the copy that goes to the object store
MEMORY_BYTES_MAX = 2_048 * MEBIBYTE
FILE_BYTES_MAX = 256 * MEBIBYTE
DISK_BYTES_MAX = 2_048 * MEBIBYTE
DISK_FREE_BYTES_MIN = 512 * MEBIBYTE
FILES_MAX = 500_000  # of a workspace: an empty file takes no bytes, and a disk holds only so many
MEMORY_FILES_MAX = 200_000  # of the file systems in memory together; each costs the kernel about 1 KiB
# What no counter of a process shows (buffers of sockets and pipes) is seen by what the machine has left.
MEMORY_FREE_BYTES_MIN = 512 * MEBIBYTE
TMP_BYTES_MAX = 512 * MEBIBYTE
HOME_BYTES_MAX = 64 * MEBIBYTE
PROCESSES_MAX = 256
OPEN_FILES_MAX = 4_096

POLL_SECONDS = 0.25
FIRST_POLL_SECONDS = 0.1
BEAT_SECONDS = 1.0
# After a kill: how long the pipe may stay open before we stop waiting for it.
DRAIN_SECONDS_MAX = 5.0
# SIGXCPU comes at the limit; a process that ignores it is killed this much later.
CPU_GRACE_SECONDS = 5

assert WHOLE_OUTPUT_BYTES_MAX <= OUTPUT_BYTES_MAX, "the copy cannot hold more than the command may write"
assert FILE_BYTES_MAX <= DISK_BYTES_MAX, "one file must not fill what all files may"
assert POLL_SECONDS < BEAT_SECONDS, "memory fills faster than people cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one command. A caller may narrow or widen `seconds_max`; the rest rarely changes."""

    seconds_max: float = COMMAND_SECONDS_MAX
    cpu_seconds_max: int = 2 * COMMAND_SECONDS_MAX  # of one process; the wall clock binds the tree
    memory_bytes_max: int = MEMORY_BYTES_MAX  # of one process, and of the tree together
    file_bytes_max: int = FILE_BYTES_MAX
    memory_free_bytes_min: int = MEMORY_FREE_BYTES_MIN  # of the machine
    disk_bytes_max: int = DISK_BYTES_MAX
    files_max: int = FILES_MAX
    memory_files_max: int = MEMORY_FILES_MAX
    tmp_bytes_max: int = TMP_BYTES_MAX
    processes_max: int = PROCESSES_MAX
    open_files_max: int = OPEN_FILES_MAX
    output_characters_max: int = OUTPUT_CHARACTERS_MAX
    output_bytes_max: int = OUTPUT_BYTES_MAX
    whole_output_bytes_max: int = WHOLE_OUTPUT_BYTES_MAX
