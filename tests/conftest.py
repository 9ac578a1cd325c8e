"""Gathers the fixtures, each kept in the file that is named after what it starts."""

pytest_plugins = ["tests.cluster_fixtures", "tests.console_fixtures", "tests.stack_fixtures"]
