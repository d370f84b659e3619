package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// A log collector may restart. Without it, a server still decides requests and saves its counters.
func TestServerOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	s := startPiped(t)
	must.Succeed(t, s.stderr.Close())
	s.await(`"ready"`)
	must.Succeed(t, s.log.Close())
	s.mustStopAndSave() // the stop is logged
}

// A paused pager takes no lines. A server then still stops and saves its counters.
func TestServerDoesNotWaitForTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	s := startPiped(t)
	defer func() { must.Succeed(t, errors.Join(s.log.Close(), s.stderr.Close())) }()
	s.await(`"ready"`)
	fillLog(s.stderr)
	must.Succeed(t, s.cmd.Process.Signal(syscall.SIGHUP))
	time.Sleep(2 * maxLogWait) // the line of this signal is dropped
	s.mustStopAndSave()
}

// A pipedServer is a process that logs to a pipe, and saves its counters in a snapshot.
type pipedServer struct {
	t           *testing.T
	cmd         *exec.Cmd
	log, stderr *os.File // the ends of the pipe
	lines       *bufio.Scanner
	snapshot    string
}

func startPiped(t *testing.T) *pipedServer {
	t.Helper()
	log, stderr, err := os.Pipe()
	must.Succeed(t, err)
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	cmd := serverCommand([]string{"CONFIG_PATH=" + rulesFile(t), "MEMORY_SNAPSHOT=" + snapshot})
	cmd.Stderr = stderr
	must.Succeed(t, cmd.Start())
	return &pipedServer{t, cmd, log, stderr, bufio.NewScanner(log), snapshot}
}

// await reads the log up to a line with text.
func (s *pipedServer) await(text string) {
	for s.lines.Scan() && !strings.Contains(s.lines.Text(), text) {
	}
}

// mustStopAndSave fails the test unless the server ends with 0 after SIGTERM, and saves its
// counters.
func (s *pipedServer) mustStopAndSave() {
	s.t.Helper()
	must.Succeed(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server ended with %v, want exit code 0", err)
	}
	if _, err := os.Stat(s.snapshot); err != nil {
		s.t.Error(err)
	}
}

// A log continues when its reader does, and long lines arrive whole.
func TestLogContinuesWithItsReader(t *testing.T) {
	t.Parallel()
	log, stderr, err := os.Pipe()
	must.Succeed(t, err)
	f := &logFile{File: stderr}
	long := strings.Repeat("x", 4*pieceBytes) + "\n" // 16 pieces fill a pipe of Linux, so a part of a line fits
	written := 0
	for ; !f.dropping; written++ {
		if n, err := f.Write([]byte(long)); n != len(long) || err != nil {
			t.Fatalf("wrote %d, %v, want %d", n, err, len(long))
		}
	}
	start := time.Now()
	_, _ = f.Write([]byte("dropped\n"))
	if took := time.Since(start); took >= maxLogWait {
		t.Errorf("a line waited %v while lines are dropped", took)
	}
	lines := bufio.NewScanner(log)
	for range written - 1 {
		if !lines.Scan() || len(lines.Text()) != len(long)-1 {
			t.Fatalf("a line of %d bytes, %v, want %d", len(lines.Text()), lines.Err(), len(long)-1)
		}
	}
	_, _ = f.Write([]byte("goes on\n")) // on a line of its own, after the part of the line that did not fit
	must.Succeed(t, stderr.Close())
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if last != "goes on" {
		t.Errorf("the last line is %.20q, of %d bytes", last, len(last))
	}
	must.Succeed(t, log.Close())
}

// A slow reader takes a part of a long line in time, but not the whole line.
func TestSlowReaderOfTheLogHoldsALineOnlyOnce(t *testing.T) {
	t.Parallel()
	log, stderr, err := os.Pipe()
	must.Succeed(t, err)
	fillLog(stderr)
	stop := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		piece := make([]byte, pieceBytes)
		for {
			select {
			case <-stop:
				return
			case <-time.After(maxLogWait / 10):
				_, _ = log.Read(piece)
			}
		}
	})
	f := &logFile{File: stderr}
	_, _ = f.Write(make([]byte, 100*pieceBytes))
	if !f.dropping {
		t.Error("a line that the reader takes ten times too slowly was written whole")
	}
	close(stop)
	reading.Wait()
	must.Succeed(t, errors.Join(log.Close(), stderr.Close()))
}

// fillLog writes to a log until its reader takes no more.
func fillLog(stderr *os.File) {
	for full := (&logFile{File: stderr}); !full.dropping; {
		_, _ = full.Write([]byte("filler\n"))
	}
}
