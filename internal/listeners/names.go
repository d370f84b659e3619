package listeners

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Names are who may connect: a certificate is let in that is for any of them. No names let in every certificate.
type Names []name

// A name is what a certificate may be for: a host or an address, or a URI.
type name struct {
	host string // as x509 writes it; empty: a URI
	uri  string
}

// ParseNames reads names with commas between: DNS names, addresses, and URIs such as spiffe://cluster.local/ns/edge/sa/envoy.
// A name is that of one client, so none has a wildcard; a certificate for *.edge.example is for each DNS name below it.
func ParseNames(list string) (Names, error) {
	if list == "" {
		return nil, nil
	}
	var names Names
	for text := range strings.SplitSeq(list, ",") {
		n, err := parseName(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	return names, nil
}

func parseName(text string) (name, error) {
	inner := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	switch {
	case text == "":
		return name{}, errors.New("an empty name: want DNS names, addresses or URIs with commas between")
	case strings.Contains(text, "://"):
		u, err := url.Parse(text)
		if err != nil {
			return name{}, fmt.Errorf("%q is no URI: %w", text, errors.Unwrap(err))
		}
		if u.Host == "" || u.String() != text {
			return name{}, fmt.Errorf("%q is no URI that a certificate can be for: want one like spiffe://cluster.local/ns/edge/sa/envoy", text)
		}
		return name{uri: text}, nil
	case net.ParseIP(inner) != nil:
		return name{host: inner}, nil
	case strings.Contains(text, "*"):
		return name{}, fmt.Errorf("%q: want whole names, without a wildcard", text)
	case !isHost(text):
		return name{}, fmt.Errorf("%q is neither a DNS name, nor an address, nor a URI", text)
	}
	return name{host: text}, nil
}

// isHost tells whether x509 compares text as a name of a host.
func isHost(text string) bool {
	text = strings.TrimSuffix(text, ".")
	if len(text) > 253 {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// check tells why a certificate is for none of the names.
func (n Names) check(cert *x509.Certificate) error {
	if len(n) == 0 {
		return nil
	}
	for _, one := range n {
		if one.of(cert) {
			return nil
		}
	}
	return fmt.Errorf("a certificate for none of the names that clients may have: DNS names %q, addresses %v, URIs %v",
		cert.DNSNames, cert.IPAddresses, cert.URIs)
}

func (n name) of(cert *x509.Certificate) bool {
	if n.uri == "" {
		return cert.VerifyHostname(n.host) == nil
	}
	for _, u := range cert.URIs {
		if u.String() == n.uri {
			return true
		}
	}
	return false
}
