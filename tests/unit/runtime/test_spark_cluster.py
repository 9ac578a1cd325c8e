"""Settings of a Spark cluster, and the secrets and files that its executors get."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pydantic import SecretStr, ValidationError

from delivery.lanes.units import Job, JobKind, Span, Unit, worker_of
from delivery.settings import DeliverySettings
from observe.settings import ObserveSettings
from shared.event.record import KafkaPartition
from shared.runtime.kafka.settings import KafkaAccess
from shared.runtime.setup_error import SetupError
from shared.runtime.spark import cluster as module
from shared.runtime.spark.cluster import SparkCluster
from shared.runtime.spark.session import SparkSettings, _options

HERE = SparkCluster("spark://one:7077", "10.0.0.7", "/opt/hifi/bin/python")


def test_each_executor_of_a_process_has_all_its_slots() -> None:
    settings = DeliverySettings(  # type: ignore[call-arg]
        HIFI_SPARK_MASTER="spark://127.0.0.1:7077", HIFI_SPARK_EXECUTORS=3, task_places=48
    )
    assert settings.cluster is not None
    options = settings.cluster.options(task_places=settings.task_places)
    assert (options["spark.executor.cores"], options["spark.cores.max"]) == ("48", "144")
    assert options["spark.executor.instances"] == "3"
    one = DeliverySettings(task_places=48)
    assert (settings.worker_count, settings.all_places) == (3 * one.worker_count, 144)
    # Two more places are kept free of hanging destinations, however many executors there are.
    assert settings.lent_places + 2 == 3 * (one.lent_places + 2)


def test_all_jobs_of_a_destination_that_is_well_go_to_the_same_place() -> None:
    name, count = "stream/name", 6
    worker = worker_of(name, count)
    alone = Job(
        JobKind.ALONE, [[Unit(KafkaPartition("hifi.stream.stream", 0), {name: Span(0, 9)})]]
    )
    assert alone.place(count) == Job(JobKind.SHARED, [()], worker).place(count) == worker
    assert {worker_of(f"stream/{n}", count) for n in range(100)} == set(range(count))


def test_what_enters_kafka_for_the_audit_is_told_to_java_and_shown_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access = KafkaAccess(protocol="SASL_PLAINTEXT", user="observe", password=SecretStr("hush"))
    monkeypatch.setattr("observe.settings.kafka_access", lambda: access)
    cluster = ObserveSettings(HIFI_SPARK_MASTER="spark://127.0.0.1:7077").cluster  # type: ignore[call-arg]
    assert cluster is not None
    assert "hush" not in repr(cluster)
    options = cluster.options(task_places=2)
    assert "hush" not in str(options), "options are visible in the command line of the driver's JVM"
    ((name, value),) = cluster.secrets.items()
    assert name == "spark.executorEnv.HIFI_KAFKA_JAAS"
    assert "hush" in value
    assert re.search(options["spark.redaction.regex"], name)
    assert ObserveSettings().cluster is None


def test_the_tasks_of_one_process_share_one_executor() -> None:
    settings = SparkSettings("test", "a.daemon", Path("scratch"), task_places=12, cluster=HERE)
    options = _options(settings, [], [])
    assert options["spark.master"] == "spark://one:7077"
    assert options["spark.driver.host"] == "10.0.0.7"
    assert "spark.driver.bindAddress" not in options, "its own, or what spark-defaults.conf says"
    assert options["spark.executor.cores"] == options["spark.cores.max"] == "12"
    assert options["spark.speculation"] == "false"
    local = _options(SparkSettings("test", "a.daemon", Path("scratch"), task_places=12), [], [])
    assert (local["spark.master"], local["spark.driver.host"]) == ("local[12,4]", "127.0.0.1")


@pytest.mark.parametrize("master", ["local[4]", "spark://one", "one:7077", "spark:one:7077", ""])
def test_what_is_no_cluster_is_refused_at_the_start(master: str) -> None:
    with pytest.raises(ValidationError, match="spark://HOST:PORT"):
        DeliverySettings(HIFI_SPARK_MASTER=master)  # type: ignore[call-arg]


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api.example:6443"])
def test_where_the_driver_is_must_be_said_if_nobody_can_tell(master: str) -> None:
    with pytest.raises(SetupError, match="HIFI_SPARK_DRIVER_HOST"):
        DeliverySettings(HIFI_SPARK_MASTER=master)  # type: ignore[call-arg]
    settings = DeliverySettings(HIFI_SPARK_MASTER=master, HIFI_SPARK_DRIVER_HOST="ten")  # type: ignore[call-arg]
    assert settings.cluster is not None
    assert (settings.cluster.master, settings.cluster.driver_host) == (master, "ten")


def test_what_is_known_of_destinations_is_kept_where_the_workers_are() -> None:
    assert DeliverySettings().flows.is_absolute()
    on_cluster = DeliverySettings(HIFI_SPARK_MASTER="spark://127.0.0.1:7077")  # type: ignore[call-arg]
    assert on_cluster.flows == Path("flows"), "in an executor's own folder"
    assert on_cluster.cluster is not None
    assert on_cluster.cluster.driver_host == "127.0.0.1", "its address on the way to the master"
    where = Path("/var/hifi/flows")
    named = DeliverySettings(HIFI_SPARK_MASTER="spark://127.0.0.1:7077", flow_folder=where)  # type: ignore[call-arg]
    assert named.flows == where


def test_a_master_whom_nobody_knows_is_said_in_a_sentence() -> None:
    settings = DeliverySettings(HIFI_SPARK_MASTER="spark://no.such.host.invalid:7077")  # type: ignore[call-arg]
    with pytest.raises(SetupError, match="cannot be reached from here"):
        _ = settings.cluster


class Context:
    """A Spark context whose executor has some version of Hifi, or raises an error."""

    def __init__(self, answer: list[str] | Exception) -> None:
        self.environment: dict[str, str] = {}
        self.files: list[str] = []
        self._answer = answer

    def addFile(self, path: str) -> None:  # noqa: N802 - as Spark calls it
        self.files.append(path)

    def parallelize(self, *_: object) -> Any:
        return SimpleNamespace(mapPartitions=lambda _: SimpleNamespace(collect=self._collect))

    def _collect(self) -> list[str]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_executors_get_secrets_and_files_with_their_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "version", lambda _: "1.2.3")
    ca, folder = tmp_path / "theirs" / "ca.pem", tmp_path / "own"
    for each in (ca.parent, folder):
        each.mkdir()
    ca.write_text("certificate")
    access = KafkaAccess.model_construct(
        protocol="SASL_SSL", ca_file=ca, user="delivery", password=_secret("hunter2")
    )
    told, files = access.for_another_process()
    cluster = SparkCluster("spark://one:7077", "ten", "python", told, files)
    assert "hunter2" not in repr(cluster)
    context = Context(["1.2.3"])
    cluster.equip(cast("Any", context), folder)
    (shipped,) = context.files
    assert Path(shipped).read_text() == "certificate"
    assert context.environment == {
        "HIFI_KAFKA_PROTOCOL": "SASL_SSL",
        "HIFI_KAFKA_MECHANISM": "SCRAM-SHA-512",
        "HIFI_KAFKA_USER": "delivery",
        "HIFI_KAFKA_PASSWORD": "hunter2",
        # An executor runs in the folder of its files.
        "HIFI_KAFKA_CA_FILE": Path(shipped).name,
    }


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (["0.9"], "have Hifi 0.9, but this is 1.2.3"),
        (Py4JError("no"), "No executor of spark://one"),
    ],
)
def test_executors_that_cannot_work_with_us_are_told_of_at_the_start(
    answer: list[str] | Exception, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "version", lambda _: "1.2.3")
    with pytest.raises(SetupError, match=says):
        HERE.equip(cast("Any", Context(answer)), tmp_path)


@pytest.mark.parametrize(
    ("conf", "missing"),
    [
        ({}, "spark.authenticate and spark.network.crypto.enabled"),
        ({"spark.authenticate": "true"}, "set spark.network.crypto.enabled"),
        ({"spark.authenticate": "TRUE", "spark.network.crypto.enabled": "true"}, ""),
        ({"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, ""),
    ],
)
@pytest.mark.parametrize(
    "given",
    [
        {"told": {"HIFI_SECRET_KEYS": "a key"}},
        {"told": {"HIFI_KAFKA_PASSWORD": "hunter2"}},
        {"files": {"HIFI_KAFKA_CERT_FILE": Path("key.pem")}},
        {"told_java": {"HIFI_KAFKA_JAAS": "hunter2"}},
    ],
)
def test_nobody_gets_secrets_who_only_says_that_it_is_an_executor(
    conf: dict[str, str], missing: str, given: dict[str, Any]
) -> None:
    cluster = SparkCluster("spark://one:7077", "ten", "python", **given)
    if missing:
        with pytest.raises(SetupError, match=missing):
            cluster.check_lock(cast("Any", conf))
    else:
        cluster.check_lock(cast("Any", conf))
    # A Kafka without access control needs no secret.
    SparkCluster(
        "spark://one:7077", "ten", "python", {"HIFI_SECRET_KEYS": "", "HIFI_KAFKA_USER": "a"}
    ).check_lock(cast("Any", {}))


def _secret(text: str) -> Any:
    return SimpleNamespace(get_secret_value=lambda: text)
