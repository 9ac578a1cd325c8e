"""How every process of ours that takes HTTP serves it: deadlines, bounds, and how it ends."""
