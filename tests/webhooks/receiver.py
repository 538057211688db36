"""A real server on this machine that receives webhooks, checks them as the convention says, and answers as told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True)
class Got:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """Written after the convention, not after our code."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        ours = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return f"v1,{ours}" in self.headers["webhook-signature"].split(" ")


@dataclass
class Receiver:
    """`answers` are given one after the other, the last one for ever; `slow_seconds` come before each."""

    answers: list[Answer] = field(default_factory=lambda: [(204, {}, b"")])
    slow_seconds: float = 0.0
    act: Callable[[Got], None] | None = None
    got: list[Got] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    def __enter__(self) -> Receiver:
        lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                got = Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                with lock:
                    receiver.got.append(got)
                    receiver.at_once += 1
                    receiver.most_at_once = max(receiver.most_at_once, receiver.at_once)
                    status, headers, text = (
                        receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                    )
                if receiver.act is not None:
                    receiver.act(got)
                time.sleep(receiver.slow_seconds)
                with lock:
                    receiver.at_once -= 1
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    if "content-length" not in {name.lower() for name in headers}:
                        self.send_header("content-length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    pass  # the sender has gone

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook?team=a"
