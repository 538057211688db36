"""Every route, top to bottom."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from agents import api as agents_api
from agents import pages as agents_pages
from budgets import api as budgets_api
from config import health
from providers import api as providers_api
from providers import pages as providers_pages
from tasks.api import incoming
from tasks.api import urls as tasks_api
from tasks.pages import urls as tasks_pages
from tenants import api as tenants_api
from tenants import pages as tenants_pages
from webhooks import api as webhooks_api
from webhooks import pages as webhooks_pages

handler400 = "config.errors.bad_request"
handler403 = "config.errors.forbidden"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"

# Every app lists its own routes; this is the one namespace of the version.
api_v1: list[URLPattern | URLResolver] = [
    *tasks_api.urlpatterns,
    *budgets_api.urlpatterns,
    *tenants_api.urlpatterns,
    *providers_api.urlpatterns,
    *webhooks_api.urlpatterns,
    *agents_api.urlpatterns,
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="v1:schema"), name="docs"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("api/v1/", include((api_v1, "v1"))),
    *tasks_pages.urlpatterns,
    *tenants_pages.urlpatterns,
    *providers_pages.urlpatterns,
    *webhooks_pages.urlpatterns,
    *incoming.urlpatterns,
    *agents_pages.urlpatterns,
    # An address is proved by its invitation, so nobody changes it by themselves.
    path("accounts/email/", RedirectView.as_view(pattern_name="account")),
    path("accounts/", include("allauth.urls")),
    path("admin/", admin.site.urls),
]
