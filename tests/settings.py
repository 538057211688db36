"""The product's settings over a folder of the tests' own: nothing of this machine's deployment is read or touched."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile


def _own_redis(url: str) -> str:
    """A database of its own per test process, counting down from the one named: each clears its own cache."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if not url:
        return ""
    address, _, number = url.rpartition("/")
    return f"{address}/{int(number) - int(worker)}"


# What a developer exported for a real deployment must not steer the tests; `make test-services`
# says what it wants under these names.
for _name in [name for name in os.environ if name.startswith("REMIT_")] + ["ALLOW_OPUS"]:
    os.environ.pop(_name, None)
os.environ["DATABASE_URL"] = os.environ.get("TEST_DATABASE_URL", "")
os.environ["REDIS_URL"] = _own_redis(os.environ.get("TEST_REDIS_URL", ""))
_folder = tempfile.mkdtemp(prefix="remit-tests-")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
os.environ["REMIT_DATA_DIR"] = _folder
os.environ["REMIT_LOG_LEVEL"] = "warning"

from config.settings import *  # noqa: E402, F403
from config.settings import DATABASES, PLANE  # noqa: E402

# A file, not memory: the races are run with real threads and processes.
if not PLANE.database_url:
    DATABASES["default"]["TEST"] = {"NAME": f"{_folder}/tests.sqlite3"}
    # Waiting for the disk was a third of the suite. A killed process loses nothing by this, only a machine would.
    _options = DATABASES["default"]["OPTIONS"]
    _options["init_command"] = _options["init_command"].replace("synchronous=FULL", "synchronous=OFF")
(PLANE.data_dir / "static").mkdir()
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
# Each test client makes the middleware anew, which looked at every static file: a quarter of what the walks took.
WHITENOISE_AUTOREFRESH = True
