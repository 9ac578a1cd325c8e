"""What a pipeline is to be is built beside it, and takes its place once it has caught up."""
