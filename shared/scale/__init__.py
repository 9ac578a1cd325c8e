"""How large Hifi must be: traffic, fleets that follow it, ratings, what it takes, what it costs."""
