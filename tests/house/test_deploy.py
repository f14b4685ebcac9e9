"""What the Dockerfile, the compose file and redis.conf promise, read from them, and each promise seen when it is broken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import pytest
from house.deployed import (
    argv_of,
    compose_of,
    conf_of,
    default_of,
    instructions,
    last_stage,
    seconds_of,
    services,
)
from house.reading import ROOT, the_house
from servers import LOUD
from treadle.shared.settings import ENV_PREFIX, Settings
from treadle.shared.store.embedded import CONFIGURATION
from treadle.worker.abandoning import ABANDON_S
from treadle.worker.cli import END_S
from treadle.worker.exits import Exit

STORE, WORKERS = "redis", ("worker1", "worker2")
CONF_AT = "/etc/treadle/redis.conf"
SAME_AS_EMBEDDED = ("appendonly", "appendfsync", "maxmemory-policy", "stream-node-max-bytes", "save")
ENDED_BY = Settings.model_fields["grace_s"].default + Settings.model_fields["lease_ttl_s"].default + END_S + ABANDON_S
"""By then a Worker has ended by itself, with its work given back."""
PERSONS = (Exit.MISUSE, Exit.REPLACED, Exit.STORE_LOST)
"""After these nothing gets better by itself."""
SECRETS = ("requirepass", "masterauth", "masteruser", "user", "tls-key-file-pass")


@dataclass(frozen=True)
class Deployed:
    """The texts that deploy the house."""

    dockerfile: str
    compose: str
    conf: str
    ignore: str
    readme: str
    unit: str
    pod: str

    @classmethod
    def read(cls) -> Self:
        names = ["Dockerfile", "../docker-compose.yml", "redis.conf", "../.dockerignore", "README.md"]
        names += ["treadle-worker.service", "kubernetes.yaml"]
        return cls(*((ROOT / "deploy" / name).read_text(encoding="utf-8") for name in names))

    def faults(self) -> list[str]:
        return [*self._image(), *self._store(), *self._cluster(), *self._supervised(), *self._told()]

    def _image(self) -> Iterator[str]:
        try:
            entry = argv_of(self.dockerfile)[0]
        except ValueError as error:
            yield f"Dockerfile: a shell would be process 1: {error}"
            return
        pyproject = the_house().pyproject
        if entry not in pyproject["project"]["scripts"]:
            yield f"Dockerfile: {entry} is no command of this project"
        users = [one.rest for one in last_stage(self.dockerfile) if one.word == "USER"]
        if not users or not re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", users[-1]):
            yield f"Dockerfile: USER is {users[-1:]}, must be a number other than 0: orchestrators check just that"
        every = instructions(self.dockerfile)
        froms = [one.rest.split()[0] for one in every if one.word == "FROM"]
        if set(froms) != {"${BASE}"} or not any(one.word == "ARG" and one.rest.startswith("BASE=") for one in every):
            yield f"Dockerfile: built from {froms}, not from what BASE says"
        runs = " ".join(one.rest for one in every if one.word == "RUN")
        if "'.[fast]'" not in runs:
            yield "Dockerfile: does not install the project with its extra `fast`"
        let_in = {line[1:] for line in self.ignore.splitlines() if line.startswith("!")}
        needed = {"pyproject.toml", *pyproject["tool"]["setuptools"]["package-dir"].values()}
        needed |= {pyproject["project"]["readme"], *pyproject["project"]["license-files"]}
        if "*" not in self.ignore.splitlines() or not needed <= let_in:
            yield f".dockerignore: must let in just what is built, lacks {sorted(needed - let_in)}"

    def _store(self) -> Iterator[str]:
        conf, embedded = conf_of(self.conf), conf_of(CONFIGURATION)
        for name in SAME_AS_EMBEDDED:
            if conf.get(name) != embedded[name]:
                yield f"redis.conf: {name} is {conf.get(name)!r}, the embedded server has {embedded[name]!r}"
        yield from (f"redis.conf: {name} is a secret in the repository" for name in SECRETS if name in conf)
        store = self._services[STORE]
        if store.get("command") != [CONF_AT] or f"./deploy/redis.conf:{CONF_AT}:ro" not in store["volumes"]:
            yield "redis: does not run with deploy/redis.conf"
        kept = [volume for volume in store["volumes"] if volume.endswith(f":{conf.get('dir')}")]
        if len(kept) != 1 or kept[0].partition(":")[0] not in self._compose["volumes"]:
            yield f"redis: {conf.get('dir')} is not on a volume of its own, so the data goes with the container"
        check = store.get("healthcheck", {}).get("test", [])
        if check[:1] != ["CMD"] or "-e" not in check:
            yield f"redis: health check {check} passes while it still loads its data"

    def _cluster(self) -> Iterator[str]:
        for name, service in self._services.items():
            if "ALL" not in service.get("cap_drop", []) or service.get("read_only") != "true":
                yield f"{name}: has capabilities, or a file system that can be written"
            if "no-new-privileges:true" not in service.get("security_opt", []):
                yield f"{name}: may gain privileges"
            if "ports" in service or service.get("network_mode") or service.get("privileged"):
                yield f"{name}: opens more than the networks of the file"
            if name == STORE:
                continue
            if service.get("depends_on", {}).get(STORE) != {"condition": "service_healthy"}:
                yield f"{name}: does not wait for a healthy store"
            if seconds_of(default_of(service.get("stop_grace_period", "10s"))) <= ENDED_BY:
                yield f"{name}: is killed within {ENDED_BY:g} s, before it has ended by itself"
            if unknown := set(service["environment"]) - {
                f"{ENV_PREFIX}{field.upper()}" for field in Settings.model_fields
            }:
                yield f"{name}: sets {sorted(unknown)}, which are no settings"
        for name in WORKERS:
            service = self._services[name]
            if {"hostname", "container_name", "command", "entrypoint"} & service.keys():
                yield f"{name}: scaled, its Workers would have one name; or it is not what the image runs"
            if service.get("restart") != "unless-stopped":
                yield f"{name}: stays away after a crash"
        hosts = [set(self._services[name]["networks"]) for name in WORKERS]
        if hosts[0] & hosts[1]:
            yield f"the hosts reach each other over {sorted(hosts[0] & hosts[1])}"
        if not set.union(*hosts) <= set(self._services[STORE]["networks"]) <= self._compose["networks"].keys():
            yield "redis: is not in the networks of both hosts"
        if self._services["coordinator"].get("profiles") != ["tools"]:
            yield "coordinator: a plain `up` would start it"

    def _supervised(self) -> Iterator[str]:
        unit = dict(re.findall(r"^(\w+)=(.*)$", self.unit, re.MULTILINE))
        if float(unit.get("TimeoutStopSec", 0)) <= ENDED_BY:
            yield f"treadle-worker.service: is killed within {ENDED_BY:g} s, before it has ended by itself"
        if (unit.get("KillMode"), unit.get("KillSignal", "SIGTERM")) != ("mixed", "SIGTERM"):
            yield "treadle-worker.service: its handlers' programs are ended before it can end them"
        if unit.get("RestartPreventExitStatus", "").split() != [str(int(status)) for status in PERSONS]:
            yield "treadle-worker.service: is started again for ever where a person must look"
        period = re.search(r"terminationGracePeriodSeconds: (\d+)$", self.pod, re.MULTILINE)
        if period is None or int(period[1]) <= ENDED_BY:
            yield f"kubernetes.yaml: is killed within {ENDED_BY:g} s, before it has ended by itself"
        if 'command: ["treadle-worker", "drain", "--all", "--wait"]' not in self.pod:
            yield "kubernetes.yaml: its preStop hook does not wait for the end of what runs"
        if "readOnlyRootFilesystem: true" in self.pod and "mountPath: /tmp\n" not in self.pod:
            yield "kubernetes.yaml: there is no place for the record by which drain finds it"

    def _told(self) -> Iterator[str]:
        """Each variable that is asked for has its line in deploy/README.md, and no other has."""
        asked = set(re.findall(r"\$\{([A-Z0-9_]+)", self.compose))
        asked |= {name for _, service in services(self._compose) for name in service.get("environment", {})}
        sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "deploy").glob("*.py")))
        asked |= set(re.findall(r'"(TREADLE_TRY_[A-Z]+)"', sources))
        told = set(re.findall(r"^\| `([A-Z0-9_]+)`", self.readme, re.MULTILINE))
        yield from (f"deploy/README.md: {name} is asked for and not told" for name in sorted(asked - told))
        yield from (f"deploy/README.md: {name} is told and not asked for" for name in sorted(told - asked))

    @property
    def _compose(self) -> dict[str, Any]:
        return compose_of(self.compose)

    @property
    def _services(self) -> Mapping[str, Mapping[str, Any]]:
        return dict(services(self._compose))


BROKEN = [
    ("dockerfile", 'ENTRYPOINT ["treadle-worker"]', "ENTRYPOINT treadle-worker"),
    ("dockerfile", 'ENTRYPOINT ["treadle-worker"]', 'ENTRYPOINT ["sh", "-c", "treadle-worker run"]'),
    ("dockerfile", 'CMD ["run", "--handlers", "handlers"]', "CMD run --handlers handlers"),
    ("dockerfile", "USER 10001:10001", "USER root"),
    ("dockerfile", "USER 10001:10001\n", ""),
    ("dockerfile", "FROM ${BASE}\n", "FROM python:3.11\n"),
    ("dockerfile", "'.[fast]'", "."),
    ("ignore", "!worker\n", ""),
    ("ignore", "*\n!pyproject.toml", "!pyproject.toml"),
    ("conf", "maxmemory-policy noeviction", "maxmemory-policy allkeys-lru"),
    ("conf", "appendonly yes", "appendonly no"),
    ("conf", "stream-node-max-bytes 512", ""),
    ("conf", "appendonly yes", "appendonly yes\nrequirepass secret"),
    ("compose", "      - redis-data:/data\n", ""),
    ("compose", '"-e", ', ""),
    ("compose", ":-45s}", ":-40s}"),
    ("compose", "  stop_grace_period: ${TREADLE_STOP_GRACE:-45s}\n", ""),
    ("compose", "  cap_drop:\n    - ALL\n", ""),
    ("compose", "  read_only: true\n  tmpfs", "  tmpfs"),
    ("compose", "    networks:\n      - host2\n", "    networks:\n      - host1\n      - host2\n"),
    ("compose", "      - host1\n      - host2\n      - desk\n", "      - host1\n      - desk\n"),
    ("compose", "    networks:\n      - host2\n", "    hostname: two\n    networks:\n      - host2\n"),
    ("compose", "condition: service_healthy", "condition: service_started"),
    ("compose", "    profiles:\n      - tools\n", ""),
    ("compose", "    TREADLE_SLOTS:\n", "    TREADLE_SLOT:\n"),
    ("readme", "| `TREADLE_STOP_GRACE`", "| `TREADLE_STOP`"),
    ("unit", "TimeoutStopSec=45", "TimeoutStopSec=40"),
    ("unit", "KillMode=mixed\n", ""),
    ("unit", "KillSignal=SIGTERM", "KillSignal=SIGINT"),
    ("unit", "RestartPreventExitStatus=2 4 5", "RestartPreventExitStatus=2 5"),
    ("pod", "Seconds: 45", "Seconds: 30"),
    ("pod", '"--all", "--wait"]', '"--all"]'),
    ("pod", "mountPath: /tmp\n", "mountPath: /var/tmp\n"),
]


def test_every_promise_holds() -> None:
    assert Deployed.read().faults() == []


@pytest.mark.parametrize(("part", "old", "new"), BROKEN, ids=[f"{row[0]}-{at}" for at, row in enumerate(BROKEN)])
def test_a_broken_promise_is_seen(part: str, old: str, new: str) -> None:
    deployed = Deployed.read()
    text: str = getattr(deployed, part)
    assert old in text
    broken = {part: text.replace(old, new)}
    assert replace(deployed, **broken).faults()


def test_what_is_mounted_and_built_is_there() -> None:
    compose = compose_of((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    for _, service in services(compose):
        mounted = [volume.split(":")[0] for volume in service.get("volumes", []) if volume.startswith(".")]
        built = [service["build"]["dockerfile"]] if "build" in service else []
        for name in [*mounted, *built]:
            assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    "text",
    [
        "a: b: c\n",
        "a:\n  b: c\n    d: e\n",
        "a: |\n  b\n",
        "a: {b: c}\n",
        "a: 'b'\n",
        "- a\nb: c\n",
        "a: 1\na: 2\n",
        "a\n",
    ],
)
def test_yaml_beyond_the_reader_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        compose_of(text)


def validators() -> list[list[str]]:
    """Each program here that can tell whether a compose file is one; none of them needs an engine for that."""
    found = [[named] for name in ("TREADLE_TRY_COMPOSE",) if (named := os.environ.get(name))]
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        found.append(["docker", "compose"])
    return found + [[path] for name in ("docker-compose",) if (path := shutil.which(name))]


def test_compose_itself_accepts_the_file() -> None:
    found = validators()
    if not found:
        pytest.skip(
            f"{LOUD}neither `docker compose` nor `docker-compose` is here, so nothing else read the compose file"
        )
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "COMPOSE_"))}
    for command in found:
        ran = subprocess.run([*command, "config", "--quiet"], cwd=ROOT, env=bare, capture_output=True, text=True)
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
