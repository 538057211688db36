"""The entry point of the web server."""

import os
import warnings

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# WhiteNoise reads small files in one go; Django says so once per process, to no use.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
django.setup(set_prefix=False)

from config.bodies import BodyGate, DiskHandler  # noqa: E402  # after the settings

application = BodyGate(DiskHandler())
