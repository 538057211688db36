"""The Django application `config`: commands and system checks of the whole."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"
