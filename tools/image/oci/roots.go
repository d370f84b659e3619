package oci

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// bundleModule contains the CA certificates.
const bundleModule = "golang.org/x/crypto/x509roots/fallback"

// roots returns the CAs that Mozilla trusts, in PEM, as distributed by the Go project. go.mod pins
// their version, so they are the same on every machine. A CA that Mozilla trusts only until a date
// is left out, because a PEM file cannot express that.
func roots() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to a bytes.Buffer cannot fail.
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return all.Bytes()
}
