package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSFiles name the PEM files of TLS connections to Redis. All may be empty.
type TLSFiles struct {
	Cert, Key string // the client certificate and its key: both or none
	CA        string // the accepted authorities; empty means those of the system
	// SkipHostname accepts a certificate of these authorities for any host name.
	SkipHostname bool
}

// Config returns the TLS configuration. It reads the client certificate at once, to report errors early, and again for
// each new connection, so a renewed certificate needs no restart.
func (f TLSFiles) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificate authorities: no certificate in %s", f.CA)
		}
	}
	switch {
	case f.Cert == "" && f.Key != "":
		return nil, fmt.Errorf("the key %s has no client certificate: want both or none", f.Key)
	case f.Cert != "" && f.Key == "":
		return nil, fmt.Errorf("the client certificate %s has no key: want both or none", f.Cert)
	case f.Cert != "":
		if _, err := f.certificate(nil); err != nil {
			return nil, err
		}
		c.GetClientCertificate = f.certificate
	}
	if f.SkipHostname {
		// InsecureSkipVerify alone would accept any certificate.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, c.RootCAs) }
	}
	return c, nil
}

func (f TLSFiles) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate %s with the key %s: %w", f.Cert, f.Key, err)
	}
	return &pair, nil
}

func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("redis sent no certificate")
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(options)
	return err
}
