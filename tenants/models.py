"""People, organizations, projects, and what lets them in."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth.base_user import BaseUserManager
from django.contrib.auth.models import AbstractUser
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from tenants.scope import TenantModel

SLUG = RegexValidator(
    r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
    "1 to 63 of a-z, 0-9 and -, not at the ends",
)


class Role(models.IntegerChoices):
    """What a member may do; a higher one may do all that a lower one may."""

    VIEWER = 10, "viewer"
    MEMBER = 20, "member"
    ADMIN = 30, "admin"
    OWNER = 40, "owner"

    @classmethod
    def of(cls, word: str) -> Role:
        """The role of that name; KeyError for a word that is none."""
        return cls[word.upper()]


class PeopleManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **extra: Any) -> User:
        if not email:
            raise ValueError("a user needs an email address")
        user = self.model(email=self.normalize_email(email).lower(), **extra)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **extra: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **extra)


class User(AbstractUser):
    """A person. The email address is the name to sign in with."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    username = None  # type: ignore[assignment]  # people sign in by email
    email = models.EmailField("email address", unique=True)
    # The filters of the Changes list that this person named: [{"name": ..., "query": ...}, ...]
    saved_views = models.JSONField(default=list, blank=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects = PeopleManager()  # type: ignore[misc,assignment]  # AbstractUser names UserManager

    # Set on the user of one request by `tenants.tokens`: that request sees this organization only.
    token_organization_id: UUID | None = None


class Organization(TenantModel):
    """The tenant: every row hangs on exactly one."""

    tenant_path = ""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.CharField(max_length=63, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200)
    # Hands out the numbers of Changes (CH-42): taken with F() under the row's lock.
    last_change_number = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Membership(TenantModel):
    """One person in one organization, with one role."""

    tenant_path = "organization"

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.PositiveSmallIntegerField(choices=Role.choices, default=Role.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "user"], name="membership_once_per_person_and_organization"
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_a_known_one"),
        ]


class Promotion(models.TextChoices):
    """Who moves main when every criterion passes."""

    PERSON = "person", "a person"
    AUTO = "auto", "Remit, as soon as every criterion passes"


class Project(TenantModel):
    """A repository and the rules under which agents work on it."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="projects")
    slug = models.CharField(max_length=63, validators=[SLUG])
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    # The name of the connector that pays for this project's calls (row 3: never another tenant's).
    connector = models.CharField(max_length=63, default="main")
    plan_needs_approval = models.BooleanField(default=False)
    promotion = models.CharField(max_length=10, choices=Promotion.choices, default=Promotion.PERSON)
    # Commands may run without a sandbox: an owner's explicit word for their own repository, never the default.
    trusted = models.BooleanField(default=False)
    raise_needs_reason = models.BooleanField(default=False)
    # The opus tier uses the opus model only where the deployment's ALLOW_OPUS allows it as well (row 77).
    allow_opus = models.BooleanField(default=True)
    # Overrides of the caps of a run, each within its hard maximum: {"calls_haiku": 24, ...}
    caps = models.JSONField(default=dict, blank=True)
    # Exact argv patterns that an owner allows beside the built-in grammars: [["npm", "run", "e2e"], ...]
    extra_commands = models.JSONField(default=list, blank=True)
    # Commands that wait for a person's yes, as patterns; a last word `...` covers whatever follows.
    approval_commands = models.JSONField(default=list, blank=True)
    # What agents may publish, where it differs from the defaults: {"file_kib_max": 1024, ...}
    publish_rules = models.JSONField(default=dict, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "slug"], name="project_slug_once_per_organization"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Invitation(TenantModel):
    """The only way to an account: a one-time link, sent to one address, for one role. Only a hash is kept."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField("email address")
    role = models.PositiveSmallIntegerField(choices=Role.choices, default=Role.MEMBER)
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "email"],
                condition=Q(accepted_at__isnull=True, revoked_at__isnull=True),
                name="invitation_open_once_per_address_and_organization",
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="invitation_role_is_a_known_one"),
            models.CheckConstraint(
                condition=Q(accepted_at__isnull=True) | Q(revoked_at__isnull=True),
                name="invitation_is_not_accepted_and_revoked",
            ),
        ]


class Scope(models.TextChoices):
    """What a token may do, within what its user may do. Every scope includes `read`; `admin` includes all."""

    READ = "read", "read everything its user can see"
    CHANGES_WRITE = "changes:write", "submit, pause, cancel and promote changes"
    BUDGETS_WRITE = "budgets:write", "raise and lower limits"
    ADMIN = "admin", "everything, also members, settings and tokens"


class ApiToken(TenantModel):
    """A client's key to one organization, as the person who made it. Only a hash is kept."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="tokens")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)


class AuditEntry(TenantModel):
    """Who did what, when, from where: append only."""

    tenant_path = "organization"

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="audit")
    actor = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    action = models.CharField(max_length=60)
    subject = models.CharField(max_length=200)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.TextField(blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    remote = models.CharField(max_length=64, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "audit entries"
        indexes = [models.Index(fields=["organization", "-at"], name="audit_newest_first")]


class IdempotencyRecord(models.Model):
    """What a POST with an `Idempotency-Key` answered, so that its repetition changes nothing."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_once_per_user"),
        ]
