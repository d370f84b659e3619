//go:build linux && (race || 386)

package socket

import (
	"errors"
	"syscall"
)

// Package syscall tells the race detector that sending a byte happens before receiving it. On 386
// it has no number of recvfrom.

func read(fd uintptr, b []byte) (int, syscall.Errno) { return result(syscall.Read(int(fd), b)) }

func write(fd uintptr, b []byte) (int, syscall.Errno) { return result(syscall.Write(int(fd), b)) }

func result(n int, err error) (int, syscall.Errno) {
	var no syscall.Errno
	errors.As(err, &no)
	return n, no
}

func wouldBlock(uintptr) bool { return false }
