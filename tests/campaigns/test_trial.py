"""Letters that need gigabytes or minutes are rejected, and the server continues."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.support.campaigns import HTML, a_campaign, a_letter
from tests.support.command_line import running
from tests.support.patience import PATIENCE_S

from postroom.campaigns import preview as rehearsal
from postroom.campaigns import service, trial
from postroom.campaigns.check import check_plan
from postroom.campaigns.template import LONGEST_PART, ready
from postroom.db.pool import Pool
from postroom.errors import BadInput

MEGABYTES = "{% set a='x'*60000000 %}{% set b=a~a~a~a %}{% set c=b~b~b~b %}{% set d=c~c~c~c %}{{ d|length }}"
BOMBS: dict[str, dict[str, str | None]] = {
    "strings doubled in html": {"html": MEGABYTES, "text": "-"},
    "strings doubled in text": {"html": None, "text": MEGABYTES},
    "strings doubled in the subject": {"subject": MEGABYTES, "html": "-"},
    "a loop that prints a large literal": {
        "html": "{% for n in range(90000) %}" + "x" * 900_000 + "{% endfor %}",
        "text": "-",
    },
    "nested replace": {"html": "{{ ('x'*1000)" + "|replace('x', 'xxxxxxxxxx')" * 9 + "}}", "text": "-"},
}


class Api:
    """A running Postroom and its administrator's key."""

    def __init__(self, url: str, key: str, pid: int) -> None:
        self._url, self._key, self._pid = url, key, pid

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        if isinstance(body, bytes):
            headers["Content-Type"] = "text/csv"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            with urlopen(Request(self._url + path, data, headers, method=method), timeout=PATIENCE_S) as response:
                return response.status, json.load(response)
        except HTTPError as problem:
            with problem:
                return problem.code, json.load(problem)

    def peak_mb(self) -> int:
        """The peak memory of the server."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    settings = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_DATA_DIR": str(tmp_path / "data"),
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
    }
    with running("up", settings=settings) as up:
        line = up.line(lambda line: "curl -sS" in line)
        url = line.split("curl -sS ")[1].split()[0].strip("'").partition("/v1/")[0]
        up.line(lambda line: "Ctrl-C stops" in line)
        yield Api(url, (tmp_path / "data" / "api-key").read_text().strip(), up.process.pid)


def test_template_bombs_are_rejected(api: Api) -> None:
    """Each bomb returns 400 with the part's name, other requests are served, and the server's memory stays small."""
    before = api.peak_mb()
    for letter in BOMBS.values():
        status, made = api.ask("POST", "/v1/campaigns", {"name": "n", "subject": "s", **letter})
        assert status == 201, made
        path = f"/v1/campaigns/{made['id']}"
        assert api.ask("POST", f"{path}/recipients", b"email\nann@example.org\n")[0] == 200
        asked = [
            ("POST", f"{path}/preview", {"variables": {}}),
            ("POST", f"{path}/test", {"to": ["me@example.org"]}),
            ("POST", f"{path}/start", None),
        ]
        meanwhile = 0
        with ThreadPoolExecutor(len(asked)) as threads:
            waiting = [threads.submit(api.ask, *each) for each in asked]
            while not all(each.done() for each in waiting):
                assert api.ask("GET", "/healthz")[0] == 200
                meanwhile += 1
        assert meanwhile > 0
        part = next(name for name in ("subject", "html", "text") if letter.get(name, "-") not in ("-", None))
        for status, answer in (each.result() for each in waiting):
            assert status == 400, answer
            assert [error["field"] for error in answer["errors"]] == [part]
            assert "simplify it" in answer["errors"][0]["message"]
        assert api.ask("GET", path)[1]["status"] == "draft"
    assert api.peak_mb() < before + 150


async def test_child_renders_the_same_as_the_parent() -> None:
    """Integers of any size, null, nested values and all characters pass to the child unchanged."""
    variables = {
        "first_name": "Zoë 🦊 </p>",
        "n": 2**100,
        "list": [1.5, True, None, {"a": ["b"]}],
        "unsubscribe_url": "https://x.invalid/",
    }
    letter = a_letter(html=HTML + "{{ n }} {{ list[3].a[0] }} {{ list[0] }}")
    assert await trial.render_letter(letter, variables) == ready(letter).render(variables)


async def test_letter_of_maximum_length_passes(pool: Pool) -> None:
    """1 MB of ordinary HTML is checked, linted, previewed and started within the limits."""
    row = "<tr><td style='color:red'>{{ first_name }}</td><td><a href='https://example.org/'>go</a></td></tr>\n"
    html = "<style>td {color: red}</style><table>" + row * ((LONGEST_PART - 100) // len(row)) + "</table>"
    campaign = await a_campaign(pool, 3, html=html)
    assert "Name0" in ((await rehearsal.preview(pool, campaign.id)).html or "")
    assert await rehearsal.lint_campaign(pool, campaign.id)
    assert (await service.start_campaign(pool, campaign.id, actor="tests")).queued == 3


async def test_concurrent_change_is_checked_too(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft that changes during a check keeps both changes."""
    campaign = await a_campaign(pool)
    checked = check_plan
    others = [{"name": "Autumn"}]

    async def interrupted(plan: Any) -> None:
        if others:
            await service.update_campaign(pool, campaign.id, others.pop(), actor="tests")
        await checked(plan)

    monkeypatch.setattr(service, "check_plan", interrupted)
    changed = await service.update_campaign(pool, campaign.id, {"subject": "Hi"}, actor="tests")
    assert (changed.plan.name, changed.plan.letter.subject) == ("Autumn", "Hi")


async def test_letter_changed_since_its_trial_does_not_start(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the letter that passed the trial is started."""
    campaign = await a_campaign(pool, 1)
    tried = rehearsal.try_out

    async def interrupted(*given: Any) -> Any:
        letter = await tried(*given)
        await service.update_campaign(pool, campaign.id, {"subject": MEGABYTES}, actor="tests")
        return letter

    monkeypatch.setattr(service, "try_out", interrupted)
    with pytest.raises(BadInput, match="changed during the trial"):
        await service.start_campaign(pool, campaign.id, actor="tests")
