"""Lists the subcommands of `hifi`; the code of each is loaded only when it runs."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from deploy.cli.printing import out, talk

# Each command's place (a function, or an app with subcommands) and its description.
PANELS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run Hifi": {
        "up": (
            "deploy.cli.up:up",
            "Run Hifi on this machine: Kafka, gateway, delivery, pipelines, a sample destination.",
        ),
        "doctor": (
            "deploy.cli.doctor:doctor",
            (
                "Find unsafe settings: Java, jars, ports, disk, Kafka and its"
                " topics; say how to fix them."
            ),
        ),
        "topics": (
            "deploy.cli.topics:topics",
            "Create Hifi's missing topics with the settings in HIFI_KAFKA_* (docs/kafka.md).",
        ),
        "migrate": (
            "deploy.cli.migrating.migrate:migrate",
            "Find old names of settings, metrics and alerts; with --write, replace them.",
        ),
        "gateway": (
            "deploy.cli.gateway:gateway",
            "Run the gateway with several workers; HIFI_GATEWAY_... are its settings.",
        ),
        "status": (
            "deploy.cli.status:status",
            "Show which services are up, the state of each destination, and every event's outcome.",
        ),
        "top": (
            "deploy.cli.top:top",
            "Show every stream's verdict, lag, books and loss, live, until Ctrl-C.",
        ),
    },
    "Events": {
        "send": (
            "deploy.cli.events.send:send",
            "Send events to a stream, and wait until each is stored.",
        ),
        "events": (
            "deploy.cli.events.stream_events:app",
            "Events of a stream, through the gateway: list, get, resend, tail.",
        ),
        "listen": (
            "deploy.cli.events.listen:listen",
            "Send the events of a stream to a receiver that you are developing, until Ctrl-C.",
        ),
        "test": (
            "deploy.cli.events.test_event:send_and_follow",
            "Send one event, and follow it until each destination has taken or refused it.",
        ),
        "receipt": (
            "deploy.cli.events.receipt:receipt",
            "Show where each event of a request is now, at each destination.",
        ),
        "dead": ("deploy.cli.control.dead:app", "Dead letters: list, get, export, redrive."),
        "replay": (
            "deploy.cli.archive.replay:replay_",
            "Resend events to a destination from the archive, after Kafka has deleted them.",
        ),
        "replays": (
            "deploy.cli.control.replays:app",
            "Replays through the gateway: create, list, get, cancel.",
        ),
        "restore": (
            "deploy.cli.archive.restore:restore_",
            "Put the events of an archive back: same Kafka partition, key, headers, id and order.",
        ),
        "verify": (
            "deploy.cli.events.verify:verify",
            "Check your own list of ids against Hifi's signed statement of one minute.",
        ),
        "reconcile": (
            "deploy.cli.events.reconcile:reconcile",
            (
                "Compare a file of events with those in Hifi, and with --replay send"
                " only the missing ones."
            ),
        ),
    },
    "Set up": {
        "apply": (
            "deploy.cli.applying.apply:apply",
            (
                "Set up streams, tables, destinations, pipelines, channels and tenants'"
                " quotas from files."
            ),
        ),
        "delete": (
            "deploy.cli.applying.apply:delete",
            "Remove the objects that files name, last ones first. Other settings are ignored.",
        ),
        "export": (
            "deploy.cli.applying.export:export",
            "Write streams, tables, destinations, pipelines and channels, for `hifi apply`.",
        ),
        "import": (
            "deploy.cli.applying.import_:import_",
            (
                "Write the settings of `hifi export --everything` into another Kafka,"
                " and make its topics."
            ),
        ),
        "streams": (
            "deploy.cli.control.streams:app",
            "Streams: create, put, list, get, update, spread, delete.",
        ),
        "destinations": (
            "deploy.cli.control.destinations:app",
            "Destinations: create, put, list, get, update, pause, resume, delete.",
        ),
        "pipelines": (
            "deploy.cli.control.pipelines:app",
            "Pipelines: check, try, create, put, list, get, replace, give-up, delete.",
        ),
        "tables": (
            "deploy.cli.control.tables:app",
            "Tables: create, put, list, get, update, delete.",
        ),
        "channels": (
            "deploy.cli.control.channels:app",
            "Alert channels: create, put, list, get, update, test, delete.",
        ),
        "archive": ("deploy.cli.archive.archives:app", "Archives: put, verify, seal."),
        "profiles": (
            "deploy.cli.control.profiles:app",
            "Saved addresses and keys of gateways: put, list, get, use, delete.",
        ),
        "keys": (
            "deploy.cli.control.keys:app",
            "API keys: create, list, get, rotate, revoke, link, new-operator-key.",
        ),
        "secrets": (
            "deploy.cli.control.secrets:app",
            "Secrets: new-key, new-signing-secret, rotate.",
        ),
        "tenants": (
            "deploy.cli.control.tenants:app",
            "Quotas of tenants: create, put, list, get, update, delete.",
        ),
        "changes": ("deploy.cli.control.changes:app", "The record of changes: list."),
    },
    "Capacity": {
        "rate": (
            "deploy.cli.scale.rate:rate",
            "Measure the most events per second at which a Hifi keeps its promises.",
        ),
        "soak": (
            "deploy.cli.scale.soak:soak",
            (
                "Soak-test a separate Hifi: days of traffic with faults, and an account"
                " of every event."
            ),
        ),
        "plan": (
            "deploy.cli.scale.plan:plan",
            "Plan the AWS resources for your traffic: their sizes, the bottleneck and the cost.",
        ),
        "size": (
            "deploy.cli.scale.size:size",
            "Show how much Hifi's topics store now and later, and when a disk will be full.",
        ),
        "simulate": (
            "deploy.cli.scale.simulate:simulate_",
            "Simulate a day of traffic under several scaling policies, and compare the results.",
        ),
    },
}

# Old names of commands: they still work, and no list shows them.
_OLD_WORDS = {"tail": ("deploy.cli.events.stream_events:tail", "Alias of `hifi events tail`.")}


# These only ask a gateway and log nothing: setting up logs would double the time to start.
OVER_HTTP = frozenset(
    {
        *("send", "events", "listen", "test", "receipt", "dead", "apply", "delete", "export"),
        *(
            "streams",
            "destinations",
            "pipelines",
            "tables",
            "channels",
            "profiles",
            "keys",
            "tenants",
        ),
        # `status` sets up logs itself when it reads Kafka.
        *("changes", "status"),
    }
)


class _NotLoaded(TyperCommand):
    """A command whose code is not loaded; only its line in `hifi --help` is known."""

    def __init__(self, name: str, place: str, summary: str, *, panel: str | None) -> None:
        super().__init__(name, help=summary, rich_help_panel=panel, hidden=panel is None)
        self._place = place

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Load the command, and make its context with the profile's defaults."""
        command = self.loaded()
        # `pipelines check` runs Spark, which logs.
        if self.name not in OVER_HTTP or args[:1] == ["check"]:
            set_up_logs()
        # `obj` is None while a shell asks for completions; `profiles` takes nothing from a profile.
        is_of_a_hifi = parent.obj is not None and info_name != "profiles"
        defaults = parent.obj.defaults() if is_of_a_hifi else {}
        if isinstance(command, TyperGroup):
            defaults = dict.fromkeys(command.commands, defaults)
        return command.make_context(info_name, args, parent, default_map=defaults, **extra)

    def loaded(self) -> Any:
        module, _, attribute = self._place.partition(":")
        target = getattr(import_module(module), attribute)
        if isinstance(target, typer.Typer):
            target.info.help = self.help
            return get_command(target)
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        alone.command(self.name)(target)
        return get_command(alone)


class _QuickReading:
    """Reads texts, paths, numbers and choices, with plain errors; typer itself reads the rest.

    Typer's reader loads pydantic even for options that are not given: half of the start-up time.
    """

    in_full = TyperOption.get_runtime_param

    def __init__(self, param: Any) -> None:
        self._kind = param.type_descriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        wanted = self._kind.annotation
        try:
            if not self._kind.is_list:
                return self._one(value, wanted)
            return [self._one(each, *get_args(wanted)) for each in value]
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error
        except NotImplementedError:
            return _QuickReading.in_full(param).coerce(value, param, ctx)

    def _one(self, value: Any, wanted: Any) -> Any:
        if wanted is str and isinstance(value, str):
            return value
        # An existing file must also be readable.
        if wanted is Path and (not Path(value).exists() or os.access(value, os.R_OK)):
            return Path(value)
        if wanted in {int, float}:
            return self._number(value, wanted)
        if get_origin(wanted) is Literal:
            if value not in get_args(wanted):
                raise ValueError(f"{value!r} is not one of {', '.join(map(str, get_args(wanted)))}")
            return value
        raise NotImplementedError

    def _number(self, value: Any, wanted: type[float]) -> float:
        try:
            number = wanted(value)
        except ValueError:
            whole = "whole " * (wanted is int)
            raise ValueError(f"{value!r} is not a {whole}number") from None
        bounds = self._kind.parameter_info
        if bounds.min is not None and not number >= bounds.min:
            raise ValueError(f"{value} is less than {bounds.min}")
        if bounds.max is not None and number > bounds.max:
            raise ValueError(f"{value} is more than {bounds.max}")
        return number


def _reads_quickly(param: Any) -> Any:
    return _QuickReading(param)


TyperArgument.get_runtime_param = _reads_quickly  # type: ignore[assignment, method-assign]
TyperOption.get_runtime_param = _reads_quickly  # type: ignore[assignment, method-assign]


class HifiGroup(TyperGroup):
    """Reports a wrong environment variable in one sentence, as the services do."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for panel, commands in PANELS.items():
            for name, (place, summary) in commands.items():
                self.add_command(_NotLoaded(name, place, summary, panel=panel))
        for name, (place, summary) in _OLD_WORDS.items():
            self.add_command(_NotLoaded(name, place, summary, panel=None))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            option, context = error.param, error.ctx
            if option is None or context is None:
                raise
            source = context.get_parameter_source(option.name)
            if source is None or source.name != "ENVIRONMENT":
                raise
            talk.print(f"hifi: {option.envvar} is wrong: {error.message}", style="red")
            raise typer.Exit(error.exit_code) from error


app = typer.Typer(
    name="hifi",
    cls=HifiGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def set_up_logs() -> None:
    # These take as long to load as everything that `hifi --help` needs.
    import logging  # noqa: PLC0415

    from shared.runtime.logs import configure_logs  # noqa: PLC0415

    configure_logs(service="hifi", level="warning")
    # The client logs pages about an unreachable broker; our error says it in one sentence.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # noqa: PLC0415 - only --version needs it

        out.print(f"hifi {version('hifi-streams')}")
        raise typer.Exit


@app.callback()
def _hifi(
    ctx: typer.Context,
    *,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", envvar="HIFI_PROFILE", help="The profile to use; see `hifi profiles`."
        ),
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option("--profiles", envvar="HIFI_PROFILES", help="The file with the profiles."),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """High-fidelity data streams: HTTP in, Kafka, Spark, HTTP out, nothing lost."""
    from deploy.cli.control.profiles import Profiles  # noqa: PLC0415 - not for --help

    ctx.obj = Profiles(profiles or Profiles.default_path(), profile)
