"""The shipped rules in a real Prometheus: promtool accepts them, and alerts reach Alertmanager and resolve there."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from tests.docs import monitoring as shipped
from tests.support.aiohttp_server import answering
from tests.world.packages import program
from tests.world.prometheus import monitoring, scaled

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"


class Exporter:
    """A page of metrics that the test changes."""

    def __init__(self, **values: float) -> None:
        self.values = values

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/metrics", self._page)
        async with answering(app) as address:
            yield address.removeprefix("http://")

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{name} {value}\n" for name, value in self.values.items()))


def _promtool(*arguments: str | Path) -> str:
    command = [program("promtool", "prometheus"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_shipped_rules() -> None:
    """Every rule is valid for Prometheus itself, its templates included."""
    assert f"{len(shipped.ALERTS)} rules found" in _promtool("check", "rules", ALERTS)


def test_a_rule_fires_after_its_time_and_not_before(tmp_path: Path) -> None:
    """`promtool test rules` with the shipped file: malformed commands are reported after five minutes."""
    alert = 'ALERTS{alertname="PostroomMalformedCommands",alertstate="firing",severity="warning"}'
    expected = {"5m": [], "6m": [{"labels": alert, "value": 1}]}
    series = {"series": "postroom_malformed_commands_waiting", "values": "0 3x10"}
    questions = [{"expr": alert, "eval_time": at, "exp_samples": samples} for at, samples in expected.items()]
    test = {"interval": "1m", "input_series": [series], "promql_expr_test": questions}
    case = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(case))
    assert "SUCCESS" in _promtool("test", "rules", tmp_path / "case.yaml")


@pytest.mark.world
async def test_an_alert_reaches_alertmanager_and_resolves() -> None:
    """A backlog of login codes fires its alert alone, and a drained queue resolves it."""
    late = 'postroom_oldest_unfinished_seconds{lane="auth",waits_for="turn"}'
    exporter = Exporter(**{late: 0, "postroom_queue_waiting": 0, 'postroom_workers{room="postroom"}': 1})
    async with exporter.answering() as target, monitoring(scaled(ALERTS, 60), {"postroom": [target]}) as watch:
        exporter.values[late] = 31
        fired = await watch.until("PostroomAuthMailLate", "firing")
        assert (fired.labels["severity"], "31" in fired.annotations["summary"]) == ("critical", True)
        exporter.values[late] = 0
        await watch.until("PostroomAuthMailLate", "resolved")
        assert watch.fired == {"PostroomAuthMailLate"}
        assert (await watch.states())["PostroomAuthMailLate"] == "inactive"
        [found] = await watch.query('up{job="postroom"}')
        assert found["value"][1] == "1"


def test_durations_and_limits_in_seconds_are_divided(tmp_path: Path) -> None:
    """Ranges keep some scrapes; limits of other quantities stay."""
    rule = {
        "alert": "A",
        "expr": "max(postroom_queue_oldest_seconds) > 300 and rate(x_total[30m] offset 1h) > 5",
        "for": "1h30m",
    }
    other = {"alert": "B", "expr": "increase(x_total[2m]) > 5", "for": "0m"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule, other]}]}))
    [first, second] = scaled(tmp_path / "rules.yaml", 600)["groups"][0]["rules"]
    assert first["for"] == "9000ms"
    assert second == {"alert": "B", "expr": "increase(x_total[1000ms]) > 5", "for": "0ms"}
    assert first["expr"] == "max(postroom_queue_oldest_seconds) > 0.5 and rate(x_total[3000ms] offset 6000ms) > 5"
