"""Asks the Hifi process of this container whether it is ready: `hifi-health`, for health checks.

It needs no setting: one container has one process, which listens on one of the services' ports.
"""

import http.client
import os
import sys

from shared.runtime import defaults

_PORTS = {
    "GATEWAY": defaults.GATEWAY_METRICS_PORT,
    "DELIVERY": defaults.DELIVERY_METRICS_PORT,
    "RETRIER": defaults.RETRIER_METRICS_PORT,
    "OBSERVE": defaults.OBSERVE_METRICS_PORT,
    "PIPELINES": defaults.PIPELINES_METRICS_PORT,
}
_TIMEOUT_S = 4.0


def main() -> None:
    """Exit with 0 if a process here is ready, else with 1 and its reason."""
    reasons = []
    for service, default in _PORTS.items():
        port = int(os.environ.get(f"HIFI_{service}_METRICS_PORT") or default)
        status, said = _asked(port)
        if status == http.client.OK:
            sys.stdout.write(f"{service.lower()} on port {port}: {said}\n")
            return
        if status:
            reasons.append(f"{service.lower()} on port {port}: {said}")
    sys.exit("\n".join(reasons) or "no Hifi process listens here")


def _asked(port: int) -> tuple[int, str]:
    """Return a probe's status and text; status 0 if nobody answers."""
    connection = http.client.HTTPConnection(defaults.HOST, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()
