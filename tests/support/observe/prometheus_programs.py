"""Starts a Prometheus with our rules, and its promtool."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.deploy.stack_fixtures import fetch
from tests.support.suite.programs import program
from tests.tidy import sources

RULES = sources.ROOT / "deploy" / "alerts" / "hifi.yaml"


@contextmanager
def prometheus(
    folder: Path, *, own: int, scraped: int, asks_s: int, judges_s: int
) -> Iterator[str]:
    """Run a real Prometheus with our rules, which scrapes one port; yield its address."""
    targets = [{"targets": [f"127.0.0.1:{scraped}"]}]
    config = {
        "global": {"scrape_interval": f"{asks_s}s", "evaluation_interval": f"{judges_s}s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "hifi", "static_configs": targets}],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config))
    with (folder / "log").open("w") as log:
        argv = [program("prometheus"), f"--config.file={file}"]
        argv += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{own}"]
        running = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{own}"
        finally:
            running.terminate()
            running.wait(30)


def ask(url: str, path: str) -> dict[str, Any]:
    """Return Prometheus' data, or nothing while it does not answer."""
    answer = json.loads(fetch(f"{url}/api/v1/{path}") or "{}")
    data: dict[str, Any] = answer.get("data", {"alerts": [], "groups": [], "result": []})
    return data


def promtool(*arguments: str) -> None:
    ended = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
