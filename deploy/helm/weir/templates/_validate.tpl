{{/* Values that the schema cannot reject, because two of them contradict each other. */}}
{{- define "weir.validate" -}}
{{- if regexMatch "^[0-9]" (include "weir.fullname" .) -}}
  {{- fail (printf "the name %s begins with a digit, which Kubernetes rejects for a Service: set fullnameOverride, or choose another name for the release." (include "weir.fullname" .)) -}}
{{- end -}}
{{- $store := .Values.store -}}
{{- /* Each address of a list may be a URL, or host:port with a user and parameters. In a single address, a password may contain commas. */ -}}
{{- $withPassword := "//[^@/]*:[^@/]+@|(^|,)[^@/,]*:[^@/,]+@|[?&]password=" -}}
{{- if eq $store.type "memory" -}}
  {{- if gt (int (.Values.replicaCount | default 0)) 1 -}}
    {{- fail (printf "store.type memory allows one replica, and replicaCount is %d: each replica would allow the whole limit. Set store.type to redis, sentinel or cluster." (int .Values.replicaCount)) -}}
  {{- end -}}
  {{- if or $store.url $store.tls.enabled $store.auth.existingSecret -}}
    {{- fail "store.url, store.tls and store.auth have no effect with store.type memory: set store.type to redis, sentinel or cluster, or remove them." -}}
  {{- end -}}
  {{- if eq .Values.mode "envoy-gateway" -}}
    {{- fail "mode envoy-gateway needs a Redis, because Envoy Gateway starts several pods: set store.type to redis." -}}
  {{- end -}}
{{- else if or (regexMatch $withPassword $store.url) (and (eq $store.type "redis") (regexMatch "^[^@/]*:[^@/]+@" $store.url)) -}}
  {{- fail "store.url has a password, which a ConfigMap would show: put it into a Secret, and name that in store.auth.existingSecret." -}}
{{- else if and (eq $store.type "redis") (not $store.url) (not .Values.redis.enabled) -}}
  {{- fail "store.type redis has no Redis: set store.url to host:port, or redis.enabled to true." -}}
{{- else if and (eq $store.type "sentinel") (lt (len (splitList "," $store.url)) 2) -}}
  {{- fail "store.type sentinel needs store.url: the name of the master and then the Sentinels, for example mymaster,redis-sentinel.redis:26379." -}}
{{- else if and (eq $store.type "cluster") (not $store.url) -}}
  {{- fail "store.type cluster needs store.url: one node of the cluster or several, for example redis-cluster.redis:6379." -}}
{{- end -}}
{{- if $store.tls.enabled -}}
  {{- if and (not $store.tls.existingSecret) (or (not $store.tls.systemRoots) $store.tls.clientCert) -}}
    {{- fail (printf "store.tls.enabled with store.type %s needs store.tls.existingSecret, a Secret with ca.crt (and tls.crt and tls.key with store.tls.clientCert). For a certificate of a public CA, set store.tls.systemRoots to true." $store.type) -}}
  {{- end -}}
  {{- if not (or $store.url (eq $store.type "memory")) -}}
    {{- fail "store.tls.enabled needs store.url: the Redis of this chart has no TLS." -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) (not .Values.tls.certManager.enabled) -}}
  {{- fail "tls.enabled needs a certificate: set tls.existingSecret to a Secret with tls.crt, tls.key and ca.crt, or tls.certManager.enabled to true." -}}
{{- end -}}
{{- if and .Values.tls.existingSecret .Values.tls.certManager.enabled -}}
  {{- fail "tls.existingSecret and tls.certManager.enabled contradict each other: remove one." -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.enabled) -}}
  {{- fail "tls.certManager.enabled has no effect without tls.enabled: set both to true." -}}
{{- end -}}
{{- if lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas) -}}
  {{- fail (printf "autoscaling.maxReplicas is %d, and autoscaling.minReplicas is %d: the first must be at least the second." (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) -}}
{{- end -}}
{{- if and (include "weir.autoscaled" .) (eq .Values.autoscaling.type "keda") (not .Values.autoscaling.keda.triggers) -}}
  {{- fail "autoscaling.type keda needs autoscaling.keda.triggers: KEDA rejects a ScaledObject without one." -}}
{{- end -}}
{{- if and .Values.config.existingConfigMap .Values.config.rules -}}
  {{- fail "config.existingConfigMap and config.rules contradict each other: remove one." -}}
{{- end -}}
{{- if and (ne .Values.mode "standalone") (or .Values.config.existingConfigMap .Values.config.rules) -}}
  {{- fail (printf "config.rules and config.existingConfigMap have no effect in mode %s, where rules come from the gateway. config.overlay sets algorithms for them." .Values.mode) -}}
{{- end -}}
{{- if and (eq .Values.mode "standalone") .Values.config.overlay -}}
  {{- fail "config.overlay has no effect in mode standalone: write the algorithm into config.rules." -}}
{{- end -}}
{{- if and (eq .Values.mode "ai-gateway") (ne .Release.Namespace .Values.aiGateway.namespace) -}}
  {{- fail (printf "mode ai-gateway must be in the namespace %s, where Envoy AI Gateway looks for the Service %s, and this release is in %s: use --namespace %s, or set aiGateway.namespace and the controller's --quotaRateLimitServiceAddr." .Values.aiGateway.namespace .Values.aiGateway.serviceName .Release.Namespace .Values.aiGateway.namespace) -}}
{{- end -}}
{{- if and (ne .Values.mode "standalone") .Values.tls.enabled -}}
  {{- fail (printf "tls.enabled has no effect in mode %s: Envoy Gateway sets the certificates of its own pods, and Envoy AI Gateway connects without TLS." .Values.mode) -}}
{{- end -}}
{{- if eq .Values.mode "envoy-gateway" -}}
  {{- $ignored := dict "admin.enabled" .Values.admin.enabled "replicaCount" (not (kindIs "invalid" .Values.replicaCount)) "extraEnvFrom" .Values.extraEnvFrom "service.annotations" .Values.service.annotations "service.selector" .Values.service.selector "serviceAccount.name" .Values.serviceAccount.name "serviceAccount.annotations" .Values.serviceAccount.annotations "networkPolicy.clients" .Values.networkPolicy.clients "networkPolicy.egress" .Values.networkPolicy.egress "topologySpread.constraints" .Values.topologySpread.constraints "autoscaling.type" (ne .Values.autoscaling.type "hpa") "autoscaling.enabled=false" (not .Values.autoscaling.enabled) -}}
  {{- range $path, $set := $ignored -}}
    {{- if $set -}}
      {{- fail (printf "%s has no effect in mode envoy-gateway, where Envoy Gateway creates the pods: remove it, and change the configuration of Envoy Gateway, under provider.kubernetes." $path) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if ne .Values.mode "envoy-gateway" -}}
  {{- /* Only functions of dates parse durations. */ -}}
  {{- $set := include "weir.settings" . | fromYaml -}}
  {{- $start := now -}}
  {{- $end := $start | dateModify $set.DRAIN_DELAY | dateModify $set.STOP_TIMEOUT -}}
  {{- if ge ($end.Sub $start).Seconds (float64 .Values.terminationGracePeriodSeconds) -}}
    {{- fail (printf "terminationGracePeriodSeconds is %d, and DRAIN_DELAY (%s) and STOP_TIMEOUT (%s) together are not shorter: Kubernetes would kill the pod before it has stopped. Set a longer period." (int .Values.terminationGracePeriodSeconds) $set.DRAIN_DELAY $set.STOP_TIMEOUT) -}}
  {{- end -}}
{{- end -}}
{{- $owned := include "weir.store" . | fromYaml -}}
{{- range $name := list "BACKEND_TYPE" "REDIS_TYPE" "REDIS_URL" "REDIS_SOCKET_TYPE" "REDIS_AUTH" "REDIS_SENTINEL_AUTH" -}}
  {{- $_ := set $owned $name "" -}}
{{- end -}}
{{- $known := splitList "\n" (.Files.Get "files/settings.txt") -}}
{{- range $name, $value := .Values.config.settings -}}
  {{- if not (or (has $name $known) (regexMatch "^(GO|OTEL_)[A-Z_]+$" $name)) -}}
    {{- fail (printf "config.settings.%s is no setting of Weir: docs/settings.md lists all of them. Variables of other software belong to extraEnv." $name) -}}
  {{- end -}}
  {{- $secrets := list "KEY_HASH_SECRET" "REDIS_PERSECOND_AUTH" "REDIS_PERSECOND_SENTINEL_AUTH" "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" -}}
  {{- if or (has $name $secrets) (regexMatch "^OTEL_EXPORTER_OTLP_(.+_)?HEADERS$" $name) (and (eq $name "REDIS_PERSECOND_URL") (regexMatch $withPassword (toString $value))) -}}
    {{- fail (printf "config.settings.%s: a ConfigMap would show this secret. Put it into a Secret, and name that in extraEnv, by valueFrom.secretKeyRef." $name) -}}
  {{- end -}}
  {{- if hasKey $owned $name -}}
    {{- fail (printf "config.settings.%s: set the values under store instead, which set this variable." $name) -}}
  {{- else if has $name (list "CONFIG_PATH" "CONFIG_TYPE" "CONFIG_OVERLAY" "PORT" "GRPC_PORT" "GRPC_UDS" "USE_PROMETHEUS" "PROMETHEUS_ADDR" "PROMETHEUS_PATH") -}}
    {{- fail (printf "config.settings.%s: the Services, probes and volumes of the chart depend on this variable. Remove it." $name) -}}
  {{- else if and (has $name (list "HOST" "GRPC_HOST")) (not (has (toString $value) (list "0.0.0.0" "::"))) -}}
    {{- fail (printf "config.settings.%s: the kubelet and Envoy connect to the address of the pod, so Weir must listen on all addresses: use 0.0.0.0, or :: for IPv6." $name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
