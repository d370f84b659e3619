package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-rls/weir/internal/freeport"
)

const (
	startTimeout = 2 * time.Minute // a machine that runs the race detector on every core is slow
	stopTimeout  = 2 * time.Minute
	pollEvery    = 20 * time.Millisecond
	logTail      = 4 << 10 // bytes
)

// A Process is a running server that writes its log to a file.
type Process struct {
	name string
	log  string // path
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended
	code int           // valid once done is closed

	killed bool // by Kill
}

// Start runs cmd with its output in the file log, and waits until ready returns nil. On Linux, the
// process dies with its parent.
func Start(ctx context.Context, cmd *exec.Cmd, log string, ready func(context.Context) error) (*Process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = childAttr()
	p := &Process{name: cmd.Args[0], log: log, cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		_ = cmd.Wait() // the exit code has the outcome
		p.code = cmd.ProcessState.ExitCode()
		close(p.done)
	}()
	if err := p.await(ctx, ready); err != nil {
		p.kill()
		return nil, fmt.Errorf("%s: %w; the end of its log:\n%s", p.name, err, p.Tail())
	}
	return p, nil
}

// await polls ready until it returns nil, the process ends, or the timeout passes.
func (p *Process) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended with exit code %d before it was ready", p.code)
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", err)
		case <-tick.C:
		}
	}
}

// Stop sends SIGTERM and returns the exit code. It kills a process that does not exit in time, and
// returns an error. It is idempotent.
func (p *Process) Stop() (int, error) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-p.done:
		return p.code, nil
	case <-time.After(stopTimeout):
		p.kill()
		return p.code, fmt.Errorf("%s: still there %v after SIGTERM; the end of its log:\n%s", p.name, stopTimeout, p.Tail())
	}
}

// Hangup sends SIGHUP, which makes Weir reload its rules.
func (p *Process) Hangup() error { return p.cmd.Process.Signal(syscall.SIGHUP) }

// Kill ends the process without warning.
func (p *Process) Kill() {
	p.killed = true
	p.kill()
}

func (p *Process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Resident returns the resident memory of the process in bytes, or 0 for nil.
func (p *Process) Resident() (int64, error) {
	if p == nil {
		return 0, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// Done returns a channel that is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log returns the output of the process so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	s := p.Log()
	if len(s) > logTail {
		s = s[len(s)-logTail:]
		s = s[strings.IndexByte(s, '\n')+1:]
	}
	return s
}

// FreePorts returns n free loopback ports, which no other test gets, because Envoys can share a
// port unnoticed.
func FreePorts(n int) ([]int, error) {
	free := make([]int, n)
	for i := range free {
		var err error
		if free[i], err = freeport.Find(); err != nil {
			return nil, err
		}
	}
	return free, nil
}
