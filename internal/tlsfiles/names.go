package tlsfiles

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Names are the accepted names of clients. A certificate must have at least one of them. An empty
// list accepts every certificate.
type Names []name

// A name is a host, an IP address or a URI.
type name struct {
	host string // a DNS name or an IP address; empty: uri is set
	uri  string
}

// ParseNames parses comma-separated DNS names, IP addresses, and URIs such as
// spiffe://cluster.local/ns/edge/sa/envoy. Names must not contain wildcards, but a certificate for
// *.edge.example has every DNS name one level below edge.example.
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
		return name{}, errors.New("a name is empty: write DNS names, addresses or URIs with one comma between two of them")
	case strings.Contains(text, "://"):
		u, err := url.Parse(text)
		if err != nil {
			return name{}, fmt.Errorf("%q is not a URI: %w", text, errors.Unwrap(err))
		}
		if u.Host == "" || u.String() != text {
			return name{}, fmt.Errorf("%q is not a URI that a certificate can have: write one like spiffe://cluster.local/ns/edge/sa/envoy", text)
		}
		return name{uri: text}, nil
	case net.ParseIP(inner) != nil:
		return name{host: inner}, nil
	case strings.Contains(text, "*"):
		return name{}, fmt.Errorf("%q: write the whole name, without a wildcard", text)
	case !isHost(text):
		return name{}, fmt.Errorf("%q is not a DNS name, an address or a URI", text)
	}
	return name{host: text}, nil
}

// isHost reports whether x509 accepts text as a host name.
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

// check returns an error if cert has none of the names.
func (n Names) check(cert *x509.Certificate) error {
	if len(n) == 0 || slices.ContainsFunc(n, func(allowed name) bool { return allowed.matches(cert) }) {
		return nil
	}
	return fmt.Errorf("the client's certificate has none of the accepted names: it has DNS names %q, addresses %v, URIs %v",
		cert.DNSNames, cert.IPAddresses, cert.URIs)
}

func (n name) matches(cert *x509.Certificate) bool {
	if n.uri == "" {
		return cert.VerifyHostname(n.host) == nil
	}
	return slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return u.String() == n.uri })
}
