{{- define "weir.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains "weir" .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-weir" .Release.Name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name label is always weir: it becomes job="weir" in metrics, which alerts and the dashboard select. */}}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "weir.redisSelector" -}}
app.kubernetes.io/name: weir-redis
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "weir.commonLabels" -}}
app.kubernetes.io/part-of: weir
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
{{ include "weir.commonLabels" . }}
{{- end -}}

{{- define "weir.redisLabels" -}}
{{ include "weir.redisSelector" . }}
{{ include "weir.commonLabels" . }}
{{- end -}}

{{- define "weir.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "weir.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}{{ .Values.serviceAccount.name }}{{- else if .Values.serviceAccount.create -}}{{ include "weir.fullname" . }}{{- else -}}default{{- end -}}
{{- end -}}

{{/* "true" if the chart starts its own Redis. */}}
{{- define "weir.bundledRedis" -}}
{{- if and .Values.redis.enabled (eq .Values.store.type "redis") (not .Values.store.url) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the number of replicas is not fixed. */}}
{{- define "weir.autoscaled" -}}
{{- if and .Values.autoscaling.enabled (kindIs "invalid" .Values.replicaCount) (ne .Values.store.type "memory") (ne .Values.mode "envoy-gateway") -}}true{{- end -}}
{{- end -}}

{{- define "weir.rulesConfigMap" -}}
{{- .Values.config.existingConfigMap | default (printf "%s-rules" (include "weir.fullname" .)) -}}
{{- end -}}

{{- define "weir.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-server-tls" (include "weir.fullname" .)) -}}
{{- end -}}

{{/* The files of a map: text as it is, anything else as YAML. */}}
{{- define "weir.files" -}}
{{- range $name, $content := . }}
{{ $name }}: {{ if kindIs "string" $content }}{{ $content | toJson }}{{ else }}{{ toYaml $content | toJson }}{{ end }}
{{- end }}
{{- end -}}

{{/* The variables of the store. */}}
{{- define "weir.store" -}}
{{- $store := dict -}}
{{- if eq .Values.store.type "memory" -}}
{{- $store = dict "BACKEND_TYPE" "memory" "MEMORY_MAX_BYTES" (printf "%d" (int64 .Values.store.memory.maxBytes)) "MEMORY_SNAPSHOT" "/var/lib/weir/counters" -}}
{{- else -}}
{{- $kind := get (dict "redis" "SINGLE" "sentinel" "SENTINEL" "cluster" "CLUSTER") .Values.store.type -}}
{{- $url := .Values.store.url | default (printf "%s-redis:6379" (include "weir.fullname" .)) -}}
{{- $store = dict "BACKEND_TYPE" "redis" "REDIS_TYPE" $kind "REDIS_SOCKET_TYPE" "tcp" "REDIS_URL" $url -}}
{{- with .Values.store.tls -}}
{{- if .enabled -}}
{{- $_ := set $store "REDIS_TLS" "true" -}}
{{- if not .systemRoots -}}{{- $_ := set $store "REDIS_TLS_CACERT" "/etc/weir/redis-tls/ca.crt" -}}{{- end -}}
{{- if .clientCert -}}
{{- $_ := set $store "REDIS_TLS_CLIENT_CERT" "/etc/weir/redis-tls/tls.crt" -}}
{{- $_ := set $store "REDIS_TLS_CLIENT_KEY" "/etc/weir/redis-tls/tls.key" -}}
{{- end -}}
{{- if .skipHostnameVerification -}}{{- $_ := set $store "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" "true" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $store -}}
{{- end -}}

{{/* The passwords of Redis, as variables of a container: from store.auth.existingSecret, or from the optional Secret NAME-redis. */}}
{{- define "weir.redisAuth" -}}
{{- $auth := .Values.store.auth.existingSecret -}}
{{- range $variable, $key := dict "REDIS_AUTH" "auth" "REDIS_SENTINEL_AUTH" "sentinel-auth" }}
- name: {{ $variable }}
  valueFrom:
    secretKeyRef: {name: {{ $auth | default (printf "%s-redis" (include "weir.fullname" $)) }}, key: {{ $key }}, optional: {{ not (and $auth (eq $key "auth")) }}}
{{- end }}
{{- end -}}

{{/* All other variables: the defaults of the chart, under config.settings. */}}
{{- define "weir.settings" -}}
{{- $set := dict "USE_PROMETHEUS" "true" "PROMETHEUS_ADDR" ":9090" "LOG_FORMAT" "json" "GRPC_MAX_CONNECTION_AGE" "5m" "GRPC_MAX_CONNECTION_AGE_GRACE" "30s" "DRAIN_DELAY" "15s" "STOP_TIMEOUT" "10s" "REPLICAS_DNS" (printf "%s-headless" (include "weir.fullname" .)) "MEMORY_MAX_BYTES" "134217728" "AUTOMEMLIMIT" "0.9" -}}
{{- if eq .Values.store.type "memory" -}}
{{- $_ := set $set "DRAIN_DELAY" "1s" -}}
{{- end -}}
{{- if eq .Values.mode "ai-gateway" -}}
{{- $_ := set $set "CONFIG_TYPE" "GRPC_XDS_SOTW" -}}
{{- $_ := set $set "CONFIG_GRPC_XDS_NODE_ID" .Values.aiGateway.nodeID -}}
{{- $_ := set $set "CONFIG_GRPC_XDS_SERVER_URL" .Values.aiGateway.controller -}}
{{- $_ := set $set "CONFIG_OVERLAY" "/etc/weir/overlay" -}}
{{- $_ := set $set "CONFIG_GRPC_XDS_RULES_FILE" "/var/lib/weir/received/rules.json" -}}
{{- else -}}
{{- $_ := set $set "CONFIG_PATH" "/etc/weir/rules" -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $set "GRPC_SERVER_USE_TLS" "true" -}}
{{- $_ := set $set "GRPC_SERVER_TLS_CERT" "/etc/weir/tls/tls.crt" -}}
{{- $_ := set $set "GRPC_SERVER_TLS_KEY" "/etc/weir/tls/tls.key" -}}
{{- $_ := set $set "GRPC_CLIENT_TLS_CACERT" "/etc/weir/tls/ca.crt" -}}
{{- $_ := set $set "GRPC_CLIENT_TLS_SAN" .Values.tls.clientName -}}
{{- $_ := set $set "JSON_ENABLED" "false" -}}
{{- end -}}
{{- if .Values.admin.enabled -}}
{{- $_ := set $set "ADMIN_ADDR" "127.0.0.1:6071" -}}
{{- $_ := set $set "ADMIN_TOKEN_FILE" "/etc/weir/admin/tokens" -}}
{{- end -}}
{{- toYaml (merge (include "weir.givenSettings" . | fromYaml) $set) -}}
{{- end -}}

{{/* The variables under config.settings, as texts. A number in a values file is a float, and 1e+08 is no value of a setting. */}}
{{- define "weir.givenSettings" -}}
{{- $given := dict -}}
{{- range $name, $value := .Values.config.settings -}}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) -}}{{- $value = int64 $value -}}{{- end -}}
{{- $_ := set $given $name ($value | toString) -}}
{{- end -}}
{{- toYaml $given -}}
{{- end -}}
