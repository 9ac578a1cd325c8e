"""The console: what Hifi is doing, in a browser, server-rendered."""
