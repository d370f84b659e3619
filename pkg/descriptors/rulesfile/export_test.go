package rulesfile

// The ids that docs/lint.md must have a section for.
var (
	WarningIDs = warningIDs
	FaultIDs   = []string{invalid, kubernetesManifest, syntax}
)
