"""Django's settings. What differs between deployments comes from `config.env`."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import django_stubs_ext
from csp.constants import NONE, SELF

from config import logs, stores
from config.env import Plane

# Lets annotations such as `QuerySet[Change]` stand in running code.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
PLANE = Plane.from_env(os.environ, base=BASE_DIR)

SECRET_KEY = PLANE.secret_key
DEBUG = PLANE.debug
_origin_host = urlsplit(PLANE.origin).hostname
ALLOWED_HOSTS = [*PLANE.allowed_hosts, *([_origin_host] if _origin_host else [])]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
AUTH_USER_MODEL = "tenants.User"
# SQLite makes an index without the columns that ride along in it on PostgreSQL.
SILENCED_SYSTEM_CHECKS = ["models.W040"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
BUDGET_THRESHOLDS = PLANE.budget_thresholds
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False  # one language: every lookup of a translation or of a number's form is time lost

INSTALLED_APPS = [
    "tasks",
    "agents",
    "webhooks",
    "budgets",
    "providers",
    "tenants",
    "config",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "django_htmx",
    "allauth",
    "allauth.account",
    "allauth.mfa",
]

MIDDLEWARE = [
    "tenants.origin.OriginMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "config.rest.RestAnswersMiddleware",
    "config.errors.BodyLimitMiddleware",
    "config.errors.PlainAddressMiddleware",
    "config.errors.AdminAddressMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "config.errors.DomainErrorMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": stores.database(PLANE)}
STORAGES = stores.storages(PLANE)
CACHES = {"default": stores.cache(PLANE)}
globals().update(stores.mail(PLANE))
DEFAULT_FROM_EMAIL = SERVER_EMAIL = PLANE.email_from

STATIC_URL = "/static/"
STATIC_ROOT = PLANE.data_dir / "static" if not PLANE.production else BASE_DIR / "staticfiles"
STATICFILES_DIRS = [path for path in [BASE_DIR / "static"] if path.is_dir()]
# From a checkout the files are served where they lie; an image collects and compresses them once.
WHITENOISE_USE_FINDERS = not PLANE.production
WHITENOISE_AUTOREFRESH = PLANE.debug

# ---- The browser's walls. No page needs anything from another origin, and none has inline code.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PLANE.https
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = [*([PLANE.origin] if PLANE.origin else []), *PLANE.csrf_origins]
SECURE_HSTS_SECONDS = 31_536_000 if PLANE.https else 0
SECURE_SSL_REDIRECT = PLANE.production
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]  # asked from inside, without TLS
if PLANE.behind_proxy:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# A goal of 1 MB must reach the form that can name the field; more is refused as a whole.
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

# ---- People sign in by email; accounts are made by invitation.
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
ACCOUNT_ADAPTER = "config.accounts.ByInvitation"
MFA_ADAPTER = "config.accounts.SealedFactors"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"  # the invitation proved the address
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "Remit: "
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
CSRF_FAILURE_VIEW = "config.errors.csrf_failed"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tenants.tokens.BearerToken",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tenants.tokens.ScopeAllows"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["config.rest.StrictJson"],
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "config.rest.NewestFirst",
    "DEFAULT_SCHEMA_CLASS": "config.schema.Schema",
    "DEFAULT_THROTTLE_CLASSES": ["config.rest.ClientRate", "config.rest.OrganizationRate"],
    "DEFAULT_THROTTLE_RATES": {"client": "600/min", "organization": "3000/min"},
    "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.NamespaceVersioning",
    "DEFAULT_VERSION": "v1",
    "ALLOWED_VERSIONS": ["v1"],
    "EXCEPTION_HANDLER": "config.errors.problem_response",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Remit",
    "DESCRIPTION": "Hand a Change to coding agents that cannot overspend.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": [
        "rest_framework.permissions.AllowAny"
    ],  # it says what can be asked, not what is there
    "SCHEMA_PATH_PREFIX": r"/api/v[0-9]+",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "HookKindEnum": "webhooks.models.HookKind",
        "ConnectorKindEnum": "providers.models.ConnectorKind",
        "RoleEnum": "tenants.shapes.ROLE_WORDS",
        "AllowanceStateEnum": "budgets.allowances.STATES",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "config.schema.with_problems",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

CELERY_DB_REUSE_MAX = PLANE.database_reuse_max
LOGGING_CONFIG = None
logs.configure(PLANE.log_level, PLANE.log_format)
