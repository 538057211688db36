"""What git says of a server that does not give its repository, in words that name the remedy. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.workspace.sources import Source, Way


@dataclass(frozen=True, slots=True)
class Refusal:
    code: str  # stable
    problem: str
    remedy: str


_HTTPS_ACCESS = (
    "give --username and --password-file (an access token counts as a password), or set REMIT_GIT_CREDENTIALS"
)
_SSH_ACCESS = "name a private key that the server knows in REMIT_GIT_SSH_KEY"
_COMPARE = (
    "compare its key with what the server's owner says, then put it into the file of REMIT_GIT_KNOWN_HOSTS"
)

# The first that fits counts. Each: a pattern of git's, curl's or ssh's words; the code; the problem; the remedy.
_KNOWN: tuple[tuple[str, str, str, str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .* has changed",
        "host_key_changed", "the server's key is not the known one: perhaps this is another server", _COMPARE,
    ),
    (
        r"host key is known|Host key verification failed|authenticity of host",
        "unknown_host_key", "the server's key is not known", _COMPARE,
    ),
    (
        r"UNPROTECTED PRIVATE KEY|bad permissions",
        "unprotected_key", "ssh takes no private key that others may read", "chmod 600 the file of REMIT_GIT_SSH_KEY",
    ),
    (
        r"Load key .*: |passphrase",
        "unreadable_key", "the private key cannot be read, or wants a passphrase",
        "name a key without one in REMIT_GIT_SSH_KEY",
    ),
    (
        r"no alternative certificate subject name|does not match target host|not valid for host",
        "wrong_certificate", "the server's certificate is of another name", "use the name that its certificate has",
    ),
    (
        r"certificate has expired",
        "expired_certificate", "the server's certificate has expired", "have it renewed on the server",
    ),
    (
        r"SSL certificate problem|certificate verif|certificate signer|self.signed|get local issuer",
        "untrusted_certificate",
        "nobody whom this machine trusts has signed the server's certificate, or it is out of date",
        "put its authority's certificate into a PEM file and name that in REMIT_GIT_CA_FILE, or have it renewed",
    ),
    (
        r"redirect|returned error: 30\d",
        "redirected", "the server sends to another address, which is not followed",
        "ask for the address where it is now (often the one that ends with .git)",
    ),
    (
        r"Authentication failed|could not read (Username|Password)|terminal prompts disabled|Access denied"
        r"|returned error: 40[13]|Invalid credentials",
        "access_denied", "the server does not take this name and password, or wants one", _HTTPS_ACCESS,
    ),
    (
        r"Permission denied \(|Too many authentication failures|no mutual signature|Received disconnect",
        "access_denied", "the server does not take the key, or there is none", _SSH_ACCESS,
    ),
    (
        r"repository '.*' not found|returned error: 404|does not appear to be a git repository|Repository not found"
        r"|not a git repository|no such path|does not exist",
        "no_repository", "there is no repository at this address, or it is hidden from this account",
        "check the path and the access",
    ),
    (
        r"not valid: is this a git repository|invalid .*response|unexpected|bad line length|protocol error",
        "no_repository", "what answers there does not speak git", "check the address",
    ),
    (
        r"ould not resolve|Name or service not known",
        "unknown_host", "the host has no address", "check the host's name",
    ),
    (r"^larger than", "too_large", "the repository is larger than an import may be", "raise REMIT_IMPORT_MIB_MAX"),
    (
        r"out of memory|memory exhausted|malloc",
        "too_large", "its history needs more memory than an import may take", "import a shallow clone of it",
    ),
    (
        r"Operation too slow|timed out|not finished after|Timeout",
        "too_slow", "the server did not answer in time", "try again, or import a local clone of it",
    ),
    (
        r"refused|connect to|No route|unreachable|connection (closed|reset)|early EOF|hung up|RPC failed|GnuTLS",
        "unreachable", "the connection failed", "check the address, the port and the way there",
    ),
    (
        r"ssh is not installed",
        "no_ssh", "there is no ssh on this machine", "install openssh-client, or use https",
    ),
)  # fmt: skip


_ANYWHERE = ("too_large", "too_slow")  # what a folder or a bundle can be as well


def refusal_of(said: str, source: Source) -> Refusal:
    """The refusal behind git's words, which stand at its end for whoever has to look deeper."""
    for pattern, code, problem, remedy in _KNOWN:
        asked = source.is_remote or code in _ANYWHERE
        if asked and re.search(pattern, said, re.IGNORECASE | re.MULTILINE):
            by_ssh = code == "access_denied" and source.way is Way.SSH
            return Refusal(code, f"{problem} (git says: {said})", _SSH_ACCESS if by_ssh else remedy)
    return Refusal("unreadable_source", f"git cannot read it: {said}", "check the address and access")
