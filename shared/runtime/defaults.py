"""Defaults of all services: the ports of processes, and the times after which alerts are raised.

It imports nothing, so that the command line can show defaults without loading any service.
"""

HOST = "127.0.0.1"
KAFKA_PORT = 9092
GATEWAY_PORT = 8080
GATEWAY_METRICS_PORT = 8081
DELIVERY_METRICS_PORT = 8082
RETRIER_METRICS_PORT = 8083
OBSERVE_METRICS_PORT = 8084
PIPELINES_METRICS_PORT = 8085
CONSOLE_PORT = 8088
SAMPLE_PORT = 8090
# How long an idle connection stays open: longer than at load balancers and clients (ALB 60 s, nginx
# 60 s), so that they close it and never send a request while we close it.
KEEP_ALIVE_S = 75
# An undelivered event of this age makes its destination SLOW and raises alerts about lateness: 30 s
# is after every local retry and before the first tier's second round.
SLOW_AFTER_S = 30
# An alert is raised if a minute is still unchecked this long after it could have been checked, or
# if the audit has not run for this long. It is longer than a lane's restart.
OVERDUE_AFTER_S = 600
