//go:build linux && (race || 386)

package socket

import (
	"errors"
	"syscall"
)

// The race detector knows that what was written before a byte was sent may be read after it has come, if package syscall
// sends and reads it. For 386 that package has no number of recvfrom.

func read(fd uintptr, b []byte) (int, syscall.Errno) { return said(syscall.Read(int(fd), b)) }

func write(fd uintptr, b []byte) (int, syscall.Errno) { return said(syscall.Write(int(fd), b)) }

func said(n int, err error) (int, syscall.Errno) {
	var no syscall.Errno
	errors.As(err, &no)
	return n, no
}

func nothing(uintptr) bool { return false }
