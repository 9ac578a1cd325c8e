"""Asks the metadata service (version 2) for the machine's identity and its planned end."""

import json
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

ADDRESS = "http://169.254.169.254"
_TOKEN_S = 300
_TIMEOUT_S = 5.0


class Instance:
    """The machine that this process runs on, according to its metadata service."""

    def __init__(self, address: str = ADDRESS) -> None:
        self._address = address

    @property
    def id(self) -> str:
        return self._said("instance-id")

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that the template gives this machine, without secrets."""
        settings: Mapping[str, Any] = json.loads(self._get("user-data") or "{}")
        return settings

    @property
    def credentials(self) -> Mapping[str, str]:
        """The credentials of the machine's role, valid for some minutes."""
        role = self._said("iam/security-credentials/").strip()
        members: Mapping[str, str] = json.loads(self._said(f"iam/security-credentials/{role}"))
        return members

    def why_end(self) -> str | None:
        """Return why this machine will end soon; None while it stays."""
        if self._get("meta-data/spot/instance-action") is not None:
            return "spot"
        state = self._get("meta-data/autoscaling/target-lifecycle-state")
        return "scaled in" if state is not None and state.startswith("Terminated") else None

    def _said(self, path: str) -> str:
        text = self._get(f"meta-data/{path}")
        if text is None:
            raise OSError(f"the metadata service has no {path}")
        return text

    def _get(self, path: str) -> str | None:
        """Return the text at a path; None if there is none."""
        life = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
        token = self._ask("api/token", life, method="PUT")
        return self._ask(path, {"X-aws-ec2-metadata-token": token or ""})

    def _ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
        request = urllib.request.Request(  # noqa: S310 - the machine's own, at a fixed address
            f"{self._address}/latest/{path}", headers=dict(headers), method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - above
                text: str = answer.read().decode()
        except HTTPError as refusal:
            with refusal:
                if refusal.code == 404:  # noqa: PLR2004 - HTTP's own number
                    return None
            raise
        except HTTPException as error:
            raise OSError(f"the metadata service does not speak HTTP: {error}") from error
        return text
