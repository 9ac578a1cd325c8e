"""Stores that an operator may configure, and settings that are refused."""

from typing import Any

import pytest

from shared.config.model import ConfigError
from shared.config.outside.store import Store, store_of


def test_a_store_is_a_bucket_below_a_path_for_some_tenants() -> None:
    store = store_of("backup", {"url": "s3://b/a/c/", "tenants": ["acme"], "region": "eu-1"})
    assert (store.kind, store.bucket, store.path) == ("s3", "b", "a/c")
    assert store.allows("acme")
    assert not store.allows("default")
    assert store.owner == "store:backup"


def test_a_folder_is_a_path_and_all_stands_for_everybody() -> None:
    store = store_of("here", {"url": "file:///var/hifi", "tenants": ["all"]})
    assert (store.kind, store.path) == ("file", "/var/hifi")
    assert store.allows("anybody")
    assert Store("own", "gs://b").allows("default")


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("no table", "backup"),
        ({}, "backup.url"),
        ({"url": "ftp://b"}, "backup.url"),
        ({"url": "s3://"}, "backup.url"),
        ({"url": "s3://b?x=1"}, "backup.url"),
        ({"url": "file://host/a"}, "backup.url"),
        ({"url": "file:///a/../b"}, "backup.url"),
        ({"url": "s3://b", "secret_key": "plain"}, "backup.secret_key"),
        ({"url": "s3://b", "endpoint": "http://169.254.169.254"}, "backup.endpoint"),
        ({"url": "s3://b", "endpoint": "http://1.2.3.4.5"}, "backup.endpoint"),
        ({"url": "s3://b", "tenants": ["No Name"]}, "backup.tenants"),
        ({"url": "s3://b", "bucket": "b"}, "backup.bucket"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(settings: Any, names: str) -> None:
    with pytest.raises(ConfigError) as refused:
        store_of("backup", settings)
    assert refused.value.setting.startswith(names)
    assert "plain" not in str(refused.value)
