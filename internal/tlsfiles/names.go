package tlsfiles

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Names are the accepted names of clients: DNS names, IP addresses and URIs. A certificate must
// have at least one of them. An empty list accepts every certificate.
type Names []string

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

func parseName(text string) (string, error) {
	inner := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	switch {
	case text == "":
		return "", errors.New("a name is empty: write DNS names, addresses or URIs with one comma between two of them")
	case strings.Contains(text, "://"):
		u, err := url.Parse(text)
		if err != nil {
			return "", fmt.Errorf("%q is not a URI: %w", text, errors.Unwrap(err))
		}
		if u.Host == "" || u.String() != text {
			return "", fmt.Errorf("%q is not a URI that a certificate can have: write one like spiffe://cluster.local/ns/edge/sa/envoy", text)
		}
		return text, nil
	case net.ParseIP(inner) != nil:
		return inner, nil
	case strings.Contains(text, "*"):
		return "", fmt.Errorf("%q: write the whole name, without a wildcard", text)
	case !isHost(text):
		return "", fmt.Errorf("%q is not a DNS name, an address or a URI", text)
	}
	return text, nil
}

var hostName = regexp.MustCompile(`^\w[\w-]{0,62}(\.\w[\w-]{0,62})*\.?$`)

// isHost reports whether x509 accepts text as a host name.
func isHost(text string) bool {
	return len(strings.TrimSuffix(text, ".")) <= 253 && hostName.MatchString(text)
}

// check returns an error if cert has none of the names.
func (n Names) check(cert *x509.Certificate) error {
	if len(n) == 0 || slices.ContainsFunc(n, func(name string) bool { return hasName(cert, name) }) {
		return nil
	}
	return fmt.Errorf("the client's certificate has none of the accepted names: it has DNS names %q, addresses %v, URIs %v",
		cert.DNSNames, cert.IPAddresses, cert.URIs)
}

func hasName(cert *x509.Certificate, name string) bool {
	if !strings.Contains(name, "://") {
		return cert.VerifyHostname(name) == nil
	}
	return slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return u.String() == name })
}
