"""`manage.py demo`: an organization to look at, with a real repository and three Changes. Safe to repeat."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils import timezone

from agents.tier import SandboxTier
from agents.workspace.git import Store
from agents.workspace.sandbox import probe
from agents.workspace.trees import commit_files
from budgets.money import Usd
from providers.models import Connector, ConnectorKind
from tasks.changes import WantedChange, WantedCriterion, submit_change
from tasks.importing import fill_project
from tasks.models import Change, Trunk
from tenants.members import add_member, create_organization, create_project
from tenants.models import Membership, Organization, Project, Promotion, Role, User

DEMO_FOLDER = Path(__file__).resolve().parents[3] / "tasks" / "demo"
SLUG = "demo"
OWNER_EMAIL = "ana@example.org"
MEMBER_EMAIL = "ben@example.org"
PASSWORD_FILE = "demo-password"  # noqa: S105  # the name of a file, readable by this user alone
COMMITTED_AT = 1_790_000_000  # fixed, so that every demo starts on the same commit

UNIT_TESTS = WantedCriterion("Everything that worked before still works", "python3 -m unittest")
WANTED = (
    WantedChange(
        title="Ledgers in more than one currency",
        goal=(
            "Customers pay in euro and in dollars. Let a ledger say the currency of each entry, and never add up"
            " different currencies. Ledgers without the column stay as they are."
        ),
        criteria=(
            WantedCriterion("Totals are kept apart by currency", "python3 -m unittest checks.currencies"),
            UNIT_TESTS,
        ),
    ),
    WantedChange(
        title="Split an amount to the last cent",
        goal=(
            "Three people share a bill of 100.00 and somebody must pay the last cent. Split an amount by weights"
            " so that the shares always add up, fairly, and the same way for refunds."
        ),
        criteria=(
            WantedCriterion("Shares add up, by largest remainder", "python3 -m unittest checks.split"),
            UNIT_TESTS,
        ),
        budget=Usd.dollars("2"),
    ),
    WantedChange(
        title="Export totals as CSV and JSON",
        goal=(
            "Other programs want our totals. Write them as CSV and as JSON, and let people choose the format on"
            " the command line. The text report stays the default."
        ),
        criteria=(
            WantedCriterion("All three formats come out right", "python3 -m unittest checks.export"),
            UNIT_TESTS,
        ),
        # Less than it needs: it stops in the middle, and a person raises it on its page.
        budget=Usd.dollars("0.10"),
    ),
)


class Command(BaseCommand):
    help = "Make the demo organization, its repository and three Changes, and print how to sign in."

    def handle(self, *_: Any, **__: Any) -> None:
        password = demo_password()
        owner = _person(OWNER_EMAIL, "Ana", password)
        member = _person(MEMBER_EMAIL, "Ben", password)
        organization = _organization(owner, member)
        project = _project(organization, owner)
        made = submit_wanted(project, owner)
        self.stdout.write(f"Demo: sign in as {OWNER_EMAIL} (owner) or {MEMBER_EMAIL} (member)")
        self.stdout.write(f"      with the password {password}")
        if made:
            self.stdout.write(f"      {len(made)} Changes are on their way; the third will ask for money.")
        if project.trusted:
            self.stdout.write(
                "      No sandbox here (install bubblewrap): the demo's own commands run without one."
            )


def demo_password() -> str:
    """The same one each time on this machine, and on no other machine."""
    path = settings.PLANE.data_dir / PASSWORD_FILE
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(f"{secrets.token_urlsafe(9)}\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def submit_wanted(project: Project, by: User) -> list[Change]:
    """The Changes of the demo that are not there yet, by their titles."""
    there = set(Change.objects.filter(project=project).values_list("title", flat=True))
    return [
        submit_change(project, wanted, by=by, now=timezone.now())
        for wanted in WANTED
        if wanted.title not in there
    ]


def fill_with_ledger(store: Store) -> None:
    """The demo's repository: one commit of the files in `tasks/demo/repository`."""
    folder = DEMO_FOLDER / "repository"
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    store.init()
    commit = commit_files(store, files, message="A small ledger\n", at=COMMITTED_AT)
    store.promote(commit, store.commit_of_main(), "demo")


def _person(email: str, name: str, password: str) -> User:
    user = User.objects.filter(email=email).first()
    if user is None:
        user = User.objects.create_user(email, password, first_name=name)
    elif not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    return user


def _organization(owner: User, member: User) -> Organization:
    organization: Organization | None = Organization.objects.filter(slug=SLUG).first()
    if organization is None:
        organization = create_organization("Demo", SLUG, owner=owner)
    if not Membership.objects.filter(organization=organization, user=member).exists():
        add_member(organization, member, Role.MEMBER, by=owner)
    Connector.objects.get_or_create(
        organization=organization,
        name="main",
        defaults={"kind": ConnectorKind.SCRIPTED, "config": {"scenarios": "scenarios"}},
    )
    return organization


def _project(organization: Organization, owner: User) -> Project:
    project: Project | None = Project.objects.filter(organization=organization, slug="tally").first()
    if project is None:
        project = create_project(
            organization,
            name="Tally",
            slug="tally",
            by=owner,
            description="A small ledger in plain Python.",
            promotion=Promotion.AUTO,
        )
        if probe() is SandboxTier.D:
            # These few files are ours; without a sandbox their tests could not run at all.
            project.trusted = True
            project.save(update_fields=["trusted"])
    if not Trunk.objects.filter(project=project).exists():
        fill_project(project, fill_with_ledger, imported_from="the demo")
    return project
