"""Starts the retrier process."""

from retrier.service import run_retrier
from retrier.settings import RetrierSettings
from shared.runtime.settings import read_settings


def main() -> None:
    run_retrier(read_settings(RetrierSettings, program="hifi retrier"))


if __name__ == "__main__":
    main()
