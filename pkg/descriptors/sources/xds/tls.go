package xds

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLSFiles name what TLS needs, each a PEM file or "".
type TLSFiles struct {
	CA         string // who may sign the server's certificate; "": whom the system trusts
	Cert, Key  string // of the client; "": it shows none
	ServerName string // that the server's certificate must be for; "": the host it was reached by
}

// Config reads the files. Its error names the one at fault.
func (f TLSFiles) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("CA of the xDS server: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA of the xDS server: no certificate in %s", f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate of the xDS client, %q with the key %q: %w", f.Cert, f.Key, err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}
