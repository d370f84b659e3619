package tlsfiles

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/weir-rls/weir/internal/reloadfile"
	"github.com/weir-rls/weir/internal/smallfile"
)

// Server names the PEM files of a TLS server.
type Server struct {
	Cert, Key string   // the server's certificate and its key
	ClientCA  string   // if set, clients must have a certificate that this CA signed
	Clients   Names    // if set, the client's certificate must have one of these names
	Optional  bool     // clients may have no certificate; one that they have is verified
	Protocols []string // the protocols that ALPN offers; default h2 only

	// Expired, if set, is called with the path and the end of a certificate that has expired, each
	// time that the certificate is loaded. Clients then reject it.
	Expired func(path string, notAfter time.Time)
}

// Config returns the configuration of a server. Each handshake reloads changed files. If changed
// files are invalid, the last good configuration stays in use, each handshake retries, and failed
// is called once for each different error. The error of Config names the invalid file.
func (s Server) Config(failed func(error)) (*tls.Config, error) {
	if s.Cert == "" || s.Key == "" {
		return nil, errors.New("a TLS server needs both a certificate and a key: set the files of both")
	}
	if len(s.Clients) > 0 && s.ClientCA == "" {
		return nil, errors.New("names of client certificates are set, but not the CA that signs these certificates: set its file too")
	}
	if len(s.Clients) > 0 && s.Optional {
		return nil, errors.New("names of client certificates are set, but a client may have no certificate: require certificates, or remove the names")
	}
	if s.Protocols == nil {
		s.Protocols = []string{"h2"}
	}
	paths := []string{s.Cert, s.Key}
	if s.ClientCA != "" {
		paths = append(paths, s.ClientCA)
	}
	config, err := reloadfile.New("TLS", paths, s.read, failed)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         s.Protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return config.Current(), nil },
	}, nil
}

func (s Server) read() (*tls.Config, error) {
	pair, err := readPair(s.Cert, s.Key, s.Expired)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: s.Protocols, Certificates: []tls.Certificate{pair}}
	if s.ClientCA == "" {
		return c, nil
	}
	if c.ClientCAs, err = readCA(s.ClientCA, smallfile.Read); err != nil {
		return nil, err
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if s.Optional {
		c.ClientAuth = tls.VerifyClientCertIfGiven
		return c, nil
	}
	c.VerifyConnection = func(state tls.ConnectionState) error { return s.Clients.check(state.PeerCertificates[0]) }
	return c, nil
}
