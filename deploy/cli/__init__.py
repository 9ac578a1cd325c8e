"""The `hifi` command: one file per subcommand."""
