"""The subcommands about size: rate, plan, simulate, size."""
