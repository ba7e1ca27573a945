"""The files of deploy/ are valid by the linters of their formats, and name only settings and metrics that exist."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml
from tests.docs import monitoring, reference
from tests.support.pasting import Block, blocks_of

from postroom.cli import COMMANDS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SETTINGS = set(
    re.findall(r"^\| `(POSTROOM_\w+)`", (ROOT / "docs/reference/settings.md").read_text("utf-8"), re.MULTILINE)
)
METRICS = {metric.name: metric for metric in reference.metrics()}
KUBERNETES = "1.30"

_SETTING = re.compile(r"\bPOSTROOM_[A-Z_]+")
_METRIC = re.compile(r"\bpostroom_[a-z_]+")


def check(path: Path, expected: str) -> None:
    """Compare a file with the generated one; under `./dev docs`, write it."""
    if os.environ.get("POSTROOM_WRITE_DOCS"):
        path.write_text(expected, "utf-8")
    assert path.read_text("utf-8") == expected, f"{path.relative_to(ROOT)} differs from the code: run ./dev docs"


def manifests() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text("utf-8"))


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in manifests() if found["kind"] == kind]


def run(*command: str | Path) -> str:
    """Run a linter; its complaints are the failure, or what it printed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_dashboard_shows_every_metric() -> None:
    """The file is the generated one, with a panel per metric; panels of a row do not overlap."""
    check(DEPLOY / "grafana" / "postroom.json", monitoring.dashboard(list(METRICS.values())))
    panels = json.loads((DEPLOY / "grafana" / "postroom.json").read_text("utf-8"))["panels"]
    shown = [panel for panel in panels if panel["type"] != "row"]
    assert len(shown) == len(METRICS)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


def test_the_dashboard_begins_with_mail_on_its_way() -> None:
    """The queue, attempts and dead letters come first, with the limits of the alerts; titles are words."""
    panels = json.loads((DEPLOY / "grafana" / "postroom.json").read_text("utf-8"))["panels"]
    row, *first = panels[:5]
    assert row["title"] == "Mail on its way"
    shown = [re.findall(r"`(postroom_\w+)`$", panel["description"]) for panel in first]
    assert shown[0] == ["postroom_queue_waiting"]
    assert shown[3] == ["postroom_dead_letters"]
    assert first[1]["fieldConfig"]["defaults"]["thresholds"]["steps"][-1] == {"color": "red", "value": 300}
    titles = [panel["title"] for panel in panels]
    assert not [title for title in titles if "_" in title]
    units = {p["fieldConfig"]["defaults"]["unit"] for p in panels if "clicks" in p.get("description", "").lower()}
    assert "reqps" not in units


def test_the_alert_rules_are_generated() -> None:
    """The file is the generated one, and names are unique."""
    check(DEPLOY / "prometheus" / "alerts.yaml", monitoring.alert_rules())
    assert len({alert.name for alert in monitoring.ALERTS}) == len(monitoring.ALERTS)
    assert all(re.fullmatch(r"\d+[mh]", alert.held_for) for alert in monitoring.ALERTS)


@pytest.mark.parametrize("name", ["grafana/postroom.json", "prometheus/alerts.yaml"])
def test_queries_parse_and_name_existing_metrics_and_labels(name: str) -> None:
    """A query is PromQL, its metric is declared, and it filters and groups by labels of that metric."""
    content = yaml.safe_load((DEPLOY / name).read_text("utf-8"))  # JSON is YAML
    queries = list(_queries(content))
    assert queries
    for query in queries:
        promql_parser.parse(query.replace("$__rate_interval", "5m"))
        names = {found.removesuffix("_bucket") for found in _METRIC.findall(query)}
        assert names <= METRICS.keys(), query
        labels = {label for name in names for label in METRICS[name].labels} | {"le", "instance"}
        used = set(re.findall(r"(\w+)\s*=~?\s*\"", query))
        used |= {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        assert used <= labels, query


def _queries(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "expr":
                yield value
            else:
                yield from _queries(value)
    elif isinstance(content, list):
        for value in content:
            yield from _queries(value)


def test_every_alert_of_the_handbook_has_a_rule() -> None:
    """A metric in the table of alerts is in a rule too."""
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text("utf-8")
    table = page.partition("## Alerts")[2]
    named = set(_METRIC.findall("\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))))
    watched = {name for alert in monitoring.ALERTS for name in _METRIC.findall(alert.condition)}
    assert named
    assert named <= watched


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_valid(path: Path) -> None:
    """By the schemas of Kubernetes, which allow no unknown field."""
    for manifest in yaml.safe_load_all(path.read_text("utf-8")):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_manifests_fit_together() -> None:
    """Services, budgets and autoscalers select pods that exist, and the kustomization lists every file."""
    pods = {name: found["spec"]["template"] for found in of_kind("Deployment") for name in [found["metadata"]["name"]]}
    labels = [pod["metadata"]["labels"] for pod in pods.values()]
    assert all(found["spec"]["selector"]["matchLabels"] in labels for found in of_kind("PodDisruptionBudget"))
    assert all(found["spec"]["selector"] in labels for found in of_kind("Service"))
    assert all(found["spec"]["scaleTargetRef"]["name"] in pods for found in of_kind("HorizontalPodAutoscaler"))
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert sorted(listed) == [path.name for path in MANIFESTS]


def test_workers_scale_by_a_metric_that_the_adapter_offers() -> None:
    """The autoscaler's metric is a rule of the adapter, its series is declared, and it selects existing lanes."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "adapter.yaml").read_text("utf-8"))["rules"]["external"]
    offered = {rule["name"]["as"]: METRICS[rule["seriesQuery"]] for rule in rules}
    [scaler] = of_kind("HorizontalPodAutoscaler")
    metrics = [each["external"]["metric"] for each in scaler["spec"]["metrics"]]
    assert [each["selector"]["matchLabels"] for each in metrics] == [{"lane": "auth"}, {"lane": "transactional"}]
    assert all("lane" in offered[each["name"]].labels for each in metrics)


def test_deployments_have_probes_and_a_budget() -> None:
    """Every pod is restarted when it hangs and drained one at a time; the API gets requests only when it is ready."""
    budgets = {found["metadata"]["name"] for found in of_kind("PodDisruptionBudget")}
    for found in of_kind("Deployment"):
        name, [container] = found["metadata"]["name"], found["spec"]["template"]["spec"]["containers"]
        assert name in budgets
        assert {"livenessProbe", "startupProbe"} <= container.keys()
        assert ("readinessProbe" in container) == (name == "postroom-serve")


def test_pods_have_no_privileges() -> None:
    """Neither root, nor a writable root file system, nor capabilities, nor a token of the cluster."""
    for found in (*of_kind("Deployment"), *of_kind("Job")):
        pod = found["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_compose_file_is_valid() -> None:
    """By the schema of the Compose specification; every service of ours has a read-only root file system."""
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    assert [name for name, service in services.items() if not service.get("read_only")] == ["database"]


def test_the_containerfile_is_valid() -> None:
    """By hadolint; the last user is not root."""
    run(Path(sys.executable).parent / "hadolint", DEPLOY / "Containerfile")
    users = re.findall(r"^USER (\S+)$", (DEPLOY / "Containerfile").read_text("utf-8"), re.MULTILINE)
    assert users == ["65532:65532"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_units_are_valid(tmp_path: Path) -> None:
    """By systemd itself, which knows every option; the program is replaced, because it is not installed there."""
    for unit in UNITS:
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text("utf-8"), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    assert str(tmp_path) not in run("systemd-analyze", "verify", "--man=no", *(tmp_path / unit.name for unit in UNITS))


def test_only_existing_settings_are_named() -> None:
    """A process refuses an unknown POSTROOM_ variable at its start."""
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert set(_SETTING.findall(path.read_text("utf-8"))) <= SETTINGS, path.name


NEEDED = {
    "POSTROOM_DATABASE_URL", "POSTROOM_SECRET_KEY", "POSTROOM_TRANSPORT", "POSTROOM_SMTP_RELAY", "POSTROOM_FROM",
    "POSTROOM_PUBLIC_URL", "POSTROOM_ADMIN_EMAIL", "POSTROOM_ADMIN_WEBHOOK",
}  # fmt: skip
"""The settings of a first deployment that sends real mail."""


@pytest.mark.parametrize(
    "place",
    [
        "README.md",
        "deploy/compose.yaml",
        "deploy/kubernetes/config.yaml",
        "deploy/systemd/env",
        "docs/how-to/go-live.md",
        "docs/how-to/run-in-production.md",
    ],
)
def test_every_way_to_deploy_names_the_settings_of_real_mail(place: str) -> None:
    """None of them lacks one: a person who follows it literally sends with the right sender and working links."""
    assert set(_SETTING.findall((ROOT / place).read_text("utf-8"))) >= NEEDED


def blocks_not_run() -> list[Block]:
    return [block for block in blocks_of(ROOT / "docs" / "how-to" / "deploy.md") if block.not_run]


@pytest.mark.parametrize("block", blocks_not_run(), ids=lambda block: str(block.line))
def test_a_block_that_is_not_run_is_checked(block: Block, tmp_path: Path) -> None:
    """It is valid for the shell; its files, settings, units and commands of `postroom` exist."""
    assert "tests/docs/test_deploy.py" in (block.not_run or "")
    (tmp_path / "block").write_text(block.code)
    run("bash", "-n", tmp_path / "block")
    assert set(_SETTING.findall(block.code)) <= SETTINGS
    for path in re.findall(r"(?<![\w/])(?:deploy|tests)/[\w./*-]+", block.code):
        assert list(ROOT.glob(path)), path
    units = {unit.stem for unit in UNITS}
    assert {name for line in re.findall(r"systemctl enable --now (.*)", block.code) for name in line.split()} <= units
    commands = {entry.name for entry in COMMANDS}
    # The image's entry point is `postroom`: its name in `podman run` is followed by a command too.
    assert set(re.findall(r"(?<![\w/:-])postroom (\w+)$", block.code, re.MULTILINE)) <= commands


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_accepts_the_commands_without_a_cluster(tmp_path: Path) -> None:
    """`create` as a dry run, `apply -k` as far as kustomize, and the Job that `wait` names."""
    [block] = [block for block in blocks_not_run() if "kubectl" in block.code]
    create, applied, waited = re.split(r"^(?=kubectl )", block.code, flags=re.MULTILINE)[1:]
    (tmp_path / "create").write_text(f"{create.strip()} --dry-run=client -o name\n")
    assert run("bash", tmp_path / "create") == "secret/postroom\n"
    made = list(yaml.safe_load_all(run("kubectl", "kustomize", applied.split()[-1])))
    job = re.search(r"condition=complete job/(\S+)", waited)
    assert job is not None
    assert [each["metadata"]["name"] for each in made if each["kind"] == "Job"] == [job[1]]
