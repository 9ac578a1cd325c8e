"""Reads the inputs of plans and simulations: amounts that people write, ratings, prices."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import SPAN_UNITS_S
from deploy.cli.printing import talk
from shared.runtime.clock import now_ms
from shared.runtime.setup_error import UsageError
from shared.scale.catalogue import Catalogue, read_catalogue
from shared.scale.ratings import Rating, read_rating, warnings_of
from shared.scale.scale_error import ScaleError

# Exists only in a checkout: a wheel contains no load tests.
RATINGS = Path(__file__).parents[3] / "loadtests" / "ratings"
PRICES = Path(__file__).with_name("aws-us-east-1.json")

_SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


class Output(StrEnum):
    """The form of a command's output."""

    TABLE = "table"
    JSON = "json"


RatingsFolder = Annotated[
    Path, typer.Option("--ratings", metavar="FOLDER", help="Folder with ratings (*.json).")
]
AsOutput = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


def span_s(text: str) -> float:
    """Return the seconds of a span of time as people write it: 90s, 15m, 36h, 7d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a span of time: write 90s, 15m, 36h or 7d")
    return float(match[1]) * SPAN_UNITS_S[match[2]]


def byte_count(text: str) -> float:
    """Return an amount of bytes as people write it, in powers of ten: 500, 2kB, 50TB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMGTP]?)B?", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not an amount of bytes: write 500, 2kB or 50TB")
    return float(match[1]) * _SIZES[match[2]]


@contextlib.contextmanager
def said_plainly() -> Iterator[None]:
    """End a command with one sentence if its input cannot be planned."""
    try:
        yield
    except ScaleError as error:
        raise UsageError(str(error)) from error


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error


def read_ratings(folder: Path) -> dict[str, Rating]:
    """Return all ratings of a folder, by file name."""
    ratings = {path.name: read_rating(path.name, read_text(path)) for path in folder.glob("*.json")}
    if not ratings:
        raise UsageError(
            f"There are no ratings in {folder}: use those of a checkout (loadtests/ratings),"
            " or name another folder with --ratings."
        )
    return ratings


def read_prices(path: Path) -> Catalogue:
    return read_catalogue(path.name, read_text(path))


def warn(ratings: Mapping[str, Rating], *used: str) -> None:
    """Print warnings about the ratings in use."""
    for text in warnings_of(ratings, dict.fromkeys(used), today()):
        talk.print(text, style="yellow")


def today() -> date:
    return datetime.fromtimestamp(now_ms() / 1_000, tz=UTC).date()
