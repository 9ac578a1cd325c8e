"""From a request of Hifi's to an answer for each event."""
