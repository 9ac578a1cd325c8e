"""Says what holds when nobody sets it: where each process listens, and how late is too late.

Imports nothing, so that the command line can show defaults without loading any service.
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
# An idle connection stays open this long: longer than load balancers and clients keep theirs (ALB
# 60 s, nginx 60 s), so that they close it and never meet our closing.
KEEP_ALIVE_S = 75
# An undelivered event of this age makes its destination SLOW, and alerts call it late: half a
# minute is past every local retry and before the first tier's second round.
SLOW_AFTER_S = 30
# A minute that is not judged this long after it could be raises an alarm, as does an audit without
# a run for this long: longer than a lane's restart.
OVERDUE_AFTER_S = 600
