// Package tlsfiles loads TLS configurations from PEM files, and reloads changed certificates
// without a restart.
package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rls/weir/internal/smallfile"
)

// readPair reads a certificate with its key. It calls expired, unless that is nil, with the path
// and the end of a certificate that has expired.
func readPair(cert, key string, expired func(path string, notAfter time.Time)) (tls.Certificate, error) {
	switch {
	case key == "":
		return tls.Certificate{}, fmt.Errorf("the certificate %s has no key: set both", cert)
	case cert == "":
		return tls.Certificate{}, fmt.Errorf("the key %s has no certificate: set both", key)
	}
	var pair tls.Certificate
	certPEM, err := smallfile.Read(cert)
	if err != nil {
		return pair, fmt.Errorf("the certificate: %w", err)
	}
	keyPEM, err := smallfile.Read(key)
	if err != nil {
		return pair, fmt.Errorf("the key of the certificate: %w", err)
	}
	pair, err = tls.X509KeyPair(certPEM, keyPEM)
	switch {
	case err == nil:
		if expired != nil && time.Now().After(pair.Leaf.NotAfter) {
			expired(cert, pair.Leaf.NotAfter)
		}
		return pair, nil
	case !isPEM(certPEM):
		err = errors.New("no PEM certificate in the first file")
	case !isPEM(keyPEM):
		err = errors.New("no PEM key in the second file")
	}
	return pair, fmt.Errorf("the certificate %s with the key %s: %w", cert, key, err)
}

func isPEM(text []byte) bool {
	block, _ := pem.Decode(text)
	return block != nil
}

// readCA reads CA certificates with a function of smallfile. It fails if the last one is
// incomplete, because the file may still be written. As in crypto/x509, it skips certificates that
// Go does not accept, which bundles of operating systems contain.
func readCA(path string, read func(string) ([]byte, error)) (*x509.CertPool, error) {
	text, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("the CA file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("the CA file %s: no PEM certificate in it", path)
	}
	rest := text
	for block := (&pem.Block{}); block != nil; {
		block, rest = pem.Decode(rest)
	}
	if bytes.Contains(rest, []byte("-----BEGIN CERTIFICATE")) {
		return nil, fmt.Errorf("the CA file %s: its last PEM certificate is incomplete", path)
	}
	return pool, nil
}
