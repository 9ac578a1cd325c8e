"""The console: Hifi's current state in a browser, server-rendered."""
