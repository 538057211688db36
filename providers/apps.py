"""The Django application `providers`."""

from django.apps import AppConfig
from django.conf import settings

from providers import catalog

# In the data directory: models and prices that an operator adds or overrides (row 86).
OWN_MODELS_FILE = "models.yaml"


class ProvidersConfig(AppConfig):
    default_auto_field = "django.db.models.BigAutoField"
    name = "providers"

    def ready(self) -> None:
        own = settings.PLANE.data_dir / OWN_MODELS_FILE
        if own.is_file():
            catalog.use_own_file(own)
