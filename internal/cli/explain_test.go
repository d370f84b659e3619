package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/weir-rls/weir/internal/must"
)

const liveAnswer = `{"domain": "shop", "domain_known": true, "rules_version": "0123456789abcdef", "descriptors": [{"entries": [["user_id", "42"]],
	"matched": true, "result": "limited", "summary": "user_id (rules.yaml:3) → LIMIT 5 per day", "reason": "\u001b[31mred", "walk": [], "limits": [{
	"algorithm": "funnel", "requests_per_unit": 5, "unit": "day", "window": "24h0m0s", "mode": "enforced", "key": "k", "hash": "h",
	"state": {"used": 3, "remaining": 2, "retry_after": "0s", "reset_after": "9m0s", "penalty": "1m0s"}}]}]}`

func TestLiveExplanation(t *testing.T) {
	var body map[string]any
	var authorization, path string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization, path, body = r.Header.Get("Authorization"), r.Method+" "+r.URL.Path, nil
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if kind := r.Header.Get("Content-Type"); kind != "application/json" {
			t.Errorf("content type %q, want \"application/json\"", kind)
		}
		if authorization != "Bearer s3cret" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"title": "Unauthorized", "detail": "a token is missing"}`))
			return
		}
		_, _ = w.Write([]byte(liveAnswer))
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	must.Write(t, token, "# the first line counts\n\n s3cret \nother\n")
	var out, errs bytes.Buffer
	streams := Streams{In: strings.NewReader(`{"domain": "shop"}`), Out: &out, Err: &errs}
	command := Explain{Live: server.URL, adminCredentials: adminCredentials{TokenFile: token}, Domain: "shop", Descriptors: []string{`user_id=42`, ""}}
	if err := command.Run(t.Context(), streams); err != nil {
		t.Errorf("explain as text: %v: %s", err, &errs)
	}
	sent, _ := json.Marshal(body)
	if want := `{"descriptors":[[["user_id","42"]],[]],"domain":"shop","live":true}`; string(sent) != want || path != "POST /v1/explain" {
		t.Errorf("sent %s %s, want %s", path, sent, want)
	}
	const state = "    now  used 3, remaining 2, retry after 0s, reset after 9m0s, penalty for 1m0s\n"
	if !strings.Contains(out.String(), state) || strings.Contains(out.String(), "\x1b") {
		t.Errorf("printed %q", &out)
	}
	command = Explain{Live: server.URL + "/", adminCredentials: adminCredentials{TokenFile: token}, Request: "-", Output: "json"}
	out.Reset()
	if err := command.Run(t.Context(), streams); err != nil || !strings.Contains(out.String(), `"retry_after": "0s"`) {
		t.Errorf("explain as JSON: error %v, got %s%s, want a retry_after of 0s", err, &out, &errs)
	}
	sent, _ = json.Marshal(body)
	if want := `{"live":true,"request":{"domain":"shop"}}`; string(sent) != want || path != "POST /v1/explain" {
		t.Errorf("sent %s %s, want %s", path, sent, want)
	}
	for want, command := range map[string]Explain{
		"weir: a token is missing (this call had no token: set --token-file or WEIR_TOKEN_FILE)": {Live: server.URL, Domain: "shop", Descriptors: []string{"a=1"}},
		"connection refused": {Live: "http://127.0.0.1:1", Domain: "shop", Descriptors: []string{"a=1"}},
		"no such file":       {Live: server.URL, Domain: "shop", Descriptors: []string{"a=1"}, adminCredentials: adminCredentials{TokenFile: token + "s"}},
	} {
		errs.Reset()
		if code := ExitCode(command.Run(t.Context(), streams), &errs); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("exit code %d, printed %q, want %q", code, &errs, want)
		}
	}
}

func TestColorsAreForTerminalsOnly(t *testing.T) {
	file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must.Succeed(t, err)
	defer func() { _ = file.Close() }()
	screen, terminal, err := pty.Open()
	if err != nil {
		t.Skip("no pseudo-terminal:", err)
	}
	defer func() { _, _ = screen.Close(), terminal.Close() }()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if colored(&bytes.Buffer{}) || colored(file) || !colored(terminal) {
		t.Error("colors without a terminal, or no colors on one")
	}
	t.Setenv("NO_COLOR", "1")
	if colored(terminal) {
		t.Error("colors in spite of NO_COLOR")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if colored(terminal) {
		t.Error("colors on a dumb terminal")
	}
}
