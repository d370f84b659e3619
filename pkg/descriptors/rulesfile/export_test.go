package rulesfile

// FaultIDs and WarningIDs have a section each in docs/lint.md.
var FaultIDs = []string{invalid, kubernetesManifest, syntax}

func WarningIDs() []string { return warningIDs }
