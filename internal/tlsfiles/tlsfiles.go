// Package tlsfiles loads TLS configurations from PEM files, and reloads changed certificates without a restart.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// readPair reads a certificate with its key.
func readPair(cert, key string) (tls.Certificate, error) {
	switch {
	case key == "":
		return tls.Certificate{}, fmt.Errorf("the certificate %s has no key: set both", cert)
	case cert == "":
		return tls.Certificate{}, fmt.Errorf("the key %s has no certificate: set both", key)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "failed to find any PEM data in certificate"):
		return tls.Certificate{}, fmt.Errorf("the certificate %s with the key %s: no PEM certificate in the first file", cert, key)
	case strings.Contains(err.Error(), "failed to find any PEM data in key"):
		return tls.Certificate{}, fmt.Errorf("the certificate %s with the key %s: no PEM key in the second file", cert, key)
	default:
		return tls.Certificate{}, fmt.Errorf("the certificate %s with the key %s: %w", cert, key, err)
	}
	return pair, nil
}

// readCA reads CA certificates.
func readCA(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the CA file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the CA file %s: no PEM certificate in it", path)
	}
	return pool, nil
}
