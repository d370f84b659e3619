// Package rulesfile reads rules from YAML, in the grammar of envoyproxy/ratelimit with Weir's
// additions.
//
//	rules, err := rulesfile.Parse(files...) // the error is Faults: every fault, with file, line and column
//
// [ParseOverlay] reads an overlay, which adds Weir's keys to rules that cannot carry them, such as
// those that come over xDS. The file docs/rules.schema.json is the JSON Schema of the grammar,
// which tests compare with the code.
package rulesfile

import (
	"crypto/sha256"
	"encoding/binary"
)

// A File is the text of one file of rules.
type File struct {
	Name string // for faults
	Data []byte // YAML; Parse does not keep it
	// Generated marks Data that no user sees, such as an xDS resource. The sources of its rules
	// have no lines.
	Generated bool
}

// Fingerprint returns a hash of the names, texts and order of files: 32 arbitrary bytes.
func Fingerprint(files []File) string {
	h := sha256.New()
	var length [8]byte
	part := func(b []byte) {
		binary.LittleEndian.PutUint64(length[:], uint64(len(b)))
		h.Write(length[:])
		h.Write(b)
	}
	for _, file := range files {
		part([]byte(file.Name))
		part(file.Data)
	}
	return string(h.Sum(nil))
}
