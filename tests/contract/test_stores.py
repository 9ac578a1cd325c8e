"""The contract of an archive's stores, for all kinds that run here: a folder and an S3 server."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from shared.config.outside.store import Store
from shared.runtime.archive.stores import OpenStore, StoreAwayError
from shared.runtime.secret_box import SecretBox
from tests.support.pipelines.bucket_faults import Manner, faulty_bucket
from tests.support.pipelines.object_server import SECRET_KEY, ObjectServer

pytestmark = pytest.mark.integration

MakeBucket: TypeAlias = Callable[[str], OpenStore]


@pytest.fixture(params=["folder", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    if request.param == "folder":
        store = Store("folder", f"file://{tmp_path}/store")
        yield OpenStore(store, SecretBox.of(""), folders=tmp_path)
        return
    server: ObjectServer = request.getfixturevalue("object_server")
    yield server.bucket(server.store())


def test_what_was_put_is_there_whole_and_a_name_is_given_once(bucket: OpenStore) -> None:
    assert bucket.put_new("a/b=1/c.bin", b"first")
    assert not bucket.put_new("a/b=1/c.bin", b"second")
    assert bucket.get("a/b=1/c.bin") == b"first"
    assert bucket.get("a/b=1/none.bin") is None


def test_of_many_who_put_the_same_name_one_wins(bucket: OpenStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(lambda n: bucket.put_new("race", b"%d" % n), range(8)))
    assert sum(wins) == 1
    assert bucket.get("race") == b"%d" % wins.index(True)


def test_what_is_below_is_listed_and_nothing_else(bucket: OpenStore) -> None:
    for name in ("t/x=1/e/1", "t/x=1/e/2", "t/x=2/e/1", "u/x=1/e/1"):
        bucket.put_new(name, b"")
    assert sorted(bucket.names("t/x=1")) == ["t/x=1/e/1", "t/x=1/e/2"]
    assert list(bucket.names("nowhere")) == []
    assert sorted(each.rstrip("/") for each in bucket.folders("t")) == ["t/x=1", "t/x=2"]


def test_a_large_object_is_there_whole(bucket: OpenStore) -> None:
    data = bytes(range(256)) * 40_000
    assert bucket.put_new("large", data)
    assert bucket.get("large") == data


def test_a_wrong_key_is_told_without_the_key(object_server: ObjectServer) -> None:
    box = SecretBox.of(object_server.secret_keys)
    store = object_server.store()
    wrong = replace(store, secret_key=box.seal("another-secret", owner=store.owner))
    bucket = object_server.bucket(wrong)
    for ask in (partial(bucket.put_new, "a", b"1"), partial(bucket.folders, "a")):
        with pytest.raises(StoreAwayError, match=r"^the store backup: .*SignatureDoesNot") as told:
            ask()
        assert "another-secret" not in str(told.value)


def test_a_bucket_that_is_not_there_is_told(object_server: ObjectServer) -> None:
    wrong = replace(object_server.store(), url="s3://no-such/a")
    with pytest.raises(StoreAwayError, match="NoSuchBucket: ") as told:
        object_server.bucket(wrong).folders("a")
    assert object_server.endpoint not in str(told.value), "the server's address is a secret"


def test_nobody_at_the_address_is_told(object_server: ObjectServer) -> None:
    store = replace(object_server.store(), endpoint="http://127.0.0.1:9")
    with pytest.raises(StoreAwayError, match=r"^the store backup: .* error sending request$"):
        object_server.bucket(store).put_new("a", b"1")


@pytest.mark.parametrize("manner", ["away", "full", "denied"])
def test_a_bucket_that_takes_nothing_is_told_and_goes_on_by_itself(
    object_server: ObjectServer, manner: Manner
) -> None:
    with faulty_bucket(object_server.endpoint) as faulty:
        store = replace(object_server.store(), endpoint=faulty.endpoint)
        bucket = object_server.bucket(store)
        assert bucket.put_new("before", b"1")
        faulty.manner = manner
        with pytest.raises(StoreAwayError, match="the store backup") as told:
            bucket.put_new("a", b"1")
        assert SECRET_KEY not in str(told.value)
        faulty.manner = "well"
        assert bucket.get("a") is None, "no part of the object is stored"
        assert bucket.put_new("a", b"2")
        assert not bucket.put_new("before", b"2")


def test_a_slow_bucket_has_it_whole_once_it_has_said_so(object_server: ObjectServer) -> None:
    with faulty_bucket(object_server.endpoint) as faulty:
        store = replace(object_server.store(), endpoint=faulty.endpoint)
        faulty.manner = "slow"
        assert object_server.bucket(store).put_new("a", b"1" * 1_000_000)
        assert object_server.bucket(store).get("a") == b"1" * 1_000_000


def test_a_secret_that_was_sealed_for_another_store_opens_nothing(
    object_server: ObjectServer,
) -> None:
    stolen = replace(object_server.store(), name="another")
    with pytest.raises(StoreAwayError, match="sealed for another"):
        object_server.bucket(stolen)


@pytest.mark.parametrize("folders", [None, "inside"])
def test_a_folder_is_used_where_all_of_them_are_and_nowhere_else(
    tmp_path: Path, folders: str | None
) -> None:
    store = Store("folder", f"file://{tmp_path}/store")
    inside = None if folders is None else tmp_path / folders
    with pytest.raises(StoreAwayError, match="HIFI_STORE_FOLDERS"):
        OpenStore(store, SecretBox.of(""), folders=inside)


def test_a_link_out_of_them_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").symlink_to(tmp_path)
    store = Store("folder", f"file://{tmp_path}/root/out/store")
    with pytest.raises(StoreAwayError, match="not below"):
        OpenStore(store, SecretBox.of(""), folders=tmp_path / "root")


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file stands where the folder should be")
    with pytest.raises(StoreAwayError, match="the store folder"):
        OpenStore(Store("folder", f"file://{tmp_path}/store"), SecretBox.of(""), folders=tmp_path)
