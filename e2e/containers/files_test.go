package containers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
)

// A configMap is a folder as Kubernetes mounts a ConfigMap or a Secret. Its files are links into
// ..data, a link to a folder that is replaced as a whole.
type configMap struct {
	dir string
	n   int
}

func newConfigMap(t *testing.T, files map[string]string) *configMap {
	t.Helper()
	m := &configMap{dir: t.TempDir()}
	must.Succeed(t, os.Chmod(m.dir, 0o755)) // readable by other users too
	m.replace(t, files)
	for name := range files {
		must.Succeed(t, os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)))
	}
	return m
}

// replace swaps all files at once, as the kubelet does.
func (m *configMap) replace(t *testing.T, files map[string]string) {
	t.Helper()
	m.n++
	version := fmt.Sprintf("..%s.%d", time.Now().UTC().Format("2006_01_02_15_04_05"), m.n)
	must.Succeed(t, os.Mkdir(filepath.Join(m.dir, version), 0o755))
	for name, text := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(m.dir, version, name), []byte(text), 0o644))
	}
	old, err := os.Readlink(filepath.Join(m.dir, "..data"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	must.Succeed(t, os.Symlink(version, filepath.Join(m.dir, "..data_tmp")))
	must.Succeed(t, os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	if old != "" {
		must.Succeed(t, os.RemoveAll(filepath.Join(m.dir, old)))
	}
}

// rules makes a folder with one file.
func rules(t *testing.T, text string) *configMap {
	t.Helper()
	return newConfigMap(t, map[string]string{"rules.yaml": text})
}

// certificates makes a folder with tls.crt and tls.key for these hosts, and ca.crt, like
// cert-manager and Envoy Gateway.
func certificates(t *testing.T, a *certtest.Authority, hosts ...string) string {
	t.Helper()
	pair := a.Issue(t, hosts...)
	files := map[string]string{}
	for name, path := range map[string]string{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": a.File} {
		b := must.Read(t, path)
		files[name] = string(b)
	}
	return newConfigMap(t, files).dir
}

// read returns a file of the repository.
func read(t *testing.T, path ...string) string {
	t.Helper()
	b := must.Read(t, filepath.Join(append([]string{"..", ".."}, path...)...))
	return string(b)
}

// hourly is a rules file with a limit per hour for each user and action, so no window ends during a
// test.
func hourly(limit int) string {
	rule := func(action, algorithm string) string {
		return fmt.Sprintf("      - {key: action, value: %s, rate_limit: {algorithm: %s, unit: hour, requests_per_unit: %d}}\n",
			action, algorithm, limit)
	}
	return "domain: weir\ndescriptors:\n  - key: user_id\n    descriptors:\n" +
		rule("login", "fixed_window, window_start: first_hit") + rule("reply", "sliding_log") + rule("post", "funnel")
}

// actions are the actions of hourly and of envoy/rules.yaml, one for each algorithm.
var actions = []string{"login", "reply", "post"}

// A change is an edit of envoy/bootstrap.yaml. Its text must occur exactly once, so that no edit is
// lost silently.
type change struct{ from, to string }

// bootstrap returns envoy/bootstrap.yaml for a container: reachable from outside, and with the rate
// limit service by name.
func bootstrap(t *testing.T, changes ...change) string {
	t.Helper()
	text := read(t, "envoy", "bootstrap.yaml")
	for _, c := range append([]change{
		{"address: {socket_address: {address: 127.0.0.1, port_value: 9901}}", "address: {socket_address: {address: 0.0.0.0, port_value: 9901}}"},
		{"address: {socket_address: {address: 127.0.0.1, port_value: 10000}}", "address: {socket_address: {address: 0.0.0.0, port_value: 10000}}"},
		{"type: STATIC # STRICT_DNS for a host name", "type: STRICT_DNS\n      dns_lookup_family: V4_ONLY\n      dns_refresh_rate: 0.25s"},
		{"{address: 127.0.0.1, port_value: 8081}", "{address: weir, port_value: 8081}"},
		// A busy machine must not look like a lost rate limit service.
		{"                      timeout: 0.1s", "                      timeout: 60s"},
		{"    - name: weir\n", "    - name: weir\n      respect_dns_ttl: false\n"},
		{"connect_timeout: 0.25s\n      lb_policy", "connect_timeout: 2s\n      lb_policy"},
	}, changes...) {
		if strings.Count(text, c.from) != 1 {
			t.Fatalf("envoy/bootstrap.yaml has %q %d times, want once", c.from, strings.Count(text, c.from))
		}
		text = strings.Replace(text, c.from, c.to, 1)
	}
	return text
}
