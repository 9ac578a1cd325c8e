"""Gives an embedded Kafka other ways to log in: PLAIN, tokens, certificates, an AWS identity."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from deploy.local.cluster import Cluster
from deploy.local.kafka_lock import KafkaLock
from deploy.local.ports import pick_free
from shared.event.rights import RIGHTS
from shared.runtime.defaults import HOST
from shared.runtime.kafka.settings import KafkaAccess
from tests.support.kafka.msk_door import MskDoor
from tests.support.servers.authority import Authority
from tests.support.suite.programs import npm_package, program

Login = Literal["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "mTLS", "AWS_MSK_IAM"]
# The identity that the fake Amazon MSK lets in, as the AWS SDKs read it.
AWS_IDENTITY = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_REGION": "eu-west-1",
}
AUDIENCE = "kafka-of-hifi"
_MODULES = "org.apache.kafka.common.security"
_LISTENER = "listener.name.sasl_ssl"
_BROKER = "hifi-broker"


class LoginLock(KafkaLock):
    """A lock whose users log in as a test wants."""

    def __init__(self, folder: Path, login: Login) -> None:
        super().__init__(folder)
        self._folder = folder
        self._login = login
        # The token service's address, and how long a login lasts.
        self.issuer = ""
        self.login_s = 0.0

    def make(self) -> None:
        super().make()
        if self._login not in {"mTLS", "AWS_MSK_IAM"}:
            return
        authority = Authority(self._folder)
        self._ca_file.write_bytes(authority.file.read_bytes())
        for name in (_BROKER, *RIGHTS):
            certificate, key = authority.sign(name)
            together = key.read_bytes() + certificate.read_bytes()
            file = self._broker_file if name == _BROKER else self._folder / f"{name}-both.pem"
            file.write_bytes(together)

    def access(self, user: str) -> KafkaAccess:
        return KafkaAccess(**self._fields(user))

    def variables(self, user: str) -> dict[str, str]:
        fields = self._fields(user)
        return {f"HIFI_KAFKA_{name.upper()}": str(value) for name, value in fields.items()}

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secret of each user."""
        return self._passwords

    def properties(self) -> Mapping[str, object]:
        return {**super().properties(), **self._more()}

    def _fields(self, user: str) -> dict[str, Any]:
        named = {"user": user, "password": self._passwords[user], "mechanism": self._login}
        of_login: dict[str, dict[str, Any]] = {
            "OAUTHBEARER": {**named, "token_url": f"{self.issuer}/token", "token_scope": "kafka"},
            "mTLS": {"protocol": "SSL", "cert_file": self._folder / f"{user}-both.pem"},
            "AWS_MSK_IAM": {"mechanism": self._login},
        }
        fields = of_login.get(self._login, named)
        return {"protocol": "SASL_SSL", "ca_file": self._ca_file, **fields}

    def _more(self) -> dict[str, object]:
        mechanisms = f"SCRAM-SHA-512,{self._login}"
        if self._login == "PLAIN":
            users = " ".join(f'user_{name}="{word}"' for name, word in self._passwords.items())
            return {
                "sasl.enabled.mechanisms": mechanisms,
                f"{_LISTENER}.plain.sasl.jaas.config": (
                    f"{_MODULES}.plain.PlainLoginModule required {users};"
                ),
            }
        if self._login == "OAUTHBEARER":
            tokens = f"{_MODULES}.oauthbearer"
            return {
                "sasl.enabled.mechanisms": mechanisms,
                f"{_LISTENER}.oauthbearer.sasl.jaas.config": (
                    f"{tokens}.OAuthBearerLoginModule required;"
                ),
                f"{_LISTENER}.oauthbearer.sasl.server.callback.handler.class": (
                    f"{tokens}.OAuthBearerValidatorCallbackHandler"
                ),
                f"{_LISTENER}.oauthbearer.connections.max.reauth.ms": int(self.login_s * 1000),
                "sasl.oauthbearer.jwks.endpoint.url": f"{self.issuer}/jwks",
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.expected.issuer": self.issuer,
            }
        if self._login == "mTLS":
            # The listener keeps its name, and is no longer one with users.
            return {
                "listener.security.protocol.map": "SASL_SSL:SSL,CONTROLLER:SSL",
                f"{_LISTENER}.ssl.client.auth": "required",
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
                "super.users": f"User:CN={_BROKER};User:{_BROKER};User:operator",
            }
        return {}


class MskLock(LoginLock):
    """A fake Amazon MSK with IAM at the address of the only broker of a cluster."""

    door: MskDoor

    def __init__(self, folder: Path, cluster: Cluster, resources: ExitStack) -> None:
        super().__init__(folder, "AWS_MSK_IAM")
        self._cluster = cluster
        self._resources = resources

    def properties(self) -> Mapping[str, object]:
        """Open the door, now that its port was found free, and return the settings behind it."""
        (broker,) = self._cluster._brokers.values()
        behind, internal = pick_free(2)
        key, secret, _ = AWS_IDENTITY.values()
        door = MskDoor(
            broker.port,
            broker_port=behind,
            pem=self._broker_file,
            identity=(key, secret),
            login_s=self.login_s,
        )
        self.door = self._resources.enter_context(door.open())
        own = super().properties()
        controller = f"CONTROLLER://{HOST}:{broker.controller_port}"
        return {
            **own,
            "listeners": f"SASL_SSL://{HOST}:{behind},INTERNAL://{HOST}:{internal},{controller}",
            "advertised.listeners": (
                f"SASL_SSL://{HOST}:{broker.port},INTERNAL://{HOST}:{internal}"
            ),
            # The broker also sends requests to itself, which have no AWS identity.
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": (
                "SASL_SSL:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:SSL"
            ),
            "super.users": f"User:ANONYMOUS;{own['super.users']}",
        }


@contextmanager
def token_service(
    secrets: Mapping[str, str], *, token_s: int, audience: str = AUDIENCE
) -> Iterator[str]:
    """Run `oidc-provider` as a service for tokens; yield its address."""
    folder = npm_package("tests/packages/oidc", "oidc-provider").parents[1]
    argv = [program("node"), str(folder / "tokens.js"), str(token_s), audience]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"NODE_NO_WARNINGS": "1"},
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(dict(secrets)))
            process.stdin.close()
            yield f"http://localhost:{int(process.stdout.readline())}"
        finally:
            process.kill()
