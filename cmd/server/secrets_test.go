package main

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// The secrets of these tests must appear only where they were set.
const (
	inURL      = "UrlPassword1"
	inAuth     = "AuthPassword2"
	inSentinel = "SentinelPassword3"
	inSecond   = "SecondPassword4"
	inHash     = "HashSecret5-HashSecret5"
	inHeader   = "HeaderToken6"
)

// settingsWithSecrets returns settings with all secrets, for a Redis with TLS at addr.
func settingsWithSecrets(addr string, files certtest.Pair, ca string) []string {
	return []string{
		"REDIS_URL=rediss://me:" + inURL + "@" + addr, "REDIS_AUTH=" + inAuth, "REDIS_SENTINEL_AUTH=" + inSentinel,
		"REDIS_PERSECOND_AUTH=" + inSecond, "KEY_HASH_SECRET=" + inHash,
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=authorization:" + inHeader,
		"REDIS_TLS=true", "REDIS_TLS_CLIENT_CERT=" + files.Cert, "REDIS_TLS_CLIENT_KEY=" + files.Key, "REDIS_TLS_CACERT=" + ca,
	}
}

// secretsOf returns the secrets, and a line of the key of a certificate.
func secretsOf(t *testing.T, files certtest.Pair) []string {
	t.Helper()
	pem := must.Read(t, files.Key)
	return []string{inURL, inAuth, inSentinel, inSecond, inHash, inHeader, strings.Split(string(pem), "\n")[1]}
}

func mustNotShow(t *testing.T, secrets []string, what, text string) {
	t.Helper()
	for _, secret := range secrets {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("%s shows %s: …%s", what, secret, text[max(0, at-200):at+len(secret)])
		}
	}
}

// shown returns all that the server shows its clients, by request.
func (s *server) shown() map[string]string {
	s.t.Helper()
	const ask = `{"domain":"ugc","descriptors":[{"entries":[{"key":"user_id","value":"carol"}]}]}`
	all := map[string]string{"the log": s.output.String()}
	for _, page := range []string{"/metrics", "/healthcheck"} {
		_, all[page] = s.get(page)
	}
	for _, body := range []string{ask, "{", `{"domain":"ugc"}`} {
		_, all["/json of "+body] = fetch(s.t, "POST", "http://"+s.httpAddr+"/json", body)
	}
	for _, page := range []string{
		"/", "/rlconfig", "/stats", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
		"/debug/pprof/heap?debug=1", "/debug/pprof/symbol",
	} {
		_, all[page] = fetch(s.t, "GET", "http://"+s.address("debug")+page, "")
	}
	for _, user := range []string{"alice", ""} {
		r, err := s.call(user)
		all["the answer to "+user] = r.String()
		if err != nil {
			all["the answer to "+user] = err.Error()
		}
	}
	return all
}

func TestSecretsAreNotShownByServer(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	files := authority.Issue(t, "weir")
	secrets := secretsOf(t, files)
	redis := redistest.StartTLS(t, authority, "127.0.0.1")
	redis.SetUser(t, "me", "on", ">"+inAuth, "~*", "+@all")
	open := redistest.StartTLS(t, authority, "127.0.0.1") // rejects the user, and names it
	path := rulesFile(t)

	for name, addr := range map[string]string{
		"a Redis that answers": redis.Addr, "a Redis that refuses": open.Addr, "no Redis": redistest.FreeAddr(t),
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, append(settingsWithSecrets(addr, files, authority.File), "CONFIG_PATH="+path, "LOG_LEVEL=debug")...)
			answers := name == "a Redis that answers"
			if answers {
				s.awaitHealthy()
			} else {
				s.log.await(t, 0, map[string]string{"a Redis that refuses": "redis rejected the password", "no Redis": "redis does not answer"}[name])
			}
			if _, err := s.call("alice"); (err == nil) != answers || err != nil && status.Code(err) != codes.Unavailable {
				t.Errorf("error %v, want an answer: %t, else UNAVAILABLE", err, answers)
			}
			for what, text := range s.shown() {
				mustNotShow(t, secrets, what, text)
			}
			if answers {
				// The debug log names a key that cannot be read. The name is hashed.
				c := redis.Client(t)
				for _, key := range c.Keys(t.Context(), "*").Val() {
					c.Del(t.Context(), key)
					c.HSet(t.Context(), key, "a", "b")
					mustNotShow(t, []string{"alice", "carol", "user_id", "ugc"}, "Redis", key)
				}
				_, _ = s.call("alice")
				s.log.await(t, 0, "cannot decide the key")
				redis.Stop()
				_, _ = s.call("alice")
				s.log.await(t, 0, "store failed")
			}
			write(t, path, strings.Replace(rules, "year", "fortnight", 1))
			must.Succeed(t, s.cmd.Process.Signal(syscall.SIGHUP))
			s.log.await(t, 0, "rules not loaded")
			write(t, path, rules)
			for what, text := range s.shown() {
				mustNotShow(t, secrets, what, text)
			}
			must.Succeed(t, s.cmd.Process.Signal(syscall.SIGINT))
			s.awaitStop()
			mustNotShow(t, secrets, "the log, at the end", s.output.String())
		})
	}
}

// The debug pages show no argument of the command line.
func TestSecretFlagsAreNotShownByPprof(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--config="+rulesFile(t), "--redis-url=me:"+inURL+"@"+redistest.FreeAddr(t), "--redis-auth="+inAuth,
		"--key-hash-secret="+inHash, "--log-level=debug")
	s.log.await(t, 0, "redis does not answer")
	for what, text := range s.shown() {
		mustNotShow(t, []string{inURL, inAuth, inHash}, what, text)
	}
}

// Neither help nor the errors of settings show secrets.
func TestSecretsAreNotShownByHelpAndErrors(t *testing.T) {
	authority := certtest.New(t)
	files := authority.Issue(t, "weir")
	for _, variable := range settingsWithSecrets("localhost:1", files, authority.File) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	config := "--config=" + rulesFile(t)
	for _, args := range [][]string{
		{"--help"}, {"serve", "--help"}, {"serve", "--help=all"}, {"check", "--help"}, {"version"}, {"--no-such-flag"}, {config, "--port=70000"},
		{config, "--log-level=loud"}, {config, "--redis-type=ring", "--redis-pool-size=x", "--store-timeout=0s"},
		{config, "--redis-url=redis://me:" + inURL + "@h:1/x"}, {config, "--redis-url=redis://me:" + inURL + "@h:port"},
		{config, "--redis-url=redis://me:" + inURL + "%zz@h:1"}, {config, "--redis-url=http://me:" + inURL + "@h:1"},
		{config, "--redis-type=sentinel", "--redis-url=me:" + inURL + "@h:1"},
		{config, "--key-hash-secret=" + inHash[:9]}, {config, "--key-hash-secret", "-" + inHash}, {config, "--redis-tls-client-key="}, {config, "--redis-tls-client-key=" + files.Cert},
		{config, "--config-type=GRPC_XDS_SOTW", "--xds-additional-headers=" + inHeader},
	} {
		var out, err bytes.Buffer
		code := run(context.Background(), "weir", args, &out, &err)
		said := out.String() + err.String()
		if good := strings.HasPrefix(args[len(args)-1], "--help") || args[0] == "version"; good != (code == 0) || said == "" {
			t.Errorf("%s: exit code %d, %s", args, code, said)
		}
		mustNotShow(t, append(secretsOf(t, files), inHash[:9]), strings.Join(args, " "), said)
	}
}
