package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/admin/client"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// AdminServer holds the flags of commands that call the admin API of a running server.
type AdminServer struct {
	Server           string `env:"WEIR_ADMIN_URL" default:"http://127.0.0.1:6071" placeholder:"URL" help:"The URL of the admin API of a replica: its ADMIN_ADDR. Default: ${default}."`
	adminCredentials `embed:""`
}

func (s *AdminServer) client() (*client.Client, error) {
	return s.clientOf("--server (WEIR_ADMIN_URL)", s.Server)
}

// adminCredentials are the credentials for the admin API, and the CA of its certificate.
type adminCredentials struct {
	TokenFile string `env:"WEIR_TOKEN_FILE" placeholder:"FILE" help:"A file with a token of the admin API. Weir sends the first line that is not a comment."`
	CA        string `name:"ca" placeholder:"FILE" help:"The CA that signs the server's certificate, in PEM. Default: the CAs of the system."`
	Cert      string `placeholder:"FILE" help:"A client certificate, in PEM, instead of a token."`
	Key       string `placeholder:"FILE" help:"The key of the client certificate, in PEM."`
}

// clientOf returns a client of the admin API at the URL of a flag.
func (s *adminCredentials) clientOf(flag, server string) (*client.Client, error) {
	o := client.Options{Server: server, Flag: flag}
	var err error
	if s.TokenFile != "" {
		o.Token, err = client.ReadToken(s.TokenFile)
		if err != nil {
			return nil, err
		}
	}
	if s.CA != "" || s.Cert != "" || s.Key != "" {
		config, err := tlsfiles.Client{Cert: s.Cert, Key: s.Key, CA: s.CA}.Config()
		if err != nil {
			return nil, err
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = config
		o.HTTP = &http.Client{Transport: transport}
	}
	c, err := client.New(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return c, nil
}

// An adminKey is the key named by the arguments.
type adminKey struct {
	Domain     string `short:"d" help:"The domain. Optional if the rules have only one."`
	Descriptor string `arg:"" optional:"" help:"The entries of the descriptor, such as user_id=42,action=login. Escape a comma or = in a value with a backslash."`
}

// checkDomain returns an error for a --domain that no rules can have.
func checkDomain(domain string) error {
	if utf8.ValidString(domain) {
		return nil
	}
	return fmt.Errorf("--domain %q is not UTF-8, as rules are: correct it", domain)
}

// domain returns the domain of the flag, or the only one of the server's rules.
func (k *adminKey) domain(ctx context.Context, c *client.Client) (string, error) {
	if k.Domain != "" {
		return k.Domain, checkDomain(k.Domain)
	}
	status, err := c.Status(ctx)
	if err != nil {
		return "", err
	}
	switch {
	case status.Domains == 0 && status.RulesVersion == "":
		return "", errors.New("no rules are loaded yet: read the log of the server")
	case status.Domains == 0:
		return "", errors.New("the rules of the server are empty, so there is no key")
	case status.Domains > 1:
		return "", fmt.Errorf("the rules have %d domains: set --domain%s", status.Domains, domainsOf(ctx, c))
	}
	rules, err := c.Rules(ctx, "", 1, 0)
	switch {
	case err != nil:
		return "", err
	case len(rules) == 0:
		return "", errors.New("the server lists no rules: set --domain to the domain of the key")
	}
	return rules[0].Domain, nil
}

// domainsOf returns the part of an error message that lists some domains of the rules.
func domainsOf(ctx context.Context, c *client.Client) string {
	const readRules, maxNames = 1000, 5
	rules, err := c.Rules(ctx, "", readRules, 0)
	if err != nil {
		return ""
	}
	var names []string
	for _, r := range rules {
		if name := terminal.Printable(r.Domain); !slices.Contains(names, name) && len(names) < maxNames {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", such as " + strings.Join(names, ", ")
}

// request returns the key that the arguments name.
func (k *adminKey) request(ctx context.Context, c *client.Client) (api.KeyRequest, error) {
	entries, err := descriptors.ParseEntries(k.Descriptor)
	if err != nil {
		return api.KeyRequest{}, err
	}
	domain, err := k.domain(ctx, c)
	return api.KeyRequest{Domain: domain, Descriptor: explain.EntriesOf(entries)}, err
}

// failedIfNotFound gives the exit code [Failed] to an error of a server that does not know the key
// or the domain.
func failedIfNotFound(err error) error {
	if client.IsNotFound(err) {
		return failedError{err}
	}
	return err
}

// rowOf is [terminal.Row] with - in an empty cell.
func rowOf(cells ...any) string {
	for i := range cells {
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	return terminal.Row(cells...)
}

// retries are the waits between attempts to reach a server.
var retries = backoff.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: .2}

// isRejected reports whether the server or the client rejected a call, so that retrying is useless.
func isRejected(err error) bool {
	var e *client.Error
	return errors.Is(err, client.ErrFilterKey) || errors.As(err, &e) && e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests
}

// printRetry prints the reason of a failed connection and the wait before the next attempt.
func printRetry(w io.Writer, err error, wait time.Duration) {
	fmt.Fprintf(w, "weir: %s\n", retryText(err, wait))
}

func retryText(err error, wait time.Duration) string {
	what := err.Error()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		what = "the server ended the stream"
	}
	return fmt.Sprintf("%s; next attempt in %v", terminal.Printable(what), wait.Round(time.Second/10))
}
