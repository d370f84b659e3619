package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/weir-rls/weir/internal/smallfile"
)

// Client names the PEM files of a TLS client. The zero value has no client certificate and trusts
// the system's CAs.
type Client struct {
	Cert, Key string // the client's certificate and its key; both or neither
	CA        string // the authorities that may sign the server's certificate; empty: those of the system

	ServerName   string // the name that the server's certificate must have; empty: the host of the connection
	SkipHostname bool   // accept any name in the server's certificate
}

// Config reads the files. Its error names the failing file. The client certificate is read again
// for each connection; a changed CA takes effect with the next call of Config.
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

func (c Client) pair(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := readPair(c.Cert, c.Key)
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
