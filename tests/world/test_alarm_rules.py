"""The alarm table in short: `promtool test rules` with the shipped file, one outage after another."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from tests.world.packages import program

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"

HEALTHY = {
    "postroom_queue_waiting": "0x120",
    'postroom_workers{room="postroom"}': "2x120",
    'postroom_last_sent_seconds{way_out="mx:587"}': "5x120",
    'postroom_logins_refused{way_out="mx:587"}': "0x120",
    'postroom_dead_letters{reason="max_age"}': "7x120",
    'postroom_oldest_unfinished_seconds{lane="transactional",waits_for="retry"}': "90000x120",
    'postroom_oldest_unfinished_seconds{lane="bulk",waits_for="quota"}': "90000x120",
    'postroom_oldest_unfinished_seconds{lane="bulk",waits_for="pause"}': "90000x120",
}
"""Two workers, an old dead letter, a mail that is retried for a day, and campaigns that wait on purpose."""

_FAILING = 'postroom_way_out_failing_seconds{way_out="mx:587",stage="%s"}'
_OLDEST = 'postroom_oldest_unfinished_seconds{lane="%s",waits_for="%s"}'

OUTAGES: Mapping[str, tuple[Mapping[str, str], set[str]]] = {
    "nothing": ({}, set()),
    "relay dead": (
        {_FAILING % "connect": "0+60x120", _OLDEST % ("auth", "relay"): "0+60x120"},
        {"PostroomRelayUnreachable"},
    ),
    "login refused": (
        {
            _FAILING % "login": "0+60x120",
            'postroom_logins_refused{way_out="mx:587"}': "0+5x120",
            _OLDEST % ("auth", "relay"): "0+60x120",
        },
        {"PostroomLoginRefused"},
    ),
    "login dropped without a reply": ({_FAILING % "login": "0+60x120"}, {"PostroomRelayUnreachable"}),
    "account out of quota": ({_OLDEST % ("transactional", "quota"): "0+60x120"}, {"PostroomQuotaUsedUp"}),
    "accounts suspended": ({_OLDEST % ("bulk", "sender"): "0+60x120"}, {"PostroomNoSender"}),
    "worker gone": (
        {'postroom_workers{room="postroom"}': "2 0x120", _OLDEST % ("auth", "worker"): "0+60x120"},
        {"PostroomNoWorker"},
    ),
    "workers too slow for codes": ({_OLDEST % ("auth", "turn"): "0+60x120"}, {"PostroomAuthMailLate"}),
    "relay slow to reply": ({_OLDEST % ("transactional", "reply"): "0+60x120"}, {"PostroomTransactionalMailLate"}),
    "mail given up": ({'postroom_dead_letters{reason="max_age"}': "7x100 9x20"}, {"PostroomDeadLetters"}),
    "database in recovery": (
        {"postroom_queue_waiting": "0 _x120", 'postroom_workers{room="postroom"}': "2 _x120"},
        {"PostroomDatabaseUnreachable"},
    ),
    "followers stuck": (
        {
            'postroom_outbox_stalled_seconds{pid="7"}': "0+60x120",
            'postroom_outbox_lag_seconds{topic="money",publisher="log"}': "0+60x120",
        },
        {"PostroomOutboxStalled"},
    ),
    "publisher behind": (
        {
            'postroom_outbox_stalled_seconds{pid=""}': "0x120",
            'postroom_outbox_lag_seconds{topic="money",publisher="log"}': "0+60x120",
        },
        {"PostroomOutboxLate"},
    ),
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_an_outage_fires_its_alert_and_no_other(outage: str, tmp_path: Path) -> None:
    """After two hours of the outage, exactly the alert of the table is firing."""
    changed, alerts = OUTAGES[outage]
    series = [{"series": name, "values": values} for name, values in {**HEALTHY, **changed}.items()]
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)]
    question = {"expr": firing, "eval_time": "115m", "exp_samples": samples}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [question]}
    case = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(case))
    command: list[str | Path] = [program("promtool", "prometheus"), "test", "rules", tmp_path / "case.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "SUCCESS" in done.stdout, done.stdout + done.stderr
