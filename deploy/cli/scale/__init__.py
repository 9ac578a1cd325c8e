"""The subcommands about size: plan, simulate, size."""
