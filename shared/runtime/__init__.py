"""The impure corner: what services share that touches a clock, a file, a process or a socket."""
