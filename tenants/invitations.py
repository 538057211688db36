"""The only way to an account: a one-time link, sent to one address, for one role."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

import structlog
from allauth.account.models import EmailAddress
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Q
from django.template.loader import render_to_string

from tenants import text
from tenants.access import role_of
from tenants.audit import note
from tenants.errors import InvalidInput, NotVisible
from tenants.members import add_member, digest_of, may_grant
from tenants.models import Invitation, Membership, Organization, Role, User

log = structlog.get_logger(__name__)

INVITATION_DAYS = 7
# The same for a used, an ended and an invented one: it tells nothing of which it was.
LINK_REMEDY = f"A link works once, and for {INVITATION_DAYS} days. Ask who invited you for a new one."
INVITATIONS_OPEN_MAX = 200
SECRET_BYTES = 32
PASSWORD_CHARACTERS_MAX = 1_000


def invite(
    organization: Organization, email: str, role: Role, *, by: User, now: datetime
) -> tuple[Invitation, str]:
    """A new invitation and the secret of its link, which is nowhere kept. Raises RoleTooLow or InvalidInput."""
    may_grant(by, organization, role)
    email = text.email("email", email)
    with transaction.atomic():
        Organization.objects.select_for_update().get(
            pk=organization.pk
        )  # two at once: the second sees the first
        _refuse_doubles(organization, email, now=now)
        plain = secrets.token_urlsafe(SECRET_BYTES)
        invitation: Invitation = Invitation.objects.create(
            organization=organization,
            email=email,
            role=role,
            digest=digest_of(plain),
            invited_by=by,
            sent_at=now,
            expires_at=now + timedelta(days=INVITATION_DAYS),
        )
        note(organization, by, "invitation.sent", email, after={"role": role.label})
    return invitation, plain


def renew(invitation: Invitation, *, by: User, now: datetime) -> str:
    """Another secret and a fresh week; the old link ends. Who renews answers for it from now on."""
    may_grant(by, invitation.organization, Role(invitation.role))
    plain = secrets.token_urlsafe(SECRET_BYTES)
    with transaction.atomic():
        renewed = Invitation.objects.filter(_open(), pk=invitation.pk).update(
            digest=digest_of(plain),
            invited_by=by,
            sent_at=now,
            expires_at=now + timedelta(days=INVITATION_DAYS),
        )
        if not renewed:
            raise InvalidInput("", "this invitation is over", "Send a new one.", code="invitation_over")
        note(invitation.organization, by, "invitation.renewed", invitation.email)
    return plain


def revoke(invitation: Invitation, *, by: User, now: datetime) -> None:
    """End an open invitation. A second time changes nothing."""
    may_grant(by, invitation.organization, Role(invitation.role))
    with transaction.atomic():
        if Invitation.objects.filter(_open(), pk=invitation.pk).update(revoked_at=now):
            note(invitation.organization, by, "invitation.revoked", invitation.email)


def open_invitation(plain: str, *, now: datetime) -> Invitation:
    """The invitation of that link. Raises NotVisible for a used, ended, expired or invented one.

    It counts only while the person who sent it could send it: an admin who was removed
    leaves no open doors behind.
    """
    invitation: Invitation | None = (
        Invitation.objects.filter(_open(), digest=digest_of(plain), expires_at__gt=now)
        .select_related("organization", "invited_by")
        .first()
    )
    if invitation is None or invitation.invited_by is None:
        raise NotVisible("invitation", LINK_REMEDY)
    senders_role = role_of(invitation.invited_by, invitation.organization_id)
    if senders_role is None or senders_role < max(Role.ADMIN, invitation.role):
        raise NotVisible("invitation", LINK_REMEDY)
    return invitation


def accept(plain: str, *, user: User, now: datetime) -> Membership:
    """Join with an account that is there. Only the invited address may."""
    with transaction.atomic():
        return _join(open_invitation(plain, now=now), user, now=now)


def accept_as_new(plain: str, *, password: str, name: str, now: datetime) -> User:
    """Make the account of the invited address and join. The link has proved the address."""
    with transaction.atomic():
        invitation = open_invitation(plain, now=now)
        if has_account(invitation):
            raise InvalidInput(
                "",
                "there is an account with this address",
                "Sign in, then open the link again.",
                code="taken",
            )
        user = User(email=invitation.email)
        user.first_name = text.one_line("name", name, characters_max=150, required=False)
        user.set_password(_good_password(password, user))
        user.save()
        EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
        _join(invitation, user, now=now)
    return user


def has_account(invitation: Invitation) -> bool:
    """Whether the invited address belongs to somebody already; asked only with the secret in hand."""
    return User.objects.filter(email=invitation.email).exists()


def send(invitation: Invitation, link: str) -> bool:
    """The letter with the link; call it after the transaction. False when the post is out of reach:
    the link is then handed over by the sender."""
    facts = {"invitation": invitation, "link": link, "days": INVITATION_DAYS}
    try:
        send_mail(
            f"Remit: {invitation.organization.name} invites you",
            render_to_string("tenants/email/invitation.txt", facts),
            from_email=None,
            recipient_list=[invitation.email],
        )
    except OSError as failure:  # also all of smtplib's errors
        log.warning("invitation.not_sent", invitation=str(invitation.pk), problem=type(failure).__name__)
        return False
    return True


def state_of(invitation: Invitation, *, now: datetime) -> str:
    """open, accepted, revoked or expired."""
    if invitation.accepted_at is not None:
        return "accepted"
    if invitation.revoked_at is not None:
        return "revoked"
    return "expired" if invitation.expires_at <= now else "open"


def _join(invitation: Invitation, user: User, *, now: datetime) -> Membership:
    """Whoever moves the row joins; a second click moves nothing."""
    if user.email != invitation.email or not user.is_active:
        raise InvalidInput(
            "",
            f"this invitation is for {invitation.email}, and you are signed in with another account",
            f"Sign in as {invitation.email}.",
            code="wrong_account",
        )
    still_open = Invitation.objects.filter(_open(), pk=invitation.pk, expires_at__gt=now)
    if not still_open.update(accepted_at=now, accepted_by=user):
        raise NotVisible("invitation")
    # Remit itself lets them in: that the sender's role reaches was asked with the link.
    membership = add_member(invitation.organization, user, Role(invitation.role), by=None)
    note(invitation.organization, user, "invitation.accepted", user.email)
    return membership


def _refuse_doubles(organization: Organization, email: str, *, now: datetime) -> None:
    if Membership.objects.of_organization(organization.pk).filter(user__email=email).exists():
        raise InvalidInput(
            "email", "is a member already", "Change their role instead.", code="already_member"
        )
    waiting = Invitation.objects.of_organization(organization.pk).filter(_open())
    waiting.filter(email=email, expires_at__lte=now).update(revoked_at=now)
    if waiting.filter(email=email).exists():
        raise InvalidInput("email", "has an open invitation", "Send that one again.", code="already_invited")
    if waiting.count() >= INVITATIONS_OPEN_MAX:
        raise InvalidInput(
            "", f"{INVITATIONS_OPEN_MAX} invitations are open", "Revoke some first.", code="too_many"
        )


def _good_password(password: str, user: User) -> str:
    if not isinstance(password, str) or len(password) > PASSWORD_CHARACTERS_MAX:
        raise InvalidInput("password", "is too long", f"Use at most {PASSWORD_CHARACTERS_MAX:,} characters.")
    try:
        validate_password(password, user)
    except ValidationError as refused:
        raise InvalidInput("password", "is too weak", " ".join(refused.messages), code="weak") from None
    return password


def _open() -> Q:
    return Q(accepted_at__isnull=True, revoked_at__isnull=True)
