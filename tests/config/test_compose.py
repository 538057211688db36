"""The container files agree with the code that they start. No engine runs here: the files are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.celery import ATTEMPTS_QUEUE, CHANGES_QUEUE, HOOK_THREADS, HOOKS_QUEUE, UPKEEP_QUEUE
from config.env import INTERNAL_VARIABLES, VARIABLES, Plane

ROOT = Path(__file__).resolve().parents[2]
OURS = ("migrate", "web", "worker", "hooks", "beat")
# Not ours: read by uvicorn and Celery themselves.
OTHERS = {"FORWARDED_ALLOW_IPS", "REMAP_SIGTERM"}
KNOWN = {name for name, _, _ in VARIABLES} | INTERNAL_VARIABLES


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return found


def test_the_parts_of_the_product_and_its_profiles_are_there(services: dict[str, Any]) -> None:
    assert {*OURS, "postgres", "redis"} <= set(services)
    assert {name: service["profiles"] for name, service in services.items() if "profiles" in service} == {
        "store": ["s3"],
        "embeddings": ["embeddings"],
    }


@pytest.mark.parametrize("name", OURS)
def test_our_containers_are_plain_users_without_capabilities(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["user"] == "10001:10001"
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service


@pytest.mark.parametrize("name", OURS)
def test_every_variable_of_a_container_is_one_that_is_read(services: dict[str, Any], name: str) -> None:
    environment = services[name]["environment"]
    assert set(environment) - KNOWN - OTHERS == set()
    values = {
        key: re.sub(r"\$\{POSTGRES_PASSWORD[^}]*\}", "secret", value) for key, value in environment.items()
    }
    secrets = {
        "REMIT_SECRET_KEY": "s" * 40,
        "REMIT_CONNECTOR_KEYS": "A" * 43 + "=",
        "REMIT_ORIGIN": "https://remit.example.org",
    }
    plane = Plane.from_env(values | secrets, base=ROOT)
    assert plane.production
    assert plane.process == {"web": "web", "worker": "worker", "hooks": "worker", "beat": "worker"}.get(
        name, "command"
    )


def test_each_queue_has_a_worker_and_one_clock_ticks(services: dict[str, Any]) -> None:
    listened = [
        queue
        for name in OURS
        for queue in _after(services[name].get("command", []), "-Q").split(",")
        if queue
    ]
    assert sorted(listened) == sorted([ATTEMPTS_QUEUE, CHANGES_QUEUE, HOOKS_QUEUE, UPKEEP_QUEUE])
    assert services["hooks"]["command"][-1] == str(HOOK_THREADS)
    assert [name for name in OURS if "-B" in services[name].get("command", [])] == ["beat"]


def test_the_example_of_the_environment_names_only_real_settings() -> None:
    text = (ROOT / "deploy" / "remit.env.example").read_text()
    assert set(re.findall(r"^#?([A-Z_0-9]+)=", text, re.MULTILINE)) - KNOWN == set()


def test_the_overlay_changes_the_worker_alone_and_gives_it_no_capability() -> None:
    overlay = yaml.safe_load((ROOT / "compose.sandbox.yml").read_text())["services"]
    assert set(overlay) == {"worker"}
    worker = overlay["worker"]
    assert worker["cap_drop"] == ["ALL"]
    assert "cap_add" not in worker
    assert "privileged" not in worker
    assert "systempaths=unconfined" in worker["security_opt"]
    assert "seccomp=./deploy/seccomp-bwrap.json" in worker["security_opt"]


def test_the_worker_may_build_namespaces_and_little_else() -> None:
    profile = json.loads((ROOT / "deploy" / "seccomp-bwrap.json").read_text())
    allowed = {
        name
        for rule in profile["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule
        for name in rule["names"]
    }
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"clone", "unshare", "mount", "umount2", "pivot_root", "setns", "seccomp"} <= allowed
    refused = {
        "bpf",
        "ptrace",
        "keyctl",
        "init_module",
        "kexec_load",
        "io_uring_setup",
        "perf_event_open",
        "reboot",
    }
    assert refused & allowed == set()
    assert "socket" not in allowed, "only with a condition: AF_VSOCK reaches the host"


def test_the_image_runs_what_the_manual_says() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "USER 10001:10001" in text
    for program in ("bubblewrap", "ca-certificates", "git", "openssh-client"):
        assert f" {program} " in text
    assert "--require-hashes" in text


def _after(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1] if flag in command else ""
