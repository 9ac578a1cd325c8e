"""Sizes Hifi for a traffic: ratings of machines, fleets that follow the traffic, brokers, costs."""
