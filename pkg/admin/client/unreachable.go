package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// unreachable returns the error of a call without a response.
func (c *Client) unreachable(err error) error {
	cause, remedy := causeOf(err)
	remedy = cmp.Or(remedy, "set ADMIN_ADDR on the server, or correct "+c.options.Flag)
	return &callError{fmt.Sprintf("the admin API at %s does not answer: %s: %s", c.base.Redacted(), cause, remedy), err}
}

// A callError is a sentence about the error of a call.
type callError struct {
	text string
	err  error
}

func (e *callError) Error() string { return e.text }
func (e *callError) Unwrap() error { return e.err }

// causeOf returns the cause of a call without a response. The remedy is "" if the address or the
// server is wrong.
func causeOf(err error) (cause, remedy string) {
	var (
		name  *net.DNSError
		errno syscall.Errno
		timed interface{ Timeout() bool }
		host  x509.HostnameError
		ca    x509.UnknownAuthorityError
		cert  *tls.CertificateVerificationError
		alert tls.AlertError
	)
	switch {
	case errors.Is(err, context.Canceled):
		return "the call was canceled", "call again"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server has no TLS", "write http://"
	case errors.As(err, &name) && name.IsNotFound:
		return "no such host", ""
	case errors.As(err, &errno):
		return errno.Error(), ""
	case errors.As(err, &timed) && timed.Timeout():
		return "no response in time", ""
	case errors.As(err, &host):
		return "the certificate is for another name", "write a name that the certificate has"
	case errors.As(err, &ca):
		return "the certificate is signed by an unknown CA", "name the CA with --ca"
	case errors.As(err, &cert):
		return "the certificate is not valid (" + cert.Err.Error() + ")", "renew it on the server"
	case errors.As(err, &alert):
		return "the server refuses the client certificate (" + alert.Error() + ")", "set --cert and --key"
	case strings.Contains(err.Error(), "malformed HTTP"), strings.Contains(err.Error(), "readLoopPeekFail"):
		// net/http has the second error if the server sends before the client does, as gRPC servers
		// do.
		return "this port does not speak HTTP/1.1", ""
	}
	return "the connection failed (" + rootOf(err).Error() + ")", ""
}

// rootOf returns the innermost error of a chain.
func rootOf(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
