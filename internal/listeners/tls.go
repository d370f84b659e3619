// Package listeners opens what the process listens on: TCP or a unix socket, with or without TLS, whose certificates are
// read again when their files change.
package listeners

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLS names the files of a listener with TLS. A zero TLS is none.
type TLS struct {
	Cert, Key string // PEM, of the server
	ClientCA  string // PEM; if given, clients must show a certificate of it
	Clients   Names  // if given, that certificate must be for one of these
}

// Config is the configuration of a server that speaks HTTP/2. A client that connects gets the certificates of the moment:
// each handshake looks whether the files have changed. If they have and cannot be read, the old ones stay, and failed is
// told. The error names the file that cannot be read now.
func (t TLS) Config(failed func(error)) (*tls.Config, error) {
	if t.Cert == "" || t.Key == "" {
		return nil, errors.New("TLS wants both a certificate and a key")
	}
	if len(t.Clients) > 0 && t.ClientCA == "" {
		return nil, errors.New("a name that client certificates must have wants a CA to check them with")
	}
	r := &reloading{files: t, failed: failed}
	seen, err := r.look()
	if err != nil {
		return nil, err
	}
	if r.config, err = t.load(); err != nil {
		return nil, err
	}
	r.seen = seen
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(), nil },
	}, nil
}

func (t TLS) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate %s with the key %s: %w", t.Cert, t.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}}
	if t.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("the CA of clients: %w", err)
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the CA of clients: %s holds no PEM certificate", t.ClientCA)
	}
	if len(t.Clients) > 0 {
		c.VerifyConnection = func(s tls.ConnectionState) error { return t.Clients.check(s.PeerCertificates[0]) }
	}
	return c, nil
}

// reloading keeps the configuration of the files of the moment.
type reloading struct {
	files  TLS
	failed func(error)

	mu     sync.Mutex
	seen   [3]stamp
	bad    [3]stamp // of files that could not be read, lest it is told with each handshake
	missed bool     // a file was not there, and it was told
	config *tls.Config
}

// A stamp tells one state of a file from another.
type stamp struct {
	size     int64
	modified time.Time
}

func (r *reloading) look() (seen [3]stamp, err error) {
	for i, name := range []string{r.files.Cert, r.files.Key, r.files.ClientCA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return seen, fmt.Errorf("TLS: %w", err)
		}
		seen[i] = stamp{info.Size(), info.ModTime()}
	}
	return seen, nil
}

func (r *reloading) current() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, err := r.look()
	switch {
	case err != nil && r.missed, err == nil && (seen == r.seen || seen == r.bad):
		return r.config
	case err != nil:
		r.missed = true
	default:
		r.missed = false
		var c *tls.Config
		if c, err = r.files.load(); err == nil {
			r.config, r.seen = c, seen
			return c
		}
		r.bad = seen
	}
	r.failed(err)
	return r.config
}
