package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"time"

	"github.com/weir-rls/weir/internal/reloadfile"
	"github.com/weir-rls/weir/internal/smallfile"
)

// Client names the PEM files of a TLS client. The zero value has no client certificate and trusts
// the system's CAs.
type Client struct {
	Cert, Key string // the client's certificate and its key; both or neither
	CA        string // the authorities that may sign the server's certificate; empty: those of the system

	ServerName   string // the name that the server's certificate must have; empty: the host of the connection
	SkipHostname bool   // accept any name in the server's certificate

	// Expired, if set, is called with the path and the end of a client certificate that has
	// expired, each time that the certificate is loaded. Servers then reject it.
	Expired func(path string, notAfter time.Time)
}

// Config reads the files. Its error names the failing file. The client certificate is read again
// for each connection; a changed CA takes effect with the next call of Config. See also
// [Client.Reloading].
func (c Client) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CA != "" {
		pool, err := readCA(c.CA, smallfile.ReadOnce)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if c.Cert != "" || c.Key != "" {
		if _, err := c.pair(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = c.pair
	}
	if c.SkipHostname {
		// InsecureSkipVerify alone would accept any certificate; VerifyConnection verifies the
		// chain.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, config.RootCAs) }
	}
	return config, nil
}

// Reloading returns a function for the configuration of the next connection, which reads a changed
// CA again. If the new CA is invalid, the last good configuration stays in use, each call tries
// again, and failed is called once for each different error. A CA that is no regular file, such as
// a pipe, is read once.
func (c Client) Reloading(failed func(error)) (current func() *tls.Config, err error) {
	if info, err := os.Stat(c.CA); err != nil || !info.Mode().IsRegular() {
		config, err := c.Config() // its error also names a missing file
		return func() *tls.Config { return config }, err
	}
	config, err := reloadfile.New("the CA file", []string{c.CA}, c.Config, failed)
	if err != nil {
		return nil, err
	}
	return config.Current, nil
}

func (c Client) pair(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := readPair(c.Cert, c.Key, c.Expired)
	return &pair, err
}

// verifyChain verifies the server's certificate, which crypto/tls requires, but not its name.
func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(options)
	return err
}
