"""Starts the pipelines process."""

from pipelines.service import run_pipelines
from pipelines.settings import PipelinesSettings
from shared.runtime.settings import read_settings


def main() -> None:
    run_pipelines(read_settings(PipelinesSettings, program="hifi pipelines"))


if __name__ == "__main__":
    main()
