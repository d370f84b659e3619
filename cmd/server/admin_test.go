package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/descriptors"
)

const adminToken = "a-token-of-the-tests-0123456789"

// tokenFile writes a file with adminToken.
func tokenFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, adminToken+"\n")
	return path
}

// admin calls the admin API of a server.
func (s *server) admin(method, path, token, body string) (code int, text string) {
	s.t.Helper()
	return s.adminBy(http.DefaultClient, "http", method, path, token, body)
}

func (s *server) adminBy(client *http.Client, scheme, method, path, token, body string) (code int, text string) {
	s.t.Helper()
	request, err := http.NewRequest(method, scheme+"://"+s.address("admin")+path, strings.NewReader(body))
	must.Succeed(s.t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	must.Succeed(s.t, err)
	return response.StatusCode, string(all)
}

// peeked returns the limits of a user with their states.
func (s *server) peeked(user string) (limits []struct {
	Allowed bool
	State   struct {
		Used, Remaining int64
		RetryAfter      string `json:"retry_after"`
	}
}) {
	s.t.Helper()
	var state struct{ Limits json.RawMessage }
	code, text := s.admin("POST", "/v1/keys/peek", adminToken, `{"domain":"ugc","descriptor":[["user_id","`+user+`"]]}`)
	if code != 200 || json.Unmarshal([]byte(text), &state) != nil || json.Unmarshal(state.Limits, &limits) != nil {
		s.t.Fatal(code, text)
	}
	return limits
}

func TestAdminAPIServesOnItsOwnListener(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "ADMIN_ADDR=:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	if addr := s.address("admin"); !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Errorf("a port without a host listens on %s", addr)
	}
	s.remaining("alice")
	if l := s.peeked("alice"); len(l) != 1 || l[0].State.Used != 1 || !l[0].Allowed {
		t.Errorf("after 1 hit: %+v, want one limit that allows", l)
	}
	s.remaining("alice")
	if l := s.peeked("alice"); l[0].State.Used != 2 || l[0].Allowed || l[0].State.RetryAfter == "0s" {
		t.Errorf("after 2 hits: %+v, want a denial with a wait", l)
	}
	for _, path := range []string{"/v1/status", "/v1/rules", "/openapi.json", "/openapi.yaml"} {
		if code, text := s.admin("GET", path, adminToken, ""); code != 200 {
			t.Errorf("%s: %d %.200s, want 200", path, code, text)
		}
		if code, text := s.admin("GET", path, "", ""); code != 401 {
			t.Errorf("%s without a token: %d %.200s, want 401", path, code, text)
		}
	}
	if _, text := s.admin("GET", "/v1/status", adminToken, ""); !strings.Contains(text, `"kind":"memory","mode":"ok"`) || !strings.Contains(text, `"ready":true`) {
		t.Error(text)
	}
	line, _ := s.log.await(t, 0, "admin call without valid credentials")
	if !strings.Contains(line, `"http_method":"GET"`) || !strings.Contains(line, `"route":"/v1/status"`) || strings.Contains(s.output.String(), adminToken) {
		t.Error(line)
	}
	if got := s.metricOrNone(`weir_admin_requests_total{code="401",route="/v1/status"}`); got != "1" {
		t.Errorf("weir_admin_requests_total is %s, want 1", got)
	}
	s.stop()
}

func TestAdminAPITakesClientCertificates(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	pair, operator := ca.Issue(t, "weir"), ca.Issue(t, "operator")
	settings := []string{
		"CONFIG_PATH=" + rulesFile(t), "ADMIN_ADDR=127.0.0.1:0", "ADMIN_TLS_CERT=" + pair.Cert, "ADMIN_TLS_KEY=" + pair.Key,
		"ADMIN_TLS_CLIENT_CA=" + ca.File,
	}
	client := func(certs ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), ServerName: "weir", Certificates: certs}}}
	}
	withCert, without := client(operator.Load(t)), client()
	stranger := client(certtest.New(t).Issue(t, "operator").Load(t))
	s := startServer(t, settings...)
	if code, text := s.adminBy(withCert, "https", "GET", "/v1/status", "", ""); code != 200 {
		t.Error(code, text)
	}
	for name, c := range map[string]*http.Client{"no certificate": without, "a certificate of another CA": stranger} {
		if code, text := s.adminBy(c, "https", "GET", "/v1/status", "", ""); code != 0 {
			t.Errorf("%s: %d %s, want 0", name, code, text)
		}
	}
	s = startServer(t, append(settings, "ADMIN_TOKEN_FILE="+tokenFile(t))...)
	for _, c := range []struct {
		client *http.Client
		token  string
		want   int
	}{{withCert, "", 200}, {without, adminToken, 200}, {without, "", 401}, {stranger, adminToken, 0}} {
		if code, text := s.adminBy(c.client, "https", "GET", "/v1/status", c.token, ""); code != c.want {
			t.Errorf("%d %s, want %d", code, text, c.want)
		}
	}
}

func TestAdminSettingsAreChecked(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	write(t, short, "secret\n")
	for _, c := range []struct{ args, want string }{
		{"--admin-addr=:0", "callers need credentials: set ADMIN_TOKEN_FILE"},
		{"--admin-addr=here --admin-token-file=x", "ADMIN_ADDR: cannot read"},
		{"--admin-addr=:0 --admin-tls-client-ca=x", "set ADMIN_TLS_CERT and ADMIN_TLS_KEY"},
		{"--admin-addr=:0 --admin-token-file=x --admin-tls-cert=x", "set ADMIN_TLS_CERT and ADMIN_TLS_KEY"},
		{"--admin-addr=:0 --admin-token-file=/no/such/file", "ADMIN_TOKEN_FILE: the tokens"},
		{"--admin-addr=:0 --admin-token-file=" + short, "line 1 has less than 16 bytes"},
	} {
		args := append(strings.Fields(c.args), "--config="+rulesFile(t), "--grpc-port=0", "--port=0", "--debug-port=0")
		if code, said := runWeir(args...); code == 0 || !strings.Contains(said, c.want) {
			t.Errorf("%s: %d %s, want %q", c.args, code, said, c.want)
		}
	}
}

func TestExposedAdminAPIIsWarnedAbout(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "ADMIN_ADDR=0.0.0.0:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	if line, _ := s.log.await(t, 0, "admin API without TLS is reachable from other machines"); !strings.Contains(line, `"remedy"`) {
		t.Error(line)
	}
	if quiet := startServer(t, "CONFIG_PATH="+rulesFile(t)); bytes.Contains([]byte(quiet.output.String()), []byte("admin")) {
		t.Error(quiet.output.String())
	}
}

// reset resets a user by the admin API of a server.
func (s *server) reset(user string) (code int, text string) {
	s.t.Helper()
	return s.admin("POST", "/v1/keys/reset", adminToken, `{"domain":"ugc","descriptor":[["user_id","`+user+`"]]}`)
}

func TestResetInMemoryAffectsOneKeyOnly(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "ADMIN_ADDR=:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	for range 3 {
		s.remaining("alice")
		s.remaining("bob")
	}
	if code, text := s.reset("alice"); code != 200 || !strings.Contains(text, `"reset":true`) {
		t.Fatal(code, text)
	}
	if a, b := s.remaining("alice"), s.remaining("bob"); a != 2 || b != 0 {
		t.Errorf("alice has %d left, bob %d, want 2 and 0", a, b)
	}
	if code, text := s.reset("nobody"); code != 404 || !strings.Contains(text, "nothing is stored for this key") {
		t.Error(code, text)
	}
	if code, text := s.admin("POST", "/v1/keys/reset", "", `{"domain":"ugc","descriptor":[["user_id","bob"]]}`); code != 401 {
		t.Error(code, text)
	}
	if code, text := s.admin("POST", "/v1/keys/reset-by-entry", adminToken, `{"domain":"ugc","entry":["user_id","bob"]}`); code != 200 ||
		!strings.Contains(text, `"reset":1`) || !strings.Contains(text, `"done":true`) {
		t.Error(code, text)
	}
	if b := s.remaining("bob"); b != 2 {
		t.Errorf("bob has %d remaining, want 2", b)
	}
	n := 0
	for _, want := range []string{`"outcome":"done"`, `"outcome":"refused"`, `"action":"/v1/keys/reset-by-entry"`} {
		var line string
		line, n = s.log.await(t, n, "admin change")
		if !strings.Contains(line, want) || !strings.Contains(line, `"who":"token `) || strings.Contains(line, "alice") || strings.Contains(line, adminToken) {
			t.Errorf("%s, want %s", line, want)
		}
	}
}

// adminReplicas starts two servers on one Redis, with the admin API and deny caches that forget
// nothing by themselves.
func adminReplicas(t *testing.T, settings ...string) (a, b *server) {
	t.Helper()
	redis := redistest.Start(t)
	settings = append([]string{
		"CONFIG_PATH=" + rulesFile(t), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr, "ADMIN_ADDR=:0",
		"ADMIN_TOKEN_FILE=" + tokenFile(t), "DENY_CACHE_MAX=1h",
	}, settings...)
	a, b = startServer(t, settings...), startServer(t, settings...)
	client := redis.Client(t)
	must.Until(a.t, "two subscribed replicas", func() bool {
		n, err := client.PubSubNumSub(context.Background(), "w2:resets").Result()
		return err == nil && n["w2:resets"] == 2
	})
	return a, b
}

// awaitAllowed returns once a hit of a user is allowed.
func (s *server) awaitAllowed(user string) {
	s.t.Helper()
	must.Until(s.t, "a hit of "+user+" to be allowed", func() bool { return s.remaining(user) > 0 })
}

func TestResetReachesTheDenyCachesOfAllReplicas(t *testing.T) {
	for name, secret := range map[string]string{"readable keys": "", "hashed keys": "KEY_HASH_SECRET=a secret of 16 bytes"} {
		t.Run(name, func(t *testing.T) {
			a, b := adminReplicas(t, secret)
			for range 20 { // more than the limit: the caches hold denied hits that they have not sent
				a.remaining("alice")
				b.remaining("alice")
				b.remaining("bob")
			}
			if code, text := a.reset("alice"); code != 200 || !strings.Contains(text, `"replicas_notified":true`) {
				t.Fatal(code, text)
			}
			b.awaitAllowed("alice")
			if n := a.remaining("alice"); n != 1 {
				t.Errorf("after the reset and one hit at another replica, %d are left, want 1", n)
			}
			if n := b.remaining("bob"); n != 0 {
				t.Errorf("bob has %d remaining, want 0", n)
			}
			if l := a.peeked("alice"); l[0].State.Used != 2 {
				t.Errorf("%+v, want 2 hits used", l)
			}
			code, text := a.admin("POST", "/v1/keys/reset-by-entry", adminToken, `{"domain":"ugc","entry":["user_id","bob"]}`)
			if secret != "" {
				if code != 409 || !strings.Contains(text, "KEY_HASH_SECRET is set") {
					t.Error(code, text)
				}
				if strings.Contains(a.output.String()+b.output.String(), "alice") {
					t.Error("the log has a user")
				}
				return
			}
			if code != 200 || !strings.Contains(text, `"reset":1,`) || !strings.Contains(text, `"done":true`) {
				t.Error(code, text)
			}
			b.awaitAllowed("bob")
		})
	}
}

// The denied hits that the deny cache has not sent count in a peek.
func TestPeekIsExactWithADenyCache(t *testing.T) {
	a, _ := adminReplicas(t)
	for range 9 {
		a.remaining("alice")
	}
	if l := a.peeked("alice"); l[0].State.Used != 9 || l[0].Allowed {
		t.Errorf("%+v, want 9 used: the denied hits of the cache count", l)
	}
	if got := a.metric("weir_deny_cache_answered_total"); got == "0" {
		t.Error("the deny cache answered nothing")
	}
}

func TestAdminAPIReportsStoreFailure(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr, "ADMIN_ADDR=:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	s.remaining("alice")
	redis.Stop()
	_, _ = s.call("alice")
	if code, text := s.admin("GET", "/v1/status", adminToken, ""); code != 200 || !strings.Contains(text, `"mode":"lost"`) {
		t.Error(code, text)
	}
	if code, text := s.reset("alice"); code != 503 || !strings.Contains(text, "the store failed") {
		t.Error(code, text)
	}
	if line, _ := s.log.await(t, 0, "admin change"); !strings.Contains(line, `"outcome":"failed"`) {
		t.Error(line)
	}
	if line, _ := s.log.await(t, 0, "store failed: admin call not answered"); !strings.Contains(line, `"route":"/v1/keys/reset"`) ||
		!strings.Contains(line, `"error":`) {
		t.Errorf("logged %s, want the route and the reason", line)
	}
	s.stop()
}

// weir peek and weir reset work on a running server: with exit code 1 for an unknown key and 2 for
// a fault.
func TestPeekAndResetCommands(t *testing.T) {
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "ADMIN_ADDR=:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	for range 3 {
		s.remaining("alice")
	}
	at := []string{"--server=http://" + s.address("admin"), "--token-file=" + tokenFile(t)}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"peek user_id=alice", 0, "user_id  -      fixed_window  3"},
		{"peek --domain=ugc -o json user_id=alice", 0, `"used": 3`},
		{"peek --domain=other user_id=alice", 1, "no rules have the domain"},
		{"peek other=alice", 1, "no limit applies"},
		{"peek user_id", 2, "has no '='"},
		{"peek", 2, "needs a descriptor"},
		{"reset user_id=nobody", 1, "nothing is stored for this key"},
		{"reset user_id=alice", 0, "reset"},
		{"peek user_id=alice", 0, "user_id  -      fixed_window  0"},
		{"reset --entry user_id=alice --yes", 1, "scanned 0, reset 0"},
		{"reset", 2, "needs a descriptor"},
		{"peek --token-file=/no/such/file user_id=alice", 2, "the token"},
	} {
		args := strings.Fields(c.args)
		args = append(args[:1:1], append(at, args[1:]...)...)
		if code, said := runWeir(args...); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("weir %s: %d %s, want %d %q", c.args, code, said, c.code, c.says)
		}
	}
	t.Setenv("WEIR_ADMIN_URL", "http://"+s.address("admin"))
	if code, said := runWeir("peek", "user_id=alice"); code != 2 || !strings.Contains(said, "WEIR_TOKEN_FILE") {
		t.Errorf("without a token: %d %s", code, said)
	}
	t.Setenv("WEIR_TOKEN_FILE", tokenFile(t))
	if code, said := runWeir("peek", "user_id=alice"); code != 0 {
		t.Errorf("by the environment: %d %s, want 0", code, said)
	}
}

func TestAdminCommandsWithoutRulesExitWith2(t *testing.T) {
	s := startServer(t, "CONFIG_PATH="+t.TempDir(), "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "ADMIN_ADDR=:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	url := "http://" + s.address("admin")
	for _, args := range [][]string{
		{"peek", "user_id=alice", "--server", url},
		{"reset", "user_id=alice", "--server", url},
		{"peek", "--domain=ugc", "user_id=alice", "--server", url},
		{"explain", "--live", url, "user_id=alice"},
		{"explain", "--live", url, "--domain=ugc", "user_id=alice"},
	} {
		if code, said := runWeir(append(args, "--token-file="+tokenFile(t))...); code != 2 || !strings.Contains(said, "no rules are loaded yet") {
			t.Errorf("weir %s: %d %s, want 2, and the reason", args, code, said)
		}
	}
}

func TestTopAndDecisionsFollowRequests(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "ADMIN_ADDR=:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	request, err := http.NewRequest("GET", "http://"+s.address("admin")+"/v1/decisions?outcome=denied", nil)
	must.Succeed(t, err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	defer response.Body.Close()
	for range 3 {
		s.remaining("alice")
	}
	buffer := make([]byte, 4096)
	var seen strings.Builder
	for !strings.Contains(seen.String(), "event: decision") {
		n, err := response.Body.Read(buffer)
		must.Succeed(t, err)
		seen.Write(buffer[:n])
	}
	if !strings.Contains(seen.String(), `"outcome":"denied"`) || !strings.Contains(seen.String(), `["user_id","alice"]`) {
		t.Error(seen.String())
	}
	for by, want := range map[string]string{"hits": `"count":3`, "denied": `"count":1`} {
		if code, text := s.admin("GET", "/v1/top?by="+by, adminToken, ""); code != 200 || !strings.Contains(text, want) || !strings.Contains(text, `["user_id","alice"]`) {
			t.Errorf("top by %s: got status %d with %s, want 200 with %s for alice", by, code, text, want)
		}
	}
	s.stop() // although the stream is open
}

// A listener that fails at run time ends the admin API, and nothing else.
func TestFailureOfTheAdminListenerStopsNothingElse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	_ = l.Close()
	core, logged := observer.New(zap.InfoLevel)
	a := &adminServer{api: admin.New(admin.Options{Rules: func() *descriptors.Rules { return nil }}), server: &http.Server{}, listener: l, log: zap.New(core)}
	a.serve() // it returns, without an error that would end the group
	if logged.FilterMessage("the admin API has stopped, the rate limit service has not").Len() != 1 {
		t.Error(logged.All())
	}
	a.stop(t.Context())
}

// Changes by the admin API are in the log at every level.
func TestChangesAreLoggedAtEveryLevel(t *testing.T) {
	for _, level := range []zapcore.Level{zapcore.DebugLevel, zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel} {
		var out bytes.Buffer
		log, audit := newLogs(&out, level, "json")
		log.Info("a request")
		changeLog(audit)(admin.Change{Caller: "me", Action: "reset"})
		if changes := strings.Count(out.String(), `"admin change"`); changes != 1 || strings.Contains(out.String(), "a request") != (level <= zapcore.InfoLevel) {
			t.Errorf("at %v: %s", level, out.String())
		}
	}
}
