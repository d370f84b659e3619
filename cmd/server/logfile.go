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
}

// Write implements io.Writer. It returns no error for a dropped line, because zap would write the
// error to stderr.
func (f *logFile) Write(line []byte) (int, error) {
	for written := 0; written < len(line); {
		if f.dropping = !f.hasRoom(); f.dropping {
			break
		}
		n, err := f.File.Write(line[written:min(len(line), written+pieceBytes)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return len(line), nil
}

// hasRoom reports whether a write would not block. It waits for room unless Write drops lines.
func (f *logFile) hasRoom() bool {
	wait := maxLogWait
	if f.dropping {
		wait = 0
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return true // the write returns the error
	}
	events := 0
	_ = conn.Control(func(fd uintptr) {
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			events, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(wait.Milliseconds()))
		}
	})
	return events > 0 || err != nil
}
