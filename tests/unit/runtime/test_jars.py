"""Only listed jars are accepted; otherwise a person reads why not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from shared.runtime.java.cache_folder import default_cache
from shared.runtime.java.ivy import fetched, file_name, ivy_xml, last_error
from shared.runtime.java.jars import (
    LOCK_PATH,
    JarProgress,
    LockedJar,
    _report,
    ensure_jars,
    missing_jars,
    read_lock,
)
from shared.runtime.java.jars_lock import _locked, lock_text
from shared.runtime.setup_error import SetupError

_DONE = "\t[SUCCESSFUL ] org.apache.kafka#kafka-clients;4.3.1!kafka-clients.jar (531ms)"

_MSK = "software.amazon.msk:aws-msk-iam-auth:2.3.5:all"


def _jar(artifact: str, data: bytes = b"bytes") -> LockedJar:
    return LockedJar(f"org.example:{artifact}:1.0", hashlib.sha256(data).hexdigest(), len(data))


def test_the_lock_pins_what_the_design_names() -> None:
    lock = read_lock()
    broker = {jar.coordinate for jar in lock["broker"]}
    assert len(broker) == 46
    assert {
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    } <= broker
    assert [jar.coordinate for jar in lock["spark"]] == [
        "org.apache.commons:commons-pool2:2.13.1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    ]
    assert [jar.coordinate for jar in lock["msk"]] == [_MSK]


def test_making_the_lock_from_what_it_says_gives_the_same_bytes() -> None:
    sets = {name: list(reversed(jars)) for name, jars in reversed(read_lock().items())}
    assert lock_text(sets) == LOCK_PATH.read_text()


def test_only_what_is_not_there_is_missing(tmp_path: Path) -> None:
    (tmp_path / "here-1.0.jar").write_bytes(b"bytes")
    here, absent = _jar("here"), _jar("absent")
    assert missing_jars([here, absent], folder=tmp_path) == [absent]


def test_a_cache_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        SetupError, match=r"kept in .*file/jars \(Not a directory\): set HIFI_CACHE"
    ):
        ensure_jars("spark", cache=tmp_path / "file")


def test_a_corrupt_jar_is_named_with_its_mend(tmp_path: Path) -> None:
    path = tmp_path / "bad-1.0.jar"
    path.write_bytes(b"other bytes")
    with pytest.raises(SetupError) as caught:
        missing_jars([_jar("good"), _jar("bad")], folder=tmp_path)
    message = str(caught.value)
    assert f"{path} is corrupt" in message
    assert hashlib.sha256(b"other bytes").hexdigest()[:12] in message
    assert hashlib.sha256(b"bytes").hexdigest()[:12] in message
    assert f"`rm {path}` and run again" in message


def test_a_finished_download_is_read_from_ivy() -> None:
    assert fetched(_DONE) == "org.apache.kafka:kafka-clients:4.3.1"


@pytest.mark.parametrize(
    "line",
    ["", "......... (9003kB)", "\tfound a#b;1 in jars", "\t[FAILED     ] a#b;1!b.jar: (0ms)"],
)
def test_other_lines_are_no_download(line: str) -> None:
    assert fetched(line) is None


def test_progress_counts_jars_and_bytes() -> None:
    clients = LockedJar("org.apache.kafka:kafka-clients:4.3.1", "", 900)
    seen: list[JarProgress] = []
    read_line = _report("broker", [clients, _jar("other", b"12345")], seen.append)
    for line in ("downloading x ...", _DONE, _DONE):
        read_line(line)
    assert seen == [JarProgress("broker", "kafka-clients-4.3.1.jar", 1, 2, 900, 905)]


def test_ivy_is_asked_for_exactly_these_modules() -> None:
    text = ivy_xml(["a.b:c:1"], transitive=False)
    assert (
        '<dependency org="a.b" name="c" rev="1" conf="default-&gt;*" transitive="false"/>' in text
    )


def test_a_jar_with_a_classifier_is_one_of_several_of_its_module(tmp_path: Path) -> None:
    assert file_name(_MSK) == "aws-msk-iam-auth-2.3.5-all.jar"
    assert (
        '><artifact name="aws-msk-iam-auth" type="jar" m:classifier="all"/></dependency>'
        in ivy_xml([_MSK], transitive=False)
    )
    path = tmp_path / "software.amazon.msk" / "aws-msk-iam-auth" / "2.3.5" / file_name(_MSK)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"bytes")
    jar = _locked(path)
    assert (jar.coordinate, jar.size_bytes) == (_MSK, 5)
    seen: list[JarProgress] = []
    read_line = _report("msk", [jar], seen.append)
    read_line(
        "\t[SUCCESSFUL ] software.amazon.msk#aws-msk-iam-auth;2.3.5!aws-msk-iam-auth.jar (9ms)"
    )
    assert seen == [JarProgress("msk", "aws-msk-iam-auth-2.3.5-all.jar", 1, 1, 5, 5)]


def test_the_line_with_the_cause_is_quoted() -> None:
    lines = ["x (java.net.UnknownHostException: some.host)", "\t:: UNRESOLVED DEPENDENCIES ::", ""]
    assert last_error(lines) == "x (java.net.UnknownHostException: some.host)"
    assert last_error(["only this", ""]) == "only this"
    assert last_error([]) == "nothing"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HIFI_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, Path("/c")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/hifi")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache" / "hifi"),
        ({}, Path.home() / ".cache" / "hifi"),
    ],
)
def test_the_cache_folder_is_where_people_expect_it(
    environ: dict[str, str], expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HIFI_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert default_cache() == expected
