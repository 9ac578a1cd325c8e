"""Runs a chaos run's gateway as two workers, instead of the stack's single process.

The stack passes Kafka's address to a service in a variable named after the service's module.
"""

import os
import sys

from deploy.cli.app import main

WORKERS = 2


if __name__ == "__main__":
    os.environ["HIFI_GATEWAY_BOOTSTRAP_SERVERS"] = os.environ["HIFI_TESTS_BOOTSTRAP_SERVERS"]
    sys.argv = ["hifi", "gateway", "--workers", str(WORKERS)]
    main()
