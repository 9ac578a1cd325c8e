"""`hifi profiles`: keeps addresses and keys of gateways by name, in a file of the user."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from deploy.cli import options
from deploy.cli.printing import Form, harmless, out, print_list, print_one, talk
from shared.runtime.files.whole_file import write_whole
from shared.runtime.setup_error import NotFoundError, SetupError, UsageError

app = typer.Typer(name="profiles", no_args_is_help=True)


class _Profile(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The fields have the names of the commands' options."""

    gateway: str | None = None
    console: str | None = None
    kafka: str | None = None
    api_key: str | None = None


class _ProfilesFile(msgspec.Struct):
    use: str
    profiles: dict[str, _Profile]


_PLACES = ("gateway", "console", "kafka")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]


@dataclass(frozen=True, slots=True)
class Profiles:
    """The file of profiles, and the name of the requested one, if any."""

    path: Path
    chosen: str | None = None

    def defaults(self) -> dict[str, str]:
        """Return the profile's values, for options that neither the command nor variables set."""
        kept = _read(self.path)
        name = kept["use"] if self.chosen is None else self.chosen
        return dict(_profile(kept, name)) if name else {}

    @staticmethod
    def default_path() -> Path:
        return Path(typer.get_app_dir("hifi")) / "profiles.json"


@app.command()
def put(
    name: Name,
    ctx: typer.Context,
    *,
    gateway: Annotated[str | None, typer.Option(metavar="URL", help="The gateway.")] = None,
    console: Annotated[str | None, typer.Option(metavar="URL", help="The console.")] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Kafka, for an operator's commands.")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="HIFI_API_KEY", help="API key; keep it out of a shell's history."),
    ] = None,
) -> None:
    """Save addresses and a key under a name; the first profile becomes the one in use.

    HIFI_API_KEY=hk_... hifi profiles put shop --gateway https://hifi.example.com
    """
    given = {"gateway": gateway, "console": console, "kafka": kafka, "api_key": api_key}
    fields = {field: value for field, value in given.items() if value is not None}
    if not fields:
        raise UsageError("Give at least one of --gateway, --console, --kafka and --api-key.")
    kept = _read(path := ctx.obj.path)
    kept["profiles"][name] = fields
    kept["use"] = kept["use"] or name
    _write(path, kept)
    talk.print(f"{name} is saved in {path}; {kept['use']} is in use.")


@options.control_command(app, "list")
def list_profiles(ctx: typer.Context, form: Form | None) -> None:
    """List all profiles; a star marks the one in use."""
    kept = _read(ctx.obj.path)
    rows = [
        {
            "name": name,
            "is_in_use": name == kept["use"],
            **{place: fields.get(place) for place in _PLACES},
            "has_key": "api_key" in fields,
        }
        for name, fields in sorted(kept["profiles"].items())
    ]
    print_list(form, rows, ("", "name", *_PLACES, "key"), _cells)


@options.control_command(app, "get", alias="show")
def show(name: Name, ctx: typer.Context, form: Form | None) -> None:
    """Show a profile, without its key."""
    fields = _profile(_read(ctx.obj.path), name)
    shown = {field: value for field, value in fields.items() if field != "api_key"}
    print_one(form, shown, name=name)


@app.command()
def use(name: Name, ctx: typer.Context) -> None:
    """Make commands use this profile from now on."""
    kept = _read(path := ctx.obj.path)
    _profile(kept, name)
    kept["use"] = name
    _write(path, kept)
    out.print(f"{name} is in use.")


@app.command()
def delete(name: Name, ctx: typer.Context) -> None:
    """Delete a profile and the key in it."""
    kept = _read(path := ctx.obj.path)
    _profile(kept, name)
    del kept["profiles"][name]
    if kept["use"] == name:
        kept["use"] = ""
    _write(path, kept)
    talk.print(f"{name} is deleted; {kept['use'] or 'none'} is in use.")


def _cells(shown: dict[str, Any]) -> list[str]:
    return [
        "*" if shown["is_in_use"] else "",
        harmless(shown["name"]),
        *(harmless(shown[place] or "-") for place in _PLACES),
        "yes" if shown["has_key"] else "no",
    ]


def _profile(kept: dict[str, Any], name: str) -> dict[str, str]:
    try:
        profile: dict[str, str] = kept["profiles"][name]
    except KeyError as error:
        there = ", ".join(sorted(kept["profiles"])) or "none"
        raise NotFoundError(
            f"There is no profile {harmless(name)}; the profiles are: {harmless(there)}."
            " `hifi profiles put` creates one."
        ) from error
    return profile


def _read(path: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = msgspec.to_builtins(
            msgspec.json.decode(path.read_bytes(), type=_ProfilesFile)
        )
    except FileNotFoundError:
        kept = {"use": "", "profiles": {}}
    except (OSError, msgspec.MsgspecError) as error:
        raise SetupError(
            f"The profiles in {path} cannot be read ({error}): correct the file, or remove it and"
            " create them again with `hifi profiles put`."
        ) from error
    return kept


def _write(path: Path, kept: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Other users of the machine must not read the keys.
        write_whole(path, json.dumps(kept, indent=2).encode(), mode=0o600)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
