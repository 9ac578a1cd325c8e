"""`hifi import`: writes the settings of `hifi export --everything` into another Kafka."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.applying.whole_export import not_opened, objects_of, read_lines, topics_of
from deploy.cli.printing import out
from deploy.local.secret_keys import VARIABLE, known_secret_keys
from shared.config.configuration import Configuration
from shared.event.topics import CONFIG, fixed_specs
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.config_topic import CONFIG_WRITER, read_config
from shared.runtime.kafka.only_writer import Row, only_writer
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.secret_box import SecretBox
from shared.runtime.settings import TopicSettings, read_settings
from shared.runtime.setup_error import UsageError

_NAMED_MAX = 5


def import_(
    file: Annotated[
        typer.FileText,
        typer.Argument(help="The file of `hifi export --everything`; - is standard input."),
    ],
    *,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    keys: Annotated[
        str | None,
        typer.Option("--secret-keys", envvar=VARIABLE, help="Keys; default: in --data."),
    ] = None,
    data: options.Data = options.DATA_DEFAULT,
) -> None:
    """Write the settings of `hifi export --everything` into another Kafka, and make its topics.

    All of them are written, or none. If the Kafka has different settings under one of the names,
    the command says which, and changes nothing. It needs the HIFI_SECRET_KEYS of the Hifi that was
    exported.

        hifi export --everything --kafka old:9092 > hifi.ndjson

        hifi import hifi.ndjson --kafka new:9092
    """
    wanted = read_lines(file)
    box = SecretBox.of(known_secret_keys(data, {VARIABLE: keys} if keys else {}))
    if closed := not_opened(wanted, box):
        raise UsageError(
            f"None of the keys opens the secrets of {_named(closed)}: set HIFI_SECRET_KEYS to the"
            " value of the Hifi that was exported."
        )
    settings = read_settings(TopicSettings, program="hifi import")
    asyncio.run(_import(kafka, wanted, settings))


async def _import(kafka: str, wanted: Configuration, settings: TopicSettings) -> None:
    fixed = fixed_specs([tier.name for tier in RetrySchedule().tiers], settings.partition_counts)
    objects = {each.config_key: each for each in objects_of(wanted)}
    async with topic_admin(kafka) as admin:
        made = await admin.create_missing(fixed, settings.copies)
        # From here on no gateway writes settings before this transaction has ended.
        async with only_writer(kafka, CONFIG_WRITER) as write:
            there = {each.config_key: each for each in objects_of(await read_config(kafka))}
            if differing := [
                key.decode() for key, each in objects.items() if there.get(key, each) != each
            ]:
                raise UsageError(
                    f"This Kafka has other settings for {_named(differing)}: import into a new"
                    " Kafka, or delete them first."
                )
            made += await admin.create_missing(topics_of(wanted), settings.copies)
            rows: list[Row] = [
                (CONFIG, key, each.to_json(), ())
                for key, each in objects.items()
                if key not in there
            ]
            if rows:
                await write(rows)
    out.print(f"{len(made)} topics made.")
    out.print(f"{len(rows)} objects imported, {len(objects) - len(rows)} were there already.")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
