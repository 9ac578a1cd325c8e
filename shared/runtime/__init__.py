"""The impure corner: shared code that touches a clock, a file, a process or a socket."""
