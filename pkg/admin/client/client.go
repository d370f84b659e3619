// Package client calls the admin API of a running Weir.
//
//	c, err := client.New(client.Options{Server: "http://127.0.0.1:6071", Token: token})
//	state, err := c.Peek(ctx, api.KeyRequest{Domain: "shop", Descriptor: []explain.Entry{{"user_id", "42"}}})
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/smallfile"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/explain"
)

// Options configures a [Client].
type Options struct {
	Server string       // the URL of the admin API, such as http://127.0.0.1:6071
	Token  string       // empty: HTTP sends a client certificate
	HTTP   *http.Client // default: a client without a certificate
	Flag   string       // the flag that sets Server, named in errors; default: errors name the address
}

// A Client calls the admin API of one process. It is safe for concurrent use.
type Client struct {
	options Options
	base    *url.URL
}

const (
	timeout          = 10 * time.Second // for every call except a stream
	maxResponseBytes = 64 << 20         // bound on the response to a call
)

// New returns a Client. It does not connect.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.Server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the URL of an admin API: write it as http://127.0.0.1:6071", o.Server)
	}
	o.HTTP = cmp.Or(o.HTTP, http.DefaultClient)
	o.Flag = cmp.Or(o.Flag, "the address")
	return &Client{o, base}, nil
}

// ReadToken returns the first token in a file: the first line that is neither empty nor a comment.
func ReadToken(path string) (string, error) {
	data, err := smallfile.ReadOnce(path)
	if err != nil {
		return "", fmt.Errorf("the token: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return line, nil
		}
	}
	return "", fmt.Errorf("%s has no token: write the token on a line of the file", path)
}

// An Error is a response of the admin API with a status other than success.
type Error struct {
	Status int // the HTTP status code
	Detail string

	foreign bool // the response is not the API's
}

// Error implements error.
func (e *Error) Error() string {
	if e.Status == http.StatusUnauthorized {
		return e.Detail
	}
	return fmt.Sprintf("%s (HTTP status %d)", e.Detail, e.Status)
}

// IsNotFound reports whether err is the API's error for an unknown key, domain or rule.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound && !e.foreign
}

// Status returns the state of the process.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	return call[api.Status](ctx, c, http.MethodGet, "/v1/status", nil, nil)
}

// Rules returns at most limit rules in force, and skips the first offset of them. An empty domain
// means all domains.
func (c *Client) Rules(ctx context.Context, domain string, limit, offset int) ([]api.Rule, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}, "offset": {strconv.Itoa(offset)}}
	setIfGiven(query, "domain", domain)
	return call[[]api.Rule](ctx, c, http.MethodGet, "/v1/rules", query, nil)
}

// Explain returns which limits a request is under, and why.
func (c *Client) Explain(ctx context.Context, r api.ExplainRequest) (explain.Explanation, error) {
	const path = "/v1/explain"
	e, err := call[explain.Explanation](ctx, c, http.MethodPost, path, nil, r)
	if err == nil && e.Descriptors == nil {
		return e, c.foreignResponse(path, errMissing)
	}
	return e, err
}

// Peek returns the state of every limit of a key. It charges nothing.
func (c *Client) Peek(ctx context.Context, key api.KeyRequest) (api.KeyState, error) {
	const path = "/v1/keys/peek"
	state, err := call[api.KeyState](ctx, c, http.MethodPost, path, nil, key)
	if err == nil && state.Limits == nil {
		return state, c.foreignResponse(path, errMissing)
	}
	return state, err
}

// Reset resets every limit of a key. If the key has no state, [IsNotFound] reports true for the
// error.
func (c *Client) Reset(ctx context.Context, key api.KeyRequest) (api.KeyReset, error) {
	const path = "/v1/keys/reset"
	done, err := call[api.KeyReset](ctx, c, http.MethodPost, path, nil, key)
	if err == nil && len(done.Limits) == 0 {
		return done, c.foreignResponse(path, errMissing)
	}
	return done, err
}

// ResetByEntry makes one step of a pass over all keys. The next step needs the cursor of the
// result, unless the pass is done.
func (c *Client) ResetByEntry(ctx context.Context, r api.ResetByEntryRequest) (api.ResetByEntryResult, error) {
	return call[api.ResetByEntryResult](ctx, c, http.MethodPost, "/v1/keys/reset-by-entry", nil, r)
}

// Top returns the n busiest keys. An empty domain means all domains.
func (c *Client) Top(ctx context.Context, by api.TopOrder, domain string, n int) (api.Top, error) {
	query := url.Values{"limit": {strconv.Itoa(n)}, "by": {string(by)}}
	setIfGiven(query, "domain", domain)
	return call[api.Top](ctx, c, http.MethodGet, "/v1/top", query, nil)
}

func setIfGiven(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// call sends a call and returns the value in its response.
func call[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (T, error) {
	var none, value T
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	response, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return none, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes+1))
	switch {
	case err != nil:
		return none, fmt.Errorf("the response of %s%s: %w", c.base.Redacted(), path, err)
	case len(text) > maxResponseBytes:
		return none, fmt.Errorf("the response of %s%s has more than %d bytes", c.base.Redacted(), path, maxResponseBytes)
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return none, c.foreignResponse(path, err)
	}
	return value, nil
}

// errMissing is about a response such as {}, which another server may give to any call.
var errMissing = errors.New("fields are missing")

func (c *Client) foreignResponse(path string, err error) error {
	return fmt.Errorf("the response of %s%s is not that of an admin API: check the address (%w)", c.base.Redacted(), path, err)
}

// send sends a call. Its error is an [*Error] if the response has an error status.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	at := c.base.JoinPath(path)
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, at.String(), reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	response, err := c.options.HTTP.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, c.problem(response)
	}
	return response, nil
}

// problem returns the error of a response with an error status.
func (c *Client) problem(r *http.Response) error {
	var p struct {
		Detail string
		Errors []struct{ Message, Location string }
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBodyBytes))
	foreign := err != nil || json.Unmarshal(text, &p) != nil || p.Detail == ""
	if foreign {
		p.Detail = "the server at this address has no admin API, or is not Weir: " + http.StatusText(r.StatusCode)
	}
	for _, e := range p.Errors {
		p.Detail += fmt.Sprintf("; %s: %s", e.Location, e.Message)
	}
	switch {
	case r.StatusCode != http.StatusUnauthorized:
	case c.options.Token == "":
		p.Detail += " (this call had no token: set --token-file or WEIR_TOKEN_FILE)"
	default:
		p.Detail += " (the server does not know the token of --token-file or WEIR_TOKEN_FILE)"
	}
	return &Error{r.StatusCode, p.Detail, foreign}
}

const maxErrorBodyBytes = 64 << 10
