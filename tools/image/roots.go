package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// bundleModule is where the certificates of authorities come from.
const bundleModule = "golang.org/x/crypto/x509roots/fallback"

// roots are the authorities that Mozilla trusts, in PEM, as the Go project hands them on. Their version is in go.mod, so
// that they are the same on every machine. One that Mozilla trusts only up to a date is left out: a PEM file cannot say so.
func roots() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// A bytes.Buffer takes everything.
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return all.Bytes()
}
