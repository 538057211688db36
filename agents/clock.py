"""The engine's clock: the one thing about time that a test replaces."""

from __future__ import annotations

import time
from datetime import datetime

from django.utils import timezone


class Clock:
    """Now, and waiting. Doors and jobs use the wall's; a test hands in one that only remembers."""

    def now(self) -> datetime:
        return timezone.now()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


WALL = Clock()
