"""Says where and how each process listens when nobody sets it: on loopback, one port each.

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
