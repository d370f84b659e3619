package harness

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// The error of a failed start has the exit code and the output of the process.
func TestStartErrorHasExitCodeAndOutput(t *testing.T) {
	t.Parallel()
	never := func(context.Context) error { return errors.New("nobody listens") }
	_, err := Start(t.Context(), exec.Command("sh", "-c", "echo no such rule; exit 3"), filepath.Join(t.TempDir(), "log"), never)
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "no such rule") {
		t.Errorf("got %v, want the exit code and the log", err)
	}
}

// A canceled start leaves no process behind.
func TestCanceledStartEndsProcess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.Command("sleep", "60")
	_, err := Start(ctx, cmd, filepath.Join(t.TempDir(), "log"), func(context.Context) error {
		cancel()
		return errors.New("nobody listens")
	})
	if !errors.Is(err, context.Canceled) && (err == nil || !strings.Contains(err.Error(), "nobody listens")) {
		t.Errorf("got %v, want that it was not ready", err)
	}
	if cmd.ProcessState == nil {
		t.Error("the process is still there")
	}
}

// Stop returns the exit code each time it is called.
func TestStopReturnsExitCodeEachTime(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	script := `trap 'kill $!; exit 4' TERM; sleep 60 & echo ready; wait`
	p, err := Start(t.Context(), exec.Command("sh", "-c", script), log, func(context.Context) error {
		b, err := os.ReadFile(log)
		if err == nil && string(b) != "ready\n" {
			err = errors.New("not yet")
		}
		return err
	})
	must.Succeed(t, err)
	for range 2 {
		if code, err := p.Stop(); code != 4 || err != nil {
			t.Errorf("Stop: %d, %v, want 4", code, err)
		}
	}
}

// A bootstrap file with unknown ports could use ports of another process.
func TestRewriteRejectsUnknownPorts(t *testing.T) {
	t.Parallel()
	known := map[int]string{10000: "7", 8081: "8"}
	for _, c := range []struct{ ports, fault string }{
		{"[{port_value: 10000}, {port_value: 8081}]", ""},
		{"[{port_value: 10000}]", "no port_value 8081"},
		{"[{port_value: 10000}, {port_value: 8081}, {port_value: 1}]", "port 1 is not one"},
	} {
		err := rewrite([]byte(c.ports), "from.yaml", filepath.Join(t.TempDir(), "to.yaml"), 0, known)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: got %v, want %q", c.ports, err, c.fault)
		}
	}
}
