"""The file of `hifi export --everything`: the settings of all tenants, with keys and secrets.

Its first line says how many objects follow. Each other line is an object, with the key of its
record in the config topic. Secrets stay sealed, and of API keys there are only hashes.
"""

import json
from collections.abc import Iterable, Iterator

from shared.config.configuration import Configuration
from shared.config.credentials import secrets_of
from shared.config.model import ConfigError, ConfigObject
from shared.config.outside.database import passwords_of
from shared.event.topics import TopicSpec, stream_spec
from shared.runtime.secret_box import SecretBox, SecretUnavailableError
from shared.runtime.setup_error import UsageError

_VERSION = 1
# Removed pipelines and tables are there, because what is created again continues their numbers.
MOVED = (
    *("tenants", "keys", "streams", "tables", "destinations", "pipelines", "replacements"),
    *("channels", "removed_pipelines", "removed_tables"),
)
# The events of removed streams and destinations, and the record of changes, stay where they are.
LEFT_BEHIND = ("change_counts", "removed_streams", "removed_destinations")


def objects_of(configuration: Configuration) -> Iterator[ConfigObject]:
    """Return the objects that move to another Kafka."""
    for member in MOVED:
        yield from getattr(configuration, member).values()


def lines_of(configuration: Configuration) -> Iterator[str]:
    objects = list(objects_of(configuration))
    yield json.dumps({"export": _VERSION, "objects": len(objects)})
    for each in objects:
        yield json.dumps({"key": each.config_key.decode(), "value": json.loads(each.to_json())})


def read_lines(lines: Iterable[str]) -> Configuration:
    """Return the settings in a file; UsageError if it is not whole."""
    remaining = iter(lines)
    try:
        head = json.loads(next(remaining, ""))
        version, count = int(head["export"]), int(head["objects"])
    except (ValueError, TypeError, LookupError) as error:
        raise UsageError("This is no file of `hifi export --everything`.") from error
    if version != _VERSION:
        raise UsageError("A newer Hifi wrote this file: import it with that version.")
    configuration = Configuration()
    for number, line in enumerate(remaining, start=2):
        try:
            record = json.loads(line)
            value = json.dumps(record["value"]).encode()
            configuration = configuration.apply(str(record["key"]).encode(), value)
        except (ConfigError, ValueError, TypeError, LookupError) as error:
            raise UsageError(f"Line {number} of the file is no setting of Hifi: {error}") from error
    found = sum(1 for _ in objects_of(configuration))
    if found != count:
        raise UsageError(
            f"The file says that it has {count} objects, and {found} are in it: export again."
        )
    return configuration


def topics_of(configuration: Configuration) -> Iterator[TopicSpec]:
    """Return the topics of streams, tables and pipelines that keep windows or keys."""
    for stream in configuration.streams.values():
        yield stream_spec(stream.name, partition_count=stream.partition_count)
    for table in configuration.followed_tables:
        yield table.spec
    for document in configuration.documents:
        if document.kept_spec is not None:
            yield document.kept_spec


def not_opened(configuration: Configuration, box: SecretBox) -> list[str]:
    """Return the owners of secrets that none of the keys opens."""
    sealing: list[ConfigObject] = [
        *configuration.destinations.values(),
        *configuration.channels.values(),
        *configuration.documents,
    ]
    closed = {}
    for each in sealing:
        fields = each.to_fields()
        for secret in (*(one for _, one in secrets_of(fields)), *passwords_of(fields).values()):
            try:
                box.unseal(secret, owner=each.owner)
            except SecretUnavailableError:
                closed[each.owner] = True
    return list(closed)
