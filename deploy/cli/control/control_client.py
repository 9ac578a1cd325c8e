"""Decides how commands talk to the gateway's control API: one call, its answer or one sentence."""

from typing import Any
from urllib.parse import quote

import httpx

from shared.runtime.setup_error import UsageError

# A change waits for Kafka (10 s at most) and for this gateway to follow it (2 s).
_TIMEOUT_S = 30.0


class ControlClient:
    """The control API of one gateway, as one caller."""

    def __init__(self, gateway: str, api_key: str | None) -> None:
        self._gateway = gateway.rstrip("/")
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}

    def call(
        self,
        method: str,
        *path: str,
        body: dict[str, Any] | None = None,
        query: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Ask for `/v1/` and the parts of the path; UsageError when the answer is no success."""
        url = "/".join([self._gateway, "v1", *(quote(part, safe="") for part in path)])
        try:
            response = httpx.request(
                method, url, json=body, params=query, headers=self._headers, timeout=_TIMEOUT_S
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UsageError(
                f"No gateway answers at {self._gateway} ({error}):"
                " start one with `hifi up`, or name another with --gateway URL."
            ) from error
        if not response.is_success:
            raise UsageError(_complaint(response))
        return response.json() if response.content else {}


def _complaint(response: httpx.Response) -> str:
    status = f"The gateway answered {response.status_code}"
    try:
        said = response.json()
        told = f"{status} {said['code']}: {said['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"{status}, and not as Hifi does: is --gateway the address of a gateway of Hifi?"
    if response.status_code in {401, 403}:
        told += " Name a key with --api-key or HIFI_API_KEY; `hifi keys create --help` makes one."
    return told
