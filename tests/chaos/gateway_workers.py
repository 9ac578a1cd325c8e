"""Runs the gateway of a chaos run as two workers, in the place of the stack's single process.

The stack tells a service where Kafka is by a variable that is named after the service's module.
"""

import os
import sys

from deploy.cli.app import main

WORKERS = 2


if __name__ == "__main__":
    os.environ["HIFI_GATEWAY_BOOTSTRAP_SERVERS"] = os.environ["HIFI_TESTS_BOOTSTRAP_SERVERS"]
    sys.argv = ["hifi", "gateway", "--workers", str(WORKERS)]
    main()
