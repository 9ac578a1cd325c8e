"""Starts the delivery process."""

from delivery.lanes.service import run_delivery
from delivery.settings import DeliverySettings
from shared.runtime.settings import read_settings


def main() -> None:
    run_delivery(read_settings(DeliverySettings, program="hifi delivery"))


if __name__ == "__main__":
    main()
