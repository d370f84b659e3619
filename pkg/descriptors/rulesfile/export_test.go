package rulesfile

// docs/lint.md must have a section for each of these ids.
var (
	WarningIDs = warningIDs
	FaultIDs   = []string{invalid, kubernetesManifest, syntax}
)
