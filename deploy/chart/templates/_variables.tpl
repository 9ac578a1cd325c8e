{{- /* Variables of each role that are in no secret. `env` in the values goes before them. */ -}}
{{- define "hifi.variables.gateway" -}}
HIFI_GATEWAY_BOOTSTRAP_SERVERS: {{ .Values.kafka.bootstrapServers | quote }}
HIFI_KAFKA_REPLICAS: {{ .Values.kafka.replicas | int | quote }}
HIFI_KAFKA_IN_SYNC_MIN: {{ .Values.kafka.inSyncMin | int | quote }}
HIFI_GATEWAY_WORKERS: {{ .Values.gateway.workers | int | quote }}
HIFI_GATEWAY_AUTH: {{ .Values.auth | quote }}
HIFI_GATEWAY_ALLOW_PRIVATE: {{ .Values.allowPrivate | quote }}
HIFI_GATEWAY_OBSERVE: http://{{ include "hifi.name" . }}-observe:8084
HIFI_GATEWAY_DRAIN_NOTICE_S: {{ .Values.gateway.drainNoticeSeconds | int | quote }}
HIFI_GATEWAY_DRAIN_S: {{ .Values.gateway.drainSeconds | int | quote }}
{{- end }}

{{- define "hifi.variables.delivery" -}}
HIFI_DELIVERY_BOOTSTRAP_SERVERS: {{ .Values.kafka.bootstrapServers | quote }}
HIFI_DELIVERY_ALLOW_PRIVATE: {{ .Values.allowPrivate | quote }}
HIFI_DELIVERY_DRAIN_S: {{ .Values.delivery.drainSeconds | int | quote }}
{{- end }}

{{- define "hifi.variables.retrier" -}}
HIFI_RETRIER_BOOTSTRAP_SERVERS: {{ .Values.kafka.bootstrapServers | quote }}
HIFI_RETRIER_ALLOW_PRIVATE: {{ .Values.allowPrivate | quote }}
HIFI_RETRIER_DRAIN_S: {{ .Values.retrier.drainSeconds | int | quote }}
{{- end }}

{{- define "hifi.variables.pipelines" -}}
HIFI_PIPELINES_BOOTSTRAP_SERVERS: {{ .Values.kafka.bootstrapServers | quote }}
HIFI_PIPELINES_ALLOW_PRIVATE: {{ .Values.allowPrivate | quote }}
HIFI_PIPELINES_DRAIN_S: {{ .Values.pipelines.drainSeconds | int | quote }}
{{- end }}

{{- define "hifi.variables.observe" -}}
HIFI_OBSERVE_BOOTSTRAP_SERVERS: {{ .Values.kafka.bootstrapServers | quote }}
HIFI_OBSERVE_ALLOW_PRIVATE: {{ .Values.allowPrivate | quote }}
HIFI_OBSERVE_CONSOLE_AUTH: {{ .Values.auth | quote }}
HIFI_OBSERVE_CONSOLE_GATEWAY: http://{{ include "hifi.name" . }}-gateway:8080
{{- end }}

{{- define "hifi.variables.topics" -}}
HIFI_KAFKA: {{ .Values.kafka.bootstrapServers | quote }}
HIFI_KAFKA_REPLICAS: {{ .Values.kafka.replicas | int | quote }}
HIFI_KAFKA_IN_SYNC_MIN: {{ .Values.kafka.inSyncMin | int | quote }}
{{- end }}

{{- /* Variables of each role that secrets have. */ -}}
{{- define "hifi.secrets.gateway" -}}
HIFI_SECRET_KEYS: {{ toJson .Values.secrets.secretKeys }}
HIFI_GATEWAY_OPERATOR_KEY: {{ toJson .Values.secrets.operatorKey }}
{{- end }}

{{- define "hifi.secrets.delivery" -}}
HIFI_SECRET_KEYS: {{ toJson .Values.secrets.secretKeys }}
{{- end }}

{{- define "hifi.secrets.retrier" -}}
HIFI_SECRET_KEYS: {{ toJson .Values.secrets.secretKeys }}
{{- end }}

{{- define "hifi.secrets.pipelines" -}}
HIFI_SECRET_KEYS: {{ toJson .Values.secrets.secretKeys }}
{{- end }}

{{- define "hifi.secrets.observe" -}}
HIFI_SECRET_KEYS: {{ toJson .Values.secrets.secretKeys }}
HIFI_OBSERVE_STATEMENT_KEY: {{ toJson .Values.secrets.statementKey }}
HIFI_OBSERVE_CONSOLE_COOKIE_SECRET: {{ toJson .Values.secrets.cookieSecret }}
{{- end }}

{{- define "hifi.secrets.topics" -}}
{{- end }}

{{- /* Files of a role: those of `secretFiles`, and the authority of Kafka's certificates. */ -}}
{{- define "hifi.files" -}}
{{- $own := index .root.Values .role }}
{{- $ca := .root.Values.kafka.ca }}
{{- $kafka := empty $ca.secret | ternary dict (dict "HIFI_KAFKA_CA_FILE" $ca) }}
{{- merge dict ($own.secretFiles | default dict) $kafka | toYaml }}
{{- end }}

{{- define "hifi.env" -}}
{{- $root := .root }}{{ $role := .role }}
{{- $own := index $root.Values $role }}
{{- $kafka := $root.Values.kafka }}
{{- $user := index $kafka.users (eq $role "topics" | ternary "operator" $role) }}
{{- $plain := include (printf "hifi.variables.%s" $role) $root | fromYaml }}
{{- $_ := set $plain "HIFI_KAFKA_PROTOCOL" $kafka.protocol }}
{{- $secrets := include (printf "hifi.secrets.%s" $role) $root | fromYaml }}
{{- if hasPrefix "SASL_" $kafka.protocol }}
{{- $_ := set $plain "HIFI_KAFKA_MECHANISM" $kafka.mechanism }}
{{- end }}
{{- if $user.secret }}
{{- $_ := set $secrets "HIFI_KAFKA_PASSWORD" (dict "secret" $user.secret "key" $kafka.passwordKey) }}
{{- if $user.name }}
{{- $_ := set $plain "HIFI_KAFKA_USER" $user.name }}
{{- else }}
{{- $_ := set $secrets "HIFI_KAFKA_USER" (dict "secret" $user.secret "key" $kafka.userKey) }}
{{- end }}
{{- end }}
{{- range $name, $at := include "hifi.files" . | fromYaml }}
{{- $_ := set $plain $name (printf "/etc/hifi/%s/%s" (lower $name) $at.key) }}
{{- end }}
{{- range list $root.Values.env $own.env }}
{{- range $name, $value := . }}
{{- $_ := set $plain $name $value }}
{{- end }}
{{- end }}
{{- range $name, $value := $plain }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name, $at := mergeOverwrite $secrets ($own.secretEnv | default dict) }}
{{- if $at.secret }}
- name: {{ $name }}
  valueFrom: { secretKeyRef: { name: {{ $at.secret | quote }}, key: {{ $at.key | quote }} } }
{{- end }}
{{- end }}
{{- end }}

{{- define "hifi.volumeMounts" -}}
- { name: data, mountPath: /var/lib/hifi }
- { name: tmp, mountPath: /tmp }
{{- range $name, $at := include "hifi.files" . | fromYaml }}
- { name: {{ lower $name | replace "_" "-" }}, mountPath: /etc/hifi/{{ lower $name }}, readOnly: true }
{{- end }}
{{- end }}

{{- define "hifi.volumes" -}}
- { name: data, emptyDir: {} }
- { name: tmp, emptyDir: {} }
{{- range $name, $at := include "hifi.files" . | fromYaml }}
- name: {{ lower $name | replace "_" "-" }}
  secret:
    secretName: {{ $at.secret | quote }}
    # The volume's group is that of the image's user.
    defaultMode: 0440
    items: [{ key: {{ $at.key | quote }}, path: {{ $at.key | quote }} }]
{{- end }}
{{- end }}
