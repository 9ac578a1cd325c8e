"""The query by which KEDA scales delivery computes the load that AWS machines publish."""

import json
from pathlib import Path

from deploy.aws.machine.load import MetricsPage, delivery_load
from deploy.scaling.load_query import SELECTOR, load_query
from tests.support.observe.prometheus_programs import promtool

ACTIVE = {"lease_up{}": 1.0}
RATES = {f'events_per_second{{stream="{name}"}}': rate for name, rate in (("s", 900), ("t", 70))}


def destination(name: str, verdict: str, backlog: float, waiting: float = 0) -> dict[str, float]:
    at = f'destination="{name}"'
    return {
        f'verdict{{{at},verdict="{verdict}",cause=""}}': 1,
        f"backlog_events{{{at}}}": backlog,
        f'waiting_events{{{at},cause="parked"}}': waiting,
        f'waiting_events{{{at},cause="failed attempt"}}': 2 * waiting,
    }


CASES: dict[str, dict[str, float]] = {
    "all verdicts": {
        **ACTIVE,
        **RATES,
        **destination("s/well", "OK", 18_000, 1_200),
        **destination("s/late", "SLOW", 3_600),
        **destination("t/well", "OK", 0),
        **destination("t/down", "FAILING", 10**9, 10),
        **destination("s/held", "HELD", 10**9),
        **destination("s/paused", "PAUSED", 10**9),
        **destination("t/off", "DISABLED", 10**9),
        **destination("t/slowed", "RATE-LIMITED", 10**9),
    },
    "more events wait than are in the backlog": {
        **ACTIVE,
        **RATES,
        **destination("s/a", "OK", 10, 1_000),
    },
    "all wait for their destination": {**ACTIVE, **RATES, **destination("s/a", "FAILING", 10)},
    "a stream without a rate": {**ACTIVE, **destination("u/a", "OK", 360)},
    "no destination": {**ACTIVE, **RATES},
    "no stream": ACTIVE,
    "no active observer": {"lease_up{}": 0},
    "no observer": {},
}


def test_the_query_computes_the_load_of_aws_machines(tmp_path: Path) -> None:
    tests = []
    for name, known in CASES.items():
        page = "\n".join(f"hifi_observe_{key} {value}" for key, value in known.items())
        load = delivery_load(MetricsPage(page.replace("{}", "")), rating=1.0)
        # Prometheus keeps what a pod has shown before, and scrapes another Hifi, too.
        rows = {
            labelled(key, f'pod="{pod}",namespace="{namespace}"'): value * times
            for key, value in known.items()
            for pod, namespace, times in (("1", "events", 1), ("2", "events", 1), ("1", "test", 9))
        }
        tests.append(
            {
                "name": name,
                "interval": "30s",
                "input_series": [{"series": key, "values": str(v)} for key, v in rows.items()],
                "promql_expr_test": [
                    {
                        "expr": load_query().replace(SELECTOR, 'namespace="events"'),
                        "eval_time": "0s",
                        "exp_samples": [] if load is None else [{"labels": "{}", "value": load[0]}],
                    }
                ],
            }
        )
    file = tmp_path / "load.yaml"
    file.write_text(json.dumps({"tests": tests}))
    promtool("test", "rules", str(file))


def labelled(key: str, more: str) -> str:
    name, _, labels = key.removesuffix("}").partition("{")
    return f"hifi_observe_{name}{{{','.join(filter(None, (labels, more)))}}}"
