"""The steps after an attempt: its verdict, the decision, the schedule, dead letters."""
