package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// Main runs the tests m, at most parallel at a time, and then remove. It returns the exit code.
// Without Envoy it prints an error once and runs no test.
func Main(m *testing.M, name, parallel string, remove func() error) int {
	flag.Parse()
	_, err := FindEnvoy()
	if err = errors.Join(err, flag.Set("test.parallel", parallel)); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return Run(m, name, remove)
}

// Run runs the tests m, and then each function of after. It returns the exit code.
func Run(m *testing.M, name string, after ...func() error) int {
	code := m.Run()
	for _, f := range after {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			code = 1
		}
	}
	return code
}

// BuildOnce is [BuildWeir] for all tests of a package. The first call of binary builds Weir into a
// new folder, which remove deletes. $WEIR may name a binary instead; with it, make test builds Weir
// once for all packages.
func BuildOnce() (binary func(testing.TB) string, remove func() error) {
	dir := ""
	build := sync.OnceValues(func() (path string, err error) {
		if path := os.Getenv("WEIR"); path != "" {
			return path, nil
		}
		if dir, err = os.MkdirTemp("", "weir-"); err != nil {
			return "", err
		}
		return BuildWeir(context.Background(), dir)
	})
	binary = func(t testing.TB) string {
		t.Helper()
		path, err := build()
		must.Succeed(t, err)
		return path
	}
	return binary, func() error { return os.RemoveAll(dir) }
}

// MustStart is [Start] for a test, with [MustStop] at its end. The log is in a folder of the test.
func MustStart(t testing.TB, cmd *exec.Cmd, ready func(context.Context) error) *Process {
	t.Helper()
	p, err := Start(t.Context(), cmd, filepath.Join(t.TempDir(), "log"), ready)
	must.Succeed(t, err)
	t.Cleanup(func() { MustStop(t, p) })
	return p
}

// MustStartWeir is [StartWeir] for a test, with [MustStop] at its end. If o.Dir is empty, the log
// is in a folder of the test.
func MustStartWeir(t testing.TB, o WeirOptions) *Weir {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	w, err := StartWeir(t.Context(), o)
	must.Succeed(t, err)
	t.Cleanup(func() { MustStop(t, w.Process) })
	return w
}

// MustStartEnvoy is [StartEnvoy] for a test, with [MustStop] at its end. If o.Dir is empty, its
// files are in a folder of the test.
func MustStartEnvoy(t testing.TB, o EnvoyOptions) *Envoy {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	e, err := StartEnvoy(t.Context(), o)
	must.Succeed(t, err)
	t.Cleanup(func() { MustStop(t, e.Process) })
	return e
}

// MustFindRatelimit is [FindRatelimit] for a test, which it skips without envoyproxy/ratelimit. The
// test fails if INCUMBENT is set or INCUMBENT_REQUIRED is 1.
func MustFindRatelimit(t testing.TB) string {
	t.Helper()
	path, err := FindRatelimit()
	switch {
	case err == nil:
	case os.Getenv("INCUMBENT_REQUIRED") == "1" || os.Getenv("INCUMBENT") != "":
		t.Fatal("no binary of envoyproxy/ratelimit: ", err)
	default:
		t.Skip("NOT COMPARED with envoyproxy/ratelimit: ", err)
	}
	return path
}

// MustStartRatelimit is [StartRatelimit] for a test, which kills the server at its end.
func MustStartRatelimit(t testing.TB, o RatelimitOptions) *Ratelimit {
	t.Helper()
	r, err := StartRatelimit(t.Context(), o)
	must.Succeed(t, err)
	t.Cleanup(r.Kill)
	return r
}

// MustStop stops a process. The test fails unless the process exits with 0, or has been killed by
// [Process.Kill].
func MustStop(t testing.TB, p *Process) {
	t.Helper()
	if code, err := p.Stop(); err != nil || code != 0 && !p.killed {
		t.Errorf("%s: exit code %d after SIGTERM, %v, want 0", p.name, code, err)
	}
	if t.Failed() {
		t.Logf("the end of the log of %s:\n%s", p.name, p.Tail())
	}
}

// MustFreePorts is [FreePorts] for a test.
func MustFreePorts(t testing.TB, n int) []int {
	t.Helper()
	free, err := FreePorts(n)
	must.Succeed(t, err)
	return free
}

// MustGet is [Get] for a test.
func MustGet(t testing.TB, url string) string {
	t.Helper()
	text, err := Get(t.Context(), url)
	must.Succeed(t, err)
	return text
}
