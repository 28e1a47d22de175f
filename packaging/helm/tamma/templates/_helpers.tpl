{{- define "tamma.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels that select the pods of a component: (dict "root" $ "component" "server") */}}
{{- define "tamma.selector" -}}
app.kubernetes.io/name: tamma
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .group }}
tamma/worker-group: {{ . }}
{{- end }}
{{- end }}

{{- define "tamma.labels" -}}
{{ include "tamma.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Image of a component, where a group can replace the parts: (dict "root" $ "image" .image) */}}
{{- define "tamma.image" -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) (default dict .image) }}
{{- if and .image .image.tag (not .image.digest) }}{{ $_ := set $image "digest" "" }}{{ end }}
{{- $tag := default .root.Chart.AppVersion $image.tag }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "tamma.serviceAccount" -}}
{{- if .root.Values.serviceAccount.create }}{{ include "tamma.name" .root }}-{{ .component }}{{ else }}default{{ end }}
{{- end }}

{{- define "tamma.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Security context of every pod, and of every container without a sandbox inside. */}}
{{- define "tamma.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
{{- end }}

{{- define "tamma.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* The settings that bubblewrap needs, and no others: lab/inputs/image/run.py tries them. */}}
{{- define "tamma.sandboxSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
procMount: Unmasked
seccompProfile: { type: Localhost, localhostProfile: {{ .Values.sandbox.localhostProfile }} }
{{- with .Values.sandbox.appArmorProfile }}
{{- if eq . "Unconfined" }}
appArmorProfile: { type: Unconfined }
{{- else }}
appArmorProfile: { type: Localhost, localhostProfile: {{ . }} }
{{- end }}
{{- end }}
{{- end }}

{{/* Environment of servers, workers and the migration. */}}
{{- define "tamma.env" -}}
- name: TAMMA_DATABASE_URL
  valueFrom: { secretKeyRef: { name: {{ .Values.database.existingSecret }}, key: {{ .Values.database.key }} } }
- name: TAMMA_TEMPORAL_ADDRESS
  value: {{ .Values.temporal.address | quote }}
{{- if .Values.temporal.tls }}
- name: TAMMA_TEMPORAL_TLS
  value: "true"
{{- end }}
- name: TAMMA_DATA
  value: /var/lib/tamma
# In the data folder, which agents cannot read. A folder, so that a changed secret arrives without a restart.
- name: TAMMA_KEYS
  value: /var/lib/tamma/keys/keys.json
- name: TAMMA_OBJECTS
  value: {{ default "/var/lib/tamma/objects" .Values.objects.location | quote }}
- name: TAMMA_LOG
  value: {{ .Values.log.level | quote }}
- name: TAMMA_LOG_FORMAT
  value: {{ .Values.log.format | quote }}
{{- with .Values.traces.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "tamma.mounts" -}}
- { name: data, mountPath: /var/lib/tamma }
- { name: home, mountPath: /home/tamma }
- { name: tmp, mountPath: /tmp }
- { name: keys, mountPath: /var/lib/tamma/keys, readOnly: true }
{{- if .Values.objects.existingClaim }}
- { name: objects, mountPath: /var/lib/tamma/objects }
{{- end }}
{{- if .Values.operatorFile.existingSecret }}
- { name: operator, mountPath: /var/lib/tamma/operator.yaml, subPath: operator.yaml, readOnly: true }
{{- end }}
{{- if .Values.policies.existingConfigMap }}
- { name: policies, mountPath: /var/lib/tamma/policies, readOnly: true }
{{- end }}
{{- if .Values.repositories.existingClaim }}
- { name: repositories, mountPath: {{ .Values.repositories.mountPath }} }
{{- end }}
{{- end }}

{{/* Volumes except for the data folder. */}}
{{- define "tamma.volumes" -}}
- name: home
  emptyDir: {}
- name: tmp
  emptyDir: {}
- name: keys
  secret:
    secretName: {{ .Values.keys.existingSecret }}
    defaultMode: 0440
    items: [{ key: {{ .Values.keys.key }}, path: keys.json }]
{{- with .Values.objects.existingClaim }}
- name: objects
  persistentVolumeClaim: { claimName: {{ . }} }
{{- end }}
{{- with .Values.operatorFile }}
{{- if .existingSecret }}
- name: operator
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items: [{ key: {{ .key }}, path: operator.yaml }]
{{- end }}
{{- end }}
{{- with .Values.policies.existingConfigMap }}
- name: policies
  configMap: { name: {{ . }} }
{{- end }}
{{- with .Values.repositories.existingClaim }}
- name: repositories
  persistentVolumeClaim: { claimName: {{ . }} }
{{- end }}
{{- end }}

{{- define "tamma.probes" -}}
startupProbe:
  httpGet: { path: /livez, port: monitoring }
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /livez, port: monitoring }
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: monitoring }
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "tamma.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
