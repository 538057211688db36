"""`manage.py up`: web, workers and beat in one process group; Ctrl-C stops all of it, and nothing is orphaned."""

from __future__ import annotations

import argparse
import fcntl
import gc
import os
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

from django.conf import settings
from django.core.management import call_command, get_commands
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from config.celery import ATTEMPTS_QUEUE, CHANGES_QUEUE, HOOK_THREADS, HOOKS_QUEUE, UPKEEP_QUEUE
from config.processes import Program, Supervisor, die_with_parent

PORT = 8000
# Celery warns at length about root; containers and trial machines run as root, and jobs are JSON, never pickles.
ROOT_IS_FINE_HERE = "ignore:You're running the worker with superuser:UserWarning"
PORTS_TRIED_MAX = 50
PORT_MAX = 65_535
LOG_CONFIG = Path(__file__).resolve().parents[2] / "uvicorn-logging.json"


class Command(BaseCommand):
    help = "Runs the whole of Remit on this machine until Ctrl-C."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
        parser.add_argument(
            "--port", type=int, default=PORT, help="the next free one is taken when it is busy"
        )
        parser.add_argument(
            "--demo", action="store_true", help="make the demo organization and its Changes first"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        if "MAKELEVEL" in os.environ:
            die_with_parent(signal.SIGTERM)  # `make` killed with -9 must not leave us behind
        with closing(_only_one_here()) as lock:
            _migrate()
            if options["demo"] and "demo" in get_commands():
                call_command("demo", stdout=self.stdout)
            settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
            port, claim = free_port(options["host"], options["port"])
            host = f"[{options['host']}]" if ":" in options["host"] else options["host"]
            address = f"http://{host}:{port}/"
            lock.truncate(0)
            lock.write(f"{os.getpid()} {address}\n")
            lock.flush()
            gc.freeze()  # looking through what migrating loaded for garbage was most of the way out
            supervisor = Supervisor(_programs(options["host"], port), out=sys.stdout)
            with claim:
                sys.exit(supervisor.run(ready=(options["host"], port), banner=f"Remit is up: {address}"))


def _migrate() -> None:
    try:
        call_command("migrate", verbosity=0, interactive=False)
    except OperationalError as error:
        raise CommandError(f"DATABASE_URL: the database cannot be used: {str(error).strip()}") from None


def _programs(host: str, port: int) -> list[Program]:
    python = [sys.executable, "-m"]
    quiet = [
        "--loglevel",
        settings.PLANE.log_level,
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
    ]
    worker = [*python, "celery", "-A", "config.celery", "--quiet", "worker", *quiet]
    # Asked to stop, a worker gives its jobs a few seconds, then cuts them: their leases bring them back.
    cut = {"REMIT_PROCESS": "worker", "REMAP_SIGTERM": "SIGQUIT", "PYTHONWARNINGS": ROOT_IS_FINE_HERE}
    return [
        Program(
            "web",
            [
                *python,
                *["uvicorn", "config.asgi:application", "--host", host, "--port", str(port)],
                *["--lifespan", "off", "--no-access-log", "--no-server-header"],
                *["--timeout-graceful-shutdown", "2", "--log-config", str(LOG_CONFIG)],
            ],
            {"REMIT_PROCESS": "web"},
        ),
        Program(
            "worker",
            [
                *worker,
                *["-n", "worker@%h", "-Q", f"{ATTEMPTS_QUEUE},{CHANGES_QUEUE}"],
                *["-c", str(settings.PLANE.worker_processes)],
            ],
            cut,
        ),
        # Requests to strangers' servers: they wait, so threads; a hang here stops no attempt and no clock.
        Program(
            "hooks",
            [*worker, "-n", "hooks@%h", "-Q", HOOKS_QUEUE, "-P", "threads", "-c", str(HOOK_THREADS)],
            cut,
        ),
        # The clock and the short jobs it starts: never behind a long attempt.
        Program("beat", [*worker, "-n", "upkeep@%h", "-Q", UPKEEP_QUEUE, "-c", "1", "-B"], cut),
    ]


def _only_one_here() -> TextIO:
    """Two of these over one data folder would run every clock twice."""
    path = settings.PLANE.data_dir / "up.lock"
    lock = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        pid, _, address = lock.read().strip().partition(" ")
        lock.close()
        raise CommandError(
            f"Remit already runs over {settings.PLANE.data_dir} (process {pid or 'unknown'}, {address or 'starting'})."
            " Stop it with Ctrl-C there, or set REMIT_DATA_DIR to another folder."
        ) from None
    return lock


def free_port(host: str, wanted: int) -> tuple[int, socket.socket]:
    """A port that nobody listens on, and the claim to it: hold that until the web process has ended."""
    if not 1 <= wanted <= PORT_MAX:
        raise CommandError(f"--port: {wanted} is no port; name one from 1 to {PORT_MAX}")
    for port in range(wanted, min(wanted + PORTS_TRIED_MAX, PORT_MAX + 1)):
        claim = _claim(port)
        if claim is None:
            continue
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except PermissionError as error:
                raise CommandError(
                    f"port {port} of {host}: {error.strerror}. Choose one above 1023."
                ) from None
            except OSError as error:
                if error.errno != 98:  # in use
                    raise CommandError(f"cannot listen on {host}: {error.strerror or error}") from None
                claim.close()
                continue
            return port, claim
    raise CommandError(f"no free port from {wanted} on; name one with --port")


def _claim(port: int) -> socket.socket | None:
    """None when another `up` has chosen it: its web process takes a second to listen. The kernel forgets the dead."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0remit-up-{port}")  # a name without a file
    except OSError:
        claim.close()
        return None
    return claim
