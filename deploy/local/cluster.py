"""The embedded Kafka cluster: formats, starts, stops and restarts one or three brokers."""

import asyncio
import contextlib
import json
import os
import re
import secrets
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Self

from deploy.local import ports as loopback
from deploy.local.broker_properties import BrokerAddress, log4j2_properties, server_properties
from deploy.local.children import Child
from deploy.local.cluster_ready import wait_for_brokers
from deploy.local.kafka_lock import KafkaLock
from shared.event.rights import OPERATOR, RIGHTS
from shared.runtime.defaults import HOST
from shared.runtime.files.one_owner import own_folder
from shared.runtime.files.whole_file import write_whole
from shared.runtime.java.class_archive import ClassArchive
from shared.runtime.java.jars import ensure_jars
from shared.runtime.java.java import Java, find_java
from shared.runtime.java.small_heap import small_heap
from shared.runtime.kafka.connection import learn_access
from shared.runtime.kafka.settings import KafkaAccess
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import SetupError

# Heaps: one broker stays under 512 MB resident; three fit beside Spark on a laptop of 8 GB.
HEAP_MB_SINGLE = 512
HEAP_MB_OF_THREE = 320
# A broker keeps about this much of its heap permanently.
_KEPT_MB = 96
# Brokers start in 2 to 5 s here; a minute allows for a busy machine.
READY_TIMEOUT_S = 60.0
# A broker stops cleanly within 1 s, or 4 s when it writes the class archive. After that SIGKILL
# is safe: acknowledged events are on disk or on the other brokers.
STOP_TIMEOUT_S = 15.0
_FORMAT_TIMEOUT_S = 60.0


class Cluster:
    """One or three Kafka brokers on loopback, with their data in `folder`."""

    def __init__(
        self,
        *,
        folder: Path,
        cache: Path,
        brokers: Literal[1, 3] = 1,
        ports: Sequence[int] = (),
        heap_mb: int | None = None,
        is_secure: bool = False,
    ) -> None:
        """Without `ports`, take the ports of the last start, or at the first start free ones.

        A secure cluster authenticates, encrypts, and gives each service only the rights it needs.
        """
        assert len(ports) in (0, brokers), f"{brokers} ports are needed, or none"
        self._folder = folder.absolute()
        self._cache = cache
        self._count = brokers
        self._ports = list(ports)
        self.lock = KafkaLock(self._folder / "lock") if is_secure else None
        self._heap_mb = heap_mb or (HEAP_MB_SINGLE if brokers == 1 else HEAP_MB_OF_THREE)
        self._brokers: dict[int, BrokerAddress] = {}
        self._children: dict[int, Child] = {}
        self._resources = contextlib.ExitStack()
        self._java: Java
        self._class_path: str
        self._archive: ClassArchive

    def start(self) -> None:
        """Start all brokers and wait until they are ready; after SetupError nothing runs."""
        assert not self._children, "the cluster is already started"
        try:
            self._prepare()
            learn_access(self._addresses, self._operator_access())
            for broker_id in self._brokers:
                self.restart(broker_id)
            self._wait_ready()
            if self.lock is not None:
                asyncio.run(self._grant())
        except BaseException:
            self.stop(timeout_s=0)
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop every broker cleanly; kill those that do not stop in time."""
        # They stop at the same time: the last of three would wait for a quorum.
        with ThreadPoolExecutor(self._count) as pool:
            ends = [pool.submit(child.stop, timeout_s) for child in self._children.values()]
        self._children.clear()
        if ends and all(end.result() for end in ends):
            # A killed broker may have left half an archive, so publish only after clean stops.
            self._archive.publish()
        self._resources.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{broker.port}" for broker in self._brokers.values())

    @property
    def _addresses(self) -> list[str]:
        """Each broker's address, and that of the whole cluster."""
        return [*self.bootstrap_servers.split(","), self.bootstrap_servers]

    def _operator_access(self) -> KafkaAccess:
        """Return this process's access; without a lock, open access, whatever the environment."""
        if self.lock is None:
            return KafkaAccess.model_construct()
        return self.lock.access(OPERATOR)

    async def _grant(self) -> None:
        """Grant every service its rights; existing grants stay."""
        async with topic_admin(self.bootstrap_servers) as admin:
            for user, rights in RIGHTS.items():
                await admin.grant(user, rights)

    @property
    def broker_ids(self) -> list[int]:
        return list(self._brokers)

    @property
    def running(self) -> list[int]:
        """The brokers whose process runs."""
        return [broker_id for broker_id, child in self._children.items() if child.alive]

    def child(self, broker_id: int) -> Child:
        return self._children[broker_id]

    def restart(self, broker_id: int) -> None:
        """Start a broker that is not running, without waiting until it is ready."""
        options = [f"-Xmx{self._heap_mb}m", *small_heap(self._heap_mb, kept_mb=_KEPT_MB)]
        options.append("-XX:+ExitOnOutOfMemoryError")
        # One broker is enough to write the archive, and it must not slow the others down.
        options += self._archive.options(may_make=broker_id == 1)
        folder = self._broker_folder(broker_id)
        self._children[broker_id] = Child(
            f"broker-{broker_id}",
            [*self._java_argv(broker_id, options), "kafka.Kafka", folder / "server.properties"],
            log=folder / "broker.log",
        )

    def _prepare(self) -> None:
        """Check and write everything that the brokers need before they start."""
        self._java = find_java()
        jars = ensure_jars("broker", cache=self._cache)
        self._class_path = os.pathsep.join(map(str, jars))
        self._resources.enter_context(own_folder(self._folder, what="Kafka cluster"))
        cluster_id = self._decide_ports()
        for broker in self._brokers.values():
            loopback.require_free(broker.port, what=f"Kafka broker {broker.broker_id}")
            loopback.require_free(
                broker.controller_port, what=f"Kafka controller {broker.broker_id}"
            )
        draft = self._folder / "classes.jsa"
        self._archive = ClassArchive(
            "broker", cache=self._cache, java=self._java, jars=jars, draft=draft
        )
        if self.lock is not None:
            self.lock.make()
        self._write_properties()
        with ThreadPoolExecutor(self._count) as pool:
            list(pool.map(lambda broker_id: self._format(broker_id, cluster_id), self._brokers))

    def _decide_ports(self) -> str:
        """Take ports and cluster id of the last start from the folder, or make and store them.

        The small file is replaced by a rename, so a crash leaves the old one or the new one.
        """
        path = self._folder / "cluster.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        count = kept.get("brokers", self._count)
        if count != self._count:
            raise SetupError(
                f"{self._folder} holds the data of {count} Kafka broker(s), not of {self._count}:"
                " choose another data folder, or the same number of brokers."
            )
        was_secure, is_secure = kept.get("is_secure", False), self.lock is not None
        if kept and was_secure != is_secure:
            raise SetupError(
                f"{self._folder} holds the data of a Kafka with{'' if was_secure else 'out'} a"
                f" lock, but you want one with{'' if is_secure else 'out'}: choose another data"
                " folder, or start this one as before (--secure)."
            )
        free = loopback.pick_free(2 * count)
        decided = {
            "cluster_id": kept.get("cluster_id") or _new_cluster_id(),
            "brokers": count,
            "is_secure": is_secure,
            "ports": self._ports or kept.get("ports") or free[:count],
            "controller_ports": kept.get("controller_ports") or free[count:],
        }
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(decided, indent=2))
        draft.replace(path)
        ids = range(1, count + 1)
        addresses = zip(ids, decided["ports"], decided["controller_ports"], strict=True)
        self._brokers = {address[0]: BrokerAddress(*address) for address in addresses}
        return str(decided["cluster_id"])

    def _write_properties(self) -> None:
        for broker_id, broker in self._brokers.items():
            folder = self._broker_folder(broker_id)
            folder.mkdir(exist_ok=True)
            text = server_properties(
                broker,
                all_brokers=list(self._brokers.values()),
                data=folder / "data",
                lock=self.lock.properties() if self.lock else None,
            )
            # With a lock, this file contains the brokers' password.
            write_whole(folder / "server.properties", text.encode(), mode=0o600)
            (folder / "log4j2.properties").write_text(log4j2_properties())

    def _format(self, broker_id: int, cluster_id: str) -> None:
        """Run Kafka's format step, unless the folder is already formatted."""
        folder = self._broker_folder(broker_id)
        if (folder / "data" / "meta.properties").exists():
            return
        archive = self._archive.options(may_make=False)
        words = ["kafka.tools.StorageTool", "format"]
        words += ["-t", cluster_id, "-c", str(folder / "server.properties")]
        words += self.lock.format_arguments() if self.lock else ()
        # Arguments come from a file, because every user can read a process's command line.
        arguments_file = folder / "format.arguments"
        write_whole(arguments_file, "\n".join(map(_java_word, words)).encode(), mode=0o600)
        argv = [*self._java_argv(broker_id, archive), f"@{arguments_file}"]
        try:
            answer = subprocess.run(
                argv, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SetupError(
                f"Formatting {folder} for Kafka took over "
                f"{_FORMAT_TIMEOUT_S:.0f} s: check the disk."
            ) from error
        finally:
            arguments_file.unlink()
        if answer.returncode != 0:
            why = useful_line((answer.stdout + answer.stderr).splitlines())
            raise SetupError(f"{folder} could not be formatted for Kafka: {why}")

    def _java_argv(self, broker_id: int, options: Sequence[str]) -> list[str]:
        logging = self._broker_folder(broker_id) / "log4j2.properties"
        # Use only the first compiler and the serial collector: a start then took 2.6 s instead
        # of 3.1 s. At laptop rates this costs nothing, as the broker mostly copies.
        fixed = [
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Dlog4j2.configurationFile={logging}",
        ]
        return [str(self._java.path), *options, *fixed, "-cp", self._class_path]

    def _wait_ready(self) -> None:
        def check() -> None:
            for broker_id, child in self._children.items():
                if not child.alive:
                    raise SetupError(
                        f"Kafka broker {broker_id} stopped during its start: "
                        f"{useful_line(child.tail_log(200))} (its log is {child.log})."
                    )

        ports = {broker_id: broker.port for broker_id, broker in self._brokers.items()}
        if not asyncio.run(wait_for_brokers(ports, timeout_s=READY_TIMEOUT_S, check=check)):
            raise SetupError(
                f"Kafka is not ready after {READY_TIMEOUT_S:.0f} s: "
                f"see the logs under {self._folder}."
            )

    def _broker_folder(self, broker_id: int) -> Path:
        return self._folder / f"broker-{broker_id}"


def useful_line(lines: Sequence[str]) -> str:
    """Return the line of a Kafka log that says why Kafka stopped."""
    for cause in (r"Caused by:", r"[\w.$]+(Exception|Error)\b"):
        for line in reversed(lines):
            if re.match(cause, line):
                return line
    for line in lines:
        if " ERROR " in line or " FATAL " in line or line.startswith(("Error", "Exception")):
            return line
    return next((line for line in reversed(lines) if line.strip()), "it wrote nothing")


def _java_word(word: str) -> str:
    """Return the word as a line of Java's argument file."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _new_cluster_id() -> str:
    # Kafka's format: 16 random bytes in URL-safe base64. A leading dash would look like an option.
    while (text := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return text
