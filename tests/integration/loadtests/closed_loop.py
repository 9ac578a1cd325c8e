"""Loads a server with Locust's own rate control, with which test_stall.py compares ours."""

from locust import FastHttpUser, constant_throughput, events, task


class Waiting(FastHttpUser):
    """Twenty users that want 500 requests a second together."""

    wait_time = constant_throughput(25)

    @task
    def post(self) -> None:
        self.client.post("/", data=b"{}")


@events.init_command_line_parser.add_listener
def _options(parser) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - Locust's own
    parser.add_argument("--out", default="")
