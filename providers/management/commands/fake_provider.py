"""`manage.py fake_provider`: a provider on this machine, to point connectors at and watch a Change over a real wire."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from providers.fake.server import FakeProvider, FakeServer
from providers.scenarios import ScenarioError, load_scenarios

PORT = 8711


class Command(BaseCommand):
    help = "Runs a provider on 127.0.0.1 that speaks the four wires and plays scenario files."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("scenarios", nargs="?", help="a scenario file or a directory of them")
        parser.add_argument("--port", type=int, default=PORT)
        parser.add_argument("--key", default="", help="the key that requests must carry; any when not given")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            entries = load_scenarios(Path(options["scenarios"])) if options["scenarios"] else ()
            server = FakeServer(FakeProvider(entries, key=options["key"], polite=True), port=options["port"])
        except (ScenarioError, OSError, OverflowError) as error:
            raise CommandError(str(error)) from None
        for wire in ("anthropic", "openai", "openrouter", "google"):
            self.stdout.write(f"{wire:<11} base URL {server.url(wire)}")
        self.stdout.write(
            'A connector that plays scenarios has the config {"send_labels": true}. Ctrl-C stops.'
        )
        server.serve()
