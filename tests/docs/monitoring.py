"""Write the Grafana dashboard and the alert rules of Prometheus from the metrics in the code: `./dev docs`."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import yaml
from tests.docs.reference import Metric

PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 8, 7, 3
HERE = '{instance=~"$instance"}'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RUNBOOK = "docs/how-to/monitor.md#alerts"
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


FIRST = (
    "postroom_queue_waiting",
    "postroom_oldest_unfinished_seconds",
    "postroom_attempts_total",
    "postroom_dead_letters",
    "postroom_way_out_failing_seconds",
    "postroom_logins_refused",
    "postroom_last_sent_seconds",
    "postroom_workers",
    "postroom_queue_oldest_seconds",
)
"""The panels of the first row, which a person reads first: whether mail leaves."""

TITLES = {
    "postroom_oldest_unfinished_seconds": "Age of the oldest unfinished mail, by what it waits for",
    "postroom_attempts_total": "Attempts by outcome",
    "postroom_way_out_failing_seconds": "Relay or account does not answer, for",
    "postroom_logins_refused": "Refused logins",
    "postroom_last_sent_seconds": "Time since the last mail sent",
    "postroom_workers": "Workers",
    "postroom_outbox_leader": "Publishers led by this process",
    "postroom_outbox_status": "Status of publishers",
    "postroom_outbox_lag_seconds": "Age of the oldest unpublished event",
}

THRESHOLDS = {
    "postroom_oldest_unfinished_seconds": (30, 300),
    "postroom_queue_oldest_seconds": (30, 300),
    "postroom_way_out_failing_seconds": (10, 60),
    "postroom_logins_refused": (1, 1),
    "postroom_dead_letters": (1, 1),
    "postroom_outbox_lag_seconds": (30, 60),
    "postroom_outbox_stalled_seconds": (30, 60),
    "postroom_tokens_stalled_seconds": (30, 60),
    "postroom_malformed_commands_waiting": (1, 1),
    "postroom_codes_wrong": (100, 1000),
}
"""From which value a panel is yellow, and red: those of the alerts."""


def dashboard(metrics: Sequence[Metric]) -> str:
    """The panels of mail on its way, then one row per capability; one panel per metric."""
    prometheus = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    instance = {
        "name": "instance",
        "label": "Instance",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(postroom_http_requests_total, instance)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    board = {
        "title": "Postroom",
        "uid": "postroom",
        "tags": ["postroom"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [prometheus, instance]},
        "panels": list(_panels(metrics)),
    }
    return json.dumps(board, indent=2) + "\n"


def _rows(metrics: Sequence[Metric]) -> Iterator[tuple[str, list[Metric]]]:
    """The title of each row and its metrics."""
    by_name = {metric.name: metric for metric in metrics}
    yield "Mail on its way", [by_name[name] for name in FIRST]
    others = [metric for metric in metrics if metric.name not in FIRST]
    for capability, declared in groupby(others, key=lambda metric: metric.capability):
        yield capability.capitalize(), list(declared)


def _panels(metrics: Sequence[Metric]) -> Iterator[dict[str, Any]]:
    line, number = 0, 0
    for title, found in _rows(metrics):
        number += 1
        place = {"x": 0, "y": line, "w": PANEL_WIDTH * COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        line += 1
        for index, metric in enumerate(found):
            number += 1
            x, y = index % COLUMNS * PANEL_WIDTH, line + index // COLUMNS * PANEL_HEIGHT
            yield _panel(metric, number, {"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT})
        line += -(-len(found) // COLUMNS) * PANEL_HEIGHT


def _panel(metric: Metric, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": _unit(metric), "min": 0}
    if metric.name in THRESHOLDS:
        yellow, red = THRESHOLDS[metric.name]
        steps = [
            {"color": "green", "value": None},
            {"color": "yellow", "value": yellow},
            {"color": "red", "value": red},
        ]
        defaults |= {
            "thresholds": {"mode": "absolute", "steps": steps},
            "custom": {"thresholdsStyle": {"mode": "line"}},
        }
    return {
        "id": number,
        "type": "timeseries",
        "title": _title(metric),
        "description": f"{metric.about}. `{metric.name}`",
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(queries(metric))
        ],
    }


def _unit(metric: Metric) -> str:
    if metric.name.endswith("_seconds"):
        return "s"
    if metric.kind == "counter":  # shown as a rate: only requests are requests
        return "reqps" if metric.name == "postroom_http_requests_total" else "ops"
    return "short"


def _title(metric: Metric) -> str:
    """A name in words; without one in the table, the first words of its description."""
    return TITLES.get(metric.name) or re.split(r"[,:;(]", metric.about)[0].strip()


def queries(metric: Metric) -> list[tuple[str, str]]:
    """The queries of a metric's panel, each with its legend. Every process reports gauges, so the largest counts."""
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or metric.name.removeprefix("postroom_")
    if metric.kind == "gauge":
        return [(f"max{_by(metric.labels)} ({metric.name}{HERE})", legend)]
    if metric.kind == "counter":
        return [(f"sum{_by(metric.labels)} (rate({metric.name}{HERE}[$__rate_interval]))", legend)]
    buckets = f"sum{_by(('le', *metric.labels))} (rate({metric.name}_bucket{HERE}[$__rate_interval]))"
    return [(f"histogram_quantile({share}, {buckets})", f"p{share[2:]} {legend}") for share in ("0.50", "0.99")]


def _by(labels: Sequence[str]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
