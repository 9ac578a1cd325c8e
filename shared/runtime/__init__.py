"""The impure part of the shared code: it uses clocks, files, processes and sockets."""
