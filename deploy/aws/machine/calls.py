"""Calls AWS as the machine's role, signed with the standard library (Signature Version 4).

Half a dozen calls to five services do not justify a client of 16 MB that takes a second to start.
"""

import hashlib
import hmac
import json
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit

from deploy.aws.machine.instance import Instance
from shared.runtime.clock import now_ms

_ALGORITHM = "AWS4-HMAC-SHA256"
_TIMEOUT_S = 10.0
_WORDS_MAX = 300
# The names of services in addresses and signatures, if they differ from ours.
_HOSTS = {"cloudwatch": "monitoring"}
_VERSIONS = {
    "autoscaling": "2011-01-01",
    "cloudformation": "2010-05-15",
    "cloudwatch": "2010-08-01",
}


class CallError(OSError):
    """AWS refused a call, or did not answer."""


class Aws:
    """Calls the services of a region; `endpoint` is an address with {service} and {region}."""

    def __init__(self, instance: Instance, *, region: str, endpoint: str) -> None:
        self._instance, self._region, self._endpoint = instance, region, endpoint

    def query(self, service: str, action: str, **parameters: str | float) -> str:
        """Call an older service with a form; return the XML answer."""
        form = {"Action": action, "Version": _VERSIONS[service], **parameters}
        headers = {"content-type": "application/x-www-form-urlencoded"}
        return self._call(service, "POST", "/", urlencode(form).encode(), headers)

    def secret(self, name: str) -> Mapping[str, str]:
        """Return the members of a secret."""
        headers = {
            "content-type": "application/x-amz-json-1.1",
            "x-amz-target": "secretsmanager.GetSecretValue",
        }
        body = json.dumps({"SecretId": name}).encode()
        answer = json.loads(self._call("secretsmanager", "POST", "/", body, headers))
        members: Mapping[str, str] = json.loads(answer["SecretString"])
        return members

    def brokers(self, cluster: str) -> str:
        """Return an MSK cluster's addresses for SCRAM."""
        path = f"/v1/clusters/{quote(cluster, safe='')}/bootstrap-brokers"
        answer: Mapping[str, Any] = json.loads(self._call("kafka", "GET", path, b"", {}))
        return str(answer["bootstrapBrokerStringSaslScram"])

    def _call(
        self, service: str, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> str:
        host = _HOSTS.get(service, service)
        url = self._endpoint.format(service=host, region=self._region) + path
        signed = signed_headers(
            self._instance.credentials,
            host,
            self._region,
            method=method,
            url=url,
            body=body,
            headers=headers,
            at_ms=now_ms(),
        )
        request = urllib.request.Request(  # noqa: S310 - from the template; https except in tests
            url, data=body or None, headers=signed, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - above
                text: str = answer.read().decode()
        except HTTPError as refusal:
            with refusal:
                why = refusal.read(_WORDS_MAX).decode(errors="replace")
            raise CallError(f"{service} says {refusal.code}: {why}") from refusal
        except (OSError, HTTPException) as error:
            raise CallError(f"{service} does not answer: {error}") from error
        return text


def signed_headers(
    credentials: Mapping[str, str],
    service: str,
    region: str,
    *,
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    at_ms: int,
) -> dict[str, str]:
    """Return the headers of a request, including its signature."""
    parts = urlsplit(url)
    moment = _moment(at_ms)
    signed = {**headers, "host": parts.netloc, "x-amz-date": moment}
    if token := credentials.get("Token"):
        signed["x-amz-security-token"] = token
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        [
            method,
            # Every service but S3 wants the path escaped once more than in the request.
            quote(parts.path or "/"),
            parts.query,
            *(f"{name}:{signed[name].strip()}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{moment}\n{scope}\n{digest}"
    key = f"AWS4{credentials['SecretAccessKey']}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    signed["authorization"] = (
        f"{_ALGORITHM} Credential={credentials['AccessKeyId']}/{scope},"
        f" SignedHeaders={names}, Signature={signature}"
    )
    del signed["host"]
    return signed


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
