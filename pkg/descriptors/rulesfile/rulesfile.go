// Package rulesfile reads rules from YAML, in the grammar of envoyproxy/ratelimit with Weir's additions.
//
//	rules, err := rulesfile.Parse(files...) // the error is Faults: every fault, with file, line and column
//
// [ParseOverlay] reads an overlay, which adds Weir's keys to rules that cannot carry them, such as those that come by
// xDS. [Schema] returns the JSON Schema of the grammar.
package rulesfile

// A File is the text of one file of rules.
type File struct {
	Name string // for faults
	Data []byte // YAML; Parse does not keep it
	// Generated marks Data that no user sees, such as an xDS resource. The sources of its rules have no lines.
	Generated bool
}
