"""The issuer's keys: a replaced file takes effect without a restart."""

import json
import os
import time
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import gateway.jwt
from gateway.jwt import TokenReader
from gateway.problems import Problem
from gateway.settings import Settings


def key_set(signer: Ed25519PrivateKey) -> str:
    key = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(signer.public_key()))
    return json.dumps({"keys": [key | {"kid": "k1", "alg": "EdDSA", "use": "sig"}]})


def token(signer: Ed25519PrivateKey) -> str:
    claims = {"iss": "us", "aud": "hifi", "exp": int(time.time()) + 60, "tenant": "acme"}
    return jwt.encode(claims, signer, algorithm="EdDSA", headers={"kid": "k1"})


def test_keys_are_those_of_the_file_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    file = tmp_path / "keys.json"
    file.write_text(key_set(old))
    reader = TokenReader(file, Settings(jwt_issuer="us"))
    assert reader.read(token(old)).tenant == "acme"

    def put(text: str, *, at_s: int) -> None:
        file.write_text(text)
        os.utime(file, (at_s, at_s))

    put(key_set(new), at_s=1)
    assert reader.read(token(old)).tenant == "acme", "the file is not read at each request"
    monkeypatch.setattr(gateway.jwt, "_LOOK_S", 0)
    assert reader.read(token(new)).tenant == "acme"
    with pytest.raises(Problem):
        reader.read(token(old))
    put("{", at_s=2)
    assert reader.read(token(new)).tenant == "acme", "a file that is not a key set removes no key"
    file.unlink()
    assert reader.read(token(new)).tenant == "acme"
    put(key_set(old), at_s=3)
    assert reader.read(token(old)).tenant == "acme"
