"""Real git servers on this machine: one behind TLS with an authority of its own, and a real sshd of this user."""

from __future__ import annotations

import base64
import datetime as dt
import getpass
import http.server
import ipaddress
import itertools
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START_SECONDS = 20
CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class Authority:
    """Signs certificates that nobody trusts by themselves."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def made(cls, name: str = "A test's own authority") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _certificate(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def server_files(self, folder: Path, *, host: str = "localhost", days: int = 2) -> tuple[Path, Path]:
        """A certificate and its key, for this host and 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = (
            _certificate(subject, self.certificate.subject, key.public_key(), days=days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        certificate_path, key_path = folder / "server.pem", folder / "server.key"
        certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate_path, key_path


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int = 2
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=10))
        .not_valid_after(now + dt.timedelta(days=days))
    )


@dataclass
class HttpsGit:
    """What the server does with the next requests, and what it has seen."""

    root: Path
    origin: str
    password: str = ""  # asked for when it is not empty; the user is ana
    redirect_to: str = ""
    behave: str = "git"  # git, silent, endless-refs, endless-pack, page
    seen: list[str] = field(default_factory=list)  # request lines and headers, as they came

    def url(self, name: str) -> str:
        return f"{self.origin}/{name}"


@contextmanager
def https_git(root: Path, certificate: Path, key: Path) -> Iterator[HttpsGit]:
    """Serves the bare repositories under `root` through `git http-backend`."""
    state = HttpsGit(root, "")

    class Handler(_GitHandler):
        git = state

    server = _Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    state.origin = f"https://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(START_SECONDS)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def shutdown_request(self, request: Any) -> None:
        """TLS has an end of its own, without which a client cannot tell a whole answer from a cut one."""
        with suppress(OSError, ValueError):
            request.settimeout(1.0)
            request.unwrap()
        super().shutdown_request(request)


class _GitHandler(http.server.BaseHTTPRequestHandler):
    git: HttpsGit
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        self.git.seen.append(f"{self.requestline} {dict(self.headers)}")
        if self.git.redirect_to:
            self.send_response(302)
            self.send_header("Location", self.git.redirect_to + self.path)
            self.end_headers()
            return
        if self.git.password and not self._is_allowed():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        with suppress(ConnectionError, ssl.SSLError):  # the client had enough
            getattr(self, "_" + self.git.behave.replace("-", "_"))()

    def _is_allowed(self) -> bool:
        wanted = base64.b64encode(f"ana:{self.git.password}".encode()).decode()
        return self.headers.get("Authorization") == f"Basic {wanted}"

    def _silent(self) -> None:
        time.sleep(30)

    def _page(self) -> None:
        self._begin("text/html")
        self.wfile.write(b"<!doctype html>\n<html>\n<h1>\x1b[31mWelcome</h1>\n</html>\n")

    def _begin(self, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.end_headers()

    def _endless_refs(self) -> None:
        self._begin("application/x-git-upload-pack-advertisement")
        self.wfile.write(b"001e# service=git-upload-pack\n0000")
        for first in itertools.count(step=1_000):
            lines = []
            for number in range(first, first + 1_000):
                line = f"{number:040x} refs/heads/{number:060}\n".encode()
                lines.append(f"{len(line) + 4:04x}".encode() + line)
            self.wfile.write(b"".join(lines))

    def _endless_pack(self) -> None:
        """The listing is real; the pack is one object after another, for ever."""
        if self.command == "GET" or "ls-refs" in str(body := self._body()):
            self._git(body if self.command == "POST" else b"")
            return
        self._begin("application/x-git-upload-pack-result")
        self.wfile.write(b"000dpackfile\n")
        chunk = b"\x01PACK\x00\x00\x00\x02\x00\x0f\xff\xff"
        self.wfile.write(f"{len(chunk) + 4:04x}".encode() + chunk)

        while True:
            data = os.urandom(30_000)
            size, head = len(data), []
            byte = (3 << 4) | (size & 15)
            size >>= 4
            while size:
                head.append(byte | 0x80)
                byte, size = size & 0x7F, size >> 7
            head.append(byte)
            chunk = b"\x01" + bytes(head) + zlib.compress(data, 0)
            self.wfile.write(f"{len(chunk) + 4:04x}".encode() + chunk)

    def _git(self, body: bytes | None = None) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.git.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"],
            env=environment,
            input=self._body() if body is None else body,
            capture_output=True,
            check=True,
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        return body


@dataclass(frozen=True)
class Sshd:
    """A running sshd; `known_hosts` and `user_key` are what a client needs."""

    port: int
    user: str
    known_hosts: Path
    user_key: Path

    def url(self, path: Path) -> str:
        return f"ssh://{self.user}@localhost:{self.port}{path}"


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Debian's own sshd, with a host key, a user key and a configuration of its own, on a port of loopback."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("host_key", "user_key", "other_key"):
        make_key(folder / name)
    port = _free_port()
    (folder / "authorized_keys").write_bytes((folder / "user_key.pub").read_bytes())
    (folder / "sshd_config").write_text(
        f"""ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""
    )
    if os.geteuid() == 0:  # where sshd gives up its rights; a package's service would make it
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    program = sshd_path()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        _wait_for(port, process, folder / "log")
        known_hosts = folder / "known_hosts"
        known_hosts.write_text(f"[localhost]:{port} {(folder / 'host_key.pub').read_text()}")
        yield Sshd(port, getpass.getuser(), known_hosts, folder / "user_key")
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def sshd_path() -> str:
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or ""


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)
    return path


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    ends_at = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < ends_at, "sshd did not start"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
