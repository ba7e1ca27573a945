"""A real Prometheus and Alertmanager on loopback, with rules whose durations are divided.

    async with monitoring(scaled(rules, 60), {"postroom": ["127.0.0.1:9025"]}) as watch:
        await watch.until("PostroomAuthMailLate", "firing")
        await watch.until("PostroomAuthMailLate", "resolved")

`until` reads the notifications that Alertmanager sent to a webhook, as an administrator would get them.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import aiohttp
import yaml
from aiohttp import web
from tests.support.aiohttp_server import answering
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.world.packages import program
from tests.world.process import running

STEP = "200ms"  # between two scrapes, and between two evaluations of a rule
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d+)(ms|[smhd])")
_IN_A_QUERY = re.compile(r"(?:(?<=\[)|(?<=offset ))\d+(?:ms|[smhd])")
_LIMIT = re.compile(r"(?<=[<>] )\d+(?:\.\d+)?\b")
_OPERATOR = re.compile(r"(\b(?:and|or|unless)\b)")


@dataclass(frozen=True, slots=True)
class Notification:
    """An alert as Alertmanager reported it: `firing` or `resolved`."""

    alert: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass
class Watch:
    """A running Prometheus, and everything that Alertmanager has reported."""

    url: str
    notifications: list[Notification] = field(default_factory=list)
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, alert: str, status: str) -> Notification:
        """The last notification about an alert, as soon as it has this status; fails with the list of all others."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._came:
                await self._came.wait_for(lambda: self._last(alert) is not None and self._last(alert).status == status)  # type: ignore[union-attr]
        except TimeoutError:
            raise AssertionError(f"{alert} is not {status}; notifications: {self.notifications}") from None
        found = self._last(alert)
        assert found is not None
        return found

    @property
    def fired(self) -> set[str]:
        """The names of all alerts that were reported as firing at any time."""
        return {each.alert for each in self.notifications if each.status == "firing"}

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query: a dictionary with `metric` and `value` for each series."""
        found: list[dict[str, Any]] = (await self.get(f"/api/v1/query?query={quote(expression)}"))["result"]
        return found

    async def states(self) -> dict[str, str]:
        """The state of every rule: inactive, pending or firing. A rule that cannot be evaluated fails."""
        groups = (await self.get("/api/v1/rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert not [rule for rule in rules if rule["health"] == "err"], rules
        return {rule["name"]: rule["state"] for rule in rules}

    async def get(self, path: str) -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as response:
            answer = await response.json()
        assert answer["status"] == "success", answer
        data: dict[str, Any] = answer["data"]
        return data

    async def receive(self, request: web.Request) -> web.Response:
        """The webhook of Alertmanager."""
        payload = await request.json()
        async with self._came:
            for each in payload["alerts"]:
                labels = each["labels"]
                self.notifications.append(
                    Notification(labels["alertname"], each["status"], labels, each["annotations"])
                )
            self._came.notify_all()
        return web.Response()

    def _last(self, alert: str) -> Notification | None:
        return next((each for each in reversed(self.notifications) if each.alert == alert), None)


def scaled(rules: Path, factor: float) -> dict[str, Any]:
    """Rules with all durations divided, and with the limits of conditions about seconds."""
    content: dict[str, Any] = yaml.safe_load(rules.read_text("utf-8"))
    for group in content["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            rule["expr"] = _scaled_query(rule["expr"], factor)
            for name in ("for", "keep_firing_for"):
                if name in rule:
                    rule[name] = _divided(rule[name], factor)
    return content


def _scaled_query(query: str, factor: float) -> str:
    query = _IN_A_QUERY.sub(lambda found: _divided(found[0], factor, at_least_ms=1_000), query)
    parts = _OPERATOR.split(query)
    return "".join(
        _LIMIT.sub(lambda found: f"{float(found[0]) / factor:g}", part) if "_seconds" in part else part
        for part in parts
    )


def _divided(duration: str, factor: float, *, at_least_ms: int = 0) -> str:
    """A duration of Prometheus, in ms; a range needs some scrapes, or it never has a rate."""
    seconds = sum(int(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(duration))
    return f"{max(at_least_ms, round(seconds * 1_000 / factor))}ms"


@asynccontextmanager
async def monitoring(rules: Mapping[str, Any], targets: Mapping[str, Sequence[str]]) -> AsyncIterator[Watch]:
    """Watch these jobs, `host:port` each, by these rules."""
    watch = Watch(f"http://127.0.0.1:{free_port()}")
    hook = web.Application()
    hook.router.add_post("/", watch.receive)
    with TemporaryDirectory(prefix="postroom-prometheus-") as folder:
        async with (
            answering(hook) as address,
            _alertmanager(Path(folder), address) as alertmanager,
            _prometheus(Path(folder), watch.url, alertmanager, {"rules": rules, "targets": targets}),
        ):
            yield watch


@asynccontextmanager
async def _alertmanager(folder: Path, hook: str) -> AsyncIterator[str]:
    port, config = free_port(), folder / "alertmanager.yaml"
    route = {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    receiver = {"name": "test", "webhook_configs": [{"url": f"{hook}/", "send_resolved": True}]}
    config.write_text(yaml.safe_dump({"route": route, "receivers": [receiver]}))
    command: list[str | Path] = [
        program("prometheus-alertmanager", "prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",  # alone
        "--log.level=warn",
    ]
    async with running(command, [port]):
        yield f"127.0.0.1:{port}"


@asynccontextmanager
async def _prometheus(folder: Path, url: str, alertmanager: str, content: Mapping[str, Any]) -> AsyncIterator[None]:
    config, rules = folder / "prometheus.yaml", folder / "rules.yaml"
    rules.write_text(yaml.safe_dump(content["rules"]))
    jobs = [{"job_name": job, "static_configs": [{"targets": list(at)}]} for job, at in content["targets"].items()]
    settings = {
        "global": {"scrape_interval": STEP, "scrape_timeout": STEP, "evaluation_interval": STEP},
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": jobs,
    }
    config.write_text(yaml.safe_dump(settings))
    address = url.removeprefix("http://")
    command: list[str | Path] = [
        program("prometheus", "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={address}",
        "--rules.alert.resend-delay=1s",
        "--log.level=warn",
    ]
    async with running(command, [int(address.rpartition(":")[2])]):
        yield
