"""Write the Grafana dashboard and the alert rules of Prometheus from the metrics in the code: `./dev docs`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import yaml
from tests.docs.reference import Metric

PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 8, 7, 3
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RUNBOOK = "docs/how-to/run-in-production.md#alerts"
HEADER = "# Written by ./dev docs. Change tests/docs/monitoring.py instead.\n"


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule: the condition, how long it must hold, how urgent it is, and what it says."""

    name: str
    condition: str
    held_for: str
    severity: str
    summary: str


ALERTS = (
    Alert(
        "PostroomAuthMailLate",
        'max(postroom_oldest_unfinished_seconds{lane="auth",waits_for=~"turn|reply"}) > 30',
        "1m",
        "critical",
        "Login codes wait for {{ $value | humanizeDuration }} although workers run: they do not keep up, or wait "
        "for replies of the relay.",
    ),
    Alert(
        "PostroomTransactionalMailLate",
        'max(postroom_oldest_unfinished_seconds{lane="transactional",waits_for=~"turn|reply"}) > 300',
        "5m",
        "warning",
        "Transactional mail waits for {{ $value | humanizeDuration }} although workers run. Add workers, or look at "
        "the relay.",
    ),
    Alert(
        "PostroomNoWorker",
        "max by (room) (postroom_workers) == 0",
        "1m",
        "critical",
        "No worker of room {{ $labels.room }} has been seen for two minutes: no mail leaves. Start postroom work.",
    ),
    Alert(
        "PostroomRelayUnreachable",
        "max by (way_out, stage) (postroom_way_out_failing_seconds) > 60"
        " unless on (way_out) max by (way_out) (postroom_logins_refused) > 0",
        "1m",
        "critical",
        "{{ $labels.way_out }} has not taken a mail for {{ $value | humanizeDuration }}: every attempt ends at "
        "stage {{ $labels.stage }}.",
    ),
    Alert(
        "PostroomLoginRefused",
        "max by (way_out) (postroom_logins_refused) > 0",
        "1m",
        "critical",
        "{{ $labels.way_out }} refused {{ $value }} logins and takes no mail. Correct the user name or the password.",
    ),
    Alert(
        "PostroomQuotaUsedUp",
        'max by (lane) (postroom_oldest_unfinished_seconds{lane!="bulk",waits_for="quota"}) > 60',
        "1m",
        "critical",
        "Mail of lane {{ $labels.lane }} waits until midnight UTC: its sender accounts, or the room, have used their "
        "quota.",
    ),
    Alert(
        "PostroomNoSender",
        'max by (lane) (postroom_oldest_unfinished_seconds{waits_for="sender"}) > 60',
        "1m",
        "critical",
        "Mail of lane {{ $labels.lane }} waits: every sender account is paused, suspended or resting. Run "
        "postroom senders list.",
    ),
    Alert(
        "PostroomDeadLetters",
        "max by (reason) (delta(postroom_dead_letters[1h])) > 0",
        "0m",
        "warning",
        "About {{ $value | humanize }} mails were given up within an hour ({{ $labels.reason }}). Run "
        "postroom dead-letters list.",
    ),
    Alert(
        "PostroomDatabaseUnreachable",
        "absent(postroom_queue_waiting)",
        "2m",
        "critical",
        "No API process reports the queue: the API is down, it cannot reach the database, or the database is in "
        "recovery.",
    ),
    Alert(
        "PostroomServerErrors",
        'sum(rate(postroom_http_requests_total{status=~"5.."}[5m])) > 0.1',
        "5m",
        "warning",
        "The API fails {{ $value }} requests per second. The log has them by X-Request-Id.",
    ),
    Alert(
        "PostroomAttemptsFail",
        'sum(rate(postroom_attempts_total{outcome="failed"}[30m])) / sum(rate(postroom_attempts_total[30m])) > 0.1',
        "30m",
        "warning",
        "{{ $value | humanizePercentage }} of attempts fail: a template, a list, or your reputation.",
    ),
    Alert(
        "PostroomLoopFailed",
        "sum by (loop) (increase(postroom_loop_failures_total[15m])) > 0",
        "0m",
        "warning",
        "The loop {{ $labels.loop }} failed and retries. The log entry loop_failed has the error.",
    ),
    Alert(
        "PostroomMalformedCommands",
        "max(postroom_malformed_commands_waiting) > 0",
        "5m",
        "warning",
        "{{ $value }} malformed commands wait: a producer writes invalid ones. Run postroom malformed list.",
    ),
    Alert(
        "PostroomPublisherFailed",
        'max by (topic, publisher) (postroom_outbox_status{status="FAILED"}) == 1',
        "1m",
        "critical",
        "The publisher {{ $labels.publisher }} of {{ $labels.topic }} has given up.",
    ),
    Alert(
        "PostroomOutboxLate",
        "max by (topic, publisher) (postroom_outbox_lag_seconds) > 60"
        " unless on () max(postroom_outbox_stalled_seconds) > 60",
        "5m",
        "warning",
        "The oldest unpublished event of {{ $labels.topic }} for {{ $labels.publisher }} is {{ $value }} s old.",
    ),
    Alert(
        "PostroomOutboxStalled",
        "max by (pid) (postroom_outbox_stalled_seconds) > 60",
        "1m",
        "warning",
        "The open transaction of session {{ $labels.pid }} has held back events for {{ $value | humanizeDuration }}. "
        "Run postroom outbox list.",
    ),
    Alert(
        "PostroomAccountMailStalled",
        "max by (pid) (postroom_tokens_stalled_seconds) > 60",
        "1m",
        "warning",
        "Account mail has waited {{ $value }} s for the transaction of session {{ $labels.pid }}.",
    ),
    Alert(
        "PostroomCodesGuessed",
        "max(postroom_codes_wrong) > 1000",
        "5m",
        "warning",
        "{{ $value }} wrong codes within a day: codes are guessed across many addresses.",
    ),
)


def alert_rules() -> str:
    rules = [
        {
            "alert": alert.name,
            "expr": alert.condition,
            "for": alert.held_for,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "runbook": RUNBOOK},
        }
        for alert in ALERTS
    ]
    written: str = yaml.safe_dump({"groups": [{"name": "postroom", "rules": rules}]}, sort_keys=False, width=120)
    return HEADER + written


def dashboard(metrics: Sequence[Metric]) -> str:
    """One row of panels per capability, one panel per metric."""
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    board = {
        "title": "Postroom",
        "uid": "postroom",
        "tags": ["postroom"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": list(_panels(metrics)),
    }
    return json.dumps(board, indent=2) + "\n"


def _panels(metrics: Sequence[Metric]) -> Iterator[dict[str, Any]]:
    line, number = 0, 0
    for capability, declared in groupby(metrics, key=lambda metric: metric.capability):
        found = list(declared)
        number += 1
        place = {"x": 0, "y": line, "w": PANEL_WIDTH * COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": capability, "gridPos": place, "panels": []}
        line += 1
        for index, metric in enumerate(found):
            number += 1
            x, y = index % COLUMNS * PANEL_WIDTH, line + index // COLUMNS * PANEL_HEIGHT
            yield _panel(metric, number, {"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT})
        line += -(-len(found) // COLUMNS) * PANEL_HEIGHT


def _panel(metric: Metric, number: int, place: dict[str, int]) -> dict[str, Any]:
    unit = "s" if metric.name.endswith("_seconds") else "reqps" if metric.kind == "counter" else "short"
    return {
        "id": number,
        "type": "timeseries",
        "title": metric.name.removeprefix("postroom_").removesuffix("_total").replace("_", " "),
        "description": metric.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(queries(metric))
        ],
    }


def queries(metric: Metric) -> list[tuple[str, str]]:
    """The queries of a metric's panel, each with its legend. Every process reports gauges, so the largest counts."""
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or metric.name.removeprefix("postroom_")
    if metric.kind == "gauge":
        return [(f"max{_by(metric.labels)} ({metric.name})", legend)]
    if metric.kind == "counter":
        return [(f"sum{_by(metric.labels)} (rate({metric.name}[$__rate_interval]))", legend)]
    buckets = f"sum{_by(('le', *metric.labels))} (rate({metric.name}_bucket[$__rate_interval]))"
    return [(f"histogram_quantile({share}, {buckets})", f"p{share[2:]} {legend}") for share in ("0.50", "0.99")]


def _by(labels: Sequence[str]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
