"""deploy/kubernetes: rendered by kustomize, valid for Kubernetes, and consistent in itself."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from moorage.common.config.loader import load
from moorage.common.model.addresses import split_address

from .manifests import LATER, OVERLAYS, SOURCE, Manifests, containers, kustomize

pytestmark = pytest.mark.deploy
VALIDATE = Path(__file__).parents[2] / ".venv-deploy" / "bin" / "kubernetes-validate"
# The oldest version that is still supported somewhere, and the newest one that the program
# supports.
VERSIONS = ("1.30", "1.37")


@pytest.fixture(scope="module", params=OVERLAYS)
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return kustomize(request.param, tmp_path_factory.mktemp("manifests"))


@pytest.fixture(scope="module")
def manifests(rendered: str) -> Manifests:
    return Manifests(rendered)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_would_accept_them(rendered: str, tmp_path: Path, version: str) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(rendered)
    done = subprocess.run(
        [VALIDATE, "--strict", "-k", version, file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("component", ["gpus", "all-gpus"])
def test_each_component_gives_the_agents_gpus(tmp_path: Path, component: str) -> None:
    folder = tmp_path / "kubernetes" / "mine"
    folder.mkdir(parents=True)
    (folder / "kustomization.yaml").write_text(
        f"resources: [../base]\ncomponents: [../components/{component}]\n"
    )
    pod = Manifests(kustomize("mine", tmp_path)).pods()["moorage-agent"]["spec"]
    [agent] = pod["containers"]
    by_runtime = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in agent["env"]
    found = (
        agent["resources"]["limits"].get("nvidia.com/gpu"),
        pod.get("runtimeClassName"),
        by_runtime,
    )
    assert found == {"gpus": ("8", None, False), "all-gpus": (None, "nvidia", True)}[component]


def matches(selector: dict[str, str], pods: list[dict[str, Any]]) -> bool:
    return any(selector.items() <= pod["metadata"]["labels"].items() for pod in pods)


def test_what_is_named_exists(manifests: Manifests) -> None:
    pods = list(manifests.pods().values())
    known = {(one["kind"], one["metadata"]["name"]) for one in manifests.all}
    ports = {
        port["name"] for pod in pods for one in containers(pod) for port in one.get("ports", [])
    }
    for service in manifests.of("Service"):
        assert matches(service["spec"]["selector"], pods), service
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for budget in manifests.of("PodDisruptionBudget"):
        assert matches(budget["spec"]["selector"]["matchLabels"], pods), budget

    for policy in manifests.of("NetworkPolicy"):
        assert matches(policy["spec"]["podSelector"]["matchLabels"], pods), policy
        for rule in policy["spec"]["ingress"]:
            for peer in rule.get("from", []):
                assert "podSelector" not in peer or matches(
                    peer["podSelector"]["matchLabels"], pods
                ), policy

            names = {port["port"] for port in rule.get("ports", [])}
            assert {name for name in names if isinstance(name, str)} <= ports

    for workload in manifests.of("StatefulSet"):
        assert ("Service", workload["spec"]["serviceName"]) in known

    for pod in pods:
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in known
            elif "secret" in volume and volume["secret"]["secretName"] != LATER:
                assert ("Secret", volume["secret"]["secretName"]) in known


def test_every_volume_that_is_mounted_exists(manifests: Manifests) -> None:
    for workload in manifests.of("Deployment", "StatefulSet", "DaemonSet"):
        pod = workload["spec"]["template"]
        claims = [
            one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", [])
        ]
        known = {*(volume["name"] for volume in pod["spec"]["volumes"]), *claims}
        used = {mount["name"] for one in containers(pod) for mount in one["volumeMounts"]}
        assert used == known, workload["metadata"]["name"]


def test_managers_read_every_key_of_their_secret(manifests: Manifests) -> None:
    """This includes the first administrator's key: a generated one would be lost with its pod."""
    [secret] = [
        one
        for one in manifests.of("Secret")
        if one["metadata"]["name"].startswith("moorage-manager")
    ]
    for one in containers(manifests.pods()["moorage-manager"]):
        [mount] = [mount for mount in one["volumeMounts"] if mount["name"] == "secrets"]
        values = [str(variable.get("value")) for variable in one["env"]]
        read = {
            value.rpartition("/")[2] for value in values if value.startswith(mount["mountPath"])
        }
        assert read == set(secret["data"]) == {"dsn", "ca-secret", "secrets-keys", "admin-key"}


def test_containers_are_confined(manifests: Manifests) -> None:
    for name, pod in manifests.pods().items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name

        # Otherwise Kubernetes sets variables such as MOORAGE_MANAGER_PORT, which look like
        # settings.
        assert spec["enableServiceLinks"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        for one in containers(pod):
            own = one["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, one["name"]
            assert own["readOnlyRootFilesystem"] is True, one["name"]
            assert own["capabilities"]["drop"] == ["ALL"], one["name"]
            assert one["resources"]["limits"]["memory"], one["name"]
            assert own.get("runAsUser", 1) != 0 or one["name"] == "own", one["name"]


def test_tokens_and_secrets_are_not_where_kernels_run(manifests: Manifests) -> None:
    [agent] = manifests.pods()["moorage-agent"]["spec"]["containers"]
    assert {mount["name"] for mount in agent["volumeMounts"]} == {"settings", "state", "tmp", "shm"}


def test_a_liveness_probe_never_ends_kernels(manifests: Manifests) -> None:
    [agent] = manifests.pods()["moorage-agent"]["spec"]["containers"]
    assert "livenessProbe" not in agent
    assert "readinessProbe" in agent


def test_ports_are_those_of_the_settings(manifests: Manifests) -> None:
    settings = load(SOURCE / "base" / "moorage.toml", {}, {}).settings
    expected = {
        "api": settings.manager.listen, "link": settings.manager.link_listen, "models": settings.proxy.listen,
        "internal": settings.proxy.internal_listen, "metrics": settings.agent.metrics_listen,
    }  # fmt: skip
    found = {
        port["name"]: port["containerPort"]
        for name, pod in manifests.pods().items() if name != "moorage-postgres"
        for one in containers(pod) for port in one.get("ports", [])
    }  # fmt: skip
    assert found == {name: split_address(address)[1] for name, address in expected.items()}
    low, high = map(int, settings.agent.port_range.split("-"))
    [agents] = [
        p for p in manifests.of("NetworkPolicy") if p["metadata"]["name"] == "moorage-agent"
    ]
    kernels = [
        port
        for rule in agents["spec"]["ingress"]
        for port in rule.get("ports", [])
        if "endPort" in port
    ]
    assert kernels == [{"port": low, "endPort": high}]
