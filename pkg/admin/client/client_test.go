package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/admin/client"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

const token = "a-token-of-the-tests-0123456789"

// A fake has the parts of an API that need a process.
type fake struct {
	limiters.Store
	decisions chan api.Decision
}

func (f fake) Reset(ctx context.Context, keys []limiters.StateName) ([]bool, bool, error) {
	found, err := f.Store.Reset(ctx, keys)
	return found, true, err
}

func (f fake) ResetByEntry(ctx context.Context, domain string, e descriptors.Entry, cursor string) (limiters.Progress, bool, error) {
	done, err := f.Store.ResetMatching(ctx, descriptors.EntryMatcher(domain, e), cursor)
	return done, true, err
}

func (f fake) Top(by api.TopOrder, domain string, n int) api.Top {
	return api.Top{Total: int64(n), Keys: []api.TopKey{{Domain: domain, Key: []explain.Entry{{"by", string(by)}}}}}
}

func (f fake) Subscribe(api.Filter) (*api.Subscription, error) {
	return &api.Subscription{C: f.decisions, Dropped: func() int64 { return 5 }, Close: func() {}}, nil
}

func serve(t *testing.T) (c *client.Client, f fake, handler *admin.API, url string) {
	t.Helper()
	rules, err := rulesfile.Parse(rulesfile.File{Name: "r.yaml", Data: []byte(
		"domain: shop\ndescriptors:\n  - {key: user_id, rate_limit: {unit: day, requests_per_unit: 3}}\n")})
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "token")
	must.Write(t, path, "\ufeff# of the tests\r\n"+token+"\r\n") // as editors on Windows write it
	tokens, err := admin.ReadTokens(path, func(err error) { t.Error(err) })
	must.Succeed(t, err)
	f = fake{memstore.New(memstore.Options{}), make(chan api.Decision)}
	handler = admin.New(admin.Options{
		Answered: func(string, int) {}, Unauthorized: func(admin.UnauthorizedCall) {}, Panicked: func(string, any) {},
		Rules: func() *descriptors.Rules { return rules }, Store: f.Store, Auth: admin.Auth{Tokens: tokens}, Resets: f, Top: f.Top, Subscribe: f.Subscribe,
		Status: func() api.Status {
			return api.Status{Replica: "r", Store: api.StoreStatus{Kind: "memory", Mode: api.ModeOK}}
		},
		Audit: func(admin.Change) {},
	})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	read, err := client.ReadToken(path)
	if err != nil || read != token {
		t.Fatal(read, err)
	}
	c, err = client.New(client.Options{Server: server.URL + "/", Token: read})
	must.Succeed(t, err)
	return c, f, handler, server.URL
}

func hit(t *testing.T, s limiters.Store, key string) {
	t.Helper()
	limit, err := limiters.NewLimit(limiters.Spec{Algorithm: "fixed_window", Max: 3, Window: 24 * time.Hour, CountDenied: true})
	must.Succeed(t, err)
	out := make([]limiters.Verdict, 1)
	must.Succeed(t, s.Take(context.Background(), limiters.Singles(limiters.Op{Key: key, Limit: limit, Hits: 1}), out))
}

func TestClientSpeaksWithTheServer(t *testing.T) {
	c, f, _, _ := serve(t)
	ctx := t.Context()
	key := api.KeyRequest{Domain: "shop", Descriptor: []explain.Entry{{"user_id", "42"}}}
	hit(t, f.Store, "4:shop|7:user_id*2:42")
	if s, err := c.Status(ctx); err != nil || s.Replica != "r" || s.Rules != 1 {
		t.Errorf("Status returns %+v %v, want replica r with 1 rule", s, err)
	}
	if rules, err := c.Rules(ctx, "shop", 10, 0); err != nil || len(rules) != 1 || rules[0].Path != "user_id" {
		t.Errorf("Rules returns %+v %v, want user_id alone", rules, err)
	}
	if state, err := c.Peek(ctx, key); err != nil || state.Limits[0].State.Used != 1 {
		t.Errorf("Peek returns %+v %v, want 1 hit used", state, err)
	}
	explanation, err := c.Explain(ctx, api.ExplainRequest{Domain: "shop", Descriptors: [][]explain.Entry{key.Descriptor}, Live: true})
	if err != nil || explanation.Descriptors[0].Limits[0].State.Used != 1 {
		t.Errorf("Explain returns %+v %v, want 1 hit used", explanation, err)
	}
	if done, err := c.Reset(ctx, key); err != nil || !done.Limits[0].Reset || !done.Notified {
		t.Errorf("Reset returns %+v %v, want a reset limit, and notified replicas", done, err)
	}
	if _, err := c.Reset(ctx, key); !client.IsNotFound(err) || !strings.Contains(err.Error(), "nothing is stored") {
		t.Error(err)
	}
	hit(t, f.Store, "4:shop|7:user_id*2:42")
	if step, err := c.ResetByEntry(ctx, api.ResetByEntryRequest{Domain: "shop", Entry: explain.Entry{"user_id", "42"}}); err != nil || step.Reset != 1 || !step.Done {
		t.Errorf("ResetByEntry returns %+v %v, want one reset key, and the last step", step, err)
	}
	if top, err := c.Top(ctx, api.ByDenied, "shop", 7); err != nil || top.Total != 7 || top.Keys[0].Key[0][1] != "denied" || top.Keys[0].Domain != "shop" {
		t.Errorf("Top returns %+v %v, want a total of 7, and first the key x of shop", top, err)
	}
}

func TestClientStreamsDecisions(t *testing.T) {
	c, f, handler, _ := serve(t)
	enough := errors.New("enough")
	go func() { f.decisions <- api.Decision{Rule: "user_id"} }()
	var drops int64
	got := ""
	err := c.Decisions(t.Context(), api.Filter{Outcome: "denied", Entry: explain.Entry{"user_id", "42"}, Sample: .5},
		func(d api.Decision) error { got = d.Rule; return nil },
		func(n int64) error { drops = n; return enough })
	if !errors.Is(err, enough) || got != "user_id" || drops != 5 {
		t.Errorf("Decisions returns %v after %q and %d drops, want its callback's error after user_id and 5 drops", err, got, drops)
	}
	if err := c.Decisions(t.Context(), api.Filter{Outcome: "no"}, nil, nil); err == nil || !strings.Contains(err.Error(), "query.outcome") {
		t.Error(err)
	}
	handler.Stop()
	if err := c.Decisions(t.Context(), api.Filter{}, nil, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Decisions(ctx, api.Filter{}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The server would read the key a=b as the key a.
func TestClientRejectsAFilterKeyWithAnEqualsSign(t *testing.T) {
	c, _, _, _ := serve(t)
	for _, entry := range []explain.Entry{{"a=b", "c"}, {"a=b", ""}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := c.Decisions(ctx, api.Filter{Entry: entry}, nil, nil)
		cancel()
		if !errors.Is(err, client.ErrFilterKey) {
			t.Errorf("%q: error %v, want that the key has a =", entry, err)
		}
	}
}

// A request that Weir accepts can have several MiB, and Weir sends it with each of its decisions.
func TestClientStreamsLargeDecisions(t *testing.T) {
	c, f, _, _ := serve(t)
	large := api.Decision{Key: []explain.Entry{{"path", strings.Repeat("\x01", 4<<20)}}}
	go func() { f.decisions <- large }()
	enough := errors.New("enough")
	err := c.Decisions(t.Context(), api.Filter{}, func(d api.Decision) error {
		if !reflect.DeepEqual(d, large) {
			t.Errorf("a decision on %d bytes is not the one sent", len(large.Key[0][1]))
		}
		return enough
	}, nil)
	if !errors.Is(err, enough) {
		t.Errorf("Decisions returns %v, want the decision", err)
	}
}

func TestTooLargeEventIsNamed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for part := bytes.Repeat([]byte("x"), 1<<20); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
	defer other.Close()
	c, err := client.New(client.Options{Server: other.URL})
	must.Succeed(t, err)
	want := "a line of the stream of " + other.URL + "/v1/decisions has more than 33554432 bytes"
	if err := c.Decisions(t.Context(), api.Filter{}, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an endless line: %v, want %q", err, want)
	}
}

func TestClientErrorsNameTheRemedy(t *testing.T) {
	_, _, _, url := serve(t)
	for _, bad := range []string{"", "127.0.0.1:6071", "ftp://x", "http://", "http://[::1"} {
		if _, err := client.New(client.Options{Server: bad}); err == nil || !strings.Contains(err.Error(), "write it as") {
			t.Errorf("server %q: got error %v, want: write it as", bad, err)
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/rules" {
			_, _ = w.Write([]byte("hello"))
			return
		}
		http.NotFound(w, r)
	}))
	defer other.Close()
	for _, tt := range []struct {
		o    client.Options
		want string
	}{
		{client.Options{Server: url}, "--token-file"},
		{client.Options{Server: url, Token: "another-token-0123456789"}, "no valid credentials"},
		{client.Options{Server: other.URL, Token: token}, "is not Weir"},
		{client.Options{Server: "http://127.0.0.1:1"}, "connection refused"},
		{client.Options{Server: "http://me:another-token@127.0.0.1:1"}, "http://me:xxxxx@127.0.0.1:1"},
	} {
		c, err := client.New(tt.o)
		must.Succeed(t, err)
		if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "another-token") {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	c, _ := client.New(client.Options{Server: other.URL})
	if _, err := c.Rules(t.Context(), "", 1, 0); err == nil || !strings.Contains(err.Error(), "is not that of an admin API") {
		t.Error(err)
	}
	if _, err := c.Reset(t.Context(), api.KeyRequest{}); err == nil || client.IsNotFound(err) {
		t.Errorf("a reset at another server: %v, want an error that is not about the key", err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	must.Write(t, empty, "\n# nothing\n")
	if _, err := client.ReadToken(empty); err == nil || !strings.Contains(err.Error(), "has no token: write") {
		t.Error(err)
	}
	if _, err := client.ReadToken(empty + "x"); err == nil {
		t.Error("no error")
	}
}

// A shell passes the output of a secret manager as a pipe: --token-file <(vault read ...).
func TestTokenIsReadFromAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must.Succeed(t, syscall.Mkfifo(path, 0o600))
	written := make(chan error)
	go func() { written <- os.WriteFile(path, []byte("secret token\n"), 0) }()
	if token, err := client.ReadToken(path); err != nil || token != "secret token" {
		t.Fatalf("%q, %v, want the token", token, err)
	}
	must.Succeed(t, <-written)
}

// A response that is only partly that of an admin API gives an error without a value.
func TestFailedCallReturnsNoValue(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"replica": "r", "rules": "no number"}`))
	}))
	defer server.Close()
	c, err := client.New(client.Options{Server: server.URL})
	must.Succeed(t, err)
	if s, err := c.Status(t.Context()); err == nil || s.Replica != "" {
		t.Errorf("Status returns %+v, %v, want an error alone", s, err)
	}
}

func TestUnreachableServerIsNamedWithARemedy(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for server, want := range map[string]string{
		"http://127.0.0.1:1":                             "the admin API at http://127.0.0.1:1 does not answer: connection refused: set ADMIN_ADDR on the server, or correct the address",
		strings.Replace(plain.URL, "http:", "https:", 1): "the server has no TLS: write http://",
	} {
		c, err := client.New(client.Options{Server: server})
		must.Succeed(t, err)
		if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
