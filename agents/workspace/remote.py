"""Asks a git server: which of its addresses, with which keys, for how long, for how much.

Nothing comes from the operator's own git or ssh configuration. Secrets reach git in the environment of this
one import, never as arguments and never on a disk, where a killed worker would leave them; a server's words
come back bounded and without control characters.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from django.conf import settings

from agents.errors import GitError
from agents.workspace.git_command import git_environment, words_of
from agents.workspace.sources import Source, Way
from providers.addresses import addresses_of
from tenants.errors import InvalidInput

LISTING_SECONDS_MAX = 90  # a server that takes longer to name its branches is not going to send them
LISTING_BYTES_MAX = 64 * 1024 * 1024
IMPORT_SECONDS_MAX = 1_800
SILENT_SECONDS_MAX = 60
CONNECT_SECONDS_MAX = 15
ADDRESSES_TRIED_MAX = 4
# Of one git process: enough for the largest single objects, and an end for a server that sends names forever.
GIT_MEMORY_BYTES_MAX = 4 * 1024 * 1024 * 1024
WORDS_BYTES_MAX = 64_000
WATCH_SECONDS = 1.0

_BLOCK_BYTES = 512  # in which `ulimit -f` counts
_LIMITED = 'ulimit -c 0; ulimit -f "$1" && ulimit -v "$2" && shift 2 && exec "$@"'
# A shell's own printf: what it writes is nobody's argument.
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$REMIT_GIT_USERNAME" "$REMIT_GIT_PASSWORD"; }; f'
)

# Told about once a second: what is being done, and how many bytes of the pack have come. What it raises ends git.
Watch = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks. Without a password the deployment's REMIT_GIT_CREDENTIALS are looked through, where that is allowed."""

    username: str = ""
    password: str = field(default="", repr=False)
    # Whether the deployment's own credentials and key may be shown: they open what is not this asker's.
    shared: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one import may take."""

    listing_seconds_max: float = LISTING_SECONDS_MAX
    fetch_seconds_max: float = IMPORT_SECONDS_MAX
    silent_seconds_max: int = SILENT_SECONDS_MAX
    bytes_max: int | None = None  # of its pack; None: the deployment's REMIT_IMPORT_MIB_MAX


class RemoteFailure(GitError):
    """git gave up on a server. The text is git's and the server's, bounded."""


class Asked:
    """One source as git is to be asked for it, with a folder of its own for what git needs to read."""

    def __init__(
        self,
        directory: Path,
        source: Source,
        scratch: Path,
        *,
        access: Access,
        bounds: Bounds,
        field: str,
        watch: Watch = lambda _step, _bytes: None,
    ) -> None:
        if source.way is Way.SSH and not access.shared:
            raise InvalidInput(
                field, "the deployment's ssh key is not for this organization",
                "use https://… with a token of your own, or ask the operator to name the organization in "
                "REMIT_GIT_ORGANIZATIONS",
                code="key_not_shared",
            )  # fmt: skip
        self.source = source
        self._directory, self._scratch, self._bounds, self._field = directory, scratch, bounds, field
        self._bytes_max = bounds.bytes_max or settings.PLANE.import_mib_max * 1024 * 1024
        self._config = scratch / "gitconfig"
        # git drops GIT_CONFIG_COUNT for the process that serves a local path, but not this file.
        self._config.write_text("[safe]\n\tdirectory = *\n" if source.way is Way.LOCAL else "")
        self._watch, self._step = watch, ""
        self._credentials = self._found(access) if source.way is Way.HTTPS else None
        self._addresses = self._looked_up()
        self._pinned = self._addresses[0] if self._addresses else ""

    def listing(self) -> str:
        """What the source says its branches are. Tries the host's addresses in turn until one answers."""
        failure: RemoteFailure | None = None
        self._step = "asking what there is"
        for address in self._addresses[:ADDRESSES_TRIED_MAX] or [""]:
            self._pinned = address
            try:
                out = self._run(
                    ["ls-remote", "--symref", "--", self.source.address, "HEAD", "refs/heads/*"],
                    seconds_max=self._bounds.listing_seconds_max,
                    bytes_max=LISTING_BYTES_MAX,
                )
                return out.decode("utf-8", "surrogateescape")
            except RemoteFailure as error:
                failure = error
                if "onnect" not in str(error):
                    break
        assert failure is not None
        raise failure

    def fetch(self, ref: str, into: str, *, config: Mapping[str, str]) -> None:
        """One branch, in one pack of bounded size."""
        self._step = "fetching"
        self._run(
            ["fetch", "--quiet", "--no-tags", "--no-auto-maintenance", "--update-shallow",
             "--no-write-fetch-head", "--", self.source.address, f"{ref}:{into}"],
            seconds_max=self._bounds.fetch_seconds_max,
            bytes_max=self._bytes_max,
            config=config,
        )  # fmt: skip

    def look(self, step: str, arguments: Sequence[str], *, bytes_max: int | None = None) -> bytes:
        """One more command of git on what has come, watched and bounded like the rest."""
        self._step = step
        bound = self._bytes_max if bytes_max is None else bytes_max
        return self._run(arguments, seconds_max=self._bounds.fetch_seconds_max, bytes_max=bound)

    def _looked_up(self) -> tuple[str, ...]:
        """The addresses that may be asked; empty where a proxy looks them up, or nothing is to be looked up."""
        source = self.source
        if not source.is_remote or (source.way is Way.HTTPS and _is_proxied(source.host)):
            return ()
        found = addresses_of(
            source.host,
            source.port,
            scheme=source.way,
            private_addresses=settings.PLANE.private_addresses,
        )
        if found.allowed:
            return found.allowed
        if found.forbidden:
            raise InvalidInput(
                self._field,
                f"{source.host} may not be asked: {found.problem}",
                "the operator's REMIT_PRIVATE_ADDRESSES=true opens private networks",
                code="private_address",
            )
        raise InvalidInput(self._field, found.problem, "check the host's name", code="unknown_host")

    def _found(self, access: Access) -> tuple[str, str] | None:
        """The one name and password that this server gets."""
        if access.password:
            return access.username or "git", access.password
        if not access.shared:
            return None
        return _kept_credential(settings.PLANE.git_credentials, self.source, access.username)

    def _environment(self, config: Mapping[str, str]) -> dict[str, str]:
        way = self.source.way
        protocol = {Way.LOCAL: "file", Way.HTTPS: "https", Way.SSH: "ssh"}[way]
        more = {"GIT_CONFIG_GLOBAL": str(self._config), "GIT_ALLOW_PROTOCOL": protocol}
        pinned = {
            f"protocol.{protocol}.allow": "always",
            "fetch.unpackLimit": "1",  # always one pack, whose size is bounded
            "core.packedGitWindowSize": "64m",
            "core.packedGitLimit": "512m",
            **config,
        }
        if way is Way.HTTPS:
            pinned |= self._https_config()
            more |= {name: os.environ[name] for name in _PROXY_VARIABLES if name in os.environ}
            if self._credentials is not None:
                more["REMIT_GIT_USERNAME"], more["REMIT_GIT_PASSWORD"] = self._credentials
        if way is Way.SSH:
            more |= {"GIT_SSH_COMMAND": self._ssh_command(), "GIT_SSH_VARIANT": "ssh"}
            if "SSH_AUTH_SOCK" in os.environ and settings.PLANE.git_ssh_key is None:
                more["SSH_AUTH_SOCK"] = os.environ["SSH_AUTH_SOCK"]
        return git_environment(self._directory, config=pinned, more=more)

    def _https_config(self) -> dict[str, str]:
        pinned = {
            "http.followRedirects": "false",  # another host would get what is meant for this one
            "http.sslVerify": "true",
            "http.lowSpeedLimit": "1",
            "http.lowSpeedTime": str(self._bounds.silent_seconds_max),
            "http.emptyAuth": "false",
            "credential.helper": "",
        }
        if settings.PLANE.git_ca_file is not None:
            pinned["http.sslCAInfo"] = str(settings.PLANE.git_ca_file)
        if self._credentials is not None:
            host = f"[{self.source.host}]" if ":" in self.source.host else self.source.host
            pinned[f"credential.https://{host}:{self.source.port}.helper"] = _HELPER
        if self._pinned and self._pinned != self.source.host:
            listed = ",".join(f"[{one}]" if ":" in one else one for one in self._addresses)
            pinned["http.curloptResolve"] = f"{self.source.host}:{self.source.port}:{listed}"
        return pinned

    def _ssh_command(self) -> str:
        source = self.source
        options = [
            "BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "CheckHostIP=no",
            f"ConnectTimeout={CONNECT_SECONDS_MAX}", "ServerAliveInterval=15", "ServerAliveCountMax=3",
            "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "PermitLocalCommand=no",
            "ControlMaster=no", "ControlPath=none", "LogLevel=ERROR", f"HostName={self._pinned}",
            f"HostKeyAlias={source.host if source.port == 22 else f'[{source.host}]:{source.port}'}",
        ]  # fmt: skip
        if settings.PLANE.git_known_hosts is not None:
            options += [
                f"UserKnownHostsFile={_quoted(settings.PLANE.git_known_hosts)}",
                "GlobalKnownHostsFile=/dev/null",
            ]
        argv = ["ssh", "-F", "/dev/null"]
        if settings.PLANE.git_ssh_key is not None:
            options += [f"IdentityFile={_quoted(settings.PLANE.git_ssh_key)}", "IdentitiesOnly=yes"]
            options += ["IdentityAgent=none"]
        for option in options:
            argv += ["-o", option]
        return shlex.join(argv)

    def _run(
        self,
        arguments: Sequence[str],
        *,
        seconds_max: float,
        bytes_max: int,
        config: Mapping[str, str] | None = None,
    ) -> bytes:
        """Its standard output. The whole family of processes ends with it, whatever it started."""
        environment = self._environment(config or {})
        program = shutil.which("git", path=environment["PATH"])
        if program is None:
            raise GitError("git is not installed")
        if self.source.way is Way.SSH and shutil.which("ssh", path=environment["PATH"]) is None:
            raise RemoteFailure("ssh is not installed")
        blocks, kilobytes = -(-bytes_max // _BLOCK_BYTES), GIT_MEMORY_BYTES_MAX // 1024
        limited = ["/bin/sh", "-c", _LIMITED, "sh", str(blocks), str(kilobytes), program, *arguments]
        if bound := shutil.which("setpriv", path=environment["PATH"]):
            limited = [bound, "--pdeathsig", "KILL", "--", *limited]  # a killed worker's git ends with it
        out, errors = self._scratch / "out", self._scratch / "errors"
        with out.open("wb") as out_file, errors.open("wb") as errors_file:
            process = subprocess.Popen(
                limited,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=errors_file,
                cwd="/",
                start_new_session=True,  # no terminal to ask on, and one group to end
            )
            try:
                code = self._wait(process, seconds_max)
            finally:
                _end_group(process)
        if code != 0:
            with errors.open("rb") as said:
                text = words_of(said.read(WORDS_BYTES_MAX))
            if self._is_full(bytes_max):
                raise RemoteFailure(f"larger than {bytes_max:,} bytes: {text}")
            raise RemoteFailure(text or f"exit code {code}")
        return out.read_bytes()

    def _wait(self, process: subprocess.Popen[bytes], seconds_max: float) -> int:
        until = time.monotonic() + seconds_max
        while True:
            try:
                return process.wait(min(WATCH_SECONDS, max(until - time.monotonic(), 0)))
            except subprocess.TimeoutExpired:
                if time.monotonic() >= until:
                    raise RemoteFailure(f"not finished after {seconds_max:.0f} seconds") from None
            self._watch(self._step, self._received())

    def _received(self) -> int:
        total = 0
        for path in (self._directory / "objects" / "pack").glob("*pack*"):
            with contextlib.suppress(OSError):  # renamed this moment
                total += path.stat().st_size
        return total

    def _is_full(self, bytes_max: int) -> bool:
        """Whether the limit of one file's size stopped it: git itself only says that its pack is broken."""
        written = [self._scratch / "out", *(self._directory / "objects" / "pack").glob("tmp_*")]
        return any(path.stat().st_size >= bytes_max - _BLOCK_BYTES for path in written)


_PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


def _is_proxied(host: str) -> bool:
    proxies = getproxies()
    return bool(proxies.get("https") or proxies.get("all")) and not proxy_bypass(host)


def _kept_credential(path: Path | None, source: Source, username: str) -> tuple[str, str] | None:
    """The first line of the operator's file that fits: https://name:password@host[:port], as git's store has it."""
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        try:
            parts = urlsplit(line.strip())
            fits = (parts.scheme, parts.hostname, parts.port or 443) == ("https", source.host, source.port)
        except ValueError:
            continue
        name = unquote(parts.username or "")
        if fits and parts.password and username in ("", name):
            return name, unquote(parts.password)
    return None


def _quoted(path: Path) -> str:
    """As ssh reads a file's name in an option: its own quotes, and % begins something of its own."""
    return '"' + str(path).replace("%", "%%") + '"'


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
