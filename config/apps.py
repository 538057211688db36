"""The Django application `config`: commands and system checks of the whole."""

from django.apps import AppConfig

# The Celery application must exist wherever a job is sent from, also in the web process.
from config import celery, checks, tiers  # noqa: F401  # each registers itself


class ConfigConfig(AppConfig):
    name = "config"
