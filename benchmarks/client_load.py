"""Sends as fast as possible for some seconds: `KIND URL STREAM SECONDS` (see client.py).

raw: threads post ready-made bodies with the standard library's client, and read the answers.
dicts, texts: the Python client gets 500 dicts at once, or 500 JSON texts; singly: dicts one by one;
spool: dicts through a spool; plain: dicts that the standard library encodes instead of msgspec.
"""

import http.client
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.events import event
from hifi_client import Fate, Sender, Sent
from hifi_client.sending.json_writer import plain_writer

BATCH, PARALLEL = 500, 4
# Bytes that may wait behind the open requests.
_AHEAD_BYTES = 8_000_000


@dataclass(frozen=True)
class Load:
    accepted: int
    errors: int
    # When all events were accepted, and the processor time until then.
    ended_s: float
    cpu_s: float


def main() -> None:
    kind, url, stream, seconds = sys.argv[1:]
    send = _raw if kind == "raw" else _client
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    load = send(kind, url, stream, until_s=begun_s + float(seconds))
    took_s = load.ended_s - begun_s
    cores = (load.cpu_s - begun_cpu_s) / took_s
    figures = {"events_per_s": load.accepted / took_s, "errors": load.errors, "cores": cores}
    print(json.dumps(figures))


def _raw(_: str, url: str, stream: str, *, until_s: float) -> Load:
    body = b"\n".join(event(number) for number in range(BATCH))
    address, counts, errors = urlsplit(url), [0] * PARALLEL, [0] * PARALLEL

    def post_many(nth: int) -> None:
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
        headers = {"content-type": "application/x-ndjson"}
        while time.perf_counter() < until_s:
            connection.request("POST", f"/v1/streams/{stream}/events", body, headers)
            answer = connection.getresponse()
            result = json.loads(answer.read())
            counts[nth] += result.get("accepted", 0)
            errors[nth] += answer.status != http.HTTPStatus.OK
        connection.close()

    threads = [threading.Thread(target=post_many, args=[index]) for index in range(PARALLEL)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Load(sum(counts), sum(errors), time.perf_counter(), time.process_time())


def _client(kind: str, url: str, stream: str, *, until_s: float) -> Load:
    texts = [event(number) for number in range(BATCH)]
    given = texts if kind == "texts" else [json.loads(text) for text in texts]
    # Keep only the last `Sent` of each batch, as most programs keep none.
    sent: list[Sent] = []
    with tempfile.TemporaryDirectory() as folder:
        hifi = Sender(
            url,
            stream,
            batch_count_max=BATCH,
            parallel_max=PARALLEL,
            memory_bytes_max=_AHEAD_BYTES,
            spool=folder if kind == "spool" else None,
            encode=plain_writer() if kind == "plain" else None,
        )
        while time.perf_counter() < until_s:
            if kind == "singly":
                for one in given:
                    last = hifi.send(one)
            else:
                last = hifi.send_many(given)[-1]
            sent.append(last)
        hifi.flush(60)
        ended_s, cpu_s = time.perf_counter(), time.process_time()
        accepted = BATCH * sum(one.wait(0).fate is Fate.ACCEPTED for one in sent)
        hifi.close()
    return Load(accepted, BATCH * len(sent) - accepted, ended_s, cpu_s)


if __name__ == "__main__":
    main()
