{{- /* The beginning of all names: the release's name, with `hifi` in it. */ -}}
{{- define "hifi.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- $name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* Labels that never change; the argument is a dict with `root` and `role`. */ -}}
{{- define "hifi.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .role }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "hifi.labels" -}}
{{ include "hifi.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "hifi.image" -}}
{{- $images := .root.Values.images }}
{{- $kind := has .role (list "gateway" "topics") | ternary "gateway" "engine" }}
{{- $own := dig "image" "" (index .root.Values .role) }}
{{- $own | default (printf "%shifi-%s:%s" $images.registry $kind ($images.tag | default .root.Chart.AppVersion)) }}
{{- end }}

{{- /* The ports of probes and metrics, as in shared/runtime/defaults.py. */ -}}
{{- define "hifi.metricsPorts" -}}
gateway: 8081
delivery: 8082
retrier: 8083
observe: 8084
pipelines: 8085
{{- end }}

{{- /* The seconds that a role needs after SIGTERM, without a reserve (docs/fleet.md). */ -}}
{{- define "hifi.drain" -}}
{{- $own := index .root.Values .role }}
{{- $notice := int (dig "drainNoticeSeconds" 0 $own) }}
{{- add $notice (min 5 $notice) (int (dig "drainSeconds" 0 $own)) }}
{{- end }}

{{- define "hifi.grace" -}}
{{- $grace := int .root.Values.terminationGracePeriodSeconds }}
{{- $least := add 10 (include "hifi.drain" . | int) }}
{{- if lt $grace (int $least) }}
{{- fail (printf "terminationGracePeriodSeconds is %d: %s needs at least %d." $grace .role $least) }}
{{- end }}
{{- $grace }}
{{- end }}

{{- define "hifi.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "hifi.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
