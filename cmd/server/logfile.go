package main

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLogWait is how long a line waits for a reader of the log that hangs, such as a paused
	// pager.
	maxLogWait = time.Second
	// pieceBytes is the size of a write that does not block on a pipe with room.
	pieceBytes = 4096
)

// A logFile writes lines to a file, such as stderr. It drops a line that its reader does not take
// within maxLogWait, and then further lines until the reader continues. Otherwise requests and the
// stop would wait for the reader. It is not safe for concurrent use.
type logFile struct {
	*os.File
	dropping bool
	torn     bool // the file ends with a part of a dropped line
}

// Write implements io.Writer. It returns no error for a dropped line, because zap would write the
// error to stderr.
func (f *logFile) Write(line []byte) (int, error) {
	deadline := time.Now()
	if !f.dropping {
		deadline = deadline.Add(maxLogWait)
	}
	text := line
	if f.torn {
		text = append([]byte{'\n'}, line...)
	}
	for written := 0; written < len(text); {
		if f.dropping = !f.hasRoom(deadline); f.dropping {
			f.torn = f.torn || written > 0
			return len(line), nil
		}
		n, err := f.File.Write(text[written:min(len(text), written+pieceBytes)])
		written += n
		if err != nil {
			return min(written, len(line)), err
		}
	}
	f.torn = false
	return len(line), nil
}

// hasRoom reports whether a write would not block. It waits for room until the deadline.
func (f *logFile) hasRoom(deadline time.Time) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return true // the write returns the error
	}
	events := 0
	_ = conn.Control(func(fd uintptr) {
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			wait := max(0, time.Until(deadline))
			events, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(wait.Milliseconds()))
		}
	})
	return events > 0 || err != nil
}
