"""Fixtures of the sender's tests."""

from pathlib import Path

import pytest

from tests.support.servers.authority import Authority


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Return an authority that this process trusts."""
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    return made
