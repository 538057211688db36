"""What an entry of the audit list was about, in words that people know instead of ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from django.urls import NoReverseMatch, reverse

from tenants.models import AuditEntry, Membership, Organization, Project


@dataclass(frozen=True, slots=True)
class Told:
    """An entry with its subject in words, and its page where it has one."""

    entry: AuditEntry
    subject: str
    link: str = ""


def told(entries: Iterable[AuditEntry], organization: Organization) -> Iterator[Told]:
    """Entries about a limit name its owner by kind and id; two queries find all their names."""
    found = list(entries)
    ids = {key for entry in found if (key := _id_in(entry.subject))}
    ours = Project.objects.of_organization(organization.pk).filter(pk__in=ids)
    members = Membership.objects.of_organization(organization.pk).filter(user__in=ids)
    names = {key: ("project", name) for key, name in ours.values_list("pk", "name")}
    names |= {key: ("user", email) for key, email in members.values_list("user_id", "user__email")}
    names[organization.pk] = ("organization", organization.name)
    for entry in found:
        kind, _, _ = entry.subject.partition(" ")
        key = _id_in(entry.subject)
        if key is None:
            yield Told(entry, entry.subject)
        elif key in names:
            of, name = names[key]
            yield Told(entry, f"{kind.replace('_', ' ')} {name}", _page(of, key) if of != "user" else "")
        else:
            link = _page(kind, key)
            yield Told(entry, kind.replace("_", " ") if link else entry.subject, link)


def _id_in(subject: str) -> UUID | None:
    try:
        return UUID(subject.partition(" ")[2])
    except ValueError:
        return None


def _page(name: str, key: UUID) -> str:
    try:
        return reverse(name, args=[key])
    except NoReverseMatch:
        return ""
