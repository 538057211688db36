"""Browser pages of people, organizations and projects."""

from django.urls import URLPattern, URLResolver, path

from tenants.pages import organization, people, projects

_ONE = "organizations/<uuid:organization_id>"
urlpatterns: list[URLPattern | URLResolver] = [
    path("account", people.account, name="account"),
    path("invitations/<str:secret>", people.invitation_accept, name="invitation-accept"),
    path("organizations", organization.organizations, name="organizations"),
    path("organizations/new", organization.organization_new, name="organization-new"),
    path(_ONE, organization.home, name="organization"),
    path(_ONE + "/members", organization.members, name="organization-members"),
    path(_ONE + "/members/<uuid:user_id>/role", organization.member_role, name="member-role"),
    path(_ONE + "/members/<uuid:user_id>/remove", organization.member_remove, name="member-remove"),
    path(_ONE + "/invitations/<uuid:invitation_id>", organization.invitation_act, name="invitation-act"),
    path(_ONE + "/tokens", organization.tokens, name="organization-tokens"),
    path(_ONE + "/tokens/<uuid:token_id>/revoke", organization.token_revoke, name="token-revoke"),
    path(_ONE + "/audit", organization.audit, name="organization-audit"),
    path("projects", projects.projects, name="projects"),
    path("projects/new", projects.project_new, name="project-new"),
    path("projects/<uuid:project_id>", projects.project, name="project"),
    path("projects/<uuid:project_id>/archive", projects.project_archive, name="project-archive"),
]
