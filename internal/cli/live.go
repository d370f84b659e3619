package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/explain"
)

const (
	liveTimeout = 10 * time.Second
	maxAnswer   = 16 << 20 // bytes of an answer
)

// A liveRequest is the body of POST /v1/explain.
type liveRequest struct {
	Domain      string            `json:"domain,omitempty"`
	Descriptors [][]explain.Entry `json:"descriptors,omitempty"`
	Request     json.RawMessage   `json:"request,omitempty"`
	Live        bool              `json:"live"`
}

// live asks a running server for the explanation and the state of each limit.
func (e *Explain) live(ctx context.Context, stdin io.Reader) (*explain.Record, error) {
	body, err := e.liveBody(stdin)
	if err != nil {
		return nil, err
	}
	address, err := liveAddress(e.Live)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if e.TokenFile != "" {
		token, err := readToken(e.TokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := readAll(response.Body, "the answer of "+address, maxAnswer)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, liveError(address, response.StatusCode, answer)
	}
	var record explain.Record
	if err := json.Unmarshal(answer, &record); err != nil {
		return nil, fmt.Errorf("%s: the answer is not an explanation: %w", address, err)
	}
	return &record, nil
}

// liveBody returns the body of the call. A request in JSON is sent as it is, so the server reports its faults.
func (e *Explain) liveBody(stdin io.Reader) ([]byte, error) {
	sent := liveRequest{Domain: e.Domain, Live: true}
	if e.Request != "" {
		name, body, err := e.body(stdin)
		if err != nil {
			return nil, err
		}
		if !json.Valid(body) {
			return nil, fmt.Errorf("%s: not JSON", name)
		}
		sent.Request = body
		return json.Marshal(sent)
	}
	if e.Domain == "" {
		return nil, errors.New("--live needs --domain")
	}
	all, err := parseDescriptors(e.Descriptors)
	if err != nil {
		return nil, err
	}
	for _, entries := range all {
		descriptor := []explain.Entry{}
		for _, entry := range entries {
			descriptor = append(descriptor, explain.Entry{entry.Key, entry.Value})
		}
		sent.Descriptors = append(sent.Descriptors, descriptor)
	}
	return json.Marshal(sent)
}

// liveAddress returns the address of explain in the admin API at a URL.
func liveAddress(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("--live %q is not a URL: write http://127.0.0.1:6071", base)
	}
	return u.JoinPath("v1", "explain").String(), nil
}

// readToken returns the first line of a file that is neither empty nor a comment.
func readToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", unreadable(err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line, nil
		}
	}
	return "", fmt.Errorf("%s has no token", path)
}

// liveError returns the error of an answer. The admin API answers with a problem in JSON.
func liveError(address string, code int, answer []byte) error {
	var problem struct{ Title, Detail string }
	if json.Unmarshal(answer, &problem) != nil || problem.Title+problem.Detail == "" {
		problem.Detail = http.StatusText(code)
	}
	text := strings.TrimPrefix(problem.Title+": "+problem.Detail, ": ")
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += " (set --token-file)"
	case http.StatusNotFound:
		text += " (is this the address of the admin API?)"
	}
	return fmt.Errorf("%s: %d %s", address, code, text)
}
