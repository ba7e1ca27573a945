"""`./dev fuzz`: the command line of the fuzzer."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from fuzz.arena import Arena, running_arena
from fuzz.run import Outcome, readings_during, run_case, run_target, witness
from fuzz.tally import Tally
from fuzz.targets import TARGETS
from fuzz.witness import percentile

LONGEST_MS = 250
"""Another client should not wait longer, on a machine that has nothing else to do."""
IDLE_SHARE = 0.1
"""Share of the time without an attack, to measure the machine's own effect on the independent client."""


def main() -> int:
    """Run and report; 1 if a defect was found."""
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="target", help=f"{', '.join(TARGETS)}; target#N runs one case")
    parser.add_argument("--seconds", type=float, default=120, help="time for all targets together (120)")
    parser.add_argument("--seed", type=int, default=1, help="the cases are a function of it (1)")
    given = parser.parse_args()
    unknown = [name for name in given.targets if name.partition("#")[0] not in TARGETS]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory(prefix="postroom-fuzz-") as folder, running_arena(Path(folder)) as arena:
        return asyncio.run(fuzz(arena, Path(folder), given.targets or list(TARGETS), given.seed, given.seconds))


async def fuzz(arena: Arena, folder: Path, targets: list[str], seed: int, seconds: float) -> int:
    """Every target in turn with the independent client beside it."""
    outcomes: list[Outcome] = []
    file = folder / "witness"
    with witness(arena, file):
        each = seconds * (1 - IDLE_SHARE) / len(targets)
        outcomes.append(await _idle(seconds * IDLE_SHARE))
        for target in targets:
            name, _, number = target.partition("#")
            if number:
                tally = Tally(name)
                await run_case(arena, tally, seed=seed, number=int(number))
                print(tally)
                continue
            outcomes.append(await run_target(arena, name, seed=seed, seconds=each))
            print(".", end="", file=sys.stderr, flush=True)
    for outcome in outcomes:
        print_outcome(outcome, file)
    print_table(outcomes, file)
    tracebacks, is_alive = arena.tracebacks(), arena.is_alive()
    print(f"\nserver alive: {is_alive}; tracebacks in its log: {tracebacks}")
    for line in arena.log.read_text(errors="replace").splitlines():
        if "request_failed" in line:
            print(line)
    if tracebacks:
        print(arena.log.read_text(errors="replace")[-6000:])
    return int(not is_alive or tracebacks > 0 or any(outcome.tally.failures for outcome in outcomes))


async def _idle(seconds: float) -> Outcome:
    loop = asyncio.get_running_loop()
    since = loop.time()
    await asyncio.sleep(seconds)
    return Outcome(Tally("(idle)"), since, loop.time(), 0)


def print_outcome(outcome: Outcome, file: Path) -> None:
    """A few lines about one target."""
    tally, readings = outcome.tally, readings_during(file, outcome)
    print(f"\n{tally.target}: {tally.cases} cases, 5xx {tally.server_errors}, peak RSS {outcome.peak_mb} MB")
    print("  " + ", ".join(f"{answer} × {number}" for answer, number in tally.answers.most_common(14)))
    for kind in ("health", "mail"):
        chosen = [each for each in readings if each.kind == kind]
        delays, bad = [each.delay * 1000 for each in chosen], sum(each.status not in (200, 202) for each in chosen)
        shown = "  ".join(f"{name} {percentile(delays, share):.0f}" for name, share in _SHARES)
        late = percentile([each.late * 1000 for each in chosen], 0.999)
        print(f"  {kind:6} n {len(chosen)}  not accepted {bad}  ms: {shown}  (own lateness p99.9 {late:.0f})")
    for failure in tally.failures:
        print(f"  DEFECT {failure}")


def print_table(outcomes: list[Outcome], file: Path) -> None:
    """The rows of the table in docs/security.md, and the targets during which another client waited too long."""
    print(
        "\n| target | cases | `/healthz` p50 / p99 / max | mail p50 / p99 / max | largest RSS |\n|---|---|---|---|---|"
    )
    for outcome in outcomes:
        readings = readings_during(file, outcome)
        delays = {kind: [each.delay * 1000 for each in readings if each.kind == kind] for kind in ("health", "mail")}
        shown = (" / ".join(f"{percentile(each, share):.0f}" for share in (0.5, 0.99, 1.0)) for each in delays.values())
        print(f"| `{outcome.tally.target}` | {outcome.tally.cases:,} | {' | '.join(shown)} | {outcome.peak_mb} MB |")
        stalls = [f"{kind} {sum(each > LONGEST_MS for each in found)}" for kind, found in delays.items()]
        if any(each > LONGEST_MS for found in delays.values() for each in found):
            print(f"  above {LONGEST_MS} ms: {', '.join(stalls)}", file=sys.stderr)


_SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))

if __name__ == "__main__":
    sys.exit(main())
